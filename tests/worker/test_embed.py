"""``app.embed``: a worker inside another program."""

from __future__ import annotations

import signal
import threading
from contextlib import closing

import pytest

from henchman import App, ConfigError
from support.worker import in_flight, looker, settled, until


def test_it_works_beside_the_program_and_leaves_nothing(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    ran: list[int] = []

    @app.job(name="note")
    def note(number: int) -> None:
        ran.append(number)

    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP)]
    with closing(app), looker(redis_url) as redis:
        with app.embed(concurrency=3) as worker:
            until(worker.fetching, "it takes work")
            note.enqueue_many((number,) for number in range(50))
            settled(redis, 50)
            assert sorted(ran) == list(range(50))
            info = redis.hget(worker.identity, "info")
            assert b'"embedded":true' in info  # type: ignore[operator]
            assert b'"concurrency":3' in info  # type: ignore[operator]
        assert not worker.fetching()
        assert redis.smembers("processes") == set()
        assert not redis.keys("hm:lease:*")
        assert not redis.keys("hm:flights:*")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP)] == handlers
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("henchman-job")]


def test_a_stop_gives_back_what_does_not_end(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    started, release = threading.Event(), threading.Event()

    @app.job(name="long")
    def long() -> None:
        started.set()
        release.wait(20)

    with closing(app), looker(redis_url) as redis:
        worker = app.embed()
        worker.start()
        long.enqueue()
        assert started.wait(30)
        release_soon = threading.Timer(0.5, release.set)  # the stop waits 3 s for the thread that it has struck
        release_soon.start()
        assert worker.stop(0.1) is False
        release_soon.join()
        assert redis.llen("queue:default") == 1
        assert in_flight(redis) == []
        assert worker.stop() is True  # a second stop is harmless


def test_processes_are_refused(redis_url: str) -> None:
    with pytest.raises(ConfigError, match="processes = 2: an embedded worker is part of this process"):
        App(redis_url=redis_url).embed(processes=2)
