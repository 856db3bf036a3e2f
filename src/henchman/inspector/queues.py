"""All queues for people: their names and figures, and the way to each of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from henchman.errors import ArgumentError
from henchman.inspector.entry import Mask
from henchman.inspector.queue import PAGE, Queue, latency_of, looks
from henchman.store import ordered_people, queues
from henchman.store.call import AsyncRunner, Runner
from henchman.store.keys import Keys
from henchman.store.procedure import BothWays, Page, Pages, Procedure, ask

__all__ = ["PAGE", "Queue", "QueueState", "Queues", "known_queues", "latency_of", "look_at_queues"]

_AT_ONCE = 500  # queues looked at in one write


class QueueState(NamedTuple):
    """How a queue is now. ``latency``: seconds since its next payload was pushed; None when that is not known.

    ``problem`` is set, and ``size`` is None, when the key of this queue holds something else than a list.
    """

    name: str
    size: int | None
    latency: float | None
    paused: bool
    problem: str = ""


def _known(keys: Keys, match: str) -> Procedure[tuple[list[str], frozenset[str]]]:
    """Every plain queue that was pushed to or is paused and has ``match`` in its name, by name; the paused queues."""
    names = yield queues.names(keys)
    paused = yield queues.paused(keys)
    ordered = (yield ordered_people.names(keys)) if paused else ()  # they have figures of another kind
    return sorted(name for name in {*names, *(paused - {*ordered})} if match in name), paused


def known_queues(keys: Keys, match: str = "") -> Procedure[list[str]]:
    """The names of the plain queues that were pushed to or are paused and have ``match`` in their name, sorted."""
    return (yield from _known(keys, match))[0]


def look_at_queues(
    keys: Keys, now: float, match: str = "", first: int = 0, most: int | None = None
) -> Procedure[list[QueueState]]:
    """At most ``most`` of ``known_queues`` from place ``first`` on, with their figures; None: all of them."""
    names, paused = yield from _known(keys, match)
    chosen = names[first : None if most is None else first + most]
    states: list[QueueState] = []
    for start in range(0, len(chosen), _AT_ONCE):
        some = chosen[start : start + _AT_ONCE]
        found = yield from looks(keys, some)
        for name, look in zip(some, found, strict=True):
            if isinstance(look, str):
                states.append(QueueState(name, None, None, name in paused, look))
            else:
                states.append(QueueState(name, look.size, latency_of(look.next, now), name in paused))
    return states


class Queues(BothWays):
    """All queues: ``queues["mail"]`` is one of them, whether it exists or not; ``for queue in queues`` goes through
    those that were pushed to, by name. Each method also exists awaited, with an ``a`` before its name."""

    def __init__(
        self, runner: Runner, keys: Keys, mask: Mask | None = None, arunner: AsyncRunner | None = None
    ) -> None:
        super().__init__(runner, arunner)
        self._keys = keys
        self._mask = mask

    def __repr__(self) -> str:
        return "<the queues: for queue in app.queues, app.queues['mail'], app.queues.names()>"

    def __getitem__(self, name: str) -> Queue:
        """The queue of this name."""
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"{name!r} is no name of a queue: it is a text")
        return Queue(self._runner, self._keys, name, self._mask, self._arunner)

    def __contains__(self, name: object) -> bool:
        """Whether the queue of this name was pushed to (and not cleared since)."""
        return name in self.names()

    def __iter__(self) -> Iterator[Queue]:
        """Every queue that was pushed to, by name."""
        return iter(self._items(self._walk))

    def __aiter__(self) -> AsyncIterator[Queue]:
        """The same for ``async for``."""
        return aiter(self._items(self._walk))

    def names(self) -> list[str]:
        """The names of the queues that were pushed to and not cleared since, sorted."""
        return self._run(ask(queues.names(self._keys)))

    async def anames(self) -> list[str]:
        """``names``, awaited."""
        return await self._arun(ask(queues.names(self._keys)))

    def known(self, match: str = "") -> list[str]:
        """The names of the queues that were pushed to or are paused and have ``match`` in their name, sorted."""
        return self._run(known_queues(self._keys, match))

    async def aknown(self, match: str = "") -> list[str]:
        """``known``, awaited."""
        return await self._arun(known_queues(self._keys, match))

    def paused(self) -> list[str]:
        """The names of the paused queues, of either kind, sorted."""
        return self._run(self._sorted_paused())

    async def apaused(self) -> list[str]:
        """``paused``, awaited."""
        return await self._arun(self._sorted_paused())

    def states(self, *, match: str = "", first: int = 0, most: int | None = None) -> list[QueueState]:
        """Every queue that was pushed to or is paused, by name, with its figures; or a page of them: at most ``most``
        from place ``first`` on, of those that have ``match`` in their name."""
        return self._run(look_at_queues(self._keys, time.time(), match, first, most))

    async def astates(self, *, match: str = "", first: int = 0, most: int | None = None) -> list[QueueState]:
        """``states``, awaited."""
        return await self._arun(look_at_queues(self._keys, time.time(), match, first, most))

    def queue(self, name: str) -> Queue:
        """The queue of this name."""
        return self[name]

    def _sorted_paused(self) -> Procedure[list[str]]:
        return sorted((yield queues.paused(self._keys)))

    def _walk(self) -> Pages[Queue]:
        names = yield queues.names(self._keys)
        yield Page(self[name] for name in names if name)
