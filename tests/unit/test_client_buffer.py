"""A push while the server is away: it raises within its limits, or is kept in memory, in order, until it is back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.client.push import Pushed
from henchman.errors import ConfigError, ServerAway, ServerError
from henchman.store import jobs
from support.fake_server import CLOSE, FakeServer
from support.server import PrivateServer, running_server
from support.store import Store
from support.worker import jobs_in, looker, until


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    with running_server("--appendfsync", "always", appendonly=True) as one:
        yield one


@pytest.fixture
def redis(server: PrivateServer) -> Iterator[Redis]:
    with looker(server.url) as client:
        yield client


def app_of(server: PrivateServer, **settings: Any) -> tuple[App, Any]:
    app = App(redis_url=server.url, **{"buffer": 1000, **settings})

    @app.job(name="note")
    def note(number: int) -> None: ...

    return app, note


def numbers(redis: Redis, queue: str = "default") -> list[int]:
    return [job["args"][0] for job in jobs_in(redis, f"queue:{queue}")]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "henchman"]


# -- without a buffer


def test_a_refused_connection_raises_at_once_and_the_job_was_not_pushed() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # ours, so that nobody listens there
        app = App(redis_url=f"redis://127.0.0.1:{taken.getsockname()[1]}", connect_timeout=20)
        started = time.monotonic()
        with pytest.raises(ServerAway) as caught:
            app.enqueue("note", 1)
    assert caught.value.executed is False
    assert time.monotonic() - started < 15


@pytest.mark.alone("it measures how long a push takes to give up")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_server_that_accepts_and_never_answers_raises_within_the_limit_and_the_outcome_is_unknown(
    asynchronous: bool,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        app = App(redis_url=f"redis://127.0.0.1:{mute.getsockname()[1]}", io_timeout=0.3, buffer=10)
        started = time.monotonic()
        push = (lambda: asyncio.run(app.aenqueue("note", 1))) if asynchronous else (lambda: app.enqueue("note", 1))
        with pytest.raises(ServerAway) as caught:
            push()
        assert 0.25 < time.monotonic() - started < 4.5
        assert caught.value.executed is None
        assert app.client.buffer.waiting == 0, "what may have been executed is never kept"
        app.close()


@pytest.mark.alone("it measures how long a push takes to give up")
def test_a_host_whose_backlog_is_full_raises_within_the_connect_limit() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(8)]
        for one in fillers:  # nobody accepts: from the second on the kernel answers no more
            one.setblocking(False)
            one.connect_ex(address)
        app = App(redis_url=f"redis://127.0.0.1:{address[1]}", connect_timeout=0.3, io_timeout=0.3)
        started = time.monotonic()
        with pytest.raises(ServerAway) as caught:
            app.enqueue("note", 1)
        assert time.monotonic() - started < 2.9
        assert caught.value.executed is False
        for one in fillers:
            one.close()


def test_a_killed_server_raises_at_once(server: PrivateServer) -> None:
    app, note = app_of(server, buffer=0, connect_timeout=20)
    note.enqueue(1)
    server.kill()
    for push in (lambda: note.enqueue(2), lambda: note.enqueue_many([(2,)]), lambda: asyncio.run(note.aenqueue(2))):
        started = time.monotonic()
        with pytest.raises(ServerAway) as caught:
            push()
        assert time.monotonic() - started < 15
        assert caught.value.executed is False
    app.close()


def test_an_answer_that_was_lost_raises_and_nothing_is_kept() -> None:
    with FakeServer(lambda words: CLOSE if words[0] == b"SADD" else b"+OK\r\n") as fake:
        app = App(redis_url=fake.url, buffer=10)
        with pytest.raises(ServerAway) as caught:
            app.enqueue("note", 1)
        assert caught.value.executed is None
        assert app.client.buffer.waiting == 0
        assert [words[0] for words in fake.received].count(b"SADD") == 1, "it was not sent again"
        app.close()


def test_the_setting_is_checked() -> None:
    with pytest.raises(ConfigError, match="buffer"):
        App(buffer=-1)


# -- with one


def test_kept_in_order_and_delivered_when_the_server_is_back(
    server: PrivateServer, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    app, note = app_of(server)
    assert note.enqueue(0).admission == "created"
    server.kill()
    handles = [note.enqueue(number) for number in range(1, 6)]
    assert {one.admission for one in handles} == {"buffered"}
    server.start()
    until(lambda: app.client.buffer.waiting == 0, "delivered by itself")
    assert note.enqueue(6).admission == "created"
    assert numbers(redis) == [0, 1, 2, 3, 4, 5, 6]
    assert [job["jid"] for job in jobs_in(redis, "queue:default")][1:6] == [one.jid for one in handles]
    away, back = until(lambda: len(lines(caplog)) > 1 and lines(caplog), "it is told")
    assert away.startswith("the server is away: up to 1000 jobs are kept in memory")
    assert "delivered from memory: 5 jobs" in back
    app.close()


def test_the_next_push_delivers_what_waits_first(server: PrivateServer, redis: Redis) -> None:
    app, note = app_of(server)
    server.kill()
    note.enqueue(1)
    buffer = app.client.buffer
    with buffer._delivering:  # the thread has no turn
        server.start()
        assert note.enqueue(2).admission == "buffered", "behind what somebody is delivering"
    buffer._retry_at = 0.0
    note.enqueue(3)
    until(lambda: buffer.waiting == 0, "delivered")
    assert numbers(redis) == [1, 2, 3]
    app.close()


def test_awaited_pushes_go_into_the_same_buffer(server: PrivateServer, redis: Redis) -> None:
    app, note = app_of(server)
    server.kill()

    async def scene() -> None:
        assert (await note.aenqueue(1)).admission == "buffered"
        assert await note.aenqueue_many([(2,), (3,)]) == Pushed(2, 0, 0, 0, 2)
        assert note.enqueue(4).admission == "buffered"
        server.start()
        await asyncio.to_thread(until, lambda: app.client.buffer.waiting == 0, "delivered")
        assert (await note.aenqueue(5)).admission == "created"
        await app.aclose()

    asyncio.run(scene())
    assert numbers(redis) == [1, 2, 3, 4, 5]


def test_rows_are_kept_too_and_what_does_not_fit_raises(server: PrivateServer, redis: Redis) -> None:
    app, note = app_of(server, buffer=5)
    server.kill()
    assert note.enqueue_many([(n,) for n in range(4)]) == Pushed(4, 0, 0, 0, 4)
    with pytest.raises(ServerAway) as caught:
        note.enqueue_many([(8,), (9,)])  # a round trip is kept as a whole or not at all
    assert caught.value.executed is False
    assert note.enqueue(4).admission == "buffered"
    with pytest.raises(ServerAway):
        note.enqueue(5)
    with pytest.raises(ServerAway):
        asyncio.run(note.aenqueue(5))
    server.start()
    until(lambda: app.client.buffer.waiting == 0, "delivered")
    assert numbers(redis) == [0, 1, 2, 3, 4]
    app.close()


def test_bytes_are_bounded_too(server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("henchman.client.buffer.BYTES_MOST", 10_000)
    app = App(redis_url=server.url, buffer=1000)
    server.kill()
    assert app.enqueue("note", "x" * 6_000).admission == "buffered"
    with pytest.raises(ServerAway):
        app.enqueue("note", "x" * 6_000)
    server.start()
    until(lambda: app.client.buffer.waiting == 0, "delivered")
    app.close()


def test_3000_jobs_of_several_queues(server: PrivateServer, redis: Redis) -> None:
    app, note = app_of(server, buffer=5000)
    server.kill()
    for queue in ("a", "b"):
        note.using(queue=queue).enqueue_many([(n,) for n in range(1500)])
    server.start()
    until(lambda: app.client.buffer.waiting == 0, "delivered")
    assert numbers(redis, "a") == numbers(redis, "b") == list(range(1500))
    assert redis.smembers("queues") == {b"a", b"b"}
    app.close()


def test_a_delay_counts_from_the_push(server: PrivateServer, redis: Redis) -> None:
    app, note = app_of(server)
    server.kill()
    at = time.time()
    note.using(delay=60).enqueue(1)
    buffer = app.client.buffer
    with buffer._lock:
        buffer.held[0] = (buffer.held[0][0], buffer.held[0][1] - 20)  # as if it had been kept for 20 s
    server.start()
    until(lambda: buffer.waiting == 0, "delivered")
    ((payload, due),) = redis.zrange("schedule", 0, -1, withscores=True)
    assert at + 39 < due < time.time() + 41, "not 60 s from its delivery"
    assert "enqueued_at" not in json.loads(payload)
    assert json.loads(payload)["hm"]["delay"] == pytest.approx(due - time.time(), abs=2.0), "what is left of it"
    app.close()


def test_a_delivery_whose_answer_was_lost_is_not_executed_twice(redis_url: str) -> None:
    store = Store(redis_url)
    entries = [jobs.Delivery("a", None, 0.0, b"1"), jobs.Delivery(None, 5.0, 0.0, b"2")]
    assert store.run(jobs.deliver(store.keys, "m", entries)) == [1, 1]
    assert store.run(jobs.deliver(store.keys, "m", entries)) == []
    assert store.queue("a") == [b"1"]
    assert store.ask("ZRANGE", "schedule", 0, -1, "WITHSCORES") == [b"2", b"5"]
    assert 0 < store.ask("PTTL", store.keys.delivered("m")) <= 86_400_000
    assert jobs.deliver(store.keys, "m", entries).again, "so it may be sent again"
    store.connections.close()


def test_one_that_the_server_refuses_is_reported_and_stops_no_other(
    server: PrivateServer, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis.set("queue:odd", "not a list")
    app, note = app_of(server)
    server.kill()
    lost = note.using(queue="odd").enqueue(1)
    note.enqueue(2)
    server.start()
    until(lambda: app.client.buffer.waiting == 0, "delivered")
    assert numbers(redis) == [2]
    until(lambda: any(lost.jid in line and "WRONGTYPE" in line for line in lines(caplog)), "it is named")
    app.close()


def test_a_full_server_is_told_to_the_next_caller_and_what_waits_is_delivered_later(
    server: PrivateServer, redis: Redis
) -> None:
    app, note = app_of(server)
    server.kill()
    note.enqueue(1)
    with app.client.buffer._delivering:
        server.start()
        redis.config_set("maxmemory", 1)
    until(lambda: app.client.buffer.passable, "the refusal is known")
    with pytest.raises(ServerError, match="maxmemory"):
        note.enqueue(2)
    assert app.client.buffer.waiting == 1
    redis.config_set("maxmemory", 0)
    until(lambda: app.client.buffer.waiting == 0, "delivered")
    assert numbers(redis) == [1]
    app.close()


def test_a_forked_child_starts_empty(server: PrivateServer, redis: Redis) -> None:
    app, note = app_of(server)
    server.kill()
    note.enqueue(1)
    (heard, say), (go, tell) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:  # the child: nothing of the test's own may run on here
        signal.alarm(150)  # it ends, whatever hangs in it
        try:
            os.close(heard)
            before = app.client.buffer.waiting
            admission = note.enqueue(2).admission
            os.write(say, f"{before} {admission} {app.client.buffer.waiting}".encode())
            os.read(go, 1)  # until the server is back
            os.write(say, f"{len(app.client.buffer.flush(60))} left".encode())
        finally:
            os._exit(0)
    os.close(say)  # so that its end is the end of what is heard
    assert os.read(heard, 100) == b"0 buffered 1"
    assert app.client.buffer.waiting == 1, "the parent's stays the parent's"
    server.start()
    os.write(tell, b"!")
    assert os.read(heard, 100) == b"0 left"
    os.waitpid(pid, 0)
    until(lambda: sorted(numbers(redis)) == [1, 2], "each delivered its own")
    for end in (heard, go, tell):
        os.close(end)
    app.close()


# -- at the end of the process

SCRIPT = """
import sys
from henchman import App
app = App(redis_url=sys.argv[1], buffer=100)
if sys.argv[2:]:
    app.client.buffer.flush.__func__.__defaults__ = (float(sys.argv[2]),)
