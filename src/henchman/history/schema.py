"""The tables, once for SQLite, PostgreSQL, MySQL and MariaDB.

Every name begins with ``henchman_``, so that a user's own database can hold them. A position (``born``, ``changed``,
``sid``, ``run``) is made of a stream id: milliseconds times 2**21 plus a number within them, and always rises.
Names and ids are compared byte by byte. JSON stands as text: no query looks inside.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import mysql

__all__ = [
    "KEY",
    "METADATA",
    "NAME",
    "VERSION_TABLE",
    "BatchRow",
    "EventRow",
    "batches",
    "changes",
    "events",
    "messages",
    "position",
    "runs",
]

VERSION_TABLE = "henchman_version"
KEY, NAME, WORD = 100, 255, 20  # characters of ids, of names that are searched for, of our words; longer ones are cut

METADATA, VIEWS = MetaData(), MetaData()
_LONG = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_MYSQL = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}
_MARIADB = {name.replace("mysql", "mariadb"): value for name, value in _MYSQL.items()}
OPTIONS: dict[str, Any] = _MYSQL | _MARIADB
ONE_TREE = OPTIONS | {"sqlite_with_rowid": False}  # what belongs to a job lies together, under one index


def _plain(length: int) -> String:
    """Of what stands in an index. The rules of a language would make PostgreSQL's comparisons dear, and its order not
    everybody's."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


batches = Table(
    "henchman_batches",
    METADATA,
    Column("id", _plain(KEY), primary_key=True),
    Column("description", _LONG),
    Column("tags", _LONG),
    Column("state", String(WORD)),
    Column("why", String(WORD)),
    Column("parent", String(KEY)),
    Column("created", Double),
    Column("closed", Double),
    Column("completed", Double),
    Column("expires", Double),
    Column("generation", Integer),
    Column("total", Integer),
    Column("counts", _LONG),  # as the server counted them when it was complete
    Column("changed", BigInteger, nullable=False),
    Index("henchman_batches_changed", "changed"),
    **OPTIONS,
)

events = Table(
    "henchman_events",
    METADATA,
    Column("jid", _plain(KEY), primary_key=True),
    Column("batch", _plain(KEY)),
    Column("class", _plain(NAME)),
    Column("queue", String(NAME)),
    Column("args", _LONG),
    Column("kwargs", _LONG),
    Column("tags", _LONG),
    Column("status", _plain(WORD)),
    Column("attempts", Integer),
    Column("enqueued_at", Double),
    Column("started_at", Double),
    Column("ended_at", Double),  # 0: it had ended, and lives again
    Column("result", _LONG),
    Column("error_class", String(NAME)),  # this and the next two are "" when a later run went without an error
    Column("message", _LONG),
    Column("traceback", _LONG),
    Column("progress_done", Double),
    Column("progress_total", Double),
    Column("process", String(NAME)),
    Column("host", String(NAME)),
    Column("born", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Column("cause", String(WORD)),  # why it did not end well; "" when a later run did
    Index("henchman_events_page", "batch", "status", "born"),
    Index("henchman_events_changed", "batch", "changed"),
    Index("henchman_events_class", "class", "born"),
    Index("henchman_events_status", "status", "born"),  # retention goes by it, too
    Index("henchman_events_day", "ended_at", "status", "class"),  # the ends of a day are counted by it alone
    **OPTIONS,
)

changes = Table(
    "henchman_changes",
    METADATA,
    Column("jid", _plain(KEY), primary_key=True),  # batch:<id> for a change of the batch itself
    Column("sid", BigInteger, primary_key=True, autoincrement=False),
    Column("batch", String(KEY)),
    Column("status", String(WORD)),
    Column("attempt", Integer),
    Column("process", String(NAME)),
    Column("at", Double),
    Column("detail", _LONG),
    Column("started", Double),  # of the run that this change ended, and the next two
    Column("elapsed", Double),
    Column("ending", String(WORD)),
    **ONE_TREE,
)

#: a view of the changes: the end of a run describes it, and until then its beginning
runs = Table(
    "henchman_runs",
    VIEWS,
    Column("jid", String(KEY)),
    Column("run", BigInteger),  # position of the change that tells of it
    Column("attempt", Integer),
    Column("process", String(NAME)),
    Column("started", Double),
    Column("ended", Double),
    Column("ending", String(WORD)),
)

messages = Table(
    "henchman_messages",
    METADATA,
    Column("jid", _plain(KEY), primary_key=True),
    Column("sid", BigInteger, primary_key=True, autoincrement=False),
    Column("batch", String(KEY)),
    Column("at", Double),
    Column("text", _LONG),
    **ONE_TREE,
)

position = Table(
    "henchman_position",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("stream", String(NAME), nullable=False),  # the key that it is a position in
    Column("at", String(60), nullable=False),  # stream id of the last entry that is recorded
    Column("highest", BigInteger, nullable=False),  # the last position that was given out
    Column("updated", Double, nullable=False),
    **OPTIONS,
)


def _row(table: Table) -> Any:
    """A struct with the columns of ``table`` in their order, the key first; None leaves what the table holds."""
    key, *columns = (str(column.name) for column in table.columns)
    fields = [
        (f"{name}_" if name == "class" else name, Any, 0 if name in ("born", "changed") else None) for name in columns
    ]
    return msgspec.defstruct(f"{table.name}_row", [(key, str), *fields], gc=False)


BatchRow, EventRow = _row(batches), _row(events)
