"""The migrations lead to the schema that the code works with, and back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import MetaData, Table, insert, select

from henchman.history.database import Database
from henchman.history.reading import History
from henchman.history.schema import METADATA, VERSION_TABLE, changes, events
from henchman.sql import database as database_module
from support.databases import emptied


def ours(thing: Any, name: str | None, kind: str, *_: object) -> bool:
    known = name or ""  # the outbox's tables have a version of their own, and a test of their own
    return kind != "table" or (known.startswith("henchman_") and not known.startswith("henchman_outbox"))


def test_migrations_make_what_the_code_expects(database_url: str) -> None:
    database = Database(database_url)
    try:
        assert database.version().fits
        with database.reading() as connection:
            options = {"version_table": VERSION_TABLE, "compare_type": True, "include_object": ours}
            assert compare_metadata(MigrationContext.configure(connection, opts=options), METADATA) == []
    finally:
        database.close()


@pytest.mark.parametrize("umask", [0o000, 0o277])
def test_a_file_in_a_private_folder_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    tmp_path.chmod(0o700)
    database = Database(f"sqlite:///{tmp_path}/history.sqlite")
    before = os.umask(umask)
    try:
        database.upgrade()
        with database.reading():
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
        database.close()
    assert {"history.sqlite", "history.sqlite-wal"} <= modes.keys()
    assert set(modes.values()) == {0o600}


def test_two_upgrades_at_once_are_one(database_url: str) -> None:
    code = (
        "import sys; from henchman.history.database import Database;"
        "d = Database(sys.argv[1]); print(d.upgrade().fits); d.close()"
    )
    emptied(database_url)
    children = [
        subprocess.Popen([sys.executable, "-c", code, database_url], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [child.communicate(timeout=100)[0] for child in children] == ["True\n"] * 3


OLD_RUNS = [  # (jid, run, attempt, process, host, started, ended, ending)
    ("j1", 10, 1, "h:1:a", "h", 1.5, 3.0, "retry"),
    ("j1", 40, 2, "h:2:b", "h", 4.5, None, None),
    ("j2", 50, 1, "h:1:a", "h", 2.5, 2.75, "done"),
]
OLD_CHANGES = [  # (jid, sid, status, attempt, process, at, detail)
    ("j1", 5, "enqueued", 0, None, 1.0, ""),
    ("j1", 10, "working", 1, "h:1:a", 1.5, '{"ending":"started"}'),
    ("j1", 20, "retrying", 1, "h:1:a", 3.0, '{"ending":"retry","message":"no"}'),
    ("j1", 40, "working", 2, "h:2:b", 4.5, '{"ending":"started"}'),
    ("j2", 6, "enqueued", 0, None, 1.0, ""),
    ("j2", 50, "finished", 1, "h:1:a", 2.75, '{"ending":"done","started":2.5,"elapsed":0.25}'),
]


@pytest.fixture
def to_first(monkeypatch: pytest.MonkeyPatch) -> Callable[[Database, str], None]:
    """Leads a database to the first schema, ``up`` from nothing or ``down`` from a later one."""

    def lead(database: Database, way: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(
                database_module,
                "_steps",
                lambda scripts: lambda revision, _: getattr(scripts, f"_{way}grade_revs")("0001", revision),
            )
            database.upgrade()

    return lead


def fill_first(database: Database) -> None:
    """What the first release would have written."""
    with database.writing() as connection:
        old = Table("henchman_runs", MetaData(), autoload_with=connection)
        connection.execute(insert(old), [dict(zip(old.c.keys(), row, strict=True)) for row in OLD_RUNS])
        names = ("jid", "sid", "status", "attempt", "process", "at", "detail")
        told = [dict(zip(names, row, strict=True)) for row in OLD_CHANGES]
        connection.execute(insert(changes).values(dict.fromkeys(names)), told)
        connection.execute(insert(events), [{"jid": jid, "born": 5, "changed": 50} for jid in ("j1", "j2")])


@pytest.fixture
def upgraded(database_url: str, to_first: Callable[[Database, str], None]) -> Iterator[Database]:
    """A database that the first release has written to, brought to this release's schema."""
    emptied(database_url)
    database = Database(database_url)
    try:
        to_first(database, "up")
        fill_first(database)
        database.upgrade()
        yield database
    finally:
        database.close()


def test_runs_of_the_first_schema_are_told_by_its_changes(upgraded: Database) -> None:
    history = History(upgraded)
    found = [history.job(jid) for jid in ("j1", "j2")]
    assert [
        (run.jid, run.attempt, run.process, run.host, run.started, run.ended, run.ending)
        for job in found
        if job is not None
        for run in job.runs
    ] == [(jid, *rest) for jid, _, *rest in OLD_RUNS]
    assert found[1] is not None
    assert found[1].changes[1].detail == {"ending": "done", "started": 2.5, "elapsed": 0.25}


def test_the_way_back_keeps_the_runs(upgraded: Database, to_first: Callable[[Database, str], None]) -> None:
    """All but their hosts, which the later schema has in the names of the processes alone."""
    to_first(upgraded, "down")
    assert upgraded.version().found == "0001"
    with upgraded.reading() as connection:
        old = Table("henchman_runs", MetaData(), autoload_with=connection)
        found = connection.execute(select(old).order_by(old.c.run)).all()
        assert "started" not in Table("henchman_changes", MetaData(), autoload_with=connection).c
    assert [(row.jid, row.attempt, row.process, row.started, row.ended, row.ending) for row in found] == [
        (jid, attempt, process, *rest) for jid, _, attempt, process, _, *rest in OLD_RUNS
    ]
    upgraded.upgrade()
    assert upgraded.version().fits
