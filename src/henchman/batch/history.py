"""The events of a batch, out of the record in SQL: read page by page as somebody goes through them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from henchman.client.runtime import Runtime

__all__ = ["aevents", "events"]

PAGE = 1000


def _reading(desk: Runtime) -> Any:
    """The record, opened when it is first asked for; HistoryError says why there is none and how to turn it on."""
    return desk.open_history().reading


def events(desk: Runtime, batch: str, status: str | Sequence[str] | None) -> Iterator[Any]:
    """See ``App.batch_events``."""
    reading = _reading(desk)
    return _pages(reading, batch, status)


def _pages(reading: Any, batch: str, status: str | Sequence[str] | None) -> Iterator[Any]:
    after: int | None = 0
    while after is not None:
        page = reading.events(batch, status, after=after, limit=PAGE)
        yield from page.events
        after = page.after


async def aevents(desk: Runtime, batch: str, status: str | Sequence[str] | None) -> AsyncIterator[Any]:
    """See ``App.abatch_events``."""
    reading, after = _reading(desk), 0
    while after is not None:
        page = await reading.aevents(batch, status, after=after, limit=PAGE)
        for one in page.events:
            yield one
        after = page.after
