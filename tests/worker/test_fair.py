"""Fair queues from the push to the end, with a worker in this process."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from redis import Redis

from henchman import App, testing
from henchman.errors import ArgumentError, DefinitionError
from henchman.store import fair
from henchman.store.call import run
from support.worker import in_flight, jobs_in, settled, until, working


def left_behind(redis: Redis) -> set[str]:
    """What is left of fair queues: lines, turns, payloads."""
    keys = {key.decode() for key in redis.keys("*")}  # type: ignore[union-attr]
    return {one for one in keys if one.startswith(("queue:", "hm:fair:turns", "hm:flight:"))}


class Noted:
    """Jobs of a fair queue that note whose they are."""

    def __init__(self, app: App, **options: Any) -> None:
        self.ran: list[str] = []
        self.gate = threading.Event()

        @app.job(name="note", queue="f", fair_by="tenant", **options)
        def note(tenant: str | None, number: int = 0, *, hold: bool = False) -> None:
            if hold:
                self.gate.wait(30)
            self.ran.append(f"{tenant}{number}")
            if number < 0 and self.ran.count(f"{tenant}{number}") == 1:
                raise ValueError(number)

        self.job = note


def test_a_tenant_with_few_jobs_does_not_wait_for_one_with_many(app: App, redis: Redis) -> None:
    noted = Noted(app)
    noted.job.enqueue_many([("A", n) for n in range(3000)])
    noted.job.enqueue_many([("B", n) for n in range(10)])
    with working(app):
        settled(redis, 3010)
    assert max(noted.ran.index(f"B{n}") for n in range(10)) < 600  # what is fetched ahead, and its turns
    assert len(noted.ran) == len(set(noted.ran)) == 3010
    assert left_behind(redis) == set()


def test_what_is_pushed_while_a_tenants_jobs_run_is_next(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=1)
    noted = Noted(app)
    noted.job.enqueue("A", 0, hold=True)
    with working(app):
        until(lambda: in_flight(redis), "it runs")
        noted.job.enqueue_many(
            [
                (
                    "A",
                    n,
                )
                for n in range(1, 50)
            ]
        )
        noted.job.enqueue("B", 0)
        noted.gate.set()
        settled(redis, 51)
    assert noted.ran.index("B0") <= 3
    app.close()


def test_an_idle_worker_starts_a_push_of_ruby_at_once(app: App, redis: Redis) -> None:
    noted = Noted(app)
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed, "it waits")
        pushed = time.monotonic()
        redis.lpush("queue:f", json.dumps({"class": "note", "args": ["R", 1], "jid": "r", "retry": True}))
        until(lambda: noted.ran, "it ran")
        assert time.monotonic() - pushed < 4, "not at the next look"
        settled(redis, 1)
    assert left_behind(redis) == set()


def test_others_are_woken_for_what_waits_in_lines(redis: Redis, redis_url: str) -> None:
    """One process takes everything in and has one slot; the other waits for a push that has been."""
    apps = [App(redis_url=redis_url, concurrency=1), App(redis_url=redis_url, concurrency=3)]
    noted = [Noted(one) for one in apps]
    with working(apps[1]) as idle, working(apps[0]):
        until(lambda: idle.watcher.armed, "it waits")
        noted[0].job.enqueue_many(
            [("A", n) for n in range(8)]
            and [
                (
                    "A",
                    n,
                )
                for n in range(4)
            ]
        )
        settled(redis, 4)
        for which in range(8):
            noted[0].job.using(batch=None).enqueue("A", which, hold=True)
        until(lambda: len(in_flight(redis)) >= 4, "every slot of both is used", limit=4)
        for one in noted:
            one.gate.set()
        settled(redis, 12)
    assert left_behind(redis) == set()


def test_what_comes_back_comes_into_its_line(app: App, redis: Redis) -> None:
    noted = Noted(app, retry_in=0)
    keys = app.keys
    noted.job.using(delay=0.01).enqueue("S", 1)
    noted.job.enqueue("A", -1)
    with app.batch("b") as batch:
        noted.job.enqueue("B", 1)
    with app.batch("c", atomic=True):
        noted.job.enqueue("C", 1)
    with working(app):
        settled(redis, 5)
        until(lambda: app.batch_status(batch.id).done, "the batch is complete")
        until(lambda: "S1" in noted.ran, "the scheduled one ran")
    assert sorted(noted.ran) == ["A-1", "A-1", "B1", "C1", "S1"]
    assert run(app.connections, fair.lines(keys, "f")) == ([], 0)
    assert left_behind(redis) == set()


def test_a_stop_gives_back_in_order(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=2)
    noted = Noted(app)
    noted.job.enqueue_many([("A", n) for n in range(1)])
    for number in range(1, 7):
        noted.job.enqueue("AB"[number % 2], number, hold=number < 3)
    with working(app, stop=0.1):
        until(lambda: len(in_flight(redis)) >= 2 and noted.ran, "two run")
    noted.gate.set()
    app = App(redis_url=redis_url, concurrency=1)
    again = Noted(app)
    again.gate.set()
    with working(app):
        settled(redis, 7)
    assert [one for one in again.ran if one[0] == "A"] == ["A2", "A4", "A6"]
    assert [one for one in again.ran if one[0] == "B"] == ["B1", "B3", "B5"]
    app.close()


def test_priority_of_definitions_and_of_pushes(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=1)
    ran: list[str] = []

    @app.job(name="urgent", queue="p", priority="high")
    def urgent(number: int) -> None:
        ran.append(f"u{number}")

    @app.job(name="usual", queue="p")
    def usual(number: int) -> None:
        ran.append(f"n{number}")

    app.queues["p"].pause()
    for number in range(3):
        usual.enqueue(number)
        usual.using(priority="low").enqueue(10 + number)
        urgent.enqueue(number)
        urgent.using(priority="normal").enqueue(20 + number)
    assert app.queues["p"].size() == 12
    with working(app):
        app.queues["p"].unpause()
        settled(redis, 12)
    assert ran[:3] == ["u0", "u1", "u2"]
    assert ran[3:9] == ["n0", "u20", "n1", "u21", "n2", "u22"]
    assert ran[9:] == ["n10", "n11", "n12"]
    app.close()


def test_the_tenant_of_a_function_and_none(app: App) -> None:
    @app.job(name="deep", queue="f", fair_by=lambda order: order.get("shop"))
    def deep(order: dict[str, Any]) -> None: ...

    @app.job(name="two", queue="f", fair_by=("a", "b"), priority="high")
    def two(a: int, b: str) -> None: ...

    deep.enqueue({"shop": "s1"})
    deep.enqueue({})
    two.enqueue(1, 'x"y')
    run(app.connections, _take_in(app))
    names = {app.queues["f"].line(one.tenant, one.level).name for one in app.queues["f"].tenants().lines}  # type: ignore[arg-type]
    assert names | {"f"} >= {"f@s1", "f"}
    assert [one.job.get("fair") for one in app.queues["f"]].count('["1","x\\"y"]') == 1


def _take_in(app: App):  # type: ignore[no-untyped-def]
    yield fair.take_in(app.keys, "f")


def test_what_cannot_be_said(app: App) -> None:
    with pytest.raises(DefinitionError, match=r"fair_by=\['shop'\] names no parameter"):

        @app.job(name="one", fair_by="shop")
        def one(tenant: str) -> None: ...

    with pytest.raises(DefinitionError, match="priority='urgent': give 'high', 'normal' or 'low'"):

        @app.job(name="other", priority="urgent")  # type: ignore[call-overload]
        def other(tenant: str) -> None: ...

    @app.job(name="broken", queue="f", fair_by=lambda tenant: tenant["x"])
    def broken(tenant: str) -> None: ...

    with pytest.raises(ArgumentError, match="its fair_by function raised TypeError"):
        broken.enqueue("a")


def test_an_ordered_queue_is_not_fair(app: App) -> None:
    @app.ordered(name="sync", queue="products")
    def sync(claim: dict[str, list[Any]]) -> None: ...

    with pytest.raises(DefinitionError, match="queue 'products' is taken by"):

        @app.job(name="one", queue="products", fair_by="tenant")
        def one(tenant: str) -> None: ...


def test_what_people_see(app: App, redis: Redis) -> None:
    noted = Noted(app)
    noted.job.enqueue_many([("A", n) for n in range(20)])
    jid = noted.job.enqueue("B", 7).jid
    queue = app.queues["f"]
    assert queue.size() == 21
    assert len(list(queue)) == len(queue.page(0, 50)) == 21
    assert [one.jid for one in queue.page(20, 5)] == [list(queue)[20].jid]
    assert queue.find(jid) is not None
    status = app.job_status(jid)
    assert (status.state, status.queue) == ("enqueued", "f")
    run(app.connections, _take_in(app))
    status = app.job_status(jid)
    assert (status.state, status.queue) == ("enqueued", "f")
    queue.set_weight("B", 5)
    tenants = queue.tenants()
    assert {(one.tenant, one.weight) for one in tenants.lines} >= {("A", 1)}
    assert sum(one.size for one in tenants.lines) + tenants.arriving == 21
    assert app.queues.states(match="f")[0].size == 21
    assert queue.delete(jid)
    assert queue.size() == 20
    assert queue.clear() == 20
    assert (queue.size(), left_behind(redis)) == (0, set())
    with pytest.raises(ArgumentError, match="give a whole number of turns from 1 to 100"):
        queue.set_weight("B", 0)
    with pytest.raises(ArgumentError, match="queue 'x' is not fair"):
        app.queues["x"].set_weight("B", 2)


def test_a_paused_tenant_alone_waits(app: App, redis: Redis) -> None:
    noted = Noted(app)
    app.queues["f"].line("A").pause("too many")
    noted.job.enqueue_many([("A", n) for n in range(5)])
    noted.job.enqueue_many([("B", n) for n in range(5)])
    with working(app):
        settled(redis, 5)
        assert sorted(noted.ran) == [f"B{n}" for n in range(5)]
        app.queues["f"].line("A").unpause()
        settled(redis, 10)
    assert noted.ran[5:] == [f"A{n}" for n in range(5)]
    assert jobs_in(redis, "dead") == []


def test_the_fake_runs_jobs_by_priority(app: App) -> None:
    ran: list[str] = []

    @app.job(name="note", queue="p", priority="low")
    def note(name: str) -> None:
        ran.append(name)

    with testing.fake(app) as jobs:
        note.enqueue_many([("l0",), ("l1",)])
        note.using(priority="normal").enqueue("n0")
        note.using(priority="high").enqueue("h0")
        jobs.drain_all()
    assert ran == ["h0", "n0", "l0", "l1"]
