"""Jobs that wait for others, with a real worker: whichever is pushed first, however one ends, whatever they say."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from henchman import App, Kill, current_job
from henchman.batch import procedures
from henchman.inspector.operations import Wish, begin
from henchman.inspector.operator import carry_out
from henchman.store.call import run
from support.locks import left_of_keys
from support.needs import ENDS, HOW, POLICIES, becomes
from support.store import Store
from support.worker import until, working


class Shop:
    """Jobs of an app, and what each that ran found in ``current_job().needs``."""

    def __init__(self, app: App, store: Store) -> None:
        self.app = app
        self.store = store
        self.ran: dict[tuple[str, str], Any] = {}
        self.order: list[str] = []
        self.ends: dict[tuple[str, str], BaseException | None] = {}

    def job(self, name: str, **options: Any) -> Any:
        @self.app.job(name=name, key="order", **{"retry": False} | options)
        def job(order: str) -> str:
            self.order.append(name)
            if (error := self.ends.get((name, order))) is not None:
                raise error
            self.ran[name, order] = current_job().needs
            return order

        return job

    @property
    def parked(self) -> set[tuple[str, str]]:
        """The jobs that wait."""
        rows = self.store.ask("HVALS", self.store.keys.parked)
        return {(job["class"], job["args"][0]) for job in (json.loads(row.split(b"\n", 4)[4]) for row in rows)}

    @property
    def dead(self) -> set[tuple[str, str]]:
        return {(one.name, one.job["args"][0]) for one in self.app.dead}

    @property
    def left(self) -> set[str]:
        """What is left when nothing waits any more."""
        beginnings = tuple(f"{self.store.keys.prefix}hm:{one}" for one in ("needs", "decide", "releases", "ready"))
        return left_of_keys(self.store) | {one for one in self.store.all_keys() if one.startswith(beginnings)}


@pytest.fixture
def shop(app: App, store: Store) -> Shop:
    return Shop(app, store)


@pytest.mark.parametrize("first", ["charge", "ship"])
def test_what_becomes_of_a_job_that_waits(shop: Shop, first: str) -> None:
    """The table of the page, whole: for each end an order, for each policy a job that waits for the charge of it."""
    charge = shop.job("charge", once=True)
    shop.ends = {("charge", end): error for end, error in ENDS.items()}
    ships = {policy: shop.job(policy, after=charge, **said) for policy, said in POLICIES.items()}
    known = {"done", "failed", "dead"}  # of what was discarded or is gone nothing is remembered: it may come again
    expected = {
        (policy, end): becomes(end, policy) if first == "ship" or end in known else "blocked"
        for policy in POLICIES
        for end in ENDS
    }

    def those(*fates: str) -> set[tuple[str, str]]:
        return {one for one, fate in expected.items() if fate in fates}

    if first == "ship":
        handles = [ship.enqueue(end) for ship in ships.values() for end in ENDS]
        assert {one.admission for one in handles} == {"blocked"}
        assert shop.parked == expected.keys()
    with working(shop.app):
        for end in ENDS:
            charge.enqueue(end)
        if first == "charge":
            until(lambda: shop.order.count("charge") == len(ENDS) and not _in_flight(shop), "the charges have ended")
            handles = [ship.enqueue(end) for ship in ships.values() for end in ENDS]
            assert [one.admission == "created" for one in handles] == [end == "done" for _ in ships for end in ENDS]
        until(lambda: shop.parked == those("blocked"), "only those wait still that are to")
        until(lambda: shop.dead == those("dead") | {("charge", "dead")}, "those are dead that are to be")
        ran = {one: {"charge": HOW[one[1]]} for one in those("ran")} | {("charge", "done"): {}}
        until(lambda: shop.ran == ran, "those have run that are to")
    errors = {one.error and one.error[0] for one in shop.app.dead if one.name != "charge"}
    assert errors == {"DependencyFailed"}


def _in_flight(shop: Shop) -> bool:
    return any(":flight:" in one for one in shop.store.all_keys()) or bool(shop.store.ask("EXISTS", "queue:default"))


@pytest.mark.parametrize("options", [{"once": True}, {"followed": True}], ids=["once", "followed"])
def test_nothing_is_left_of_a_chain(shop: Shop, options: dict[str, Any]) -> None:
    charge = shop.job("charge", **options)
    pack = shop.job("pack", after=charge, unique="running", followed=True)
    ship = shop.job("ship", after=[charge, pack])
    with working(shop.app):
        for order in ("1", "2"):
            handles = [ship.enqueue(order), pack.enqueue(order), charge.enqueue(order)]
            assert [one.admission for one in handles] == ["blocked", "blocked", "created"]
        until(lambda: len(shop.ran) == 6, "all have run")
        until(lambda: not shop.left, "and nothing is left but what is remembered")
    assert shop.ran["ship", "1"] == {"charge": "finished", "pack": "finished"}
    assert shop.order.index("charge") < shop.order.index("pack") < shop.order.index("ship")


def test_by_handle_by_id_and_in_bulk(shop: Shop) -> None:
    @shop.app.job(name="extract")
    def extract(day: int) -> None:
        shop.order.append(f"extract {day}")

    @shop.app.job(name="report")
    def report(about: str) -> None:
        shop.ran["report", about] = current_job().needs

    parts = [extract.using(followed=True).enqueue(day) for day in range(3)]
    pushed = report.using(after=[*parts[:2], parts[2].jid]).enqueue_many([("a",), ("b",)])
    assert (pushed.created, pushed.blocked) == (2, 2)
    with working(shop.app):
        until(lambda: len(shop.ran) == 2, "both reports have run")
        assert len(shop.order) == 3
        assert shop.ran["report", "a"] == {one.jid: "finished" for one in parts}
        assert report.using(after=parts).enqueue("c").admission == "created"
        until(lambda: len(shop.ran) == 3 and not shop.left, "nothing is left")


def test_one_that_is_over_is_told_to_who_comes_later(shop: Shop) -> None:
    """An id never comes again: nobody waits for it in vain."""

    @shop.app.job(name="extract", retry=False)
    def extract(day: int) -> None:
        raise ValueError("gone")

    tell = shop.job("tell", once=True)
    first = extract.using(followed=True).enqueue(1)
    with working(shop.app):
        until(lambda: not shop.left, "it is gone")
        assert tell.using(after=first, on_failed="run").enqueue("17").admission == "blocked"
        until(lambda: shop.ran == {("tell", "17"): {first.jid: "over"}}, "who came later was told")
        until(lambda: not shop.left, "nothing is left")


def test_a_dead_one_that_is_revived_lets_go(shop: Shop) -> None:
    charge = shop.job("charge", once=True)
    ship = shop.job("ship", after=charge, on_failed="cancel", on_dead="wait")
    shop.ends = {("charge", "17"): Kill("no")}
    with working(shop.app):
        early = ship.enqueue("17")
        charge.enqueue("17")
        until(lambda: shop.dead == {("charge", "17")}, "it is dead")
        late = ship.enqueue("17")
        assert (early.admission, late.admission) == ("blocked", "blocked")
        shop.ends.clear()
        assert shop.app.dead.retry_all().done == 1
        until(lambda: shop.order.count("ship") == 2, "both go their way")
        until(lambda: not shop.left, "nothing is left")


def test_a_dead_one_that_is_deleted_is_over(shop: Shop) -> None:
    charge = shop.job("charge", once=True)
    ship = shop.job("ship", after=charge, on_failed="run", on_dead="wait")
    shop.ends = {("charge", "17"): Kill("no")}
    with working(shop.app):
        ship.enqueue("17")
        charge.enqueue("17")
        until(lambda: shop.dead == {("charge", "17")}, "it is dead")
        assert shop.parked == {("ship", "17")}
        assert shop.app.dead.clear().done == 1
        until(lambda: shop.ran == {("ship", "17"): {"charge": "over"}}, "who waited was told")
        until(lambda: not shop.left, "nothing is left")


def test_one_that_was_made_to_fail_can_be_retried_by_hand(shop: Shop) -> None:
    charge = shop.job("charge", once=True)
    ship = shop.job("ship", after=charge, on_failed="fail")
    shop.ends = {("charge", "17"): Kill("no")}
    with working(shop.app):
        ship.enqueue("17")
        charge.enqueue("17")
        until(lambda: shop.dead == {("charge", "17"), ("ship", "17")}, "both are dead")
        [entry] = [one for one in shop.app.dead if one.name == "ship"]
        assert shop.app.dead.retry(entry).done == 1
        until(lambda: ("ship", "17") in shop.ran, "it runs now")


@pytest.mark.parametrize("order", ["oldest first", "newest first", "as an operation"])
def test_the_dead_that_are_retried_together_wait_for_each_other(shop: Shop, order: str) -> None:
    charge = shop.job("charge", once=True)
    ship = shop.job("ship", after=charge, on_failed="fail", once=True, scope="ships", track=True)
    tell = shop.job("tell", after=ship, on_failed="fail")
    shop.ends = {("charge", "17"): Kill("no")}
    everybody = {("charge", "17"), ("ship", "17"), ("tell", "17")}
    with working(shop.app):
        waiting = ship.enqueue("17")
        tell.enqueue("17")
        charge.enqueue("17")
        until(lambda: shop.dead == everybody, "all are dead")
    shop.ends, shop.order[:] = {}, []
    entries = sorted(shop.app.dead, key=lambda one: one.score, reverse=order == "newest first")
    if order == "as an operation":
        assert carry_out(shop.app, begin(shop.app, "ana", Wish("retry", "dead", "", time.time())))
    else:
        assert shop.app.dead.retry(entries).done == 3
    assert shop.parked == everybody - {("charge", "17")}
    row = shop.store.ask("HGET", shop.store.keys.parked, waiting.jid)
    assert b'"enqueued"' in row.split(b"\n")[3], "the record will tell when it goes on"
    with working(shop.app):
        until(lambda: len(shop.ran) == 3, "all ran")
        assert shop.order == ["charge", "ship", "tell"]
        assert set(map(str, shop.ran.values())) == {"{}", "{'charge': 'finished'}", "{'ship': 'finished'}"}
        until(lambda: not shop.left, "nothing is left")


def test_one_that_is_retried_alone_waits_for_one_that_lives(shop: Shop) -> None:
    """It waits no longer than it says, and hears what became of the one that is dead still."""
    charge, pack = shop.job("charge", once=True), shop.job("pack", once=True, scope="packs")
    ship = shop.job("ship", after=[charge, pack], on_failed="fail", wait_at_most=3600)
    shop.ends = {("charge", "17"): Kill("no"), ("pack", "17"): Kill("no")}
    with working(shop.app):
        ship.enqueue("17")
        charge.enqueue("17")
        pack.enqueue("17")
        until(lambda: len(shop.dead) == 3, "all are dead")
    shop.ends = {}
    by_name = {one.name: one for one in shop.app.dead}
    assert shop.app.dead.retry(by_name["charge"]).done == 1
    assert shop.app.dead.retry(by_name["ship"]).done == 1
    assert shop.parked == {("ship", "17")}
    assert shop.store.ask("ZCARD", shop.store.keys.parked_until) == 1
    with working(shop.app):
        until(lambda: ("ship", "17") in shop.ran, "it runs after the charge")
        assert shop.ran["ship", "17"] == {"charge": "finished", "pack": "dead"}
        assert shop.store.ask("ZCARD", shop.store.keys.parked_until) == 0


def test_a_failure_goes_down_the_whole_chain(shop: Shop) -> None:
    before, last = shop.job("link0", once=True), 5
    shop.ends = {("link0", "17"): Kill("no")}
    for place in range(1, last):
        before = shop.job(f"link{place}", once=True, after=before, on_failed="cancel")
    tell = shop.job("tell", after=before, on_failed="run")
    with working(shop.app):
        for name in ("tell", *(f"link{place}" for place in reversed(range(last)))):
            shop.app.enqueue(name, "17")
        until(lambda: shop.ran == {("tell", "17"): {tell.options.after[0].name: "over"}}, "the end was told")
        assert shop.order == ["link0", "tell"]


@pytest.mark.parametrize(("policy", "dead"), [("run", False), ("fail", True), ("cancel", False)])
def test_nobody_waits_longer_than_it_says(shop: Shop, policy: str, dead: bool) -> None:
    ship = shop.job("ship", after=shop.job("charge", once=True), on_failed=policy, wait_at_most=0.3)
    ship.enqueue("17")
    with working(shop.app):
        until(lambda: not shop.parked, "it waits no longer")
        if policy == "run":
            until(lambda: shop.ran == {("ship", "17"): {"charge": "time"}}, "it runs")
        assert shop.dead == ({("ship", "17")} if dead else set())
        until(lambda: not shop.left, "nothing is left")


def test_one_that_waits_can_be_cancelled(shop: Shop) -> None:
    ship = shop.job("ship", after=shop.job("charge", once=True), once=True)
    shop.job("tell", after=ship, on_failed="run")
    handle = ship.enqueue("17")
    shop.app.enqueue("tell", "17")
    assert handle.status().state == "blocked"
    with working(shop.app):
        handle.cancel()
        until(lambda: shop.ran == {("tell", "17"): {"ship": "over"}}, "who waited for it was told")
        until(lambda: not shop.left, "nothing is left")


def test_a_live_run_beats_an_older_success(shop: Shop) -> None:
    charge = shop.job("charge", once=True)
    ship = shop.job("ship", after=charge)
    with working(shop.app):
        charge.enqueue("17")
        until(lambda: ("charge", "17") in shop.ran and not shop.left, "it has succeeded")
    charge.using(again=True).enqueue("17")
    assert ship.enqueue("17").admission == "blocked"
    with working(shop.app):
        until(lambda: ("ship", "17") in shop.ran, "the new one lets go")
    assert shop.order == ["charge", "charge", "ship"]


def test_time_and_needs_must_both_be_met(shop: Shop) -> None:
    charge = shop.job("charge", once=True)
    ship = shop.job("ship", after=charge)
    ship.using(delay=3600).enqueue("17")
    assert shop.app.scheduled.size() == 0
    with working(shop.app):
        charge.enqueue("17")
        until(lambda: shop.app.scheduled.size() == 1, "now it waits for its time alone")
        assert not shop.parked
        assert ship.using(delay=3600).enqueue("17").admission == "created"
    assert shop.app.scheduled.size() == 2


@pytest.mark.parametrize("atomic", [False, True])
def test_members_of_a_batch_wait_and_count(shop: Shop, atomic: bool) -> None:
    charge = shop.job("charge", once=True)
    ship = shop.job("ship", after=charge)
    with shop.app.batch("Orders", atomic=atomic) as batch:
        handles = [ship.enqueue("1"), ship.enqueue("2"), charge.enqueue("1")]
    assert [one.admission for one in handles] == ["blocked", "blocked", "blocked" if atomic else "created"]
    with working(shop.app):
        until(lambda: batch.status().counts["finished"] == 2, "two are done")
        assert batch.status().counts["blocked"] == 1
        charge.enqueue("2")
        until(lambda: batch.status().counts["finished"] == 3, "and the third")
        assert batch.status().done
        until(lambda: not shop.left, "nothing is left")


def test_a_batch_that_is_cancelled_cancels_who_waits(shop: Shop) -> None:
    ship = shop.job("ship", after=shop.job("charge", once=True))
    with shop.app.batch("Orders") as batch:
        ship.enqueue_many([("1",), ("2",)])
    with working(shop.app):
        batch.cancel()
        until(lambda: batch.status().counts["cancelled"] == 2, "both are cancelled")
        assert batch.status().done
        until(lambda: not shop.left, "nothing is left")


def test_nothing_is_left_of_one_whose_row_was_deleted_by_hand(shop: Shop) -> None:
    """It waited for two: the list of what it still waits for goes with the first that is met."""
    charge, pack = shop.job("charge", once=True), shop.job("pack", once=True)
    ship = shop.job("ship", after=[charge, pack])
    gone, _ = ship.enqueue("17"), ship.enqueue("18")  # while anybody waits, lines are looked at
    assert shop.store.ask("SCARD", shop.store.keys.needs(gone.jid)) == 2
    shop.store.ask("HDEL", shop.store.keys.parked, gone.jid)
    with working(shop.app):
        charge.enqueue("17")
        until(lambda: ("charge", "17") in shop.ran, "the first is met")
        pack.enqueue("17")
        until(lambda: ("pack", "17") in shop.ran, "the second, too")
        for job in (charge, pack):
            job.enqueue("18")
        until(lambda: ("ship", "18") in shop.ran, "the other one goes its way")
        until(lambda: not shop.left, "nothing is left")
    assert ("ship", "17") not in shop.ran


def test_whoever_ends_between_two_pushes_lets_go(shop: Shop) -> None:
    """Both jobs of many chains are pushed while the worker runs: none starts before its turn, none is forgotten."""
    many, charged, shipped, early = 200, set[str](), list[str](), list[str]()

    @shop.app.job(name="charge", key="order", followed=True)
    def charge(order: str) -> None:
        charged.add(order)

    @shop.app.job(name="ship", key="order", after=charge)
    def ship(order: str) -> None:
        shipped.append(order)
        if order not in charged:
            early.append(order)

    with working(shop.app):
        pushers = [threading.Thread(target=_push_all, args=(job, many)) for job in (charge, ship)]
        for pusher in pushers:
            pusher.start()
        for pusher in pushers:
            pusher.join()
        until(lambda: len(shipped) == many, "all have run")
        until(lambda: not shop.left, "nothing is left")
    assert (sorted(shipped, key=int), early) == ([str(one) for one in range(many)], [])


def _push_all(job: Any, many: int) -> None:
    for one in range(many):
        job.enqueue(str(one))


@pytest.mark.parametrize("end", ["aborted", "cancelled", "expired"])
@pytest.mark.parametrize("keyed", [False, True])
def test_who_waits_for_a_job_of_a_batch_that_is_never_released_is_told(shop: Shop, end: str, keyed: bool) -> None:
    """Such a job never comes, though its id is known already: who waits for it would wait for ever."""
    charge = (
        shop.job("charge", followed=True) if keyed else shop.app.job(name="charge", followed=True)(lambda order: None)
    )
    ship = shop.app.job(name="ship")(lambda order: shop.ran.update({("ship", order): current_job().needs}))
    batch = shop.app.batch("Orders", atomic=True, expires=0.05 if end == "expired" else None)
    batch.open()
    handle = charge.using(batch=batch).enqueue("17")
    ship.using(after=handle, on_failed="run").enqueue("17")
    ship.using(after=handle, on_failed="cancel").enqueue("18")
    if end == "aborted":
        run(shop.app.connections, procedures.close(shop.store.keys, batch.id, "aborted"))
    elif end == "cancelled":
        batch.cancel()
    else:
        time.sleep(0.1)
        run(shop.app.connections, procedures.expire(shop.app, batch.id))
    with working(shop.app):
        until(lambda: ("ship", "17") in shop.ran, "who waited for it was told")
        until(lambda: not shop.parked, "nobody waits")
        if not keyed:  # a job of the same key may come yet
            ship.using(after=handle, on_failed="run").enqueue("19")
            until(lambda: ("ship", "19") in shop.ran, "and who comes later")
        until(lambda: not shop.left, "nothing is left: a decision is struck by the look that finds nobody more")
    assert shop.ran.keys() == {("ship", "17")} | (set() if keyed else {("ship", "19")})
    assert all(told == {handle.jid: "over"} for told in shop.ran.values())
