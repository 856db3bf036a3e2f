"""testing.inline: a push runs its job here and now."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from henchman import App, ArgumentError, Discard, Failure, JobTimeout, Kill, Snooze, current_job, testing
from henchman.errors import HenchmanError, UnknownJob


@pytest.fixture
def app() -> App:
    """An app whose server nobody may ask."""
    return App(redis_url="redis://nobody.invalid:1")


def test_arguments_travel_as_text_and_come_back_as_they_were_declared(app: App) -> None:
    got: list[Any] = []

    @app.job(name="bill", queue="money", tags=["x"])
    def bill(day: date, rows: list[int], *, note: str = "none") -> str:
        job = current_job()
        got.append((day, rows, note, job.queue, job.attempt, job.payload["tags"], len(job.jid)))
        return "billed"

    with testing.inline(app) as jobs:
        handle = bill.enqueue(date(2026, 1, 2), rows=[1, 2], note="é")
        assert got == [(date(2026, 1, 2), [1, 2], "é", "money", 1, ["x"], 24)]
        with pytest.raises(ArgumentError, match=r"rows\[0\]"):
            bill.enqueue(date(2026, 1, 2), [object()])  # type: ignore[list-item]
    assert handle.admission == "created"
    [ran] = jobs.ran
    assert (ran.name, ran.jid, ran.ending, ran.result) == ("bill", handle.jid, "done", "billed")


def test_scheduled_and_many_run_at_once_and_in_order(app: App) -> None:
    got: list[int] = []

    @app.job(name="keep")
    def keep(number: int) -> None:
        got.append(number)

    with testing.inline(app):
        keep.using(delay=3600).enqueue(1)
        keep.using(at=datetime.now(UTC) + timedelta(days=9)).enqueue(2)
        assert keep.enqueue_many((n,) for n in (3, 4)).created == 2
        app.enqueue("keep", 5)
    assert got == [1, 2, 3, 4, 5]


def test_both_chains_are_passed_through(app: App) -> None:
    seen: list[str] = []

    @app.client_middleware.add
    def stamp(job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        if job["args"] == ["stop"]:
            return None
        job["args"] = [job["args"][0].upper()]
        return call_next()

    @app.server_middleware.add
    def around(run: Any, call_next: Callable[[], Any]) -> Any:
        seen.append(f"before {run.queue}")
        try:
            return call_next()
        finally:
            seen.append("after")

    @app.job(name="say")
    def say(word: str) -> None:
        seen.append(word)
        if word == "BANG":
            raise ValueError(word)

    with testing.inline(app) as jobs:
        say.enqueue("hi")
        assert say.enqueue("stop").admission == "stopped"
        with pytest.raises(ValueError, match="BANG"):
            say.enqueue("bang")
    assert seen == ["before default", "HI", "after", "before default", "BANG", "after"]
    assert len(jobs.ran) == 1


def test_how_jobs_ask_to_end_is_honoured_and_told(app: App) -> None:
    died: list[str] = []
    app.death_handlers.append(lambda job, error: died.append(job["class"]))
    waits = [Snooze(30), Snooze(60)]

    @app.job(name="end")
    def end(how: str) -> None:
        if how == "snooze" and waits:
            raise waits.pop()
        if how != "snooze":
            raise {"failure": Failure("no"), "discard": Discard("away"), "kill": Kill("enough")}[how]

    with testing.inline(app) as jobs:
        for how in ("failure", "discard", "kill", "snooze"):
            end.enqueue(how)
    assert [one.ending for one in jobs.ran] == ["failed", "discarded", "dead", "snoozed", "snoozed", "done"]
    assert jobs.ran[0].reason == "no"
    assert died == ["end"]


def test_a_job_that_puts_itself_off_for_ever(app: App) -> None:
    @app.job(name="wait")
    def wait() -> None:
        raise Snooze(5)

    with testing.inline(app), pytest.raises(HenchmanError, match=r"wait put itself off 100 times .* testing\.fake"):
        wait.enqueue()


def test_errors_go_to_the_caller_and_nobody_else(app: App) -> None:
    told: list[Any] = []
    app.error_handlers.append(lambda error, facts: told.append(error))
    app.death_handlers.append(lambda job, error: told.append(error))

    @app.job(name="boom", retry=0)
    def boom() -> None:
        raise KeyError("boom")

    @app.job(name="outer")
    def outer() -> None:
        boom.enqueue()

    with testing.inline(app):
        for job in (boom, outer):
            with pytest.raises(KeyError, match="boom"):
                job.enqueue()
        with pytest.raises(UnknownJob, match="'Hard'"):
            app.enqueue("Hard", 1)
        with pytest.raises(RuntimeError, match="outside of a running job"):
            current_job()
    assert told == []


def test_async_jobs_run_wherever_the_push_is(app: App) -> None:
    context: contextvars.ContextVar[str] = contextvars.ContextVar("context")
    got: list[tuple[str, Any, bool]] = []
    loops: list[Any] = []

    @app.job(name="anote")
    async def anote(word: str) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        got.append((word, context.get("none"), threading.current_thread() is threading.main_thread()))

    async def scene() -> None:
        context.set("request")
        anote.enqueue("beneath")
        await anote.aenqueue("awaited")
        await anote.aenqueue_many([("many",)])
        assert loops[2] is asyncio.get_running_loop()

    with testing.inline(app):
        anote.enqueue("plain")
        asyncio.run(scene())
    assert got == [
        ("plain", "none", True),
        ("beneath", "request", False),
        ("awaited", "request", True),
        ("many", "request", True),
    ]


def test_the_time_out_of_an_async_job_strikes(app: App) -> None:
    @app.job(name="slow", timeout=0.01)
    async def slow() -> None:
        assert current_job().deadline is not None
        await asyncio.sleep(30)

    with testing.inline(app), pytest.raises(JobTimeout, match=r"longer than its timeout of 0\.01 s"):
        slow.enqueue()


def test_what_needs_a_server_is_refused_with_the_way_out(app: App) -> None:
    with testing.inline(app):
        app.cancel("0" * 24)
        with pytest.raises(
            testing.NotFaked, match=r"testing\.inline catches .* this needs a server: .*testing\.worker"
        ):
            app.job_status("0" * 24)


def test_a_cancelled_task_of_the_test_is_not_the_jobs_end(app: App) -> None:
    @app.job(name="long")
    async def long() -> None:
        await asyncio.sleep(30)

    @app.job(name="odd")
    async def odd() -> None:
        raise asyncio.CancelledError

    async def scene() -> None:
        with pytest.raises(RuntimeError, match="cancelled itself"):
            await odd.aenqueue()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(long.aenqueue(), 0.01)

    with testing.inline(app):
        asyncio.run(scene())
