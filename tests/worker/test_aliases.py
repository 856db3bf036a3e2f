"""A job that was renamed: whatever bears its old name runs as the new one, and its keys go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App, Failure
from henchman.log.handler import subscribe
from support.garbage import payload
from support.worker import Heard, in_flight, jobs_in, push_raw, settled, until, working


@pytest.fixture
def before(redis_url: str) -> Iterator[App]:
    """The app as it was: what it pushes bears the old name."""
    made = App(redis_url=redis_url)
    yield made
    made.close()


def renamed(app: App, seen: list[Any], **options: Any) -> Any:
    @app.job(name="mail.deliver", queue="mail", aliases=["mail.send"], **options)
    def deliver(user: int, lang: str = "de") -> str:
        seen.append((user, lang))
        if user == -1:
            raise ValueError("nobody")
        return f"{user} {lang}"

    return deliver


def test_jobs_of_the_old_name_run_wherever_they_wait(app: App, redis: Redis) -> None:
    seen: list[Any] = []
    renamed(app, seen)
    push_raw(redis, payload("1" * 24, args=[1]))
    redis.zadd("schedule", {payload("2" * 24, args=[2]): time.time() - 1})
    redis.zadd("retry", {payload("3" * 24, args=[3], retry_count=1): time.time() - 1})
    app.crons.add("nightly", "mail.send", every=1, args=(4,))
    with app.batch("all", on_complete="mail.send"):
        app.enqueue("mail.send", 5)
    with working(app):
        until(lambda: {one for one, _ in seen if isinstance(one, int)} >= {1, 2, 3, 4, 5}, "each ran")
        until(lambda: any(isinstance(one, str) for one, _ in seen), "so did the callback, with the id of the batch")
    assert in_flight(redis) == []
    assert (redis.zcard("retry"), redis.zcard("dead")) == (0, 0)


def test_options_are_those_of_the_new_definition_and_the_name_stays_in_the_payload(app: App, redis: Redis) -> None:
    """So that a worker with the old code, too, can take it while the deploy is under way."""
    seen: list[Any] = []
    renamed(app, seen, retry_in=5000, retry=3)
    push_raw(redis, payload("1" * 24, args=[-1]))
    with working(app):
        until(lambda: redis.zcard("retry") == 1, "it waits for its retry")
    ((_, due),) = redis.zrange("retry", 0, -1, withscores=True)
    assert due > time.time() + 4000
    (stored,) = jobs_in(redis, "retry")
    assert (stored["class"], stored["error_class"]) == ("mail.send", "ValueError")


def test_what_was_charged_under_the_old_name_is_not_charged_again(app: App, before: App, redis: Redis) -> None:
    charged: list[str] = []

    def define(app: App, name: str, **options: Any) -> Any:
        @app.job(name=name, key="order", once=True, **options)
        def charge(order: str) -> None:
            charged.append(order)
            if order == "no":
                raise Failure("no money")

        return charge

    old, new = define(before, "charge"), define(app, "billing.charge", aliases=["charge"])
    with working(before):
        first = old.enqueue("17")
        settled(redis, 1)
    waits = old.enqueue("18")
    again, other = new.enqueue("17"), new.enqueue("18")
    assert (again.admission, again.duplicate_of) == ("duplicate", first.jid)
    assert (other.admission, other.duplicate_of) == ("duplicate", waits.jid)
    with working(app):
        settled(redis, 2)
        assert new.enqueue("18").duplicate_of == waits.jid, "its end under the new code is remembered in the same place"
    assert charged == ["17", "18"]


def test_the_log_says_both_names_and_both_have_one_usual_time(
    app: App, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    renamed(app, seen)
    ends = Heard(app, "job_end")
    subscribe(app.events, "info")
    caplog.set_level(logging.INFO, "henchman")
    push_raw(redis, payload("1" * 24, args=[1]))
    app.enqueue("mail.deliver", 2)
    with working(app):
        until(lambda: len(ends["job_end"]) == 2, "both ended")
    runs = [one["run"] for one in ends["job_end"]]
    done = [record for record in caplog.records if getattr(record, "class", "") == "mail.deliver"]
    assert {(vars(one)["jid"], vars(one).get("pushed_as")) for one in done} == {
        ("1" * 24, "mail.send"),
        (runs[1].jid if runs[0].jid == "1" * 24 else runs[0].jid, None),
    }
    assert {run.name for run in runs} == {"mail.deliver"}
    assert len({id(run.compiled) for run in runs}) == 1
