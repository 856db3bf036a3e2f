"""What is read of the history: pages of so many events and so many bytes, however large the arguments of jobs are."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from henchman.app import App
from henchman.errors import HistoryError
from henchman.history import as_csv, load
from henchman.history.records import FAILURES, Changes, Event, EventPage
from henchman.kernel.middleware import in_thread
from henchman.web.answers import Refusal, as_json

__all__ = ["BYTES", "MOST", "EventsJson", "HistoryReader", "changed", "csv_of", "exact", "failures", "page"]

MOST: Final = 1000  # events of one answer
BYTES: Final = 8 * 1024 * 1024  # of its text; the first event is given however large it is
_STEP = 100  # events that are read first; their size says how many are read next
_CSV_STEP = 500
#: reads events behind a position, as many as the second number says; the position behind them, None: no more
_Read = Callable[[int, int], Awaitable[tuple[Sequence[Event], int | None]]]


class HistoryReader:
    """The history of ``app``, opened at the first question; each is asked in a thread. Refusal (501): it is off."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._database: Any = None
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        """Whether this app's settings name a database."""
        return not self._app.config.why_history_is_off()

    async def ask(self, method: str, *args: Any, **named: Any) -> Any:
        """What the method of History answers; HistoryAway, HistoryError."""
        return await in_thread(self._ask, method, args, named)

    def close(self) -> None:
        """Close its connections; opened again when it is asked again."""
        with self._lock:
            database, self._database = self._database, None
        if database is not None:
            database.close()

    def _ask(self, method: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        with self._lock:
            if self._database is None:
                if not self.is_on:
                    raise Refusal(501, "this needs the history, which is off: see database_url in the settings")
                self._database = load(self._app.config)
            reading = self._database.reading
        return getattr(reading, method)(*args, **named)


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
