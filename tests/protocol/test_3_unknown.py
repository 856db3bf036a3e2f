"""PROTOCOL, section 3: a reply that was not read is unknown, not failed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from architecture.samples import SAMPLES
from henchman import App
from henchman.errors import ServerAway
from henchman.kernel import failpoints
from henchman.store import batches, jobs, ordered, ordered_people
from henchman.store.call import Call, load
from henchman.store.keys import Keys
from henchman.work.unit import Unit
from henchman.worker import acker, heart, session, watcher
from support.dead import job
from support.store import Store
from support.worker import Heard, in_flight, settled, until, working

NEVER = {
    *("jobs.fetch", "fair.fetch", "ordered.claim"),  # what it brought would be in nobody's hands
    *(
        "jobs.schedule",
        "ordered.push",
        "ordered.push_tracked",
        "batches.push",
    ),  # it would be there twice, or come again after it ran
    *("queues.clear", "ordered_people.act", "ordered_people.drop"),  # what came in meanwhile would be removed too
    *("batches.note", "batches.started"),  # each would be written down twice
    "history.trim",  # its bytes would be taken off twice
    "failures.group_errors",  # they would be counted twice
}
KEYS = Keys()


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, lease=5, heartbeat=0.2, concurrency=2)
    yield made
    failpoints.close()
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


def test_a_settling_that_gives_something_back_is_never_sent_again() -> None:
    """3.1: what came back may have been fetched anew by then, into the same list, and be running."""
    pairs = [(KEYS.in_flight("host:1:0123456789ab", 1, "a"), KEYS.queue("a"))]
    done, released = jobs.Settlement(1, b"1", "done"), jobs.Settlement(1, b"2", "released")
    limits: Any = {"lease_ms": 1, "day": "2026-01-01", "dead_max": 1, "dead_timeout": 1.0}
    assert not jobs.settle(KEYS, "host:1:0123456789ab", pairs, [done, released], **limits).again


@pytest.mark.parametrize("what", ["revive", "run", "purge", "kill", "delete"])
def test_what_removes_ids_is_never_sent_again(what: ordered_people.Act) -> None:
    """3.1: a payload that came in between the two would be removed unseen."""
    assert ordered_people.act(KEYS, "a", what, [b"1"]).again is (what in ("revive", "run"))


TWICE: dict[str, Callable[[Keys], Call[Any]]] = {
    **{name: samples[0] for name, samples in SAMPLES.items() if name not in NEVER},
    "ordered_people.act revive": lambda keys: ordered_people.act(keys, "a", "revive", [b"1", b"2"]),
    "ordered_people.act run": lambda keys: ordered_people.act(keys, "a", "run", [b"1", b"2"]),
    "batches.push lane": lambda keys: batches.push(
        keys, "b", "q", [batches.TrackedPush("t", "", b"{}", b"{}")], lane=("me", 1)
    ),
}


def something_is_there(store: Store) -> None:
    """An id that failed and one in the morgue, a batch with a dead job, a relay: what the samples act on."""
    store.ask("SET", store.keys.outbox_relay("o"), "host:1:0123456789ab")
    rows = [ordered.Push(name, "", "1", b"{}") for name in (b"1", b"2")]
    store.run(ordered.push(store.keys, "a", "min", rows))
    store.run(ordered_people.act(store.keys, "a", "kill", [b"2"]))
    store.run(batches.make(store.keys, "b", {"keep": "60", "results": "1"}, b"{}"))
    store.run(batches.push(store.keys, "b", "q", [batches.TrackedPush("a", "", b"1", b"{}")]))
    store.ask("ZADD", store.keys.batch("b") + ":dead", 1, b"1")


@pytest.mark.parametrize("name", TWICE)
def test_what_may_be_sent_again_changes_nothing_the_second_time(redis_url: str, name: str) -> None:
    """3.1: everything that is stored is the same after the second time (times and expiries aside)."""
    store = Store(redis_url)
    something_is_there(store)
    call = TWICE[name](store.keys)
    flight = store.keys.in_flight("host:1:0123456789ab", 1, "a")
    store.join("a", "b")
    store.ask("LPUSH", flight, b"{}", b"{2}")
    store.ask("ZADD", "retry", 1, b"1", 1, b"2", 1, b"3", 1, b"4")
    nothing_runs_out(store)
    store.run(call)
    nothing_runs_out(store)
    first = everything(store)
    store.run(call)
    assert everything(store) == first
    store.connections.close()


def nothing_runs_out(store: Store) -> None:
    """However long this test takes."""
    for key in store.all_keys():
        store.ask("PERSIST", key)


def everything(store: Store) -> dict[str, Any]:
    """What is stored, without counters that tell that something happened, without scores, and without the time."""
    read = {
        "list": lambda key: store.ask("LRANGE", key, 0, -1),
        "set": lambda key: sorted(store.ask("SMEMBERS", key)),
        "zset": lambda key: sorted(store.ask("ZRANGE", key, 0, -1)),
        "hash": lambda key: store.ask("HGETALL", key),
        "string": lambda key: b"",
    }
    telling = {store.keys.clock, store.keys.cancel_log}  # the time; what the counter of cancellations counted
    return {key: read[store.ask("TYPE", key).decode()](key) for key in sorted(store.all_keys() - telling)}


def test_an_unknown_fetch_raises_the_epoch_and_what_it_brought_comes_back(
    app: App, redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.2: a fresh connection, fresh lists; what the old ones hold goes to the right end, once."""
    monkeypatch.setattr(heart, "PULSE", 0.1)
    monkeypatch.setattr(session, "SETTLED", 0.5)
    ran: list[int] = []
    app.job(name="note")(lambda number: ran.append(number))  # type: ignore[misc]  # noqa: PLW0108 - jobs are functions
    heard = Heard(app, "swept", "server_away")
    monkeypatch.setattr(session.LeaseSession, "strays", lambda self: set())  # known at once, not found by a beat
    for number in range(6):
        app.enqueue("note", number)
    failpoints.open_points("drop@fetch:after#2", tmp_path)
    with working(app) as launcher:
        until(lambda: len(ran) == 6, "all ran")
        settled(redis, 6)
        until(lambda: heard["swept"], "the lost ones were found")
        assert launcher.session.epoch == 2
    assert sorted(ran) == list(range(6))
    assert len(list(tmp_path.iterdir())) == 1
    assert "fetch" in str(heard["server_away"][0]["error"])


