"""Payloads that no client should push, among honest ones: the corpus of the tests, into queues and into the sets.

They must harm nobody. What they come to themselves is not judged here (``tests/`` does that): those that are retried
for days are taken away when the attacks are over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import clocks  # noqa: F401 - it finds the tests' folder
from field import Field, until
from kinds import ORDERED, QUEUES

from support.hostile import FIELDS, NO_JOB

__all__ = ["clear", "is_hostile", "push_hostile"]

AT_ONCE = 24
TAKEN = 8.0  # seconds for workers to take what is next; the others come later
MARK = "hostile"  # how the id of each begins that has one
KINDS: tuple[tuple[str, Any], ...] = (("nobody.knows", False), ("hostile_raises", 1), ("hostile_fine", True))
Told = tuple[int, str]


def is_hostile(payload: bytes) -> bool:
    """Whether a stored payload is one of them, or wraps one that was no job."""
    return f'"{MARK}'.encode() in payload or b'"class":"InvalidPayload"' in payload


def _payloads(field: Field) -> Iterator[bytes]:
    """Without end, in a drawn order."""
    while True:
        number = field.chance.randrange(len(FIELDS) + len(NO_JOB))
        if number >= len(FIELDS):
            yield list(NO_JOB.values())[number - len(FIELDS)]
            continue
        fields = list(FIELDS.values())[number]
        name, retry = field.chance.choice(KINDS)
        job = {"class": name, "args": [], "queue": "slow", "jid": f"{MARK}{field.chance.getrandbits(64):x}"}
        yield json.dumps(job | {"retry": retry, "created_at": 1.5, "enqueued_at": 1.5} | fields).encode()


def push_hostile(field: Field) -> Told:
    """Some of them into two queues, at both ends, and due into the schedule and the retries."""
    redis: Any = field.redis
    payloads, queues = _payloads(field), ("fast", "slow")
    pushed = [(f"queue:{field.chance.choice(queues)}", next(payloads)) for _ in range(AT_ONCE)]
    field.hostile(2 * AT_ONCE)
    for key, payload in pushed:
        (redis.lpush if field.chance.random() < 0.5 else redis.rpush)(key, payload)
    due = {next(payloads): field.chance.uniform(1, 1.7e9) for _ in range(AT_ONCE)}
    for place, (payload, score) in enumerate(due.items()):
        redis.zadd("schedule" if place % 2 else "retry", {payload: score})

    def taken() -> int:
        return sum(redis.lpos(key, payload) is None for key, payload in pushed)

    until(lambda: taken() == len(pushed), TAKEN, 0.5)
    return taken(), f"{len(pushed) + len(due)} payloads, of {len(pushed)} in queues {taken()} taken by then"


def clear(field: Field) -> None:
    """Take away those that are still to come, also those in queues that nobody serves."""
    redis: Any = field.redis
    for key in ("schedule", "retry"):
        if found := [one for one in redis.zrange(key, 0, -1) if is_hostile(one)]:
            redis.zrem(key, *found)
    ours = {f"queue:{name}".encode() for name in (*QUEUES, *ORDERED)}
    for key in redis.scan_iter(match="queue:*", count=1000):
        if key not in ours and all(map(is_hostile, redis.lrange(key, 0, -1))):
            redis.delete(key)
