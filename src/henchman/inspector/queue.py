"""One queue for people: how long, how late, what is in it; delete, clear, pause. It need not exist.

What it does not promise: a queue that changes while somebody goes through it is not a snapshot. A payload that stays
is given at least once (a second time only when thousands were fetched between two pages); what is pushed after the
walk began is not met.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

from henchman.errors import ArgumentError, ServerAway, ServerError
from henchman.inspector.entry import Entry, Mask
from henchman.inspector.given import checked_page, checked_text
from henchman.store import queues
from henchman.store.call import AsyncRunner, Runner
from henchman.store.keys import Keys
from henchman.store.procedure import BothWays, Page, Pages, Procedure, ask, first
from henchman.work.effects import of_payload

__all__ = ["PAGE", "Queue", "latency_of", "looks"]

PAGE = 100
_JOB = "the id of a job, or an entry that was found here"
_OVERLAP = 10  # payloads read again with each page, to see that nothing was skipped
_MEMORY = 10_000  # payloads that a walk remembers, so as not to give them twice


def latency_of(payload: bytes | None, now: float) -> float | None:
    """Seconds since ``payload`` was pushed: 0 for none, None when it does not say."""
    if payload is None:
        return 0.0
    entry = Entry(payload)
    pushed = entry.time("enqueued_at")
    if pushed is None:
        pushed = entry.time("created_at")
    return None if pushed is None else max(now - pushed, 0.0)


def looks(keys: Keys, some: list[str]) -> Procedure[list[queues.Look | str]]:
    """A look at each; when one of them is no list, one by one, so that the others are seen all the same."""
    try:
        found: list[queues.Look | str] = yield queues.look(keys, some)
    except ServerAway:
        raise
    except ServerError as error:
        if len(some) == 1:
            return [str(error)]
        found = []
        for name in some:
            found += yield from looks(keys, [name])
    return found


def walk(keys: Keys, name: str, mask: Mask | None, needle: bytes = b"") -> Pages[Entry]:
    """Every payload that is there now and holds ``needle``, the newest first.

    Places are counted from the right end: what is pushed meanwhile changes none of them, and what is fetched or
    deleted can only bring payloads back that were given already. Only payloads that come in at the right end (work
    that was given back) could make the walk skip some: the overlap shows it.
    """
    place: int = (yield queues.look(keys, [name]))[0].size
    given: dict[int, None] = {}
    overlap = 0
    while place > 0:
        size, found = yield queues.next_payloads(keys, name, place + overlap, max(place - PAGE, 0))
        if place > size:  # so much was fetched that we stand before the first
            place = size
            continue
        known = not found or not overlap or hash(found[0]) in given or place + overlap > size
        if not known and overlap < PAGE * _OVERLAP:
            overlap *= _OVERLAP
            continue
        fresh = [one for one in found if hash(one) not in given]
        given.update(dict.fromkeys(map(hash, fresh)))
        yield Page(Entry(one, mask=mask) for one in fresh if needle in one)
        if len(given) > 2 * _MEMORY:
            given = dict.fromkeys(list(given)[-_MEMORY:])
        place -= PAGE
        overlap = _OVERLAP


class Queue(BothWays):
    """One queue. Each method also exists awaited, with an ``a`` before its name; ``async for`` goes through it too."""

    def __init__(
        self, runner: Runner, keys: Keys, name: str, mask: Mask | None = None, arunner: AsyncRunner | None = None
    ) -> None:
        super().__init__(runner, arunner)
        self.name = name
        self._keys = keys
        self._mask = mask

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def size(self) -> int:
        """How many payloads wait in it."""
        return self._run(self._look()).size

    async def asize(self) -> int:
        """``size``, awaited."""
        return (await self._arun(self._look())).size

    def latency(self) -> float | None:
        """Seconds since its next payload was pushed: 0 when it is empty, None when that payload does not say."""
        return latency_of(self._run(self._look()).next, time.time())

    async def alatency(self) -> float | None:
        """``latency``, awaited."""
        return latency_of((await self._arun(self._look())).next, time.time())

    def paused(self) -> bool:
        """Whether nothing starts from it."""
        return self.name in self._run(ask(queues.paused(self._keys)))

    async def apaused(self) -> bool:
        """``paused``, awaited."""
        return self.name in await self._arun(ask(queues.paused(self._keys)))

    def page(self, first: int = 0, most: int = 50) -> list[Entry]:
        """At most ``most`` payloads from place ``first`` on; 0 is the newest."""
        return self._run(self._page(first, most))

    async def apage(self, first: int = 0, most: int = 50) -> list[Entry]:
        """``page``, awaited."""
        return await self._arun(self._page(first, most))

    def __iter__(self) -> Iterator[Entry]:
        """Every payload that is there now, the newest first, read in pages."""
        return iter(self._items(self._walk))

    def __aiter__(self) -> AsyncIterator[Entry]:
        """The same for ``async for``."""
        return aiter(self._items(self._walk))

    def find(self, jid: str) -> Entry | None:
        """The payload of a job; None when it is not here. Reads the queue page by page."""
        return self._run(self._find(jid))

    async def afind(self, jid: str) -> Entry | None:
        """``find``, awaited."""
        return await self._arun(self._find(jid))

    def delete(self, job: str | Entry) -> bool:
        """Remove a job, by its id or as it was found here; False when it is not here (any more)."""
        return self._run(self._delete(job))

    async def adelete(self, job: str | Entry) -> bool:
        """``delete``, awaited."""
        return await self._arun(self._delete(job))

    def clear(self) -> int:
        """Remove everything that is in the queue, a thousand payloads a call; how many that were.

        While workers fetch from it, as many as they took of what is pushed meanwhile may go too: pause it first.
        """
        return self._run(self._clear())

    async def aclear(self) -> int:
        """``clear``, awaited."""
        return await self._arun(self._clear())

    def pause(self) -> None:
        """Nothing starts from it any more, on any worker. ArgumentError for a name that is not UTF-8."""
        self._run(self._pause())

    async def apause(self) -> None:
        """``pause``, awaited."""
        await self._arun(self._pause())

    def unpause(self) -> None:
        """Work on it goes on."""
        self._run(ask(queues.unpause(self._keys, self.name)))

    async def aunpause(self) -> None:
        """``unpause``, awaited."""
        await self._arun(ask(queues.unpause(self._keys, self.name)))

    def _look(self) -> Procedure[queues.Look]:
        found: list[queues.Look] = yield queues.look(self._keys, [self.name])
        return found[0]

    def _page(self, first: int, most: int) -> Procedure[list[Entry]]:
        first, most = checked_page(first, most)
        found = yield queues.payloads(self._keys, self.name, first, first + most - 1)
        return [Entry(one, mask=self._mask) for one in found]

    def _walk(self) -> Pages[Entry]:
        return walk(self._keys, self.name, self._mask)

    def _find(self, jid: str) -> Procedure[Entry | None]:
        needle = queues.raw(checked_text("find", jid))  # so that few are decoded
        found = walk(self._keys, self.name, self._mask, needle)
        return (yield from first(found, lambda one: one.jid == jid)) if jid else None

    def _delete(self, job: str | Entry) -> Procedure[bool]:
        entry = job if isinstance(job, Entry) else (yield from self._find(checked_text("delete", job, _JOB)))
        if entry is None:
            return False
        effects = of_payload(self._keys, entry.payload, "deleted")
        return bool((yield queues.remove(self._keys, self.name, entry.payload, effects)))

    def _clear(self) -> Procedure[int]:
        look = (yield from looks(self._keys, [self.name]))[0]
        if isinstance(look, str):
            yield queues.drop(self._keys, self.name)
            return 0
        total, effects = 0, dict[bytes, bytes]()
        while True:
            most = min(look.size - total, queues.CHUNK)
            some: queues.Cleared = yield queues.clear(self._keys, self.name, most, effects)
            total += some.taken
            if total >= look.size or not (some.taken or some.asked):
                return total
            effects = {one: of_payload(self._keys, one, "deleted") for one in some.asked}

    def _pause(self) -> Procedure[None]:
        if any("\ud800" <= char <= "\udfff" for char in self.name):
            raise ArgumentError(
                f"{self.name!a} is no name of a queue: no worker can serve it, so it need not be paused"
            )
        yield queues.pause(self._keys, self.name)
