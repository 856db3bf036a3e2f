"""Isolated runs by the real pool: how they end, what they say, what they leave behind."""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import threading
import time
import traceback
import zlib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App, testing
from henchman.inspector.prometheus import exposition
from henchman.isolation.process import RunProcess
from henchman.store.call import run
from support import isolated
from support.processes import children_of
from support.worker import Heard, in_flight, jobs_in, settled, until, working


@pytest.fixture
def app(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """The app of ``support/isolated.py``, as a worker finds it."""
    monkeypatch.setenv("ACTING_TRACE", str(tmp_path / "trace"))
    (tmp_path / "trace").touch()
    before = isolated.app.config
    isolated.app.configure(redis_url=redis_url)
    yield isolated.app
    isolated.app.close()
    isolated.app.config = before


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """What jobs did, a line each."""
    return tmp_path / "trace"


def _lines(trace: Path) -> list[list[str]]:
    return [line.split() for line in trace.read_text().splitlines()]


def test_a_run_is_in_a_process_of_its_own_with_its_middleware(app: App, redis: Redis, trace: Path) -> None:
    isolated.plain.enqueue("one")
    with working(app):
        settled(redis, 1)
    [middleware, job] = _lines(trace)
    assert job == ["one", middleware[1], str(os.getpid())]
    assert middleware[1] != str(os.getpid())
    assert not os.path.exists(f"/proc/{job[1]}")
    assert not redis.exists("dead", "retry")


def test_what_is_returned_comes_back_as_its_annotation_says(app: App, redis: Redis) -> None:
    huge = 10**1000
    sums, first, unkept = (
        isolated.add.enqueue(huge, 1),
        isolated.day.enqueue(date(2026, 5, 17)),
        isolated.unkept.enqueue(),
    )
    with working(app):
        assert sums.result(timeout=60) == huge + 1
        assert first.result(timeout=60) == date(2026, 5, 1), "of an async job"
        settled(redis, 3)
        assert unkept.status().state == "finished"
    assert not redis.exists("dead", "retry")


@pytest.mark.parametrize(("how", "ending"), [("failure", "failed"), ("discard", "discarded"), ("snooze", "snoozed")])
def test_a_job_says_how_it_ends(app: App, redis: Redis, how: str, ending: str) -> None:
    heard = Heard(app, "job_failed", "job_end")
    isolated.ends.enqueue(how)
    with working(app):
        settled(redis, 1)
    [told] = [one["outcome"] for one in (*heard["job_failed"], *heard["job_end"])]
    assert told.ending == ending
    assert {"failure": "not eligible", "discard": "of no use", "snooze": "later"}[how] == told.reason
    assert not redis.exists("dead", "retry")
    assert redis.zcard("schedule") == (how == "snooze")


def test_an_error_arrives_with_its_class_its_place_and_its_cause(app: App, redis: Redis) -> None:
    heard: list[BaseException] = []
    app.error_handlers.append(lambda error, facts: heard.append(error))
    try:
        isolated.ends.enqueue("raise")
        isolated.ends.enqueue("kill")
        isolated.ends.enqueue("exit")
        with working(app, stop=10):
            settled(redis, 3)
    finally:
        app.error_handlers.clear()
    dead = {job["args"][0]: (job["error_class"], job["error_message"]) for job in jobs_in(redis, "dead")}
    assert dead == {
        "raise": ("Refused", "refused with 7"),
        "kill": ("Kill", "never again"),
        "exit": ("SystemExit", "3"),
    }
    error = next(one for one in heard if isinstance(one, isolated.Refused))
    assert (error.code, error.wait) == (7, 5.0)
    assert isinstance(error.__cause__, KeyError)
    assert str(error.__cause__) == "'key'"
    places = [(Path(one.filename).name, one.name) for one in traceback.extract_tb(error.__traceback__)]
    assert places[-1] == ("isolated.py", "ends")
    assert "raise Refused(7, wait=5.0) from cause" in "".join(traceback.format_exception(error))
    [job] = [one for one in jobs_in(redis, "dead") if one["args"] == ["raise"]]
    assert "isolated.py" in json.loads(zlib.decompress(base64.b64decode(job["error_backtrace"])))[0]


def test_retry_options_judge_the_error_by_its_class_and_its_attributes(app: App, redis: Redis) -> None:
    isolated.asks.enqueue()
    with working(app):
        settled(redis, 1)
    [(stored, due)] = redis.zrange("retry", 0, -1, withscores=True)  # type: ignore[misc]
    job = json.loads(stored)
    assert job["error_class"] == "Refused"
    assert due - job["failed_at"] == pytest.approx(1234, abs=2)


def test_current_job_works_inside(app: App, redis: Redis, trace: Path) -> None:
    heard = Heard(app, "job_log")
    handle = isolated.says.using(timeout=90).enqueue("4111-1111")
    before = time.monotonic()
    with working(app):
        settled(redis, 1)
    [(_, jid, queue, attempt, name, deadline, cancelled)] = _lines(trace)
    assert (jid, queue, attempt, name, cancelled) == (handle.jid, "default", "1", "says", "False")
    assert before + 80 < float(deadline) < time.monotonic() + 90
    assert [one["message"] for one in heard["job_log"]] == ["pays with ***"], "the worker hears it, masked"


def test_a_checkpoint_outlives_a_crash_and_is_removed_by_the_good_end(app: App, redis: Redis, trace: Path) -> None:
    handle = isolated.keeps.enqueue()
    with working(app):
        settled(redis, 2)
    assert _lines(trace) == [["keeps", "{'at':", "7}"]]
    assert not redis.exists(app.keys.checkpoint(handle.jid), "retry", "dead")


def test_a_push_inside_belongs_to_the_batch_of_the_job(app: App, redis: Redis, trace: Path) -> None:
    with app.batch() as batch:
        isolated.pushes.enqueue()
    with working(app):
        until(lambda: batch.status().done, "both jobs have ended")
    assert batch.status().counts["finished"] == 2, (batch.status(), app.dead.size(), app.retries.size())
    assert "from inside" in trace.read_text()


def test_encrypted_arguments_travel_sealed_to_the_process_too(app: App, redis: Redis, trace: Path) -> None:
    isolated.sealed.enqueue("secret word")
    assert b"secret word" not in redis.lrange("queue:default", 0, -1)[0]  # type: ignore[index]
    with working(app):
        settled(redis, 1)
    assert _lines(trace) == [["sealed", "secret", "word"]]


def test_a_job_that_heeds_its_time_out_cleans_up_and_one_that_does_not_is_killed(
    app: App, redis: Redis, trace: Path
) -> None:
    isolated.late.enqueue(True)
    isolated.late.enqueue(False)
    isolated.alate.enqueue()
    isolated.deaf.enqueue()
    with working(app) as launcher:
        isolated.beside.enqueue()
        settled(redis, 5)
        assert len(launcher.isolation) <= 4
    dead = {(job["class"], *job["args"]): (job["error_class"], job["error_message"]) for job in jobs_in(redis, "dead")}
    heeded = "the job ran longer than its timeout of 0.3 s"
    killed = ("JobTimeout", f"{heeded} and did not heed it: its process was killed")
    assert dead.pop(("late", True)) == dead.pop(("alate",)) == ("JobTimeout", heeded)
    assert dead == {("late", False): killed, ("deaf",): killed}
    begun = {line[1] for line in _lines(trace) if line[0] == "begins"}
    assert len(begun) == 3
    assert not any(os.path.exists(f"/proc/{pid}") for pid in begun), "none is left, and no zombie"
    assert [line[0] for line in _lines(trace)].count("told") == 2
    assert any(line[0] == "beside" for line in _lines(trace))


@pytest.mark.parametrize(("job", "heed"), [("hangs", True), ("hangs", False), ("ahangs", True), ("looks", True)])
def test_a_cancelled_job_is_told_and_then_killed(app: App, redis: Redis, trace: Path, job: str, heed: bool) -> None:
    args = {"hangs": ("it", heed), "ahangs": ("it",), "looks": ()}[job]
    handle = app.enqueue(job, *args)
    with working(app):
        until(lambda: "begins" in trace.read_text(), "it runs")
        handle.cancel()
        until(lambda: not in_flight(redis), "it has ended")
    pid = _lines(trace)[0][2]
    assert not os.path.exists(f"/proc/{pid}")
    assert ("leaves it" in trace.read_text()) == (job != "looks" and heed)
    assert ("cancelled" in trace.read_text()) == (job == "looks")
    assert not redis.exists("dead", "retry", "queue:default")


@pytest.mark.parametrize(("job", "heed"), [("hangs", True), ("hangs", False), ("ahangs", True)])
def test_a_worker_that_stops_gives_it_back_when_its_process_is_gone(
    app: App, redis: Redis, trace: Path, job: str, heed: bool
) -> None:
    handle = app.enqueue(job, *(("it", heed) if job == "hangs" else ("it",)))
    with working(app, stop=0.1):
        until(lambda: "begins" in trace.read_text(), "it runs")
    pid = _lines(trace)[0][2]
    assert not os.path.exists(f"/proc/{pid}")
    assert ("leaves it" in trace.read_text()) == heed
    [waiting] = jobs_in(redis, "queue:default")
    assert waiting["jid"] == handle.jid
    assert "retry_count" not in waiting
    assert not in_flight(redis)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("segfault", "its process was killed by signal 11 (SIGSEGV); its memory limit is 256 MB"),
        ("abort", "its process was killed by signal 6 (SIGABRT); its memory limit is 256 MB"),
        ("exit", "its process ended with exit status 7 in the middle of the run; its memory limit is 256 MB"),
        ("closes", "its process was killed by signal 9"),
        ("memory", "memory limit 256 MB"),
    ],
)
def test_a_crash_costs_only_its_own_job(app: App, redis: Redis, trace: Path, how: str, words: str) -> None:
    heard = Heard(app, "process_crashed", "late")
    isolated.crashes.enqueue(how)
    with working(app):
        isolated.beside.enqueue()
        isolated.plain.enqueue("after")
        settled(redis, 3)
    [dead] = jobs_in(redis, "dead")
    assert dead["args"] == [how]
    assert dead["error_class"] == ("MemoryError" if how == "memory" else "ProcessCrashed")
    assert dead["error_message"].startswith(words)
    assert {line[0] for line in _lines(trace)} >= {"beside", "after"}
    assert "survives" not in trace.read_text()
    assert len(heard["process_crashed"]) == (how != "memory")
    assert not heard["late"]
    assert not redis.exists(app.keys.deaths, app.keys.suspects), "the worker lives, so nobody is charged with a death"


