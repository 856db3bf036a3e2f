"""The server is killed and comes back, sooner or later than the lease runs out: what a worker does meanwhile and then.

Real servers with an append-only file; the worker is in the test's own process.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.log.handler import subscribe
from henchman.worker.run import CompiledJob
from support.server import PrivateServer, running_server
from support.worker import Heard, in_flight, jobs_in, looker, settled, until, working

LEASE = 5.0


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    with running_server("--appendfsync", "always", appendonly=True) as one:
        yield one


@pytest.fixture
def redis(server: PrivateServer) -> Iterator[Redis]:
    with looker(server.url) as client:
        yield client


def app_of(server: PrivateServer, **settings: Any) -> App:
    return App(redis_url=server.url, **{"lease": LEASE, "heartbeat": 0.5, "concurrency": 4, **settings})


def edges(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The lines about the server."""
    return [record for record in caplog.records if record.getMessage().startswith("the server ")]


def test_shorter_than_the_lease(server: PrivateServer, redis: Redis, caplog: pytest.LogCaptureFixture) -> None:
    app = app_of(server)
    subscribe(app.events, "info")
    heard = Heard(app, "server_away", "part_failed", "lease_lost")
    release = threading.Event()
    begun: Counter[str] = Counter()
    ran: Counter[str] = Counter()

    @app.job(name="hold")
    def hold(name: str) -> None:
        begun[name] += 1
        release.wait(60)
        ran[name] += 1

    @app.job(name="ahold")
    async def ahold(name: str) -> None:
        begun[name] += 1
        await asyncio.to_thread(release.wait, 60)
        ran[name] += 1

    with working(app) as launcher:
        identity = launcher.session.identity
        for number in range(2):
            hold.enqueue(f"h{number}")
            ahold.enqueue(f"a{number}")
        until(lambda: len(begun) == 4, "four run")  # in flight they are before the answer that brings them is read
        killed = time.monotonic()
        server.kill()
        until(lambda: len({one["part"] for one in heard["server_away"]}) >= 2, "several parts notice")
        release.set()
        until(lambda: len(ran) == 4, "what runs is finished without the server")
        server.start()
        settled(redis, 4)
        hold.enqueue("after")
        until(lambda: ran["after"], "fetching has resumed by itself")
        settled(redis, 5)
        until(lambda: edges(caplog)[-1].getMessage() == "the server is back", "it is told that it is back")
        most = time.monotonic() - killed
        assert launcher.session.identity == identity
        until(lambda: redis.pttl(f"hm:lease:{identity}") > 0, "the lease is kept")  # type: ignore[operator]
        until(lambda: redis.hget(identity, "beat"), "it shows itself again")
    assert set(ran.values()) == {1}
    assert len(ran) == 5
    lines = edges(caplog)
    assert len(lines) in (2, 4)  # an answer that was on its way when the server died may be read after the first line
    for away, back in zip(lines[::2], lines[1::2], strict=True):
        assert away.getMessage() == "the server is away"
        assert away.__dict__["error"].startswith("ServerAway:")
        assert back.getMessage() == "the server is back"
        assert 0.0 <= back.__dict__["downtime"] < most + 0.001  # it is rounded
    assert not [*heard["part_failed"], *heard["lease_lost"]]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_longer_than_the_lease_nothing_prefetched_starts(
    server: PrivateServer,
    redis: Redis,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    asynchronous: bool,
) -> None:
    # However long a loaded machine takes for one of them, they count as short, and many are prefetched.
    monkeypatch.setattr(CompiledJob, "learn", lambda spec, seconds: setattr(spec, "cost", 0.0001))
    app = app_of(server, concurrency=1)
    subscribe(app.events, "info")
    heard = Heard(app, "part_failed", "lease_lost", "lease_lapsed", "server_away")
    reached, release = threading.Event(), threading.Event()
    ran: Counter[int] = Counter()
    killed: list[float] = []

    if asynchronous:

        @app.job(name="step")
        async def step(number: int) -> None:
            ran[number] += 1
            if number == 60:
                killed.append(time.monotonic())
                server.kill()
                reached.set()
                await asyncio.to_thread(release.wait, 60)

    else:

        @app.job(name="step")
        def step(number: int) -> None:
            ran[number] += 1
            if number == 60:
                killed.append(time.monotonic())
                server.kill()
                reached.set()
                release.wait(60)

    with working(app, start=False) as launcher:
        launcher.fetcher._is_stuck = lambda: False  # type: ignore[method-assign]  # it would save them earlier
        launcher.start()
        step.enqueue_many([(n,) for n in range(120)])
        assert reached.wait(60)
        assert launcher.pool.waiting > 3, "some are prefetched"
        until(lambda: heard["server_away"], "it is noticed")
        noticed = time.monotonic()
        until(lambda: launcher.session.valid_for() < -1.0, "the lease has run out, also where a fetch had prolonged it")
        before = sum(ran.values())
        release.set()
        until(lambda: launcher.pool.waiting == 0 and launcher.pool.free == 1, "all of them were looked at")
        assert sum(ran.values()) == before, "none was started"
        restarted = time.monotonic()
        server.start()
        until(lambda: len(ran) == 120, "all run in the end")
        settled(redis, 120)
        until(lambda: heard["lease_lapsed"], "the lease was taken again")
        until(lambda: edges(caplog)[-1].getMessage() == "the server is back", "it is told that it is back")
        most = time.monotonic() - killed[0]
    assert set(ran.values()) == {1}
    assert not [*heard["part_failed"], *heard["lease_lost"]]
    assert not redis.exists("retry", "dead", "queue:default")
    away, back = edges(caplog)
    assert restarted - noticed < back.__dict__["downtime"] + 0.001  # it is rounded
    assert back.__dict__["downtime"] < most + 0.001
    assert away.created < back.created


