"""``app.embed``: a worker inside another program."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import closing, suppress
from typing import Any

import pytest

from henchman import App, ConfigError
from support.worker import in_flight, looker, settled, until


def test_it_works_beside_the_program_and_leaves_nothing(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    ran: list[int] = []

    @app.job(name="note")
    def note(number: int) -> None:
        ran.append(number)

    before = set(threading.enumerate())
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP)]
    with closing(app), looker(redis_url) as redis:
        with app.embed(concurrency=3) as worker:
            until(worker.fetching, "it takes work")
            note.enqueue_many((number,) for number in range(50))
            settled(redis, 50)
            assert sorted(ran) == list(range(50))
            info: Any = until(lambda: redis.hget(worker.identity, "info"), "it shows itself")
            assert b'"embedded":true' in info
            assert b'"concurrency":3' in info
        assert not worker.fetching()
        assert redis.smembers("processes") == set()
        assert not redis.keys("hm:lease:*")
        assert not redis.keys("hm:flights:*")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP)] == handlers

    def left() -> list[str]:
        return [one.name for one in set(threading.enumerate()) - before if one.name.startswith("henchman-job")]

    until(lambda: not left(), "its threads have ended")


def test_a_key_stays_with_a_handler_that_outlives_its_worker(redis_url: str) -> None:
    app = App(redis_url=redis_url, lease=5, heartbeat=1)
    running, most, ends = list[str](), list[int](), threading.Event()

    @app.job(name="stubborn", key="key", unique="running", retry=False)
    def stubborn(key: str, name: str) -> None:
        running.append(name)
        most.append(len(running))
        while name == "first" and not ends.is_set():
            with suppress(BaseException):  # whatever strikes it
                ends.wait(0.05)
        running.remove(name)

    with closing(app), looker(redis_url) as redis:
        worker = app.embed(shutdown_timeout=0.2)
        worker.start()
        stubborn.enqueue("k", "first")
        until(lambda: running, "it runs")
        lease = app.keys.lease(worker.identity)
        assert not worker.stop(0.2)
        with app.embed(shutdown_timeout=0.2):
            stubborn.enqueue("k", "second")
            [lock] = redis.hvals("hm:lock:r:stubborn")  # type: ignore[misc]
            lapses = time.monotonic() + 11.0
            while time.monotonic() < lapses:  # twice the lease
                assert running == ["first"]
                assert redis.exists(lease), "nobody takes what it has while it is renewed"
                assert redis.hvals("hm:lock:r:stubborn") == [lock]
                time.sleep(0.1)  # between two looks
            ends.set()
            settled(redis, 2)
        until(lambda: not redis.keys("hm:lease:*"), "both have left")
        assert (max(most), running) == (1, [])
        assert not redis.keys("hm:lock:*")
        assert not redis.keys("hm:parked*")


def test_a_stop_gives_back_what_does_not_end(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    started = threading.Event()

    @app.job(name="long")
    def long() -> None:
        started.set()
        until(lambda: False, "the stop strikes it")

    with closing(app), looker(redis_url) as redis:
        worker = app.embed()
        worker.start()
        long.enqueue()
        assert started.wait(30)
        assert worker.stop(0.1) is False
        assert redis.llen("queue:default") == 1
        assert in_flight(redis) == []
        assert worker.stop() is True  # a second stop is harmless


def test_processes_are_refused(redis_url: str) -> None:
    with pytest.raises(ConfigError, match="processes = 2: an embedded worker is part of this process"):
        App(redis_url=redis_url).embed(processes=2)


def test_every_setting_of_a_worker_is_obeyed(redis_url: str) -> None:
    app = App(redis_url=redis_url, tag="app", processes=3)

    @app.job(name="fail", retry=True)
    def fail() -> None:
        raise ValueError("no")

    own: dict[str, Any] = {
        "max_retries": 0,
        "lease": 60,
        "heartbeat": 0.2,
        "dead_max": 2,
        "tag": "own",
        "labels": ["a"],
    }
    with closing(app), looker(redis_url) as redis:
        with app.embed(concurrency=1, **own) as worker:
            fail.enqueue_many([()] * 4)
            settled(redis, 4)
            assert redis.zcard("retry") == 0, "max_retries"
            assert redis.zcard("dead") == 2, "dead_max"
            assert redis.pttl(f"hm:lease:{worker.identity}") > 20_000, "lease"  # type: ignore[operator]
            info: Any = until(lambda: redis.hget(worker.identity, "info"), "it shows itself")
            assert (b'"tag":"own"' in info, b'"labels":["a"]' in info) == (True, True)
            beat = redis.hget(worker.identity, "beat")
            until(lambda: redis.hget(worker.identity, "beat") != beat, "heartbeat", 3)
        assert (app.config.tag, app.config.max_retries) == ("app", 25), "the app keeps its own"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("namespace", "other", "the whole app"),
        ("redis_url", "redis://elsewhere", "the whole app"),
        ("wait_replicas", 1, "the whole app"),
        ("max_jobs", 5, "no supervisor"),
        ("log_level", "debug", "no supervisor"),
        ("concurency", 5, "did you mean 'concurrency'"),
    ],
)
def test_a_setting_that_a_worker_cannot_have_is_refused(redis_url: str, name: str, value: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.*{why}"):
        App(redis_url=redis_url).embed(**{name: value})


def test_it_is_awaited(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    main = threading.current_thread()

    @app.job(name="ask", result_ttl=100)
    async def ask() -> bool:
        return threading.current_thread() is main

    async def program() -> bool:
        async with app.embed(concurrency=1) as worker:
            assert worker.identity
            answer = await (await ask.aenqueue()).aresult(30)
        assert not worker.fetching()
        await app.aclose()
        return answer

    assert asyncio.run(program()) is False
