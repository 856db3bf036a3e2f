"""Async jobs in a worker: slots, cancellation, stacks. In-process, on a real server."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis import Redis

from henchman import App, current_job
from henchman.store.leases import tell
from henchman.worker import launcher as launcher_module
from henchman.worker.launcher import Launcher
from henchman.worker.loop import Loop
from support.worker import Heard, in_flight, jobs_in, looker, settled, until, working


@pytest.mark.alone("it measures how long they take")
def test_50_jobs_that_sleep_1_s_on_50_slots_take_about_1_s(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=50)
    ends: list[float] = []

    @app.job(name="nap")
    async def nap() -> None:
        await asyncio.sleep(1)
        ends.append(time.monotonic())

    nap.enqueue_many([()] * 50)
    started = time.monotonic()
    with working(app):
        until(lambda: len(ends) == 50, "all woke")
        settled(redis, 50)
    assert ends[-1] - started < 2.0


def test_more_async_jobs_than_slots_wait(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=4)
    now = most = 0
    full = asyncio.Event()

    @app.job(name="nap")
    async def nap() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if most == 4:
            full.set()
        async with asyncio.timeout(60):
            await full.wait()
        await asyncio.sleep(0.02)
        now -= 1

    nap.enqueue_many([()] * 40)
    with working(app):
        settled(redis, 40)
    assert most == 4


def test_a_task_cancelled_before_its_first_step_is_settled_and_frees_its_slot(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_module, "LOOP_BLOCKED", 600.0)  # however long it is: it is given the second task
    app = App(redis_url=redis_url, concurrency=2)
    blocked, release = threading.Event(), threading.Event()
    ran: list[str] = []

    @app.job(name="block")
    async def block() -> None:
        blocked.set()
        release.wait(60)

    @app.job(name="note")
    async def note(name: str) -> None:
        ran.append(name)

    with working(app) as launcher:
        block.enqueue()
        assert blocked.wait(30)
        victim = note.enqueue("victim")
        until(lambda: len(launcher.pool.tasks) == 2, "its task is launched on the blocked loop")
        victim.cancel()
        until(lambda: any(run.cancelled for run in list(launcher.pool.tasks)), "it was told")
        release.set()
        until(lambda: launcher.pool.free == 2, "both slots are free again")
        note.enqueue("next")
        until(lambda: ran == ["next"], "the next one runs")
        until(lambda: not in_flight(redis), "nothing is left in flight")
        until(lambda: not redis.zcard("hm:cancelled"), "the cancellation is carried out")


def test_a_running_task_is_cancelled_and_a_running_thread_is_told(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url)
    seen: list[str] = []
    started = threading.Semaphore(0)

    @app.job(name="task")
    async def task() -> None:
        started.release()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(f"task {current_job().cancelled}")
            raise

    @app.job(name="thread")
    def thread() -> None:
        started.release()
        until(lambda: current_job().cancelled, "it is told")
        seen.append("thread")

    with working(app):
        handles = [task.enqueue(), thread.enqueue()]
        assert started.acquire(timeout=30)
        assert started.acquire(timeout=30)
        for handle in handles:
            handle.cancel()
        until(lambda: sorted(seen) == ["task True", "thread"], "both know")
        until(lambda: not in_flight(redis), "both are settled")
    assert not redis.exists("retry", "dead", "queue:default")


def test_a_waiting_job_that_was_cancelled_never_starts(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url)
    ran: list[int] = []

    @app.job(name="note")
    def note(number: int) -> None:
        ran.append(number)

    @app.job(name="anote")
    async def anote(number: int) -> None:
        ran.append(number)

    handles = [*(note.enqueue(n) for n in range(5)), *(anote.enqueue(n) for n in range(5, 10))]
    handles.append(note.using(delay=0.2).enqueue(10))
    for number in (1, 6, 10):
        handles[number].cancel()
    with working(app):
        until(lambda: len(ran) == 8, "the others ran")
        until(lambda: not redis.zcard("schedule") and not redis.llen("queue:default"), "the scheduled one came up")
        until(lambda: not in_flight(redis), "all are settled")
        until(lambda: not redis.zcard("hm:cancelled"), "the cancellations are carried out")
    assert sorted(ran) == [0, 2, 3, 4, 5, 7, 8, 9]


def test_a_job_that_cancels_itself_is_an_error(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url)

    @app.job(name="odd", retry=0)
    async def odd() -> None:
        raise asyncio.CancelledError

    odd.enqueue()
    with working(app):
        settled(redis, 1)
    (job,) = jobs_in(redis, "dead")
    assert "cancelled itself" in job["error_message"]


def test_stacks_show_where_a_task_waits(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url)
    heard = Heard(app, "dump")

    inside = threading.Event()

    async def inner() -> None:
        inside.set()
        await asyncio.sleep(60)

    @app.job(name="outer")
    async def outer() -> None:
        await inner()

    with working(app, stop=0) as launcher:
        handle = outer.enqueue()
        assert inside.wait(30)
        until(lambda: _asleep(launcher), "it waits")
        app.connections.run(_tell(app, launcher.session.identity, "dump"))
        (facts,) = until(lambda: heard["dump"], "the dump")
        (frames,) = (stack for name, stack in facts["tasks"].items() if handle.jid in name)
        functions = [frame.rpartition(" ")[2] for frame in frames]
        assert functions[:3] == ["sleep", "inner", "outer"], "newest first"
        assert any("henchman-loop" in name for name in facts["threads"])


def _asleep(launcher: Launcher) -> bool:
    return any(frames and frames[0].endswith(" sleep") for frames in launcher.loop.stacks().values())


def _tell(app: App, identity: str, verb: str):  # type: ignore[no-untyped-def]
    return tell(app.keys, identity, verb)


def test_a_blocked_loop_gets_no_more_jobs_and_threads_go_on(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=4)
    heard = Heard(app, "loop_blocked", "loop_back")
    release = threading.Event()
    ran: list[str] = []

    @app.job(name="block")
    async def block() -> None:
        release.wait(60)

    @app.job(name="anote")
    async def anote() -> None:
        ran.append("task")

    @app.job(name="note")
    def note() -> None:
        ran.append("thread")

    with working(app):
        block.enqueue()
        until(lambda: any("in block" in frame for one in heard["loop_blocked"] for frame in one["stack"]), "it is seen")
        back = len(heard["loop_back"])
        note.enqueue_many([()] * 3)
        until(lambda: ran == ["thread"] * 3, "threads go on")
        release.set()
        until(lambda: len(heard["loop_back"]) > back, "it is back")
        anote.enqueue()
        until(lambda: ran[3:] == ["task"], "tasks go on")


def test_a_loop_that_starts_late_is_not_taken_for_blocked(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has turned for the first time, the time before its start does not count."""
    going, go_on = threading.Event(), threading.Event()
    beat = Loop._beat

    def held(loop: Loop) -> None:
        going.set()
        assert go_on.wait(60)
        beat(loop)

    monkeypatch.setattr(Loop, "_beat", held)
    app = App(redis_url=redis_url)

    @app.job(name="note")
    async def note() -> None: ...

    with looker(redis_url) as redis, working(app) as launcher:
        launcher.loop.ticked -= 3600  # the worker has run for an hour without an async job
        assert launcher.loop.blocked_for() == 0.0
        note.enqueue()
        assert going.wait(60)
        try:
            assert launcher.loop.blocked_for() < 1800
        finally:
            go_on.set()
        settled(redis, 1)


