"""Pages of events within bounds: so many events and so many bytes, however large the arguments of jobs are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from henchman.errors import HistoryError
from henchman.history import as_csv
from henchman.history.records import FAILURES, Changes, Event, EventPage
from henchman.web.answers import as_json
from henchman.web.reader import HistoryReader

__all__ = ["BYTES", "MOST", "EventsJson", "changed", "csv_of", "exact", "failures", "page"]

MOST: Final = 1000  # events of one answer
BYTES: Final = 8 * 1024 * 1024  # of its text; the first event is given however large it is
_STEP = 100  # events that are read first; their size says how many are read next
_CSV_STEP = 500
#: reads events behind a position, as many as the second number says; the position behind them, None: no more
_Read = Callable[[int, int], Awaitable[tuple[Sequence[Event], int | None]]]


class EventsJson(NamedTuple):
    """Some events as a JSON list, the last of them, and whether there are more."""

    events: bytes
    last: Event | None
    more: bool


class _Filling:
    """A page that takes events until it is full. Each event becomes JSON once."""

    def __init__(self, limit: int) -> None:
        self.last: Event | None = None
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = self._bytes = 0

    def page(self, *, more: bool) -> EventsJson:
        """The events that were taken."""
        return EventsJson(b"[" + b",".join(self._parts) + b"]", self.last, more)

    def take(self, events: Sequence[Event]) -> bool:
        """Take as many events as have room, the first in any case; whether all of them had room."""
        if not events or self._add(events):
            return True
        return all(self._add([one], first=not self._parts) for one in events)

    def _add(self, events: Sequence[Event], *, first: bool = False) -> bool:
        text = as_json([exact(one.to_json()) for one in events])[1:-1]
        if self._bytes + len(text) > BYTES and not first:
            return False
        self._parts.append(text)
        self._bytes += len(text)
        self._held += len(events)
        self.last = events[-1]
        return True

    @property
    def step(self) -> int:
        """How many events to read next, fewer when they are large; 0: the page is full."""
        left = self._limit - self._held
        if not self._held:
            return min(left, _STEP)
        return min(left, max((BYTES - self._bytes) * self._held // self._bytes, 1))


def exact(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose positions are text: JavaScript rounds whole numbers of this size."""
    return record | {name: str(record[name]) for name in ("seq", "changed", "position") if name in record}


async def page(record: HistoryReader, batch: str, status: Sequence[str] | None, after: int, limit: int) -> EventsJson:
    """Events of a batch behind position ``after``, in the order in which they were enqueued."""

    async def read(after: int, step: int) -> tuple[Sequence[Event], int | None]:
        found: EventPage = await record.ask("events", batch, status, after=after, limit=step)
        return found.events, found.after

    return await _filled(read, after, limit)


async def changed(record: HistoryReader, batch: str, position: int, limit: int) -> EventsJson:
    """Events of a batch that changed behind ``position``, in the order in which they did."""

    async def read(position: int, step: int) -> tuple[Sequence[Event], int | None]:
        found: Changes = await record.ask("changed_since", batch, position, limit=step)
        return found.events, found.position if found.more else None

    return await _filled(read, position, limit)


async def _filled(read: _Read, position: int, limit: int) -> EventsJson:
    filling = _Filling(limit)
    while True:
        events, following = await read(position, filling.step)
        whole = filling.take(events)
        if not whole or following is None or not filling.step:
            return filling.page(more=not whole or following is not None)
        position = following


async def csv_of(record: HistoryReader, batch: str, first: EventPage) -> AsyncIterator[bytes]:
    """The failures of a batch as CSV, from their ``first`` page on, a page at a time."""
    yield as_csv.head()
    found = first
    while True:
        if found.events:
            yield as_csv.lines(found.events)
        if found.after is None:
            return
        try:
            found = await failures(record, batch, found.after)
        except HistoryError as error:  # as an OSError it would pass for a client that went away
            raise RuntimeError(f"failures.csv of batch {batch} breaks off: {error}") from error


async def failures(record: HistoryReader, batch: str, after: int) -> EventPage:
    """The next failures of a batch, as many as are written at once."""
    found: EventPage = await record.ask("events", batch, FAILURES, after=after, limit=_CSV_STEP)
    return found