def test_longer_than_the_lease_what_runs_is_settled_later(server: PrivateServer, redis: Redis) -> None:
    app = app_of(server)
    heard = Heard(app, "part_failed", "lease_lost")
    release = threading.Event()
    begun: Counter[str] = Counter()
    ran: Counter[str] = Counter()

    @app.job(name="hold", retry=3, retry_in=600)
    def hold(name: str) -> None:
        begun[name] += 1
        release.wait(60)
        ran[name] += 1
        if name == "bad":
            raise ValueError(name)

    with working(app) as launcher:
        hold.enqueue_many([("a",), ("b",), ("bad",)])
        until(lambda: len(begun) == 3, "three run")
        server.kill()
        until(lambda: launcher.session.valid_for() < 0, "the lease has run out")
        release.set()
        until(lambda: len(ran) == 3, "they finish without the server")
        server.start()
        settled(redis, 3)
        hold.enqueue("after")
        until(lambda: ran["after"], "fetching has resumed by itself")
    assert set(ran.values()) == {1}
    assert [job["args"] for job in jobs_in(redis, "retry")] == [["bad"]]
    assert not [*heard["part_failed"], *heard["lease_lost"]]


def test_killed_and_started_again_five_times_under_load(server: PrivateServer, redis: Redis) -> None:
    app = app_of(server)
    heard = Heard(app, "part_failed")
    ran: Counter[int] = Counter()

    @app.job(name="note")
    def note(number: int) -> None:
        ran[number] += 1

    note.enqueue_many([(n,) for n in range(10_000)])
    with working(app):
        for turn in range(5):
            until(lambda turn=turn: len(ran) >= 1500 * (turn + 1), "jobs run")  # type: ignore[misc]
            server.kill()
            server.start()
        until(lambda: len(ran) == 10_000, "every job ran")
        until(lambda: not in_flight(redis) and not redis.llen("queue:default"), "nothing is left in flight")
    assert not heard["part_failed"], heard["part_failed"]
    assert not redis.exists("retry", "dead")


