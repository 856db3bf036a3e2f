"""What a process knows of cancellations stays right when it changes servers, and when several threads ask at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App, current_job
from henchman.store.call import Call
from henchman.store.connection import Line
from henchman.store.jobs import cancel, cancel_batch, charge, uncancel
from henchman.worker.watcher import Cancels
from support.worker import in_flight, push_raw, until, working


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, concurrency=1, lease=90, heartbeat=30)
    yield made
    made.close()


def payload(jid: str) -> str:
    return f'{{"class":"note","args":["{jid}"],"jid":"{jid}","queue":"default"}}'


def cancelled_elsewhere(redis: Redis, jid: str) -> None:
    """A cancellation of which no counter and no announcement tells."""
    redis.zadd("hm:cancelled", {jid: time.time()})


def test_a_counter_proves_nothing_after_the_connection_was_lost(app: App, redis: Redis) -> None:
    """A replica that took over may stand at the counter that we know, with other names behind it: what we saw end on
    the old master has not ended there."""
    ran: list[str] = []
    app.job(name="note")(lambda name: ran.append(name))  # noqa: PLW0108 - jobs are functions
    app.connections.run(cancel(app.keys, "other"))
    with working(app) as launcher:
        until(lambda: launcher.cancels.seen == 1 and launcher.watcher.armed, "the counter is known")
        cancelled_elsewhere(redis, "doomed")
        redis.client_kill_filter(_type="normal", skipme=True)
        redis.client_kill_filter(_type="pubsub")
        push_raw(redis, payload("doomed"), payload("after"))
        until(lambda: ran, "the next job runs")
        until(lambda: not in_flight(redis), "all is settled")
    assert ran == ["after"]
    assert redis.zrange("hm:cancelled", 0, -1) == [b"other"], "the cancellation is done with"
    assert not redis.exists("queue:default", "retry", "dead")


def test_what_was_said_while_nobody_listened_is_read(app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The subscription comes back later than the fetching: what was announced in between is known before any wait."""
    held, release, gone = threading.Event(), threading.Event(), threading.Event()
    ran: list[str] = []
    app.job(name="note")(lambda name: ran.append(name))  # noqa: PLW0108 - jobs are functions
    send = Line.send

    def sending(line: Line, *parts: Any) -> None:
        if parts[0] == "SUBSCRIBE" and gone.is_set():
            held.set()
            assert release.wait(30)
        send(line, *parts)

    monkeypatch.setattr(Line, "send", sending)
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed, "it waits for pushes")
        gone.set()
        redis.client_kill_filter(_type="pubsub")
        assert held.wait(30)
        until(lambda: not launcher.watcher.armed, "nothing is waited for")
        app.connections.run(cancel(app.keys, "doomed"))
        release.set()
        until(lambda: launcher.watcher.armed, "it waits for pushes again")
        push_raw(redis, payload("doomed"), payload("after"))
        until(lambda: ran, "the next job runs")
    assert ran == ["after"]


