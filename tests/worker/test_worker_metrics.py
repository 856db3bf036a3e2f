"""What a worker writes down of its runs: real runs, threads and tasks, on a real server."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis import Redis

from henchman import App, Failure, Snooze
from henchman.inspector.metrics import ClassMetrics
from henchman.store.call import run
from henchman.store.queues import levels, note_levels
from support.server import running_server
from support.worker import Heard, looker, push_raw, settled, until, working


def define(app: App) -> Any:
    @app.job(name="act", retry=0)
    def act(what: str) -> None:
        if what == "fail":
            raise Failure("the answer is no")
        if what == "error":
            raise ValueError("broken")
        if what == "snooze":
            raise Snooze(1000)
        if what == "sleep":
            time.sleep(0.05)  # something to be measured
        end = time.monotonic() + 60
        while what == "late" and time.monotonic() < end:
            time.sleep(0.01)  # until the time-out strikes

    return act


def measured(app: App) -> dict[str, ClassMetrics]:
    return {one.name: one for one in app.metrics(minutes=5).classes}


def test_what_ran_is_written_down_at_the_stop(app: App, redis: Redis) -> None:
    act = define(app)
    heard = Heard(app, "job_end")
    for what in ("ok", "ok", "sleep", "fail", "snooze", "error"):
        act.enqueue(what)
    act.using(timeout=0.3).enqueue("late")
    with working(app):
        settled(redis, 7)
        assert measured(app) == {} or measured(app)["act"].processed <= 7
    act_metrics = measured(app)["act"]
    assert (act_metrics.processed, act_metrics.failed) == (7, 2)
    counted = [one["run"].unit.elapsed for one in heard["job_end"] if one["outcome"].ending != "dead"]
    assert len(counted) == 5
    assert act_metrics.ms >= 50
    assert act_metrics.ms == pytest.approx(1000 * sum(counted), abs=1), "the time of runs that failed is left out"
    assert act_metrics.histogram is not None
    assert sum(act_metrics.histogram) == 5
    assert sum(act_metrics.histogram[3:]) >= 1
    names = {key.decode().partition("|")[0] for key in redis.scan_iter("*|*")}
    assert names == {"j", "h"}
    assert len(list(redis.scan_iter("act-*"))) in (1, 2), "and for Sidekiq 7"


def test_what_left_each_queue_is_counted(app: App, redis: Redis) -> None:
    app.configure(queues=["default", "mail"])
    act = define(app)
    for what in ("ok", "fail", "snooze", "error"):
        act.enqueue(what)
    act.using(queue="mail").enqueue("sleep")
    with working(app):
        settled(redis, 5)
    assert redis.hgetall("hm:ran") == {b"default": b"4", b"mail": b"1"}
    assert 0 < redis.ttl("hm:ran") <= 900


def test_names_that_come_and_go_do_not_fill_the_server(app: App, redis: Redis) -> None:
    redis.sadd("queues", "mail")
    redis.hset("hm:ran", mapping={"mail": 7, "odd": "x"})
    run(app.connections, note_levels(app.keys, 1000.0))
    redis.hset("hm:ran", mapping={f"q{number}": 1 for number in range(500)})
    run(app.connections, note_levels(app.keys, 1060.0))
    assert [one.ran for one in app.connections.run(levels(app.keys))] == [{}, {"mail": 7}]
    assert not redis.exists("hm:ran")


def test_a_beat_writes_it_down(app: App, redis: Redis) -> None:
    app.configure(heartbeat=0.1)
    act = define(app)
    with working(app):
        act.enqueue("ok")
        until(lambda: measured(app).get("act"), "it shows up while the worker runs")


def test_tasks_and_wrapped_jobs(app: App, redis: Redis) -> None:
    @app.job(name="Wrapper", retry=0)
    async def wrapper(value: int) -> None:
        if value:
            raise ValueError("broken")

    app.configure(sidekiq="8")
    push_raw(redis, '{"class":"Wrapper","wrapped":"Admin/Mail|er","args":[0],"jid":"1"}')
    push_raw(redis, '{"class":"Wrapper","args":[1],"jid":"2","retry":true}')
    with working(app):
        settled(redis, 2)
    found = measured(app)
    assert {name: (one.processed, one.failed) for name, one in found.items()} == {
        "Admin:Mail:er": (1, 0),
        "Wrapper": (1, 1),
    }
    assert not list(redis.scan_iter("Wrapper-*"))
    assert not list(redis.scan_iter("j|20*")), "nothing for Sidekiq 7"


def test_what_never_ran_does_not_appear(app: App, redis: Redis) -> None:
    define(app)
    push_raw(redis, '{"class":"Unknown","args":[],"jid":"1"}', '{"class":"act","args":[1,2,3],"jid":"2"}', "garbage")
    jid = "3" * 24
    app.cancel(jid)
    push_raw(redis, f'{{"class":"act","args":["ok"],"jid":"{jid}"}}')
    with working(app):
        until(lambda: not redis.exists("queue:default"), "the queue is empty")
    assert measured(app) == {}


def test_the_server_goes_and_comes_back() -> None:
    with running_server(appendonly=True) as server, looker(server.url) as redis:
        app = App(redis_url=server.url, concurrency=2, heartbeat=0.1)
        heard = Heard(app, "server_away")
        act = define(app)
        with working(app) as worker:
            act.enqueue("ok")
            settled(redis, 1)
            until(lambda: measured(app).get("act"), "the first is written down")
            act.enqueue("ok")
            settled(redis, 2)
            server.kill()
            until(lambda: heard["server_away"], "it was noticed")
            server.start()
            act.enqueue("ok")
            settled(redis, 3)
            until(lambda: measured(app)["act"].processed >= 3, "all are written down")
            until(lambda: not worker.acker.metrics._cells, "nothing is left to be written down")


def test_a_run_that_the_server_refused_to_settle_counts_once(app: App, redis: Redis) -> None:
    @app.job(name="act", retry=5)
    def act() -> None:
        raise ValueError("broken")

    redis.set("retry", "not a sorted set")
    act.enqueue()
    with working(app):
        until(lambda: redis.zcard("dead"), "the dead set takes it")
        settled(redis, 1)
    assert (measured(app)["act"].processed, measured(app)["act"].failed) == (1, 1)
