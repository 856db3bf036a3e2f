"""The tutorial, second part: how a job ends, and what a handle tells."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from henchman import App, Discard, Failure, Kill, Snooze, current_job
from support.worker import Heard, looker, settled, until, working


def test_an_error_is_retried(app: App) -> None:
    attempts = []

    @app.job(name="flaky", retry_in=0)
    def flaky() -> None:
        attempts.append(current_job().attempt)
        if len(attempts) < 3:
            raise OSError("not yet")

    flaky.enqueue()

    with working(app):
        until(lambda: attempts == [1, 2, 3], "the third run")


def test_a_job_out_of_retries_lies_in_the_dead_set(app: App) -> None:
    @app.job(name="hopeless", retry=0)
    def hopeless() -> None:
        raise OSError("never")

    handle = hopeless.enqueue()

    with working(app):
        until(lambda: handle.status().state == "dead", "the job died")
    assert handle.status().error == ("OSError", "never")


@pytest.mark.parametrize("answer", [Failure("not eligible"), Discard("forget it")])
def test_an_answer_that_is_no_error_is_never_retried(app: App, redis_url: str, answer: Exception) -> None:
    runs = []

    @app.job(name="ask")
    def ask() -> None:
        runs.append(1)
        raise answer

    ask.enqueue()

    with looker(redis_url) as redis, working(app):
        settled(redis, 1)
        assert not redis.exists("retry", "dead", "schedule")
    assert runs == [1]


def test_kill_goes_to_the_dead_set_at_once(app: App) -> None:
    @app.job(name="bad")
    def bad() -> None:
        raise Kill("no use")

    handle = bad.enqueue()
    with working(app):
        until(lambda: handle.status().state == "dead", "the job died")


def test_snooze_comes_back_and_spends_no_attempt(app: App) -> None:
    attempts = []

    @app.job(name="wait")
    def wait() -> None:
        attempts.append(current_job().attempt)
        if len(attempts) == 1:
            raise Snooze(0.05)

    wait.enqueue()
    with working(app):
        until(lambda: attempts == [1, 1], "the second run")


def test_what_was_cancelled_never_starts(app: App) -> None:
    seen: list[int] = []

    @app.job(name="note")
    def note(number: int) -> None:
        seen.append(number)

    unwanted, wanted = note.enqueue(1), note.enqueue(2)

    unwanted.cancel()

    with working(app):
        until(lambda: seen == [2], "the other one was run")
        until(lambda: wanted.status().state == unwanted.status().state == "unknown", "both are gone")
    assert seen == [2]


def test_a_running_job_is_told_that_it_was_cancelled(app: App, redis_url: str) -> None:
    running, told = threading.Event(), threading.Event()

    @app.job(name="long")
    def long() -> None:
        running.set()
        until(lambda: current_job().cancelled, "the job was told")
        told.set()

    handle = long.enqueue()
    with looker(redis_url) as redis, working(app):
        assert running.wait(30)
        assert handle.status().state == "working"
        until(lambda: redis.pubsub_numsub("hm:control")[0][1], "the worker listens")  # type: ignore[index]
        handle.cancel()
        assert told.wait(30)


def test_a_handle_tells_where_the_job_is(app: App) -> None:
    job = app.job(name="note", queue="mail")(lambda: None)
    job.enqueue()
    second = job.enqueue()

    status = second.status()
    assert (status.state, status.queue, status.position) == ("enqueued", "mail", 2)
    app.close()


def test_a_stop_gives_back_what_is_not_done(redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=1)
    running = threading.Event()

    @app.job(name="long")
    def long(number: int) -> None:
        running.set()
        worker.fetcher.quieted.wait(30)  # the first one ends within the worker's stop, and no other is fetched

    handles = [long.enqueue(number) for number in range(3)]
    with working(app, stop=0.0, start=False) as worker:
        worker.start()
        assert running.wait(30)

    other = App(redis_url=redis_url)
    states = {other.job_status(handle.jid).state for handle in handles}
    other.close()
    assert states <= {"enqueued", "unknown"}
    assert "enqueued" in states


def test_client_middleware_sees_every_push(app: App) -> None:
    order = []

    @app.client_middleware.add
    def tenant(job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        job["tenant"] = "acme"
        return call_next()

    @app.job(name="show")
    def show() -> None:
        order.append(current_job().payload["tenant"])

    show.enqueue()
    with working(app):
        until(lambda: order == ["acme"], "the job saw its tenant")


def test_the_core_announces_and_others_listen(app: App) -> None:
    heard = Heard(app, "startup")
    started = []

    @app.on("startup")
    def begin() -> None:
        started.append(1)

    with working(app):
        assert (len(heard["startup"]), started) == (1, [1])
