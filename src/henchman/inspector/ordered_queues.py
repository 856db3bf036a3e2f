"""All ordered queues for people: their names and figures, and the way to each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from henchman.errors import ArgumentError
from henchman.inspector.lowkiq import dashboard, lowkiq_stats
from henchman.inspector.ordered import OrderedQueue, OrderedStats, look_at_ordered
from henchman.store import ordered_people
from henchman.store.call import AsyncRunner, Runner
from henchman.store.keys import Keys
from henchman.store.procedure import BothWays, Page, Pages, Procedure, ask

__all__ = ["OrderedQueues", "look_at_all_ordered"]


def look_at_all_ordered(keys: Keys) -> Procedure[list[OrderedStats]]:
    """The figures of every ordered queue that was pushed to or served, by name."""
    states = []
    for name in (yield ordered_people.names(keys)):
        states.append((yield from look_at_ordered(keys, name)))
    return states


class OrderedQueues(BothWays):
    """All ordered queues: ``ordered_queues["products"]`` is one of them, whether it exists or not; ``for`` goes through
    those that were pushed to or served, by name. Each method also exists awaited, with an ``a`` before its name."""

    def __init__(self, runner: Runner, keys: Keys, arunner: AsyncRunner | None = None) -> None:
        super().__init__(runner, arunner)
        self._keys = keys

    def __repr__(self) -> str:
        return "<the ordered queues: for queue in app.ordered_queues, app.ordered_queues['products']>"

    def __getitem__(self, name: str) -> OrderedQueue:
        """The ordered queue of this name."""
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"{name!r} is no name of a queue: it is a text")
        return OrderedQueue(self._runner, self._keys, name, self._arunner)

    def __contains__(self, name: object) -> bool:
        """Whether the ordered queue of this name was pushed to or served."""
        return name in self.names()

    def __iter__(self) -> Iterator[OrderedQueue]:
        """Every ordered queue that was pushed to or served, by name."""
        return iter(self._items(self._walk))

    def __aiter__(self) -> AsyncIterator[OrderedQueue]:
        """The same for ``async for``."""
        return aiter(self._items(self._walk))

    def get(self, name: str) -> OrderedQueue | None:
        """The ordered queue of this name; None when nothing was ever pushed to it and no worker served it."""
        return self[name] if name in self.names() else None

    async def aget(self, name: str) -> OrderedQueue | None:
        """``get``, awaited."""
        return self[name] if name in await self.anames() else None

    def names(self) -> list[str]:
        """The names of the ordered queues that were pushed to or served, sorted."""
        return self._run(ask(ordered_people.names(self._keys)))

    async def anames(self) -> list[str]:
        """``names``, awaited."""
        return await self._arun(ask(ordered_people.names(self._keys)))

    def stats(self) -> list[OrderedStats]:
        """The figures of each, by name."""
        return self._run(look_at_all_ordered(self._keys))

    async def astats(self) -> list[OrderedStats]:
        """``stats``, awaited."""
        return await self._arun(look_at_all_ordered(self._keys))

    def lowkiq_stats(self) -> dict[str, Any]:
        """The figures as Lowkiq's ``/api/v1/stats`` has them, for its monitors."""
        return lowkiq_stats(self.stats())

    async def alowkiq_stats(self) -> dict[str, Any]:
        """``lowkiq_stats``, awaited."""
        return lowkiq_stats(await self.astats())

    def lowkiq_dashboard(self) -> dict[str, Any]:
        """The figures as Lowkiq's ``/api/web/dashboard`` has them, without what it says of its server."""
        return dashboard(self.stats())

    async def alowkiq_dashboard(self) -> dict[str, Any]:
        """``lowkiq_dashboard``, awaited."""
        return dashboard(await self.astats())

    def _walk(self) -> Pages[OrderedQueue]:
        names = yield ordered_people.names(self._keys)
        yield Page(self[name] for name in names if name)
