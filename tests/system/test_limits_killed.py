"""A limit of three while worker processes are killed and stopped: never more than three jobs that run, and in the end
no place is taken."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from redis import Redis

from henchman import App
from support.limited import pay
from support.processes import Work
from support.worker import in_flight, until

JOBS = 200


def spans(trace: list[list[str]]) -> list[tuple[float, float]]:
    """When each job ran for the last time, as far as that was accepted: an earlier run is that of a dead process."""
    last: dict[str, tuple[float, float]] = {}
    begun: dict[tuple[str, str], float] = {}
    for event, jid, _, token, at in trace:
        if event == "start":
            begun[jid, token] = float(at)
        else:
            last[jid] = begun[jid, token], float(at)
    return list(last.values())


def most_at_once(found: list[tuple[float, float]]) -> int:
    edges = sorted([(begin, 1) for begin, _ in found] + [(end, -1) for _, end in found])
    now = most = 0
    for _, change in edges:
        now += change
        most = max(most, now)
    return most


def test_never_more_than_three_under_kills_and_stops(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    app = App(redis_url=redis_url)
    job = app.job(name="pay", limits=list(pay.options.limits))(pay.function)
    job.enqueue_many([(number,) for number in range(JOBS)])
    with Work(tmp_path / "w", redis_url, "-p", "3", target="support.limited:app", HENCHMAN_LEASE="5") as work:
        work.ready(redis, 3)
        for killed in range(1, 7):
            until(lambda killed=killed: len(work.trace()) > killed * 45, "jobs run")
            work.kill_one(int(work.trace()[-1][2]) if int(work.trace()[-1][2]) in work.children else 0)
        stopped = until(lambda: work.children, "a child lives")[0]
        os.kill(stopped, signal.SIGSTOP)  # past its lease: the supervisor kills it, and gives back what it had
        done = int(redis.get("stat:processed") or 0)
        assert done < JOBS, "it was stopped while there was work"
        until(lambda: len({line[1] for line in work.trace() if line[0] == "end"}) == JOBS, "every job ran")
        until(lambda: not in_flight(redis) and not redis.llen("queue:default"), "and has ended")
    until(lambda: not list(redis.scan_iter(match="hm:slots:*")), "no place is taken")
    assert not redis.exists(app.keys.parked, app.keys.broken)
    assert not list(redis.scan_iter(match="hm:await:*"))
    assert most_at_once(spans(work.trace())) <= 3
    assert len([line for line in work.trace() if line[0] == "start"]) > JOBS, "somebody was killed while a job ran"
    app.close()
