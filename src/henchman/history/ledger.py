"""What is recorded, exactly once: rows and the position in the stream move in one transaction.

The transaction begins by comparing and setting the position. Who finds another position than the one that the rows
were made from (two recorders at once; a commit whose answer was lost) writes nothing and reads the position again.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select, text, update

from henchman.errors import HistoryError
from henchman.history import schema
from henchman.history.database import Database
from henchman.history.rows import Rows
from henchman.history.writer import write

__all__ = ["BEGINNING", "Ledger", "Overtaken", "Position"]

BEGINNING = "0-0"
_PACKET = 16 * 1024 * 1024
_MANY = 500


class Overtaken(Exception):
    """The position is not where it was: somebody else records, or has recorded this."""


class Position(NamedTuple):
    """``at``: stream id of the last entry recorded; ``highest``: the last position given out."""

    at: str
    highest: int


class Ledger:
    """The record of one stream in one database."""

    def __init__(self, database: Database, stream: str) -> None:
        self.database = database
        self.stream = stream
        self._packet = 0

    def position(self) -> Position:
        """Where the record stands; it begins now when there is none. HistoryError when it is another stream's."""
        with self.database.writing() as connection:
            found = self._row(connection)
            if found is None:
                connection.execute(
                    insert(schema.position).values(
                        id=1, stream=self.stream, at=BEGINNING, highest=0, updated=time.time()
                    )
                )
                return Position(BEGINNING, 0)
        if found.stream != self.stream:
            raise HistoryError(
                f"{self.database.shown} holds the history of {found.stream!r}, not of {self.stream!r}: "
                "give each namespace a database (or a schema) of its own"
            )
        return Position(found.at, found.highest)

    @staticmethod
    def _row(connection: Connection) -> Any:
        table = schema.position
        return connection.execute(select(table.c.stream, table.c.at, table.c.highest).where(table.c.id == 1)).first()

    def record(self, rows: Rows, old: Position, new: Position) -> None:
        """Write ``rows`` and move from ``old`` to ``new``, both or neither. Raises Overtaken, and then did neither."""
        table = schema.position
        with self.database.writing() as connection:
            moved = connection.execute(
                update(table)
                .where(table.c.id == 1, table.c.at == old.at, table.c.highest == old.highest)
                .values(at=new.at, highest=new.highest, updated=time.time())
            )
            if moved.rowcount != 1:
                raise Overtaken
            write(connection, self.database.kind, rows, self._most(connection))

    def _most(self, connection: Connection) -> int:
        if self.database.kind != "mysql":
            return _PACKET
        if not self._packet:
            self._packet = int(connection.execute(text("SELECT @@max_allowed_packet")).scalar() or _PACKET)
        return self._packet

    def known(self, entries: list[tuple[str, int]]) -> set[tuple[str, int]]:
        """Which of these are recorded: what an entry speaks of (a job, or ``batch:<id>``) and its position."""
        found: set[tuple[str, int]] = set()
        with self.database.reading() as connection:
            for first in range(0, len(entries), _MANY):
                some = entries[first : first + _MANY]
                jids, numbers = {jid for jid, _ in some}, [number for _, number in some]
                for table in (schema.changes, schema.messages):
                    query = select(table.c.jid, table.c.sid).where(table.c.jid.in_(jids), table.c.sid.in_(numbers))
                    found.update((jid, sid) for jid, sid in connection.execute(query))
        return found
