"""Business keys from end to end: real pushes, a real worker, what is left in Redis."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from redis import Redis

from henchman import App, Discard, Failure, JobFailed, Kill
from support.keys import lock, locks, waiting
from support.worker import Heard, settled, until, working


class Charges:
    """A job with a key, what it was called with, and how its next runs end."""

    def __init__(self, app: App, **options: Any) -> None:
        self.ran: list[tuple[str, int]] = []
        self.ends: list[BaseException] = []
        self.go = threading.Event()
        self.go.set()

        @app.job(name="charge", key="order_id", **{"retry": 3, "retry_in": 0} | options)
        def charge(order_id: str, cents: int = 1) -> str:
            self.ran.append((order_id, cents))
            assert self.go.wait(60)
            if self.ends:
                raise self.ends.pop(0)
            return f"{order_id}: {cents}"

        self.job = charge


def left(redis: Redis) -> set[bytes]:
    """The keys of locks and of what hangs on them."""
    patterns = ("hm:lock:*", "hm:latest", "hm:parked", "hm:await:*", "hm:debounce:*", "hm:broken", "hm:doubt")
    return {key for pattern in patterns for key in redis.scan_iter(pattern)}


def test_an_order_is_charged_once_and_every_duplicate_has_the_result(app: App, redis: Redis) -> None:
    charges = Charges(app, once=True, result_ttl=60)
    first, early = charges.job.enqueue("17", 990), charges.job.enqueue("17", 990)
    with working(app):
        assert early.result(timeout=60) == first.result(timeout=60) == "17: 990"
        settled(redis, 1)
        late = charges.job.enqueue("17", 990)
        assert (late.admission, late.duplicate_of) == ("duplicate", first.jid)
        assert late.result(timeout=60) == "17: 990"
        pushed = charges.job.enqueue_many([("17", 990), ("18", 1), ("17", 1)])
        assert (pushed.created, pushed.duplicates) == (1, 2)
        settled(redis, 2)
    assert sorted(charges.ran) == [("17", 990), ("18", 1)]
    assert not left(redis)


def test_a_failure_is_remembered_too_and_again_runs_once_more(app: App, redis: Redis) -> None:
    charges = Charges(app, once=True, result_ttl=60)
    charges.ends = [Failure("no money")]
    with working(app):
        first = charges.job.enqueue("17")
        with pytest.raises(JobFailed, match="no money"):
            first.result(timeout=60)
        settled(redis, 1)
        assert charges.job.enqueue("17").duplicate_of == first.jid
        second = charges.job.using(again=True).enqueue("17", 2)
        assert second.result(timeout=60) == "17: 2"
        settled(redis, 2)
        assert charges.job.enqueue("17").duplicate_of == second.jid, "the newer one is remembered"
    assert not left(redis)


@pytest.mark.parametrize(
    ("options", "error", "admission"),
    [
        ({"once": True}, Discard("forget"), "created"),
        ({"once": True}, Kill("now"), "duplicate"),
        ({"unique": "until_success"}, None, "created"),
        ({"unique": "until_success"}, Failure("no"), "created"),
        ({"unique": "until_success"}, Discard("forget"), "created"),
        ({"unique": "until_success"}, Kill("now"), "created"),
        ({"unique": "queued"}, None, "created"),
        ({"unique": "queued"}, Kill("now"), "created"),
    ],
)
def test_when_a_key_is_given_back(app: App, redis: Redis, options: dict[str, Any], error: Any, admission: str) -> None:
    charges = Charges(app, **options)
    charges.ends = [] if error is None else [error]
    with working(app):
        charges.job.enqueue("17")
        until(lambda: charges.ran, "it ran")
        until(lambda: not redis.keys("hm:flight:*"), "it is settled")
    assert charges.job.enqueue("17").admission == admission
    assert bool(waiting(redis)) == (admission == "created")


def test_a_retry_keeps_the_key(app: App, redis: Redis) -> None:
    charges = Charges(app, unique="until_success", retry_in=3600)
    charges.ends = [OSError("broken")]
    with working(app):
        first = charges.job.enqueue("17")
        until(lambda: redis.zcard("retry"), "it waits for its retry")
        assert charges.job.enqueue("17").duplicate_of == first.jid
    assert lock(redis, "u", "charge", "17") == first.jid


def test_at_most_one_waits_and_the_newest_arguments_run(app: App, redis: Redis) -> None:
    charges = Charges(app, unique=("queued", "running"), on_conflict="replace")
    charges.go.clear()
    with working(app):
        first = charges.job.enqueue("17", 1)
        until(lambda: charges.ran, "it runs")
        second, third = charges.job.enqueue("17", 2), charges.job.enqueue("17", 3)
        assert (second.admission, third.duplicate_of) == ("created", second.jid != first.jid and second.jid)
        charges.go.set()
        settled(redis, 2)
    assert charges.ran == [("17", 1), ("17", 3)]
    assert not left(redis)


def test_never_two_at_once(app: App, redis: Redis) -> None:
    running, most, lock_ = [0], [0], threading.Lock()

    @app.job(name="books", key="account", unique="running")
    def books(account: str) -> None:
        with lock_:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.01)
        with lock_:
            running[0] -= 1

    with working(app):
        pushed = books.enqueue_many([("a",)] * 20)
        assert pushed.created == 20
        settled(redis, 20)
    assert most == [1]
    assert not left(redis)


def test_jobs_that_wait_for_their_key_run_one_after_the_other(app: App, redis: Redis) -> None:
    charges = Charges(app, unique="until_success", on_conflict="wait")
    handles = [charges.job.enqueue("17", number) for number in range(5)]
    assert [one.admission for one in handles] == ["created", *["blocked"] * 4]
    with working(app):
        settled(redis, 5)
    assert charges.ran == [("17", number) for number in range(5)]
    assert not left(redis)


def test_a_burst_runs_once_with_its_last_arguments(app: App, redis: Redis) -> None:
    charges = Charges(app, debounce=0.5)
    with working(app):
        handles = [charges.job.enqueue("17", number) for number in range(5)]
        assert {one.jid for one in handles} == {handles[0].jid}
        settled(redis, 1)
    assert charges.ran == [("17", 4)]
    assert not left(redis)


def test_a_cron_whose_key_is_taken_passes_the_tick_over(app: App, redis: Redis) -> None:
    charges = Charges(app, unique="until_success")
    heard = Heard(app, "cron_enqueued", "part_failed")
    charges.go.clear()
    app.crons.add("often", charges.job, every=0.2, args=["17"])
    with working(app):
        until(lambda: charges.ran, "its first tick runs")
        until(lambda: redis.hget("hm:cron:skipped", "often"), "a tick was passed over")
        assert len(charges.ran) == 1
        assert redis.hget("hm:cron:skipped", "often").split()[3].decode() == lock(redis, "u", "charge", "17")
        app.crons.pause("often")
        charges.go.set()
        until(lambda: not locks(redis, "u", "charge"), "it ended")
    assert not heard["part_failed"]
    assert heard["cron_enqueued"]


def test_a_cancelled_duplicate_cancels_the_first(app: App, redis: Redis) -> None:
    charges = Charges(app, once=True)
    first = charges.job.enqueue("17")
    charges.job.enqueue("17").cancel()
    with working(app):
        until(lambda: not waiting(redis) and not redis.keys("hm:flight:*"), "it is over")
    assert not charges.ran
    assert charges.job.enqueue("17").jid != first.jid, "a cancelled job gives its key back"
