"""The checkpoint: rows and the position in the stream move in one transaction, so each entry is written exactly once.

The transaction begins by comparing and setting the position. A recorder that finds another position than the one its
rows were made from (two recorders at once; a commit whose answer was lost) writes nothing and reads the position again.

An entry behind the position is new. One at or before it was written (its recorder died before it trimmed the stream),
or comes from a server that went back to an older state; the database knows which.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    Connection,
    Dialect,
    Double,
    Integer,
    String,
    Table,
    Text,
    insert,
    null,
    select,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from henchman.errors import HistoryAway, HistoryError
from henchman.history import schema
from henchman.history.database import Database
from henchman.history.records import OF_BATCH
from henchman.history.stream import (
    Entry,
    Reducer,
    Rows,
    attempt_of,
    fields_of,
    ident,
    number_of,
    order,
    unbundled,
    word_of,
)
from henchman.kernel.events import Events

__all__ = ["BEGINNING", "Checkpoint", "Chunk", "Overtaken", "Position", "write"]

BEGINNING = "0-0"
_PACKET = 16 * 1024 * 1024
_MANY = 500


class Overtaken(Exception):
    """The position has moved: another recorder works, or has written these rows."""


class Position(NamedTuple):
    """``at``: stream id of the last entry written; ``highest``: the last position given out."""

    at: str
    highest: int


class Chunk(NamedTuple):
    """Entries that are not written yet, their rows, and the positions before and after."""

    entries: Sequence[Entry]
    rows: Rows
    start: Position
    end: Position


class Checkpoint:
    """The record of one stream in one database. ``load`` first, and again after every error.

    It announces ``history_rewound`` when the server went back, and ``history_refused`` for an entry that the database
    does not take.
    """

    def __init__(self, database: Database, stream: str, events: Events) -> None:
        self._database = database
        self._stream = stream
        self._events = events
        self._position = Position(BEGINNING, 0)
        self._packet = _PACKET if database.kind != "mysql" else 0

    def load(self) -> Position:
        """Read the position; it begins now when there is none. HistoryError when it is another stream's."""
        table = schema.position
        with self._database.writing() as connection:
            query = select(table.c.stream, table.c.at, table.c.highest).where(table.c.id == 1)
            found = connection.execute(query).first()
            if found is None:
                new = {"id": 1, "stream": self._stream, "at": BEGINNING, "highest": 0, "updated": time.time()}
                connection.execute(insert(table).values(new))
        if found is not None and found.stream != self._stream:
            raise HistoryError(
                f"{self._database.shown} holds the history of {found.stream!r}, not of {self._stream!r}: "
                "give each namespace a database (or a schema) of its own"
            )
        self._position = Position(BEGINNING, 0) if found is None else Position(found.at, found.highest)
        return self._position

    def prepare(self, entries: Sequence[Entry], behind: Chunk | None = None) -> Chunk:
        """Make rows of a chunk; it follows ``behind``, which need not be written yet."""
        start = self._position if behind is None else behind.end
        return _reduced(self._fresh(unbundled(entries), start), start)

    def write(self, chunk: Chunk) -> None:
        """Write a chunk. HistoryAway, HistoryError; Overtaken: load again."""
        if chunk.start != self._position:
            raise Overtaken
        try:
            self._commit(chunk)
        except HistoryAway:
            raise
        except HistoryError as error:
            self._halve(chunk.entries, error)

    def commit(self, rows: Rows, old: Position, new: Position) -> None:
        """Write ``rows`` and move from ``old`` to ``new``, both or neither. Raises Overtaken, and then did neither."""
        table = schema.position
        with self._database.writing() as connection:
            moved = connection.execute(
                update(table)
                .where(table.c.id == 1, table.c.at == old.at, table.c.highest == old.highest)
                .values(at=new.at, highest=new.highest, updated=time.time())
            )
            if moved.rowcount != 1:
                raise Overtaken
            if not self._packet:
                self._packet = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar() or _PACKET)
            write(connection, self._database.kind, rows, self._packet)

    def _commit(self, chunk: Chunk) -> None:
        if chunk.entries:
            self.commit(chunk.rows, chunk.start, chunk.end)
            self._position = chunk.end

    def _fresh(self, entries: Sequence[Entry], position: Position) -> Sequence[Entry]:
        """The entries that are not written yet."""
        stands = order(position.at)
        if order(entries[0][0]) > stands:
            return entries
        old = [one for one in entries if order(one[0]) <= stands]
        marks = [_mark(one) for one in old]
        known = self._known([mark for mark in marks if mark is not None])
        back = [one for one, mark in zip(old, marks, strict=True) if mark is not None and mark not in known]
        if not back:
            return entries[len(old) :]
        self._events.emit("history_rewound", position=position.at, entry=back[0][0].decode(), entries=len(back))
        return [*back, *entries[len(old) :]]

    def _known(self, marks: Sequence[_Mark]) -> set[_Mark]:
        """Which of these have a row."""
        found: set[_Mark] = set()
        of_changes, of_messages = schema.changes.c, schema.messages.c
        with self._database.reading() as connection:
            for first in range(0, len(marks), _MANY):
                jids, times = ({mark[place] for mark in marks[first : first + _MANY]} for place in (0, 1))
                for query in (
                    select(of_changes.jid, of_changes.at, of_changes.status, of_changes.attempt),
                    select(of_messages.jid, of_messages.at, null(), null()),
                ):
                    jid, at, *_ = query.selected_columns
                    rows = connection.execute(query.where(jid.in_(jids), at.in_(times)).distinct())
                    found.update(_Mark(*row) for row in rows)
        return found

    def _halve(self, entries: Sequence[Entry], error: HistoryError) -> None:
        """Write the entries that the database takes, and without its detail the one that it refuses."""
        if len(entries) > 1:
            half = len(entries) // 2
            for some in (entries[:half], entries[half:]):
                self.write(_reduced(some, self._position))
            return
        self._commit(_reduced([_without_detail(entries[0], error)], self._position))
        self._events.emit("history_refused", entry=entries[0][0].decode(), error=error)


