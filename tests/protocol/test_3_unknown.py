"""PROTOCOL, section 3: a reply that was not read is unknown, not failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from architecture.samples import SAMPLES
from henchman import App
from henchman.errors import ServerAway
from henchman.kernel import faults
from henchman.store import batches, jobs, ordered, ordered_acts
from henchman.store.call import Call
from henchman.store.keys import Keys
from henchman.store.scripts import load
from henchman.worker import flights, heart, watcher
from support.dead import job
from support.store import Store
from support.worker import Heard, in_flight, settled, until, working

NEVER = {
    *("jobs.fetch", "ordered.claim"),  # what it brought would be in nobody's hands
    *("jobs.schedule", "ordered.push", "batches.push"),  # it would be there twice, or come again after it ran
    *("queues.clear", "ordered_acts.act"),  # what came in meanwhile would be removed too
    *("batches.note", "batches.started"),  # each would be written down twice
}
KEYS = Keys()


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, lease=5, heartbeat=0.2, concurrency=2)
    yield made
    faults.close()
    made.close()


@pytest.mark.parametrize("name", SAMPLES)
def test_which_calls_may_be_sent_again(name: str) -> None:
    """3.1: never what would happen twice."""
    for sample in SAMPLES[name]:
        assert sample(KEYS).again is (name not in NEVER), name


def test_a_push_is_never_sent_again() -> None:
    """3.1"""
    assert not jobs.push(KEYS, "a", b"1").again
    assert not jobs.push_many(KEYS, "a", [b"1"]).again


def test_a_push_through_a_lane_may_be_sent_again() -> None:
    """3.1, 3.3: the turn tells the second time from the next one; a job that is in no batch has no lane."""
    jobs = [batches.TrackedPush("a", "", b"{}", b"{}")]
    assert batches.push(KEYS, "b", "q", jobs, lane=("me", 1)).again
    assert not batches.push(KEYS, "", "q", jobs, lane=("me", 1)).again


@pytest.mark.parametrize("what", ["revive", "run", "bury", "kill", "delete"])
def test_what_removes_ids_is_never_sent_again(what: ordered_acts.Act) -> None:
    """3.1: a payload that came in between the two would be removed unseen."""
    assert ordered_acts.act(KEYS, "a", what, [b"1"]).again is (what in ("revive", "run"))


TWICE: dict[str, Callable[[Keys], Call[Any]]] = {
    **{name: samples[0] for name, samples in SAMPLES.items() if name not in NEVER},
    "ordered_acts.act revive": lambda keys: ordered_acts.act(keys, "a", "revive", [b"1", b"2"]),
    "ordered_acts.act run": lambda keys: ordered_acts.act(keys, "a", "run", [b"1", b"2"]),
    "batches.push lane": lambda keys: batches.push(
        keys, "b", "q", [batches.TrackedPush("t", "", b"{}", b"{}")], lane=("me", 1)
    ),
}


def something_is_there(store: Store) -> None:
    """An id that failed and one in the morgue, a batch with a dead job: what the samples act on."""
    rows = [ordered.Push(name, "", "1", b"{}") for name in (b"1", b"2")]
    store.run(ordered.push(store.keys, "a", "min", rows))
    store.run(ordered_acts.act(store.keys, "a", "kill", [b"2"]))
    store.run(batches.make(store.keys, "b", {"keep": "60"}, b"{}"))
    store.run(batches.push(store.keys, "b", "q", [batches.TrackedPush("a", "", b"1", b"{}")]))
    store.ask("ZADD", store.keys.batch("b") + ":dead", 1, b"1")


@pytest.mark.parametrize("name", TWICE)
def test_what_may_be_sent_again_changes_nothing_the_second_time(redis_url: str, name: str) -> None:
    """3.1: everything that is stored is the same after the second time (times and expiries aside)."""
    store = Store(redis_url)
    something_is_there(store)
    call = TWICE[name](store.keys)
    flight = store.keys.flight("host:1:0123456789ab", 1, "a")
    store.join("a", "b")
    store.ask("LPUSH", flight, b"{}", b"{2}")
    store.ask("ZADD", "retry", 1, b"1", 1, b"2", 1, b"3", 1, b"4")
    store.run(call)
    first = everything(store)
    store.run(call)
    assert everything(store) == first
    store.connections.close()


def everything(store: Store) -> dict[str, Any]:
    """What is stored, without counters that tell that something happened and without scores."""
    read = {
        "list": lambda key: store.ask("LRANGE", key, 0, -1),
        "set": lambda key: sorted(store.ask("SMEMBERS", key)),
        "zset": lambda key: sorted(store.ask("ZRANGE", key, 0, -1)),
        "hash": lambda key: store.ask("HGETALL", key),
        "string": lambda key: b"",
    }
    return {key: read[store.ask("TYPE", key).decode()](key) for key in sorted(store.all_keys())}


def test_an_unknown_fetch_raises_the_epoch_and_what_it_brought_comes_back(
    app: App, redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.2: a fresh connection, fresh lists; what the old ones hold goes to the right end, once."""
    monkeypatch.setattr(heart, "PULSE", 0.1)
    monkeypatch.setattr(flights, "SETTLED", 0.5)
    ran: list[int] = []
    app.job(name="note")(lambda number: ran.append(number))  # type: ignore[misc]  # noqa: PLW0108 - jobs are functions
    heard = Heard(app, "swept", "server_away")
    monkeypatch.setattr(flights.Flights, "strays", lambda self: set())  # known at once, not found by a beat
    for number in range(6):
        app.enqueue("note", number)
    faults.open_points("drop@fetch:after#2", tmp_path)
    with working(app) as launcher:
        until(lambda: len(ran) == 6, "all ran")
        settled(redis, 6)
        until(lambda: heard["swept"], "the lost ones were found")
        assert launcher.flights.epoch == 2
    assert sorted(ran) == list(range(6))
    assert len(list(tmp_path.iterdir())) == 1
    assert "fetch" in str(heard["server_away"][0]["error"])


