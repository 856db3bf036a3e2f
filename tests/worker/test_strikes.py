"""Where a job may be struck: never while its thread holds a lock of ``logging``, ``import``, ``threading`` or ours."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import operator
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App, JobTimeout
from henchman.errors import JobShutdown
from henchman.kernel import threads
from henchman.kernel.threads import stack_of
from henchman.log import handler as log
from henchman.work.current import running
from henchman.worker.run import Run, Slot
from henchman.worker.watchdog import Standstill, Watchdog, strike
from support.processes import PATHS
from support.runs import running_a_job
from support.worker import settled, until, working

ENOUGH = 1500  # strikes, where the machine is fast enough
SECONDS = float(os.environ.get("STRUCK_SECONDS", "20"))  # a longer form by hand: STRUCK_SECONDS=600


def test_a_thousand_time_outs_at_random_moments_leave_no_lock_behind(redis_url: str) -> None:
    """Jobs that log, lock, import, open files, use queues and databases, start threads and push jobs."""
    done = subprocess.run(
        [sys.executable, "-m", "support.struck", redis_url, str(SECONDS), str(ENOUGH if SECONDS < 60 else 10**9)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)},
        capture_output=True,
        timeout=SECONDS + 90,
        check=False,
    )
    assert done.stdout, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert not told["stuck"], "\n".join(told["stuck"])
    assert told["lost"] == 0
    assert sum(told["dead"].values()) == told["sent"], "each ended once"
    assert told["dead"]["JobTimeout"] >= 0.98 * told["sent"]
    assert told["strikes"] > 100, told
    assert all(told["did"].values()), told


def test_garbage_that_is_collected_meanwhile_neither_stops_nor_crashes_the_process() -> None:
    """What is freed gives the interpreter lock away, on CPython 3.11 also in the middle of a look at the frames."""
    done = subprocess.run(
        [sys.executable, "-m", "support.littered", "10"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)},
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"10\n"), done.stderr[-3000:]


@pytest.mark.parametrize("on", [True, False])
def test_a_look_at_frames_leaves_the_collector_as_it_was(on: bool) -> None:
    before = gc.isenabled()
    during = list[bool]()
    try:
        (gc.enable if on else gc.disable)()
        assert stack_of(threading.get_ident())[-1][0].f_back is None, "the outermost is there"
        assert stack_of(0) == [], "a thread that is gone"
        with pytest.raises(TypeError):
            threads.uncollected(map(len, (1,)))  # type: ignore[arg-type]
        assert gc.isenabled() is on
        threads.uncollected(map(during.append, map(operator.call, (gc.isenabled,))))
        assert during == [False]
    finally:
        (gc.enable if before else gc.disable)()


class Slow(logging.Handler):
    """A handler that holds its lock until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.go = threading.Event(), threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.inside.set()
        self.go.wait(30)


def _slow_log() -> tuple[Slow, logging.Logger]:
    slow, logger = Slow(), logging.Logger("slow")  # noqa: LOG001 - of this test alone
    logger.addHandler(slow)
    return slow, logger


def _loop() -> None:
    while True:
        time.sleep(0.001)  # until it is struck


def _struck(slot: Slot, run: Run) -> None:
    until(lambda: strike(slot, run, JobTimeout) == "struck", "it is struck")


def test_not_while_it_logs() -> None:
    slow, logger = _slow_log()

    def job() -> None:
        logger.warning("a line")
        _loop()

    with running_a_job(job) as (slot, run, thread, raised):
        assert slow.inside.wait(30)
        assert {strike(slot, run, JobTimeout) for _ in range(20)} == {"later"}
        slow.go.set()
        _struck(slot, run)
        thread.join(30)
    assert [type(error) for error in raised] == [JobTimeout]
    assert slow.lock is not None
    assert slow.lock.acquire(blocking=False), "nobody holds the handler's lock"


def test_not_in_the_middle_of_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text("import support.worker as w\nw.inside.set()\nw.go.wait(30)\n")
    monkeypatch.syspath_prepend(tmp_path)
    inside, go = threading.Event(), threading.Event()
    monkeypatch.setattr("support.worker.inside", inside, raising=False)
    monkeypatch.setattr("support.worker.go", go, raising=False)

    def job() -> None:
        import slow_to_import  # type: ignore[import-not-found]  # noqa: F401

        _loop()

    with running_a_job(job) as (slot, run, thread, _):
        assert inside.wait(30)
        assert {strike(slot, run, JobTimeout) for _ in range(20)} == {"later"}
        go.set()
        _struck(slot, run)
        thread.join(30)
    assert "slow_to_import" in sys.modules