def _reduced(entries: Sequence[Entry], start: Position) -> Chunk:
    reducer = Reducer(start.highest)
    for one in entries:
        reducer.add(one)
    end = Position(entries[-1][0].decode(), reducer.highest) if entries else start
    return Chunk(entries, reducer.rows, start, end)


class _Mark(NamedTuple):
    """What tells the row of an entry: whose it is, its time, and the change that it tells (None: a message).

    The position of the row does not: after the server's clock went back, one millisecond of the stream holds more
    entries than a position has room for, and rows get positions by the order in which they are written.
    """

    whose: str
    at: float
    status: str | None
    attempt: int | None


def _mark(entry: Entry) -> _Mark | None:
    """None for an entry that leaves no row: progress (the next one says more), and kinds that are not known."""
    fields, (_, at) = fields_of(entry), number_of(entry[0])
    kind, jid = fields.get(b"k"), ident(fields.get(b"j", b""))
    status = word_of(fields.get(b"s", b""))
    if kind == b"batch" and fields.get(b"b"):
        return _Mark(OF_BATCH + ident(fields[b"b"]), at, status, None)
    if kind == b"job" and jid:
        return _Mark(jid, at, status, attempt_of(fields.get(b"a", b"")))
    return _Mark(jid, at, None, None) if kind == b"log" and jid else None


def _without_detail(entry: Entry, error: HistoryError) -> Entry:
    """The change itself, with the reason why its detail was refused."""
    fields = fields_of(entry)
    fields[b"d"] = json.dumps({"refused": str(error)[:500]}).encode()
    return entry[0], [part for pair in fields.items() for part in pair]


# --- rows into tables ------------------------------------------------------------------------------------------------
#
# Many rows at a time, in the way that each product does fastest. SQLite: one prepared statement for all rows.
# PostgreSQL: COPY, into the table where rows are only added, else into a temporary one from which they are merged.
# MySQL and MariaDB: statements of many rows, whose values are written into them a column at a time: the driver, which
# takes them row by row, needs twice the time. A merged column that brings nothing keeps what the table holds.

_FIRST = frozenset({"enqueued_at", "created"})  # keep their first value
_NEVER = frozenset({"born"})  # written once
#: written when a job is pushed; later changes leave these columns and their indexes alone, which saves most of the work
_AT_PUSH = frozenset({"batch", "class", "args", "kwargs", "tags", "enqueued_at"})
_DIALECTS: dict[str, type[Dialect]] = {
    "sqlite": sqlite.dialect,
    "postgresql": postgresql.dialect,
    "mysql": mysql.dialect,
}
_BINARY = {BigInteger: "int8", Integer: "int4", Double: "float8", String: "varchar", Text: "text"}  # of PostgreSQL
_PACKET_SHARE = 0.9
_STATEMENT = 1_000_000  # bytes of one statement of many rows
_ROWS = "\0"  # where they come in it, for MySQL
_KNOWN = 1000  # texts of a column that are remembered as they stand in a statement: most are the same few

Values = Sequence[tuple[Any, ...]]


def write(connection: Connection, kind: str, rows: Rows, packet: int) -> None:
    """Write all rows in the transaction of ``connection``. ``packet``: most bytes of one statement, for MySQL."""
    events = sorted(rows.events.values(), key=attrgetter("jid"))  # in one order, so that two writers never deadlock
    _merge(connection, kind, schema.batches, rows.batches.values(), packet)
    _merge(connection, kind, schema.events, [one for one in events if one.class_ is not None], packet)
    _merge(connection, kind, schema.events, [one for one in events if one.class_ is None], packet, _AT_PUSH)
    for table, values in ((schema.changes, rows.changes), (schema.messages, rows.messages)):
        every = tuple(range(len(table.columns)))
        fitting = _fitting(kind, values, packet)
        if kind == "postgresql" and values:
            _copy(connection, table, table.name, every, fitting)
        elif values:
            _execute(connection, kind, _insert(kind, table, every), fitting, packet)


