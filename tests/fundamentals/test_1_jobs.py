"""The tutorial, first part: define a job, enqueue it, have it worked."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta

import pytest

from henchman import App, ArgumentError
from support.worker import until, working


def test_a_job_is_a_function_that_is_run_later(app: App) -> None:
    sent = []

    @app.job(name="send_welcome")
    def send_welcome(user_id: int, *, lang: str = "en") -> None:
        sent.append((user_id, lang))

    send_welcome.enqueue(42, lang="de")

    assert sent == []
    with working(app):
        until(lambda: sent == [(42, "de")], "the job was run")


def test_called_it_runs_here_and_now(app: App) -> None:
    @app.job(name="double")
    def double(number: int) -> int:
        return 2 * number

    assert double(21) == 42


def test_an_async_def_is_a_job_too(app: App) -> None:
    seen = []

    @app.job(name="fetch")
    async def fetch(url: str) -> None:
        await asyncio.sleep(0)
        seen.append(url)

    async def push() -> None:
        await fetch.aenqueue("http://two")
        await app.aclose()

    fetch.enqueue("http://one")
    asyncio.run(push())

    with working(app):
        until(lambda: sorted(seen) == ["http://one", "http://two"], "both were run")


def test_jobs_of_a_queue_start_in_the_order_of_their_pushes(redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=1)
    seen: list[int] = []

    @app.job(name="note")
    def note(number: int) -> None:
        seen.append(number)

    for number in range(20):
        note.enqueue(number)

    with working(app):
        until(lambda: len(seen) == 20, "all were run")
    assert seen == list(range(20))


def test_wrong_arguments_are_refused_where_you_push(app: App) -> None:
    @app.job(name="send")
    def send(user_id: int) -> None: ...

    with pytest.raises(ArgumentError, match="missing 1 required"):
        send.enqueue()  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"user_id is NaN"):
        send.enqueue(float("nan"))  # type: ignore[arg-type]


def test_annotated_arguments_arrive_as_they_were(app: App) -> None:
    got = []

    @app.job(name="book")
    def book(day: date, at: datetime, slots: set[int]) -> None:
        got.append((day, at, slots))

    moment = datetime(2030, 5, 6, 7, 8, tzinfo=UTC)
    book.enqueue(date(2030, 1, 2), moment, {3, 4})

    with working(app):
        until(lambda: got == [(date(2030, 1, 2), moment, {3, 4})], "the arguments arrived")


def test_later(app: App) -> None:
    seen = []
    job = app.job(name="later")(lambda: seen.append(datetime.now(UTC)))
    pushed = datetime.now(UTC)
    handle = job.using(delay=timedelta(seconds=0.3)).enqueue()

    assert handle.status().state == "scheduled"
    with working(app):
        until(lambda: seen, "the job was run")
    assert seen[0] - pushed > timedelta(seconds=0.25)


def test_many_at_once(app: App) -> None:
    seen: set[int] = set()

    @app.job(name="add")
    def add(number: int) -> None:
        seen.add(number)

    told = add.enqueue_many((number,) for number in range(2500))

    assert (told.count, told.created) == (2500, 2500)
    with working(app):
        until(lambda: len(seen) == 2500, "all were run")


def test_by_name_for_workers_in_another_language(app: App) -> None:
    seen = []
    app.job(name="HardJob")(lambda *args: seen.append(args))

    app.enqueue("HardJob", "bob", 5)

    with working(app):
        until(lambda: seen == [("bob", 5)], "the job was run")