def test_not_while_a_thread_starts_which_still_goes_by_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the new thread would be struck, would never say that it has started, and the job would wait for ever."""
    inside, go, began = threading.Event(), threading.Event(), threading.Event()

    def started(self: Any) -> None:
        if threading.current_thread() is not self:
            inside.set()
            go.wait(30)

    def job() -> None:
        made = threading.Thread(target=began.set)
        made._started = type(
            "Started", (), {"wait": lambda _: started(made), "set": began.is_set, "is_set": lambda _: False}
        )()  # type: ignore[attr-defined]
        made.start()
        _loop()

    with running_a_job(job) as (slot, run, thread, raised):
        assert inside.wait(30)
        assert {strike(slot, run, JobTimeout) for _ in range(20)} == {"later"}
        go.set()
        _struck(slot, run)
        thread.join(30)
    assert began.wait(30)
    assert [type(error) for error in raised] == [JobTimeout]


def _wait_in_slices() -> None:
    event = threading.Event()
    while True:
        event.wait(0.01)


def _get_in_slices() -> None:
    empty: queue.Queue[int] = queue.Queue()
    while True:
        with contextlib.suppress(queue.Empty):
            empty.get(timeout=0.01)


def _join_in_slices() -> None:
    go = threading.Event()
    helper = threading.Thread(target=go.wait, daemon=True)
    helper.start()
    try:
        while True:
            helper.join(0.01)
    finally:
        go.set()


@pytest.mark.parametrize("job", [_wait_in_slices, _get_in_slices, _join_in_slices])
def test_a_job_that_waits_for_another_thread_is_struck(job: Callable[[], None]) -> None:
    with running_a_job(job) as (slot, run, thread, raised):
        _struck(slot, run)
        thread.join(30)
    assert [type(error) for error in raised] == [JobTimeout]


def test_a_job_that_does_nothing_but_log_is_struck_at_a_line() -> None:
    """Before the line's lock is taken: it is hardly ever seen elsewhere."""
    (slow, logger), known = _slow_log(), threading.Event()
    slow.addFilter(log.JobFilter())

    def job() -> None:
        known.wait(30)
        running.set(run)
        logger.warning("the first")
        logger.warning("the second")

    with running_a_job(job) as (slot, run, thread, raised):
        known.set()
        assert slow.inside.wait(30)
        assert strike(slot, run, JobTimeout) == "later"
        slow.go.set()
        thread.join(30)
    assert [type(error) for error in raised] == [JobTimeout]
    assert strike(slot, run, JobTimeout) == "struck", "once"
    assert slow.lock is not None
    assert slow.lock.acquire(blocking=False), "nobody holds the handler's lock"


def test_a_thread_that_waits_for_a_lock_after_its_job_has_ended_stands_still_too() -> None:
    """It has a slot, and tells of the end: a death handler, or the log, waits for what a struck job left locked."""
    lock, looks = threading.Lock(), Standstill()
    lock.acquire()

    def job() -> None:
        with lock:
            pass

    with running_a_job(job) as (slot, _, thread, _):
        until(lambda: looks.look([slot], 0.0), "it waits")
        assert looks.look([slot], 60.0) == [], "not for long"
        slot.run = None
        [found] = looks.look([slot], 0.0)
        assert found.startswith("a job that has ended at ")
        assert f"{__file__}:" in found
        lock.release()
        thread.join(30)
    assert looks.look([slot], 0.0) == []
    assert looks.look([], 0.0) == [], "nothing runs"


def test_a_slot_is_taken_until_its_job_has_been_told_of(redis: Redis, redis_url: str) -> None:
    app, told, go = App(redis_url=redis_url), threading.Event(), threading.Event()

    @app.job(name="brief", queue="default")
    def brief() -> None:
        pass

    def hear(**_: Any) -> None:
        told.set()
        go.wait(30)

    app.events.on("job_end", hear)
    with working(app) as launcher:
        brief.enqueue()
        assert told.wait(30)
        [slot] = launcher.manager.taken()
        assert slot.run is None, "it has ended"
        go.set()
        until(lambda: not launcher.manager.taken(), "it is idle")
        settled(redis, 1)


def test_what_cannot_be_struck_is_tried_until_it_can_and_given_up_in_the_end() -> None:
    slow, logger = _slow_log()
    given_up: list[Run] = []
    watchdog = Watchdog(strike, given_up.append, lambda part, error: None, grace=0.3)
    watchdog.start()
    with running_a_job(lambda: logger.warning("a line")) as (slot, run, thread, _):
        assert slow.inside.wait(30)
        run.deadline = time.monotonic()
        watchdog.watch(run, slot)
        until(lambda: given_up == [run], "it is given up")
        watchdog.strike(run, slot, JobShutdown)  # a stop tries on
        until(lambda: run.late is not None, "it was tried")
        slow.go.set()
        thread.join(30)
    watchdog.stop()
    assert len(given_up) == 1
