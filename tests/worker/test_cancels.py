"""What a process knows of cancellations stays right when it changes servers, and when several threads ask at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.store.call import Call
from henchman.store.connection import Line
from henchman.store.control import cancel
from henchman.worker.cancels import Cancels
from support.worker import in_flight, looker, push_raw, until, working


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with looker(redis_url) as client:
        yield client


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
    redis.zrem("hm:cancelled", "x")
    cancels.catch_up(1)
    assert cancels.jids == frozenset(), "and forgotten again when it has ended"
    assert cancels.seen == 1


def test_a_list_that_arrives_late_does_not_replace_a_newer_one(app: App) -> None:
    host: Any = Host(app)
    cancels = Cancels(host)

    def meanwhile() -> None:
        app.connections.run(cancel(app.keys, "x"))
        cancels.load()

    host.connections.then = [meanwhile]
    cancels.load()
    assert (cancels.jids, cancels.seen) == ({"x"}, 1)
