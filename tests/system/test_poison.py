"""Poison pills: a job that kills its process is charged, run alone, and buried at its third death; nobody else is."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from redis import Redis

from support.processes import Work, push
from support.worker import in_flight, jobs_in, push_raw, until

BRIEF = {"HENCHMAN_LEASE": "5", "HENCHMAN_HEARTBEAT": "1", "ACTING_WATCH": "3"}


def test_the_third_death_alone_buries_the_pill_and_its_neighbours_end_well(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "4") as work:
        work.ready(redis)
        push(redis, "act", *[(f"beside{n}", "sleep", 1.0) for n in range(3)])
        until(lambda: work.count("start").total() == 3, "the neighbours run")
        push(redis, "act", ("pill", "kill", 0))
        (dead,) = until(lambda: jobs_in(redis, "dead"), "the pill is buried")
        assert dead["args"][0] == "pill"
        assert dead["error_class"] == "PoisonPill"
        assert dead["error_message"].count("SIGKILL") == 3, dead["error_message"]
        assert work.count("start")["pill"] == 3
        until(lambda: len([n for n in work.count("end") if n.startswith("beside")]) == 3, "the neighbours end")
        push(redis, "act", ("after", "ok", 0))
        until(lambda: work.count("end")["after"], "work goes on beside nobody's grave")
        assert len(jobs_in(redis, "dead")) == 1
        until(lambda: not in_flight(redis), "and is settled")
        until(lambda: "is a poison pill" in work.log, "it is told")


@pytest.mark.parametrize("when", ["read", "end"])
def test_what_kills_while_it_is_read_or_judged_is_charged_and_buried(
    redis: Redis, redis_url: str, tmp_path: Path, when: str
) -> None:
    """Its neighbours are read, run and settled in the same breath: none of them is a poison pill."""
    with Work(tmp_path / "w", redis_url, "-c", "4") as work:
        work.ready(redis)
        pill = {"class": f"fatal_{when}", "args": [{"name": "pill"} if when == "read" else "pill"], "jid": "f" * 24}
        honest = [{"class": "act", "args": [f"n{n}", "ok", 0], "jid": f"{n:024}"} for n in range(20)]
        jobs = [*honest[:10], pill, *honest[10:]]
        push_raw(redis, *(json.dumps({**job, "retry": True, "queue": "default"}) for job in jobs))
        (dead,) = until(lambda: jobs_in(redis, "dead"), "the pill is buried")
        assert dead["jid"] == pill["jid"]
        assert dead["error_class"] == "PoisonPill"
        assert dead["error_message"].count("SIGKILL") == 3, dead["error_message"]
        assert work.count("start")["pill"] == 3
        until(lambda: len([n for n in work.count("end") if n.startswith("n")]) == 20, "its neighbours are done")
        until(lambda: not in_flight(redis) and not redis.exists("queue:default"), "and settled")
        assert len(jobs_in(redis, "dead")) == 1
        assert not redis.zcard("retry")


@pytest.mark.parametrize("processes", [1, 2])
def test_what_kills_while_it_is_settled_among_others_is_found_out(
    redis: Redis, redis_url: str, tmp_path: Path, processes: int
) -> None:
    """Nobody knows at first whose fault it was, and nobody is charged; then outcomes are settled one by one."""
    with Work(tmp_path / "w", redis_url, "-c", "8", "-p", str(processes), ACTING_SETTLE="1") as work:
        work.ready(redis, processes)
        pill = {"class": "fatal_settle", "args": ["pill"], "jid": "f" * 24}
        honest = [{"class": "aact", "args": [f"n{n}", 0], "jid": f"{n:024}"} for n in range(20)]
        jobs = [*honest[:10], pill, *honest[10:]]
        push_raw(redis, *(json.dumps({**job, "retry": True, "queue": "default"}) for job in jobs))
        (dead,) = until(lambda: jobs_in(redis, "dead"), "the pill is buried")
        assert dead["jid"] == pill["jid"]
        assert dead["error_class"] == "PoisonPill"
        assert dead["error_message"].count("SIGSEGV") >= 3, "the third of them may have been with others beside it"
        ends = {f"n{n}" for n in range(20)}
        until(lambda: ends <= set(work.count("end")), "its neighbours are done")
        until(lambda: not in_flight(redis) and not redis.exists("queue:default"), "and settled")
        assert len(jobs_in(redis, "dead")) == 1
        assert not redis.zcard("retry")


def test_jobs_that_had_not_started_are_not_charged(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "1") as work:
        (pid,) = work.ready(redis)
        (long,) = push(redis, "act", ("long", "sleep", 600))
        until(lambda: work.count("start")["long"], "it runs")
        # What is being read when the process ends is charged, and nothing says when a reading is over. So its slot is
        # taken when the others come: a watcher that gets one in spite of that reads it, and gives it back.
        push(redis, "act", *[(f"waiting{n}", "ok", 0) for n in range(5)])
        until(lambda: len(in_flight(redis)) == 1 and redis.llen("queue:default") == 5, "the others wait")
        os.kill(pid, signal.SIGKILL)
        until(lambda: redis.hlen("hm:deaths"), "a death is written down")
        assert redis.hkeys("hm:deaths") == [long.encode()]
        until(lambda: work.count("start")["long"] == 2, "it runs again, alone")
        assert redis.hkeys("hm:deaths") == [long.encode()]


def stopping(redis: Redis) -> set[int]:
    """The processes that were told to stop, and have said so."""
    return {int(one.split(b":")[-2]) for one in redis.zrange("hm:stopping", 0, -1)}  # type: ignore[union-attr]


def test_a_stop_that_was_too_short_charges_nobody(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """A deploy that kills in haste, three times: the long job is no pill."""
    for turn in range(3):
        with Work(tmp_path / f"w{turn}", redis_url, "-t", "60", **BRIEF) as work:
            work.ready(redis)
            if not turn:
                push(redis, "act", ("long", "sleep", 600))
            until(lambda work=work: work.count("start")["long"], "it runs")  # type: ignore[misc]
            (pid,) = work.children
            work.signal(signal.SIGTERM)
            until(lambda pid=pid: pid in stopping(redis), "it is told to stop")  # type: ignore[misc]
            work.kill_all()
            redis.delete("hm:lifeline", *redis.keys("hm:lease:*"))  # type: ignore[misc]
    assert redis.hlen("hm:deaths") == 0
    assert redis.scard("hm:suspects") == 0
    assert jobs_in(redis, "dead") == []


def test_a_host_that_is_gone_charges_what_it_held(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "a", redis_url, "-c", "2", **BRIEF) as work:
        work.ready(redis)
        push(redis, "act", ("one", "sleep", 600), ("two", "sleep", 600))
        until(lambda: work.count("start").total() == 2, "both run")
        work.kill_all()
    looked = time.monotonic()
    lives = sum(max(redis.pttl(lease), 0) for lease in redis.scan_iter("hm:lease:*")) / 1000  # of one process
    redis.delete("hm:lifeline")
    with Work(tmp_path / "b", redis_url, "-c", "2", **BRIEF) as rescuer:
        until(lambda: rescuer.count("start").total() == 2, "rescued")
        assert time.monotonic() - looked >= max(lives, 3), "when the lease had run out, and nobody was seen to renew it"
        assert redis.hlen("hm:deaths") == 2
        rescuer.signal(signal.SIGINT)
        rescuer.signal(signal.SIGINT)
