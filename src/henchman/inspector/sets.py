"""Scheduled jobs, retries and dead jobs: looking at them page by page, and acting on them.

What it does not promise: a set that changes while somebody goes through it is not a snapshot. Entries that stay are
given exactly once; new ones may or may not be met. Of two people who act on one entry, one succeeds.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Literal

from henchman.config import Config
from henchman.errors import ArgumentError
from henchman.inspector.acts import Acted, Acts, Change
from henchman.inspector.entry import Entry, Mask
from henchman.inspector.given import checked_entries, checked_entry, checked_page, checked_text
from henchman.inspector.set_walk import PAGE, search, walk
from henchman.store import queues
from henchman.store.call import AsyncRunner, Runner
from henchman.store.keys import Keys
from henchman.store.procedure import BothWays, Items, Pages, Procedure, ask, first
from henchman.wire import times

__all__ = ["PAGE", "Acted", "JobSet", "SetName", "seconds"]

SetName = Literal["scheduled", "retries", "dead"]


class JobSet(BothWays):
    """One of the three sets. ``newest_first`` is how it is read: the dead set from its latest entry on.

    Each method also exists awaited, with an ``a`` before its name; what can be iterated also by ``async for``. The
    actions take one entry or several, also ``matching(…)``, ``between(…)`` or the whole set.
    """

    def __init__(
        self,
        runner: Runner,
        keys: Keys,
        config: Config,
        which: SetName,
        mask: Mask | None = None,
        arunner: AsyncRunner | None = None,
    ) -> None:
        super().__init__(runner, arunner)
        self.which = which
        self.key = {"scheduled": keys.schedule, "retries": keys.retry, "dead": keys.dead}[which]
        self.newest_first = which == "dead"
        self._mask = mask
        self._acts = Acts(keys, config, self.key)

    def __repr__(self) -> str:
        return f"<{self.which}>"

    def size(self) -> int:
        """How many entries it holds."""
        return self._run(ask(queues.set_size(self.key)))

    async def asize(self) -> int:
        """``size``, awaited."""
        return await self._arun(ask(queues.set_size(self.key)))

    def page(self, first: int = 0, most: int = 50) -> list[Entry]:
        """At most ``most`` entries from place ``first`` on, in the order of the set."""
        return self._run(self._page(first, most))

    async def apage(self, first: int = 0, most: int = 50) -> list[Entry]:
        """``page``, awaited."""
        return await self._arun(self._page(first, most))

    def __iter__(self) -> Iterator[Entry]:
        """Every entry in order, read in pages."""
        return iter(self.between())

    def __aiter__(self) -> AsyncIterator[Entry]:
        """The same for ``async for``."""
        return aiter(self.between())

    def between(self, low: float | dt.datetime | None = None, high: float | dt.datetime | None = None) -> Items[Entry]:
        """The entries due (or dead since) between two times, both included, in the order of the set.

        A time is an aware datetime or Unix seconds; None: no bound. For ``for`` and ``async for``.
        """
        least = -math.inf if low is None else seconds(low)
        most = math.inf if high is None else seconds(high)
        return self._items(
            lambda: walk(self.key, self._entry, newest_first=self.newest_first, low=least, high=most),
        )

    def matching(self, text: str) -> Items[Entry]:
        """Every entry whose stored text holds ``text``, in no order; the server compares. For both kinds of ``for``."""
        needle = checked_text("matching", text, "which the payload holds")
        return self._items(lambda: search(self.key, self._entry, needle))

    def find(self, jid: str) -> Entry | None:
        """The entry of a job; None when it is not here. Looks through the whole set, on the server."""
        return self._run(self._find(jid))

    async def afind(self, jid: str) -> Entry | None:
        """``find``, awaited."""
        return await self._arun(self._find(jid))

    def retry(self, entries: Entry | Iterable[Entry]) -> Acted:
        """Put entries into their queues now. What has been retried so far stays counted."""
        return self._act(entries, self._acts.to_queue)

    async def aretry(self, entries: Entry | Iterable[Entry] | AsyncIterable[Entry]) -> Acted:
        """``retry``, awaited."""
        return await self._aact(entries, self._acts.to_queue)

    def kill(self, entries: Entry | Iterable[Entry]) -> Acted:
        """Move entries into the dead set; one that cannot be read goes there wrapped, with the reason."""
        return self._act(entries, self._to_dead())

    async def akill(self, entries: Entry | Iterable[Entry] | AsyncIterable[Entry]) -> Acted:
        """``kill``, awaited."""
        return await self._aact(entries, self._to_dead())

    def delete(self, entries: Entry | Iterable[Entry]) -> Acted:
        """Remove entries for good."""
        return self._act(entries, self._acts.away)

    async def adelete(self, entries: Entry | Iterable[Entry] | AsyncIterable[Entry]) -> Acted:
        """``delete``, awaited."""
        return await self._aact(entries, self._acts.away)

    def reschedule(self, entry: Entry, at: float | dt.datetime) -> bool:
        """Let an entry be due at another time, an aware datetime or Unix seconds; False when it is gone."""
        return self._run(self._reschedule(entry, at))

    async def areschedule(self, entry: Entry, at: float | dt.datetime) -> bool:
        """``reschedule``, awaited."""
        return await self._arun(self._reschedule(entry, at))

    def retry_all(self) -> Acted:
        """``retry`` for every entry that is here now."""
        return self._run(self._acts.on_all(self._acts.to_queue, self._entry))

    async def aretry_all(self) -> Acted:
        """``retry_all``, awaited."""
        return await self._arun(self._acts.on_all(self._acts.to_queue, self._entry))

    def kill_all(self) -> Acted:
        """``kill`` for every entry that is here now."""
        return self._run(self._acts.on_all(self._to_dead(), self._entry))

    async def akill_all(self) -> Acted:
        """``kill_all``, awaited."""
        return await self._arun(self._acts.on_all(self._to_dead(), self._entry))

    def clear(self) -> Acted:
        """``delete`` for every entry that is here now: entry by entry, so that each takes its effects along."""
        return self._run(self._acts.on_all(self._acts.away, self._entry))

    async def aclear(self) -> Acted:
        """``clear``, awaited."""
        return await self._arun(self._acts.on_all(self._acts.away, self._entry))

    def _page(self, first: int, most: int) -> Procedure[list[Entry]]:
        first, most = checked_page(first, most)
        found = yield queues.set_page(self.key, first, first + most - 1, newest_first=self.newest_first)
        return [self._entry(one) for one in found]

    def _find(self, jid: str) -> Procedure[Entry | None]:
        found: Pages[Entry] = search(self.key, self._entry, checked_text("find", jid))
        return (yield from first(found, lambda one: one.jid == jid)) if jid else None

    def _reschedule(self, entry: Entry, at: float | dt.datetime) -> Procedure[bool]:
        if self.which == "dead":
            raise ArgumentError("a dead job is due at no time: retry it, and reschedule it where it is then")
        moved: bool = yield queues.reschedule(self.key, checked_entry(entry).payload, seconds(at))
        return moved

    def _to_dead(self) -> Change:
        if self.which == "dead":
            raise ArgumentError("jobs of the dead set are dead already")
        return self._acts.to_dead

    def _act(self, entries: Entry | Iterable[Entry], change: Change) -> Acted:
        return self._run(self._acts.on(checked_entries(entries), change))

    async def _aact(self, entries: Entry | Iterable[Entry] | AsyncIterable[Entry], change: Change) -> Acted:
        if not isinstance(entries, AsyncIterable):
            return await self._arun(self._acts.on(checked_entries(entries), change))
        total, some = Acted(), list[Entry]()
        async for one in entries:
            some.append(checked_entry(one))
            if len(some) == PAGE:
                total, some = total.plus(await self._arun(self._acts.on(some, change))), []
                if total.stopped:
                    return total
        return total.plus(await self._arun(self._acts.on(some, change)))

    def _entry(self, member: queues.Member) -> Entry:
        return Entry(member.payload, member.score, self._mask)


def seconds(at: float | dt.datetime) -> float:
    """A time in Unix seconds; ArgumentError for what is none."""
    if isinstance(at, dt.datetime):
        return times.seconds_of(at)
    if isinstance(at, bool) or not isinstance(at, int | float) or not -1e11 < at < 1e11:
        raise ArgumentError(f"{at!r} is no time: give an aware datetime or Unix seconds")
    return float(at)