class Between:
    """Connections that do something else between the server's answer and its arrival."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.opened = 0
        self.then: list[Any] = []

    def run(self, call: Call[Any]) -> Any:
        answer = self._app.connections.run(call)
        if self.then:
            self.then.pop()()
        return answer


class Host:
    """As much of a host as the list needs."""

    def __init__(self, app: App) -> None:
        self.keys, self.connections = app.keys, Between(app)


def test_what_is_announced_while_the_list_is_read_is_kept(app: App, redis: Redis) -> None:
    host: Any = Host(app)
    cancels = Cancels(host)
    host.connections.then = [lambda: (app.connections.run(cancel(app.keys, "x")), cancels.add("x"))]
    cancels.load()
    assert cancels.jids == {"x"}
    cancels.catch_up(1)
    assert (cancels.jids, cancels.seen) == ({"x"}, 1)
    redis.zrem("hm:cancelled", "x")
    cancels.load()
    assert cancels.jids == set(), "and forgotten again when it has ended"


def test_a_list_that_arrives_late_does_not_replace_a_newer_one(app: App) -> None:
    host: Any = Host(app)
    cancels = Cancels(host)

    def meanwhile() -> None:
        app.connections.run(cancel(app.keys, "x"))
        cancels.load()

    host.connections.then = [meanwhile]
    cancels.load()
    assert (cancels.jids, cancels.seen) == ({"x"}, 1)


class TestNews:
    """What is new costs what is new: the list is read again only where the log does not tell."""

    @pytest.fixture
    def cancels(self, app: App, redis: Redis) -> Cancels:
        redis.zadd("hm:cancelled", {f"old{number}": time.time() for number in range(5000)})
        host: Any = Host(app)
        made = Cancels(host)
        made.load()
        assert len(made.jids) == 5000
        return made

    @staticmethod
    def news(cancels: Cancels, redis: Redis) -> tuple[int, int]:
        """Catch up; how often the log was read, and the list."""

        def calls(name: str) -> int:
            return int(redis.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"])

        before = calls("lrange"), calls("zscan")
        cancels.catch_up(int(redis.get("hm:cancels") or 0))
        assert cancels.seen == int(redis.get("hm:cancels") or 0)
        return calls("lrange") - before[0], calls("zscan") - before[1]

    def test_a_cancellation_is_read_from_the_log(self, app: App, redis: Redis, cancels: Cancels) -> None:
        for jid in ("x", "y", "z"):
            app.cancel(jid)
        app.connections.run(cancel_batch(app.keys, "b"))
        app.connections.run(uncancel(app.keys, ["y"]))
        assert self.news(cancels, redis) == (1, 0)
        assert {"x", "z", "batch:b", "old1"} <= cancels.jids
        assert "y" not in cancels.jids
        assert self.news(cancels, redis) == (0, 0), "nothing is new"

    def test_suspects_are_read_when_they_changed(self, app: App, redis: Redis, cancels: Cancels) -> None:
        redis.lpush("hm:flight", payload("x"))
        for identity in ("a", "b"):
            charged = charge(
                app.keys,
                "hm:flight",
                "x",
                f"1 {identity} it died".encode(),
                payload("x").encode(),
                b"{}",
                alone=False,
                dead_max=10,
                dead_timeout=1000,
            )
            app.connections.run(charged)
        assert self.news(cancels, redis) == (1, 0)
        assert cancels.suspects == {"x"}

    def test_a_version_that_keeps_no_log_makes_us_read_the_list(self, app: App, redis: Redis, cancels: Cancels) -> None:
        app.cancel("x")
        redis.zadd("hm:cancelled", {"silent": time.time()})
        redis.incr("hm:cancels")
        app.cancel("y")
        _, pages = self.news(cancels, redis)
        assert pages > 1, "in pages"
        assert {"x", "silent", "y"} <= cancels.jids

    def test_a_log_that_does_not_reach_back_makes_us_read_the_list(
        self, app: App, redis: Redis, cancels: Cancels
    ) -> None:
        for number in range(1100):
            app.connections.run(cancel(app.keys, f"new{number}"))
        assert redis.llen("hm:cancel_log") == 1000
        assert self.news(cancels, redis)[1] > 1
        assert len(cancels.jids) == 6100

    def test_what_has_ended_is_forgotten_at_last(
        self, app: App, redis: Redis, cancels: Cancels, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        redis.delete("hm:cancelled")
        monkeypatch.setattr("henchman.worker.watcher.ENDED", 0)
        cancels.load()
        for jid in ("x", "y"):
            app.cancel(jid)
            redis.zrem("hm:cancelled", jid)  # its job has ended
            self.news(cancels, redis)
        assert cancels.jids == set()

    def test_old_marks_are_removed_some_at_a_time(self, app: App, redis: Redis) -> None:
        redis.zadd("hm:cancelled", {f"old{number}": number for number in range(250)})
        left = []
        for number in range(3):
            app.cancel(f"x{number}")
            left.append(redis.zcard("hm:cancelled"))
        assert left == [151, 52, 3]


class TestByHandAgain:
    """A mark ends with the ending that it was for: what is retried by hand runs, and says what was taken back."""

    @pytest.fixture
    def ran(self, app: App) -> list[str]:
        found: list[str] = []

        @app.job(name="note", retry=0)
        def note(name: str) -> None:
            found.append(name)

        return found

    @staticmethod
    def nothing_left(redis: Redis) -> None:
        until(lambda: not in_flight(redis), "all is settled")
        assert not redis.exists("hm:cancelled", "queue:default", "retry", "schedule", "dead")
        assert not redis.keys("it-*")

    @pytest.mark.parametrize("all_of_them", [False, True])
    def test_a_dead_job_that_was_cancelled(self, app: App, redis: Redis, ran: list[str], all_of_them: bool) -> None:
        redis.zadd("dead", {payload("x"): time.time() - 1})
        with working(app) as launcher:
            app.cancel("x")
            until(lambda: "x" in launcher.cancels.jids and launcher.watcher.armed, "the worker knows, and waits")
            acted = app.dead.retry_all() if all_of_them else app.dead.retry(app.dead.find("x"))
            assert (acted.done, acted.uncancelled, acted.cancelled) == (1, 1, 0)
            until(lambda: ran == ["x"], "it runs")
            self.nothing_left(redis)

    @pytest.mark.parametrize("which", ["retries", "scheduled"])
    def test_one_that_waits_has_not_ended_yet(self, app: App, redis: Redis, ran: list[str], which: str) -> None:
        """It is said that it will not run; killed first, it does."""
        found = getattr(app, which)
        redis.zadd(found.key, {payload("x"): time.time() + 1000, payload("y"): time.time() + 1000})
        with working(app):
            app.cancel("x")
            app.cancel("y")
            acted = found.retry(found.find("x"))
            assert (acted.done, acted.uncancelled, acted.cancelled) == (1, 0, 1)
            found.kill_all()
            assert app.dead.retry_all().uncancelled == 1
            until(lambda: ran == ["y"], "the other runs")
            self.nothing_left(redis)

    @pytest.mark.parametrize("how", ["cancel", "invalidate"])
    def test_a_batch_that_was_cancelled_when_it_was_complete(self, app: App, redis: Redis, how: str) -> None:
        ran: list[int] = []
        heals = threading.Event()

        @app.job(name="fragile", retry=0)
        def fragile(n: int) -> None:
            if not heals.is_set():
                raise ValueError("broken")
            ran.append(n)

        with working(app) as launcher:
            with app.batch("two") as batch:
                fragile.enqueue_many([(1,), (2,)])
            until(lambda: batch.status().state == "complete", "both have died")
            getattr(batch, how)()
            until(lambda: f"batch:{batch.id}" in launcher.cancels.jids and launcher.watcher.armed, "the worker knows")
            heals.set()
            assert batch.retry() == 2
            until(lambda: sorted(ran) == [1, 2], "both run")
            until(lambda: batch.status().state == "complete", "it is complete again")
        assert batch.status().counts["finished"] == 2
        assert not redis.exists("hm:cancelled", "queue:default", f"hm:batch:{batch.id}:dead")

    def test_one_of_a_batch_that_was_cancelled_by_its_id(self, app: App, redis: Redis) -> None:
        ran: list[int] = []
        heals = threading.Event()

        @app.job(name="fragile", retry=0)
        def fragile(n: int) -> None:
            if not heals.is_set():
                raise ValueError("broken")
            ran.append(n)

        with working(app):
            with app.batch("one") as batch:
                handle = fragile.enqueue(1)
            until(lambda: batch.status().state == "complete", "it has died")
            handle.cancel()
            heals.set()
            assert batch.retry() == 1
            until(lambda: ran == [1], "it runs")
        assert not redis.exists("hm:cancelled", "queue:default")

    def test_a_worker_that_still_believes_it_asks_when_it_settles(self, app: App, redis: Redis, ran: list[str]) -> None:
        """No counter tells of it, as when a watcher brings the job before any fetch."""
        app.connections.run(cancel(app.keys, "x"))
        with working(app) as launcher:
            until(lambda: launcher.watcher.armed, "it waits for pushes")
            redis.delete("hm:cancelled", "it-x")
            assert "x" in launcher.cancels.jids
            push_raw(redis, payload("x"))
            until(lambda: ran == ["x"], "it runs")
            self.nothing_left(redis)
            assert launcher.cancels.jids == frozenset()

    def test_the_mark_of_a_run_that_was_cancelled_and_ended_otherwise_goes_with_it(
        self, app: App, redis: Redis
    ) -> None:
        told: list[bool] = []

        @app.job(name="note", retry=0)
        def note(name: str) -> None:
            app.cancel(name)
            until(lambda: current_job().cancelled, "it is told")
            told.append(True)
            if name == "dies":
                raise ValueError(name)

        push_raw(redis, payload("dies"), payload("ends"))
        with working(app):
            until(lambda: len(told) == 2, "both ran")
            until(lambda: not in_flight(redis), "all is settled")
        assert not redis.exists("hm:cancelled", "queue:default")
        assert redis.zcard("dead") == 1
        assert redis.keys("it-*") == [b"it-dies"], "where a dead one stands is kept"
        assert app.dead.retry_all().done == 1
        assert not redis.keys("it-*")

    def test_a_dead_iterable_goes_on_from_where_it_stood(self, app: App, redis: Redis) -> None:
        redis.zadd("dead", {payload("x"): time.time()})
        redis.hset("it-x", mapping={"ex": 2, "c": "7", "rt": "1.5"})
        app.cancel("x")
        assert redis.hexists("it-x", "cancelled")
        assert app.dead.retry_all().uncancelled == 1
        assert redis.hgetall("it-x") == {b"ex": b"2", b"c": b"7", b"rt": b"1.5"}
        assert redis.get("hm:cancels") == b"2", "every worker reads it"