def test_sync_jobs_go_on_beside_a_blocked_loop(redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=3)
    blocked, release, ran = threading.Event(), threading.Event(), []

    @app.job(name="block")
    async def block() -> None:
        blocked.set()
        release.wait(60)

    @app.job(name="later")
    async def later(number: int) -> None:
        ran.append(f"later{number}")

    @app.job(name="plain")
    def plain(number: int) -> None:
        ran.append(f"plain{number}")

    with looker(redis_url) as redis, working(app) as launcher:
        block.enqueue()
        assert blocked.wait(60)
        until(
            lambda: launcher.pool.hold_tasks and launcher.loop.blocked_for() > launcher_module.LOOP_BLOCKED,
            "the loop is known to be blocked",
        )
        for number in range(5):
            later.enqueue(number)
            plain.enqueue(number)
        until(lambda: len(ran) == 5, "the sync jobs ran")
        assert sorted(ran) == [f"plain{number}" for number in range(5)]
        release.set()
        settled(redis, 11)
        assert len(ran) == 10


def _exit_in_gather() -> Any:
    async def exits() -> None:
        sys.exit(3)

    return asyncio.gather(exits(), asyncio.sleep(60))


async def _exit_in_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_raises(SystemExit(3)))


async def _raises(error: BaseException) -> None:
    raise error


