"""Which job is next, when, and how many at once. In-process, on a real server."""

from __future__ import annotations

import itertools
import json
import math
import socket
import threading
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from henchman import App
from henchman.store.queues import Pause, pause, unpause
from henchman.worker import fetcher, watcher
from henchman.worker.fetcher import Doing
from support.worker import in_flight, settled, until, working


def noting(app: App, *queues: str) -> tuple[list[tuple[str, int]], dict[str, object]]:
    """A job for each queue that notes (queue, number)."""
    ran: list[tuple[str, int]] = []

    def make(queue: str) -> object:
        return app.job(name=f"note_{queue}", queue=queue)(_noter(ran, queue))

    return ran, {queue: make(queue) for queue in queues}


def push_beside_the_pause(ran: list[tuple[str, int]], jobs: dict[str, object]) -> None:
    jobs["default"].enqueue(1)  # type: ignore[attr-defined]
    jobs["other"].enqueue(2)  # type: ignore[attr-defined]
    until(lambda: ran == [("other", 2)], "the other queue goes on")


def _noter(ran: list[tuple[str, int]], queue: str):  # type: ignore[no-untyped-def]
    def note(number: int) -> None:
        ran.append((queue, number))

    return note


def fill(jobs: dict[str, object], count: int) -> None:
    for job in jobs.values():
        job.enqueue_many([(n,) for n in range(count)])  # type: ignore[attr-defined]


def test_strict_order_is_as_listed_and_first_in_first_out(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=1, queues=("b", "a", "c"))
    ran, jobs = noting(app, "a", "b", "c")
    fill(jobs, 300)
    with working(app):
        settled(redis, 900)
    assert ran == [(queue, n) for queue in ("b", "a", "c") for n in range(300)]


@pytest.mark.parametrize(("weights", "share"), [(("a:3", "b:1"), 0.75), (("a:1", "b:1"), 0.5)])
def test_weights_share_the_fetches(redis: Redis, redis_url: str, weights: tuple[str, ...], share: float) -> None:
    app = App(redis_url=redis_url, concurrency=1, queues=weights)
    ran: list[str] = []

    def slow(queue: str):  # type: ignore[no-untyped-def]
        def body(number: int) -> None:
            ran.append(queue)
            time.sleep(0.0201)  # just beyond what is fetched ahead: each job is a fetch of its own

        return body

    jobs = {queue: app.job(name=queue, queue=queue)(slow(queue)) for queue in ("a", "b")}
    fill(jobs, 200)
    with working(app, stop=1):
        until(lambda: len(ran) >= 200, "200 ran")
    counts = Counter(ran[:200])
    spread = math.sqrt(share * (1 - share) / 200)  # of so many draws
    assert abs(counts["a"] / 200 - share) < 5 * spread, counts
    assert set(ran[:40]) == {"a", "b"}, "nobody starves"


@pytest.mark.alone("it measures milliseconds")
def test_nothing_starts_from_a_paused_queue_100_ms_after_pause_returned(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=4)
    starts: list[float] = []

    @app.job(name="note", queue="slow")
    def note() -> None:
        starts.append(time.monotonic())
        time.sleep(0.001)  # so that many are fetched ahead

    stop = threading.Event()

    def pushing() -> None:
        while not stop.is_set():
            note.enqueue_many([()] * 20)
            stop.wait(0.005)

    with working(app):
        pusher = threading.Thread(target=pushing)
        pusher.start()
        try:
            for _ in range(3):
                mark = len(starts)
                until(lambda mark=mark: len(starts) > mark + 100, "jobs run")  # type: ignore[misc]
                app.connections.run(pause(app.keys, "slow", Pause()))
                paused = time.monotonic()
                until(lambda: redis.llen("queue:slow") > 100, "pushes pile up")
                assert not [one - paused for one in starts if one > paused + 0.1]
                app.connections.run(unpause(app.keys, "slow"))
        finally:
            stop.set()
            pusher.join()
        until(lambda: not redis.llen("queue:slow") and not in_flight(redis), "unpaused, all run")


