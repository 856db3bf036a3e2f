"""Results: kept, rebuilt, woken by the server; and what is said when there is none."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import time
import traceback
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from redis import Redis

from henchman import App, Failure, current_job
from henchman.client.results import Hub, _hub
from henchman.errors import ArgumentError, JobFailed, ResultError
from support.worker import until, working


@pytest.fixture
def app(redis_url: str) -> App:
    return App(redis_url=redis_url, concurrency=2)


@dataclass
class Invoice:
    number: int
    price: Decimal
    at: dt.datetime


def test_a_result_is_rebuilt_as_it_is_annotated(app: App, redis: Redis) -> None:
    when = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)

    @app.job(name="bill", result_ttl=1000)
    def bill(n: int) -> list[Invoice]:
        return [Invoice(n, Decimal("1.50"), when)]

    @app.job(name="later", result_ttl=dt.timedelta(seconds=100))
    async def later(n: int) -> set[int]:
        return {n, n + 1}

    @app.job(name="plain", result_ttl=100)
    def plain() -> Any:
        return {"a": [1, None, 2.5]}

    @app.job(name="nothing", result_ttl=100)
    def nothing() -> None: ...

    handles = bill.enqueue(7), later.enqueue(7), plain.enqueue(), nothing.enqueue()
    with working(app):
        assert handles[0].result(timeout=60) == [Invoice(7, Decimal("1.50"), when)]
        assert handles[1].result(timeout=60) == {7, 8}
        assert handles[2].result(timeout=60) == {"a": [1, None, 2.5]}
        assert handles[3].result(timeout=60) is None
        assert app.result(handles[0].jid, 1) == [{"number": 7, "price": "1.50", "at": "2026-01-02T03:04:05+00:00"}]
        assert app.result(handles[0].jid, 1, function=bill.function)[0].number == 7
    assert 900 < redis.ttl(f"hm:result:{handles[0].jid}") <= 1000  # type: ignore[operator]


@pytest.mark.alone("it measures how late an answer is")
def test_who_waits_is_woken(app: App, redis: Redis) -> None:
    go = threading.Event()

    @app.job(name="wait", result_ttl=100)
    def wait() -> float:
        assert go.wait(30)
        return time.monotonic()

    handle = wait.enqueue()
    found: list[tuple[float, float]] = []

    def ask() -> None:
        value = handle.result(timeout=30)
        found.append((value, time.monotonic()))

    with working(app):
        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        until(lambda: redis.pubsub_numsub(f"hm:done:{handle.jid}")[0][1] == 1, "one connection listens for all")
        commands = int(redis.info("stats")["total_commands_processed"])  # type: ignore[index]
        go.set()
        for thread in threads:
            thread.join(30)
        asked = int(redis.info("stats")["total_commands_processed"]) - commands  # type: ignore[index]
    assert len(found) == 5
    assert all(heard - said < 1.0 for said, heard in found)
    assert asked < 200, "nothing is polled"
    until(lambda: redis.pubsub_channels("hm:done:*") == [], "nobody listens any more")


def test_many_wait_in_one_loop(app: App) -> None:
    @app.job(name="double", result_ttl=100)
    async def double(n: int) -> int:
        await asyncio.sleep(0.01)
        return 2 * n

    async def main() -> list[int]:
        handles = [await double.aenqueue(n) for n in range(100)]
        with working(App_like(app)):
            values = await asyncio.gather(*(handle.aresult(timeout=60) for handle in handles))
        await app.aclose()
        return values

    assert asyncio.run(main()) == [2 * n for n in range(100)]


def App_like(app: App) -> App:  # noqa: N802 - another app of the same jobs
    other = App(redis_url=app.config.redis_url)
    for job in app.registry:
        other.registry.add(job)
    return other


def test_a_failure_is_raised_with_what_was_said_there(app: App) -> None:
    @app.job(name="fail", result_ttl=100, retry=0)
    def fail(how: str) -> int:
        if how == "failure":
            raise Failure("not eligible")
        raise ValueError(how)

    refused, broken = fail.enqueue("failure"), fail.enqueue("boom")
    cancelled = fail.using(queue="unserved").enqueue("x")
    with working(app):
        with pytest.raises(JobFailed, match="not eligible") as business:
            refused.result(timeout=60)
        with pytest.raises(JobFailed, match="ValueError: boom") as system:
            broken.result(timeout=60)
        app.queues["unserved"].delete(next(iter(app.queues["unserved"])))
        with pytest.raises(JobFailed, match="cancelled"):
            cancelled.result(timeout=60)
    assert (business.value.status, business.value.error_class, business.value.traceback) == ("failed", "Failure", ())
    assert system.value.status == "error"
    assert any("in fail" in line for line in system.value.traceback)
    assert "in fail" in "".join(traceback.format_exception(system.value))


def test_without_a_result_it_is_said_at_once(app: App) -> None:
    @app.job(name="plain")
    def plain() -> int:
        return 1

    @app.job(name="odd", result_ttl=100)
    def odd() -> Any:
        return object()

    with pytest.raises(ResultError, match="result_ttl"):
        plain.enqueue().result()
    with pytest.raises(ResultError, match="result_ttl"):
        asyncio.run(plain.enqueue().aresult())
    for wrong in ("", None, 5):
        with pytest.raises(ArgumentError):
            app.result(wrong)  # type: ignore[arg-type]
    handle = odd.enqueue()
    with pytest.raises(TimeoutError, match="enqueued"):
        handle.result(timeout=0.05)
    with working(app):
        with pytest.raises(ResultError, match="cannot be kept"):
            handle.result(timeout=60)
        with pytest.raises(TimeoutError, match="not on the server"):
            app.result("0" * 24, timeout=0)


def test_a_lost_connection_is_made_again(app: App, redis: Redis) -> None:
    go = threading.Event()

    @app.job(name="wait", result_ttl=100)
    def wait() -> int:
        assert go.wait(30)
        return current_job().attempt

    handle, found = wait.enqueue(), list[int]()
    with working(app):
        thread = threading.Thread(target=lambda: found.append(handle.result(timeout=30)))
        thread.start()
        channel = f"hm:done:{handle.jid}"
        until(lambda: redis.pubsub_numsub(channel)[0][1], "it listens")
        redis.client_kill_filter(_type="pubsub")
        until(lambda: redis.pubsub_numsub(channel)[0][1], "it listens again")
        go.set()
        thread.join(30)
    assert found == [1]


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_nobody_waits_for_a_job_that_will_give_nothing(app: App, timeout: float | None) -> None:
    @app.job(name="short", result_ttl=0.05, retry=0)
    def short(fails: bool) -> int:
        return 1 // (not fails)

    fine, dead = short.enqueue(False), short.enqueue(True)
    with working(app):
        until(lambda: app.stats().processed == 2, "both have run")
    began = time.monotonic()
    for jid, known in (("0" * 24, "not on the server"), (fine.jid, "not on the server"), (dead.jid, "it is dead")):
        with pytest.raises(ResultError, match=known):
            app.result(jid, timeout)
    with pytest.raises(ResultError, match="not on the server"):
        asyncio.run(_ask_and_close(app, timeout))
    assert time.monotonic() - began < 30


async def _ask_and_close(app: App, timeout: float | None) -> None:  # noqa: ASYNC109 - handed on
    try:
        await app.aresult("0" * 24, timeout)
    finally:
        await app.aclose()


def test_who_waits_for_a_job_that_waits_goes_on_waiting(app: App) -> None:
    @app.job(name="some", result_ttl=100)
    def some() -> int:
        return 7

    with pytest.raises(TimeoutError, match="enqueued"):
        some.enqueue().result(timeout=2.5)
    batch = app.batch(atomic=True)
    with batch:
        blocked = some.enqueue()
        with pytest.raises(TimeoutError, match="waits until its atomic batch"):
            blocked.result(timeout=2.5)
        assert blocked.status().state == "blocked"


def test_the_status_of_a_job_that_keeps_its_result(app: App) -> None:
    @app.job(name="divide", result_ttl=100, retry=0, dead=False)
    def divide(n: int) -> float:
        return 1 / n

    fine, broken = divide.enqueue(2), divide.enqueue(0)
    with working(app):
        assert fine.result(timeout=60) == 0.5
        with pytest.raises(JobFailed):
            broken.result(timeout=60)
    assert (fine.status().state, fine.status().text) == ("finished", "it has finished; its result is kept")
    assert (broken.status().state, broken.status().error) == ("error", ("ZeroDivisionError", "division by zero"))


def test_an_awaited_result_that_is_cancelled_leaves_nobody_waiting(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is cancelled while a thread begins to listen for it."""
    begins, go, entered = threading.Event(), threading.Event(), threading.Event()
    enter = Hub.enter

    def slowly(hub: Hub, channel: str, wake: Any) -> None:
        begins.set()
        assert go.wait(20)
        enter(hub, channel, wake)
        entered.set()

    @app.job(name="never", result_ttl=60)
    def never() -> None: ...

    async def cancelled(*, early: bool) -> None:
        handle = await never.aenqueue()
        task = asyncio.ensure_future(handle.aresult(timeout=30))
        assert await asyncio.to_thread((begins if early else entered).wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        assert await asyncio.to_thread(entered.wait, 20)
        await app.aclose()

    for early in (True, False):
        begins.clear()
        entered.clear()
        (go.clear if early else go.set)()
        monkeypatch.setattr(Hub, "enter", slowly)
        asyncio.run(cancelled(early=early))
        until(lambda: not _hub(app)._waiting, "nobody waits")
