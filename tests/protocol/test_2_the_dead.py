"""PROTOCOL, section 2: the dead may still receive."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.errors import LeaseLost, ServerAway, ServerError
from henchman.kernel.clock import awake
from henchman.store import leases
from henchman.store.jobs import Settlement
from henchman.worker import heart, lifeline, watcher
from henchman.worker.lifeline import Lifeline, bury_and_give_back
from support.dead import DEAD, Spy, corpse, job
from support.store import ME, Store
from support.worker import Heard, until, working


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, lease=6, heartbeat=0.5)
    yield made
    made.close()


def test_a_wait_ends_on_the_server_after_5_s_at_most(app: App, redis: Redis) -> None:
    """2.1"""
    app.job(name="nothing")(lambda: None)
    with working(app, start=False) as launcher, redis.monitor() as monitor:
        launcher.start()
        waits = (one["command"] for one in monitor.listen() if one["command"].startswith("BLMOVE"))
        assert 0 < float(next(waits).split()[-1]) <= 5


def test_a_wait_is_armed_only_beside_a_fresh_lease(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.1: younger than a third of the lease; a process that could not renew gets nothing pushed into its hands."""
    monkeypatch.setattr(heart, "PULSE", 3600.0)  # no beat but the first
    monkeypatch.setattr(watcher, "BLOCK", 0.1)
    app = App(redis_url=redis_url, lease=90, heartbeat=0.5)
    app.job(name="nothing")(lambda: None)
    refused, heard, told = threading.Event(), Heard(app, "beat"), list[str]()

    def unreachable(call: Any) -> None:
        if refused.is_set() and call.name in ("fetch", "renew"):
            told.append(call.name)
            raise ServerAway("as told", executed=False)

    with Spy(app, unreachable), working(app) as launcher:
        until(lambda: heard["beat"] and launcher.watcher.armed, "it waits")
        refused.set()
        until(lambda: told, "a fetch was refused: none is on its way any more that would renew")
        launcher.flights.renewed = awake() - 30.2  # a third of the lease is 30
        until(lambda: not launcher.watcher.armed, "the wait ended")
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            launcher.watcher.arm()
            assert not launcher.watcher.armed
        refused.clear()
        launcher.flights.renew()
        launcher.watcher.arm()
        until(lambda: launcher.watcher.armed, "it waits again")


def test_a_rescue_begins_with_a_tombstone(app: App, store: Store) -> None:
    """2.2: before anything of it is looked at or moved."""
    corpse(store, job("a"))

    def buried(call: Any) -> None:
        if call.name in ("charge", "give_back", "LRANGE", "SMEMBERS"):
            assert store.ask("EXISTS", store.keys.tomb(DEAD)), call

    with Spy(app, buried) as spy:
        assert bury_and_give_back(app, DEAD) == 1
    assert {"charge", "give_back"} <= set(spy.names())


def test_what_the_buried_say_is_answered_lost(store: Store) -> None:
    """2.2: fetch, ack, renew; taking the name anew too."""
    store.join("a")
    store.push("a", b"1", b"2")
    store.fetch("a", count=1)
    store.run(leases.bury(store.keys, ME, force=True))
    for word in (
        lambda: store.fetch("a"),
        lambda: store.settle(Settlement(1, b"1", "done")),
        lambda: store.run(leases.renew(store.keys, ME, 1000)),
        lambda: store.join("a"),
    ):
        with pytest.raises(LeaseLost, match="declared dead"):
            word()
    assert store.in_flight("a") == [b"1"]
    assert store.queue("a") == [b"2"]


def test_lists_of_the_dead_are_swept_until_they_were_empty_for_an_hour(app: App, store: Store) -> None:
    """2.3: at every tick; none is forgotten at its first empty look, and what comes late starts the hour anew."""
    corpse(store)
    store.run(leases.bury(store.keys, DEAD, force=False))
    line, flight, tomb = Lifeline(app), store.keys.flight(DEAD, 1, "default"), store.keys.tomb(DEAD)

    def an_hour_passes() -> None:
        store.ask("ZADD", store.keys.tombs, store.now() - 3601, DEAD)
        store.ask("PEXPIRE", tomb, 60_000)

    line.tick("me")  # empty
    store.ask("LPUSH", flight, job("a"))  # written before its kill, delivered after it
    line.tick("me")
    assert store.queue("default") == [job("a")]

    an_hour_passes()
    store.ask("LPUSH", flight, job("b"))
    line.tick("me")
    assert store.queue("default") == [job("b"), job("a")]
    line.tick("me")
    assert store.members(store.keys.tombs) == [DEAD.encode()], "not empty for an hour yet"
    assert store.ask("PTTL", tomb) > 3_590_000, "it is dead for as long as it is swept"

    an_hour_passes()
    line.tick("me")
    assert not store.ask("EXISTS", store.keys.tombs, store.keys.flights(DEAD))
    assert store.ask("EXISTS", tomb), "and a little longer"


