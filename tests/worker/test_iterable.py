"""Iterable jobs in a worker: what runs, in which order the hooks come, and what stands in Redis at each moment."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from redis import Redis

from henchman import App, DefinitionError, Failure, IterableJob, ServerError, Snooze
from henchman.iterable import execution
from henchman.iterators import over_range
from support.worker import Heard, jobs_in, looker, overdue, push_raw, settled, until, working

JID = "0123456789abcdef01234567"
KEY = f"it-{JID}"


class Diary:
    """What the jobs of a test did. ``gate``: items wait for it; ``reached``: an item waits there."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.gate = threading.Event()
        self.gate.set()
        self.wait_at: int | None = None
        self.problems: dict[int, list[BaseException]] = {}

    def item(self, number: int) -> None:
        self.lines.append(number)
        if number == self.wait_at:
            assert self.gate.wait(60)
        if self.problems.get(number):
            raise self.problems[number].pop(0)

    @property
    def items(self) -> list[int]:
        return [line for line in self.lines if isinstance(line, int)]


@pytest.fixture
def diary() -> Diary:
    return Diary()


def make(url: str, diary: Diary, *, is_async: bool, **options: Any) -> App:
    """An app with the job "Count": the numbers below its argument, each written into the diary."""
    app = App(redis_url=url, concurrency=2)

    class Hooks(IterableJob[[int]]):
        def on_start(self) -> None:
            diary.lines.append("start")

        def on_resume(self) -> None:
            diary.lines.append("resume")

        def on_stop(self) -> None:
            diary.lines.append("stop")

        def on_cancel(self) -> None:
            diary.lines.append("cancel")

        def on_complete(self) -> None:
            diary.lines.append("complete")

    class Count(Hooks):
        def build(self, most: int, *, cursor: int | None) -> Iterator[tuple[int, int]]:
            return over_range(most, cursor=cursor)

        def each_iteration(self, item: int, most: int) -> None:
            diary.item(item)

    class AsyncCount(Hooks):
        async def build(self, most: int, *, cursor: int | None) -> AsyncIterator[tuple[int, int]]:
            for pair in over_range(most, cursor=cursor):
                yield pair

        async def each_iteration(self, item: int, most: int) -> None:
            await asyncio.to_thread(diary.item, item)

    app.iterable(name="Count", **options)(AsyncCount if is_async else Count)
    return app


both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def push(redis: Redis, *args: Any, **fields: Any) -> None:
    job = {"class": "Count", "args": args, "jid": JID, "queue": "default", "retry": True, "created_at": 1.5}
    push_raw(redis, json.dumps(job | {"enqueued_at": 1.5} | fields))


def state(redis: Redis) -> dict[str, str]:
    found: dict[bytes, bytes] = redis.hgetall(KEY)  # type: ignore[assignment]
    return {name.decode(): value.decode() for name, value in found.items()}


def stats(redis: Redis) -> tuple[int, int]:
    return int(redis.get("stat:processed") or 0), int(redis.get("stat:failed") or 0)  # type: ignore[arg-type]


def reached(diary: Diary, number: int) -> None:
    until(lambda: number in diary.items, f"item {number} runs")


@both
def test_every_item_in_order_and_nothing_is_left(redis_url: str, diary: Diary, is_async: bool) -> None:
    with looker(redis_url) as redis, working(make(redis_url, diary, is_async=is_async)):
        push(redis, 4)
        settled(redis, 1)
        assert diary.lines == ["start", 0, 1, 2, 3, "stop", "complete"]
        assert not redis.exists(KEY)
        assert stats(redis) == (1, 0)


