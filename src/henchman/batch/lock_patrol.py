"""Business keys that no one asks for, held by jobs that are nowhere: the server forgot its last second, or somebody
deleted what is Sidekiq's or ours by hand.

The auditor of locks looks into keys that keep somebody out. Once a day each key that has stood for a day is looked for
too: one whose job is nowhere is in doubt from then on, and two more searches must agree before it is freed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from henchman.batch.lock_auditor import OLD, end_key, search_keyed
from henchman.client.runtime import Runtime
from henchman.store import locks
from henchman.store.call import iterate
from henchman.store.locks import HeldKey
from henchman.store.ordered_people import now

__all__ = ["LockPatrol", "LostKeys", "forget", "lost_keys"]

DAY = 86_400.0  # seconds between two walks over all keys, and that a key stands before it is looked for
EVERY = 600.0  # seconds between two searches of one walk
MOST = 20_000  # keys that one search is about
READ = 100_000  # keys that are read for one search


class LostKeys(NamedTuple):
    """Keys whose jobs are nowhere; ``looked``: how many were searched for, ``more``: there are others."""

    found: list[HeldKey]
    looked: int
    more: bool


def lost_keys(runtime: Runtime) -> LostKeys:
    """A look by hand at keys that have stood for ten minutes, at most ``MOST`` of them: one search."""
    asked = list(islice(_old_enough(_held(runtime), runtime.connections.run(now()), OLD), MOST + 1))
    return LostKeys(_nowhere(runtime, asked[:MOST]), len(asked[:MOST]), len(asked) > MOST)


def forget(runtime: Runtime, found: Iterable[HeldKey]) -> list[HeldKey]:
    """Free those of these keys whose jobs are nowhere still; which were freed. The next in line has them then."""
    freed = _nowhere(runtime, list(found))
    for one in freed:
        end_key(runtime, one, "gone")
    return freed


class LockPatrol:
    """``walk()`` goes on with today's walk; the auditor of locks calls it, in one process at a time."""

    def __init__(self, runtime: Runtime, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._runtime = runtime
        self._monotonic = monotonic
        self._next = monotonic() + EVERY  # a process that has just begun has more urgent things to do
        self._walk: Iterator[HeldKey] | None = None

    def walk(self) -> int:
        """Look for the jobs of some more keys, if it is time; how many of these keys are in doubt now."""
        if self._monotonic() < self._next:
            return 0
        at = self._runtime.connections.run(now())
        if self._walk is None:
            self._walk = _held(self._runtime)
        some = list(islice(self._walk, READ))
        if len(some) < READ:
            self._walk, self._next = None, self._monotonic() + DAY
        else:
            self._next = self._monotonic() + EVERY
        old, lost = list(_old_enough(some, at, DAY)), 0
        for start in range(0, len(old), MOST):
            for one in _nowhere(self._runtime, old[start : start + MOST]):
                member = f"{one.phase} {one.scope}\n{one.name}".encode("utf-8", "surrogateescape")
                lost += self._runtime.connections.run(locks.distrust(self._runtime.keys, member, at))
        return lost


def _held(runtime: Runtime) -> Iterator[HeldKey]:
    """Every key that is held."""
    runner, keys = runtime.connections, runtime.keys
    for scope in dict.fromkeys(["", *runner.run(locks.scopes(keys))]):
        yield from iterate(runner, locks.held(keys, scope))


def _old_enough(found: Iterable[HeldKey], now: float, age: float) -> Iterator[HeldKey]:
    """Those that have stood for so long; after the clock went back nobody knows."""
    return (one for one in found if one.since > now or now - one.since >= age)


def _nowhere(runtime: Runtime, asked: list[HeldKey]) -> list[HeldKey]:
    """Those whose jobs are in no queue, no set, with no process, and not among the dead."""
    if not asked:
        return []
    found = search_keyed(runtime, {one.jid: one.phase for one in asked})
    return [one for one in asked if one.jid in found.missing]
