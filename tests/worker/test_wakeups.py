"""A fetcher sleeps until it is rung: in every state in which it sleeps, whoever changes what it may fetch rings it.

Nothing here looks again by itself: every look that the parts take now and then is put off for ten minutes, so that a
ring that is missing is a job that never runs, however fast or slow the machine is.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.worker import acker, fetcher, heart, watcher
from support.dead import Spy
from support.worker import settled, until, working

NEVER = 600.0
LIMIT = 40.0


@pytest.fixture(autouse=True)
def _no_look_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "WATCHED", NEVER)
    monkeypatch.setattr(fetcher, "UNWATCHED", NEVER)
    monkeypatch.setattr(watcher, "TURN", NEVER)
    monkeypatch.setattr(watcher, "BLOCK", NEVER)


@pytest.fixture
def make(redis_url: str) -> Iterator[Any]:
    """An app whose heart beats too rarely to help."""
    made = []

    def app(**settings: Any) -> App:
        made.append(App(redis_url=redis_url, **({"lease": 3 * NEVER, "heartbeat": NEVER} | settings)))
        return made[-1]

    yield app
    for one in made:
        one.close()


class Gate:
    """What a job does: note its number; the numbers below zero wait until they may go on."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.open = threading.Event()

    def __call__(self, number: int) -> None:
        self.ran.append(number)
        if number < 0:
            assert self.open.wait(LIMIT)


def noting(app: App, gate: Gate, **options: Any) -> Any:
    """The job that calls ``gate``."""

    def note(number: int) -> None:
        gate(number)

    return app.job(name="note", **options)(note)


def ran(gate: Gate, *numbers: int) -> None:
    until(lambda: gate.ran == list(numbers), f"{numbers} ran", LIMIT)


def looks(spy: Spy, name: str = "fetch") -> int:
    return spy.names().count(name)


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_slot_that_gets_free_after_a_look_in_vain(make: Any, redis: Redis, slots: int, kind: str) -> None:
    """Every slot is busy with a job that is known to be short: one is looked for ahead, there is none, and no wait
    can be opened without a free slot. What is pushed now must start when a slot is free."""
    app, gate = make(concurrency=slots), Gate()
    if kind == "thread":
        noting(app, gate)
    else:

        @app.job(name="note")
        async def note(number: int) -> None:
            await asyncio.to_thread(gate, number)

    with working(app) as launcher, Spy(app) as spy:
        app.enqueue("note", 0)
        settled(redis, 1)
        for held in range(slots):
            until(lambda: launcher.watcher.armed or launcher.pool.busy == slots, "it waits", LIMIT)
            app.enqueue("note", -1)
            until(lambda held=held: len(gate.ran) == held + 2, "it runs", LIMIT)  # type: ignore[misc]
        asked = looks(spy)
        launcher.session.ring()
        until(lambda: looks(spy) > asked or launcher.watcher.armed, "one is looked or waited for ahead", LIMIT)
        app.enqueue("note", 1)
        gate.open.set()
        ran(gate, 0, *([-1] * slots), 1)
        settled(redis, slots + 2)


def test_a_slot_that_gets_free_beside_an_ordered_queue(make: Any, redis: Redis) -> None:
    app, gate = make(concurrency=1), Gate()

    @app.ordered(name="change", queue="things")
    def change(claim: dict[str, list[int]]) -> None:
        for numbers in claim.values():
            for number in numbers:
                gate(number)

    with working(app) as launcher:
        for number in range(3):
            until(lambda: launcher.watcher.armed and launcher.pool.free, "it waits", LIMIT)
            change.push(f"id{number}", number)
            ran(gate, *range(number + 1))
        until(lambda: launcher.watcher.armed and launcher.pool.free, "it waits", LIMIT)
        change.push("held", -1)
        ran(gate, 0, 1, 2, -1)
        change.push("next", 3)
        gate.open.set()
        ran(gate, 0, 1, 2, -1, 3)
    assert not list(redis.scan_iter(match="hm:held:*"))


@pytest.mark.parametrize("slots", [1, 2])
def test_a_chain_of_jobs_that_enqueue_themselves(make: Any, redis: Redis, slots: int) -> None:
    app, done = make(concurrency=slots), threading.Event()

    @app.job(name="link")
    def link(left: int) -> None:
        if left:
            link.enqueue(left - 1)
        else:
            done.set()

    with working(app):
        link.enqueue(300)
        until(done.is_set, "the last link of 300 ran", LIMIT)
        settled(redis, 301)


def test_a_chain_of_pushes_to_an_ordered_queue(make: Any, redis: Redis) -> None:
    app, done = make(concurrency=1), threading.Event()

    @app.ordered(name="change", queue="things")
    def change(claim: dict[str, list[int]]) -> None:
        for (left,) in claim.values():
            if left:
                change.push(f"id{left}", left - 1)
            else:
                done.set()

    with working(app):
        change.push("first", 200)
        until(done.is_set, "the last link of 200 ran", LIMIT)


def test_a_queue_beside_others_that_are_still_waited_for(make: Any, redis: Redis) -> None:
    """One slot, two queues: the wait of the other one stays open, and must not be taken for both."""
    app, gate = make(concurrency=1, queues=("a", "b")), Gate()
    noting(app, gate, queue="a")
    with working(app) as launcher, Spy(app) as spy:
        app.enqueue("note", 0, queue="a")
        settled(redis, 1)
        until(lambda: launcher.watcher.armed == 2 and launcher.pool.free, "both are waited for", LIMIT)
        asked = looks(spy)
        app.enqueue("note", -1, queue="a")
        ran(gate, 0, -1)
        until(lambda: looks(spy) > asked, "one was looked for ahead", LIMIT)
        assert launcher.watcher.watches(["b"])
        app.enqueue("note", 1, queue="a")
        gate.open.set()
        ran(gate, 0, -1, 1)