@both
def test_a_stop_lets_the_item_end_and_the_next_worker_goes_on(
    redis_url: str, diary: Diary, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "SAVE_EVERY", 600.0)  # however slow this is, only the stop saves
    diary.wait_at = 2
    diary.gate.clear()
    with looker(redis_url) as redis:
        push(redis, 5, custom="kept", big=2**70)
        push_raw(redis, json.dumps({"class": "Later", "args": [], "jid": "b" * 24}), queue="other")
        with working(make(redis_url, diary, is_async=is_async)) as launcher:
            reached(diary, 2)
            assert state(redis) == {}
            redis.lpush("queue:default", json.dumps({"class": "Nobody", "args": [], "jid": "c" * 24}))
            redis.sadd("paused", "default")
            launcher.quiet()
            diary.gate.set()
            until(lambda: redis.exists(KEY), "the state is saved")
        assert diary.lines == ["start", 0, 1, 2, "stop"]
        found = state(redis)
        assert (found.pop("ex"), found.pop("c")) == ("1", "3")
        assert float(found.pop("rt")) > 0
        assert not found
        assert 2_591_000 < redis.ttl(KEY) <= 2_592_000  # type: ignore[operator]
        *_, again = jobs_in(redis, "queue:default")
        assert again["jid"] == JID
        assert abs(again.pop("enqueued_at") - time.time()) < 45
        assert again == {
            "class": "Count",
            "args": [5],
            "jid": JID,
            "queue": "default",
            "retry": True,
            "created_at": 1.5,
            "custom": "kept",
            "big": 2**70,
        }
        processed, failed = stats(redis)
        assert failed >= 1
        assert processed == failed
        redis.delete("queue:default", "paused", "stat:processed", "retry")
        push_raw(redis, json.dumps(again))
        with working(make(redis_url, diary, is_async=is_async)):
            settled(redis, 1)
        assert diary.lines == ["start", 0, 1, 2, "stop", "resume", 3, 4, "stop", "complete"]
        assert not redis.exists(KEY)


@both
def test_an_error_saves_and_the_retry_resumes_at_the_item(redis_url: str, diary: Diary, is_async: bool) -> None:
    diary.problems = {2: [ValueError("no")]}
    with looker(redis_url) as redis, working(make(redis_url, diary, is_async=is_async, retry_in=0)):
        push(redis, 4)
        settled(redis, 2)
        assert diary.lines == ["start", 0, 1, 2, "stop", "resume", 2, 3, "stop", "complete"]
        assert not redis.exists(KEY)
        assert stats(redis) == (2, 1)


def test_state_while_a_retry_waits(redis_url: str, diary: Diary) -> None:
    diary.problems = {2: [ValueError("no")]}
    with looker(redis_url) as redis, working(make(redis_url, diary, is_async=False, retry_in=600)):
        push(redis, 4)
        settled(redis, 1)
        assert {name: state(redis)[name] for name in ("ex", "c")} == {"ex": "1", "c": "2"}
        [job] = jobs_in(redis, "retry")
        assert job["error_message"] == "no"
        assert job["retry_count"] == 0


def test_a_snooze_in_an_item_goes_on_there(redis_url: str, diary: Diary) -> None:
    diary.problems = {1: [Snooze(0)]}
    with looker(redis_url) as redis, working(make(redis_url, diary, is_async=False)):
        push(redis, 3)
        settled(redis, 2)
        assert diary.items == [0, 1, 1, 2]


def test_a_failure_in_an_item_ends_the_job(redis_url: str, diary: Diary) -> None:
    diary.problems = {1: [Failure("no")]}
    with looker(redis_url) as redis, working(make(redis_url, diary, is_async=False)):
        push(redis, 3)
        settled(redis, 1)
        assert diary.lines == ["start", 0, 1, "stop"]
        assert not redis.exists(KEY)