def test_figures_tell_of_processes_their_memory_and_how_they_ended(app: App, redis: Redis) -> None:
    isolated.crashes.enqueue("segfault")
    isolated.deaf.enqueue()
    isolated.plain.enqueue()
    with working(app) as launcher:
        settled(redis, 3)
        until(lambda: len(launcher.isolation) > 0, "one is kept ready")
        launcher.heart.beat()
        [process] = list(app.processes)
        assert process.isolated == len(launcher.isolation)
        assert process.isolated_rss_kb > 5_000 * process.isolated
        text = run(app.connections, exposition(app.keys)).splitlines()
    assert f"henchman_isolated_processes {process.isolated}" in text
    assert f"henchman_isolated_processes_memory_bytes {process.isolated_rss_kb * 1024}" in text
    assert "henchman_isolated_killed_total 1" in text
    assert "henchman_isolated_crashed_total 1" in text
    assert redis.hgetall("hm:isolated") == {b"killed": b"1", b"crashed": b"1"}
    with working(app) as launcher:
        launcher.heart.beat()
    text = run(app.connections, exposition(app.keys)).splitlines()
    assert "henchman_isolated_processes 0" in text
    assert "henchman_isolated_crashed_total 1" in text, "counters go on when their worker has left"


def test_a_process_is_reused_and_replaced_in_its_time(app: App, redis: Redis, trace: Path) -> None:
    for _ in range(5):
        isolated.twice.enqueue()
    with working(app, start=False) as launcher:
        launcher.pool.size = launcher.pool.free = 1
        launcher.start()
        settled(redis, 5)
    pids = [line[1] for line in _lines(trace)]
    assert [len(list(some)) for _, some in itertools.groupby(pids)] == [2, 2, 1]


