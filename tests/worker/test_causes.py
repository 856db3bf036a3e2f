"""Why a run did not end well, as a field of its ending: in events, the log, history, lists and metrics."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App, Failure
from henchman.config import Config
from henchman.errors import JobCancelled, JobTimeout, PoisonPill, ProcessCrashed
from henchman.history.search import parse_search
from henchman.store import leases
from henchman.work.outcome import CAUSES, ENDINGS, Outcome, cause_of
from henchman.worker.rescue import Death, rescue
from support.garbage import payload
from support.worker import Heard, jobs_in, push_raw, until, working


@pytest.mark.parametrize(
    ("ending", "error", "cause"),
    [
        ("done", None, ""),
        ("failed", Failure("no"), ""),
        ("expired", None, ""),
        ("retry", ValueError(), "error"),
        ("dead", JobTimeout(), "timeout"),
        ("gone", MemoryError(), "memory"),
        ("retry", ProcessCrashed("its process ended"), "crash"),
        ("kept", PoisonPill(), "poison"),
        ("cancelled", JobCancelled(), "cancelled"),
        ("released", None, "stop"),
    ],
)
def test_each_ending_has_its_cause(ending: str, error: BaseException | None, cause: str) -> None:
    assert Outcome(ending, error=error).cause == cause


def test_every_ending_has_one_that_is_known_or_none() -> None:
    assert {cause_of(one, ValueError()) for one in ENDINGS} <= {"", *CAUSES}


def define(app: App) -> Any:
    @app.job(name="slow", timeout=0.2, retry=1, retry_in=3600, track=True)
    def slow(how: str) -> None:
        if how == "error":
            raise ValueError("no")
        end = time.monotonic() + 30
        while how == "sleep" and time.monotonic() < end:
            time.sleep(0.01)

    return slow


def test_a_time_out_is_told_everywhere(app: App, redis: Redis) -> None:
    slow = define(app)
    heard = Heard(app, "job_failed")
    jid = slow.enqueue("sleep").jid
    other = slow.enqueue("error").jid
    with working(app):
        until(lambda: redis.zcard("retry") == 2, "both wait for their retry")
        until(lambda: len(heard["job_failed"]) == 2, "events tell")
    assert {one["run"].jid: one["outcome"].cause for one in heard["job_failed"]} == {jid: "timeout", other: "error"}
    stored = {one["jid"]: one.get("error_cause") for one in jobs_in(redis, "retry")}
    assert stored == {jid: "timeout", other: None}
    listed = {one.jid: (one.cause, one.to_json()["cause"]) for one in app.retries}
    assert listed == {jid: ("timeout", "timeout"), other: ("error", "error")}
    assert app.job_status(jid).to_json()["cause"] == "timeout"
    (counted,) = app.metrics(name="slow").classes
    assert (counted.processed, counted.failed, counted.causes) == (2, 2, {"timeout": 1})


def test_a_job_that_is_neither_retried_nor_kept_is_counted_by_its_cause(app: App, redis: Redis) -> None:
    slow = define(app)
    slow.using(retry=False).enqueue("sleep")
    slow.using(retry=False).enqueue("error")
    heard = Heard(app, "job_failed")
    with working(app):
        until(lambda: len(heard["job_failed"]) == 2, "both are gone")
    (counted,) = app.metrics(name="slow").classes
    assert (counted.failed, counted.causes) == (2, {"timeout": 1})
    assert redis.zcard("dead") == 0


def test_an_ordered_claim_has_the_cause_of_its_worst_id(app: App, redis: Redis) -> None:
    @app.ordered(queue="products", name="sync", timeout=0.2, retry_in=3600.0)
    def sync(claim: dict[str, list[Any]]) -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            time.sleep(0.01)

    heard = Heard(app, "job_failed")
    sync.push("42", {"price": 5})
    with working(app):
        (told,) = until(lambda: heard["job_failed"], "it ran too long")
    assert told["outcome"].cause == "timeout"
    (counted,) = app.metrics(name="sync").classes
    assert (counted.failed, counted.causes) == (1, {"timeout": 1})


def test_a_job_that_heals_loses_its_cause(app: App, redis: Redis) -> None:
    define(app)
    facts = {"class": "slow", "args": ["error"], "retry_count": 0, "retry": 3, "error_cause": "timeout"}
    push_raw(redis, payload("1" * 24, **facts))
    with working(app):
        until(lambda: redis.zcard("retry") == 1, "it failed of something else")
    assert "error_cause" not in jobs_in(redis, "retry")[0]


def test_history_has_it_as_a_column(redis_url: str, tmp_path: Path) -> None:
    app = App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path}/history.sqlite", max_retries=0)
    try:
        slow = define(app)
        late = slow.using(retry=0).enqueue("sleep")
        wrong, fine = slow.using(retry=0).enqueue("error"), slow.enqueue("")
        gone = slow.enqueue("never")
        app.cancel(gone.jid)
        with working(app):
            until(lambda: app.job_status(fine.jid).state == "finished", "history is there")
            reading = app.open_history().reading
            jids = [late.jid, wrong.jid, fine.jid, gone.jid]

            def causes() -> list[Any]:
                found = [reading.job(jid) for jid in jids]
                return [one and one.event.ended_at and (one.event.status, one.event.cause) for one in found]

            wanted = [("error", "timeout"), ("error", "error"), ("finished", None), ("cancelled", "cancelled")]
            until(lambda: causes() == wanted, "history has them")
            assert [one.jid for one in reading.find(parse_search("cause:timeout")).events] == [late.jid]
    finally:
        app.close()


@pytest.mark.parametrize(("death", "cause"), [(Death("x"), "crash"), (Death("x", kind="hang"), "hang"), (None, "stop")])
def test_history_hears_why_a_job_was_given_back(app: App, redis: Redis, death: Death | None, cause: str) -> None:
    identity, keys = "gone:7:abc", app.keys
    redis.set(keys.history_on, Config(database_url="sqlite:///x").history_kept())
    flight = keys.in_flight(identity, 1, "default")
    app.connections.run(leases.join(keys, identity, [flight], 30_000))
    redis.lpush(flight, payload("1" * 24, hm={"track": True}))
    assert rescue(app, identity, death).moved == 1
    details = [json.loads(facts[b"d"]) for _, facts in redis.xrange(keys.history) if b"d" in facts]
    assert [(one["ending"], one["cause"]) for one in details] == [("rescued", cause)]


def test_a_poison_pill_says_so(app: App, redis: Redis) -> None:
    define(app)
    stored = payload("1" * 24, **{"class": "slow"})
    for number in range(3):
        identity = f"gone:{number}:abc"
        flight = app.keys.in_flight(identity, 1, "default")
        app.connections.run(leases.join(app.keys, identity, [flight], 30_000))
        redis.delete("queue:default")
        redis.lpush(flight, stored)
        rescue(app, identity, Death("it ended"))
    (dead,) = app.dead
    assert (dead.error and dead.error[0], dead.cause) == ("PoisonPill", "poison")