@both
def test_cancelled_before_it_started(redis_url: str, diary: Diary, is_async: bool) -> None:
    app = make(redis_url, diary, is_async=is_async)
    with looker(redis_url) as redis:
        push(redis, 3)
        app.cancel(JID)
        assert {name: value for name, value in state(redis).items() if name != "cancelled"} == {"c": "null"}
        assert abs(int(state(redis)["cancelled"]) - time.time()) < 30
        assert 2_591_000 < redis.ttl(KEY) <= 2_592_000  # type: ignore[operator]
        with working(app):
            until(lambda: "complete" in diary.lines, "it was told")
            until(lambda: not redis.exists(KEY, "hm:cancelled"), "nothing is left of it")
        assert diary.lines == ["start", "cancel", "stop", "complete"]


@both
def test_cancelled_while_it_runs(redis_url: str, diary: Diary, is_async: bool) -> None:
    diary.wait_at = 1
    diary.gate.clear()
    with looker(redis_url) as redis, working(make(redis_url, diary, is_async=is_async)) as launcher:
        push(redis, 9)
        reached(diary, 1)
        launcher.runtime.cancel(JID)  # type: ignore[attr-defined]  # the runtime is the app
        until(lambda: all(run.cancelled for run in launcher.manager.running()), "the run is told")
        diary.gate.set()
        until(lambda: "complete" in diary.lines, "it ended")
        until(lambda: not redis.exists(KEY, "hm:cancelled"), "nothing is left of it")
        assert diary.lines == ["start", 0, 1, "cancel", "stop", "complete"]