def test_a_queue_is_not_waited_for_while_it_is_drained(
    make: Any, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait would bring its jobs one by one beside the fetches; the next push finds one all the same, also when the
    last jobs of the drain turned out long."""
    brought: list[int] = []
    delivered = fetcher.Fetcher.delivered
    monkeypatch.setattr(
        fetcher.Fetcher, "delivered", lambda self, units, backlog: (brought.append(1), delivered(self, units, backlog))
    )
    gate = Gate()
    app = make(concurrency=4)
    job = noting(app, gate)
    with working(app) as made:
        until(lambda: made.watcher.armed, "it waits", LIMIT)
        job.enqueue_many((number,) for number in range(20_000))
        settled(redis, 20_000)
        assert len(brought) < 20, "each of these stands for jobs that a fetch would have brought together"
        until(lambda: made.watcher.armed, "it waits again", LIMIT)
        job.enqueue_many((number,) for number in (-1, -2, 1, 2))
        until(lambda: {-1, -2, 1, 2} <= set(gate.ran[20_000:]), "two pass by the two that stay", LIMIT)
        until(lambda: made.watcher.armed, "and it waits beside them", LIMIT)
        job.enqueue(3)
        until(lambda: gate.ran[-1] == 3, "the next push", LIMIT)
        gate.open.set()
        settled(redis, 20_005)


def test_outcomes_that_were_committed(make: Any, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many outcomes wait that nothing more is fetched: the acker rings when they were committed."""
    monkeypatch.setattr(acker, "PENDING_MOST", 2)
    app, gate = make(concurrency=1), Gate()
    note = noting(app, gate)
    note.enqueue_many((number,) for number in range(600))
    with working(app, start=False) as launcher:
        with launcher.acker._flushing:  # the server is slow
            launcher.start()
            until(lambda: launcher.acker.full and launcher.pool.free, "too many outcomes wait", LIMIT)
            assert not launcher.watcher.armed
        until(lambda: len(gate.ran) == 600, "all ran", LIMIT)
        settled(redis, 600)


def test_a_queue_that_somebody_unpaused_while_nobody_listened(
    make: Any, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heart, "PULSE", 0.05)
    app, gate = make(heartbeat=0.1), Gate()
    noting(app, gate)
    redis.sadd("paused", "default")
    with working(app) as launcher:
        app.enqueue("note", 1)
        until(lambda: "default" in launcher.fetcher.paused and not launcher.watcher.armed, "paused", LIMIT)
        redis.srem("paused", "default")
        ran(gate, 1)


def test_a_lease_that_is_valid_again(make: Any, redis: Redis) -> None:
    app, gate = make(concurrency=1), Gate()
    noting(app, gate)
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed, "it waits", LIMIT)
        app.enqueue("note", -1)
        ran(gate, -1)
        app.enqueue("note", 1)
        launcher.session.valid_until = -1e9
        gate.open.set()
        until(lambda: launcher.pool.free, "its slot is free, and it may not fetch", LIMIT)
        launcher.session.renew()
        ran(gate, -1, 1)


def test_a_wait_that_ends_while_the_lease_is_not_fresh(make: Any, redis: Redis) -> None:
    """It may not be opened again before the lease was renewed: the fetcher looks, and that renews it."""
    app, gate = make(), Gate()
    noting(app, gate)
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed, "it waits", LIMIT)
        launcher.session.valid_until = time.monotonic() + launcher.session.lease / 2
        for client in redis.client_list():
            if client["cmd"] == "blmove":
                redis.client_unblock(int(client["id"]))
        until(lambda: launcher.session.valid_for() > launcher.session.lease_ms / 1500, "it is renewed", LIMIT)
        app.enqueue("note", 1)
        ran(gate, 1)
        until(lambda: launcher.watcher.armed, "it waits again", LIMIT)


def test_a_new_name_does_not_leave_another_capsules_queues_unwatched(make: Any, redis: Redis) -> None:
    app, gate = make(queues=("a",), concurrency=1, capsules={"more": {"queues": ["b"], "concurrency": 1}}), Gate()
    noting(app, gate, queue="a")
    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 2, "both are waited for", LIMIT)
        app.enqueue("note", -1, queue="a")
        ran(gate, -1)
        lost = launcher.session.identity
        launcher.fetcher.buried(lost)
        until(lambda: launcher.session.identity != lost, "it has another name", LIMIT)
        names = lambda: {post.armed.identity for post in launcher.watcher._posts if post.armed}  # noqa: E731
        until(lambda: names() == {launcher.session.identity}, "it waits for the other queue under that name", LIMIT)
        app.enqueue("note", 1, queue="b")
        ran(gate, -1, 1)
        gate.open.set()


def test_a_paused_ordered_queue_that_has_something_does_not_keep_the_fetcher_awake(make: Any, redis: Redis) -> None:
    app = make()
    app.job(name="note")(lambda: None)
    done: list[str] = []

    @app.ordered(name="change", queue="things")
    def change(claim: dict[str, list[int]]) -> None:
        done.extend(claim)

    redis.sadd("paused", "things")
    with working(app) as launcher, Spy(app) as spy:
        until(lambda: launcher.watcher.armed, "it waits", LIMIT)
        change.push("1", 1)
        launcher.fetcher.look()
        for _ in range(2000):  # meanwhile a fetcher that spins would ask about as often
            redis.ping()
        assert looks(spy) < 50
        redis.srem("paused", "things")
        launcher.manager.set_paused(frozenset())
        until(lambda: done == ["1"], "it runs", LIMIT)
