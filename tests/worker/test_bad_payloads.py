"""Whatever lies in a queue ends in a named place with a clear error, and the next job runs. In-process, real server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.log.handler import subscribe
from henchman.store.jobs import cancel
from support.worker import Heard, in_flight, jobs_in, push_raw, until, working


@pytest.fixture
def app(redis_url: str) -> App:
    made = App(redis_url=redis_url, concurrency=2)

    @made.job(name="add")
    def add(first: int, second: int = 0, *, note: str = "") -> None:
        ran.append(first)

    @made.job(name="swallow")
    def swallow(text: str) -> None:
        ran.append(len(text))

    ran: list[int] = []
    made.ran = ran  # type: ignore[attr-defined]
    return made


def job(name: Any = "add", args: Any = (1,), **fields: Any) -> bytes:
    return json.dumps({"class": name, "args": args, "jid": "j", "retry": True, **fields}).encode()


INVALID = {
    "garbage": b"\x00\x01garbage",
    "nothing": b"",
    "not UTF-8": b'{"class":"add","args":["\xff\xfe"],"jid":"j"}',
    "list": b"[1,2]",
    "number": b"5",
    "null": b"null",
    "text": b'"add"',
    "cut": b'{"class":"add","args":[1',
    "two": b'{"class":"add","args":[1]}{}',
    "no class": b'{"args":[1],"jid":"j"}',
    "class is a number": b'{"class":5,"args":[1]}',
    "class is a list": b'{"class":["add"],"args":[1]}',
    "args is an object": b'{"class":"add","args":{"first":1}}',
    "args is a text": b'{"class":"add","args":"1"}',
    "kwargs is a list": b'{"class":"add","args":[1],"kwargs":[1]}',
    "jid is a list": b'{"class":"add","args":[1],"jid":[1]}',
    "deep": b'{"class":"add","args":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "10 MB of garbage": b"x" * 10_000_000,
}
RETRIED = {
    "unknown class": (job("nobody.knows"), "UnknownJob", "nobody.knows"),
    "unknown without retry": (b'{"class":"nobody","args":[],"jid":"j"}', "UnknownJob", "nobody"),
    "class of the system": (job("os.system", ["touch /tmp/x"]), "UnknownJob", "os.system"),
    "dunder": (job("__import__", ["os"]), "UnknownJob", "__import__"),
    "path": (job("../../etc/passwd", []), "UnknownJob", "passwd"),
    "class with control characters": (job("add\x1b[31m\x00\u202e", []), "UnknownJob", "add"),
    "class of a megabyte": (job("c" * 1_000_000, []), "UnknownJob", "ccc"),
    "missing argument": (job(args=[]), "ArgumentError", "first"),
    "extra argument": (job(args=[1, 2, 3]), "ArgumentError", ""),
    "unknown keyword": (job(kwargs={"nope": 1}), "ArgumentError", "nope"),
    "10 MB too much": (job(args=[1, 2, "x" * 10_000_000]), "ArgumentError", ""),
}


@pytest.mark.parametrize("name", INVALID)
def test_what_is_no_job_is_wrapped_into_the_dead_set(app: App, redis: Redis, name: str) -> None:
    heard = Heard(app, "error", "part_failed")
    push_raw(redis, INVALID[name], job(args=[7]))
    with working(app):
        until(lambda: app.ran == [7], "the next job runs")  # type: ignore[attr-defined]
        until(lambda: not in_flight(redis), "both are settled")
    (dead,) = jobs_in(redis, "dead")
    assert dead["class"] == "InvalidPayload"
    assert dead["error_message"]
    assert dead["queue"] == "default"
    assert not redis.exists("retry", "queue:default")
    assert len(heard["error"]) == 1
    assert not heard["part_failed"]


@pytest.mark.parametrize("name", RETRIED)
def test_what_cannot_be_called_is_retried_with_the_reason(app: App, redis: Redis, name: str) -> None:
    payload, error_class, words = RETRIED[name]
    heard = Heard(app, "part_failed")
    push_raw(redis, payload, job(args=[7]))
    with working(app) as launcher:
        launcher.stager.quiet()  # however slow this is: no retry comes due before it is looked at
        until(lambda: app.ran == [7], "the next job runs")  # type: ignore[attr-defined]
        until(lambda: not in_flight(redis), "both are settled")
    (found,) = jobs_in(redis, "retry")
    assert found["error_class"] == error_class
    assert words in found["error_message"]
    assert len(found["error_message"]) <= 10_000
    assert "\x1b" not in found["error_message"]
    assert not redis.exists("dead", "queue:default")
    assert not heard["part_failed"]


WRAPPER = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"


def test_a_job_that_cannot_start_dies_with_the_line_of_any_other(
    app: App, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    subscribe(app.events, "warning")
    payloads = {
        "unknown": job("nobody.knows", retry=0),
        "unfit": job(args=[], retry=0),
        "later": job(args=[], retry=3, retry_count=0),
        "quiet": job("nobody.knows", retry=0, log_level="fatal"),
        "rails": job(WRAPPER, [{"job_class": "WelcomeJob", "arguments": []}], retry=0, wrapped="WelcomeJob"),
        "invalid": b"no job",
    }
    push_raw(redis, *(one.replace(b'"jid": "j"', f'"jid": "{name}"'.encode()) for name, one in payloads.items()))
    with working(app):
        until(lambda: redis.zcard("dead") == 5 and redis.zcard("retry") == 1, "all ended")
    endings = {"dead", "will be retried", "dead: a payload that no worker can read"}
    lines = [one.__dict__ for one in caplog.records if one.getMessage() in endings]
    found = {one.get("jid", "invalid"): (one["levelname"], one.get("class"), one.get("attempt")) for one in lines}
    assert found == {
        "unknown": ("ERROR", "nobody.knows", None),
        "unfit": ("ERROR", "add", None),
        "later": ("WARNING", "add", 2),
        "rails": ("ERROR", WRAPPER, None),
        "invalid": ("ERROR", None, None),
    }
    assert all(one["name"] == "henchman.job" and one["queue"] == "default" and one["reason"] for one in lines)
    (rails,) = [one for one in jobs_in(redis, "dead") if one.get("jid") == "rails"]
    assert (rails["error_class"], "'WelcomeJob'" in rails["error_message"]) == ("UnknownJob", True)


HUGE = 10**400
STRANGE: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    1.5,
    HUGE,
    "",
    "5",
    "x" * 1000,
    [],
    [1],
    {},
    {"a": 1},
    "\ud83d\ude00",
)
FIELDS = (
    "jid", "queue", "retry", "retry_count", "retry_for", "retry_queue", "failed_at", "retried_at", "created_at",
    "enqueued_at", "backtrace", "error_backtrace", "dead", "tags", "hm", "at", "bid", "wrapped", "cattr", "locale",
    "display_class", "log_level", "kwargs", "error_message", "expires_in", "discarded_at",
)  # fmt: skip


@pytest.mark.parametrize("field", [*FIELDS, "hm.timeout", "hm.expires"])
def test_no_value_of_any_field_harms_the_worker(app: App, redis: Redis, field: str) -> None:
    """Each value once in a job that succeeds and once in one that fails; every one must end somewhere."""
    heard = Heard(app, "part_failed", "refused")
    app.connections.run(cancel(app.keys, "somebody"))  # so that jids are compared
    outer, _, inner = field.partition(".")
    payloads = []
    for name, args in (("add", [1]), ("add", [])):
        for value in STRANGE:
            payloads.append(json.dumps({"class": name, "args": args, "jid": f"j{len(payloads)}", "retry": True}
                                       | {outer: {inner: value} if inner else value}))  # fmt: skip
    push_raw(redis, *payloads, job(args=[77]))
    with working(app) as launcher:
        launcher.stager.quiet()  # however slow this is: no retry comes due before it is counted
        until(lambda: 77 in app.ran, "the next job runs")  # type: ignore[attr-defined]
        until(lambda: not in_flight(redis), "all are settled")
        until(lambda: launcher.pool.free == 2, "both slots are free")
        assert all(part.alive for part in (launcher.fetcher, launcher.watcher, launcher.acker, launcher.heart))
    kept = sum(int(redis.zcard(key)) for key in ("retry", "dead", "schedule"))  # type: ignore[arg-type]
    ended = int(redis.get("stat:processed") or 0)  # type: ignore[arg-type]
    assert kept + len(app.ran) >= len(payloads) + 1 - ended  # type: ignore[attr-defined]
    assert not redis.exists("queue:default")
    assert not heard["part_failed"], heard["part_failed"]
    assert not heard["refused"], heard["refused"]


def test_arguments_of_10_mb_arrive(app: App, redis: Redis) -> None:
    push_raw(redis, job("swallow", ["y" * 10_000_000]), job(args=[7]))
    with working(app):
        until(lambda: sorted(app.ran) == [7, 10_000_000], "both ran")  # type: ignore[attr-defined]
        until(lambda: not in_flight(redis), "both are settled")


def test_what_comes_due_and_is_no_job_goes_to_the_dead_set(app: App, redis: Redis) -> None:
    redis.zadd("schedule", {payload: 1.0 for payload in INVALID.values() if payload})
    redis.zadd("retry", {job(args=[7]): 1.0, job(args=[8], queue=[1]): 1.0, job(args=[9], queue=None): 2.0})
    with working(app):
        until(lambda: sorted(app.ran) == [7, 8, 9], "what is a job runs")  # type: ignore[attr-defined]
        until(lambda: not redis.exists("schedule", "retry", "queue:default"), "nothing is left behind")
        until(lambda: not in_flight(redis), "all are settled")
    assert {one["class"] for one in jobs_in(redis, "dead")} == {"InvalidPayload"}
