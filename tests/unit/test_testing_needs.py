"""Jobs that wait for others in ``fake`` and ``inline``: the same table as on a server."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from henchman import App, Kill, current_job, testing
from support.needs import ENDS, HOW, POLICIES, becomes

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


class Shop:
    """An app with a job that ends as its ``ends`` says, and others that wait for it."""

    def __init__(self, **options: Any) -> None:
        self.app = App(redis_url="redis://nobody.invalid:1")
        self.ran: dict[str, Any] = {}
        self.ends: BaseException | None = None

        @self.app.job(name="charge", key="order", retry=False, **(options or {"once": True}))
        def charge(order: str) -> None:
            self.ran["charge"] = current_job().needs
            if self.ends is not None:
                raise self.ends

        self.charge: Any = charge

    def waiting(self, name: str, **options: Any) -> Any:
        @self.app.job(name=name, key="order", **options)
        def job(order: str) -> str:
            self.ran[name] = current_job().needs
            return order

        return job


@pytest.mark.parametrize("first", ["charge", "ship"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("end", ENDS)
def test_what_becomes_of_a_job_that_waits(end: str, policy: str, first: str) -> None:
    shop = Shop()
    shop.ends = ENDS[end]
    ship = shop.waiting("ship", after=shop.charge, **POLICIES[policy])
    with testing.fake(shop.app) as jobs:
        if first == "charge":
            shop.charge.enqueue("17")
            jobs.drain_all()
        handle = ship.enqueue("17")
        assert handle.admission == ("created" if (first, end) == ("charge", "done") else _of_over(first, end))
        if first == "ship":
            jobs.drain_all()
            assert "ship" not in shop.ran
            shop.charge.enqueue("17")
        jobs.drain_all()
        expected = becomes(end, policy)
        if first == "charge" and end in ("discarded", "gone"):
            expected = "blocked"  # nothing is remembered of such a job: it may come again
        assert shop.ran.get("ship") == ({"charge": HOW[end]} if expected == "ran" else None)
        assert [one.name for one in jobs.dead if one.name == "ship"] == ["ship"] * (expected == "dead")
        assert [one.name for one in jobs.blocked] == ["ship"] * (expected == "blocked")


def _of_over(first: str, end: str) -> str:
    return "blocked"


def test_one_of_several_is_not_enough() -> None:
    shop = Shop(followed=True)
    ship = shop.waiting("ship", after=[shop.charge, shop.waiting("pack", once=True)])
    with testing.fake(shop.app) as jobs:
        ship.enqueue("17")
        shop.charge.enqueue("17")
        jobs.drain_all()
        assert "ship" not in shop.ran
        shop.app.registry.find("pack")
        shop.app.enqueue("pack", "17")
        jobs.drain_all()
        assert shop.ran["ship"] == {"charge": "finished", "pack": "finished"}


def test_by_handle_and_by_id() -> None:
    shop = Shop(followed=True)
    ship = shop.waiting("ship", once=True)
    with testing.fake(shop.app) as jobs:
        first = shop.charge.enqueue("17")
        second = ship.using(after=first).enqueue("1")
        last = shop.charge.using(after=[second, first.jid]).enqueue("9")
        assert (second.admission, last.admission) == ("blocked", "blocked")
        jobs.drain_all()
        assert [one.jid for one in jobs.blocked] == [last.jid], "first.jid has a key: it is known by that"
        assert shop.ran["ship"] == {first.jid: "finished"}


def test_a_chain_of_failures_goes_on_to_its_end() -> None:
    shop = Shop()
    shop.ends = Kill("no")
    ship = shop.waiting("ship", after=shop.charge, once=True, on_failed="fail")
    bill = shop.waiting("bill", after=ship, once=True, on_failed="cancel")
    shop.waiting("tell", after=bill, on_failed="run")
    with testing.fake(shop.app) as jobs:
        for name in ("tell", "bill", "ship", "charge"):
            shop.app.enqueue(name, "17")
        jobs.drain_all()
        assert shop.ran == {"charge": {}, "tell": {"bill": "over"}}
        assert sorted(one.name for one in jobs.dead) == ["charge", "ship"]


@pytest.mark.parametrize(("policy", "expected"), [("run", "ran"), ("fail", "dead"), ("cancel", "cancelled")])
def test_nobody_waits_longer_than_it_says(policy: str, expected: str) -> None:
    shop, clock = Shop(), testing.Clock(START)
    ship = shop.waiting("ship", after=shop.charge, on_failed=policy, wait_at_most=60)
    with testing.fake(shop.app, clock=clock) as jobs:
        ship.enqueue("17")
        clock.advance(59)
        jobs.drain_all()
        assert (shop.ran, len(jobs.blocked)) == ({}, 1)
        clock.advance(2)
        jobs.drain_all()
        assert shop.ran == ({"ship": {"charge": "time"}} if expected == "ran" else {})
        assert (len(jobs.dead), len(jobs.blocked)) == (int(expected == "dead"), 0)


def test_time_and_needs_must_both_be_met() -> None:
    shop, clock = Shop(), testing.Clock(START)
    ship = shop.waiting("ship", after=shop.charge)
    with testing.fake(shop.app, clock=clock) as jobs:
        ship.using(delay=60).enqueue("17")
        shop.charge.enqueue("17")
        jobs.drain_all()
        assert ("ship" in shop.ran, len(jobs.blocked)) == (False, 0)
        clock.advance(61)
        jobs.drain_all()
        assert "ship" in shop.ran


def test_one_that_is_cancelled_while_it_waits_ends() -> None:
    shop = Shop()
    ship = shop.waiting("ship", after=shop.charge, once=True)
    shop.waiting("tell", after=ship, on_failed="run")
    with testing.fake(shop.app) as jobs:
        handle = ship.enqueue("17")
        shop.app.enqueue("tell", "17")
        handle.cancel()
        jobs.drain_all()
        assert shop.ran == {"tell": {"ship": "over"}}


def test_members_of_a_batch_wait_too() -> None:
    shop = Shop()
    ship = shop.waiting("ship", after=shop.charge, on_failed="cancel")
    shop.ends = Kill("no")
    with testing.fake(shop.app) as jobs:
        with shop.app.batch("Order 17") as batch:
            ship.enqueue("17")
        assert shop.app.batch_status(batch.id).counts["blocked"] == 1
        shop.charge.enqueue("17")
        jobs.drain_all()
        status = shop.app.batch_status(batch.id)
        assert (status.done, status.counts["cancelled"]) == (True, 1)


def test_inline_a_push_lets_go_of_who_waited() -> None:
    shop = Shop()
    ship = shop.waiting("ship", after=shop.charge)
    with testing.inline(shop.app) as inline:
        assert ship.enqueue("17").admission == "blocked"
        shop.charge.enqueue("17")
        assert [one.name for one in inline.ran] == ["charge", "ship"]