def test_a_payload_of_ours_that_we_never_heard_of_is_found_logged_and_run(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.2: each beat compares; a lasting difference is reconciled."""
    monkeypatch.setattr(heart, "PULSE", 0.1)
    monkeypatch.setattr(session, "SETTLED", 0.5)
    app.configure(heartbeat=1.0)  # what is fetched just now is in hand before the second look
    ran: list[str] = []
    app.job(name="act")(lambda name: ran.append(name))  # type: ignore[misc]  # noqa: PLW0108 - jobs are functions
    heard = Heard(app, "drift", "swept")
    with working(app) as launcher:
        ours, doubt = launcher.session, launcher.session.doubt

        def seen_to() -> None:
            doubt()
            until(lambda: launcher.session.epoch == 2, "its lists are fresh")  # else the next beat finds it again

        monkeypatch.setattr(ours, "doubt", seen_to)
        redis.lpush(launcher.session.current["default"].key, job("stray"))
        until(lambda: ran == ["stray"], "it ran")
        until(lambda: not in_flight(redis), "settled")
    assert [facts["count"] for facts in heard["drift"]] == [1]
    assert [facts["count"] for facts in heard["swept"]] == [1]


def test_what_a_wait_brings_too_late_from_an_earlier_epoch_is_left_to_the_sweep(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.2: its list is swept by then: started here, it could be given to another at the same moment."""
    monkeypatch.setattr(heart, "PULSE", 0.1)
    monkeypatch.setattr(session, "SETTLED", 1.0)
    monkeypatch.setattr(watcher, "BLOCK", 60.0)  # it does not end beneath this test
    monkeypatch.setattr(watcher, "GRACE", 60.0)
    ran: list[int] = []
    app.job(name="note")(lambda number: ran.append(number))  # type: ignore[misc]  # noqa: PLW0108 - jobs are functions
    heard = Heard(app, "swept", "late")
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 1, "it waits")
        post = launcher.watcher._posts[0]
        waiting = post.armed
        launcher.session.doubt()
        until(lambda: launcher.session.epoch == 2, "the epoch is raised")
        assert post.armed == waiting, "under the first"
        post.armed_at -= watcher.BLOCK  # as if the network had stood still
        app.enqueue("note", 1)
        until(lambda: ran == [1], "it ran")
        settled(redis, 1)
        assert [facts["count"] for facts in heard["swept"]] == [1]
    assert not heard["late"]


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
    failpoints.open_points("drop@SADD:after")
    with pytest.raises(ServerAway, match="did not answer") as caught:
        app.enqueue("act", "a")
    assert caught.value.executed is None
    assert redis.llen("queue:default") == 1
    failpoints.open_points("drop@SADD:before")
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
    failpoints.open_points(points, tmp_path)
    with working(app) as launcher:
        app.enqueue("note")
        until(lambda: len(list(tmp_path.iterdir())) == 1 + points.count(","), "the answer was lost")
        settled(redis, 1)
        until(lambda: not launcher.session.held, "nothing is held")
    assert redis.get("stat:processed") == b"1"
    assert not heard["late"]
    assert [facts["part"] for facts in heard["server_back"] if facts["part"] == "acker"] == ["acker"] * points.count(
        ","
    )


