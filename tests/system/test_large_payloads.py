"""Sixty jobs of 3 MB: they are staged, fetched ahead, run and settled in pieces, and no worker needs memory for all."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman.worker.acker import PENDING_BYTES
from henchman.worker.fetcher import AHEAD_BYTES
from support.processes import Work
from support.worker import in_flight, settled

MB = 1 << 20
JOBS = 60
SLOTS, ONE, CALL = 10, 3 * MB, 4 * MB
HELD = 2 * (  # as it came, and decoded, for as long as a process holds it
    SLOTS * ONE  # in its slots
    + AHEAD_BYTES + CALL  # fetched ahead: as much as is allowed, and a call more
    + PENDING_BYTES + SLOTS * ONE  # waiting to be settled: as much as is allowed, and what ran meanwhile
)  # fmt: skip
MOST_MEMORY = (
    45 * MB  # the process as it starts
    + HELD
    + (SLOTS + 3) * ONE  # the heart tells what runs, one after the other in three forms more
    + 3 * (CALL + ONE)  # the stager's call: as it came, as it goes, in between
    + 3 * (CALL + ONE)  # answers that are being read: a fetch, a look at what is due, a wait
)  # 286 MB; without bounds the sixty jobs take 1.5 GB
MOST_HELD = 400_000  # microseconds that a script may hold the server: 25 ms for 4 MB, and what a loaded machine adds


def payload(number: int) -> bytes:
    text = b"x" * ONE
    return b'{"class":"weigh","args":["%b",%d],"jid":"%024d","queue":"large","retry":true}' % (text, number, number)


def peak(pid: int) -> int:
    """The most resident memory that a process has had, in bytes."""
    [line] = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("where", ["schedule", "retry", "queue"])
def test_sixty_jobs_of_3_mb(tmp_path: Path, redis: Redis, redis_url: str, where: str) -> None:
    redis.config_set("slowlog-log-slower-than", MOST_HELD)
    redis.slowlog_reset()
    with Work(tmp_path / "work", redis_url, "-c", str(SLOTS), "-q", "large", target="support.large:app") as work:
        [pid] = work.ready(redis)
        before, due = peak(pid), time.time() + 2.0
        for number in range(JOBS):
            if where == "queue":
                redis.lpush("queue:large", payload(number))
            else:
                redis.zadd(where, {payload(number): due})
        settled(redis, JOBS)
        assert not redis.exists(where, "queue:large", "dead")
        assert not in_flight(redis)
        assert peak(pid) < MOST_MEMORY, f"it grew from {before / MB:.0f} to {peak(pid) / MB:.0f} MB"
        slow: Any = [one for one in redis.slowlog_get(20) if one["command"].startswith(b"EVALSHA")]
        assert not slow, [(one["duration"], one["command"][:100]) for one in slow]
        print(where, before / MB, peak(pid) / MB)