# -- ack="each" (PROTOCOL, section 4.4)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_ack_each_is_settled_before_the_next_one_starts(redis_url: str, asynchronous: bool) -> None:
    app = App(redis_url=redis_url, concurrency=1)
    seen: list[int] = []
    with looker(redis_url) as redis:

        def look(number: int) -> None:
            seen.append(int(redis.get("stat:processed") or 0) - number)  # type: ignore[arg-type]

        if asynchronous:

            @app.job(name="step", ack="each")
            async def step(number: int) -> None:
                look(number)

        else:

            @app.job(name="step", ack="each")
            def step(number: int) -> None:
                look(number)

        step.enqueue_many([(n,) for n in range(200)])
        with working(app):
            settled(redis, 200)
    assert seen == [0] * 200, "at each start, everything before was settled"


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("ack", ["each", "batched"])
def test_ack_each_keeps_its_slot_while_the_server_is_away(
    server: PrivateServer, redis: Redis, ack: str, asynchronous: bool
) -> None:
    app = app_of(server)
    heard = Heard(app, "server_away", "part_failed")
    began, release, ended = threading.Event(), threading.Event(), threading.Event()

    if asynchronous:

        @app.job(name="hold", ack=ack)
        async def hold() -> None:
            began.set()
            await asyncio.to_thread(release.wait, 60)
            ended.set()

    else:

        @app.job(name="hold", ack=ack)
        def hold() -> None:
            began.set()
            release.wait(60)
            ended.set()

    with working(app) as launcher:
        hold.enqueue()
        until(began.is_set, "it runs")
        server.kill()
        release.set()
        assert ended.wait(60)
        until(lambda: any(one["part"] == "acker" for one in heard["server_away"]), "it cannot be settled")
        if ack == "each":
            assert launcher.pool.busy == 1
        else:
            until(lambda: launcher.pool.busy == 0, "its slot is free")
        until(lambda: launcher.loop.blocked_for() < 1.0, "the loop turns meanwhile")
        server.start()
        settled(redis, 1)
        until(lambda: launcher.pool.busy == 0, "its slot is free")
    assert not heard["part_failed"], heard["part_failed"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_worker_that_stops_does_not_wait_for_ever_for_ack_each(
    server: PrivateServer, redis: Redis, asynchronous: bool
) -> None:
    app = app_of(server)
    began, release, ended = threading.Event(), threading.Event(), threading.Event()

    if asynchronous:

        @app.job(name="hold", ack="each")
        async def hold() -> None:
            began.set()
            await asyncio.to_thread(release.wait, 60)
            ended.set()

    else:

        @app.job(name="hold", ack="each")
        def hold() -> None:
            began.set()
            release.wait(60)
            ended.set()

    with working(app) as launcher:
        hold.enqueue()
        until(began.is_set, "it runs")
        server.kill()
        release.set()
        assert ended.wait(60)
        started = time.monotonic()
        launcher.stop(0.5)
        assert time.monotonic() - started < 90
        assert launcher.pool.wait_idle(60), "the slot was let go"
        server.start()
    assert len(in_flight(redis)) == 1, "it is in flight still: whoever rescues it runs it again"


def test_ack_each_with_every_ending(redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=4)
    heard = Heard(app, "job_failed", "job_end", "part_failed")

    @app.job(name="fail", ack="each", retry=0)
    def fail() -> None:
        raise ValueError("no")

    @app.job(name="late", ack="each", expires=1)
    async def late() -> None: ...

    with looker(redis_url) as redis:
        fail.enqueue()
        app.enqueue("late", expires=0.001)
        with working(app):
            until(lambda: jobs_in(redis, "dead"), "it is dead")
            until(lambda: not in_flight(redis), "both are settled")
    assert sorted(one["outcome"].ending for one in heard["job_failed"]) == ["dead", "expired"]
    assert not heard["part_failed"], heard["part_failed"]


def test_what_has_ended_is_told_soon_after_the_server_is_back(server: PrivateServer, redis: Redis) -> None:
    """However long it was away: what was not told yet is run again by a kill."""
    app = app_of(server)
    tries: list[float] = []

    def tried(part: str, **_: Any) -> None:
        if part == "acker":
            tries.append(time.monotonic())

    app.events.on("server_away", tried)
    began, release = threading.Event(), threading.Event()

    @app.job(name="hold")
    def hold() -> None:
        began.set()
        release.wait(60)

    hold.enqueue()
    with working(app):
        until(began.is_set, "it runs")
        server.kill()
        release.set()
        until(lambda: len(tries) >= 9, "the acker has tried for a while")
        server.start()
        settled(redis, 1)
    pauses = [after - before for before, after in itertools.pairwise(tries[5:])]
    assert min(pauses) < 1.5, f"not as seldom as a fetch is tried: {pauses}"
