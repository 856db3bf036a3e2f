"""The system refuses a thread or a descriptor, or two threads want one run: no slot is lost, and every job runs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.batch import batch
from henchman.kernel.events import Events
from henchman.kernel.threads import Service
from henchman.worker import loop
from henchman.worker.pool import Pool
from support.worker import Heard, in_flight, overdue, settled, until, working


class Taken(deque[Any]):
    """Runs that wait; before the ``step``-th look at them another thread takes them."""

    def __init__(self, runs: Iterable[Any], step: int) -> None:
        super().__init__(runs)
        self.step, self.looks = step, 0

    def _look(self) -> None:
        if self.looks == self.step:
            super().clear()
        self.looks += 1

    def __len__(self) -> int:
        self._look()
        return super().__len__()

    def __bool__(self) -> bool:
        return len(self) > 0

    def __getitem__(self, place: Any) -> Any:
        self._look()
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[Any]:
        self._look()
        return super().__iter__()


def at_each_look(make: Callable[[], Pool], act: Callable[[Pool], object]) -> int:
    """Let ``act(pool)`` run on a fresh pool whose one waiting run another thread takes before the first look at it,
    then (on another pool) before the second, and so on. How many looks there were."""
    for step in itertools.count():
        one = make()
        one._threads = runs = Taken(one._threads, step)
        act(one)
        if runs.looks <= step:
            return step
    raise AssertionError


def waiting(cost: float | None, free: int) -> Pool:
    """A pool of three slots, of which ``free`` are, with one run that waits for a thread."""
    processor: Any = SimpleNamespace(execute=lambda slot, run: None)
    one = Pool(3, processor, SimpleNamespace(launch=None), Events(), lambda: None)  # type: ignore[arg-type]
    one.free = free
    one._wake_thread = lambda: None  # type: ignore[method-assign]
    run: Any = SimpleNamespace(unit=SimpleNamespace(fetched_at=1.0), compiled=SimpleNamespace(cost=cost))
    one._threads.append(run)
    return one


def dispatch(one: Pool) -> None:
    with one._lock:
        one._dispatch()


@pytest.mark.parametrize(
    ("act", "cost", "free"),
    [(dispatch, None, 2), (dispatch, 0.00001, 3), (dispatch, 0.00001, 2), (Pool.stuck_since, None, 0)],
)
def test_a_run_that_another_thread_takes_at_any_look_ends_no_thread(
    act: Callable[[Pool], object], cost: float | None, free: int
) -> None:
    """Threads take runs without the lock. One that ended of an error here had a slot, for ever."""
    assert at_each_look(lambda: waiting(cost, free), act) > 0


def refusing(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> list[str]:
    """The system refuses so many threads whose names begin like that; those that were refused."""
    refused: list[str] = []
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        if thread.name.startswith(name) and len(refused) < times:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    return refused


def test_a_thread_that_the_system_refuses_costs_no_slot(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(redis_url=redis_url, concurrency=3)
    heard = Heard(app, "part_failed")
    together = threading.Barrier(3)

    @app.job(name="meet")
    def meet() -> None:
        together.wait(60)

    refused = refusing(monkeypatch, "henchman-job", 9)
    meet.enqueue_many([()] * 3)
    with working(app) as launcher:
        settled(redis, 3)
        until(lambda: launcher.pool.free == 3, "every slot is free again")
        assert len(launcher.pool.slots) == 3
    assert len(refused) == 9
    assert [(one["part"], str(one["error"])) for one in heard["part_failed"]] == [("pool", "can't start new thread")]


@pytest.mark.parametrize("what", ["descriptor", "thread"])
def test_an_event_loop_that_the_system_refuses_is_made_later(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    app = App(redis_url=redis_url, concurrency=2)
    heard = Heard(app, "part_failed")
    ran: list[str] = []

    @app.job(name="note")
    async def note() -> None:
        ran.append("note")

    if what == "thread":
        refusing(monkeypatch, "henchman-loop", 1)
    else:
        make, tries = asyncio.new_event_loop, itertools.count()

        def made() -> asyncio.AbstractEventLoop:
            if threading.current_thread().name != "MainThread" and next(tries) == 0:
                raise OSError(errno.EMFILE, "Too many open files")
            return make()

        monkeypatch.setattr(loop.asyncio, "new_event_loop", made)
    with working(app) as launcher:
        note.enqueue()
        until(lambda: ran, "it runs when there is a loop", 30)
        settled(redis, 1)
        until(lambda: launcher.pool.free == 2, "its slot is free")
    assert [one["part"] for one in heard["part_failed"]] == ["loop"]


def test_an_async_job_is_judged_where_no_thread_can_be_had_for_that(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(redis_url=redis_url)
    app.error_handlers.append(lambda error, facts: None)  # it may wait, so that a thread asks it

    @app.job(name="answer", result_ttl=60)
    async def answer() -> int:
        return 42

    refused = refusing(monkeypatch, "henchman-apart", 1)
    with working(app):
        assert answer.enqueue().result(timeout=30) == 42
        settled(redis, 1)
    assert refused
    assert not redis.exists("dead")


@pytest.mark.parametrize("hooked", [True, False])
def test_a_job_that_ignores_its_time_out_is_given_up_where_no_thread_can_be_had_for_that(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch, hooked: bool
) -> None:
    """It was never settled: what it said was ignored, for it counted as given up."""
    inside, may_end, asked, told = threading.Event(), threading.Event(), list[str](), list[str]()
    if hooked:
        app.error_handlers.append(lambda error, facts: told.append(str(error)))

    @app.job(name="stubborn", timeout=60, retry=0)
    def stubborn() -> None:
        inside.set()
        while not may_end.is_set():
            with contextlib.suppress(BaseException):
                may_end.wait(0.01)

    refused = refusing(monkeypatch, "henchman-hook", 9)
    stubborn.enqueue()
    with working(app, replace=asked.append) as launcher:
        assert inside.wait(30)
        launcher.watchdog.grace = 0.05
        overdue(launcher)
        until(lambda: redis.zcard("dead") or overdue(launcher), "it was given up")
        settled(redis, 1)
        until(lambda: asked, "another process was asked for")
        may_end.set()
    assert bool(refused) == bool(told) == hooked


def test_hooks_for_which_no_thread_can_be_had(app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shutdown hook is called all the same, the others are named, and the worker stops in good order."""
    app.configure(heartbeat=0.1)
    told, heard = list[str](), Heard(app, "handler_broken")
    for event in ("beat", "quiet", "shutdown"):
        app.on(event)(functools.partial(told.append, event))

    @app.job(name="plain")
    def plain() -> None: ...

    refusing(monkeypatch, "henchman-hook", 1_000_000)
    with working(app):
        until(lambda: heard["handler_broken"], "a beat was refused")
        plain.enqueue()
        settled(redis, 1)
    assert told == ["shutdown"]
    assert {str(one["error"]) for one in heard["handler_broken"]} == {"can't start new thread"}
    assert ("quiet",) in [one["handler"].args for one in heard["handler_broken"]]
    assert not redis.keys("*hm:lease:*")