class Loses:
    """Settles, but the first giving back goes as ``how`` says; a second word of it waits until the jobs have run."""

    def __init__(self, how: str, ran: Callable[[], bool]) -> None:
        self._how, self._ran = how, ran
        self._settle = session.settle_units
        self._given: set[Unit] = set()
        self.lost = threading.Event()

    def __call__(self, host: Any, identity: str, rows: Any) -> list[int | bytes]:
        given = {row[0] for row in rows if row[1] == "released"}
        if given & self._given and self._how == "answer lost":
            until(self._ran, "what went back has been fetched again, and has run")
        if given and not self.lost.is_set():
            self._given = given
            self.lost.set()
            if self._how == "answer lost":
                self._settle(host, identity, rows)
            raise ServerAway("lost by the test", executed=False if self._how == "never sent" else None)
        return self._settle(host, identity, rows)


@pytest.mark.parametrize(("how", "epoch"), [("answer lost", 2), ("lost on its way", 2), ("never sent", 1)])
def test_a_giving_back_that_was_not_heard_of_takes_nothing_away_later(
    redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch, how: str, epoch: int
) -> None:
    """3.1, 3.2: what this process fetched anew, and runs, is not given back by a second word of the first time."""
    monkeypatch.setattr(heart, "PULSE", 0.1)
    monkeypatch.setattr(session, "SETTLED", 0.5)
    monkeypatch.setattr(session.LeaseSession, "strays", lambda self: set())  # known at once, not found by a beat
    app = App(redis_url=redis_url, lease=5, heartbeat=0.2, concurrency=1)
    heard = Heard(app, "late", "part_failed")
    ran: Counter[int] = Counter()
    held, release = threading.Event(), threading.Event()

    @app.job(name="step")
    def step(number: int) -> None:
        if number == 50:
            held.set()
            release.wait(120)
        ran[number] += 1

    loses = Loses(how, lambda: len(ran) == 60)
    monkeypatch.setattr(acker, "settle_units", loses)
    step.enqueue_many([(number,) for number in range(50)])  # they are short, and so the next are fetched ahead
    with working(app) as launcher:
        settled(redis, 50)
        step.enqueue_many([(number,) for number in range(50, 60)])
        until(held.is_set, "one of them takes its time")
        until(loses.lost.is_set, "the others go back")
        release.set()
        settled(redis, 60)
        until(lambda: not launcher.session.held, "nothing is held")
        assert launcher.session.epoch == epoch
    assert set(ran.values()) == {1}, ran
    assert not redis.llen("queue:default")
    assert not [*heard["late"], *heard["part_failed"]]
    app.close()
