"""Business keys in tests: jobs with keys, and what is stored of them."""

from __future__ import annotations

import json
from typing import Any

from redis import Redis

__all__ = ["PHASES", "end", "lock", "locks", "waiting"]

#: phase → the options of a job whose key is held so long
PHASES: dict[str, dict[str, Any]] = {
    "o": {"once": True},
    "u": {"unique": "until_success"},
    "w": {"unique": "queued"},
}


def waiting(redis: Redis, queue: str = "default") -> list[dict[str, Any]]:
    """The jobs in a queue, the next to run first."""
    return [json.loads(one) for one in reversed(redis.lrange(f"queue:{queue}", 0, -1))]


def locks(redis: Redis, phase: str, scope: str) -> dict[str, str]:
    """key → jid of who holds it."""
    stored = redis.hgetall(f"hm:lock:{phase}:{scope}")
    return {key.decode(): value.split()[0].decode() for key, value in stored.items()}


def lock(redis: Redis, phase: str, scope: str, key: str) -> str:
    """The jid of who holds a key; "" when nobody does."""
    return locks(redis, phase, scope).get(key, "")


def end(redis: Redis, phase: str, scope: str, key: str, queue: str = "default") -> dict[str, Any]:
    """Take the next job out of its queue and give its key back, as the end of its run does; the job."""
    job: dict[str, Any] = json.loads(redis.rpop(f"queue:{queue}"))
    assert lock(redis, phase, scope, key) == job["jid"]
    redis.hdel(f"hm:lock:{phase}:{scope}", key)
    return job
