"""Worker processes that are killed, and what becomes of their work. Real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from redis import Redis

from support.processes import Work, children_of, holds_on, push, records
from support.worker import in_flight, jobs_in, settled, until

BRIEF = {"HENCHMAN_LEASE": "5", "HENCHMAN_HEARTBEAT": "1", "ACTING_WATCH": "3"}


def test_a_killed_process_is_replaced_and_its_jobs_run_again_at_once(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "5", HENCHMAN_LEASE="300") as work:
        (pid,) = work.ready(redis)
        push(redis, "act_once", *[(f"j{n}", "sleep", 60) for n in range(5)])
        until(lambda: work.count("start").total() == 5, "five jobs run")
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        until(lambda: work.count("end").total() == 5, "all five ran again")
        assert time.monotonic() - killed < 100, work.log  # well under 2 s on an idle machine; a lease would take 300
        assert work.count("start") == {f"j{n}": 2 for n in range(5)}
        assert {line[3] for line in work.trace()} == {"1"}, "a death is not charged as an attempt"
        assert pid not in work.children
        settled(redis, 5)
        until(lambda: 'gave back the unfinished jobs of a process" count=5' in work.log, "it is told")
        until(lambda: pid not in records(redis), "the dead process is off the list")


def test_1000_jobs_under_repeated_kills_none_is_missing(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-p", "2", "-c", "4") as work:
        work.ready(redis, 2)
        for first in range(0, 1000, 250):
            names = [f"j{n}" for n in range(first, first + 250)]
            middle = names[125]
            push(redis, "act", *[(name, "sleep", 0.01) for name in names[:125]])
            push(redis, "act_once", (middle, "sleep", 600))  # its process is killed: in the middle of the work
            push(redis, "act", *[(name, "sleep", 0.01) for name in names[126:]])
            (pid,) = until(lambda middle=middle: work.pids("start", middle), "half of them ran")  # type: ignore[misc]
            assert in_flight(redis), "work is in flight"
            work.kill_one(pid)
        settled(redis, 1000)
        ended = work.count("end")
        assert ended.keys() == {f"j{n}" for n in range(1000)}
        # a kill repeats at most what ran (4 slots) and what had finished and was not yet settled
        assert ended.total() - 1000 <= 4 * 20
        assert not jobs_in(redis, "retry")
        assert not jobs_in(redis, "dead")


def test_a_killed_group_is_rescued_by_another_worker_after_the_lease(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with Work(tmp_path / "a", redis_url, "-p", "2", "-c", "5", **BRIEF) as dead:
        pids = dead.ready(redis, 2)
        jids = push(redis, "act", *[(f"j{n}", "sleep", 600) for n in range(10)])
        until(lambda: len(dead.count("start")) == 10, "the doomed workers run all jobs")
        dead.kill_all()
    assert {json.loads(payload)["jid"] for payload in in_flight(redis)} == set(jids)
    with Work(tmp_path / "b", redis_url, "-c", "10", **BRIEF) as other:
        until(lambda: other.count("start").total() == 10, "every job of the dead runs elsewhere")
        assert other.count("start").keys() == {f"j{n}" for n in range(10)}
        assert {line[3] for line in other.trace()} == {"1"}, "a death is not charged as an attempt"
        until(lambda: not records(redis).keys() & set(pids), "the dead are off the list")
        assert len(in_flight(redis)) == 10


def test_a_lost_hosts_jobs_run_elsewhere_within_20_s_with_default_settings(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    """Also when it was the one that looked after the dead."""
    with Work(tmp_path / "a", redis_url, "-c", "1") as dead:
        dead.ready(redis)
        push(redis, "act", ("j", "sleep", 600))
        until(lambda: dead.count("start")["j"], "the doomed worker runs it")
        until(lambda: redis.exists("hm:lifeline"), "and looks after the dead")
        (lease,) = redis.keys("hm:lease:*")  # type: ignore[misc]
        with Work(tmp_path / "b", redis_url, "-c", "1") as other:
            other.ready(redis)
            dead.kill_all()
            lost = time.monotonic()
            lasts = redis.pttl(lease) / 1000  # type: ignore[operator]
            until(lambda: other.count("start")["j"], "it runs elsewhere")
            took = time.monotonic() - lost
            other.open()
    assert took > lasts, "not before the lease has run out, which is as long as the doubt"
    assert took < 34, "3 s for the turn of the dead, 15 s of doubt, 1 s until the next look; not 15 s more"


def test_no_process_is_robbed_that_is_slow_or_far_away(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """Beside the least lease: what runs in a process that holds its interpreter for longer, under its supervisor, and
    in one that is stopped for less than the doubt, stays where it is."""
    with (
        Work(tmp_path / "a", redis_url, "-c", "1", HENCHMAN_LEASE="5") as one,
        Work(tmp_path / "b", redis_url, "-c", "1", HENCHMAN_LEASE="5") as two,
    ):
        until(lambda: len(records(redis)) == 2, "both are there")
        push(redis, "act", ("h", "hog", 18), ("s", "sleep", 18))
        until(lambda: sum((one.count("start") + two.count("start")).values()) == 2, "both run one")
        for work in (one, two):
            work.signal(signal.SIGSTOP)
        time.sleep(4)  # less than the lease: nobody but the child renews meanwhile
        for work in (one, two):
            work.signal(signal.SIGCONT)
        settled(redis, 2)
        assert (one.count("start") + two.count("start")) == {"h": 1, "s": 1}


def test_an_orphan_finishes_gives_back_and_ends(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "2", "-t", "8") as work:
        (pid,) = work.ready(redis)
        jids = push(redis, "act", ("short", "sleep", 0.5), ("long", "sleep", 60), ("waiting", "ok"))
        until(lambda: work.count("start").keys() >= {"short", "long"}, "two run")
        work.signal(signal.SIGKILL)
        work.wait()
        until(lambda: not holds_on(pid), "the orphan ended")
        assert work.count("end") == {"short": 1, **({"waiting": 1} if work.count("end")["waiting"] else {})}
        left = [job["jid"] for job in jobs_in(redis, "queue:default")]
        assert left[0] == jids[1], "the interrupted job is next to run"
        assert not in_flight(redis)
        assert not redis.smembers("processes")


def test_a_stopped_process_is_killed_after_its_lease(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "1", **BRIEF) as work:
        (pid,) = work.ready(redis)
        push(redis, "act_once", ("j", "sleep", 60))
        until(lambda: work.count("start")["j"] == 1, "it runs")
        os.kill(pid, signal.SIGSTOP)
        until(lambda: work.count("end")["j"] == 1, "it ran elsewhere")
        assert "is stopped for more than 5 s" in work.log


def test_a_process_whose_interpreter_hangs_is_killed(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "1", HENCHMAN_HANG_AFTER="2") as work:
        work.ready(redis)
        push(redis, "act_once", ("j", "hog", 60))
        until(lambda: work.count("end")["j"] == 1, "it ran elsewhere")
        assert "has not turned for 2 s" in work.log


def test_a_held_interpreter_lock_shorter_than_hang_after_costs_no_lease(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "1", HENCHMAN_LEASE="10", HENCHMAN_HEARTBEAT="1") as work:
        (pid,) = work.ready(redis)
        push(redis, "act", ("j", "hog", 13))
        until(lambda: work.count("start")["j"] == 1, "it runs")
        until(lambda: work.count("end")["j"] == 1, "it ended")
        settled(redis, 1)
        assert work.children == [pid]
        assert "lease" not in work.log


@pytest.mark.parametrize("do", ["kill", "quit"])
def test_a_job_that_ends_its_process(redis: Redis, redis_url: str, tmp_path: Path, do: str) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "1") as work:
        work.ready(redis)
        push(redis, "act_once", ("j", do), ("next", "ok"))
        until(lambda: work.count("end") == {"j": 1, "next": 1}, "both ran")
        settled(redis, 2)


def test_sys_exit_in_a_job_is_an_error_of_the_job(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "1") as work:
        (pid,) = work.ready(redis)
        push(redis, "act", ("j", "exit"), ("next", "ok"))
        settled(redis, 2)
        (job,) = jobs_in(redis, "retry")
        assert (job["error_class"], job["error_message"]) == ("SystemExit", "3")
        assert work.children == [pid]


def test_a_job_that_ignores_its_timeout_costs_its_process_not_the_next_job(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "2") as work:
        (pid,) = work.ready(redis)
        push(redis, "brief", ("loop", "sleep", 60), retry=0)
        settled(redis, 1)
        (job,) = jobs_in(redis, "dead")
        assert (job["error_class"], job["error_message"]) == (
            "JobTimeout",
            "the job ran longer than its timeout of 0.3 s",
        )
        assert work.children == [pid], "a job that obeys its time-out costs nothing"


def test_children_are_in_a_group_of_their_own(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-p", "2") as work:
        pids = work.ready(redis, 2)
        groups = {os.getpgid(pid) for pid in (work.pid, *pids)}
        assert len(groups) == 3, "a terminal's Ctrl-C reaches the supervisor alone"
        assert children_of(work.pid) == pids


def test_a_process_in_which_every_job_waits_for_a_lock_that_a_struck_one_left_is_replaced(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "3", HENCHMAN_LEASE="300", HENCHMAN_HANG_AFTER="300") as work:
        (pid,) = work.ready(redis)
        push(redis, "brief", ("leaves", "grasp", 60.0), retry=0)
        until(lambda: jobs_in(redis, "dead"), "it was struck with the lock in its hand")
        push(redis, "act", ("a", "want"), ("b", "want"))
        until(lambda: work.count("start").keys() >= {"a", "b"}, "they wait for it")
        until(lambda: work.count("end").keys() == {"a", "b"}, "they ran in another process")
        assert pid not in work.pids("end", "a") + work.pids("end", "b")
        assert "every job in it waits for a lock that nobody gives back: act " in work.log
        assert "acting.py:" in work.log, "where"
        settled(redis, 3)
        until(lambda: pid not in work.children, "it is gone, though it had a grace of 25 s")
        assert work.count("start") == {"leaves": 1, "a": 2, "b": 2}
    assert not redis.exists("hm:deaths", "hm:suspects"), "nobody is charged with it"


def test_an_orphan_ends_whatever_its_threads_do(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """Here they all wait for the lock of the log, and so does the thread that would say goodbye."""
    with Work(tmp_path / "w", redis_url, "-c", "2", "-t", "1", HENCHMAN_LEASE="5", ACTING_MARGIN="3") as work:
        (pid,) = work.ready(redis)
        push(redis, "act", ("m", "mute", 600.0))
        until(lambda: work.count("start")["m"] == 1, "it holds the log's lock")
        os.kill(work.pid, signal.SIGKILL)
        until(lambda: not holds_on(pid), "the orphan ended")
        assert "in _mute" in work.log, "it tells where its threads stood"
