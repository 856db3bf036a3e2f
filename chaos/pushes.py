"""How a producer pushes and writes down what it was told; and its stream of pushes to the ordered queues."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import entities
from kinds import ORDERED
from ledger import Ledger

from henchman.errors import BatchError, ServerAway, ServerError

__all__ = ["OrderedPushes", "at_once", "told"]

SHARE = 0.3  # ordered payloads for each plain job
BULK = 8  # payloads in one push_many
BULKS = 0.2  # of all pushes


async def told(
    ledger: Ledger,
    mark: str,
    pushes: Sequence[tuple[str, Sequence[str]]],
    send: Callable[[], Awaitable[Any]],
    read: Callable[[Any], Sequence[str]] = lambda _: ("accepted",),
) -> Any:
    """Push (key, notes) by ``send`` and write down what came of it, with ``mark`` before each word; None when it was
    not accepted. ``read``: what an answer means, its verdict first.
    """
    for key, notes in pushes:
        ledger.write(f"{mark}push", key, *notes)
    answer = None
    try:
        answer = await send()
        verdict, *more = read(answer)
    except ServerAway as error:
        verdict, more = "unknown" if error.executed is None else "refused", []
    except (ServerError, BatchError):
        verdict, more = "refused", []
    for key, _ in pushes:
        ledger.write(f"{mark}{verdict}", key, *more)
    if answer is None:
        await asyncio.sleep(0.05)
    return answer


async def at_once(function: Callable[..., Any], *args: Any) -> Any:
    """A call that blocks, as most producers make it; nothing else runs in this loop."""
    return function(*args)


class Row(NamedTuple):
    """One payload for an id."""

    queue: str
    name: str
    payload: entities.Payload
    score: int


class OrderedPushes:
    """One producer's payloads. Scores rise, and no two payloads have the same: those of the other one lie between."""

    def __init__(self, name: str, seed: int, ledger: Ledger, *, awaits: bool) -> None:
        self._mark = name[0]
        self._ledger = ledger
        self._awaits = awaits
        self._chance = random.Random(f"{seed}{name} ordered")  # noqa: S311 - to be repeated, not to be secret
        self._number = 0

    async def now_and_then(self) -> None:
        """Called once for each plain push."""
        chance = self._chance
        if chance.random() >= SHARE / (1 - BULKS + BULKS * BULK):
            return
        queue = chance.choice(list(ORDERED))
        job = entities.QUEUES[queue]
        if chance.random() < BULKS:
            rows = [self._row(queue) for _ in range(BULK)]
            told_rows = [{"id": row.name, "payload": row.payload, "score": row.score} for row in rows]
            push = job.apush_many if self._awaits else job.push_many
            await self._push(rows, lambda: push(told_rows) if self._awaits else at_once(push, told_rows))
        else:
            row = self._row(queue)
            delay = chance.uniform(0.5, 4) if chance.random() < 0.05 else None
            await self._push([row], lambda: self._single(job, row, delay))

    def _row(self, queue: str) -> Row:
        chance = self._chance
        self._number += 1
        payload: entities.Payload = {"key": f"{self._mark}{self._number}"}
        draw = chance.random()
        if draw < 0.05:
            payload["fails"] = 1 if draw < 0.04 else 2
        elif draw < 0.057:
            payload["dead"] = True
        elif draw < 0.06:
            payload["stuck"] = 20.0
        elif draw < 0.08:
            payload["nap"] = round(chance.uniform(1, 4), 2)
        elif draw < 0.2:
            payload["nap"] = round(chance.uniform(0.1, 0.3), 2)
        if chance.random() < 0.6:
            payload["answer"] = True  # where it fails, it says so of its id alone
        score = 2 * self._number + (self._mark == "w")
        return Row(queue, chance.choice(ORDERED[queue].ids), payload, score)

    async def _single(self, job: Any, row: Row, delay: float | None) -> Any:
        if self._awaits:
            return await job.apush(row.name, row.payload, score=row.score, delay=delay)
        return job.push(row.name, row.payload, score=row.score, delay=delay)

    async def _push(self, rows: list[Row], send: Callable[[], Awaitable[Any]]) -> None:
        """One push of ``rows``, told as accepted, refused or unknown."""
        notes = [
            (row.payload["key"], (row.queue, row.name, str(row.score), "dead" if row.payload.get("dead") else "-"))
            for row in rows
        ]
        await told(self._ledger, "o", notes, send)
