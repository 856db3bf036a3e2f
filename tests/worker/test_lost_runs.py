"""Runs of a host that is gone: time-outs that no process lived to enforce, and where each job ran."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.worker.lost_runs import LostRuns
from henchman.worker.metrics import ExecutionMetrics
from support.dead import DEAD, corpse, entomb_and_rescue, job
from support.store import Store
from support.worker import jobs_in


def lost(
    redis: Redis, store: Store, name: str, *, ran: float = 60, silent: float = 20, skew: float = 0, **more: Any
) -> bytes:
    """A job that a dead process ran for ``ran`` seconds; it was heard of ``silent`` seconds ago."""
    payload = job(name, **more)
    corpse(store, payload)
    seconds, micros = redis.time()  # type: ignore[misc]
    now = float(seconds) + micros / 1e6
    redis.hset(store.keys.process(DEAD), mapping={"beat": repr(now - silent), "skew": f"{skew:.3f}", "info": "{}"})
    row = {"queue": "default", "payload": payload.decode(), "run_at": int(now - ran + skew)}
    redis.hset(store.keys.work(DEAD), "henchman-1", json.dumps(row))
    return payload


def define(app: App, **options: Any) -> None:
    @app.job(name="act", **options)
    def act(name: str) -> None: ...


def waiting(redis: Redis) -> list[str]:
    return [one["jid"] for one in jobs_in(redis, "queue:default")]


@pytest.mark.parametrize("skew", [0.0, 3600.0])
def test_a_time_out_that_nobody_enforced_spends_an_attempt(app: App, redis: Redis, store: Store, skew: float) -> None:
    define(app, timeout=10)
    lost(redis, store, "a", skew=skew)
    assert entomb_and_rescue(app, DEAD) == (0, None)
    (retried,) = jobs_in(redis, "retry")
    assert (retried["jid"], retried["error_class"], retried["error_cause"]) == ("a", "JobTimeout", "timeout")
    assert (retried["retry_count"], retried["retry"]) == (0, True)
    assert DEAD in retried["error_message"]
    assert redis.hlen("hm:deaths") == 1, "its death is charged as ever"
    assert waiting(redis) == []
    assert not list(redis.scan_iter("hm:flight:*"))
    assert int(redis.get("stat:failed") or 0) == 1  # type: ignore[arg-type]


def test_one_whose_time_was_not_over_goes_back(app: App, redis: Redis, store: Store) -> None:
    define(app, timeout=3600)
    lost(redis, store, "a")
    assert entomb_and_rescue(app, DEAD) == (1, None)
    assert waiting(redis) == ["a"]
    assert not redis.exists("retry", "dead")


def test_a_time_out_after_the_process_was_lost_is_none(app: App, redis: Redis, store: Store) -> None:
    define(app, timeout=50)
    lost(redis, store, "a", ran=60, silent=40)  # its lease ran out 25 s ago, at 35 s of its time
    assert entomb_and_rescue(app, DEAD) == (1, None)
    assert waiting(redis) == ["a"]


def test_what_the_push_says_goes_first_and_one_without_retries_is_dead(app: App, redis: Redis, store: Store) -> None:
    define(app, timeout=3600)
    lost(redis, store, "a", retry=0, hm={"timeout": 10})
    entomb_and_rescue(app, DEAD)
    (dead,) = jobs_in(redis, "dead")
    assert (dead["jid"], dead["error_cause"]) == ("a", "timeout")
    assert waiting(redis) == []


def test_a_deadline_that_passed_there_is_the_end(app: App, redis: Redis, store: Store) -> None:
    define(app)
    seconds, _ = redis.time()  # type: ignore[misc]
    lost(redis, store, "a", hm={"deadline": float(seconds) - 40})
    entomb_and_rescue(app, DEAD)
    (dead,) = jobs_in(redis, "dead")
    assert (dead["error_class"], dead["error_cause"]) == ("JobDeadline", "deadline")
    assert waiting(redis) == []


def test_it_happens_once_and_it_is_known_where_it_ran(app: App, redis: Redis, store: Store) -> None:
    define(app, timeout=10)
    payload = lost(redis, store, "a")
    tally = ExecutionMetrics(app.clock.now)
    runs = LostRuns(app, DEAD, tally.count)
    keys = [one.decode() for one in redis.scan_iter("*hm:flight:*")]
    assert [runs.time_out(one) for one in keys] == [1]
    assert [runs.time_out(one) for one in keys] == [0]
    counted = tally.take()["act"]
    assert (counted.processed, counted.failed, counted.causes) == (1, 1, {"timeout": 1})
    assert runs.facts_of(payload)["host"] == "host"
    assert runs.facts_of(payload)["thread"] == "henchman-1"


def test_nothing_is_known_of_a_process_without_a_record(app: App, redis: Redis, store: Store) -> None:
    define(app, timeout=1)
    corpse(store, job("a"))
    assert entomb_and_rescue(app, DEAD) == (1, None)
    assert waiting(redis) == ["a"]
