"""What every iterator for iterable jobs must do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

__all__ = ["Make", "check", "listed"]

Make = Callable[[Any], Iterator[tuple[Any, Any]]]


def check(make: Make) -> list[Any]:
    """Every cursor resumes at its item; returns the items."""
    everything = list(make(None))
    for place, (_, cursor) in enumerate(everything):
        assert list(make(cursor)) == everything[place:]
    return [item for item, _ in everything]


async def listed(pairs: AsyncIterator[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return [pair async for pair in pairs]
