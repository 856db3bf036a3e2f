"""A fair queue, and worker processes that are killed. Real processes, real signals."""

from __future__ import annotations

from pathlib import Path

from redis import Redis

from support.processes import Work, push
from support.worker import in_flight, jobs_in, settled, until


def lines(redis: Redis) -> set[str]:
    """What is left of lines and turns."""
    return {key.decode() for pattern in ("queue:*", "hm:fair:turns:*") for key in redis.keys(pattern)}  # type: ignore[union-attr]


def test_fair_jobs_in_flight_of_killed_processes_run_again_and_none_is_missing(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    redis.sadd("hm:fair", "default")
    with Work(tmp_path / "w", redis_url, "-p", "2", "-c", "4") as work:
        work.ready(redis, 2)
        names = []
        for turn in range(3):
            for tenant in "AB":
                mine = [f"{tenant}{turn}-{n}" for n in range(60)]
                push(redis, "act", *[(name, "sleep", 0.01) for name in mine], fair=tenant)
                names += mine
            last = f"C{turn}"
            push(redis, "act_once", (last, "sleep", 600), fair="C")
            names.append(last)
            (pid,) = until(lambda last=last: work.pids("start", last), "it runs beside the others")  # type: ignore[misc]
            assert in_flight(redis), "work is in flight"
            work.kill_one(pid)
        settled(redis, len(names))
        ended = work.count("end")
        assert ended.keys() == set(names)
        assert ended.total() - len(names) <= 3 * 20
    assert not jobs_in(redis, "retry")
    assert not jobs_in(redis, "dead")
    assert lines(redis) == set()


def test_who_comes_late_starts_while_another_tenants_jobs_wait(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    redis.sadd("hm:fair", "default")
    push(redis, "act", *[(f"A{n}", "sleep", 0.005) for n in range(2000)], fair="A")
    with Work(tmp_path / "w", redis_url, "-c", "2") as work:
        work.ready(redis)
        until(lambda: work.count("start").total() > 20, "the first tenant's run")
        push(redis, "act", ("B", "ok"), fair="B")
        until(lambda: work.count("end")["B"], "the second's ran")
        assert work.count("start").total() < 2000, "while others of the first waited"
        settled(redis, 2001)
    assert lines(redis) == set()
