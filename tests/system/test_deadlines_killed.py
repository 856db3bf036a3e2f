"""Time-outs and deadlines with real processes: of a host that freezes past its lease, and of a job with a key."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App
from support.processes import Work, push, records, state_of
from support.worker import in_flight, jobs_in, until


def server(redis: Redis) -> float:
    seconds, micros = redis.time()  # type: ignore[misc]
    return float(seconds) + micros / 1e6


@pytest.mark.parametrize("cause", ["timeout", "deadline"])
def test_a_group_that_freezes_past_time_out_and_lease_is_ended_for_once(
    redis: Redis, redis_url: str, tmp_path: Path, cause: str
) -> None:
    """Supervisor and children stand still: another host ends the run, and who comes back ends nothing a second time."""
    brief = {"HENCHMAN_LEASE": "5", "HENCHMAN_HEARTBEAT": "0.3", "ACTING_WATCH": "5"}
    with Work(tmp_path / "a", redis_url, "-p", "2", "-c", "2", **brief) as frozen:
        frozen.ready(redis, 2)
        limits: dict[str, Any] = {"timeout": 4} if cause == "timeout" else {"deadline": server(redis) + 4}
        [late] = push(redis, "act", ("late", "sleep", 120), hm=limits, retry=0)
        [fine] = push(redis, "act", ("fine", "sleep", 8), hm={"timeout": 600})
        works = lambda: [row for key in redis.scan_iter("*:work") for row in redis.hvals(key)]  # type: ignore[union-attr]  # noqa: E731
        until(lambda: sum(one.encode() in row for one in (late, fine) for row in works()) == 2, "their records tell")
        pids = [frozen.pid, *frozen.children]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: all(state_of(pid) == "T" for pid in pids), "the whole group stands still")
        with Work(tmp_path / "b", redis_url, "-c", "2", **brief) as other:
            until(lambda: redis.zcard("dead") == 1, "what had run out of time is ended")
            until(lambda: other.count("start")["fine"] == 1, "the other one runs again")
            [dead] = jobs_in(redis, "dead")
            assert (dead["jid"], dead["error_cause"], dead["retry_count"]) == (late, cause, 0)
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)
            until(lambda: len(records(redis)) == 3, "who was frozen takes part again")
            until(lambda: not in_flight(redis), "nothing is in flight")
            assert other.count("start")["late"] == 0, "it is not begun anew"
            assert frozen.count("start") == {"late": 1, "fine": 1}
    assert [one["jid"] for one in jobs_in(redis, "dead")] == [late]
    assert not redis.exists("retry", "schedule", "queue:default")
    assert int(redis.get("stat:failed") or 0) == 1  # type: ignore[arg-type]


def test_a_job_with_a_key_past_its_deadline_is_not_settled_beside_its_handler(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    """It ignores its deadline: its process ends before the key is anybody else's, and nobody begins it again."""
    app = App(redis_url=redis_url)

    @app.job(name="charge", key="order", unique="running")
    def charge(order: str, name: str, heeds: bool) -> None: ...

    with Work(tmp_path / "w", redis_url, "-p", "2", "-t", "0.5", target="support.exclusive:app") as work:
        work.ready(redis, 2)
        charge.using(timeout=0, deadline=1.5).enqueue("one", "stubborn", False)
        until(lambda: "start stubborn" in work.trace_file.read_text(), "it runs")
        charge.enqueue("one", "next", True)
        until(lambda: "end next" in work.trace_file.read_text(), "the next one has the key")
        until(lambda: not in_flight(redis), "nothing is in flight")
        lines = [line.split() for line in work.trace_file.read_text().splitlines()]
        last = max(float(at) for event, name, *_, at in lines if name == "stubborn")
        first = min(float(at) for event, name, *_, at in lines if (event, name) == ("start", "next"))
        assert last < first, "never beside it"
        [pid] = [pid for event, name, pid, *_ in lines if (event, name) == ("start", "stubborn")]
        assert not os.path.exists(f"/proc/{pid}")
    assert not redis.exists("retry", "schedule", "queue:default")
    assert not redis.hgetall(app.keys.lock("r", "charge"))
    assert not redis.exists(app.keys.parked)
    app.close()
