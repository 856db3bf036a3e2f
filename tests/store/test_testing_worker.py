"""testing.worker: a real worker in the test's process, on a private server that is gone afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from henchman import App, current_job, testing
from support.worker import until


@pytest.fixture
def app(short_tmp: str) -> App:
    """An app with a server of its own that nobody may ask."""
    return App(redis_url="redis://nobody.invalid:1", concurrency=3)


@pytest.fixture
def short_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where temporary folders are made: a short path, because a socket's must be."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield folder


@pytest.fixture
def nothing_left(app: App) -> Callable[[], None]:
    """Wait until nothing is left of workers and servers, threads and folders, that this test began. One thread is the
    process's own, as long as anybody in it fills a batch."""
    others = set(threading.enumerate())

    def left() -> list[str]:
        names = [one.name for one in set(threading.enumerate()) - others]
        threads = [name for name in names if name.startswith("henchman") and name != "henchman-batches"]
        return [*threads, *os.listdir(tempfile.gettempdir())]

    return lambda: until(lambda: not left(), "nothing is left") and None


def test_it_runs_what_is_pushed_and_leaves_nothing(app: App, nothing_left: Callable[[], None]) -> None:
    ran: list[int] = []

    @app.job(name="note", queue="own")
    def note(number: int) -> None:
        if number < 50:
            note.using(delay=0.05 if number % 2 else 0).enqueue(number + 50)
        ran.append(number)

    with testing.worker(app, concurrency=4) as worker:
        note.enqueue_many((number,) for number in range(50))
        until(lambda: worker.drain() or len(ran) == 100, "every job ran")
        assert sorted(ran) == list(range(100))
        assert app.connections is not None
        assert worker.errors == []
    nothing_left()
    assert app.stand_ins == ()
    assert app._connections is None


def test_drain_waits_for_what_runs_and_says_what_is_left(app: App) -> None:
    release, ended = threading.Event(), threading.Event()

    @app.job(name="wait")
    def wait() -> None:
        release.wait(20)
        ended.set()

    with testing.worker(app, queues=("default",)) as worker:
        worker.drain()
        wait.enqueue()
        with pytest.raises(TimeoutError, match=r"not done within 0\.1 s: 1 in "):
            worker.drain(0.1)
        release.set()
        worker.drain()
        assert ended.is_set()
        app.enqueue("elsewhere", queue="ruby")
        with pytest.raises(TimeoutError, match="1 in queue 'ruby'"):
            worker.drain(0.1)


def test_errors_are_told_and_retries_that_are_due_are_run(app: App) -> None:
    attempts: list[int] = []

    @app.job(name="heals", retry_in=0)
    def heals() -> None:
        attempts.append(current_job().attempt)
        if len(attempts) < 3:
            raise ValueError(f"attempt {len(attempts)}")

    @app.job(name="later", retry_in=3600)
    def later() -> None:
        raise KeyError("later")

    with testing.worker(app) as worker:
        heals.enqueue()
        worker.drain()
        later.enqueue()
        later.using(delay=3600).enqueue()
        worker.drain()
    assert attempts == [1, 2, 3]
    assert [str(error) for error in worker.errors] == ["attempt 1", "attempt 2", "'later'"]
    assert not app.events.heard("error")


def test_awaited(app: App, nothing_left: Callable[[], None]) -> None:
    ran: list[int] = []

    @app.job(name="anote")
    async def anote(number: int) -> None:
        ran.append(number)

    async def scene() -> None:
        async with testing.worker(app) as worker:
            await anote.aenqueue(1)
            anote.enqueue(2)
            await worker.adrain()
            await app.aclose()
            await anote.aenqueue(3)
            await worker.adrain()

    asyncio.run(scene())
    assert sorted(ran) == [1, 2, 3]
    nothing_left()


def test_a_fake_within_does_not_touch_the_worker(app: App, redis_url: str) -> None:
    ran: list[int] = []
    gate = threading.Event()

    @app.job(name="note")
    def note(number: int) -> None:
        gate.wait(20)
        ran.append(number)

    with testing.worker(app, url=redis_url) as worker:
        note.enqueue(1)
        with testing.fake(app) as jobs:
            note.enqueue(2)
            gate.set()
            until(lambda: ran == [1], "the worker goes on")
        worker.drain()
    assert len(jobs) == 1


def test_an_app_that_is_connected_already(app: App, redis_url: str) -> None:
    app.configure(redis_url=redis_url)

    @app.job(name="note")
    def note(number: int) -> None: ...

    note.enqueue(1)
    before = app.connections
    with testing.worker(app) as worker:
        assert app.connections is not before
        note.enqueue(2)
        worker.drain()
    with testing.fake(app) as jobs:
        note.enqueue(3)
    assert app.connections is before
    assert len(jobs) == 1
    assert sum(queue.size() for queue in app.queues) == 1
    app.close()


def test_a_failure_to_start_leaves_nothing(app: App, nothing_left: Callable[[], None]) -> None:
    with pytest.raises(LookupError), testing.worker(app):
        raise LookupError
    app.load_imports = lambda: {}["x"]  # type: ignore[method-assign]
    with pytest.raises(KeyError):
        testing.worker(app).__enter__()
    nothing_left()
    assert app.stand_ins == ()


def test_a_test_run_that_is_killed_leaves_no_server(short_tmp: str) -> None:
    program = (
        "import os, sys\n"
        "from henchman.testing.real import private_server\n"
        "with private_server() as url:\n"
        "    print(url, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": short_tmp},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdin
    url = process.stdout.readline()
    folder = Path(url.removeprefix("unix://").split("?")[0]).parent
    assert folder.is_dir()
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    process.stdin.close()
    process.stdout.close()
    until(lambda: not folder.exists(), "server and folder are gone")
    assert os.listdir(short_tmp) == []