def test_the_many_dead_of_an_hour_take_no_look_each(app: App, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.3: found by half an hour of chaos: the sweep took longer than contact may be broken, and nobody was rescued."""
    monkeypatch.setattr(lifeline, "WATCH", 0.0)
    for number in range(300):
        name = f"host:{number}:abcdefabcdef"
        store.ask("ZADD", store.keys.identities, 1.0, name)
        store.run(leases.bury(store.keys, name, force=True))
        store.ask("SADD", store.keys.flights(name), *(store.keys.flight(name, epoch, "q") for epoch in range(30)))
    store.ask("LPUSH", store.keys.flight("host:7:abcdefabcdef", 29, "q"), job("late"))
    corpse(store, job("a"))
    line = Lifeline(app)
    with Spy(app) as spy:
        line.tick("me")
    assert len(spy.calls) < 60, "for 9,000 lists"
    assert store.queue("q") == [job("late")]
    assert store.queue("default") == [job("a")]


def test_a_tomb_stands_for_as_long_as_its_lists_are_swept(store: Store) -> None:
    """2.3: else a frozen process could take its old name again while its lists are still emptied under its hands."""
    corpse(store)
    store.run(leases.bury(store.keys, DEAD, force=False))
    assert store.ask("PTTL", store.keys.tomb(DEAD)) > leases.TOMB_MS + 30_000


@pytest.mark.parametrize("ending", ["retry", "dead", "snoozed", "released", "cancelled"])
def test_the_word_of_who_lost_a_unit_changes_nothing(store: Store, ending: str) -> None:
    """2.4: no ending of it, and none of its effects; the new owner's word counts."""
    other = "host:2:0123456789ab"
    store.push("a", b"1")
    store.join("a")
    store.fetch("a")
    store.ask("RPOPLPUSH", store.flight("a"), store.keys.queue("a"))
    store.join("a", identity=other)
    store.fetch("a", identity=other)
    store.ask("ZADD", "hm:cancelled", 1, "j")

    assert store.settle(Settlement(1, b"1", ending, b"1", 1.0, b'[["uncancel","j"]]')) == [0]

    assert store.ask("LRANGE", store.keys.flight(other, 1, "a"), 0, -1) == [b"1"]
    assert not store.ask("EXISTS", "retry", "dead", "schedule", "queue:a", "stat:processed")
    assert store.members("hm:cancelled") == [b"j"]


@pytest.mark.parametrize("step", ["SMEMBERS", "charge", "give_back", "SREM"])
@pytest.mark.parametrize("who", ["the same after an outage", "another after a crash"])
def test_a_rescue_that_was_broken_off_is_ended_by_the_next_tick(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch, step: str, who: str
) -> None:
    """2.2: buried, and then the server was lost: its work goes back, and its death is charged, once."""
    monkeypatch.setattr(lifeline, "WATCH", 0.0)
    corpse(store, job("a"), job("b"))
    line = Lifeline(app)

    def lost(call: Any) -> None:
        if call.name == step and store.ask("EXISTS", store.keys.tomb(DEAD)):
            raise ServerAway("as told")

    with Spy(app, lost), pytest.raises(ServerAway):
        line.tick("me")
    assert store.ask("SMEMBERS", store.keys.rescues) == [DEAD.encode()]
    heard = Heard(app, "rescued")
    (line if who.startswith("the same") else Lifeline(app)).tick("me")
    assert sorted(store.queue("default")) == [job("a"), job("b")]
    for jid in ("a", "b"):
        assert store.ask("HGET", store.keys.deaths, jid).count(b"its host is gone") == 1
    assert heard["rescued"]
    assert not store.ask("EXISTS", store.keys.rescues, store.keys.flight(DEAD, 1, "default"))


OTHERS = ["host:2:dead00000000", "host:0:dead00000000", "host:3:dead00000000"]


def see_them_die(store: Store, line: Lifeline, clock: list[float]) -> None:
    """One after the other; for the next look all of them have been dead for long enough."""
    for name in OTHERS:
        corpse(store, job(name), identity=name)
        line.tick("me")
        clock[0] += 2.0
    clock[0] += 5.0
    line.tick("me")
    clock[0] += 11.0


def test_all_who_are_dead_are_buried_before_the_first_is_rescued_the_longest_dead_first(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5, 2.2: their deaths were established; when the server is lost then, none of them has to be watched anew."""
    clock = [1000.0]
    monkeypatch.setattr(lifeline, "awake", lambda: clock[0])
    line = Lifeline(app)
    see_them_die(store, line, clock)
    heard = Heard(app, "rescued")

    def lost(call: Any) -> None:
        if call.name == "give_back":
            assert {store.ask("EXISTS", store.keys.tomb(name)) for name in OTHERS} == {1}
            raise ServerAway("as told")

    with Spy(app, lost), pytest.raises(ServerAway):
        line.tick("me")
    assert not heard["rescued"]
    store.ask("DEL", store.keys.lifeline)
    Lifeline(app).tick("another, who has seen nothing yet")
    assert sorted(store.queue("default")) == sorted(job(name) for name in OTHERS)
    assert not store.ask("EXISTS", store.keys.rescues)


def test_the_longest_dead_is_rescued_first(app: App, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5"""
    clock = [1000.0]
    monkeypatch.setattr(lifeline, "awake", lambda: clock[0])
    heard = Heard(app, "rescued")
    line = Lifeline(app)
    see_them_die(store, line, clock)
    line.tick("me")
    assert [facts["identity"] for facts in heard["rescued"]] == OTHERS


@pytest.mark.parametrize("trouble", [ServerError("WRONGTYPE as told"), OverflowError("as told")])
def test_one_who_cannot_be_rescued_does_not_hold_up_the_others(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    """2.2: nor their sweeping; his own goes on as soon as it can, charged once."""
    monkeypatch.setattr(lifeline, "WATCH", 0.0)
    heard = Heard(app, "part_failed")
    for name in OTHERS:
        corpse(store, job(name), identity=name)
    ill, charge = OTHERS[1], lifeline.charge_held

    def charges(host: Any, identity: str, *args: Any, **how: Any) -> list[str]:
        if identity == ill:
            raise trouble
        return charge(host, identity, *args, **how)

    line = Lifeline(app)
    monkeypatch.setattr(lifeline, "charge_held", charges)
    line.tick("me")
    assert sorted(store.queue("default")) == sorted(job(name) for name in OTHERS if name != ill)
    assert store.ask("SMEMBERS", store.keys.rescues) == [ill.encode()]
    assert [facts["part"] for facts in heard["part_failed"]] == ["lifeline"]
    monkeypatch.setattr(lifeline, "charge_held", charge)
    line.tick("me")
    assert sorted(store.queue("default")) == sorted(job(name) for name in OTHERS)
    assert store.ask("HGET", store.keys.deaths, ill).count(b"its host is gone") == 1
    assert not store.ask("EXISTS", store.keys.rescues)


def test_who_looks_after_the_dead_is_followed_soon(app: App, store: Store, redis_url: str) -> None:
    """1.5: at once when it leaves; after two beats, and 6 s at least, when it dies."""
    app.job(name="nothing")(lambda: None)
    with working(app):
        until(lambda: store.ask("EXISTS", store.keys.lifeline), "it looks after the dead")
        assert store.ask("PTTL", store.keys.lifeline) <= 6000
    assert not store.ask("EXISTS", store.keys.lifeline)
    slow = App(redis_url=redis_url, lease=90, heartbeat=30)  # so that it does not run out beneath this test
    Lifeline(slow).tick("me")
    line = Lifeline(slow)
    line.tick("another")
    line.let_go()
    assert store.ask("GET", store.keys.lifeline) == b"me", "who does not, takes it from nobody"
    slow.close()


def test_beats_that_are_far_apart_are_no_broken_contact(
    redis_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5: with a lease of two minutes a beat may take 40 s."""
    clock = [1000.0]
    monkeypatch.setattr(lifeline, "awake", lambda: clock[0])
    app = App(redis_url=redis_url, lease=120, heartbeat=40)
    corpse(store, job("a"))
    line = Lifeline(app)
    line.tick("me")
    assert store.ask("PTTL", store.keys.lifeline) > 45_000, "longer than a beat takes: two of them, 80 s"
    clock[0] += 40.0
    line.tick("me")
    assert store.queue("default") == [job("a")]
    app.close()


def test_a_rescue_that_came_to_nothing_leaves_no_note(app: App, store: Store) -> None:
    """2.2: who was begun to be rescued and lives is left alone, whether he was looked at once more or not."""
    corpse(store, job("a"), expired=False)
    assert bury_and_give_back(app, DEAD) is None
    assert not store.ask("EXISTS", store.keys.rescues)
    store.ask("SADD", store.keys.rescues, DEAD)  # who began it ended just then
    Lifeline(app).tick("me")
    assert not store.ask("EXISTS", store.keys.rescues)
    assert store.ask("LRANGE", store.keys.flight(DEAD, 1, "default"), 0, -1) == [job("a")]


def test_a_full_server_takes_a_rescue_too(app: App, store: Store) -> None:
    """2.2: without the note."""
    corpse(store, job("a"))
    heard = Heard(app, "part_failed")
    store.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        assert bury_and_give_back(app, DEAD) == 1
    finally:
        store.ask("CONFIG", "SET", "maxmemory", 0)
    assert "maxmemory" in str(heard["part_failed"][0]["error"])
    assert store.queue("default") == [job("a")]
