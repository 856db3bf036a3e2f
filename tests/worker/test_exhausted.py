"""The system refuses a thread or a descriptor, or two threads want one run: no slot is lost, and every job runs."""

from __future__ import annotations

import asyncio
import errno
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.kernel.events import Events
from henchman.worker import loop
from henchman.worker.pool import Pool
from support.worker import Heard, settled, until, working


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
