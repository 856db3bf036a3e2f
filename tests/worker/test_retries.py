"""How runs that do not simply return end: retries, death, and what a job may say. In-process, on a real server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from henchman import App, Discard, Failure, Kill, Snooze, current_job
from henchman.wire import payload
from support.worker import Heard, in_flight, jobs_in, push_raw, settled, until, working


def boom() -> None:
    raise ValueError("boom é \ud800")


def retries(redis: Redis) -> dict[str, float]:
    """When each job of the retry set is due, by class."""
    rows: Any = redis.zrange("retry", 0, -1, withscores=True)
    return {json.loads(row)["class"]: score for row, score in rows}


@pytest.mark.parametrize(
    ("fields", "where", "count"),
    [
        ({}, "retry", 0),  # absent, class known: the option of the definition
        ({"retry": None}, "retry", 0),
        ({"retry": True}, "retry", 0),
        ({"retry": False}, None, None),
        ({"retry": 0}, "dead", 0),
        ({"retry": 2}, "retry", 0),
        ({"retry": 2, "retry_count": 0, "failed_at": 1.0}, "retry", 1),
        ({"retry": 2, "retry_count": 1, "failed_at": 1.0}, "dead", 2),
        ({"retry": True, "retry_count": 23, "failed_at": 1.0}, "retry", 24),
        ({"retry": True, "retry_count": 24, "failed_at": 1.0}, "dead", 25),
        ({"retry": "5", "retry_count": 7, "failed_at": 1.0}, "retry", 8),
        ({"retry": 0, "dead": False}, None, None),
        ({"retry": True, "retry_for": 10, "retry_count": 0, "failed_at": 1.0}, "dead", 1),
        ({"retry": 1, "retry_for": 3_600_000, "retry_count": 99, "failed_at": time.time()}, "retry", 100),
        ({"retry": True, "retry_count": None}, "retry", 0),
        ({"retry": True, "retry_queue": "later"}, "retry", 0),
        ({"class": "unknown", "retry": True}, "retry", 0),
        ({"class": "unknown"}, "retry", 0),  # Sidekiq loses this one
    ],
)
def test_what_retry_means(app: App, redis: Redis, fields: dict[str, Any], where: str | None, count: int | None) -> None:
    app.job(name="boom", retry=True)(_one_argument)
    push_raw(redis, json.dumps({"class": "boom", "args": [1], "jid": "j1", "created_at": 1.0, **fields}))
    deaths: list[str] = []
    app.death_handlers.append(lambda job, error: deaths.append(job["jid"]))
    began = time.time()
    with working(app):
        settled(redis, 1)
    ended = time.time()
    found = {key: jobs_in(redis, key) for key in ("retry", "dead", "schedule", "queue:default")}
    assert {key for key, jobs in found.items() if jobs} == ({where} if where else set())
    assert deaths == ([] if where == "retry" else ["j1"])
    assert (redis.get("stat:failed"), redis.get("stat:processed")) == (b"1", b"1")
    if where:
        (job,) = found[where]
        assert job["retry_count"] == count
        assert job["queue"] == fields.get("retry_queue", "default")
        assert isinstance(job["failed_at"], float)
        assert ("retried_at" in job) == ("failed_at" in fields)
        assert job["error_class"] == ("UnknownJob" if fields.get("class") else "ValueError")
        assert job["created_at"] == 1.0
        if where == "retry":
            base = job["retry_count"] ** 4 + 15
            [due] = retries(redis).values()
            assert began - 0.01 < due - base <= ended + 10 * (job["retry_count"] + 1)


def _one_argument(number: int) -> None:
    boom()


def test_every_word_that_a_job_may_say(app: App, redis: Redis) -> None:
    ends: dict[str, Callable[[], BaseException | None]] = {
        "fine": lambda: None,
        "failure": lambda: Failure("not eligible"),
        "snooze": lambda: Snooze(60),
        "discard": lambda: Discard("forget it"),
        "kill": lambda: Kill("enough"),
    }
    heard = Heard(app, "job_end")

    def say(word: str) -> None:
        error = ends[word]()
        if error is not None:
            raise error

    async def asay(word: str) -> None:
        say(word)

    for job in (app.job(name="say")(say), app.job(name="asay")(asay)):
        for word in ends:
            job.enqueue(word)
    with working(app):
        settled(redis, 10)
    assert len(heard["job_end"]) == 10
    for key, word in (("schedule", "snooze"), ("dead", "kill")):
        jobs = jobs_in(redis, key)
        assert [job["args"] for job in jobs] == [[word]] * 2
        assert {job["class"] for job in jobs} == {"say", "asay"}
    snoozed = jobs_in(redis, "schedule")[0]
    assert snoozed["hm"] == {"delay": 60}, "it moves along when the server's clock steps"
    assert "enqueued_at" not in snoozed
    assert "retry_count" not in snoozed
    assert "error_class" not in snoozed
    dead = jobs_in(redis, "dead")[0]
    assert (dead["error_class"], dead["error_message"], dead["retry_count"]) == ("Kill", "enough", 0)
    assert not redis.exists("retry", "queue:default")
    assert redis.get("stat:failed") == b"2"


def test_retry_in_number_function_and_words(app: App, redis: Redis) -> None:
    seen: list[Any] = []

    def by_all(count: int, error: BaseException, job: dict[str, Any]) -> float:
        seen.append((count, str(error)[:4], job["jid"]))
        return 100.0

    def broken(count: int) -> float:
        raise RuntimeError("no idea")

    wanted = {
        "number": 500,
        "zero": 0.0,
        "function": lambda count: 200 + count,
        "all": by_all,
        "broken": broken,
        "none": lambda count, error: None,
        "negative": lambda count: -5,
        "true": lambda count: True,
        "discard": lambda count: Discard,
        "kill": lambda count: Kill("now"),
    }
    heard = Heard(app, "handler_broken")
    jids = {}
    for name, retry_in in wanted.items():
        if name != "zero":
            jids[name] = app.job(name=name, retry_in=retry_in)(boom).enqueue().jid
    began = time.time()
    with working(app):
        settled(redis, 9)
    due, ended = retries(redis), time.time()
    for name, seconds in (("number", 500), ("function", 200), ("all", 100)):
        assert began - 0.01 < due.pop(name) - seconds <= ended, "what we are told is taken exactly"
    for name in ("broken", "none", "negative", "true"):
        assert began - 0.01 < due.pop(name) - 15 <= ended + 10, "the default, with its jitter"
    assert not due
    assert [job["class"] for job in jobs_in(redis, "dead")] == ["kill"]
    assert seen == [(0, "boom", jids["all"])]
    assert [str(facts["error"]) for facts in heard["handler_broken"]] == ["no idea"]


def test_retried_until_it_succeeds_attempts_count_up(app: App, redis: Redis) -> None:
    attempts: list[int] = []

    @app.job(name="third", retry_in=0.05)
    def third() -> None:
        attempts.append(current_job().attempt)
        if len(attempts) < 3:
            boom()

    third.enqueue()
    with working(app):
        settled(redis, 3)
    assert attempts == [1, 2, 3]
    assert redis.get("stat:failed") == b"2"
    assert not redis.exists("retry", "dead", "schedule")


def test_retry_on_and_no_retry_on(app: App, redis: Redis) -> None:
    @app.job(name="only_key", retry_on=KeyError)
    def only_key() -> None:
        boom()

    @app.job(name="not_value", no_retry_on=[ValueError])
    def not_value() -> None:
        boom()

    @app.job(name="subclass", retry_on=LookupError)
    def subclass() -> None:
        raise KeyError("k")

    for job in (only_key, not_value, subclass):
        job.enqueue()
    with working(app):
        settled(redis, 3)
    assert {job["class"] for job in jobs_in(redis, "dead")} == {"only_key", "not_value"}
    assert [job["class"] for job in jobs_in(redis, "retry")] == ["subclass"]


def test_exhaustion_hook_and_handlers_that_throw_stop_nobody(app: App, redis: Redis) -> None:
    heard = Heard(app, "handler_broken")
    told: list[tuple[str, str]] = []

    def hook(job: dict[str, Any], error: BaseException) -> Any:
        told.append(("exhausted", job["class"]))
        if job["class"] == "forget":
            return Discard
        raise RuntimeError("the hook")

    async def late(job: dict[str, Any], error: BaseException) -> None:
        told.append(("death", job["class"]))

    def bad(*_: Any) -> None:
        raise RuntimeError("a handler")

    app.death_handlers += [bad, late]
    app.error_handlers += [bad, lambda error, facts: told.append(("error", facts["job"]["class"]))]
    for name in ("keep", "forget"):
        app.job(name=name, retry=0, retries_exhausted=hook)(boom).enqueue()
    with working(app):
        settled(redis, 2)
    assert sorted(told) == sorted(
        (what, name) for what in ("exhausted", "death", "error") for name in ("keep", "forget")
    )
    assert [job["class"] for job in jobs_in(redis, "dead")] == ["keep"]
    assert sorted(str(facts["error"]) for facts in heard["handler_broken"]) == ["a handler"] * 4 + ["the hook"]
    (job,) = jobs_in(redis, "dead")
    assert job["error_message"].startswith("boom é ")


def test_backtrace_and_odd_errors(app: App, redis: Redis) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @app.job(name="silent", retry=0, backtrace=2)
    def silent() -> None:
        raise Silent

    @app.job(name="long", retry=0)
    def long() -> None:
        raise ValueError("x" * 50_000)

    @app.job(name="deep", retry=0, backtrace=True)
    def deep() -> None:
        deep.function()

    @app.job(name="group", retry=0)
    async def group() -> None:
        raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])

    for job in (silent, long, deep, group):
        job.enqueue()
    with working(app):
        settled(redis, 4)
    dead = {job["class"]: job for job in jobs_in(redis, "dead")}
    assert dead.keys() == {"silent", "long", "deep", "group"}
    assert "cannot be shown" in dead["silent"]["error_message"]
    assert 1 <= len(payload.expand_backtrace(dead["silent"]["error_backtrace"])) <= 2
    assert len(dead["long"]["error_message"]) == 10_000
    assert dead["deep"]["error_class"] == "RecursionError"
    assert not in_flight(redis)


def test_middleware_of_either_kind_around_jobs_of_either_kind(app: App, redis: Redis) -> None:
    steps: list[str] = []

    def plain(run: Any, call_next: Any) -> Any:
        steps.append(f"{run.name}: plain in")
        try:
            return call_next()
        finally:
            steps.append(f"{run.name}: plain out")

    async def awaited(run: Any, call_next: Any) -> Any:
        steps.append(f"{run.name}: awaited in {current_job().jid == run.jid}")
        result = await call_next()
        steps.append(f"{run.name}: awaited out")
        return result

    def refuse(run: Any, call_next: Any) -> Any:
        if run.payload["args"] == ["no"]:
            raise Failure("not here")
        return call_next()

    for link in (plain, awaited, refuse):
        app.server_middleware.add(link)

    @app.job(name="thread")
    def thread(word: str) -> None:
        steps.append(f"thread: {current_job().queue}")

    @app.job(name="task")
    async def task(word: str) -> None:
        steps.append(f"task: {current_job().queue}")

    with working(app):
        for name, job in (("thread", thread), ("task", task)):
            steps.clear()
            before = int(redis.get("stat:processed") or 0)  # type: ignore[arg-type]
            job.enqueue("yes")
            settled(redis, before + 1)
            assert steps == [
                f"{name}: plain in", f"{name}: awaited in True", f"{name}: default",
                f"{name}: awaited out", f"{name}: plain out",
            ]  # fmt: skip
            steps.clear()
            job.enqueue("no")
            settled(redis, before + 2)
            assert steps == [f"{name}: plain in", f"{name}: awaited in True", f"{name}: plain out"]
    assert not redis.exists("retry", "dead")


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_what_ends_an_async_job_ends_it_beneath_a_plain_link_too(app: App, redis: Redis, how: str) -> None:
    """It stood in a task that nobody cancelled: it went on beside its next run, and its slot was free."""
    said: list[str] = []
    go_on = threading.Event()

    @app.server_middleware.add
    def link(run: Any, call_next: Any) -> Any:
        try:
            return call_next()
        except BaseException as error:
            said.append(f"link: {type(error).__name__}")
            raise

    @app.job(name="wait", timeout=0.3 if how == "timeout" else 60, retry=False)
    async def wait() -> None:
        said.append("begins")
        try:
            while not go_on.is_set():  # noqa: ASYNC110 - set from another thread
                await asyncio.sleep(0.01)
            said.append("goes on")
        except asyncio.CancelledError:
            said.append("cancelled")
            raise

    with working(app) as launcher:
        handle = wait.enqueue()
        until(lambda: said, "it runs")
        if how == "cancel":
            handle.cancel()
        until(lambda: launcher.pool.free == launcher.pool.size, "its slot is free")
        go_on.set()
        until(lambda: len(said) == 3, "it has ended")
        until(lambda: not in_flight(redis), "settled")
    assert said == ["begins", "cancelled", "link: CancelledError"]


def test_async_jobs_beneath_a_plain_link_do_not_wait_for_each_others_threads(redis: Redis, redis_url: str) -> None:
    """The threads of an event loop are few: were the links in all of them, no job beneath could have one."""
    app = App(redis_url=redis_url, concurrency=40)  # a loop has 32 at most
    app.server_middleware.add(lambda run, call_next: call_next())

    @app.job(name="work")
    async def work() -> None:
        await asyncio.to_thread(time.sleep, 0.001)

    work.enqueue_many([()] * 40)
    with working(app):
        settled(redis, 40)
    assert redis.get("stat:failed") in (None, b"0")


def test_a_plain_link_that_raises_stop_iteration_fails_its_job(app: App, redis: Redis) -> None:
    """No future takes that error: whoever waited for it waited for ever, in a slot."""

    @app.server_middleware.add
    def link(run: Any, call_next: Any) -> Any:
        raise StopIteration

    @app.job(name="work", retry=0)
    async def work() -> None:
        """Never reached."""

    with working(app) as launcher:
        work.enqueue()
        (dead,) = until(lambda: jobs_in(redis, "dead"), "it is dead", 30)
        until(lambda: launcher.pool.free == launcher.pool.size, "its slot is free")
    assert "StopIteration" in dead["error_message"]


def test_current_job_in_threads_and_tasks(app: App, redis: Redis) -> None:
    seen: dict[str, Any] = {}
    heard = Heard(app, "job_log")

    def look() -> dict[str, Any]:
        job = current_job()
        job.log("here")
        left = None if job.deadline is None else job.deadline - time.monotonic()
        return {"jid": job.jid, "queue": job.queue, "attempt": job.attempt, "left": left, "args": job.payload["args"]}

    @app.job(name="thread", timeout=50, queue="q1")
    def thread(n: int) -> None:
        seen["thread"] = look()

    @app.job(name="task", queue="q2")
    async def task(n: int) -> None:
        seen["task"] = look()

    first, second = thread.enqueue(1), task.enqueue(2)
    with working(app):
        settled(redis, 2)
    assert seen["thread"].pop("left") > 40
    assert seen["thread"] == {"jid": first.jid, "queue": "q1", "attempt": 1, "args": [1]}
    assert seen["task"] == {"jid": second.jid, "queue": "q2", "attempt": 1, "left": None, "args": [2]}
    assert sorted(facts["run"].jid for facts in heard["job_log"]) == sorted([first.jid, second.jid])
    with pytest.raises(RuntimeError, match="outside of a running job"):
        current_job()


def test_a_step_forward_of_the_servers_clock_ends_no_time_early(app: App, redis: Redis) -> None:
    """What a worker saw its clock step over does not count: neither in expires nor in retry_for."""
    ran: list[str] = []

    @app.job(name="fresh", expires=30)
    def fresh(name: str) -> None:
        ran.append(name)

    app.job(name="again", retry_for=30)(_one_argument)
    now = time.time()
    app.clock.heard(now - 3600, app.clock.sent())
    app.clock.heard(now, app.clock.sent())
    times = {"soon": now - 3600 - 10, "late": now - 3600 - 40, "since": now - 10}
    for name, moment in times.items():
        job = {"args": [name], "jid": name, "retry": True, "queue": "default", "enqueued_at": moment}
        push_raw(redis, json.dumps(job | {"class": "fresh"}))
        retried = {"failed_at": moment, "retry_count": 0, "retry_for": 30}
        push_raw(redis, json.dumps(job | retried | {"class": "again", "enqueued_at": now}))
    with working(app):
        until(lambda: not redis.exists("queue:default") and not in_flight(redis), "all are settled")
    assert sorted(ran) == ["since", "soon"]
    assert sorted(job["jid"] for job in jobs_in(redis, "retry")) == ["since", "soon"]
    assert [job["jid"] for job in jobs_in(redis, "dead")] == ["late"]


def test_a_job_that_expired_is_not_started(app: App, redis: Redis) -> None:
    ran: list[str] = []

    @app.job(name="fresh", expires=30)
    def fresh(name: str) -> None:
        ran.append(name)

    old = time.time() - 31
    push_raw(redis, json.dumps({"class": "fresh", "args": ["old"], "jid": "o", "enqueued_at": old, "created_at": old}))
    push_raw(
        redis, json.dumps({"class": "fresh", "args": ["long"], "jid": "l", "enqueued_at": old, "hm": {"expires": 99}})
    )
    fresh.enqueue("new")
    fresh.using(delay=0.1, expires=60).enqueue("due")
    with working(app):
        until(lambda: len(ran) == 3, "the others ran")
        until(lambda: not in_flight(redis) and not redis.exists("queue:default", "schedule"), "all are settled")
    assert sorted(ran) == ["due", "long", "new"]
    assert not redis.exists("retry", "dead")
    assert redis.get("stat:processed") == b"3"


def test_each_failed_attempt_is_told_and_what_caused_it(app: App, redis: Redis) -> None:
    """The first and the last nine; Sidekiq's own fields stay as they are."""

    @app.job(name="pay", retry=12, retry_in=0, backtrace=True)
    def pay(number: int) -> None:
        try:
            boom()
        except ValueError as error:
            raise RuntimeError(f"attempt {current_job().attempt}") from error

    pay.enqueue(1)
    with working(app):
        until(lambda: redis.zcard("dead"), "it has failed thirteen times")
    (job,) = jobs_in(redis, "dead")
    numbers = [one[0] for one in job["error_attempts"]]
    assert numbers == [1, *range(job["retry_count"] - 7, job["retry_count"] + 2)]
    first, *_, last = job["error_attempts"]
    assert (first[4], first[6]) == ("RuntimeError", "attempt 1")
    assert last[1] == job["retried_at"]
    assert 0 <= last[2] < 5
    assert last[3].count(":") >= 2
    assert last[5] == job["error_group"]
    [[cause, message, lines]] = job["error_causes"]
    assert (cause, message) == ("ValueError", "boom é ?")
    assert lines[0].endswith("in boom")
    backtrace = payload.expand_backtrace(job["error_backtrace"])
    assert backtrace is not None
    assert not any(line.endswith("in boom") for line in backtrace), "that of the error alone, as Sidekiq has it"
