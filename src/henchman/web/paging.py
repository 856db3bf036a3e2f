"""Pages of events within bounds: so many events, and so many bytes, whatever jobs were given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from henchman.errors import HistoryError
from henchman.history import as_csv
from henchman.history.records import FAILURES, Changes, Event, EventPage
from henchman.web.answers import as_json
from henchman.web.record import Record

__all__ = ["BYTES", "MOST", "EventsJson", "changed", "csv_of", "exact", "failures", "page"]

MOST: Final = 1000  # events of one answer
BYTES: Final = 8 * 1024 * 1024  # of its text; one event is always given
_STEP = 100  # events that are read first; how large they are says how many are read next
_CSV_STEP = 500


class EventsJson(NamedTuple):
    """Some events as a JSON list, the last of them, and whether there are more."""

    events: bytes
    last: Event | None
    more: bool


class _Filling:
    """A page that is filled until it holds enough. Each event becomes JSON once."""

    def __init__(self, limit: int) -> None:
        self.last: Event | None = None
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = self._bytes = 0

    def page(self, *, more: bool) -> EventsJson:
        """What it holds."""
        return EventsJson(b"[" + b",".join(self._parts) + b"]", self.last, more)

    def take(self, events: Sequence[Event]) -> bool:
        """Take as many as have room, one at least; whether it was all of them."""
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
        """How many to read next, so that large ones do not come by the thousand; 0: it is full."""
        left = self._limit - self._held
        if not self._held:
            return min(left, _STEP)
        return min(left, max((BYTES - self._bytes) * self._held // self._bytes, 1))


def exact(told: dict[str, Any]) -> dict[str, Any]:
    """A record whose positions are text: JavaScript rounds whole numbers of this size."""
    return told | {name: str(told[name]) for name in ("seq", "changed", "position") if name in told}


async def page(record: Record, batch: str, status: Sequence[str] | None, after: int, limit: int) -> EventsJson:
    """Events of a batch in the order in which they were enqueued, behind ``after``."""
    filling = _Filling(limit)
    while True:
        found: EventPage = await record.ask("events", batch, status, after=after, limit=filling.step)
        whole = filling.take(found.events)
        if not whole or found.after is None or not filling.step:
            return filling.page(more=not whole or found.after is not None)
        after = found.after


async def changed(record: Record, batch: str, position: int, limit: int) -> EventsJson:
    """Events of a batch that changed behind ``position``, in the order in which they did."""
    filling = _Filling(limit)
    while True:
        found: Changes = await record.ask("changed_since", batch, position, limit=filling.step)
        whole = filling.take(found.events)
        if not whole or not found.more or not filling.step:
            return filling.page(more=not whole or found.more)
        position = found.position


async def csv_of(record: Record, batch: str, first: EventPage) -> AsyncIterator[bytes]:
    """The failures of a batch as CSV, from their ``first`` page on, bit by bit."""
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


async def failures(record: Record, batch: str, after: int) -> EventPage:
    """The next failures of a batch, as many as are written at once."""
    found: EventPage = await record.ask("events", batch, FAILURES, after=after, limit=_CSV_STEP)
    return found