def _merge(
    connection: Connection,
    kind: str,
    table: Table,
    rows: Iterable[Any],
    packet: int,
    absent: frozenset[str] = frozenset(),
) -> None:
    """``absent``: columns that the rows never bring. The statement names only columns that any row brings: each one
    less is less to take apart and to compare."""
    values = _fitting(kind, [msgspec.structs.astuple(one) for one in rows], packet)
    if not values:
        return
    columns = list(zip(*values, strict=True))
    missing = [column.count(None) for column in columns]
    brought = tuple(place for place, many in enumerate(missing) if many < len(values))
    partly = frozenset(place for place in brought if missing[place])
    found = list(zip(*(columns[place] for place in brought), strict=True))
    statement = _upsert(kind, table, absent, brought, partly)
    if kind != "postgresql":
        _execute(connection, kind, statement, found, packet)
        return
    stage = _stage(table, absent)
    temporary = f"CREATE TEMPORARY TABLE IF NOT EXISTS {stage} (LIKE {table.name}) ON COMMIT DELETE ROWS"
    connection.exec_driver_sql(temporary)
    _copy(connection, table, stage, brought, found)
    connection.exec_driver_sql(statement)


def _execute(connection: Connection, kind: str, statement: str, rows: Values, packet: int) -> None:
    """``statement`` with all rows."""
    if kind != "mysql":
        connection.exec_driver_sql(statement, rows)
        return
    before, _, behind = statement.partition(_ROWS)
    driver: Any = connection.connection.driver_connection
    columns = [_literals(column, driver.escape) for column in zip(*rows, strict=True)]
    most = min(_STATEMENT, int(packet * _PACKET_SHARE))
    for some in _together([f"({','.join(row)})" for row in zip(*columns, strict=True)], most):
        connection.exec_driver_sql(f"{before}{some}{behind}", execution_options={"no_parameters": True})


def _literals(column: Sequence[Any], escape: Callable[[Any], str]) -> list[str]:
    """Values as they stand in a statement of MySQL."""
    known: dict[str | None, str] = {None: "NULL"}
    found = []
    for value in column:
        kind = value.__class__
        if kind is int:
            found.append(str(value))
            continue
        text = known.get(value) if value is None or kind is str else None
        if text is None:
            text = escape(value)
            if kind is str and len(known) < _KNOWN:
                known[value] = text
        found.append(text)
    return found


def _together(rows: Sequence[str], most: int) -> Iterator[str]:
    """As many rows as ``most`` bytes hold, one at least."""
    first = size = 0
    for place, row in enumerate(rows):
        length = len(row) + 1 if row.isascii() else len(row.encode("utf-8", "surrogatepass")) + 1
        if size + length > most and place > first:
            yield ",".join(rows[first:place])
            first, size = place, 0
        size += length
    yield ",".join(rows[first:])


def _stage(table: Table, absent: Collection[str]) -> str:
    return f"new_{table.name}{'_later' if absent else ''}"


def _copy(connection: Connection, table: Table, into: str, places: tuple[int, ...], values: Values) -> None:
    """PostgreSQL's own way in, which SQLAlchemy does not offer."""
    names, _ = _names("postgresql", table, places)
    kinds = [_BINARY[list(table.columns)[place].type.__class__] for place in places]
    raw: Any = connection.connection
    try:
        with raw.cursor() as cursor, cursor.copy(f"COPY {into} ({', '.join(names)}) FROM STDIN BINARY") as copy:
            copy.set_types(kinds)
            add = copy.write_row
            for row in values:
                add(row)
    except connection.dialect.loaded_dbapi.Error as error:
        # Older psycopg sends the unfinished row all the same, and raises the server's complaint: often an outage's.
        if isinstance(error.__context__, (OverflowError, struct.error)):
            raise error.__context__ from None
        raise


def _names(kind: str, table: Table, places: tuple[int, ...]) -> tuple[list[str], str]:
    """Quoted names of columns; the beginning of a statement that writes them."""
    quote = _DIALECTS[kind]().identifier_preparer.quote
    every = list(table.columns)
    names = [quote(every[place].name) for place in places]
    return names, f"INSERT INTO {table.name} ({', '.join(names)})"


@lru_cache(50)
def _insert(kind: str, table: Table, places: tuple[int, ...]) -> str:
    names, into = _names(kind, table, places)
    return f"{into} VALUES {_ROWS}" if kind == "mysql" else f"{into} VALUES ({', '.join('?' * len(names))})"


@lru_cache(500)
def _upsert(kind: str, table: Table, absent: frozenset[str], brought: tuple[int, ...], partly: frozenset[int]) -> str:
    """``brought``: the columns that any of the rows brings; ``partly``: those of them that some rows do not bring."""
    names, into = _names(kind, table, brought)
    key = {column.name for column in table.primary_key.columns}
    every = list(table.columns)
    merged = [
        _merged(kind, table.name, quoted, every[place].name, place in partly)
        for quoted, place in zip(names, brought, strict=True)
        if every[place].name not in key | _NEVER | absent
    ]
    if kind == "postgresql":
        source = f"{into} SELECT {', '.join(names)} FROM {_stage(table, absent)}"  # noqa: S608
    else:
        source = _insert(kind, table, brought)
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
