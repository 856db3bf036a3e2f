"""A producer's pushes of jobs with a key: the same things as the other producers push, at the same time.

Written down is ``named KEY KIND NAME`` before a push; what was answered stands as for each push, a duplicate with the
jid of the job that it is told to be: ``duplicate KEY JID``. A bulk push of one thing tells how many of its jobs were
made, not which: then there is one, ``exists KIND NAME``. Of pushes whose arguments replace those of the job that waits
other words are written: ``fpush PUSH NAME``, and ``faccepted PUSH JID`` or ``fduplicate PUSH JID`` with the job that
has them now, ``frefused`` and ``funknown``.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import contracts
from kinds import KEYED, KINDS
from ledger import Ledger, wall
from pushes import at_once, told

from henchman.errors import DuplicateJob

__all__ = ["KeyPushes", "answered", "fails_once", "new_names"]

SLOT = 4.0  # seconds for which things that come once are new
AT_ONCE = 3  # of them
MOST = 3  # pushes of a thing in a row
BULK = 4
BULKS = 0.15  # of all pushes of things that come once


def new_names() -> list[str]:
    """The things that come once and are new now, for whoever asks."""
    return [f"{int(wall() / SLOT)}.{number}" for number in range(AT_ONCE)]


def fails_once(name: str) -> int:
    """How often such a thing fails first, whoever pushes it."""
    return int(zlib.crc32(name.encode()) % 4 == 0)


class KeyPushes:
    """One producer's pushes of jobs with a key."""

    def __init__(self, name: str, seed: int, ledger: Ledger, *, awaits: bool) -> None:
        self._name, self._ledger, self._awaits = name, ledger, awaits
        self._chance = random.Random(f"{seed}{name} keys")  # noqa: S311 - to be repeated, not to be secret
        self._number = 0

    async def some(self) -> int:
        """Push a thing once or a few times; how many jobs that would be."""
        chance = self._chance
        kind = chance.choices(list(KEYED), [one.weight for one in KEYED.values()])[0]
        name = self._thing(kind)
        if kind in ("once", "oncedead") and chance.random() < BULKS:
            return await self._bulk(kind, name)
        many = chance.randint(1, MOST)
        if kind == "fresh":
            return await self._fresh(name, many)
        for _ in range(many):
            await self._one(kind, name)
        return many

    def _thing(self, kind: str) -> str:
        return self._chance.choice(KEYED[kind].names or new_names())

    def _row(self, kind: str, name: str) -> tuple[tuple[Any, ...], list[str]]:
        """The arguments of one job, its own key first, and notes for the judge."""
        self._number += 1
        args: tuple[Any, ...] = (f"{kind}-{self._name}-{self._number}", name)
        notes = []
        if KINDS[kind].attempts is None:
            fails = fails_once(name) if kind == "once" else int(self._chance.random() < 0.2)
            args += (fails,)
            notes.append(f"fails={fails}")
        if kind in ("until", "turn", "desk", "adesk", "both"):
            seconds = self._chance.uniform(1, 3) if self._chance.random() < 0.05 else self._chance.uniform(0.05, 0.3)
            args += (round(seconds, 2),)
        self._ledger.write("named", args[0], kind, name)
        return args, notes

    async def _one(self, kind: str, name: str) -> None:
        args, notes = self._row(kind, name)
        job = contracts.JOBS[kind]

        async def send() -> Any:
            try:
                return await (job.aenqueue(*args) if self._awaits else at_once(job.enqueue, *args))
            except DuplicateJob as error:
                return error

        await told(self._ledger, "", [(args[0], notes)], send, answered)

    async def _fresh(self, name: str, many: int) -> int:
        for _ in range(many):
            self._number += 1
            args = f"push-{self._name}-{self._number}", name, round(self._chance.uniform(0.05, 0.3), 2)
            push = contracts.fresh.aenqueue if self._awaits else contracts.fresh.enqueue
            await told(
                self._ledger,
                "f",
                [(args[0], [name])],
                lambda push=push, args=args: push(*args) if self._awaits else at_once(push, *args),  # type: ignore[misc]
                lambda handle: ("duplicate" if handle.admission == "duplicate" else "accepted", handle.jid),
            )
        return many

    async def _bulk(self, kind: str, name: str) -> int:
        rows = [self._row(kind, name) for _ in range(BULK)]
        job = contracts.JOBS[kind]
        bulk: Callable[..., Awaitable[Any]] = job.aenqueue_many if self._awaits else job.enqueue_many
        sent = [args for args, _ in rows]

        def counted(pushed: Any) -> tuple[str, ...]:
            if pushed.created == len(rows):
                return ("accepted",)
            return ("unknown",) if pushed.created else ("duplicate", "-")

        push = [(args[0], notes) for args, notes in rows]
        pushed = await told(
            self._ledger, "", push, lambda: bulk(sent) if self._awaits else at_once(bulk, sent), counted
        )
        if pushed is not None:
            self._ledger.write("exists", kind, name)
        return len(rows)


def answered(answer: Any) -> tuple[str, ...]:
    """What the ledger is told of the answer to one push."""
    if isinstance(answer, DuplicateJob):
        return "duplicate", answer.jid
    if answer.admission == "duplicate":
        return "duplicate", answer.duplicate_of
    return ("accepted", "blocked") if answer.admission == "blocked" else ("accepted",)