def test_cancelled_by_sidekiq(redis_url: str, diary: Diary, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag alone, as ``Sidekiq::Client#cancel!`` sets it: seen at the next save."""
    monkeypatch.setattr(execution, "SAVE_EVERY", 0.0)
    diary.wait_at = 1
    diary.gate.clear()
    with looker(redis_url) as redis, working(make(redis_url, diary, is_async=False)):
        push(redis, 9)
        reached(diary, 1)
        assert state(redis)["c"] == "1"
        assert state(redis)["rt"] == "0"
        redis.hsetnx(KEY, "cancelled", "1795000000")
        diary.gate.set()
        until(lambda: "complete" in diary.lines, "it ended")
        until(lambda: not redis.exists(KEY), "nothing is left of it")
        assert diary.lines == ["start", 0, 1, "cancel", "stop", "complete"]


def test_cancelled_after_it_ended(redis_url: str, diary: Diary) -> None:
    with looker(redis_url) as redis, working(make(redis_url, diary, is_async=False)) as launcher:
        push(redis, 1)
        settled(redis, 1)
        launcher.runtime.cancel(JID)  # type: ignore[attr-defined]  # the runtime is the app
        assert diary.lines == ["start", 0, "stop", "complete"]


def test_begun_in_ruby(redis_url: str, diary: Diary) -> None:
    with looker(redis_url) as redis, working(make(redis_url, diary, is_async=False)):
        redis.hset(KEY, mapping={"ex": "3", "c": "2", "rt": "12.345"})
        push(redis, 4)
        settled(redis, 1)
        assert diary.lines == ["resume", 2, 3, "stop", "complete"]


@both
def test_max_iteration_runtime_gives_others_their_turn(redis_url: str, diary: Diary, is_async: bool) -> None:
    app = make(redis_url, diary, is_async=is_async, max_iteration_runtime=1e-9)
    with looker(redis_url) as redis, working(app):
        push(redis, 3)
        until(lambda: "complete" in diary.lines, "it ended")
        settled(redis, 3)
        assert diary.lines == ["start", 0, "stop", "resume", 1, "stop", "resume", 2, "stop", "complete"]
        assert stats(redis) == (3, 2)
        assert not redis.exists("retry")


def test_a_timeout_saves_too(redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=1)
    items: list[int] = []

    @app.iterable(name="Count", over=lambda cursor: over_range(3, cursor=cursor), timeout=600, retry_in=0)
    def slow(number: int) -> None:
        items.append(number)
        if number == 1 and items.count(1) == 1:
            until(lambda: False, "its time-out")

    with looker(redis_url) as redis, working(app) as launcher:
        push(redis)
        until(lambda: 1 in items, "item 1 runs")
        overdue(launcher)
        settled(redis, 2)
    assert items == [0, 1, 1, 2]


def test_a_late_save_of_a_superseded_execution_changes_nothing(redis_url: str, diary: Diary) -> None:
    diary.wait_at = 1
    diary.gate.clear()
    with looker(redis_url) as redis, working(make(redis_url, diary, is_async=False)) as launcher:
        push(redis, 9)
        reached(diary, 1)
        redis.hset(KEY, mapping={"ex": "2", "c": "7", "rt": "0"})
        redis.sadd("paused", "default")
        launcher.quiet()
        diary.gate.set()
        settled(redis, 1)
        assert state(redis) == {"ex": "2", "c": "7", "rt": "0"}


def test_an_execution_that_was_given_to_another_process_stops_at_its_next_save(
    redis_url: str, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that had saved nothing before it was frozen, and one whose job has ended meanwhile."""
    monkeypatch.setattr(execution, "SAVE_EVERY", 0.0)
    diary.wait_at = 1
    diary.gate.clear()
    app = make(redis_url, diary, is_async=False)
    heard = Heard(app, "late")
    with looker(redis_url) as redis, working(app) as launcher:
        push(redis, 9)
        reached(diary, 1)
        for key in redis.scan_iter("hm:flight:*"):
            redis.delete(key)
        redis.delete(KEY)
        launcher.quiet()
        diary.gate.set()
        until(lambda: heard["late"], "its end is too late")
        assert diary.items == [0, 1]
        assert not redis.exists(KEY)


def test_a_server_that_refuses_a_save_stops_nobody(
    redis_url: str, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "SAVE_EVERY", 0.0)

    def refuse(*_: Any, **__: Any) -> Any:
        raise ServerError("OOM command not allowed")

    app = make(redis_url, diary, is_async=False)
    told: list[str] = []
    app.events.on("part_failed", lambda part, error: told.append(part))
    monkeypatch.setattr(execution.Execution, "_text", lambda self: b"0")
    with looker(redis_url) as redis, working(app):
        real = app.connections.run
        monkeypatch.setattr(app.connections, "run", lambda call: refuse() if call.name == "iterate" else real(call))
        push(redis, 3)
        settled(redis, 1)
    assert diary.items == [0, 1, 2]
    assert told.count("iteration") == 3


def test_around_each_item_and_what_a_job_knows_of_itself(redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=1)
    lines: list[Any] = []

    @app.iterable(name="Count")
    class Count(IterableJob[[str]]):
        def build(self, letters: str, *, cursor: Any) -> Any:
            return zip(letters, range(9), strict=False)

        @contextmanager
        def around_iteration(self) -> Iterator[None]:
            lines.append("(")
            yield
            lines.append(")")

        def each_iteration(self, item: str, letters: str) -> None:
            lines.append((item, self.cursor, self.current_item, self.arguments, self.jid, self.executions))
            assert self.run_time >= 0
            assert not self.cancelled
            if item == "b":
                self.abort()

        def on_complete(self) -> None:
            lines.append("complete")

    with looker(redis_url) as redis, working(app):
        jid = Count.enqueue("abc").jid
        settled(redis, 1)
        assert Count.state(jid).executions == 0
    assert lines == [
        "(",
        ("a", 0, "a", ("abc",), jid, 1),
        ")",
        "(",
        ("b", 1, "b", ("abc",), jid, 1),
        "complete",
    ]


def test_async_around_and_cancel_from_within(redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=1)
    lines: list[Any] = []

    @app.iterable(name="Count")
    class Count(IterableJob[[]]):
        def build(self, *, cursor: Any) -> Any:
            return over_range(5, cursor=cursor)

        @asynccontextmanager
        async def around_iteration(self) -> AsyncIterator[None]:
            lines.append("(")
            yield
            lines.append(")")

        async def each_iteration(self, item: int) -> None:
            await asyncio.sleep(0)
            lines.append(item)
            if item == 1:
                self.cancel()

        async def on_cancel(self) -> None:
            await asyncio.sleep(0)
            lines.append("cancel")

    with looker(redis_url) as redis, working(app):
        jid = Count.enqueue().jid
        until(lambda: "cancel" in lines, "it is cancelled")
        until(lambda: not redis.exists(f"it-{jid}"), "it is over")
    assert lines == ["(", 0, ")", "(", 1, ")", "cancel"]


def test_a_cursor_that_is_no_json_is_told_at_the_first_item(redis_url: str) -> None:
    app = App(redis_url=redis_url)

    @app.iterable(name="Count", over=lambda cursor: [("item", {1, 2})], retry_in=600)
    def count(item: str) -> None:
        raise AssertionError("no item may run")

    with looker(redis_url) as redis, working(app):
        push(redis)
        settled(redis, 1)
        [job] = jobs_in(redis, "retry")
        assert job["error_class"] == "ArgumentError"
        assert "cursor" in job["error_message"]


def test_a_state_that_somebody_broke_is_named(redis_url: str, diary: Diary) -> None:
    with looker(redis_url) as redis, working(make(redis_url, diary, is_async=False, retry_in=600)):
        redis.hset(KEY, mapping={"ex": "1", "c": "{oops"})
        push(redis, 3)
        settled(redis, 1)
        [job] = jobs_in(redis, "retry")
        assert KEY in job["error_message"]
        assert diary.lines == []


def test_nothing_to_build_is_done(redis_url: str) -> None:
    app = App(redis_url=redis_url)

    @app.iterable(name="Count", over=lambda cursor: None)
    def count(item: str) -> None:
        raise AssertionError("no item may run")

    with looker(redis_url) as redis, working(app):
        push(redis)
        settled(redis, 1)
        assert stats(redis) == (1, 0)


def test_undecorated(redis_url: str) -> None:
    class Plain(IterableJob[[int]]):
        pass

    with pytest.raises(DefinitionError, match=r"put @app\.iterable"):
        Plain.enqueue(1)


def test_a_payload_of_ours_says_what_it_is(redis_url: str) -> None:
    """Whoever ends the job knows then that there is a state to remove."""
    app = App(redis_url=redis_url)

    @app.iterable(name="Count", over=lambda cursor: [], timeout=5)
    def count(item: str) -> None: ...

    with looker(redis_url) as redis:
        jids = [count.enqueue().jid, count.using(expires=9).enqueue().jid, app.enqueue("Count").jid]
        count.enqueue_many([()])
        assert [job["hm"] for job in jobs_in(redis, "queue:default")] == [
            {"iterable": True},
            {"expires": 9.0, "iterable": True},
            {"iterable": True},
            {"iterable": True},
        ]
        for jid in jids:
            redis.hset(f"it-{jid}", mapping={"ex": "1", "c": "7"})
        assert app.queues["default"].delete(jids[0])
        assert app.queues["default"].clear() == 3
        assert not redis.keys("it-*")
    with pytest.raises(DefinitionError, match="there is no option iterable="):
        app.job(name="x", iterable=True)(lambda: None)
    app.close()


def test_a_dead_one_keeps_its_place(redis_url: str, diary: Diary) -> None:
    diary.problems = {2: [ValueError("no")]}
    app = make(redis_url, diary, is_async=False, retry=0)
    with looker(redis_url) as redis, working(app):
        push(redis, 4, retry=0)
        until(lambda: redis.zcard("dead"), "it is dead")
        assert state(redis)["c"] == "2"
        assert app.dead.retry_all().done == 1
        until(lambda: "complete" in diary.lines, "it ended")
        settled(redis, 2)
        assert diary.items == [0, 1, 2, 2, 3]
        assert not redis.exists(KEY)
