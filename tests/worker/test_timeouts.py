"""Time-outs: of threads, of tasks, and of jobs that ignore them. In-process, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
import time
import traceback

import pytest
from redis import Redis

from henchman import App, Failure, JobTimeout, current_job
from support.worker import Heard, in_flight, jobs_in, overdue, settled, until, working

LATE = "the job ran longer than its timeout of 0.2 s"


def _wait_in_slices(seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            time.sleep(0.01)  # the thing under test: a loop that sleeps, with a broad except
        except Exception:  # noqa: S112
            continue


def test_a_thread_is_struck_also_in_a_loop_with_a_broad_except(app: App, redis: Redis) -> None:
    @app.job(name="slow", timeout=0.2, retry=0)
    def slow() -> None:
        _wait_in_slices()

    slow.enqueue()
    with working(app):
        settled(redis, 1)
    (job,) = jobs_in(redis, "dead")
    assert (job["error_class"], job["error_message"]) == ("JobTimeout", LATE)


def test_a_task_is_cancelled(app: App, redis: Redis) -> None:
    cleaned: list[str] = []

    @app.job(name="slow", timeout=0.2, retry=0)
    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.append("up")

    @app.job(name="own", retry=0)
    async def own() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(30)

    slow.enqueue()
    own.enqueue()
    with working(app):
        settled(redis, 2)
    dead = {job["class"]: (job["error_class"], job["error_message"]) for job in jobs_in(redis, "dead")}
    assert dead == {"slow": ("JobTimeout", LATE), "own": ("TimeoutError", "")}
    assert cleaned == ["up"]


def test_a_job_may_clean_up_and_say_how_it_ends(app: App, redis: Redis) -> None:
    inside = threading.Event()

    @app.job(name="tidy", timeout=600)
    def tidy() -> None:
        try:
            inside.set()
            _wait_in_slices()
        except JobTimeout:
            raise Failure("took too long") from None

    tidy.enqueue()
    with working(app) as launcher:
        assert inside.wait(60)
        overdue(launcher)
        settled(redis, 1)
    assert not redis.exists("retry", "dead")


def test_the_push_may_give_another_timeout(app: App, redis: Redis) -> None:
    left: list[float] = []

    @app.job(name="look", timeout=0.2)
    def look() -> None:
        deadline = current_job().deadline
        assert deadline is not None
        left.append(deadline - time.monotonic())

    look.using(timeout=90).enqueue()
    with working(app):
        settled(redis, 1)
    assert 80 < left[0] <= 90


def test_a_late_strike_never_reaches_the_next_job(app: App, redis: Redis) -> None:
    """Jobs that end within a hair of their time-out, one after the other in the same threads."""
    bystanders: list[str] = []

    @app.job(name="close", timeout=0.02, retry=0)
    def close() -> None:
        time.sleep(0.0199)  # ends about when it is struck

    @app.job(name="bystander", retry=0)
    def bystander() -> None:
        for _ in range(20):
            time.sleep(0.0005)  # room for a strike that was meant for another
        bystanders.append("fine")

    for _ in range(150):
        close.enqueue()
        bystander.enqueue()
    with working(app) as launcher:
        settled(redis, 300)
        until(lambda: launcher.pool.free == launcher.pool.size, "every slot is free again")
    assert len(bystanders) == 150
    assert {job["class"] for job in jobs_in(redis, "dead")} <= {"close"}


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_job_that_swallows_its_timeout_is_given_up(app: App, redis: Redis, kind: str) -> None:
    inside, release = threading.Event(), threading.Event()
    asked: list[str] = []
    heard = Heard(app, "job_abandoned", "late")

    def swallow() -> None:
        while not release.is_set():
            try:
                inside.set()
                while not release.is_set():
                    time.sleep(0.01)  # stubborn on purpose
            except BaseException:  # noqa: S112
                continue
        raise ValueError("what it still says is ignored")

    async def aswallow() -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        raise ValueError("what it still says is ignored")

    limit = 600 if kind == "thread" else 0.1  # a task is struck only where it awaits
    job = app.job(name="stubborn", timeout=limit, retry=0)(swallow if kind == "thread" else aswallow)
    with working(app, replace=asked.append) as launcher:
        launcher.watchdog.grace = 0.2
        job.enqueue()
        if kind == "thread":
            assert inside.wait(60)
            overdue(launcher)
        settled(redis, 1)
        (dead,) = jobs_in(redis, "dead")
        assert (dead["error_class"], dead["error_message"]) == ("JobTimeout", "still running 0.2 s after its time-out")
        until(lambda: asked, "another process is asked for")
        assert len(asked) == 1
        assert "stubborn" in asked[0]
        assert len(heard["job_abandoned"]) == 1
        release.set()
        until(lambda: launcher.pool.free == launcher.pool.size, "it ended after all")
    assert not heard["late"]
    assert redis.get("stat:processed") == b"1"
    assert len(jobs_in(redis, "dead")) == 1
    assert not redis.exists("retry", "queue:default")
    assert not in_flight(redis)


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_who_returns_after_its_timeout_and_was_not_told_of_it_has_timed_out(app: App, redis: Redis, kind: str) -> None:
    """A call of C code that holds the interpreter lock for longer, and after it nothing but the end."""

    def block() -> int:
        return ctypes.PyDLL(None).usleep(400_000)  # type: ignore[no-any-return]

    async def ablock() -> int:
        return block()

    app.job(name="block", timeout=0.2, retry=0)(block if kind == "thread" else ablock).enqueue()
    with working(app):
        settled(redis, 1)
    (job,) = jobs_in(redis, "dead")
    assert (job["error_class"], job["error_message"]) == ("JobTimeout", LATE)


def test_a_timed_out_task_shows_where_it_stood(app: App, redis: Redis) -> None:
    seen: list[str] = []
    app.error_handlers.append(lambda error, facts: seen.extend(traceback.format_exception(error)))

    async def deep_inside() -> None:
        await asyncio.sleep(30)

    @app.job(name="slow", timeout=0.2, retry=0)
    async def slow() -> None:
        await deep_inside()

    slow.enqueue()
    with working(app):
        settled(redis, 1)
    assert "in deep_inside" in "".join(seen)


def test_who_is_told_of_its_timeout_and_returns_all_the_same_has_its_say(app: App, redis: Redis) -> None:
    @app.job(name="thread", timeout=0.2, retry=0)
    def thread() -> None:
        with contextlib.suppress(JobTimeout):
            _wait_in_slices()

    @app.job(name="task", timeout=0.2, retry=0)
    async def task() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)

    thread.enqueue()
    task.enqueue()
    with working(app):
        settled(redis, 2)
    assert not redis.exists("retry", "dead")