async def _exit_in_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit)
    await asyncio.sleep(0.01)


async def _interrupt() -> None:
    await asyncio.create_task(_raises(KeyboardInterrupt()))


async def _stop() -> None:
    asyncio.get_running_loop().stop()


@pytest.mark.parametrize("deed", [_exit_in_gather, _exit_in_group, _exit_in_callback, _interrupt, _stop])
def test_a_job_that_ends_the_event_loop_ends_nobody_else(
    redis: Redis, redis_url: str, deed: Callable[[], Awaitable[None]]
) -> None:
    app = App(redis_url=redis_url, concurrency=4)
    ran: list[str] = []
    go = threading.Event()
    heard = Heard(app, "loop_ended")

    @app.job(name="end", retry=0)
    async def end() -> None:
        await deed()

    @app.job(name="beside")
    async def beside() -> None:
        ran.append("began")
        while not go.is_set():  # noqa: ASYNC110 - told by another thread
            await asyncio.sleep(0.01)
        ran.append("beside")

    @app.job(name="thread")
    def thread() -> None:
        ran.append("thread")

    with working(app) as launcher:
        beside.enqueue()
        until(lambda: ran == ["began"], "one is in the middle")
        end.enqueue()
        until(lambda: heard["loop_ended"], "the loop was ended")
        thread.enqueue()
        beside.enqueue()
        until(lambda: sorted(ran) == ["began", "began", "thread"], "sync and async jobs start")
        go.set()
        settled(redis, 4)
        until(lambda: launcher.pool.free == 4, "every slot is free")
        assert sorted(ran) == ["began", "began", "beside", "beside", "thread"], "each ran once"
    assert not redis.exists("retry", "queue:default")


def test_jobs_on_a_loop_that_was_closed_start_again_on_another(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=4)
    ran: list[str] = []
    cleaned: list[str] = []
    closed: list[Any] = []

    def close(error: BaseException | None) -> None:
        """In the moment in which it does not run: else nobody could."""
        if len(closed) == 0:
            closed.append(launcher.loop._loop)
            closed[0].close()

    app.events.on("loop_ended", close)

    @app.job(name="end")
    async def end() -> None:
        await _stop()

    @app.job(name="first", track=True)
    async def first(name: str) -> None:
        ran.append(name)
        try:
            if ran.count(name) == 1:
                await asyncio.sleep(600)
        finally:
            cleaned.append(name)
            await asyncio.sleep(0)

    with working(app) as launcher:
        first.enqueue_many([("a",), ("b",)])
        until(lambda: len(ran) == 2, "both are in the middle")
        end.enqueue()
        settled(redis, 3)
        assert sorted(ran) == ["a", "a", "b", "b"]
        assert sorted(cleaned) == ["a", "a", "b", "b"]
        until(lambda: launcher.pool.free == 4, "every slot is free")
        assert not launcher.board.started()[1:], "but for the thread's last"
    assert not redis.exists("retry", "dead", "queue:default")
