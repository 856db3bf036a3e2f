"""The migrations lead to the schema that the code works with, and back."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from henchman.history import migrate
from henchman.history.database import Database
from henchman.history.rows import BatchRow, ChangeRow, EventRow, MessageRow, RunRow
from henchman.history.schema import METADATA, VERSION_TABLE, batches, changes, events, messages, runs


def ours(thing: Any, name: str | None, kind: str, *_: object) -> bool:
    return kind != "table" or (name or "").startswith("henchman_")


def test_migrations_make_what_the_code_expects(database_url: str) -> None:
    database = Database(database_url)
    try:
        assert migrate.current(database).fits
        with database.reading() as connection:
            options = {"version_table": VERSION_TABLE, "compare_type": True, "include_object": ours}
            assert compare_metadata(MigrationContext.configure(connection, opts=options), METADATA) == []
    finally:
        database.close()


def test_rows_have_the_columns_of_their_tables() -> None:
    pairs = ((BatchRow, batches), (EventRow, events), (RunRow, runs), (ChangeRow, changes), (MessageRow, messages))
    for row, table in pairs:
        assert list(row.__struct_encode_fields__) == [column.name for column in table.columns]


def test_two_upgrades_at_once_are_one(database_url: str) -> None:
    code = (
        "import sys; from henchman.history import migrate; from henchman.history.database import Database;"
        "d = Database(sys.argv[1]); print(migrate.upgrade(d).fits); d.close()"
    )
    database = Database(database_url)
    try:
        with database.writing() as connection:
            METADATA.drop_all(connection)
            connection.exec_driver_sql(f"DROP TABLE {VERSION_TABLE}")
    finally:
        database.close()
    children = [
        subprocess.Popen([sys.executable, "-c", code, database_url], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [child.communicate(timeout=100)[0] for child in children] == ["True\n"] * 3
