"""Rows into tables, many at a time, in the way that each product does fastest.

SQLite: one prepared statement for all rows. PostgreSQL: ``COPY``, into the table where rows are only added, else into a
temporary one from which they are merged. MySQL and MariaDB: statements of many rows. What stands there already is
merged: a column that brings nothing keeps what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Connection, Dialect, Double, Integer, String, Table, Text
from sqlalchemy.dialects import mysql, postgresql, sqlite

from henchman.history import schema
from henchman.history.rows import BatchRow, EventRow, Rows

__all__ = ["write"]

_FIRST = frozenset({"enqueued_at", "created"})  # stay as they were first told
_NEVER = frozenset({"born"})  # told once
#: told when a job is pushed; later news leave them and their indexes alone, which is most of the work saved
_AT_BIRTH = frozenset({"batch", "class", "args", "kwargs", "tags", "enqueued_at"})
_DIALECTS: dict[str, type[Dialect]] = {
    "sqlite": sqlite.dialect,
    "postgresql": postgresql.dialect,
    "mysql": mysql.dialect,
}
_BINARY = {BigInteger: "int8", Integer: "int4", Double: "float8", String: "varchar", Text: "text"}  # of PostgreSQL
_PACKET_SHARE = 0.9

Values = Sequence[tuple[Any, ...]]


def write(connection: Connection, kind: str, rows: Rows, packet: int) -> None:
    """Write all of them, in the transaction of ``connection``. ``packet``: most bytes of one statement, for MySQL."""
    events = sorted(rows.events.values(), key=attrgetter("jid"))  # in one order, so that two writers never deadlock
    _merge(connection, kind, schema.batches, rows.batches.values(), packet)
    _merge(connection, kind, schema.events, [one for one in events if one.class_ is not None], packet)
    _merge(connection, kind, schema.events, [one for one in events if one.class_ is None], packet, later=True)
    for table, values in ((schema.changes, rows.changes), (schema.messages, rows.messages)):
        if values:
            _append(connection, kind, table, _fitting(kind, values, packet))


def _append(connection: Connection, kind: str, table: Table, values: Values) -> None:
    every = tuple(range(len(table.columns)))
    if kind == "postgresql":
        _copy(connection, table, table.name, every, values)
    else:
        connection.exec_driver_sql(_insert(kind, table, every), values)


def _merge(
    connection: Connection,
    kind: str,
    table: Table,
    rows: Iterable[BatchRow | EventRow],
    packet: int,
    *,
    later: bool = False,
) -> None:
    """``later``: the rows bring nothing of what is told when a job is pushed. Only columns that any of them brings are
    named: each one less is less to take apart and to compare."""
    values = _fitting(kind, [msgspec.structs.astuple(one) for one in rows], packet)
    if not values:
        return
    columns = list(zip(*values, strict=True))
    missing = [column.count(None) for column in columns]
    told = tuple(place for place, many in enumerate(missing) if many < len(values))
    partly = frozenset(place for place in told if missing[place])
    found = list(zip(*(columns[place] for place in told), strict=True))
    statement = _upsert(kind, table, later, told, partly)
    if kind == "postgresql":
        stage = _stage(table, later)
        connection.exec_driver_sql(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {stage} (LIKE {table.name}) ON COMMIT DELETE ROWS"
        )
        _copy(connection, table, stage, told, found)
        connection.exec_driver_sql(statement)
    else:
        connection.exec_driver_sql(statement, found)


def _stage(table: Table, later: bool) -> str:
    return f"new_{table.name}{'_later' if later else ''}"


def _copy(connection: Connection, table: Table, into: str, places: tuple[int, ...], values: Values) -> None:
    """PostgreSQL's own way in, which SQLAlchemy has no words for."""
    names, _ = _names("postgresql", table, places)
    kinds = [_BINARY[list(table.columns)[place].type.__class__] for place in places]
    raw: Any = connection.connection
    with raw.cursor() as cursor, cursor.copy(f"COPY {into} ({', '.join(names)}) FROM STDIN BINARY") as copy:
        copy.set_types(kinds)
        add = copy.write_row
        for row in values:
            add(row)


def _names(kind: str, table: Table, places: tuple[int, ...]) -> tuple[list[str], str]:
    """Quoted names of columns; the beginning of a statement that writes them."""
    quote = _DIALECTS[kind]().identifier_preparer.quote
    every = list(table.columns)
    names = [quote(every[place].name) for place in places]
    return names, f"INSERT INTO {table.name} ({', '.join(names)})"


@lru_cache(50)
def _insert(kind: str, table: Table, places: tuple[int, ...]) -> str:
    names, into = _names(kind, table, places)
    return f"{into} VALUES ({', '.join(['?' if kind == 'sqlite' else '%s'] * len(names))})"


@lru_cache(500)
def _upsert(kind: str, table: Table, later: bool, told: tuple[int, ...], partly: frozenset[int]) -> str:
    """``told``: the columns that any of the rows brings; ``partly``: those of them that some do not bring."""
    names, into = _names(kind, table, told)
    key = {column.name for column in table.primary_key.columns}
    left = key | _NEVER | (_AT_BIRTH if later else frozenset())
    every = list(table.columns)
    merged = [
        _merged(kind, table.name, quoted, every[place].name, place in partly)
        for quoted, place in zip(names, told, strict=True)
        if every[place].name not in left
    ]
    if kind == "postgresql":
        source = f"{into} SELECT {', '.join(names)} FROM {_stage(table, later)}"  # noqa: S608
    else:
        source = _insert(kind, table, told)
    clash = "ON DUPLICATE KEY UPDATE" if kind == "mysql" else f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET"
    return f"{source} {clash} {', '.join(merged)}"


def _merged(kind: str, table: str, quoted: str, name: str, partly: bool) -> str:
    new = f"VALUES({quoted})" if kind == "mysql" else f"excluded.{quoted}"
    old = quoted if kind == "mysql" else f"{table}.{quoted}"
    if name in _FIRST:
        return f"{quoted} = COALESCE({old}, {new})"
    return f"{quoted} = COALESCE({new}, {old})" if partly else f"{quoted} = {new}"


def _fitting(kind: str, values: Values, packet: int) -> Values:
    """For MySQL: with the longest texts left out of a row until it fits into one packet of the server."""
    return [_fit(one, int(packet * _PACKET_SHARE)) for one in values] if kind == "mysql" else values


def _fit(values: tuple[Any, ...], most: int) -> tuple[Any, ...]:
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
