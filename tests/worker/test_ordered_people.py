"""People at an ordered queue while a worker runs: what they do wakes it at once, and nothing runs beside a handler."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from henchman import App, current_job
from henchman.inspector.sets import Acted
from support.ordered import FAR
from support.worker import until, working

SOON = 20.0  # seconds: far below the time at which anybody would look by himself


class Gate:
    """A handler that notes its claims and stands still until it is let through."""

    def __init__(self) -> None:
        self.claims: list[dict[str, list[Any]]] = []
        self.tokens: list[int | None] = []
        self.open = threading.Event()

    def job(self, app: App, **options: Any) -> Any:
        """The ordered queue q with this handler."""

        def handle(claim: dict[str, list[Any]]) -> None:
            self.claims.append(claim)
            self.tokens.append(current_job().token)
            assert self.open.wait(60)

        return app.ordered(queue="q", name="gate", **options)(handle)


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, concurrency=4)
    yield made
    made.close()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


def test_what_waits_for_its_time_runs_now(app: App, gate: Gate) -> None:
    gate.open.set()
    job = gate.job(app)
    queue = app.ordered_queues["q"]
    job.push("a", 1, delay=FAR - time.time())
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 2, "it sleeps")
        assert queue.run_now("a").done == 1
        until(lambda: gate.claims == [{"a": [1]}], "it ran", SOON)
        job.push("b", 2, delay=FAR - time.time())
        assert queue.kill("b").done == 1
        until(lambda: launcher.watcher.armed == 2, "it sleeps")
        assert queue.revive("b").done == 1
        until(lambda: gate.claims == [{"a": [1]}, {"b": [2]}], "it ran", SOON)
        until(lambda: queue.stats()[1:7] == (0, 0, 0, 0, 0, 0), "nothing is left")


def test_a_pause_ends_for_both_ways_of_saying_so(app: App, gate: Gate) -> None:
    gate.open.set()
    job = gate.job(app)
    figures = app.ordered_queues["q"].stats
    with working(app) as launcher:
        for number, queue in enumerate((app.ordered_queues["q"], app.queues["q"])):
            until(lambda: launcher.watcher.armed == 2, "it waits")
            queue.pause()
            until(lambda: launcher.watcher.armed == 1, "it does not wait any more")
            job.push("a", number)
            assert figures().length == 1
            queue.unpause()
            until(lambda n=number: figures().processed == n + 1, "it went on", SOON)  # type: ignore[misc]
    assert gate.claims == [{"a": [0]}, {"a": [1]}]


def test_a_running_id_is_seen_and_nothing_runs_beside_it(app: App, gate: Gate) -> None:
    job = gate.job(app)
    queue = app.ordered_queues["q"]
    with working(app) as launcher:
        job.push("a", 1, score=1)
        until(lambda: gate.tokens, "it runs")
        holder = queue.find("a").holder
        assert holder is not None
        assert (holder.identity, holder.token, holder.alive) == (launcher.session.identity, gate.tokens[0], True)
        assert [one.id for one in queue.busy()] == ["a"]
        job.push("a", 2, score=2)
        assert queue.delete("a").stayed == 1
        assert queue.kill("a").stayed == queue.run_now("a").stayed == 1
        job.push("a", 3, score=3)
        job.push("b", 4)
        until(lambda: len(gate.claims) == 2, "another id runs meanwhile")
        assert queue.find("a").state == "in flight"
        gate.open.set()
        until(lambda: len(gate.claims) == 3, "what came after the deletion runs then")
        until(lambda: queue.find("a").state == queue.find("b").state == "absent", "all ended")
    assert gate.claims == [{"a": [1]}, {"b": [4]}, {"a": [3]}]


def test_a_higher_limit_wakes_who_slept(app: App, gate: Gate) -> None:
    job = gate.job(app, max_parallel=1)
    queue = app.ordered_queues["q"]
    with working(app) as launcher:
        job.push_many([(str(number), number) for number in range(3)])
        until(lambda: len(gate.claims) == 1, "one runs")
        until(lambda: launcher.watcher.armed == 2, "the others sleep")
        assert queue.stats().max_parallel_from == "code"
        queue.set_max_parallel(3)
        until(lambda: len(gate.claims) == 3, "all run", SOON)
        gate.open.set()
        until(lambda: queue.stats().processed == 3, "all ended")


def test_dead_ones_come_back(app: App) -> None:
    seen: list[Any] = []
    broken = True

    @app.ordered(queue="q", name="note", max_retries=0)
    def note(claim: dict[str, list[Any]]) -> None:
        if broken:
            raise ValueError("not yet")
        seen.append(claim)

    queue = app.ordered_queues["q"]
    with working(app):
        note.push_many([(str(number), number) for number in range(20)])
        until(lambda: queue.stats().morgue_length == 20, "all are dead")
        assert "not yet" in (queue.find("7").dead_error or "")
        broken = False
        assert queue.revive_all() == Acted(20)
        until(lambda: len(seen) == 20, "all ran", SOON)
        until(lambda: queue.stats()[1:7] == (0, 0, 0, 0, 0, 0), "nothing is left")
    assert queue.stats()[7:9] == (20, 20)
