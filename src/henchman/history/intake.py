"""Chunks of the stream on their way into the ledger: what is recorded already is left out, what is refused is told.

An entry behind the position is new. One at or before it was recorded (its recorder died before it took it out), or is
of a server that went back to an older state; which of both, the database knows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from henchman.errors import HistoryAway, HistoryError
from henchman.history.bundles import order, unbundled
from henchman.history.entries import Entry, ident, number_of
from henchman.history.fold import Fold
from henchman.history.ledger import Ledger, Overtaken, Position
from henchman.history.records import OF_BATCH
from henchman.history.rows import Rows
from henchman.kernel.events import Events

__all__ = ["Chunk", "Intake"]


class Chunk(NamedTuple):
    """Entries that are not recorded, what is to be written of them, and the positions before and after."""

    entries: Sequence[Entry]
    rows: Rows
    start: Position
    end: Position


class Intake:
    """Entries into the ledger. ``load`` first, and again after every error."""

    def __init__(self, ledger: Ledger, events: Events) -> None:
        self._ledger = ledger
        self._events = events
        self._position = Position("0-0", 0)

    def load(self) -> Position:
        """Read the position."""
        self._position = self._ledger.position()
        return self._position

    def prepare(self, entries: Sequence[Entry], behind: Chunk | None = None) -> Chunk:
        """Make rows of a chunk; it follows ``behind``, which need not be written yet."""
        start = self._position if behind is None else behind.end
        return _folded(self._fresh(unbundled(entries), start), start)

    def record(self, chunk: Chunk) -> None:
        """Write it. HistoryAway, HistoryError; Overtaken: load again."""
        if chunk.start != self._position:
            raise Overtaken
        try:
            self._commit(chunk)
        except HistoryAway:
            raise
        except HistoryError as error:
            self._halve(chunk.entries, error)

    def _fresh(self, entries: Sequence[Entry], position: Position) -> Sequence[Entry]:
        stands = order(position.at)
        if order(entries[0][0]) > stands:
            return entries
        old = [one for one in entries if order(one[0]) <= stands]
        known = self._ledger.known([_about(one) for one in old])
        back = [one for one in old if _is_new(one, known)]
        if not back:
            return entries[len(old) :]
        self._events.emit("history_rewound", position=position.at, entry=back[0][0].decode(), entries=len(back))
        return [*back, *entries[len(old) :]]

    def _halve(self, entries: Sequence[Entry], error: HistoryError) -> None:
        """Write what the database takes of these, and without its detail the one that it refuses."""
        if len(entries) > 1:
            half = len(entries) // 2
            for some in (entries[:half], entries[half:]):
                self.record(_folded(some, self._position))
            return
        self._commit(_folded([_without_detail(entries[0], error)], self._position))
        self._events.emit("history_refused", entry=entries[0][0].decode(), error=error)

    def _commit(self, chunk: Chunk) -> None:
        if chunk.entries:
            self._ledger.record(chunk.rows, chunk.start, chunk.end)
            self._position = chunk.end


def _folded(entries: Sequence[Entry], start: Position) -> Chunk:
    fold = Fold(start.highest)
    for one in entries:
        fold.add(one)
    return Chunk(entries, fold.rows, start, Position(entries[-1][0].decode(), fold.highest) if entries else start)


def _told(entry: Entry) -> dict[bytes, bytes]:
    return dict(zip(entry[1][::2], entry[1][1::2], strict=False))


def _about(entry: Entry) -> tuple[str, int]:
    """Whose change it is, and its position."""
    told = _told(entry)
    whose = ident(told[b"j"]) if b"j" in told else OF_BATCH + ident(told.get(b"b", b""))
    return whose, number_of(entry[0])[0]


def _is_new(entry: Entry, known: set[tuple[str, int]]) -> bool:
    # Progress leaves no trace to know it by, and the next one says more.
    return _told(entry).get(b"k") != b"progress" and _about(entry) not in known


def _without_detail(entry: Entry, error: HistoryError) -> Entry:
    """The change itself, with the reason why the rest of it was not taken."""
    told = _told(entry)
    told[b"d"] = json.dumps({"refused": str(error)[:500]}).encode()
    return entry[0], [part for pair in told.items() for part in pair]
