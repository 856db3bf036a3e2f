"""How fast a worker drains a queue that was paused until it had settled down, counted by the server."""

from __future__ import annotations

import time

from server import LIMIT, Raw, wait_for

__all__ = ["pause", "released"]


def pause(raw: Raw, queue: str) -> None:
    """Nothing starts from it: before there is a worker."""
    raw.ask("SADD", "paused", queue)


def released(raw: Raw, queue: str, count: int) -> tuple[int, float]:
    """Let the queue go on: (jobs settled once there are ``count``, jobs a second).

    The rate counts from the first jobs that the server shows to the last. When this process was not let look before all
    were settled, it counts from the moment at which the queue went on.
    """
    since = time.monotonic()
    raw.ask("SREM", "paused", queue)
    raw.ask("PUBLISH", "hm:control", f"unpause {queue}")
    first, began = _watch(raw, count, until=1)
    last, ended = _watch(raw, count, until=count)
    if last == first:
        first, began = 0, since
    return last, (last - first) / (ended - began)


def _watch(raw: Raw, count: int, until: int) -> tuple[int, float]:
    """(jobs settled, time) as soon as ``until`` are."""
    seen = [0]

    def look() -> bool:
        seen[0] = raw.number("GET", "stat:processed")
        return seen[0] >= until

    wait_for(f"{until:,} of {count:,} jobs", look, LIMIT, pause=0.01)
    return seen[0], time.monotonic()
