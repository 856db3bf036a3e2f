"""Ordered queues in memory: how payloads of an id merge, which id is next, and what is left of it when it ended.

What it is not: a queue with several workers. One claim runs at a time, so ceilings, groups and pauses mean nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from henchman.app import App
from henchman.ordered.claim import Claim
from henchman.store.call import Arg, Call
from henchman.store.ordered import ClaimedId, Verdict
from henchman.testing.pushes import arguments
from henchman.work.unit import Unit

__all__ = ["Entity", "OrderedShelf", "Row", "is_ordered_push", "ordered_unit", "rows_of"]


class Row(NamedTuple):
    """One ordered push as it was sent. ``at`` is the Unix time at which it is due, None for now; ``score``: as said."""

    queue: str
    id: bytes
    payload: bytes
    score: float | None
    at: float | None


def ordered_unit(app: App, queue: str, claim: Claim) -> Unit:
    """A claim as a worker of ``app`` gets it."""
    source = app.sources()[queue]
    return Unit(b"", source.flight("testing", 1), time.monotonic(), source, claim)


#: the scripts that push to ordered queues → how many arguments stand before their rows
_BEFORE = {"ordered_push": 2, "ordered_push_tracked": 5}


def is_ordered_push(call: Call[Any]) -> bool:
    """Whether ``call`` pushes to an ordered queue."""
    return call.script is not None and call.name in _BEFORE


def rows_of(call: Call[Any], now: float) -> tuple[str, list[Row]]:
    """How payloads merge in that queue, and what is pushed."""
    told = arguments(call)[1]
    queue, collapse = told[:2]
    rest = told[_BEFORE[call.name] :]
    return _text(collapse), [_row(_text(queue), rest[i : i + 4], now) for i in range(0, len(rest), 4)]


def _row(queue: str, parts: list[Arg], now: float) -> Row:
    id, when, score, payload = parts
    assert isinstance(id, bytes)  # noqa: S101 - our own calls send bytes
    assert isinstance(payload, bytes)  # noqa: S101
    due = None if when == "" else now + float(when) if _text(when).startswith("+") else float(when)
    return Row(queue, id, payload, None if score == "" else float(score), due)


def _text(value: Arg) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@dataclass
class Entity:
    """What waits under an id: (score, number of its arrival, payload), lowest first."""

    due: float
    number: int = 0  # of its first push: who comes first of those that are due together
    retry_count: int = -1
    waiting: list[tuple[float, int, bytes]] = field(default_factory=list)

    def add(self, score: float, number: int, payload: bytes, collapse: str) -> None:
        """Merge a payload in."""
        if collapse == "latest":
            if not self.waiting or score >= self.waiting[0][0]:
                self.waiting = [(score, number, payload)]
            return
        if collapse == "min":
            equal = next((one for one in self.waiting if one[2] == payload), None)
            if equal is not None:
                self.waiting.remove(equal)
                score = min(score, equal[0])
        self.waiting.append((score, number, payload))
        self.waiting.sort(key=lambda one: (one[0], one[1] if collapse == "none" else 0, one[2]))


class OrderedShelf:
    """``pushed`` is every push; the rest is by (queue, id): what waits, and what was given up."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.pushed: list[Row] = []
        self.waiting: dict[tuple[str, bytes], Entity] = {}
        self.morgue: dict[tuple[str, bytes], Entity] = {}
        self._in_hand: dict[tuple[str, bytes], Entity] = {}
        self._collapse: dict[str, str] = {}
        self._now = now
        self._numbers = count(1)
        self._lock = threading.RLock()

    def push(self, call: Call[Any]) -> int:
        """Take a push; how many ids had nothing waiting."""
        with self._lock:
            return self._push(call)

    def _push(self, call: Call[Any]) -> int:
        collapse, rows = rows_of(call, self._now())
        created = 0
        for row in rows:
            self.pushed.append(row)
            self._collapse[row.queue] = collapse
            key, number = (row.queue, row.id), next(self._numbers)
            now = self._now()
            created += key not in self.waiting and key not in self._in_hand
            entity = self.waiting.setdefault(key, Entity(now if row.at is None else row.at, number))
            own = now + number / 1e6  # a hair apart: the order of pushes stays
            entity.add(own if row.score is None else row.score, number, row.payload, collapse)
        return created

    def claim(self, queues: Iterable[str], size: Callable[[str], tuple[int, int]]) -> tuple[str, Claim] | None:
        """What is due and next, and the queue it is from; ``size``: ids and payloads an id that a claim may have."""
        with self._lock:
            return self._claim(queues, size)

    def _claim(self, queues: Iterable[str], size: Callable[[str], tuple[int, int]]) -> tuple[str, Claim] | None:
        mine, now = set(queues), self._now()
        free = [(one.due, one.number, key) for key, one in self.waiting.items() if key not in self._in_hand]
        ready = [key for due, _, key in sorted(free) if due <= now and key[0] in mine]
        if not ready:
            return None
        queue = ready[0][0]
        most, cap = size(queue)
        keys = [key for key in ready if key[0] == queue][:most]
        fresh = [key for key in keys if self.waiting[key].retry_count < 0]
        taken = fresh if keys[0] in fresh else keys[:1]  # an id that failed before is claimed alone
        ids = []
        for key in taken:
            entity = self._in_hand[key] = self.waiting.pop(key)
            given = [(score, payload) for score, _, payload in entity.waiting[:cap]]
            ids.append(ClaimedId(key[1], entity.retry_count, 0, given))
        return queue, Claim(next(self._numbers), ids)

    def settle(self, queue: str, claim: Claim) -> None:
        """End each id of a claim as it was judged."""
        with self._lock:
            for one, verdict in zip(claim.ids, claim.verdicts or claim.all("done"), strict=True):
                self._end((queue, one.id), len(one.payloads), verdict)

    def _end(self, key: tuple[str, bytes], given: int, verdict: Verdict) -> None:
        entity = self._in_hand.pop(key)
        arrived = self.waiting.pop(key, None)
        left = self._left(key, entity, given, verdict)
        if arrived is not None and not left.waiting:
            left = arrived
        elif arrived is not None:
            for score, number, payload in arrived.waiting:
                left.add(score, number, payload, self._collapse[key[0]])
        if left.waiting:
            self.waiting[key] = left

    def _left(self, key: tuple[str, bytes], entity: Entity, given: int, verdict: Verdict) -> Entity:
        now = self._now()
        if verdict.verdict == "done":
            return Entity(now, entity.number, waiting=entity.waiting[given:])
        if verdict.verdict == "bury":
            self.morgue.setdefault(key, Entity(now)).add(*entity.waiting[0], "min")
            return Entity(now, entity.number, waiting=entity.waiting[1:])
        if verdict.verdict == "retry":
            return Entity(now + verdict.delay, entity.number, entity.retry_count + 1, entity.waiting)
        if verdict.verdict == "snooze":
            return Entity(now + verdict.delay, entity.number, entity.retry_count, entity.waiting)
        return entity

    def put_back(self, queue: str, claim: Claim) -> None:
        """A claim that did not run waits again."""
        claim.verdicts = claim.all("release")
        self.settle(queue, claim)

    def next_at(self, queues: Iterable[str]) -> float | None:
        """When the next id of these queues is due."""
        mine = set(queues)
        return min((one.due for key, one in self.waiting.items() if key[0] in mine), default=None)

    def clear(self) -> None:
        """Forget everything."""
        for held in (self.pushed, self.waiting, self.morgue, self._in_hand):
            held.clear()