for number in range(12):
    handle = app.enqueue("note", number)
    print(handle.admission, handle.jid, flush=True)
print("ready", flush=True)
sys.stdin.read()
"""


def ended(server: PrivateServer, folder: Path, *, back: bool) -> tuple[list[list[str]], str, float]:
    """What a program that buffered 12 jobs printed, what it logged, and how long its end took."""
    server.kill()
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, server.url, *(["60"] if back else [])],  # however slow this machine is
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as program:
        assert program.stdout is not None
        said = [line.split() for line in iter(program.stdout.readline, "ready\n")]
        if back:
            server.start()
        started = time.monotonic()
        _, log = program.communicate(timeout=150)
        assert program.returncode == 0, log
        return said, log, time.monotonic() - started


def test_flushed_at_exit(server: PrivateServer, redis: Redis, tmp_path: Path) -> None:
    said, log, _ = ended(server, tmp_path, back=True)
    assert {line[0] for line in said} == {"buffered"}
    assert [job["jid"] for job in jobs_in(redis, "queue:default")] == [line[1] for line in said]
    assert "lost" not in log


def test_what_could_not_be_delivered_is_reported_at_exit(server: PrivateServer, tmp_path: Path) -> None:
    said, log, took = ended(server, tmp_path, back=False)
    assert 4.5 < took < 60, "the limit is 5 s"
    (line,) = [line for line in log.splitlines() if "lost" in line]
    assert "lost from memory: 12 jobs (" in line
    assert all(one[1] in line for one in said[:10])
    assert said[10][1] not in line
