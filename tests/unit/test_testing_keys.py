"""Business keys in ``fake`` and ``inline``: the same table as on a server."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from henchman import App, Discard, DuplicateJob, Failure, Kill, Snooze, testing

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


class Shop:
    """An app with one job of a key, and what it was called with."""

    def __init__(self, **options: Any) -> None:
        self.app = App(redis_url="redis://nobody.invalid:1")
        self.ran: list[tuple[str, int]] = []
        self.ends: list[BaseException] = []

        @self.app.job(name="charge", key="order_id", **{"retry": 1, "retry_in": 10} | options)
        def charge(order_id: str, cents: int = 1) -> None:
            self.ran.append((order_id, cents))
            if self.ends:
                raise self.ends.pop(0)

        self.charge = charge


@pytest.mark.parametrize("options", [{"once": True}, {"unique": "until_success"}, {"unique": "queued"}])
def test_a_second_push_is_a_duplicate(options: dict[str, Any]) -> None:
    shop = Shop(**options)
    with testing.fake(shop.app) as jobs:
        first, again = shop.charge.enqueue("17", 1), shop.charge.enqueue("17", 2)
        assert (again.admission, again.duplicate_of, again.differs) == ("duplicate", first.jid, True)
        assert len(jobs) == 1
        pushed = shop.charge.enqueue_many([("17",), ("18",), ("18",)])
        assert (pushed.created, pushed.duplicates) == (1, 2)
        jobs.drain_all()
        assert shop.ran == [("17", 1), ("18", 1)]
        after = shop.charge.enqueue("17")
        assert after.admission == ("duplicate" if "once" in options else "created")


def test_what_has_run_is_remembered_for_as_long_as_was_said() -> None:
    shop = Shop(once=True, once_for=60)
    clock = testing.Clock(START)
    with testing.fake(shop.app, clock=clock) as jobs:
        first = shop.charge.enqueue("17")
        jobs.drain_all()
        assert shop.charge.enqueue("17").jid == first.jid
        clock.advance(61)
        assert shop.charge.enqueue("17").admission == "created"


#: how a run ends → the admission of the next push: with once, until_success, queued
ENDS: dict[str, tuple[Any, tuple[str, str, str]]] = {
    "done": (None, ("duplicate", "created", "created")),
    "failed": (Failure("no"), ("duplicate", "created", "created")),
    "retry": (OSError("broken"), ("duplicate", "duplicate", "created")),
    "snoozed": (Snooze(10), ("duplicate", "duplicate", "created")),
    "dead": (Kill("now"), ("duplicate", "created", "created")),
    "discarded": (Discard("forget"), ("created", "created", "created")),
}


@pytest.mark.parametrize("ending", ENDS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_which_ending_gives_a_key_back(ending: str, place: int) -> None:
    shop = Shop(**[{"once": True}, {"unique": "until_success"}, {"unique": "queued"}][place])
    error, admissions = ENDS[ending]
    with testing.fake(shop.app) as jobs:
        shop.charge.enqueue("17")
        shop.ends = [error] if error is not None else []
        assert jobs.perform_one().ending == ending
        assert shop.charge.enqueue("17").admission == admissions[place]


def test_a_queued_key_is_free_when_the_job_starts_and_newer_arguments_replace() -> None:
    shop = Shop(unique="queued", on_conflict="replace")
    with testing.fake(shop.app) as jobs:
        first = shop.charge.enqueue("17", 1)
        assert shop.charge.enqueue("17", 2).jid == first.jid
        jobs.drain_all()
        assert shop.ran == [("17", 2)]
        assert shop.charge.enqueue("17", 3).admission == "created"


def test_again_takes_the_key_over() -> None:
    shop = Shop(unique="until_success")
    with testing.fake(shop.app) as jobs:
        shop.charge.enqueue("17", 1)
        second = shop.charge.using(again=True).enqueue("17", 2)
        jobs.perform_one()
        assert shop.charge.enqueue("17").jid == second.jid, "the first one's end frees nothing"
        jobs.drain_all()
        assert shop.charge.enqueue("17").admission == "created"


def test_a_job_that_waits_for_its_key_follows() -> None:
    shop = Shop(unique="until_success", on_conflict="wait")
    with testing.fake(shop.app) as jobs:
        handles = [shop.charge.enqueue("17", number) for number in range(3)]
        assert [one.admission for one in handles] == ["created", "blocked", "blocked"]
        shop.ends = [OSError("broken")]
        jobs.drain_all()
        assert shop.ran == [("17", 0)], "the first one has not succeeded"
        jobs.drain_all(advance=True)
        assert shop.ran == [("17", 0), ("17", 0), ("17", 1), ("17", 2)]


def test_a_duplicate_that_raises() -> None:
    shop = Shop(once=True, on_conflict="raise")
    with testing.fake(shop.app) as jobs:
        first = shop.charge.enqueue("17")
        with pytest.raises(DuplicateJob) as caught:
            shop.charge.enqueue("17")
        assert caught.value.jid == first.jid
        with pytest.raises(DuplicateJob) as caught:
            shop.charge.enqueue_many([("18",), ("17",), ("19",)])
        assert caught.value.pushed == 1
        assert len(jobs) == 2


def test_debounce_and_throttle_go_by_the_clock_of_the_fake() -> None:
    shop, clock = Shop(debounce=5, debounce_most=8), testing.Clock(START)
    with testing.fake(shop.app, clock=clock) as jobs:
        first = shop.charge.enqueue("17", 1)
        clock.advance(4)
        assert shop.charge.enqueue("17", 2).jid == first.jid
        clock.advance(2)
        jobs.drain_all()
        assert not shop.ran
        assert shop.charge.enqueue("17", 3).jid == first.jid
        clock.advance(2.1)
        jobs.drain_all()
        assert shop.ran == [("17", 3)], "eight seconds after the first push"
        assert shop.charge.enqueue("17", 4).admission == "created"
    shop = Shop(throttle=60)
    with testing.fake(shop.app, clock=clock) as jobs:
        assert [shop.charge.enqueue("17").admission for _ in range(2)] == ["created", "duplicate"]
        jobs.drain_all()
        clock.advance(61)
        assert shop.charge.enqueue("17").admission == "created"


def test_a_duplicate_is_no_member_of_its_batch() -> None:
    shop = Shop(unique="until_success")
    with testing.fake(shop.app) as jobs:
        with shop.app.batch("b") as batch:
            assert [shop.charge.enqueue(key).admission for key in ("1", "1", "2")] == [
                "created",
                "duplicate",
                "created",
            ]
        assert shop.app.batch_status(batch.id).total == 2
        with shop.app.batch("c", atomic=True) as atomic:
            assert [shop.charge.enqueue(key).admission for key in ("2", "3", "3")] == ["blocked"] * 3
        assert shop.app.batch_status(atomic.id).total == 1
        jobs.drain_all()
        assert shop.app.batch_status(atomic.id).state == shop.app.batch_status(batch.id).state == "complete"
        assert [key for key, _ in shop.ran] == ["1", "2", "3"]


def test_tracked_jobs_have_keys_too() -> None:
    shop = Shop(unique="queued", track=True)
    with testing.fake(shop.app) as jobs:
        assert [shop.charge.enqueue("17").admission for _ in range(2)] == ["created", "duplicate"]
        assert len(jobs) == 1


def test_clear_forgets_keys() -> None:
    shop = Shop(once=True)
    with testing.fake(shop.app) as jobs:
        shop.charge.enqueue("17")
        jobs.clear()
        assert shop.charge.enqueue("17").admission == "created"


def test_inline_a_job_has_ended_when_its_push_returns() -> None:
    shop = Shop(once=True)
    with testing.inline(shop.app):
        first = shop.charge.enqueue("17")
        assert shop.charge.enqueue("17").duplicate_of == first.jid
    assert len(shop.ran) == 1
    shop = Shop(unique="until_success")
    with testing.inline(shop.app):
        shop.ends = [OSError("broken")]
        with pytest.raises(OSError, match="broken"):
            shop.charge.enqueue("17")
        assert shop.charge.enqueue("17").admission == "created", "the error was the caller's; nothing holds the key"
        assert shop.charge.enqueue("17").admission == "created"
    assert len(shop.ran) == 3
