"""What a stop leaves behind. In-process, on a real server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from typing import Any

import pytest
from redis import Redis

from henchman import App, Snooze, current_job
from henchman.store import history
from henchman.store.queues import Pause, pause, unpause
from support.history import stream
from support.worker import in_flight, jobs_in, until, working


def test_unfinished_jobs_go_back_in_their_order_threads_and_tasks(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=6)
    running = threading.Semaphore(0)

    @app.job(name="hold")
    def hold(number: int) -> None:
        running.release()
        threading.Event().wait(0.2)
        until(lambda: False, "nothing", 30)

    @app.job(name="ahold")
    async def ahold(number: int) -> None:
        running.release()
        await asyncio.sleep(60)

    for number in range(8):
        (hold if number % 2 else ahold).enqueue(number)
    pushed = redis.lrange("queue:default", 0, -1)
    with working(app, stop=0.1):
        for _ in range(6):
            assert running.acquire(timeout=30)
    assert redis.lrange("queue:default", 0, -1) == pushed, "byte for byte, in their order"
    assert not in_flight(redis)
    assert not redis.smembers("processes")
    assert not redis.zcard("hm:identities")
    assert set(redis.scan_iter("hm:*")) <= {b"hm:lifeline", b"hm:staging", b"hm:clock", b"hm:levels"}


def test_a_worker_that_starts_beside_a_paused_queue_leaves_it_alone(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url)
    ran: list[str] = []

    @app.job(name="note", queue="slow")
    def note(name: str) -> None:
        ran.append(name)

    @app.job(name="other")
    def other() -> None:
        ran.append("other")

    app.connections.run(pause(app.keys, "slow", Pause()))
    note.enqueue("a")
    with working(app, start=False) as launcher:
        launcher.heart.start = lambda: None  # type: ignore[method-assign]  # no beat tells it what is paused
        launcher.start()
        until(lambda: launcher.watcher.armed, "it waits for pushes")
        other.enqueue()
        until(lambda: ran == ["other"], "the other queue is served")
        note.enqueue("b")
        until(lambda: launcher.watcher.armed == 1, "one queue is watched again")
        assert redis.llen("queue:slow") == 2
        app.connections.run(unpause(app.keys, "slow"))
        until(lambda: sorted(ran) == ["a", "b", "other"], "unpaused, it is served")


def test_snoozed_again_and_again_a_payload_does_not_grow(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url)
    sizes: list[int] = []

    @app.job(name="later")
    def later() -> None:
        sizes.append(len(current_job().payload))
        assert current_job().attempt == 1
        if len(sizes) < 4:
            raise Snooze(0)

    later.enqueue()
    lengths = []
    with working(app) as launcher:
        accept = launcher.fetcher.accept
        launcher.fetcher.accept = lambda units, queue, **how: (  # type: ignore[method-assign]
            lengths.extend(len(unit.payload) for unit in units),
            accept(units, queue, **how),
        )[1]
        until(lambda: len(sizes) == 4, "it ran four times")
    assert max(lengths) - min(lengths) < 5, lengths
    assert len(set(sizes)) == 1
    assert not jobs_in(redis, "schedule")


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_tracked_job_that_a_stop_cuts_off_was_interrupted(redis: Redis, redis_url: str, kind: str) -> None:
    app = App(redis_url=redis_url)
    app.connections.run(history.turn_on(app.keys, "strict", 1_000_000))
    inside = threading.Event()

    def long() -> None:
        inside.set()
        while True:
            time.sleep(0.01)  # until it is struck

    async def along() -> None:
        inside.set()
        await asyncio.sleep(600)

    job = app.job(name="long", track=True)(long if kind == "thread" else along)
    with working(app, stop=0.1):
        job.enqueue()
        assert inside.wait(60)
    last = stream(redis)[-1]
    assert last["s"] == "enqueued"
    assert json.loads(last["d"]) == {"ending": "interrupted", "reason": "the worker stopped", "cause": "stop"}
    assert redis.llen("queue:default") == 1


def test_a_stop_settles_what_waits_together_also_after_a_crash_among_outcomes(redis: Redis, redis_url: str) -> None:
    """An orphan's board says for ever what its supervisor wrote last: settled one by one, hundreds of outcomes would
    outlast its grace, and their jobs would run again."""
    app = App(redis_url=redis_url, concurrency=4)

    @app.job(name="note")
    def note(number: int) -> None: ...

    calls: list[Counter[str]] = []
    with working(app, stop=10.0) as made:
        commit = made.acker._commit

        def counted(batch: list[Any]) -> bool:
            calls.append(Counter(row[1] for row in batch))
            return commit(batch)

        made.board.one_by_one(True)
        with made.acker._flushing:  # outcomes wait, as behind a server that was away
            note.enqueue_many((number,) for number in range(200))
            until(lambda: len(made.acker._rows) >= 100, "outcomes that wait", 30)
            made.acker._commit = counted  # type: ignore[method-assign]
            stopping = threading.Thread(target=made.stop, args=(10.0,))
            stopping.start()
            until(lambda: made.acker.in_haste, "the stop", 10)
        stopping.join(30)
    assert max(call.total() for call in calls) >= 50, "together, whatever had started by then"
    assert not in_flight(redis)
    assert len(jobs_in(redis, "queue:default")) == 200 - sum(call["done"] for call in calls)


@pytest.mark.parametrize("way", ["fetched", "delivered"])
def test_what_comes_while_the_worker_stops_is_not_started(redis: Redis, redis_url: str, way: str) -> None:
    """A job asks whether its key is free, the answer takes its time, and the worker finds itself idle and stops. What
    started then would end with nobody left to settle it, and run again."""
    app = App(redis_url=redis_url, concurrency=2)
    ran: list[int] = []

    @app.job(name="keyed", key="number", unique=("queued", "running"))
    def keyed(number: int) -> None:
        ran.append(number)

    asking, answered, idle = threading.Event(), threading.Event(), threading.Event()
    app.on("shutdown")(lambda **_: idle.set())
    if way == "fetched":
        keyed.enqueue(1)
    with working(app, start=False) as launcher:
        claims = launcher.processor.claims
        claimed = claims.claimed

        def slowly(*args: Any) -> Any:
            found = claimed(*args)
            asking.set()
            assert answered.wait(60)
            return found

        claims.claimed = slowly  # type: ignore[method-assign]
        launcher.start()
        if way == "delivered":
            until(lambda: launcher.watcher.armed, "it waits for pushes")
            keyed.enqueue(1)
        assert asking.wait(60)
        stopping = threading.Thread(target=launcher.stop, args=[5.0])
        stopping.start()
        assert idle.wait(60), "nothing runs, as far as the worker can see"
        answered.set()
        stopping.join(60)
    assert ran == []
    assert [job["args"] for job in jobs_in(redis, "queue:default")] == [[1]]
    assert not in_flight(redis)
    assert not redis.hlen("hm:lock:r:keyed")
    with working(app):
        until(lambda: ran == [1], "another worker runs it, once")
    assert not redis.exists("queue:default", "hm:lock:r:keyed", "hm:lock:w:keyed")
