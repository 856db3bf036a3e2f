"""What a worker process keeps does not grow with the number of jobs that it has run, nor with what they say."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from redis import Redis

from henchman import App
from henchman.wire.payload import expand_backtrace
from support.processes import Work, push
from support.worker import in_flight, jobs_in, settled, until, working

SLOTS = 10
GROWTH_MOST = 4_000  # KB between the 2,000th and the 10,000th job of a kind


def resident(pid: int) -> int:
    """The memory of a process, in KB."""
    line = next(one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1])


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def run(redis: Redis, job: str, count: int, before: int) -> None:
    """Push ``count`` jobs and wait until they are settled."""
    for start in range(0, count, 1000):
        push(redis, job, *((n,) for n in range(before + start, before + start + 1000)))
    until(lambda: int(redis.get("stat:processed") or 0) >= before + count, f"{job}s are settled", 250)  # type: ignore[arg-type]
    until(lambda: not in_flight(redis), "nothing is in flight")


@pytest.mark.scale("ten thousand jobs of each kind")
@pytest.mark.timeout(900)  # 34,000 jobs at most, on a machine that may be busy with others
@pytest.mark.parametrize("job", ["bad", "abad", "limited", "alimited", "refused", "each", "aeach"])
def test_10000_jobs_leave_nothing_behind(redis: Redis, redis_url: str, tmp_path: Path, job: str) -> None:
    with Work(tmp_path, redis_url, "-c", str(SLOTS), target="support.growing:app") as work:
        (pid,) = work.ready(redis)
        until(lambda: redis.exists("hm:lifeline"), "the last of its services has begun")
        idle_threads = threads(pid)
        run(redis, job, 2_000, 0)
        for before in range(2_000, 2_000 + 4 * 8_000, 8_000):  # a peak comes now and then; a leak grows on and on
            early = resident(pid)
            redis.delete("retry")
            run(redis, job, 8_000, before)
            if (grown := resident(pid) - early) < GROWTH_MOST:
                break
        assert grown < GROWTH_MOST, f"{grown} KB more after 8,000 more {job}s, from {early} KB"
        assert threads(pid) - idle_threads < SLOTS + 5, "a thread for each slot, made when it is needed, and no more"
        assert work.log_file.stat().st_size < 10_000_000, "lines that repeat themselves are summed up"


def test_messages_and_backtraces_are_cut_in_the_log_and_in_redis(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path, redis_url, "-c", "2", target="support.growing:app") as work:
        work.ready(redis)
        push(redis, "long", (1,), retry=0)
        until(lambda: redis.zcard("dead") == 1, "it is dead")
        work.stop()
        lines = work.log.splitlines()
    (job,) = jobs_in(redis, "dead")
    assert len(job["error_message"]) == 10_000
    assert 800 < len(expand_backtrace(job["error_backtrace"]) or ()) <= 1_000
    (payload,) = redis.zrange("dead", 0, -1)
    assert len(payload) < 100_000
    assert any("job raised" in line for line in lines)
    assert max(map(len, lines)) < 100_000


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_a_failed_job_held_is_freed_at_once(redis: Redis, redis_url: str, asynchronous: bool) -> None:
    """A large table in a frame of a job that failed must not wait for the collector of garbage."""
    app = App(redis_url=redis_url, concurrency=2)
    held: list[weakref.ref[set[int]]] = []

    def fail() -> None:
        table = {1, 2, 3}
        held.append(weakref.ref(table))
        raise ValueError(len(table))

    if asynchronous:

        @app.job(name="fail", retry=0)
        async def _() -> None:
            fail()

    else:

        @app.job(name="fail", retry=0)
        def _() -> None:
            fail()

    gc.collect()
    gc.disable()
    try:
        with working(app):
            for _number in range(50):
                app.enqueue("fail")
            settled(redis, 50)
            until(lambda: not any(one() for one in held), "all are freed")
    finally:
        gc.enable()
    assert len(held) == 50