def test_pause_holds_also_where_a_watcher_waits_already(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "BLOCK", 600.0)  # a wait ends by word, not because its time is over
    app = App(redis_url=redis_url)
    ran, jobs = noting(app, "default", "other")
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 2, "both are watched")
        app.connections.run(pause(app.keys, "default", Pause()))
        until(lambda: launcher.watcher.armed == 1, "no longer watched")
        push_beside_the_pause(ran, jobs)
        assert redis.llen("queue:default") == 1
        app.connections.run(unpause(app.keys, "default"))
        until(lambda: ran == [("other", 2), ("default", 1)], "unpaused, it runs")


def test_a_pause_by_another_hand_holds_at_the_next_look_of_the_stager(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sidekiq Pro writes into the set of paused queues and tells us nothing; a heartbeat is too rare."""
    monkeypatch.setattr(watcher, "BLOCK", 600.0)
    app = App(redis_url=redis_url, heartbeat=60)
    ran, jobs = noting(app, "default", "other")
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 2, "both are watched")
        redis.sadd("paused", "default")
        until(lambda: launcher.watcher.armed == 1, "no longer watched", 5)
        push_beside_the_pause(ran, jobs)
        redis.srem("paused", "default")
        until(lambda: ran == [("other", 2), ("default", 1)], "unpaused, it runs", 5)
        assert redis.hget("hm:clock", "paused") == b"{}"


def test_work_goes_on_when_the_time_of_a_pause_is_over(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "BLOCK", 600.0)
    app = App(redis_url=redis_url, heartbeat=60)
    ran, jobs = noting(app, "default", "other")
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 2, "both are watched")
        app.connections.run(pause(app.keys, "default", Pause(time.time(), "ana", "outage", time.time() + 2)))
        until(lambda: launcher.watcher.armed == 1, "no longer watched", 5)
        push_beside_the_pause(ran, jobs)
        until(lambda: ran == [("other", 2), ("default", 1)], "its time is over, it runs", 8)
    assert (redis.exists("paused"), redis.exists("hm:pauses")) == (0, 0)


@pytest.mark.alone("it measures milliseconds")
def test_a_plain_lpush_wakes_an_idle_worker(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url)
    started: list[float] = []

    @app.job(name="note")
    def note() -> None:
        started.append(time.monotonic())

    payload = '{"class":"note","args":[]}'
    with working(app) as launcher, socket.socket(socket.AF_UNIX) as raw:
        raw.connect(urlsplit(redis_url).path)
        waits = []
        for number in range(30):
            until(lambda: launcher.watcher.armed == 1, "it waits")
            before = time.monotonic()
            raw.sendall(f"*3\r\n$5\r\nLPUSH\r\n$13\r\nqueue:default\r\n${len(payload)}\r\n{payload}\r\n".encode())
            assert raw.recv(100)
            until(lambda number=number: len(started) == number + 1, "it ran")  # type: ignore[misc]
            waits.append(started[-1] - before)
        settled(redis, 30)
    assert sorted(waits)[15] < 0.05, "woken by the push itself, not by a look"


def test_ten_slots_never_hold_more_than_ten_long_jobs(redis: Redis, redis_url: str) -> None:
    """Short jobs first, so that many are fetched ahead; then long ones: a second worker must get the rest."""
    apps = [App(redis_url=redis_url, concurrency=10) for _ in range(2)]
    ran: list[list[float]] = [[], []]
    release = threading.Event()
    for app, mine in zip(apps, ran, strict=True):

        def job(long: bool, mine: list[float] = mine) -> None:
            if long:
                mine.append(time.monotonic())
                release.wait(200)

        app.job(name="job")(_one_flag(job))
    client = App(redis_url=redis_url)
    with working(apps[0], stop=1) as first:
        client.enqueue("job", False)
        for _ in range(400):
            client.enqueue("job", False)
        settled(redis, 401)
        for _ in range(20):
            client.enqueue("job", True)
        until(lambda: len(ran[0]) == 10, "ten run")
        until(lambda: len(in_flight(redis)) == 10, "the rest went back, though no slot gets free")
        assert first.pool.busy == 10
        with working(apps[1], stop=1):
            until(lambda: len(ran[1]) == 10, "the second worker runs the rest")
            release.set()
            settled(redis, 421)
    client.close()


def _one_flag(job):  # type: ignore[no-untyped-def]
    def body(long: bool) -> None:
        job(long)

    return body


@pytest.mark.alone("it measures milliseconds")
def test_acks_are_at_most_a_few_ms_late(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=1)
    ends: list[float] = []

    @app.job(name="note")
    def note() -> None:
        ends.append(time.monotonic())

    late = []
    with working(app):
        for number in range(40):
            note.enqueue()
            until(lambda number=number: len(ends) == number + 1, "it ran")  # type: ignore[misc]
            while int(redis.get("stat:processed") or 0) <= number:  # type: ignore[arg-type]
                assert time.monotonic() - ends[-1] < 45
            late.append(time.monotonic() - ends[-1])
    assert sorted(late)[8] < 0.015, "5 ms, and what two busy cores add"


def test_more_queues_than_watchers_are_all_served(redis: Redis, redis_url: str) -> None:
    names = [f"q{n}" for n in range(12)]
    app = App(redis_url=redis_url, queues=tuple(names))
    ran, jobs = noting(app, *names)
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 8, "eight are watched")
        for job in jobs.values():
            job.enqueue(1)  # type: ignore[attr-defined]
        until(lambda: len(ran) == 12, "all ran")


def test_a_fetcher_is_in_one_state(redis: Redis, redis_url: str) -> None:
    """It rests beside empty queues, is full beside busy slots, takes a new name before all else, winds down at last."""
    app = App(redis_url=redis_url, concurrency=1)
    started, release = threading.Event(), threading.Event()

    @app.job(name="hold")
    def hold() -> None:
        started.set()
        release.wait(60)

    with working(app) as launcher:
        one = launcher.fetcher
        until(lambda: one.doing is Doing.RESTING and launcher.watcher.armed, "it waits for a push")
        hold.enqueue()
        assert started.wait(30)
        until(lambda: one.doing is Doing.FULL, "it waits for room")
        taken: list[Doing] = []
        rejoin = one._rejoin
        one._rejoin = lambda lost: (taken.append(one.doing), rejoin(lost))  # type: ignore[assignment,func-returns-value]
        one.buried(launcher.session.identity)
        until(lambda: taken == [Doing.RENEWING] and one.doing is Doing.FULL, "it took a new name and waits again")
        release.set()
        until(lambda: one.doing is Doing.RESTING, "it waits for a push")
        launcher.quiet()
        until(lambda: one.doing is Doing.WINDING_DOWN, "it fetches no more")


@pytest.mark.alone("it measures milliseconds")
def test_one_slot_never_sleeps_beside_work(redis: Redis, redis_url: str) -> None:
    """A slot that becomes free in the very moment in which the fetcher decides to wait: nobody would ring again."""
    app = App(redis_url=redis_url, concurrency=1)
    ran: list[float] = []

    @app.job(name="note")
    def note() -> None:
        time.sleep(0.021)  # not fetched ahead
        ran.append(time.monotonic())

    note.enqueue_many([()] * 150)
    with working(app):
        settled(redis, 150)
    gaps = [later - earlier for earlier, later in itertools.pairwise(ran)]
    assert max(gaps) < 4.0


def test_what_watchers_bring_beyond_the_slots_goes_back_at_once(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "PATIENCE", 1000.0)  # nothing goes back for having waited
    app = App(redis_url=redis_url, concurrency=1)
    go_on = threading.Event()
    ran: list[str] = []

    def hold(queue: str) -> Any:
        def run() -> None:
            ran.append(queue)
            assert go_on.wait(60)

        return run

    queues = ["a", "b", "c", "d"]
    jobs = [app.job(name=queue, queue=queue)(hold(queue)) for queue in queues]
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 5, "all queues are watched")
        with redis.pipeline(transaction=True) as line:  # every wait is served before any can be ended
            for job in jobs:
                payload = json.dumps({"class": job.name, "args": [], "jid": job.name})
                line.lpush(f"queue:{job.options.queue}", payload)
            line.execute()
        until(lambda: ran, "one runs")
        until(lambda: len(in_flight(redis)) == 1, "the others went back")
        assert len(ran) == 1
        assert sum(redis.llen(f"queue:{queue}") for queue in queues) == 3  # type: ignore[misc]
        go_on.set()
        until(lambda: sorted(ran) == queues, "they run one after the other")
        settled(redis, 4)
