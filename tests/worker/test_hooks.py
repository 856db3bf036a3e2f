"""Hooks of users, ``def`` and ``async def``: they are awaited, hold nobody up, have a limit, and change nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from henchman import App, ConfigError
from henchman.kernel import hooks
from support.worker import Heard, settled, until, working


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    with closing(App(redis_url=redis_url, concurrency=3)) as made:
        yield made


class Waiting:
    """A hook that ends when another job of the same process has run."""

    def __init__(self) -> None:
        self.begun, self.go, self.ended = threading.Event(), threading.Event(), threading.Event()

    def plain(self, *args: Any) -> None:
        self.begun.set()
        assert self.go.wait(20)
        self.ended.set()

    async def awaited(self, *args: Any) -> None:
        self.begun.set()
        while not self.go.is_set():  # noqa: ASYNC110 - set by another thread, too
            await asyncio.sleep(0.005)
        self.ended.set()


def _as_error_handler(app: App, hook: Any) -> dict[str, Any]:
    app.error_handlers.append(hook)
    return {"retry": 0}


def _as_death_handler(app: App, hook: Any) -> dict[str, Any]:
    app.death_handlers.append(hook)
    return {"retry": 0}


def _as_retry_in(app: App, hook: Any) -> dict[str, Any]:
    return {"retry": 1, "retry_in": hook}


def _as_exhausted(app: App, hook: Any) -> dict[str, Any]:
    return {"retry": 0, "retries_exhausted": hook}


HOOKED = [_as_error_handler, _as_death_handler, _as_retry_in, _as_exhausted]


@pytest.mark.parametrize("kind", ["plain", "awaited"])
@pytest.mark.parametrize("hooked", HOOKED)
@pytest.mark.parametrize("failing", ["def", "async def"])
def test_a_hook_that_waits_stops_no_job(
    app: App, redis: Redis, hooked: Callable[[App, Any], dict[str, Any]], kind: str, failing: str
) -> None:
    hook = Waiting()
    options = hooked(app, getattr(hook, kind))

    async def afail() -> None:
        raise ValueError("no")

    def fail() -> None:
        raise ValueError("no")

    job = app.job(name="fail", **options)(afail if failing == "async def" else fail)

    @app.job(name="go")
    async def go() -> None:
        hook.go.set()

    with working(app) as launcher:
        job.enqueue()
        assert hook.begun.wait(20)
        assert launcher.manager.busy() == 1, "its slot is not free before the hook has ended"
        go.enqueue()
        settled(redis, 2)
        assert hook.ended.is_set()
        assert launcher.loop.blocked_for() < 5
    assert redis.zcard("retry" if hooked is _as_retry_in else "dead") == 1


@pytest.mark.parametrize("kind", ["plain", "awaited"])
def test_a_hook_of_an_ordered_queue_stops_no_job(app: App, redis: Redis, kind: str) -> None:
    hook = Waiting()

    @app.ordered(name="sync", queue="products", max_retries=0, retries_exhausted=getattr(hook, kind))
    async def sync(claim: dict[str, list[int]]) -> dict[str, Exception]:
        return {one: ValueError("no") for one in claim}

    @app.job(name="go")
    async def go() -> None:
        hook.go.set()

    with working(app):
        sync.push("a", 1)
        assert hook.begun.wait(20)
        go.enqueue()
        assert hook.ended.wait(20)
        until(lambda: redis.zrange(app.keys.morgue("products"), 0, -1) == [b"a"], "it is given up")


@pytest.mark.parametrize("failing", ["def", "async def"])
def test_an_async_hook_has_a_limit(app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    monkeypatch.setattr(hooks, "LIMIT", 0.1)
    heard, ended = Heard(app, "handler_broken"), list[str]()

    async def slow(error: BaseException, facts: dict[str, Any]) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    async def leaves(error: BaseException, facts: dict[str, Any]) -> None:
        raise SystemExit(3)

    app.error_handlers += [slow, leaves]

    async def afail() -> None:
        raise ValueError("no")

    def fail() -> None:
        raise ValueError("no")

    job = app.job(name="fail", retry=0)(afail if failing == "async def" else fail)
    with working(app):
        job.enqueue()
        settled(redis, 1)
    assert ended == ["cancelled"]
    assert [one["handler"] for one in heard["handler_broken"]] == [slow, leaves]
    assert [str(one["error"]) for one in heard["handler_broken"]] == [
        "it did not end within 0.1 s",
        "it raised SystemExit: 3",
    ]
    assert redis.zcard("dead") == 1, "the job ends as it would have"


def test_retry_in_may_be_awaited(app: App, redis: Redis) -> None:
    async def pause(count: int) -> float:
        await asyncio.sleep(0)
        return 5000 + count

    @app.job(name="fail", retry=3, retry_in=pause)
    async def fail() -> None:
        raise ValueError("no")

    with working(app):
        fail.enqueue()
        settled(redis, 1)
    ((_, due),) = redis.zrange("retry", 0, -1, withscores=True)  # type: ignore[misc]
    assert 4900 < due - time.time() < 5001


def test_retry_in_may_answer_a_timedelta(app: App, redis: Redis) -> None:
    def pause(*facts: Any) -> timedelta:
        return timedelta(seconds=5000)

    @app.job(name="fail", retry=3, retry_in=pause)
    def fail() -> None:
        raise ValueError("no")

    @app.ordered(name="sync", queue="products", retry_in=pause)
    def sync(claim: dict[str, list[int]]) -> None:
        raise ValueError("no")

    with working(app):
        fail.enqueue()
        sync.push("a", 1)
        until(lambda: redis.zcard("retry") == 1 or None, "it failed")
        until(lambda: app.ordered_queues["products"].stats().failed == 1 or None, "the id failed")
    for key in ("retry", app.keys.ordered("products") + "due"):
        ((_, due),) = redis.zrange(key, 0, -1, withscores=True)  # type: ignore[misc]
        assert 4900 < due - time.time() < 5001, key


@pytest.mark.parametrize("awaited", [False, True], ids=["def", "async def"])
def test_hooks_of_the_worker_are_called_and_awaited(app: App, awaited: bool) -> None:
    app.configure(heartbeat=0.1)
    told: list[str] = []

    def register(event: str) -> None:
        async def atold() -> None:
            await asyncio.sleep(0)
            told.append(event)

        app.on(event)(atold if awaited else lambda: told.append(event))

    for event in ("startup", "heartbeat", "beat", "quiet", "shutdown"):
        register(event)
    with working(app):
        assert told[0] == "startup"
        until(lambda: {"heartbeat", "beat"} <= set(told) or None, "it beats")
    assert [one for one in told if one in ("startup", "quiet", "shutdown")] == ["startup", "quiet", "shutdown"]


def test_a_beat_that_waits_holds_no_beat_up_and_a_shutdown_has_a_limit(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "SPARE", 0.2)
    app.configure(heartbeat=0.1)
    go, begun, heard = threading.Event(), list[str](), Heard(app, "handler_broken")

    @app.on("beat")
    def slow() -> None:
        begun.append("beat")
        go.wait(30)

    @app.on("shutdown")
    def late() -> None:
        go.wait(30)

    with working(app, stop=0.1) as launcher:
        until(lambda: begun == ["beat"] or None, "a beat")
        first = redis.hget(launcher.session.identity, "beat")
        until(lambda: redis.hget(launcher.session.identity, "beat") != first or None, "the heart goes on")
        assert begun == ["beat"], "it still runs: it is not called once more"
    assert [one["handler"] for one in heard["handler_broken"]] == [late]
    go.set()


@pytest.mark.parametrize("awaited", [False, True], ids=["def", "async def"])
def test_a_startup_hook_that_raises_stops_the_start(app: App, redis: Redis, awaited: bool) -> None:
    def refuse() -> None:
        raise OSError("no model")

    async def arefuse() -> None:
        raise OSError("no model")

    app.on("startup")(arefuse if awaited else refuse)
    with pytest.raises(ConfigError, match=r"the startup hook .*refuse raised OSError: no model"):
        app.embed().start()
    assert redis.keys("hm:lease:*") == redis.keys("hm:flights:*") == []
    assert redis.smembers("processes") == set()
