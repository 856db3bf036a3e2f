"""A suspect runs with nothing beside it, from its reading to its settling."""

from __future__ import annotations

import time

import pytest
from redis import Redis

from henchman import App
from henchman.worker import pool
from support.worker import push_raw, settled, until, working


def test_the_next_begins_when_the_one_before_is_settled_however_long_it_ran(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patience with a server that does not settle it began at its start: after half a minute there was none."""
    monkeypatch.setattr(pool, "ALONE_WITHIN", 0.5)
    began, ended = dict[str, float](), dict[str, float]()

    @app.job(name="act")
    def act(name: str, seconds: float) -> None:
        began[name] = time.monotonic()
        time.sleep(seconds)
        ended[name] = time.monotonic()

    redis.sadd("hm:suspects", "first", "second")
    push_raw(redis, *(f'{{"class":"act","args":["{name}",0.8],"jid":"{name}"}}' for name in ("first", "second")))
    with working(app) as launcher:
        until(lambda: "first" in began, "the first runs")
        with launcher.acker._flushing:  # nothing is settled
            until(lambda: "second" in began, "the second begins after all")
        settled(redis, 2)
    assert began["second"] - ended["first"] >= 0.5
