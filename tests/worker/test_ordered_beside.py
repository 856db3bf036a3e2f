"""Ordered queues beside plain ones that always have something, and beside more queues than can be waited for."""

from __future__ import annotations

import time

import pytest
from redis import Redis

from henchman import App
from henchman.worker import fetcher
from support.worker import until, working


def test_a_push_into_an_ordered_queue_is_seen_while_every_slot_is_busy_for_long(redis_url: str, redis: Redis) -> None:
    """With a backlog of plain jobs there is no moment at which the process waits for a ring."""
    app = App(redis_url=redis_url, concurrency=2)
    seen: list[tuple[str, int]] = []
    ran: list[int] = []

    @app.job(name="slow")
    def slow(number: int) -> None:
        time.sleep(0.005)  # the work
        ran.append(number)

    @app.ordered(queue="q", name="note")
    def note(claim: dict[str, list[str]]) -> None:
        seen.extend((name, len(ran)) for name in claim)

    slow.enqueue_many((number,) for number in range(20_000))
    with working(app):
        for turn in range(1, 4):
            until(lambda turn=turn: len(ran) >= 200 * turn, "it is busy")  # type: ignore[misc]
            before = len(ran)
            note.push(f"id{turn}", "now")
            until(lambda turn=turn: len(seen) >= turn, "it ran", 25)  # type: ignore[misc]
            assert seen[-1][0] == f"id{turn}"
            assert seen[-1][1] - before < 4_000, "ten seconds of plain jobs at most: it looks for safety each 30 s"
        assert redis.llen("queue:default"), "the backlog is still there"


def test_an_ordered_queue_that_cannot_be_waited_for_is_looked_at(
    redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "SURE", 600.0)  # not by a look for safety
    app = App(redis_url=redis_url, concurrency=2)
    seen: list[str] = []
    for number in range(8):
        app.job(name=f"job{number}", queue=f"a{number}")(lambda: None)

    @app.ordered(queue="zz", name="note")
    def note(claim: dict[str, list[str]]) -> None:
        seen.extend(claim)

    app.configure(queues=[*(f"a{number}" for number in range(8)), "zz"])
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 8, "the first eight are waited for")
        until(lambda: launcher.fetcher._asked["zz"], "it was looked into for the first time")
        note.push("x", "now")
        until(lambda: seen == ["x"], "it ran", 60)
