"""What a worker process shows of itself (wire format, section 11), and that it is gone after a stop."""

from __future__ import annotations

import json
import os
import platform
import socket
import threading
import time

import pytest
from redis import Redis

from henchman import App, __version__
from henchman.worker import watcher
from support.worker import Heard, until, working


def test_the_records_of_a_process(redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "BLOCK", 600.0)  # a wait ends by word, not because its time is over
    app = App(redis_url=redis_url, heartbeat=0.2, concurrency=3, queues=("a:2", "b"), tag="shop", labels=("blue", "v2"))
    release = threading.Event()
    heard = Heard(app, "heartbeat", "beat", "startup", "quiet", "shutdown")

    @app.job(name="hold", queue="a")
    def hold() -> None:
        release.wait(60)

    @app.job(name="ahold", queue="b")
    async def ahold() -> None:
        hold.function()

    with working(app) as launcher:
        identity = launcher.session.identity
        hold.enqueue()
        until(lambda: redis.hget(identity, "busy") == b"1", "it shows one job")
        (name,) = redis.smembers("processes")  # type: ignore[misc]
        assert name.decode() == identity
        host, pid, nonce = identity.rsplit(":", 2)
        assert (host, pid) == (os.environ.get("DYNO") or socket.gethostname(), str(os.getpid()))
        assert len(nonce) == 12
        facts = {key.decode(): value.decode() for key, value in redis.hgetall(identity).items()}  # type: ignore[union-attr]
        assert facts.keys() == {"info", "concurrency", "busy", "beat", "quiet", "rss", "rtt_us", "skew", "rss_past"}
        assert (facts["concurrency"], facts["quiet"]) == ("3", "false")
        assert abs(float(facts["beat"]) - time.time()) < 60
        assert 5_000 < int(facts["rss"]) < 2_000_000
        assert int(facts["rtt_us"]) >= 0
        assert abs(float(facts["skew"])) < 1
        info = json.loads(facts["info"])
        assert isinstance(info.pop("started_at"), float)
        assert info.pop("version") == f"henchman {__version__}"
        assert info == {
            "hostname": host, "pid": os.getpid(), "tag": "shop", "concurrency": 3, "queues": ["a", "b"],
            "software": f"Henchman {__version__}, Python {platform.python_version()}",
            "weights": [{"a": 2, "b": 0}], "labels": ["blue", "v2"], "identity": identity, "embedded": False,
            "capsules": {"default": {"concurrency": 3, "mode": "weighted", "weights": {"a": 2, "b": 0}}},
        }  # fmt: skip
        assert 0 < redis.ttl(identity) <= 60  # type: ignore[operator]
        for key in (f"{identity}:work", f"{identity}:workers"):
            ((slot, value),) = until(lambda key=key: list(redis.hgetall(key).items()), "the running job")  # type: ignore[misc]
            work = json.loads(value)
            assert work.keys() == {"queue", "payload", "run_at"}
            assert work["queue"] == "a"
            assert json.loads(work["payload"])["class"] == "hold"
            assert isinstance(work["run_at"], int)
            assert slot.isalnum()
            assert 0 < redis.ttl(key) <= 3600  # whoever rescues it looks there
        redis.lpush(f"{identity}-signals", "TSTP")
        until(lambda: redis.hget(identity, "quiet") == b"true", "quiet, told by way of the server")
        until(lambda: launcher.watcher.armed == 0, "it waits for no push")
        release.set()
        until(lambda: redis.hget(identity, "busy") == b"0", "idle again")
        until(lambda: not redis.exists(f"{identity}:work", f"{identity}:workers"), "no running job is shown")
        assert len(heard["heartbeat"]) == 1
        assert len(heard["beat"]) > 1
    assert not redis.smembers("processes")
    assert not redis.exists(identity, f"{identity}:work", f"{identity}:workers", f"hm:lease:{identity}")
    assert {name: len(heard[name]) for name in ("startup", "quiet", "shutdown")} == dict.fromkeys(
        ("startup", "quiet", "shutdown"), 1
    )


def test_a_process_that_left_nothing_but_its_name_is_pruned(redis: Redis, redis_url: str) -> None:
    redis.sadd("processes", "ghost:1:000000000000")
    app = App(redis_url=redis_url, heartbeat=0.2)
    with working(app) as launcher:
        until(lambda: redis.smembers("processes") == {launcher.session.identity.encode()}, "the ghost is off the list")


def test_nobody_here_can_be_confused_by_names_that_are_no_text(redis: Redis, redis_url: str) -> None:
    for key in ("paused", "queues", "processes"):
        redis.sadd(key, b"\xff\xfe")
    redis.zadd("hm:cancelled", {b"\xff": 1})
    redis.incr("hm:cancels")
    app = App(redis_url=redis_url, heartbeat=0.2)
    heard = Heard(app, "part_failed", "beat")
    ran: list[int] = []
    app.job(name="note")(_note(ran)).enqueue()
    with working(app):
        until(lambda: ran == [1], "it works")
        until(lambda: len(heard["beat"]) > 3, "it beats")
    assert not heard["part_failed"], heard["part_failed"]


def _note(ran: list[int]):  # type: ignore[no-untyped-def]
    def note() -> None:
        ran.append(1)

    return note
