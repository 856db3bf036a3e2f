"""Jobs with a key in a worker: one at a time, in their order, whatever happens to the worker; and nothing is left."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from henchman import App, Failure, Snooze, current_job
from henchman.errors import LeaseLost
from henchman.kernel import failpoints
from henchman.store import jobs, leases, locks
from henchman.store.locks import ClaimAnswer, Claimant
from henchman.worker import rescue
from henchman.worker.claim import IGNORED
from support.locks import KEY, OTHER, OURS, SCOPE, holder, job, left_of_keys, lock, park, waiting
from support.store import ME, Store
from support.worker import Heard, overdue, until, working


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, queues=("a",), concurrency=4)
    yield made
    made.close()


def jid(number: int) -> str:
    return f"{number:024x}"


def pushed(store: Store, *payloads: bytes) -> None:
    """As a push leaves them: the locks of what waits are taken."""
    for payload in payloads:
        said = json.loads(payload)
        scope, key, phases = said["hm"]["key"]
        for phase in set(phases) - {"r"}:
            lock(store, phase, said["jid"], key=key, scope=scope)
    store.push("a", *payloads)


def ended(store: Store) -> bool:
    """No job waits or is in flight: one look at all keys, since a job passes from one place to another meanwhile."""
    return not any(one in ("queue:a", "retry", "schedule") or one.startswith("hm:flight:") for one in store.all_keys())


def nothing_left(store: Store) -> None:
    until(lambda: ended(store), "every job has ended")
    until(lambda: not left_of_keys(store), "and its key is free")
    assert not store.ask("EXISTS", store.keys.broken)


class Spans:
    """Who ran when, by key; ``most``: how many at once with one key."""

    def __init__(self) -> None:
        self.order: dict[str, list[str]] = {}
        self.most = 0
        self._now: dict[str, int] = {}
        self._lock = threading.Lock()

    def job(self) -> Callable[[str], None]:
        """The function of a job."""

        def act(key: str) -> None:
            self.run(key)

        return act

    def run(self, key: str, seconds: float = 0.002) -> None:
        with self._lock:
            self.order.setdefault(key, []).append(current_job().jid)
            self._now[key] = self._now.get(key, 0) + 1
            self.most = max(self.most, self._now[key])
        time.sleep(seconds)
        with self._lock:
            self._now[key] -= 1


class TestRunning:
    def test_one_at_a_time_in_the_order_of_the_queue(self, store: Store, app: App) -> None:
        spans = Spans()
        app.job(name="m.f")(spans.job())
        pushed(store, *(job(jid(number), "r", key=f"k{number % 3}", args=[f"k{number % 3}"]) for number in range(60)))
        with working(app):
            nothing_left(store)
        assert spans.most == 1
        assert spans.order == {f"k{one}": [jid(number) for number in range(one, 60, 3)] for one in range(3)}
        assert int(store.ask("GET", "stat:processed")) == 60

    def test_two_workers_never_run_one_key_together(self, store: Store, app: App, redis_url: str) -> None:
        spans, other = Spans(), App(redis_url=redis_url, queues=("a",), concurrency=4)
        for one in (app, other):
            one.job(name="m.f")(spans.job())
        pushed(store, *(job(jid(number), "r", args=["k"]) for number in range(60)))
        with working(app), working(other):
            nothing_left(store)
        assert spans.most == 1
        assert sorted(spans.order["k"]) == [jid(number) for number in range(60)]

    @pytest.mark.parametrize("how", [Failure("no"), Snooze(0.01), ValueError("x")])
    def test_the_next_runs_while_the_first_waits_for_its_next_try(self, store: Store, app: App, how: Exception) -> None:
        ran: list[str] = []

        @app.job(name="m.f", retry_in=0.05)
        def act(first: bool) -> None:
            ran.append(current_job().jid)
            if first and len(ran) == 1:
                raise how

        pushed(store, job(jid(1), "r", args=[True]), job(jid(2), "r", args=[False]))
        with working(app):
            nothing_left(store)
        again = [] if isinstance(how, Failure) else [jid(1)]
        assert ran == [jid(1), jid(2), *again]

    def test_one_that_is_not_to_wait_ends(self, store: Store, app: App) -> None:
        app.job(name="m.f")(lambda: None)
        heard = Heard(app, "job_refused")
        lock(store, "r", OTHER)
        pushed(store, job(OURS, "r", hm={"conflict": "skip"}))
        with working(app):
            until(lambda: ended(store), "it has ended")
        assert holder(store, "r") == OTHER
        (said,) = heard["job_refused"]
        assert said["outcome"].ending == "discarded"
        assert OTHER in said["outcome"].reason

    def test_a_token_rises_with_each_start(self, store: Store, app: App) -> None:
        tokens: list[int | None] = []
        app.job(name="m.f")(lambda: tokens.append(current_job().token))
        pushed(store, *(job(jid(number), "r") for number in range(5)))
        with working(app):
            nothing_left(store)
        known = [one for one in tokens if one is not None]
        assert len(known) == 5
        assert known == sorted(set(known))

    def test_jobs_without_a_key_ask_nothing(self, store: Store, app: App) -> None:
        app.job(name="plain")(lambda: None)
        app.registry.get("plain").using(expires=60).enqueue()  # type: ignore[attr-defined]
        calls: list[str] = []
        real = app.connections.run
        app.connections.run = lambda call: (calls.append(call.name), real(call))[1]  # type: ignore[method-assign]
        store.push("a", b'{"class":"plain","args":[],"jid":"1"}', b'{"class":"plain","args":[],"hm":{"expires":9}}')
        with working(app) as launcher:
            until(lambda: ended(store), "they have run")
            assert not launcher.processor.reader.keyed
        assert "claim" not in calls


class TestQueued:
    def test_its_lock_falls_before_its_handler_begins(self, store: Store, app: App) -> None:
        found: list[Any] = []
        app.job(name="m.f")(lambda: found.append((holder(store, "w"), holder(store, "r"))))
        pushed(store, job(OURS, "wr"))
        with working(app):
            nothing_left(store)
        assert found == [(None, OURS)]

    def test_while_it_waits_in_line_it_still_waits(self, store: Store, app: App) -> None:
        app.job(name="m.f")(lambda: None)
        lock(store, "r", OTHER)
        pushed(store, job(OURS, "wr"))
        with working(app):
            until(lambda: waiting(store) == [OURS], "it is parked")
            assert holder(store, "w") == OURS, "a push in this moment is refused, or replaces its arguments"
            status = app.job_status(OURS)
            assert status.state == "blocked"
            assert OTHER in status.text
            assert store.run(locks.unlock(store.keys, "r", SCOPE, KEY, OTHER))
            nothing_left(store)

    def test_it_starts_with_the_newest_arguments(self, store: Store, app: App) -> None:
        ran: list[Any] = []
        app.job(name="m.f")(lambda *args: ran.append(args))
        pushed(store, job(OURS, "w", args=[1]))
        store.ask("HSET", store.keys.latest, OURS, job(OURS, "w", args=[2, "new"]))
        status = app.job_status(OURS)
        assert "newer arguments" in status.text
        with working(app):
            nothing_left(store)
        assert ran == [(2, "new")]

    @pytest.mark.parametrize("how", [ValueError("x"), Snooze(0.01)])
    def test_a_retry_is_stored_with_them(self, store: Store, app: App, how: Exception) -> None:
        ran: list[Any] = []

        @app.job(name="m.f", retry_in=0.05)
        def act(number: int) -> None:
            ran.append((number, store.ask("HEXISTS", store.keys.latest, OURS)))
            if len(ran) == 1:
                raise how

        pushed(store, job(OURS, "w", args=[1]))
        store.ask("HSET", store.keys.latest, OURS, job(OURS, "w", args=[2]))
        with working(app):
            nothing_left(store)
        assert ran == [(2, 1), (2, 0)], "they stay until they are stored"

    def test_what_nobody_can_read_changes_nothing(self, store: Store, app: App) -> None:
        ran: list[Any] = []
        app.job(name="m.f")(lambda *args: ran.append(args))
        pushed(store, job(OURS, "w", args=[1]))
        store.ask("HSET", store.keys.latest, OURS, b"{")
        with working(app):
            nothing_left(store)
        assert ran == [(1,)]


class TestClaim:
    """The call itself."""

    def claim(self, store: Store, *payloads: bytes, phases: str = "r", conflict: str = "wait") -> list[ClaimAnswer]:
        lists = [(store.flight("a"), store.keys.queue("a"))]
        asking = [Claimant(one, json.loads(one)["jid"], KEY, 1, SCOPE, phases, conflict) for one in payloads]
        return store.run(locks.claim(store.keys, ME, lists, asking, 30_000))[0]

    @pytest.fixture
    def two(self, store: Store) -> list[bytes]:
        payloads = [job(jid(1), "r"), job(jid(2), "r")]
        store.push("a", *payloads)
        store.join("a")
        store.fetch("a")
        return payloads

    def test_of_two_in_one_call_the_first_runs(self, store: Store, two: list[bytes]) -> None:
        first, second = self.claim(store, *two)
        assert first.token > 0
        assert second == ClaimAnswer(holder=jid(1), parked=True)
        assert store.in_flight("a") == two[:1]
        assert (holder(store, "r"), waiting(store)) == (jid(1), [jid(2)])
        row = store.ask("HGET", store.keys.parked, jid(2))
        assert row == b"a\n\nrunning\n\n" + two[1]

    @pytest.mark.parametrize("batch", ["", "b1"])
    def test_history_hears_that_a_tracked_one_waits_and_goes_on(self, store: Store, batch: str) -> None:
        store.ask("SET", store.keys.history_on, "strict 1000000")
        store.ask("HSET", store.keys.batch("b1"), "state", "open", "total", 1)
        store.ask("HSET", f"{store.keys.batch('b1')}:jobs", jid(1), "enqueued")
        stored = job(jid(1), "r", hm={"track": True} if not batch else {"batch": batch})
        store.push("a", stored)
        store.join("a")
        store.fetch("a")
        lock(store, "r", OTHER)
        lists = [(store.flight("a"), store.keys.queue("a"))]
        asking = [Claimant(stored, jid(1), KEY, 1, SCOPE, "r", "wait", batch or "-")]
        answers, _ = store.run(locks.claim(store.keys, ME, lists, asking, 30_000))
        assert answers == [ClaimAnswer(holder=OTHER, parked=True)]
        member = store.ask("HGET", f"{store.keys.batch('b1')}:jobs", jid(1))
        assert member == (b"blocked" if batch else b"enqueued")
        assert store.run(locks.unlock(store.keys, "r", SCOPE, KEY, OTHER))
        told = b"".join(field for _, fields in store.ask("XRANGE", store.keys.history, "-", "+") for field in fields)
        assert told.index(b"blocked") < told.index(b"enqueued")
        assert b"runs with the same key" in told
        assert store.ask("HGET", f"{store.keys.batch('b1')}:jobs", jid(1)) == b"enqueued"
        assert store.queue("a") == [stored]

    def test_once_more_gives_a_higher_token_and_still_one_run(self, store: Store, two: list[bytes]) -> None:
        """The answer was lost, or the job was rescued."""
        (before,) = self.claim(store, two[0])
        (after,) = self.claim(store, two[0])
        assert after.token > before.token
        assert holder(store, "r") == jid(1)

    def test_what_is_not_in_flight_gets_nothing(self, store: Store, two: list[bytes]) -> None:
        store.ask("DEL", store.flight("a"))
        assert self.claim(store, *two) == [ClaimAnswer(), ClaimAnswer()]
        assert left_of_keys(store) == set()

    def test_the_buried_get_nothing(self, store: Store, two: list[bytes]) -> None:
        store.run(leases.entomb(store.keys, ME, force=True))
        with pytest.raises(LeaseLost):
            self.claim(store, *two)
        assert left_of_keys(store) == set()

    def test_nor_do_those_without_a_lease(self, store: Store, two: list[bytes]) -> None:
        store.ask("DEL", store.keys.lease(ME))
        with pytest.raises(LeaseLost):
            self.claim(store, *two)
        assert left_of_keys(store) == set()

    def test_not_to_wait_changes_nothing(self, store: Store, two: list[bytes]) -> None:
        lock(store, "r", OTHER)
        assert self.claim(store, two[0], conflict="skip") == [ClaimAnswer(holder=OTHER)]
        assert store.in_flight("a") == two
        assert left_of_keys(store) == {store.keys.lock("r", SCOPE)}

    @pytest.mark.parametrize("broken", ["parked", "doubt", "token"])
    def test_what_cannot_be_parked_stays_in_flight(self, store: Store, two: list[bytes], broken: str) -> None:
        lock(store, "r", OTHER)
        store.ask("SET", getattr(store.keys, broken), "text")
        (answer,) = self.claim(store, two[0])
        assert answer.refused
        assert store.in_flight("a") == two
        assert store.ask("HLEN", store.keys.parked) == 0 if broken != "parked" else True

    def test_a_full_server_parks_too(self, store: Store, two: list[bytes]) -> None:
        lock(store, "r", OTHER)
        store.ask("CONFIG", "SET", "maxmemory", 1)
        try:
            assert self.claim(store, two[0]) == [ClaimAnswer(holder=OTHER, parked=True)]
        finally:
            store.ask("CONFIG", "SET", "maxmemory", 0)
        assert waiting(store) == [jid(1)]

    @pytest.mark.parametrize("where", ["before", "after"])
    def test_a_lost_answer_is_asked_for_again(self, store: Store, app: App, where: str, tmp_path: Any) -> None:
        spans = Spans()
        app.job(name="m.f")(spans.job())
        app.connections  # noqa: B018 - connects before the points are open
        failpoints.open_points(f"drop@claim:{where}#1", tmp_path)
        try:
            pushed(store, *(job(jid(number), "wr", args=["k"]) for number in range(1)), job(jid(9), "r", args=["k"]))
            with working(app):
                nothing_left(store)
        finally:
            failpoints.close()
        assert sorted(spans.order["k"]) == [jid(0), jid(9)]
        assert spans.most == 1

    def test_a_key_that_the_server_refuses_is_tried_again_later(self, store: Store, app: App) -> None:
        app.job(name="m.f")(lambda: None)
        store.ask("SET", store.keys.lock("r", SCOPE), "text")
        store.push("a", job(OURS, "r"))
        heard = Heard(app, "refused")
        with working(app):
            until(lambda: store.ask("ZCARD", "schedule"), "it is put off")
        assert "WRONGTYPE" in heard["refused"][0]["reason"]


class TestHandlersThatGoOn:
    """A key is never free beside a handler that still runs."""

    def stubborn(self, app: App) -> tuple[threading.Event, threading.Event]:
        began, may_end = threading.Event(), threading.Event()

        @app.job(name="m.f", timeout=60)
        def act() -> None:
            began.set()
            while not may_end.is_set():
                try:
                    may_end.wait(0.01)
                except BaseException:  # noqa: S112 - it ignores whatever strikes it
                    continue

        return began, may_end

    @pytest.mark.parametrize("phases", ["r", "o"])
    def test_at_a_stop_it_stays_in_flight(self, store: Store, app: App, phases: str) -> None:
        began, may_end = self.stubborn(app)
        pushed(store, job(OURS, phases))
        park(store, job(OTHER, phases), phases)
        with working(app, stop=0.0) as launcher:
            began.wait(30)
            launcher.stop(0.0)
            lists = [one for one in store.all_keys() if one.startswith("hm:flight:")]
            assert [store.ask("LRANGE", one, 0, -1) for one in lists] == [[job(OURS, phases)]]
            assert holder(store, phases) == OURS
            assert waiting(store, phases) == [OTHER]
            assert store.queue("a") == []
            may_end.set()

    def test_a_stop_charges_no_job_that_it_leaves_in_flight(self, store: Store, app: App) -> None:
        """Whoever rescues it is told that its process was stopping."""
        began, may_end = self.stubborn(app)
        pushed(store, job(OURS, "r"))
        with working(app, stop=0.0) as launcher:
            began.wait(30)
            launcher.stop(0.0)
            name = launcher.session.identity
            store.run(leases.entomb(store.keys, name, force=True))
            assert rescue.rescue_lost(app, name).moved == 1
            assert store.run(jobs.deaths(store.keys, OURS)) == []
            assert not store.ask("EXISTS", store.keys.stopping)
            may_end.set()

    def test_at_its_time_out_it_is_not_settled(self, store: Store, app: App) -> None:
        began, may_end = self.stubborn(app)
        pushed(store, job(OURS, "r"))
        heard = Heard(app, "job_abandoned")
        with working(app) as launcher:
            began.wait(30)
            launcher.watchdog.grace = 0.05
            overdue(launcher)
            until(lambda: heard["job_abandoned"] or overdue(launcher), "it was given up")
            assert holder(store, "r") == OURS
            assert not store.ask("EXISTS", "retry", "dead", "queue:a")
            (line,) = store.run(jobs.deaths(store.keys, OURS))
            assert line.endswith(IGNORED)
            may_end.set()
            until(lambda: holder(store, "r") is None, "its own end counts")

    @pytest.mark.parametrize("phases", ["r", "o"])
    def test_the_third_time_it_is_dead(self, store: Store, app: App, phases: str) -> None:
        ran: list[int] = []
        app.job(name="m.f")(lambda: ran.append(1))
        lines = "\n".join(f"2026-11-22T00:00:00Z host:{number}:0 {IGNORED}" for number in range(3))
        store.ask("HSET", store.keys.deaths, OURS, lines)
        store.ask("SADD", store.keys.suspects, OURS)
        pushed(store, job(OURS, phases))
        with working(app):
            until(lambda: store.ask("ZCARD", "dead"), "it is dead")
            until(lambda: ended(store), "nothing is in flight")
        assert ran == []
        assert IGNORED in store.members("dead")[0].decode()
        assert holder(store, phases) == (OURS if phases == "o" else None)
        assert not store.ask("EXISTS", store.keys.deaths, store.keys.suspects)

    def test_twice_it_may_try_again(self, store: Store, app: App) -> None:
        ran: list[int] = []
        app.job(name="m.f")(lambda: ran.append(1))
        lines = "\n".join(f"2026-11-22T00:00:00Z host:{number}:0 {IGNORED}" for number in range(2))
        store.ask("HSET", store.keys.deaths, OURS, lines)
        store.ask("SADD", store.keys.suspects, OURS)
        pushed(store, job(OURS, "r"))
        with working(app):
            nothing_left(store)
        assert ran == [1]


class TestCauses:
    """How locks of other systems fail, each by its name; the rest stands in tests of the store and of the auditor."""

    def test_a_job_that_comes_back_takes_nothing_from_a_newer_one(self, store: Store, app: App) -> None:
        """Cause 4: the lock of the queue is not taken again by a retry, and the newer job has it on."""
        held: list[Any] = []

        @app.job(name="m.f", retry_in=0.05)
        def act() -> None:
            if current_job().attempt == 1 and current_job().jid == OURS:
                lock(store, "w", OTHER)
                raise ValueError("x")
            held.append((current_job().jid, holder(store, "w")))

        pushed(store, job(OURS, "w"))
        with working(app):
            until(lambda: ended(store), "it has run twice")
        assert held == [(OURS, OTHER)]
        assert holder(store, "w") == OTHER

    def test_the_key_is_that_of_the_push_whatever_the_job_does_to_its_arguments(self, store: Store, app: App) -> None:
        """Cause 6: it is never computed again."""
        app.server_middleware.add(_changes)
        app.job(name="m.f")(lambda rows: rows.append("more"))
        pushed(store, job(OURS, "ur", args=[["17"]]))
        with working(app):
            nothing_left(store)

    def test_a_job_is_no_stranger_to_itself(self, store: Store, app: App) -> None:
        """Cause 7: it comes out of the schedule, or back from a dead process, and holds its locks already."""
        app.job(name="m.f")(lambda: None)
        for phase in "wr":
            lock(store, phase)
        store.ask("ZADD", "schedule", 1, job(OURS, "wr"))
        with working(app):
            until(lambda: int(store.ask("GET", "stat:processed") or 0) == 1, "it has run")
            nothing_left(store)


def _changes(run: Any, call_next: Callable[[], Any]) -> Any:
    run.payload["args"][0].append("middleware")
    run.args = (["another"],)
    return call_next()
