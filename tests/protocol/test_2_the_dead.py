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
from henchman.store import jobs, leases
from henchman.store.jobs import Settlement
from henchman.worker import rescue, session, watcher
from henchman.worker.heart import Heart
from henchman.worker.rescue import Lifeline
from support.dead import DEAD, Spy, corpse, entomb_and_rescue, job
from support.distant import Distant
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
    monkeypatch.setattr(watcher, "BLOCK", 0.1)
    app = App(redis_url=redis_url, lease=90, heartbeat=0.5)
    app.job(name="nothing")(lambda: None)
    refused, heard, told = threading.Event(), Heard(app, "beat"), list[str]()

    def unreachable(call: Any) -> None:
        if refused.is_set() and call.name in ("fetch", "renew"):
            told.extend([call.name] if call.name == "fetch" else [])
            raise ServerAway("as told", executed=False)

    with Spy(app, unreachable), working(app) as launcher:
        until(lambda: heard["beat"] and launcher.watcher.armed, "it waits")
        refused.set()
        launcher.fetcher.look()  # an idle one looks every 30 s
        until(lambda: told, "a fetch was refused: none is on its way any more that would renew")
        launcher.session.valid_until = awake() + launcher.session.lease - 30.2  # a third of the lease is 30
        until(lambda: not launcher.watcher.armed, "the wait ended")
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            launcher.watcher.arm()
            assert not launcher.watcher.armed
        refused.clear()
        launcher.session.renew()
        launcher.watcher.arm()
        until(lambda: launcher.watcher.armed, "it waits again")


def test_a_rescue_begins_with_a_tombstone(app: App, store: Store) -> None:
    """2.2: before anything of it is looked at or moved."""
    corpse(store, job("a"))

    def buried(call: Any) -> None:
        if call.name in ("charge", "give_back", "LRANGE", "SMEMBERS"):
            assert store.ask("EXISTS", store.keys.tomb(DEAD)), call

    with Spy(app, buried) as spy:
        assert entomb_and_rescue(app, DEAD) == (1, None)
    assert {"charge", "give_back"} <= set(spy.names())


def test_what_the_buried_say_is_answered_lost(store: Store) -> None:
    """2.2: fetch, ack, renew; taking the name anew too."""
    store.join("a")
    store.push("a", b"1", b"2")
    store.fetch("a", count=1)
    store.run(leases.entomb(store.keys, ME, force=True))
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


@pytest.mark.parametrize(
    "error",
    [ServerAway("as told", executed=False), ServerError("as told"), LeaseLost("as told")],
    ids=lambda one: type(one).__name__,
)
def test_a_lease_that_cannot_be_taken_again_at_once_ends_no_fetching(
    app: App, redis: Redis, store: Store, error: Exception
) -> None:
    """2.2: what a fetch is answered is renewed, and that may fail like anything else: away, refused, buried by now."""
    ran, left = [], [error]
    app.job(name="work")(lambda: ran.append(True))

    def lapse(call: Any) -> None:
        if not left or threading.current_thread().name != "henchman-fetcher":
            return
        if call.name == "fetch":
            redis.delete(store.keys.lease(launcher.session.identity))
        elif call.name == "renew":
            raise left.pop()

    with working(app) as launcher, Spy(app, lapse):
        while left:
            launcher.fetcher.look()
            time.sleep(0.01)
        app.enqueue("work")
        until(lambda: ran, "it fetches on")
        assert launcher.fetcher.alive


def test_lists_of_the_dead_are_swept_until_they_were_empty_for_an_hour(app: App, store: Store) -> None:
    """2.3: at every tick; none is forgotten at its first empty look, and what comes late starts the hour anew."""
    corpse(store)
    store.run(leases.entomb(store.keys, DEAD, force=False))
    line, flight, tomb = Lifeline(app), store.keys.in_flight(DEAD, 1, "default"), store.keys.tomb(DEAD)

    def an_hour_passes() -> None:
        store.ask("ZADD", store.keys.tombs, store.now() - 3601, DEAD)
        store.ask("PEXPIRE", tomb, 60_000)

    line.look()  # empty
    store.ask("LPUSH", flight, job("a"))  # written before its kill, delivered after it
    line.look()
    assert store.queue("default") == [job("a")]

    an_hour_passes()
    store.ask("LPUSH", flight, job("b"))
    line.look()
    assert store.queue("default") == [job("b"), job("a")]
    line.look()
    assert store.members(store.keys.tombs) == [DEAD.encode()], "not empty for an hour yet"
    assert store.ask("PTTL", tomb) > 3_590_000, "it is dead for as long as it is swept"

    an_hour_passes()
    line.look()
    assert not store.ask("EXISTS", store.keys.tombs, store.keys.lists_of(DEAD))
    assert store.ask("EXISTS", tomb), "and a little longer"


