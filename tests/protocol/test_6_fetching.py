"""PROTOCOL, section 6: fetching fairly."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App, current_job
from henchman.kernel import failpoints
from henchman.store.call import load
from henchman.store.leases import STAGING_MS
from henchman.worker import heart, stager
from support.dead import Spy
from support.worker import Heard, in_flight, jobs_in, settled, until, working


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, lease=5, heartbeat=0.2, concurrency=1)
    yield made
    failpoints.close()
    made.close()


def test_what_a_watcher_brings_beyond_the_free_slots_goes_back(redis: Redis, redis_url: str) -> None:
    """6.1: one slot, two queues that are waited for; both pushes are brought, one can start."""
    app = App(redis_url=redis_url, queues=("a", "b"), concurrency=1, lease=5)
    release = threading.Event()
    app.job(name="hold", queue="a")(lambda: release.wait(120))
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 2, "it waits for both")
        pipe = redis.pipeline(transaction=True)
        for queue in "ab":
            pipe.sadd("queues", queue)
            pipe.lpush(f"queue:{queue}", f'{{"class":"hold","args":[],"jid":"{queue}","queue":"{queue}"}}')
        pipe.execute()
        brought = time.monotonic()
        until(lambda: redis.llen("queue:a") + redis.llen("queue:b") == 1, "one went back")  # type: ignore[operator]
        assert time.monotonic() - brought < 90, "and not when the slot is free, in 120 s"
        until(
            lambda: len(in_flight(redis)) == 1 and not launcher.watcher.armed, "no slot is free: nothing is waited for"
        )
        release.set()
        settled(redis, 2)
        until(lambda: launcher.watcher.armed == 2, "a slot is free: it waits again")


def watchers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "watcher" in thread.name}


def test_more_queues_than_watchers_are_said_at_start(redis: Redis, redis_url: str) -> None:
    """6.2: at most eight are waited for, on one thread; the others are looked at."""
    names = tuple(f"q{n}" for n in range(10))
    app = App(redis_url=redis_url, queues=names, concurrency=4)
    ran: list[str] = []
    app.job(name="note")(lambda name: ran.append(name))  # noqa: PLW0108 - jobs are functions
    heard = Heard(app, "unwatched")
    others = watchers()
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 8, "eight are waited for")
        assert [facts["queues"] for facts in heard["unwatched"]] == ["q8, q9"]
        assert len(watchers() - others) == 1
        pushed = time.monotonic()
        app.enqueue("note", "x", queue="q9")
        until(lambda: ran == ["x"], "found by a look")
        assert time.monotonic() - pushed < 30


def test_what_was_said_while_nobody_listened_is_read_at_the_next_beat(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """6.3: the control channel forgets; pauses and cancellations are also looked up."""
    monkeypatch.setattr(heart, "PULSE", 0.1)
    began, release, told = threading.Event(), threading.Event(), []

    @app.job(name="hold")
    def hold() -> None:
        began.set()
        release.wait(120)
        told.append(current_job().cancelled)

    handle = hold.enqueue()
    with working(app) as launcher:
        until(began.is_set, "it runs")
        redis.sadd("paused", "default")
        redis.zadd("hm:cancelled", {handle.jid: time.time()})
        redis.incr("hm:cancels")
        until(lambda: "default" in launcher.fetcher.paused, "the pause is known")
        until(lambda: handle.jid in launcher.cancels.jids, "the cancellation is known")
        release.set()
        until(lambda: told == [True], "the job was told")


def test_staging_without_middleware_splices_one_number(app: App, redis: Redis) -> None:
    """6.4: the bytes of the payload stay as they are, big numbers and empty lists among them."""
    odd = b'{"class":"x","args":[[],{},12345678901234567890,1.0],"jid":"j","queue":"elsewhere","z" : 1 }'
    redis.zadd("schedule", {odd: 1})
    app.job(name="note")(lambda: None)
    with working(app):
        until(lambda: redis.llen("queue:elsewhere"), "it is staged")
    (staged,) = redis.lrange("queue:elsewhere", 0, -1)  # type: ignore[misc]
    assert staged.startswith(odd[: odd.rindex(b"}")] + b',"enqueued_at":')
    assert not redis.exists("schedule")


def test_a_time_that_stands_there_is_replaced_in_place(app: App, redis: Redis) -> None:
    """6.4: a retry has been in a queue before, so its payload says when. It says so once."""
    parts = (
        b'{"class":"x","args":[{"enqueued_at":1},"\\"enqueued_at\\":2"],"enqueued_at":',
        b"1.5",
        b',"jid":"j","queue":"elsewhere"}',
    )
    redis.zadd("retry", {b"".join(parts): 1})
    app.job(name="note")(lambda: None)
    with working(app):
        until(lambda: redis.llen("queue:elsewhere"), "it is staged")
    (staged,) = redis.lrange("queue:elsewhere", 0, -1)  # type: ignore[misc]
    assert staged.startswith(parts[0])
    assert staged.endswith(parts[2])
    now = staged.removeprefix(parts[0]).removesuffix(parts[2])
    assert abs(float(now) - time.time()) < 60
    assert now == repr(round(float(now), 3)).encode(), "whole milliseconds"
    assert not redis.exists("retry")


@pytest.mark.parametrize("where", ["before", "after"])
def test_middleware_may_run_twice_its_push_never(app: App, redis: Redis, tmp_path: Path, where: str) -> None:
    """6.4: with middleware too the move is one script, fenced by the old bytes."""
    ran: list[str] = []
    chain: list[str] = []

    def link(job: dict[str, Any], call_next: Any) -> Any:
        chain.append(job["jid"])
        job["args"] = ["changed"]
        return call_next()

    app.job(name="note")(lambda name: ran.append(name))  # noqa: PLW0108 - jobs are functions
    redis.zadd("schedule", {b'{"class":"note","args":["x"],"jid":"j","queue":"default"}': 1})
    app.client_middleware.add(link)
    redis.script_load(load("move").text)  # so that the first passing is the one that executes it
    app.connections  # noqa: B018 - connects before the points are open
    failpoints.open_points(f"drop@move:{where}", tmp_path)
    with working(app):
        until(lambda: ran, "it ran")
        until(lambda: not in_flight(redis) and not redis.exists("schedule", "queue:default"), "nothing is left")
    assert ran == ["changed"]
    assert chain


def test_a_due_job_that_middleware_stops_goes_to_the_dead_set_with_the_reason(app: App, redis: Redis) -> None:
    """6.4"""

    def stop(job: dict[str, Any], call_next: Any) -> None:
        return None

    app.job(name="note")(lambda: None)
    redis.zadd("retry", {b'{"class":"note","args":[],"jid":"j","queue":"default"}': 1})
    app.client_middleware.add(stop)
    with working(app):
        (dead,) = until(lambda: jobs_in(redis, "dead"), "it is told")
    assert dead["error_class"] == "PushStopped"
    assert "stopped this job when it became due" in dead["error_message"]
    assert not redis.exists("retry", "queue:default")


class TestAMiddlewareThatRaises:
    """6.4: what is due stays due. After an outage of what the middleware asks, every job runs."""

    def test_nothing_is_gone_and_each_edge_is_said_once(
        self, app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stager, "WAIT", (0.05, 0.2), raising=False)
        away, asked, ran = threading.Event(), [], set()
        away.set()
        heard = Heard(app, "middleware_failing", "middleware_back", "part_failed")

        @app.client_middleware.add
        def link(job: dict[str, Any], call_next: Any) -> Any:
            asked.append(job["jid"])
            if away.is_set():
                raise ConnectionError("the tenants' database is away")
            return call_next()

        app.death_handlers.append(lambda job, error: ran.add("died"))
        app.job(name="note")(lambda n: ran.add(n))  # noqa: PLW0108 - jobs are functions
        for n in range(1500):
            job = f'{{"class":"note","args":[{n}],"jid":"j{n}","queue":"default"}}'
            redis.zadd("retry" if n % 2 else "schedule", {job: 1 + n / 1e4})
        with working(app):
            until(lambda: len(asked) >= 40, "it is tried again and again")
            assert redis.zcard("schedule") + redis.zcard("retry") == 1500  # type: ignore[operator]
            assert not redis.exists("dead", "queue:default")
            away.clear()
            until(lambda: ran == set(range(1500)), "every one ran")
            settled(redis, 1500)
            until(lambda: heard["middleware_back"], "the end of it is said")
        assert not redis.exists("schedule", "retry", "dead", "queue:default")
        assert [str(facts["error"]) for facts in heard["middleware_failing"]] == ["the tenants' database is away"]
        assert len(heard["middleware_back"]) == 1
        assert not heard["part_failed"]

    def test_one_that_fails_holds_up_no_other(self, app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
        """More of them than one look takes, and all due before the one that passes."""
        monkeypatch.setattr(stager, "WAIT", (0.05, 0.2), raising=False)
        monkeypatch.setattr(stager, "CHUNK", 15)
        ran: list[str] = []
        last: dict[str, int] = {}

        @app.client_middleware.add
        def link(job: dict[str, Any], call_next: Any) -> Any:
            last[job["jid"]] = last.get(job["jid"], 0) + 1
            return call_next() if job["args"] == ["fine"] else job["args"][0]["tenant"]

        app.job(name="note")(lambda name: ran.append(name))  # noqa: PLW0108 - jobs are functions
        bad = [f'{{"class":"note","args":["bad"],"jid":"b{n}","queue":"default"}}' for n in range(40)]
        redis.zadd("schedule", dict.fromkeys(bad, 1))
        redis.zadd("schedule", {'{"class":"note","args":["fine"],"jid":"f","queue":"default"}': 2})
        with working(app):
            until(lambda: ran == ["fine"], "what passes runs")
            until(lambda: all(last.get(f"b{n}", 0) > 1 for n in range(40)), "each is tried again")
        assert redis.zcard("schedule") == 40, "with its bytes as they were"
        assert {one.decode() for one in redis.zrange("schedule", 0, -1)} == set(bad)  # type: ignore[union-attr]
        assert not redis.exists("dead")

    @pytest.mark.parametrize("raised", [SystemExit, asyncio.CancelledError])
    def test_one_that_ends_its_program_ends_no_staging(
        self, app: App, redis: Redis, raised: type[BaseException]
    ) -> None:
        """``sys.exit()``, a time-out of gevent's: in each process that staged next, it would end the thread."""
        heard = Heard(app, "middleware_failing")

        @app.client_middleware.add
        def link(job: dict[str, Any], call_next: Any) -> Any:
            if job["jid"] == "bad":
                raise raised
            return call_next()

        for place, jid in enumerate(("bad", "fine")):
            redis.zadd("schedule", {f'{{"class":"note","args":[],"jid":"{jid}","queue":"default"}}': 1 + place})
        stager.Stager(app).tick()
        assert [one["jid"] for one in jobs_in(redis, "queue:default")] == ["fine"]
        assert [one["jid"] for one in jobs_in(redis, "schedule")] == ["bad"]
        assert [type(facts["error"]) for facts in heard["middleware_failing"]] == [raised]

    def test_a_job_that_cannot_be_stored_after_it_stays_due(self, app: App, redis: Redis) -> None:
        app.client_middleware.add(lambda job, call_next: (job.update(tenant=object()), call_next()))
        heard = Heard(app, "middleware_failing")
        redis.zadd("schedule", {b'{"class":"note","args":[],"jid":"j","queue":"default"}': 1})
        before = time.time()
        stager.Stager(app).tick()
        ((_, due),) = redis.zrange("schedule", 0, -1, withscores=True)  # type: ignore[misc]
        assert due > before
        assert len(heard["middleware_failing"]) == 1
        assert not redis.exists("dead")


def test_one_look_each_0_9_s_when_nothing_is_due(app: App, redis: Redis) -> None:
    """6.4: by whoever holds the staging lease of 2 s."""
    app.job(name="note")(lambda: None)
    looks: list[float] = []

    def noted(call: Any) -> None:
        if call.name == "due":
            looks.append(time.monotonic())

    with Spy(app, noted), working(app) as launcher:
        until(lambda: redis.get("hm:staging") == launcher.stager.leader.identity.encode(), "it stages")
        until(lambda: 0 < redis.pttl("hm:staging") <= STAGING_MS == 2000, "for 2 s at most")  # type: ignore[operator]
        until(lambda: len(looks) >= 4, "it looks again and again")
        assert all(later - earlier >= 0.85 for earlier, later in pairwise(looks[:4]))
