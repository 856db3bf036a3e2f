"""A producer's pushes of jobs that wait for others, and of those that they wait for: in both orders.

Before a job that waits: ``needs KEY KIND/NAME …``; what has no name of its own is called by the key of its push. Both
producers push the same names at the same time. What somebody waits for is pushed until the server has answered, also
when the producer is told to stop: then nobody may be forgotten.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import dependants
import policies
from key_pushes import answered, fails_once, new_names
from kinds import KINDS
from ledger import Ledger
from pushes import at_once, told

__all__ = ["DependantPushes"]

JOBS = dependants.JOBS | policies.JOBS
NEEDS = dependants.NEEDS | policies.WAITS
NOBODY = "ghost"  # which is waited for, and never comes
LATER = (0.2, 5.0)  # seconds between the two sides
MOST = 2  # jobs that wait for the same, of one producer
LIMIT = 60.0  # seconds at the end for what is owed


class DependantPushes:
    """One producer's pushes."""

    def __init__(self, name: str, seed: int, ledger: Ledger, *, awaits: bool) -> None:
        self._name, self._ledger, self._awaits = name, ledger, awaits
        self._chance = random.Random(f"{seed}{name} dependants")  # noqa: S311 - to be repeated, not to be secret
        self._number = 0
        self._later: list[tuple[float, Callable[[], Awaitable[bool]]]] = []  # when, and what says whether it is done

    async def some(self) -> int:
        """Push one side, and the other one now or later; how many jobs that is, about."""
        kind = self._chance.choice((*NEEDS, "second"))
        if kind == "second":
            return await self._by_handle()
        name = self._chance.choice(new_names())
        many = self._chance.randint(1, MOST)
        sides = [partial(self._waiting, kind, name, many)]
        sides += [partial(self._needed, one, name) for one in NEEDS[kind] if one != NOBODY]
        if kind == "witness":  # what it waits for waits in its turn
            sides += [partial(self._needed, one, name) for one in NEEDS["spared"]]
        self._chance.shuffle(sides)
        for number, side in enumerate(sides):
            self._soon(side, 0.0 if not number else self._chance.uniform(*LATER))
        await self.now_and_then()
        return many + len(sides) - 1

    async def now_and_then(self) -> None:
        """Push what is due."""
        now = time.monotonic()
        for one in [one for one in self._later if one[0] <= now]:
            self._later.remove(one)
            if not await one[1]():
                self._soon(one[1], 1.0)

    async def all(self) -> None:
        """Push what is left."""
        end = time.monotonic() + LIMIT
        while self._later and time.monotonic() < end:
            await self.now_and_then()
            await asyncio.sleep(0.05)

    def _soon(self, side: Callable[[], Awaitable[bool]], seconds: float) -> None:
        self._later.append((time.monotonic() + seconds, side))

    def _key(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._name}-{self._number}"

    async def _push(self, kind: str, key: str, *args: Any, **using: Any) -> Any:
        """The answer; None when it was not accepted, or nobody knows."""
        job = JOBS[kind].using(**using) if using else JOBS[kind]
        notes = [f"fails={args[-1]}"] if KINDS[kind].attempts is None else []
        send = job.aenqueue if self._awaits else lambda *row: at_once(job.enqueue, *row)
        return await told(self._ledger, "", [(key, notes)], lambda: send(key, *args), answered)

    async def _needed(self, kind: str, name: str) -> bool:
        """Push what is waited for, again when nobody answered: then it is a duplicate, or not there yet."""
        key = self._key(kind)
        self._ledger.write("named", key, kind, name)
        if kind in NEEDS:
            self._ledger.write("needs", key, *(f"{one}/{name}" for one in NEEDS[kind]))
        args = (name, fails_once(name)) if kind == "base" else (name,)
        return await self._push(kind, key, *args) is not None

    async def _waiting(self, kind: str, name: str, many: int) -> bool:
        for _ in range(many):
            key = self._key(kind)
            self._ledger.write("needs", key, *(f"{one}/{name}" for one in NEEDS[kind]))
            await self._push(kind, key, name)
        return True

    async def _by_handle(self) -> int:
        """One job, or two, and one that waits for them, at once or later, when they may have ended."""
        handles, keys = [], []
        for _ in range(self._chance.randint(1, 2)):
            key = self._key("first")
            handle = await self._push("first", key, int(self._chance.random() < 0.3))
            if handle is not None:
                handles.append(handle)
                keys.append(key)

        async def then() -> bool:
            after = self._key("second")
            self._ledger.write("needs", after, *(f"first/{key}" for key in keys))
            await self._push("second", after, after=handles)
            return True

        if handles:
            self._soon(then, self._chance.choice((0.0, self._chance.uniform(*LATER))))
        return len(handles) + 1