def test_a_payload_of_ours_that_we_never_heard_of_is_found_logged_and_run(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.2: each beat compares; a lasting difference is reconciled."""
    monkeypatch.setattr(heart, "PULSE", 0.1)
    monkeypatch.setattr(flights, "SETTLED", 0.5)
    ran: list[str] = []
    app.job(name="act")(lambda name: ran.append(name))  # type: ignore[misc]  # noqa: PLW0108 - jobs are functions
    heard = Heard(app, "drift", "swept")
    with working(app) as launcher:
        redis.lpush(launcher.flights.current["default"].key, job("stray"))
        until(lambda: ran == ["stray"], "it ran")
        until(lambda: not in_flight(redis), "settled")
    assert [facts["count"] for facts in heard["drift"]] == [1]
    assert [facts["count"] for facts in heard["swept"]] == [1]


def test_a_wait_is_read_for_its_own_time_and_5_s_more(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.2"""
    limits: list[float | None] = []
    opened = app.connections.open
    monkeypatch.setattr(app.connections, "open", lambda limit=None: limits.append(limit) or opened(limit))
    app.job(name="nothing")(lambda: None)
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed, "it waits")
    assert watcher.BLOCK + 5 in limits


def test_an_unknown_push_is_told_as_such(app: App, redis: Redis) -> None:
    """3.3: it may have been executed, and it is not sent again."""
    faults.open_points("drop@SADD:after")
    with pytest.raises(ServerAway, match="did not answer") as caught:
        app.enqueue("act", "a")
    assert caught.value.executed is None
    assert redis.llen("queue:default") == 1
    faults.open_points("drop@SADD:before")
    with pytest.raises(ServerAway) as caught:
        app.enqueue("act", "b")
    assert redis.llen("queue:default") == 1


@pytest.mark.parametrize("points", ["drop@settle:after", "drop@settle:after,drop@settle:before#2"])
def test_a_settling_that_was_executed_and_not_heard_of_is_not_late(
    app: App, redis: Redis, tmp_path: Path, points: str
) -> None:
    """3.1: sent again, by the runner or, when that fails too, by the acker: it finds nothing, and that is no wonder."""
    heard = Heard(app, "late", "server_back")
    app.job(name="note")(lambda: None)
    redis.script_load(load("settle").text)  # so that the first passing is the one that executes it
    app.connections  # noqa: B018 - connects before the points are open
    faults.open_points(points, tmp_path)
    with working(app) as launcher:
        app.enqueue("note")
        until(lambda: len(list(tmp_path.iterdir())) == 1 + points.count(","), "the answer was lost")
        settled(redis, 1)
        until(lambda: not launcher.flights.held, "nothing is held")
    assert redis.get("stat:processed") == b"1"
    assert not heard["late"]
    assert [facts["part"] for facts in heard["server_back"] if facts["part"] == "acker"] == ["acker"] * points.count(
        ","
    )