def test_a_process_that_has_grown_is_replaced(app: App, redis: Redis, trace: Path) -> None:
    isolated.grows.enqueue()
    with working(app):
        settled(redis, 1)
        isolated.grows.enqueue()
        settled(redis, 2)
    one, other = [line[1] for line in _lines(trace)]
    assert one != other
    assert not redis.exists("dead", "retry")


def test_a_process_that_comes_up_while_the_worker_stops_is_ended(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop has looked at what there is, and the thread that starts processes has another one in its hand."""
    made: list[RunProcess] = []
    spawned, looked, spawn = threading.Event(), threading.Event(), RunProcess.spawn

    def slowly(*words: Any) -> RunProcess:
        made.append(spawn(*words))
        spawned.set()
        assert looked.wait(60)
        return made[-1]

    monkeypatch.setattr(RunProcess, "spawn", slowly)
    with working(app) as launcher:
        assert spawned.wait(60)
        monkeypatch.setattr(launcher.isolation, "interrupt", looked.set)  # the last step of a stop
    assert [one._process.returncode for one in made] == [-signal.SIGKILL]
    assert not launcher.isolation.pids


@pytest.mark.parametrize("job", ["forks", "forks_in_a_bad_moment"])
def test_a_job_may_fork_in_its_process(job: str, app: App, redis: Redis, trace: Path) -> None:
    getattr(isolated, job).enqueue()
    with working(app):
        settled(redis, 1)
    assert _lines(trace) == [["forks", "0"]]
    assert not redis.exists("dead", "retry")


def test_nothing_is_left_after_500_runs(app: App, redis: Redis) -> None:
    with working(app) as launcher:
        isolated.noop.enqueue()
        settled(redis, 1)
        before = len(os.listdir("/proc/self/fd"))
        isolated.noop.enqueue_many([()] * 500)
        settled(redis, 501)
        until(lambda: len(launcher.isolation) <= 4, "no more processes than slots")
        after = len(os.listdir("/proc/self/fd"))
    assert after <= before + 8, "a channel for each of four processes, and a connection or two"
    assert not [pid for pid in children_of(os.getpid()) if b"isolated_main" in _command(pid)]
    assert not redis.exists("dead", "retry", "queue:default")
    assert not in_flight(redis)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_process_that_cannot_import_the_app_is_an_error_that_says_why(app: App, redis: Redis) -> None:
    isolated.noop.enqueue()
    with working(app, place="support.nowhere:app"):
        settled(redis, 1)
    [dead] = jobs_in(redis, "dead")
    assert dead["error_class"] == "ProcessCrashed"
    assert dead["error_message"].startswith("the process for isolated runs did not start: ")
    assert "there is no module 'support.nowhere' here" in dead["error_message"]


def test_an_app_that_no_module_names_says_so(redis_url: str, redis: Redis) -> None:
    app = App(redis_url=redis_url, concurrency=1)

    @app.job(name="lost", isolate=True, retry=0)
    def lost() -> None: ...

    lost.enqueue()
    with working(app):
        began = time.monotonic()
        settled(redis, 1)
    assert time.monotonic() - began < 10, "it does not wait for what waiting cannot mend"
    [dead] = jobs_in(redis, "dead")
    assert "write app = App(…) at the top of a module" in dead["error_message"]


def test_busy_shows_the_process_of_the_run(app: App, redis: Redis, trace: Path) -> None:
    app.configure(heartbeat=0.1)
    isolated.looks.enqueue()
    with working(app):
        until(lambda: "begins" in trace.read_text(), "it runs")
        [work] = until(lambda: list(app.work), "it is shown")
        assert str(work.pid) == _lines(trace)[0][2]
        app.cancel(work.entry.jid)
        until(lambda: not in_flight(redis), "it has ended")


def test_a_fake_runs_it_inline(app: App, trace: Path) -> None:
    with testing.fake(app) as jobs:
        isolated.plain.enqueue("inline")
        jobs.drain(isolated.plain)
    assert [line[1] for line in _lines(trace)] == [str(os.getpid())] * 2, "the middleware and the job"
