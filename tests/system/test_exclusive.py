"""A job with a ``running`` key that does not heed its time-out, under a real supervisor: its process ends before the
key is anybody else's, and after three such ends the job is dead."""

from __future__ import annotations

import os
from pathlib import Path

from redis import Redis

from henchman import App
from support.processes import Work
from support.worker import in_flight, jobs_in, until


def test_a_key_is_free_only_when_the_handler_that_ignored_its_time_out_is_gone(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    app = App(redis_url=redis_url)

    @app.job(name="charge", key="order", unique="running", timeout=0.3)
    def charge(order: str, name: str, heeds: bool) -> None: ...

    with Work(tmp_path / "w", redis_url, "-p", "2", "-t", "0.5", target="support.exclusive:app") as work:
        work.ready(redis, 2)
        stubborn = charge.enqueue("one", "stubborn", False)
        until(lambda: "start stubborn" in work.trace_file.read_text(), "it runs")
        charge.enqueue("one", "next", True)
        until(lambda: redis.zcard("dead") == 1, "after three ends of processes it is dead")
        until(lambda: "end next" in work.trace_file.read_text(), "and the next one runs")
        until(lambda: not in_flight(redis), "nothing is in flight")
        lines = [line.split() for line in work.trace_file.read_text().splitlines()]
        last = max(float(at) for event, name, *_, at in lines if name == "stubborn")
        first = min(float(at) for event, name, *_, at in lines if (event, name) == ("start", "next"))
        runs = [pid for event, name, pid, *_ in lines if (event, name) == ("start", "stubborn")]
        assert last < first, "never beside it"
        assert len(set(runs)) == len(runs) == 3, "each in a process of its own"
        assert not any(os.path.exists(f"/proc/{pid}") for pid in runs)
        tokens = [int(token) for event, _, _, token, _ in lines if event == "start"]
        assert tokens == sorted(set(tokens))
    [dead] = jobs_in(redis, "dead")
    assert dead["jid"] == stubborn.jid
    assert "it ignored its time-out" in dead["error_message"]
    assert not redis.hgetall(app.keys.lock("r", "charge"))
    assert not redis.exists(app.keys.parked, app.keys.deaths, app.keys.suspects)
    app.close()
