"""Going through a sorted set in its order, page by page, while it changes.

What is promised: entries that stay, with the score they have, are given exactly once; new ones may or may not be met.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from henchman.inspector.entry import Entry
from henchman.store import queues
from henchman.store.procedure import Page, Pages, Procedure
from henchman.store.queues import Member

__all__ = ["PAGE", "search", "walk"]

T = TypeVar("T")

PAGE = 100
_MEMORY = 50_000  # entries that a search remembers, so as not to give them twice

Show = Callable[[Member], Entry]


def walk(
    key: str, show: Callable[[Member], T], *, newest_first: bool = False, low: float = -math.inf, high: float = math.inf
) -> Pages[T]:
    """Every entry with ``low`` ≤ score ≤ ``high``, as far as the set goes now: what is moved behind is not met again.

    Each page begins with an entry that was passed already: when it does not, entries before it have gone, and the
    place is looked for again.
    """
    end: list[Member] = yield queues.set_page(key, -1, -1, newest_first=newest_first)
    if not end:
        return
    low, high, start = (max(low, end[0].score), high, high) if newest_first else (low, min(high, end[0].score), low)
    place, last, passed = 0, None, list[Member]()
    if not math.isinf(start):
        last = Member(b"", math.nextafter(start, math.inf if newest_first else -math.inf))
        place = max((yield queues.set_below(key, start, newest_first=newest_first)) - 1, 0)
    while True:
        found, more = yield queues.set_stretch(key, place, PAGE + 1, newest_first=newest_first)
        if place and last is not None and (not found or _after(found[0], last, newest_first)):
            place = yield from _again(key, last, passed, place, newest_first)
            continue
        fresh = found if last is None else [one for one in found if _after(one, last, newest_first)]
        inside = [one for one in fresh if low <= one.score <= high]
        yield Page(map(show, inside))
        if not more or len(inside) < len(fresh):
            return
        if fresh:
            last, passed = fresh[-1], fresh
        place += len(found) - 1


def _after(one: Member, other: Member, newest_first: bool) -> bool:
    """Whether ``one`` comes later in our order; the server orders equal scores by their bytes."""
    here, there = (one.score, one.payload), (other.score, other.payload)
    return here < there if newest_first else here > there


def _again(key: str, last: Member, passed: Sequence[Member], place: int, newest_first: bool) -> Procedure[int]:
    """A lower place than ``place`` from which to read on: that of an entry that was given lately, or, when all of them
    have gone, the one before the first with the score of the last."""
    if passed:
        some = [passed[-1].payload, passed[len(passed) // 2].payload, passed[0].payload]
        ranks: list[int | None] = yield queues.set_ranks(key, some, newest_first=newest_first)
        known = [one for one in ranks if one is not None and one < place]
        if known:
            return max(known)
    before: int = yield queues.set_below(key, last.score, newest_first=newest_first)
    return max(min(before, place) - 1, 0)


def search(key: str, show: Show, text: str) -> Pages[Entry]:
    """Every entry whose stored text holds ``text``, in no order. Each once, of the first 50,000 found."""
    seen: set[int] = set()
    cursor = None
    while cursor != 0:
        cursor, found = yield queues.set_scan(key, cursor or 0, text)
        fresh = []
        for one in found:
            mark = hash(one.payload)
            if mark not in seen:
                fresh.append(one)
                if len(seen) < _MEMORY:
                    seen.add(mark)
        if fresh:
            yield Page(map(show, fresh))
