"""One of the producers: pushes jobs of every kind, and writes down what it was told about each.

``python producer.py NAME SEED RATE OFFSET SHARE``: OFFSET is how many seconds its clock is wrong, SHARE the part of its
plain jobs that it pushes in batches (1: all, and nothing else; 0: none, and none with a key either). A push is written
down before it is made ("push"), and after it as accepted, refused (proven not executed) or unknown (nobody can say).
What goes to ordered queues stands beside that, see ``pushes.py``; batches, see ``batch_pushes.py``; jobs with a key,
see ``key_pushes.py``.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import random
import signal
import sys
import time
import zlib
from typing import Any, NamedTuple

import jobs
from batch_pushes import ROWS, BatchPushes
from dependant_pushes import DependantPushes
from key_pushes import KeyPushes
from kinds import KINDS
from ledger import Ledger, wall
from pushes import OrderedPushes, at_once, told

from henchman.errors import ServerError

HUGE = 3_000_000  # bytes
BULK = 60  # tiny jobs in one enqueue_many
KEYED, DEPENDANT = 0.1, 0.1  # of the jobs that are in no batch


class Push(NamedTuple):
    """One job to push: its arguments and how it is to be pushed."""

    key: str
    kind: str
    args: tuple[Any, ...]
    using: dict[str, Any]
    notes: tuple[str, ...]  # "name=value" for the judge


class Producer:
    """Pushes until it is told to stop. With an ``offset`` it awaits its pushes, without it does not."""

    def __init__(self, name: str, seed: int, rate: float, offset: float, share: float) -> None:
        self._share = share
        self._name, self._rate, self._offset = name, rate, offset
        self._chance = random.Random(f"{seed}{name}")  # noqa: S311 - to be repeated, not to be secret
        self._ledger = Ledger(jobs.FOLDER, "producer")
        self.stopped = False
        self.batch: Any = None  # where pushes go without being in its block
        self.batch_name = ""  # where they go, in either way
        self._number = 0
        self._batches = BatchPushes(self, name, seed, self._ledger, awaits=bool(offset))
        self._keys = KeyPushes(name, seed, self._ledger, awaits=bool(offset))
        self._dependants = DependantPushes(name, seed, self._ledger, awaits=bool(offset))
        self._ordered = OrderedPushes(name, seed, self._ledger, awaits=bool(offset))
        self._blobs = [os.urandom(size // 2).hex() for size in (60_000, 120_000, 250_000)]
        self._huge = os.urandom(HUGE // 2).hex()

    def stop(self, *_: Any) -> None:
        """After the push that is under way."""
        self.stopped = True

    def _next(self) -> Push:
        chance = self._chance
        self._number += 1
        kind = chance.choices(list(KINDS), [one.weight for one in KINDS.values()])[0]
        if kind == "pressed" and self.batch_name:  # nobody can say how it ends
            kind = "tiny"
        key = f"{kind}-{self._name}-{self._number}"
        args: tuple[Any, ...] = (key,)
        using: dict[str, Any] = {}
        notes: list[str] = []
        if kind == "acapped":  # short: they start one after the other in one process
            args += (chance.choice((0, 0.001, 0.004)),)
        elif kind in ("nap", "anap", "capped"):
            args += (round(chance.uniform(0.01, 0.1), 3),)
        elif kind == "pressed":
            args += (round(chance.choice((0.02, 0.02, 0.5, 3.0)), 2),)
        elif kind in ("long", "along"):
            args += (round(chance.uniform(2, 7), 2),)
        elif kind == "flaky":
            args += (chance.randint(1, 3),)
            notes.append(f"fails={args[1]}")
        elif kind in ("big", "huge"):
            blob = chance.choice(self._blobs) if kind == "big" else self._huge
            args += (blob, zlib.crc32(blob.encode()))
        waits = {"later": 1.0, "doomed": 0.7, "huge": 0.3}.get(kind, 0.0)  # in the schedule; the part that does
        delay = chance.uniform(1, 8) if chance.random() < waits else 0.0
        if kind == "brief" and self._offset:
            delay = 0.3  # then its time is the server's, not ours
        if delay and not self._offset and chance.random() < 0.3:
            at = wall() + delay
            using["at"] = dt.datetime.fromtimestamp(at, dt.UTC)
            notes.append(f"at={at:.6f}")
        elif delay:
            using["delay"] = delay
            notes.append(f"delay={delay:.6f}")
        return Push(key, kind, args, using, tuple(notes))

    def _job(self, push: Push) -> Any:
        kind = {"later": "tiny", "long": "nap", "along": "anap", "huge": "big"}.get(push.kind, push.kind)
        return getattr(jobs, kind)

    async def run(self) -> None:
        """Push at the rate; slow down while the server is away."""
        due = time.monotonic()
        blocks = 2 * self._share / sum(ROWS) / max(1 - self._share, 0.001)
        while not self.stopped:
            if self._chance.random() < blocks:
                due += await self._batches.block() / self._rate
            if self._share < 1:
                due += await self._next_some() / self._rate
            await self._batches.now_and_then()
            await self._dependants.now_and_then()
            due = max(due, time.monotonic() - 1.0)
            wait = due - time.monotonic()
            if wait > 0.002:
                await asyncio.sleep(wait)
        await self._batches.now_and_then()
        await self._dependants.all()

    async def _next_some(self) -> int:
        """Push what comes next; how many plain jobs it stands for."""
        if self._share and self._chance.random() < KEYED / 2:  # two at once, on average
            return await self._keys.some()
        if self._share and self._chance.random() < DEPENDANT / 3:
            return await self._dependants.some()
        push = self._next()
        if push.kind == "tiny" and self._chance.random() < 0.02:
            await self.bulk(BULK)
        if push.kind == "acapped" and self._chance.random() < 0.2:  # some start behind others of their process
            await self.bulk(BULK, "acapped", 0)
        await self._one(push)
        await self._ordered.now_and_then()
        return 1

    async def some(self, many: int) -> None:
        """Push so many jobs of every kind, the tiny ones in bulk."""
        while many > 0 and not self.stopped:
            push = self._next()
            if push.kind == "tiny":
                bulk = min(many, self._chance.randint(5, BULK))
                await self.bulk(bulk)
                many -= bulk
            await self._one(push)
            many -= 1
            if self._share == 1:
                await asyncio.sleep(0.01)  # so that it can be met within

    async def single(self, kind: str, many: int) -> None:
        """Push so many jobs of a kind that has nothing but a key."""
        for _ in range(many):
            self._number += 1
            key = f"{kind}-{self._name}-{self._number}"
            await self._one(Push(key, kind, (key,), {}, ()))

    async def _one(self, push: Push) -> None:
        using = self._job(push).using(**push.using, **self._where())
        if self._offset:
            handle = await self._told([push], lambda: using.aenqueue(*push.args))
        else:
            handle = await self._told([push], lambda: at_once(using.enqueue, *push.args))
        if handle is not None and push.kind == "doomed":
            await self._cancel(push.key, handle)

    async def _cancel(self, key: str, handle: Any) -> None:
        self._ledger.write("cancelling", key)
        try:
            await (handle.acancel() if self._offset else at_once(handle.cancel))
        except ServerError:
            return  # unknown: it may run, and may not
        self._ledger.write("cancelled", key)

    def _where(self) -> dict[str, Any]:
        return {} if self.batch is None else {"batch": self.batch}

    async def bulk(self, many: int, kind: str = "tiny", *more: Any) -> None:
        """Push so many short jobs at once."""
        pushes = []
        for _ in range(many):
            self._number += 1
            key = f"{kind}-{self._name}-{self._number}"
            pushes.append(Push(key, kind, (key, *more), {}, ()))
        rows, job = [push.args for push in pushes], getattr(jobs, kind)
        if self._offset:
            await self._told(pushes, lambda: job.using(**self._where()).aenqueue_many(rows))
        else:
            await self._told(pushes, lambda: at_once(job.using(**self._where()).enqueue_many, rows))

    async def _told(self, pushes: list[Push], send: Any) -> Any:
        for push in pushes if self.batch_name else ():
            self._ledger.write("bjob", self.batch_name, push.key)
        return await told(self._ledger, "", [(push.key, push.notes) for push in pushes], send)


def main() -> None:
    """Run one producer until TERM."""
    name, seed, (rate, offset, share) = sys.argv[1], int(sys.argv[2]), map(float, sys.argv[3:6])
    producer = Producer(name, seed, rate, offset, share)
    signal.signal(signal.SIGTERM, producer.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's to obey
    if offset and "FAKETIME_TIMESTAMP_FILE" not in os.environ:
        true = time.time
        time.time = lambda: true() + offset
    asyncio.run(producer.run())


if __name__ == "__main__":
    main()
