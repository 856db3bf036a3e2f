"""One ordered queue for people: its figures, everything about an id, its ids by time, count, id, and the morgue.

What it does not promise: a queue that changes while somebody goes through it is not a snapshot. Each id is shown as it
is when its page is read. Nothing loads a whole queue.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Literal

from henchman.errors import ArgumentError
from henchman.inspector.ordered_actions import OrderedActions, raw_id
from henchman.inspector.ordered_id import Holder, OrderedId, OrderedPayload, OrderedStats, stats_of
from henchman.inspector.ordered_walks import OrderedWalks, died, held, waits
from henchman.inspector.sets import seconds
from henchman.store import ordered_people, queues
from henchman.store.call import AsyncRunner, Runner
from henchman.store.keys import Keys
from henchman.store.procedure import Items, Procedure, ask

__all__ = ["Holder", "Order", "OrderedId", "OrderedPayload", "OrderedQueue", "OrderedStats", "look_at_ordered"]

Order = Literal["time", "retry", "morgue"]
_PARTS = {"time": "due", "retry": "retry", "morgue": "morgue"}

_MOST = 1000  # payloads that a look at one id shows
Time = float | dt.datetime


def look_at_ordered(keys: Keys, name: str) -> Procedure[OrderedStats]:
    """The figures of a queue."""
    found: ordered_people.Figures = yield ordered_people.figures(keys, name)
    return stats_of(name, found)


class OrderedQueue(OrderedActions):
    """One ordered queue, whether anything was ever pushed to it or not.

    Each method also exists awaited, with an ``a`` before its name; what can be iterated also by ``async for``.
    """

    def __init__(self, runner: Runner, keys: Keys, name: str, arunner: AsyncRunner | None = None) -> None:
        super().__init__(runner, keys, name, arunner)
        self._walks = OrderedWalks(keys, name)

    def __repr__(self) -> str:
        return f"OrderedQueue({self.name!r})"

    def length(self) -> int:
        """How many ids wait in it, whenever they are due; those in flight are not counted."""
        return self.stats().length

    async def alength(self) -> int:
        """``length``, awaited."""
        return (await self.astats()).length

    def stats(self) -> OrderedStats:
        """Its figures at one moment."""
        return self._run(look_at_ordered(self._keys, self.name))

    async def astats(self) -> OrderedStats:
        """``stats``, awaited."""
        return await self._arun(look_at_ordered(self._keys, self.name))

    def paused(self) -> bool:
        """Whether nothing starts from it."""
        return self.name in self._run(ask(queues.paused(self._keys)))

    async def apaused(self) -> bool:
        """``paused``, awaited."""
        return self.name in await self._arun(ask(queues.paused(self._keys)))

    def find(self, id: str, most: int = _MOST) -> OrderedId:
        """Everything about an id, at once, with at most ``most`` payloads in each place; also of one that is absent."""
        return self._run(self._find(id, most))

    async def afind(self, id: str, most: int = _MOST) -> OrderedId:
        """``find``, awaited."""
        return await self._arun(self._find(id, most))

    def page(self, first: int = 0, most: int = 50, *, by: Order = "time", reverse: bool = False) -> list[OrderedId]:
        """The ids from place ``first`` on, at most ``most``: by the time at which they are due, those that failed by
        how often (``by="retry"``), or the morgue by its last burials (``by="morgue"``). A page may be shorter: ids in
        flight have places in the first two, too, and are left out.
        """
        return self._run(self._page(first, most, by, reverse))

    async def apage(
        self, first: int = 0, most: int = 50, *, by: Order = "time", reverse: bool = False
    ) -> list[OrderedId]:
        """``page``, awaited."""
        return await self._arun(self._page(first, most, by, reverse))

    def by_time(self, min: Time | None = None, max: Time | None = None, *, reverse: bool = False) -> Items[OrderedId]:
        """The waiting ids that are due between two times, both included: aware datetimes or Unix seconds; None: no
        bound. In order of time; for ``for`` and ``async for``, as everything that follows."""
        low, high = _bounds(min, max)
        return self._items(lambda: self._walks.by_score("due", waits, low, high, reverse=reverse))

    def by_retry_count(
        self, min: int | None = None, max: int | None = None, *, reverse: bool = False
    ) -> Items[OrderedId]:
        """The waiting ids by how often they failed: -1 never, 0 once. Between two counts, both included."""
        low, high = -1 if min is None else min, math.inf if max is None else max
        return self._items(lambda: self._walks.by_retry_count(low, high, reverse=reverse))

    def by_id(self, prefix: str = "") -> Items[OrderedId]:
        """The waiting ids that begin with ``prefix``, in no order: the server looks through all of them."""
        return self._items(lambda: self._walks.by_id("due", waits, prefix))

    def busy(self) -> Items[OrderedId]:
        """The ids in flight, in no order."""
        return self._items(lambda: self._walks.by_id("busy", held))

    def morgue(self, min: Time | None = None, max: Time | None = None, *, reverse: bool = True) -> Items[OrderedId]:
        """The ids in the morgue by the time of their last burial, the latest first."""
        low, high = _bounds(min, max)
        return self._items(lambda: self._walks.by_score("morgue", died, low, high, reverse=reverse))

    def morgue_by_id(self, prefix: str = "") -> Items[OrderedId]:
        """The ids in the morgue that begin with ``prefix``, in no order."""
        return self._items(lambda: self._walks.by_id("morgue", died, prefix))

    def _find(self, name: str, most: int) -> Procedure[OrderedId]:
        if most < 1:
            raise ArgumentError(f"find(…, {most!r}): at least one payload")
        return (yield from self._walks.look([raw_id(name)], most))[0]

    def _page(self, first: int, most: int, by: Order, reverse: bool) -> Procedure[list[OrderedId]]:
        if first < 0 or most < 1 or by not in _PARTS:
            raise ArgumentError(
                f"page({first!r}, {most!r}, by={by!r}): a place from 0, at least 1, by one of {[*_PARTS]}"
            )
        keep = died if by == "morgue" else waits
        return (yield from self._walks.page(_PARTS[by], first, most, keep, reverse=reverse))


def _bounds(low: Time | None, high: Time | None) -> tuple[float, float]:
    return -math.inf if low is None else seconds(low), math.inf if high is None else seconds(high)
