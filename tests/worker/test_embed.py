"""``app.embed``: a worker inside another program."""

from __future__ import annotations

import signal
import threading
from contextlib import closing
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
