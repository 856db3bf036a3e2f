"""Rows into tables, many at a time, in the way that each product does fastest.

SQLite: one prepared statement for all rows. PostgreSQL: all rows as one JSON text, taken apart by the server.
MySQL and MariaDB: statements of many rows. What stands there already is merged: a column that brings nothing keeps
what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Connection, Dialect, Table
from sqlalchemy.dialects import mysql, postgresql, sqlite

from henchman.history import schema
from henchman.history.rows import Row, Rows

__all__ = ["write"]

_FIRST = frozenset({"enqueued_at", "created"})  # stay as they were first told
_NEVER = frozenset({"born"})  # told once
#: told when a job is pushed; later news leave them and their indexes alone, which is most of the work saved
_AT_BIRTH = frozenset({"batch", "class", "queue", "args", "kwargs", "tags", "enqueued_at"})
_APPENDED = (schema.changes, schema.messages)
_DIALECTS: dict[str, type[Dialect]] = {
    "sqlite": sqlite.dialect,
    "postgresql": postgresql.dialect,
    "mysql": mysql.dialect,
}
_encode = msgspec.json.Encoder().encode
_PACKET_SHARE = 0.9


def write(connection: Connection, kind: str, rows: Rows, packet: int) -> None:
    """Write all of them, in the transaction of ``connection``. ``packet``: most bytes of one statement, for MySQL."""
    events = sorted(rows.events.values(), key=_jid)  # in one order, so that two writers never deadlock
    work: Sequence[tuple[Table, bool, Iterable[Row]]] = (
        (schema.batches, False, rows.batches.values()),
        (schema.events, False, [one for one in events if one.class_ is not None]),
        (schema.events, True, [one for one in events if one.class_ is None]),
        (schema.runs, False, rows.runs.values()),
        (schema.changes, False, rows.changes),
        (schema.messages, False, rows.messages),
    )
    for table, later, found in work:
        many = list(found)
        if not many:
            continue
        values = [msgspec.structs.astuple(one) for one in many]
        if kind == "mysql":
            values = [_fitting(one, int(packet * _PACKET_SHARE)) for one in values]
        columns = list(zip(*values, strict=True))
        told = tuple(place for place, column in enumerate(columns) if column.count(None) < len(column))
        statement = _statement(kind, table, later, told)
        if kind == "postgresql":
            connection.exec_driver_sql(statement, {"rows": _encode(many).decode()})
        else:
            connection.exec_driver_sql(statement, list(zip(*(columns[place] for place in told), strict=True)))


def _jid(row: Any) -> str:
    jid: str = row.jid
    return jid


@lru_cache(500)
def _statement(kind: str, table: Table, later: bool, told: tuple[int, ...]) -> str:
    """``told``: the columns that any of the rows brings; each one less is less to take apart and to compare.
    ``later``: the rows bring nothing of what is told when a job is pushed."""
    dialect = _DIALECTS[kind]()
    quote = dialect.identifier_preparer.quote
    every = list(table.columns)
    columns = [every[place] for place in told]
    names = [quote(column.name) for column in columns]
    key = [quote(column.name) for column in table.primary_key.columns]
    into = f"INSERT INTO {table.name} ({', '.join(names)})"
    if kind == "postgresql":
        shape = ", ".join(f"{quote(one.name)} {one.type.compile(dialect)}" for one in columns)
        source = f"SELECT {', '.join(names)} FROM json_to_recordset(CAST(%(rows)s AS json)) AS told({shape})"  # noqa: S608
    else:
        source = f"VALUES ({', '.join(['?' if kind == 'sqlite' else '%s'] * len(names))})"
    if table in _APPENDED:
        return f"{into} {source}"
    left = _NEVER | _AT_BIRTH if later else _NEVER
    merged = [
        _merged(kind, table.name, name, column.name)
        for name, column in zip(names, columns, strict=True)
        if name not in key and column.name not in left
    ]
    clash = "ON DUPLICATE KEY UPDATE" if kind == "mysql" else f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET"
    return f"{into} {source} {clash} {', '.join(merged)}"


def _merged(kind: str, table: str, quoted: str, name: str) -> str:
    new = f"VALUES({quoted})" if kind == "mysql" else f"excluded.{quoted}"
    old = quoted if kind == "mysql" else f"{table}.{quoted}"
    first, second = (old, new) if name in _FIRST else (new, old)
    return f"{quoted} = COALESCE({first}, {second})"


def _fitting(values: tuple[Any, ...], most: int) -> tuple[Any, ...]:
    """With the longest texts left out until the row fits into one packet of the server."""
    lengths = [_escaped(one) if isinstance(one, str) and len(one) > 1000 else 0 for one in values]
    if sum(lengths) <= most:
        return values
    kept = list(values)
    while sum(lengths) > most:
        place = lengths.index(max(lengths))
        kept[place] = None  # the next best thing: the change tells that the job was there, and how it ended
        lengths[place] = 0
    return tuple(kept)


def _escaped(text: str) -> int:
    return len(text.encode()) + sum(text.count(one) for one in "\"'\\\n\r\0\x1a")
