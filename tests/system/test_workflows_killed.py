"""Workflows whose producer or whose workers are killed, or whose answers are lost: whole or nothing, each step once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from henchman import App, current_job
from henchman.batch.auditor import APART, Auditor
from henchman.kernel import failpoints
from support.processes import Work, clean_environ
from support.worker import in_flight, until, working

PRODUCER = """
import sys
from henchman import App

app = App(redis_url=sys.argv[1])

@app.job(name="work")
def work(n: int) -> None: ...

with app.workflow("half-way", keep=60) as flow:
    print(flow.id, flush=True)
    first = flow.add(work.call(0))
    for n in range(1, 600):
        flow.add(work.call(n), after=first)
"""


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    failpoints.close()


@pytest.mark.parametrize(
    ("where", "pushed"),
    [("batch_push:before#3", 250), ("batch_push:after#3", 500), ("batch_close:before#1", 600)],
)
def test_a_producer_that_is_killed_half_way_leaves_nothing_that_runs(
    redis: Redis, redis_url: str, where: str, pushed: int
) -> None:
    faults = {"HENCHMAN_TEST_FAULTS": f"kill@{where}"}
    command = [sys.executable, "-c", PRODUCER, redis_url]
    run = subprocess.run(command, env=clean_environ() | faults, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    app, ran = App(redis_url=redis_url), list[int]()
    app.job(name="work")(lambda n: ran.append(n))  # noqa: PLW0108 - it has a parameter to look at
    flow = app.get_batch(run.stdout.strip())
    assert flow.status().total == flow.status().counts["blocked"] == pushed
    redis.delete(f"hm:batch:{flow.id}:producer")  # its lease runs out
    assert flow.status().state == "abandoned"
    now = [0.0]
    auditor = Auditor(app, monotonic=lambda: now[0])
    assert auditor.audit().closed == 0, "it may have been a moment ago"
    redis.hset(f"hm:batch:{flow.id}", "open_for", "0.0")
    assert auditor.audit().closed == 0, "the first look closes nothing"
    now[0] = APART
    with working(app):
        assert auditor.audit().closed == 1
        until(lambda: flow.status().state == "complete", "it is given up")
    assert ran == []
    assert (flow.status().why, flow.status().counts["cancelled"]) == ("aborted", pushed)
    for key in ("queue:default", "schedule", "hm:parked", f"hm:batch:{flow.id}:jobs", f"hm:batch:{flow.id}:parked"):
        assert not redis.exists(key)
    assert not redis.lrange("hm:broken", 0, -1)


@pytest.mark.parametrize("answer", [1, 2, 3])
def test_a_push_whose_answer_is_lost_pushes_its_steps_once(
    redis: Redis, redis_url: str, tmp_path: Path, answer: int
) -> None:
    app = App(redis_url=redis_url, concurrency=2)

    @app.job(name="work")
    def work(n: int) -> int:
        return n

    @app.job(name="total")
    def total() -> int:
        return sum(current_job().results.all(work))

    failpoints.open_points(f"drop@batch_push:after#{answer}", tmp_path)
    with app.workflow() as flow:
        flow.add(total.call(), after=[flow.add(work.call(n)) for n in range(600)], results=True)
    assert any(tmp_path.iterdir()), "the connection was not cut"
    assert flow.status().total == 601
    with working(app):
        until(lambda: flow.status().state == "complete", "the workflow is complete")
    assert flow.status().counts["finished"] == 601
    assert list(flow.results())[-1].value == sum(range(600))


def test_a_workflow_under_kills(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    app = App(redis_url=redis_url)
    act = app.job(name="act")(lambda name, how, seconds=0: None)
    with Work(tmp_path / "w", redis_url, "-p", "2", "-c", "4") as work:
        work.ready(redis, 2)
        with app.workflow("killed") as flow:
            layer = [flow.add(act.call(f"a{n}", "sleep", 0.01)) for n in range(100)]
            for name in "bcd":
                layer = [
                    flow.add(act.call(f"{name}{n}", "sleep", 0.01), after=[layer[n], layer[n - 1]]) for n in range(100)
                ]
            flow.add(act.call("last", "sleep", 0.01), after=layer)
        for share in (50, 150, 300):
            until(lambda share=share: work.count("end").total() >= share, f"{share} steps have ended")  # type: ignore[misc]
            work.kill_one()
        until(lambda: flow.status().state == "complete", "the workflow is complete")
        until(lambda: not in_flight(redis), "nothing is in flight")
        trace = [" ".join(line[:2]) for line in work.trace()]
    assert flow.status().counts["finished"] == flow.status().total == 401
    for before, name in ("ab", "bc", "cd"):
        for n in range(100):
            begun = trace.index(f"start {name}{n}")
            assert trace.index(f"end {before}{n}") < begun
            assert trace.index(f"end {before}{(n - 1) % 100}") < begun
    assert trace.index("start last") > max(trace.index(f"end d{n}") for n in range(100))
    assert not redis.exists("hm:parked")
    assert not redis.lrange("hm:broken", 0, -1)
    app.close()
