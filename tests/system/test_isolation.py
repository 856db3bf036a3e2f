"""Isolated runs under a real supervisor: whatever is killed, no process outlives its worker, and never two at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from henchman import App
from support.processes import Work, children_of, holds_on, state_of
from support.worker import in_flight, jobs_in, until


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    """An app that pushes by name."""
    made = App(redis_url=redis_url)
    yield made
    made.close()


def _work(folder: Path, url: str, *args: str) -> Work:
    return Work(folder / "w", url, *args, target="support.isolated:app")


def _begun(work: Work, count: int = 1) -> list[int]:
    """The processes of the first runs of ``hangs`` or ``deaf``."""
    begun = until(lambda: [line for line in work.trace() if line[0] == "begins"][: count or None], "it runs")
    return [int(line[-2] if line[1] in ("it", "looks") else line[-1]) for line in begun]


def _processes(work: Work) -> list[int]:
    """Every process for isolated runs of the worker."""
    return [one for child in work.children for one in children_of(child)]


@pytest.mark.parametrize("job", ["hangs", "deaf"])
def test_a_killed_worker_takes_its_isolated_runs_along(
    app: App, redis: Redis, redis_url: str, tmp_path: Path, job: str
) -> None:
    """Also one that holds the interpreter lock in C code for ever."""
    with _work(tmp_path, redis_url) as work:
        [worker] = work.ready(redis)
        handle = app.enqueue(job, *(("it", False) if job == "hangs" else ()), timeout=600)
        [pid] = _begun(work)
        os.kill(worker, signal.SIGKILL)
        until(lambda: not holds_on(pid), "the isolated process ends")
        until(lambda: len([line for line in work.trace() if line[0] == "begins"]) == 2, "another worker runs it again")
        app.cancel(handle.jid)
        until(lambda: not in_flight(redis), "it has ended")
        assert work.stop() == 0
    assert not redis.exists("queue:default", "retry", "dead", app.keys.suspects)


def test_a_key_is_free_only_when_the_process_is_gone(app: App, redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """The worker is killed, and its successor begins the job at once: never beside the isolated process."""

    @app.job(name="alone", key="what", unique="running", retry=0)
    def alone(what: str, name: str, wait: bool) -> None: ...

    with _work(tmp_path, redis_url) as work:
        work.ready(redis)
        alone.enqueue("it", "first", True)
        for number in range(1, 6):
            starts = until(
                lambda: s if len(s := [one for one in work.trace() if one[0] == "start"]) == number else [],  # noqa: B023
                "it runs",
            )
            if number < 3:  # at the third death it would be a poison pill
                work.kill_one()
            else:
                work.open()
                break
        until(lambda: not in_flight(redis), "it has ended")
        seen = work.trace()
        pids = [one[2] for one in starts]
        assert len(set(pids)) == len(pids) == 3
        order = [line[2] for line in seen]
        assert order == sorted(order, key=pids.index), "the lines of each process stand together"
        tokens = [int(one[3]) for one in starts]
        assert tokens == sorted(set(tokens))
        assert work.stop() == 0
    assert not redis.exists("queue:default", "retry", "dead", app.keys.lock("r", "alone"))


def test_a_killed_supervisor_and_a_second_interrupt_leave_no_process(
    app: App, redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with _work(tmp_path, redis_url, "-t", "0.5") as work:
        work.ready(redis)
        app.enqueue("hangs", "it", False)
        _begun(work)
        pids = [*work.children, *_processes(work)]
        assert len(pids) >= 2
        work.process.kill()
        work.process.wait(60)
        until(lambda: not any(map(holds_on, pids)), "worker and isolated processes end")
    assert [job["class"] for job in jobs_in(redis, "queue:default")] == ["hangs"], "given back"
    with _work(tmp_path, redis_url, "-t", "600") as work:
        work.ready(redis)
        until(lambda: _processes(work), "it runs again")
        until(lambda: len([line for line in work.trace() if line[0] == "begins"]) == 2, "it runs again")
        pids = [*work.children, *_processes(work)]
        work.signal(signal.SIGINT)
        until(lambda: "press Ctrl-C again" in work.log, "the first is heard")
        work.signal(signal.SIGINT)
        work.wait()
        assert not any(map(holds_on, pids))
    assert [job["class"] for job in jobs_in(redis, "queue:default")] == ["hangs"]
    assert not in_flight(redis)


def test_a_stop_gives_back_what_does_not_end_and_leaves_nothing(
    app: App, redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with _work(tmp_path, redis_url, "-t", "0.2") as work:
        work.ready(redis)
        app.enqueue("hangs", "it", True)
        _begun(work)
        pids = _processes(work)
        for pid in pids:  # as systemd does, which tells every process of a unit
            os.kill(pid, signal.SIGTERM)
        work.stop()
        assert not any(map(holds_on, pids))
        assert "leaves it" in work.trace_file.read_text(), "JobShutdown came first, and no signal"
    assert [job["class"] for job in jobs_in(redis, "queue:default")] == ["hangs"]
    assert not in_flight(redis)


def test_crashes_and_kills_leave_the_worker_and_its_other_jobs_alone(
    app: App, redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with _work(tmp_path, redis_url, "-c", "3") as work:
        [worker] = work.ready(redis)
        for how in ("segfault", "exit", "abort", "memory"):
            app.enqueue("crashes", how)
            app.enqueue("beside", f"beside-{how}")
        app.enqueue("deaf")
        app.enqueue("late", False)
        until(lambda: int(redis.get("stat:processed") or 0) == 10, "all have ended")  # type: ignore[arg-type]
        until(lambda: not in_flight(redis), "and are settled")
        assert work.children == [worker], "the same process"
        assert {line[1] for line in work.trace() if line[0].startswith("beside-")} == {str(worker)}
        assert not [one for one in children_of(worker) if state_of(one) == "Z"]
        failed = {
            job["args"][0] if job["args"] else job["class"]: job["error_message"] for job in jobs_in(redis, "retry")
        }
        assert failed.keys() == {"segfault", "exit", "abort", "memory", "deaf", False}
        assert "killed by signal 11 (SIGSEGV)" in failed["segfault"]
        assert "memory limit 256 MB" in failed["memory"]
        assert "its process was killed" in failed["deaf"]
        assert "the process of an isolated run crashed" in work.log
        assert "the process of an isolated run was killed" in work.log
        assert work.stop() == 0
    assert not redis.exists("queue:default", "dead", app.keys.deaths, app.keys.suspects), "retried as errors are"


def test_an_idle_process_costs_nothing_and_is_kept_ready(
    app: App, redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with _work(tmp_path, redis_url) as work:
        work.ready(redis)
        [pid] = until(lambda: _processes(work), "one is ready before there is a job")
        app.enqueue("plain", "one")
        until(lambda: any(line[0] == "one" for line in work.trace()), "it ran")
        assert work.trace()[-1][1] == str(pid)
        until(lambda: not in_flight(redis), "it has ended: nothing of it is in its process any more")
        os.kill(pid, signal.SIGKILL)
        until(lambda: _processes(work) not in ([], [pid]), "another is ready in place of one that died")
        app.enqueue("plain", "two")
        until(lambda: any(line[0] == "two" for line in work.trace()), "it ran")
        assert work.stop() == 0
    assert [job for key in ("queue:default", "retry", "dead") for job in jobs_in(redis, key)] == [], work.log