def test_what_reaches_the_dead_in_the_moment_in_which_they_are_forgotten_is_swept(app: App, store: Store) -> None:
    """2.3: without its mark the name was rescued like one that had just died, and the job charged with a death."""
    corpse(store)
    store.run(leases.entomb(store.keys, DEAD, force=True))
    line, flight = Lifeline(app), store.keys.in_flight(DEAD, 1, "default")
    store.ask("ZADD", store.keys.tombs, store.now() - 3601, DEAD)
    store.ask("LPUSH", flight, job("late"))
    line._sweep_one(DEAD, store.now() - 3601, [flight], [])  # it looked before that
    assert store.members(store.keys.tombs) == [DEAD.encode()]
    line.look()
    assert store.queue("default") == [job("late")]
    assert store.run(jobs.deaths(store.keys, "late")) == []


def test_the_many_dead_of_an_hour_take_no_look_each(app: App, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.3: found by half an hour of chaos: the sweep took longer than contact may be broken, and nobody was rescued."""
    monkeypatch.setattr(rescue, "WATCH", 0.0)
    for number in range(300):
        name = f"host:{number}:abcdefabcdef"
        store.ask("ZADD", store.keys.identities, 1.0, name)
        store.run(leases.entomb(store.keys, name, force=True))
        store.ask("SADD", store.keys.lists_of(name), *(store.keys.in_flight(name, epoch, "q") for epoch in range(30)))
    store.ask("LPUSH", store.keys.in_flight("host:7:abcdefabcdef", 29, "q"), job("late"))
    corpse(store, job("a"))
    line = Lifeline(app)
    with Spy(app) as spy:
        line.look()
    assert len(spy.calls) < 60, "for 9,000 lists"
    assert store.queue("q") == [job("late")]
    assert store.queue("default") == [job("a")]


def test_a_tomb_stands_for_as_long_as_its_lists_are_swept(store: Store) -> None:
    """2.3: else a frozen process could take its old name again while its lists are still emptied under its hands."""
    corpse(store)
    store.run(leases.entomb(store.keys, DEAD, force=False))
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

    assert store.ask("LRANGE", store.keys.in_flight(other, 1, "a"), 0, -1) == [b"1"]
    assert not store.ask("EXISTS", "retry", "dead", "schedule", "queue:a", "stat:processed")
    assert store.members("hm:cancelled") == [b"j"]


@pytest.mark.parametrize("step", ["SMEMBERS", "charge", "give_back", "SREM"])
@pytest.mark.parametrize("who", ["the same after an outage", "another after a crash"])
def test_a_rescue_that_was_broken_off_is_ended_by_the_next_tick(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch, step: str, who: str
) -> None:
    """2.2: buried, and then the server was lost: its work goes back, and its death is charged, once."""
    monkeypatch.setattr(rescue, "WATCH", 0.0)
    corpse(store, job("a"), job("b"))
    line = Lifeline(app)

    def lost(call: Any) -> None:
        if call.name == step and store.ask("EXISTS", store.keys.tomb(DEAD)):
            raise ServerAway("as told")

    with Spy(app, lost), pytest.raises(ServerAway):
        line.look()
    assert store.ask("SMEMBERS", store.keys.rescues) == [DEAD.encode()]
    heard = Heard(app, "rescued")
    if who.startswith("another"):
        store.ask("DEL", store.keys.lifeline)  # its turn has run out
        line = Lifeline(app)
    line.look()
    assert sorted(store.queue("default")) == [job("a"), job("b")]
    for jid in ("a", "b"):
        assert store.ask("HGET", store.keys.deaths, jid).count(b"its host is gone") == 1
    assert heard["rescued"]
    assert not store.ask("EXISTS", store.keys.rescues, store.keys.in_flight(DEAD, 1, "default"))


OTHERS = ["host:2:dead00000000", "host:0:dead00000000", "host:3:dead00000000"]


def see_them_die(store: Store, line: Lifeline, clock: list[float]) -> None:
    """One after the other; for the next look all of them have been dead for long enough."""
    for name in OTHERS:
        corpse(store, job(name), identity=name)
        line.look()
        clock[0] += 2.0
    for pause in (4.0, 5.0, 5.0):
        line.look()
        clock[0] += pause


def test_all_who_are_dead_are_buried_before_the_first_is_rescued_the_longest_dead_first(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5, 2.2: their deaths were established; when the server is lost then, none of them has to be watched anew."""
    clock = [1000.0]
    monkeypatch.setattr(rescue, "awake", lambda: clock[0])
    line = Lifeline(app)
    see_them_die(store, line, clock)
    heard = Heard(app, "rescued")

    def lost(call: Any) -> None:
        if call.name == "give_back":
            assert {store.ask("EXISTS", store.keys.tomb(name)) for name in OTHERS} == {1}
            raise ServerAway("as told")

    with Spy(app, lost), pytest.raises(ServerAway):
        line.look()
    assert not heard["rescued"]
    store.ask("DEL", store.keys.lifeline)
    Lifeline(app).look()
    assert sorted(store.queue("default")) == sorted(job(name) for name in OTHERS)
    assert not store.ask("EXISTS", store.keys.rescues)


def test_the_longest_dead_is_rescued_first(app: App, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5"""
    clock = [1000.0]
    monkeypatch.setattr(rescue, "awake", lambda: clock[0])
    heard = Heard(app, "rescued")
    line = Lifeline(app)
    see_them_die(store, line, clock)
    line.look()
    assert [facts["identity"] for facts in heard["rescued"]] == OTHERS


@pytest.mark.parametrize("trouble", [ServerError("WRONGTYPE as told"), OverflowError("as told")])
def test_one_who_cannot_be_rescued_does_not_hold_up_the_others(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    """2.2: nor their sweeping; his own goes on as soon as it can, charged once."""
    monkeypatch.setattr(rescue, "WATCH", 0.0)
    heard = Heard(app, "part_failed")
    for name in OTHERS:
        corpse(store, job(name), identity=name)
    ill, charge = OTHERS[1], rescue.charge

    def charges(host: Any, identity: str, *args: Any, **how: Any) -> list[str]:
        if identity == ill:
            raise trouble
        return charge(host, identity, *args, **how)

    line = Lifeline(app)
    monkeypatch.setattr(rescue, "charge", charges)
    line.look()
    assert sorted(store.queue("default")) == sorted(job(name) for name in OTHERS if name != ill)
    assert store.ask("SMEMBERS", store.keys.rescues) == [ill.encode()]
    assert [facts["part"] for facts in heard["part_failed"]] == ["lifeline"]
    monkeypatch.setattr(rescue, "charge", charge)
    line.look()
    assert sorted(store.queue("default")) == sorted(job(name) for name in OTHERS)
    assert store.ask("HGET", store.keys.deaths, ill).count(b"its host is gone") == 1
    assert not store.ask("EXISTS", store.keys.rescues)


def test_a_broken_list_of_a_dead_process_does_not_hold_up_its_others(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2.2: neither at the rescue nor at the sweeps after it; the list that is broken goes back when it is mended."""
    monkeypatch.setattr(rescue, "WATCH", 0.0)
    heard = Heard(app, "part_failed", "rescued")
    corpse(store, job("a"))
    broken, late = store.keys.in_flight(DEAD, 1, "broken"), store.keys.in_flight(DEAD, 2, "default")
    store.ask("SADD", store.keys.lists_of(DEAD), broken, late)
    store.ask("SET", broken, "no list")
    line = Lifeline(app)
    line.look()
    assert store.queue("default") == [job("a")]
    assert store.ask("SMEMBERS", store.keys.rescues) == [DEAD.encode()], "it is tried again"
    assert "WRONGTYPE" in str(heard["part_failed"][0]["error"])
    store.ask("DEL", store.keys.rescues)
    store.ask("LPUSH", late, job("b"))
    line.look()
    assert store.queue("default") == [job("b"), job("a")], "swept"
    store.ask("SADD", store.keys.rescues, DEAD)
    store.ask("DEL", broken)
    store.ask("LPUSH", broken, job("c"))
    line.look()
    assert store.queue("broken") == [job("c")]
    assert not store.ask("EXISTS", store.keys.rescues)
    assert [facts["count"] for facts in heard["rescued"]] == [1, 1, 1]


def test_who_looks_after_the_dead_is_followed_soon(app: App, store: Store) -> None:
    """1.5: at once when it leaves; after 3 s when it dies, and whoever waits for that comes back just then."""
    app.job(name="nothing")(lambda: None)
    with working(app):
        until(lambda: store.ask("EXISTS", store.keys.lifeline), "it looks after the dead")
        assert store.ask("PTTL", store.keys.lifeline) <= 3000
    assert not store.ask("EXISTS", store.keys.lifeline)
    first = Lifeline(app)
    first.look()
    store.ask("PEXPIRE", store.keys.lifeline, 90_000)  # so that it does not run out beneath this test
    line = Lifeline(app)
    assert line.look() <= 3.1
    line.stop()
    assert store.ask("GET", store.keys.lifeline) == first.leader.identity.encode(), "who does not, takes it from nobody"
    store.ask("PEXPIRE", store.keys.lifeline, 400)
    assert line.look() < 0.5


def test_a_look_that_takes_long_keeps_its_turn(app: App, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5: a server that is far away: else each would begin to watch anew, for ever."""
    clock = [1000.0]
    monkeypatch.setattr(rescue, "awake", lambda: clock[0])
    line = Lifeline(app)
    rescue_all = line._entomb_and_rescue

    def slow(seen: leases.Watch, now: float) -> set[str]:
        clock[0] += 4.0
        return rescue_all(seen, now)

    monkeypatch.setattr(line, "_entomb_and_rescue", slow)
    line.look()
    line.look()
    assert store.ask("PTTL", store.keys.lifeline) > 10_000


@pytest.mark.parametrize("heartbeat", [60.0, 0.5])
def test_rescue_waits_for_no_beat(
    redis_url: str, store: Store, monkeypatch: pytest.MonkeyPatch, heartbeat: float
) -> None:
    """1.5: neither for one that comes once a minute, nor for one that takes longer than contact may be broken."""
    monkeypatch.setattr(rescue, "WATCH", 1.0)
    rescue_seen = threading.Event()
    monkeypatch.setattr(Heart, "beat", lambda self: rescue_seen.wait(30))
    app = App(redis_url=redis_url, lease=180, heartbeat=heartbeat)
    corpse(store, job("a"))
    rescued = Heard(app, "rescued")
    with working(app, start=False) as launcher:
        launcher.start()
        until(lambda: rescued["rescued"], "it was rescued", 20)
        rescue_seen.set()
        assert store.ask("PTTL", store.keys.lease(launcher.session.identity)) > 100_000


def test_one_look_and_one_beat_take_as_many_calls_for_a_hundred_queues_as_for_one(
    redis_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5: with 100 queues and a server 100 ms away a beat took more than 12 s, and nobody was ever rescued."""
    monkeypatch.setattr(rescue, "WATCH", 0.0)
    for number in range(40):
        name = f"host:{number}:abcdefabcdef"
        store.join(*(f"q{n}" for n in range(100)), identity=name)
    corpse(store, job("a"))
    queues = [f"q{n}" for n in range(99)] + ["default"]
    app = App(redis_url=redis_url, queues=queues, lease=120)
    with working(app, start=False) as launcher:
        launcher.session.join()
        launcher.session.doubt()
        launcher.session.settle_doubts()
        monkeypatch.setattr(session, "SETTLED", 0.0)
        with Spy(app) as spy:
            launcher.heart.beat()
        assert len(spy.calls) < 15, spy.names()
        with Spy(app) as spy:
            launcher.lifeline.look()
        assert len(spy.calls) < 25, spy.names()
        for one in (launcher.watcher._selector, launcher.watcher._bell, launcher.watcher._ring):
            one.close()  # it was never started
    assert store.queue("default") == [job("a")]


def test_from_afar_the_dead_are_rescued_too(redis_url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5: a hundred queues, 150 ms for each round trip."""
    monkeypatch.setattr(rescue, "WATCH", 2.0)
    corpse(store, job("a"))
    queues = [f"q{n}" for n in range(99)] + ["default"]
    with Distant(redis_url, 0.075) as afar:
        app = App(redis_url=afar.url, queues=queues)
        app.job(name="act")(lambda name: None)
        with working(app):
            until(lambda: store.ask("GET", "stat:processed"), "it was rescued, and ran", 60)
            afar.seconds = 0.0  # the worker's end asks for each queue
    assert not store.ask("EXISTS", store.keys.in_flight(DEAD, 1, "default"))


def test_a_rescue_that_came_to_nothing_leaves_no_note(app: App, store: Store) -> None:
    """2.2: who was begun to be rescued and lives is left alone, whether he was looked at once more or not."""
    corpse(store, job("a"), expired=False)
    assert entomb_and_rescue(app, DEAD) is None
    assert not store.ask("EXISTS", store.keys.rescues)
    store.ask("SADD", store.keys.rescues, DEAD)  # who began it ended just then
    Lifeline(app).look()
    assert not store.ask("EXISTS", store.keys.rescues)
    assert store.ask("LRANGE", store.keys.in_flight(DEAD, 1, "default"), 0, -1) == [job("a")]


def test_a_full_server_takes_a_rescue_too(app: App, store: Store) -> None:
    """2.2: without the note."""
    corpse(store, job("a"))
    heard = Heard(app, "part_failed")
    store.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        assert entomb_and_rescue(app, DEAD) == (1, None)
    finally:
        store.ask("CONFIG", "SET", "maxmemory", 0)
    assert "maxmemory" in str(heard["part_failed"][0]["error"])
    assert store.queue("default") == [job("a")]
