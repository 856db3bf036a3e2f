"""Pages of events within bounds: so many events, and so many bytes, whatever jobs were given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from henchman.errors import HistoryError
from henchman.history import sheet
from henchman.history.records import FAILURES, Changes, Event, EventPage
from henchman.web.answers import as_json
from henchman.web.record import Record

__all__ = ["BYTES", "MOST", "Page", "changed", "csv_of", "exact", "failures", "page"]

MOST: Final = 1000  # events of one answer
BYTES: Final = 8 * 1024 * 1024  # of its text; one event is always given
_STEP = 100  # events that are read at once, so that large ones do not come by the thousand
_CSV_STEP = 500


class Page(NamedTuple):
    """Some events as plain values, the last of them, and whether there are more."""

    events: list[dict[str, Any]]
    last: Event | None
    more: bool


class _Filling:
    """A page that is filled until it holds enough."""

    def __init__(self, limit: int) -> None:
        self.events: list[dict[str, Any]] = []
        self.last: Event | None = None
        self.limit = limit
        self._bytes = 0

    def take(self, events: Sequence[Event]) -> bool:
        """Take as many as have room; whether it was all of them."""
        for one in events:
            plain = exact(one.to_json())
            self._bytes += len(as_json(plain))
            if self.events and self._bytes > BYTES:
                return False
            self.events.append(plain)
            self.last = one
        return True

    @property
    def step(self) -> int:
        """How many to read next; 0: it is full."""
        return min(self.limit - len(self.events), _STEP)


def exact(told: dict[str, Any]) -> dict[str, Any]:
    """A record whose positions are text: JavaScript rounds whole numbers of this size."""
    return told | {name: str(told[name]) for name in ("seq", "changed", "position") if name in told}


async def page(record: Record, batch: str, status: Sequence[str] | None, after: int, limit: int) -> Page:
    """Events of a batch in the order in which they were enqueued, behind ``after``."""
    filling = _Filling(limit)
    while True:
        found: EventPage = await record.ask("events", batch, status, after=after, limit=filling.step)
        whole = filling.take(found.events)
        if not whole or found.after is None or not filling.step:
            return Page(filling.events, filling.last, not whole or found.after is not None)
        after = found.after


async def changed(record: Record, batch: str, position: int, limit: int) -> Page:
    """Events of a batch that changed behind ``position``, in the order in which they did."""
    filling = _Filling(limit)
    while True:
        found: Changes = await record.ask("changed_since", batch, position, limit=filling.step)
        whole = filling.take(found.events)
        if not whole or not found.more or not filling.step:
            return Page(filling.events, filling.last, not whole or found.more)
        position = found.position


async def csv_of(record: Record, batch: str, first: EventPage) -> AsyncIterator[bytes]:
    """The failures of a batch as CSV, from their ``first`` page on, bit by bit."""
    yield sheet.head()
    found = first
    while True:
        if found.events:
            yield sheet.lines(found.events)
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
