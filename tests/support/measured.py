"""What a test measures of itself and of its server: memory, how long a look takes, how long a call holds the server."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redis import Redis

__all__ = ["Held", "median", "resident_kb", "server_seconds"]

_PIECE = """
for i = 1, 1500 do
  local job = cjson.decode(ARGV[1])
  redis.call('HSET', KEYS[1], job.jid .. i, cjson.encode({job.class, i}))
end
return redis.call('DEL', KEYS[1])
"""
_JOB = '{"class":"shop.export","args":[17],"jid":"000000000000000000000000","hm":{"batch":"b","results":true}}'
_PIECE_TOOK = 0.0075  # seconds of the processor, where and when the bounds of the tests were set


def resident_kb() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def median(look: Callable[[], Any]) -> float:
    """The median of seven runs, in seconds."""
    took = []
    for _ in range(7):
        started = time.perf_counter()
        look()
        took.append(time.perf_counter() - started)
    return statistics.median(took)


def server_seconds(redis: Redis) -> float:
    """Seconds of its processor that the server has used: of its main thread, what it frees another one does."""
    told: Any = redis.info("cpu")
    own = "_main_thread" if "used_cpu_user_main_thread" in told else ""
    return float(told[f"used_cpu_user{own}"] + told[f"used_cpu_sys{own}"])


class Held:
    """How long calls hold the server, by what each took of its processor; ``bound``: seconds that one may take.

    A processor is twice as slow while a neighbour works on the same core. So the bound is one of a known piece of
    work, done again and again between the calls: where that takes longer than it did when the bound was set, a call
    may take longer, too.
    """

    def __init__(self, redis: Redis, bound: float) -> None:
        self.redis, self.bound = redis, bound
        self.took: dict[str, list[float]] = {}
        self._pieces = list[float]()

    def run(self, name: str, call: Callable[[], Any]) -> Any:
        if sum(map(len, self.took.values())) % 10 == 0:
            self.pace()
        before = server_seconds(self.redis)
        try:
            return call()
        finally:
            self.took.setdefault(name, []).append(server_seconds(self.redis) - before)

    def pace(self) -> None:
        before = server_seconds(self.redis)
        self.redis.eval(_PIECE, 1, "a piece of work", _JOB)
        self._pieces.append(server_seconds(self.redis) - before)

    def dearest(self, but: int = 0) -> dict[str, float]:
        """Seconds that the dearest call of each name took, but for the ``but`` dearest of it."""
        return {name: sorted(took)[-1 - but] for name, took in self.took.items()}

    def most(self) -> float:
        """Seconds that a call may take on this machine, as it was meanwhile."""
        for _ in range(3):
            self.pace()
        return self.bound * max(1.0, statistics.median(self._pieces) / _PIECE_TOOK)

    def __str__(self) -> str:
        held = ", ".join(f"{name} {1000 * seconds:.1f}" for name, seconds in self.dearest().items())
        return f"{held} (ms; {1000 * self.most():.1f} may be)"