def test_ends_that_the_server_refuses_take_no_threads(app: App, redis: Redis) -> None:
    """Each was tried again by a thread of its own: thousands, where a server refuses everything."""
    heard = Heard(app, "refused")

    @app.job(name="fails", retry=0)
    def fails() -> None:
        raise ValueError("no")

    redis.set("dead", "text")
    fails.enqueue_many([()] * 100)
    with working(app):
        until(lambda: len(heard["refused"]) >= 150, "each was refused, and tried again")
        assert threading.active_count() < 50
        redis.delete("dead")
        until(lambda: redis.zcard("dead") == 100, "each is dead")
        until(lambda: not in_flight(redis), "nothing is in flight")


def test_what_is_settled_alone_is_settled_where_no_thread_can_be_had_for_that(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had done its work, and went to the dead set."""
    heard = Heard(app, "late", "part_failed")

    @app.job(name="alone", ack="each")
    async def alone() -> None: ...

    refused = refusing(monkeypatch, "henchman-ack_", 1)
    alone.enqueue_many([()] * 3)
    with working(app) as launcher:
        settled(redis, 3)
        until(lambda: launcher.pool.free == launcher.pool.size, "every slot is free")
    assert refused
    assert not redis.exists("dead", "retry")
    assert heard["late"] == heard["part_failed"] == []


def test_a_part_that_the_system_refused_a_thread_can_be_stopped_and_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class Part(Service):
        name = "part"

        def run(self) -> None:
            self.stopping.wait(30)

    part = Part()
    refusing(monkeypatch, "henchman-part", 1)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        part.start()
    part.start()
    assert part.alive
    assert part.stop()


def test_the_lease_of_a_batch_is_renewed_once_a_thread_can_be_had(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch.leases, "_thread", None)
    monkeypatch.setattr(batch.leases, "_filled", {})
    refusing(monkeypatch, "henchman-batches", 1)
    with pytest.raises(RuntimeError, match="can't start new thread"), app.batch("one"):
        pass
    assert batch.leases._filled == {}, "nobody holds what nobody renews"
    with app.batch("two"):
        assert batch.leases._thread is not None
        assert batch.leases._thread.is_alive()


def test_who_waits_for_a_result_hears_of_it_once_a_thread_can_be_had(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job(name="answer", result_ttl=60)
    def answer() -> int:
        return 42

    refusing(monkeypatch, "henchman-results", 1)
    handle = answer.enqueue()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        handle.result(timeout=30)
    with working(app):
        assert handle.result(timeout=30) == 42


def test_a_commit_into_the_outbox_raises_nothing_where_no_thread_can_be_had(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, "henchman-outbox-waker", 1)
    with closing(redis.pubsub()) as relay:
        relay.subscribe(app.keys.outbox_wake)
        app.outbox.wake()
        assert app.outbox._waker._thread is None
        app.outbox.wake()
        until(lambda: (relay.get_message() or {}).get("type") == "message", "the relay was rung")
