"""Ordered queues over real processes that are killed, stopped, rolled over: never two on an id, in order, by token."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman.supervisor.child import EXIT_CUT_OFF
from support.acting_ordered import Line, app, lines
from support.processes import Work, records, state_of
from support.worker import until

BRIEF = {"HENCHMAN_LEASE": "5", "HENCHMAN_HEARTBEAT": "1", "ORDERED_WATCH": "3"}
LONG = {"HENCHMAN_LEASE": "300"}  # what happens within a test was not the lapse of a lease
LIVES = ("R", "S", "D", "T")


class Queue:
    """Pushes, and the trace of what ran."""

    def __init__(self, redis_url: str, trace: Path) -> None:
        self.trace_file = trace
        self._url = redis_url

    def push(self, name: str, key: str, score: int, queue: str = "ids", **deed: Any) -> None:
        self.push_many([(name, {"key": key, **deed}, score)], queue)

    def push_many(self, rows: list[Any], queue: str = "ids") -> None:
        job = app.registry.ordered()[queue]
        job.push_many(rows)

    @property
    def lines(self) -> list[Line]:
        return lines(self.trace_file)

    def of(self, event: str, name: str = "x") -> list[Line]:
        return [line for line in self.lines if (line.event, line.id) == (event, name)]


@pytest.fixture
def queue(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    app.configure(redis_url=redis_url)
    yield Queue(redis_url, tmp_path / "ordered")
    app.close()


@pytest.fixture
def work(redis_url: str, queue: Queue, tmp_path: Path) -> Callable[..., Work]:
    def make(name: str, *args: str, **env: str) -> Work:
        settings = {"ORDERED_TRACE": str(queue.trace_file)} | env
        return Work(tmp_path / name, redis_url, *args, target="support.acting_ordered:app", **settings)

    return make


def at_rest(redis: Redis, queue: str = "ids", but: frozenset[str] = frozenset()) -> None:
    """Nothing waits, nothing is held, and of the queue only counters and limits are left."""
    base = f"hm:ordered:{queue}/"
    until(lambda: not redis.zcard(base + "due"), "nothing waits")
    until(lambda: not list(redis.scan_iter("hm:held:*")), "nothing is held")

    def left() -> set[str]:
        return {key.decode().removeprefix(base) for key in redis.scan_iter(base + "*")}

    until(lambda: left() - {"meta", "stat", "wake"} == but, "nothing else is left")


def test_a_killed_childs_ids_run_again_at_once_in_order_under_a_higher_token(
    redis: Redis, queue: Queue, work: Callable[..., Work]
) -> None:
    with work("w", "-c", "2", **LONG) as one:
        (pid,) = one.ready(redis)
        queue.push("x", "x1", 1, do="sleep", seconds=60)
        until(lambda: queue.of("start"), "it runs")
        queue.push("x", "x3", 3)
        queue.push("x", "x2", 2)
        until(lambda: redis.zcard("hm:ordered:ids/n:x") == 2, "they wait beside it")
        assert len(queue.of("start")) == 1
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        until(lambda: queue.of("end"), "it ran again")
        assert time.monotonic() - killed < 100, one.log  # a lease would take 300
        first, second = queue.of("start")
        assert second.keys == ["x1", "x2", "x3"]
        assert second.token > first.token
        assert second.pid != pid
        until(lambda: "gave back the unfinished jobs" in one.log, "it is told")
        assert not queue.of("beside")
        at_rest(redis)
        assert redis.hget("hm:ordered:ids/stat", "processed") == b"1"
        assert not redis.hexists("hm:ordered:ids/stat", "failed"), "a death is not a failure"


def test_a_lost_hosts_ids_are_freed_after_the_lease_by_another(
    redis: Redis, queue: Queue, work: Callable[..., Work]
) -> None:
    with work("a", "-c", "2", **BRIEF) as dead:
        dead.ready(redis)
        queue.push("x", "x1", 1, do="sleep", seconds=60)
        until(lambda: queue.of("start"), "it runs")
        dead.kill_all()
        killed = time.time()
    redis.delete("hm:lifeline")  # one of the dead may hold it, for 20 s more: that wait is not the matter here
    queue.push("x", "x2", 2)
    queue.push("y", "y1", 1)
    with work("b", "-c", "2", **BRIEF) as other:
        (pid,) = other.ready(redis)
        until(lambda: queue.of("end", "y"), "other ids run meanwhile")
        until(lambda: queue.of("end"), "it ran again")
        first, second = queue.of("start")
        assert (second.pid, second.keys) == (pid, ["x1", "x2"])
        assert second.token > first.token
        assert second.at > killed + 2, "not before its lease had been seen to have expired"
        at_rest(redis)
        until(lambda: "given back: the work of a process that died" in other.log, "it is told")
        assert "count=1" in other.log


def test_a_zombies_word_is_refused_and_told(redis: Redis, queue: Queue, work: Callable[..., Work]) -> None:
    with work("a", "-c", "1", **BRIEF) as frozen, work("b", "-c", "1", **BRIEF) as other:
        frozen.ready(redis)
        other.ready(redis)
        queue.push("x", "x1", 1, do="held", seconds=90)
        (first,) = until(lambda: queue.of("start"), "it runs")
        queue.push("x", "x2", 2)
        victim, living = (frozen, other) if first.pid in frozen.children else (other, frozen)
        everybody = [victim.pid, *victim.children]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        redis.delete("hm:lifeline")
        (ended,) = until(lambda: queue.of("end"), "another has run it")
        assert (ended.pid, ended.keys) == (living.children[0], ["x1", "x2"])
        until(lambda: redis.hget("hm:ordered:ids/stat", "processed") == b"1", "its outcome is stored")
        victim.open()
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
        late = until(lambda: queue.of("end")[1:], "the zombie has ended too")
        assert (late[0].pid, late[0].keys) == (first.pid, ["x1"])
        assert late[0].token == first.token < ended.token, "the fence: whoever stores tokens refuses its writes"
        until(lambda: "its outcome was not stored" in victim.log, "it is told")
        assert redis.hget("hm:ordered:ids/stat", "processed") == b"1"
        at_rest(redis)
        queue.push("x", "x3", 3)
        until(lambda: "x3" in [key for line in queue.of("end") for key in line.keys], "the id goes on")


def test_two_generations_never_meet_on_an_id(redis: Redis, queue: Queue, work: Callable[..., Work]) -> None:
    done = threading.Event()
    pushed = 0

    def pushing() -> None:
        nonlocal pushed
        while not done.wait(0.04):
            rows = [
                (f"i{n % 10}", {"key": f"k{n}", "do": "sleep", "seconds": 0.03}, n) for n in range(pushed, pushed + 3)
            ]
            queue.push_many(rows)
            pushed += 3

    with work("w", "-p", "2", "-c", "3") as one:
        before = set(one.ready(redis, 2))
        pusher = threading.Thread(target=pushing)
        pusher.start()
        try:
            until(lambda: len(queue.lines) > 50 and ran_by(queue) >= before, "they are at work")
            one.signal(signal.SIGHUP)
            until(lambda: len(one.children) == 2 and not set(one.children) & before, "another generation works")
            seen = len(queue.lines)
            until(lambda: len(queue.lines) > seen + 50 and ran_by(queue) >= set(one.children), "at work too")
        finally:
            done.set()
            pusher.join(90)
        at_rest(redis)
        assert set(one.children) & before == set()
    _never_two_and_in_order(queue.lines, pushed)
    assert len(ran_by(queue)) == 4


def ran_by(queue: Queue) -> set[int]:
    """The processes in which something ran."""
    return {line.pid for line in queue.lines}


def _never_two_and_in_order(trace: list[Line], pushed: int) -> None:
    """Each key once, in order; an id begins only after its end of before."""
    open_ids: dict[str, int] = {}
    ran: dict[str, list[int]] = defaultdict(list)
    tokens: dict[str, int] = defaultdict(int)
    for line in trace:
        assert line.event != "beside"
        if line.event == "start":
            assert line.id not in open_ids, f"{line} beside {open_ids[line.id]}"
            assert line.token > tokens[line.id]
            open_ids[line.id], tokens[line.id] = line.pid, line.token
            ran[line.id] += [int(key[1:]) for key in line.keys]
        else:
            assert open_ids.pop(line.id) == line.pid
    assert not open_ids
    assert sum(map(len, ran.values())) == pushed
    for name, numbers in ran.items():
        assert numbers == list(range(int(name[1:]), pushed, 10))


def test_an_id_is_anothers_only_after_the_end_of_who_ignores_the_stop(
    redis: Redis, queue: Queue, work: Callable[..., Work]
) -> None:
    with work("a", "-c", "1", "-t", "1", **LONG) as deaf:
        (pid,) = deaf.ready(redis)
        queue.push("x", "x1", 1, do="stubborn", seconds=600)
        until(lambda: queue.of("start"), "it runs")
        with work("b", "-c", "1", **LONG) as other:
            other.ready(redis)
            queue.push("x", "x2", 2)
            told = time.monotonic()
            deaf.signal(signal.SIGTERM)
            until(lambda: queue.of("end"), "another ran it")
            assert time.monotonic() - told < 100, "at once after the end of the process, not after its lease"
            assert state_of(pid) not in LIVES
            assert not queue.of("beside"), "the process had ended when the other one began"
            first, second = queue.of("start")
            assert (first.pid, second.keys) == (pid, ["x1", "x2"])
            assert second.token > first.token
            at_rest(redis)
            assert deaf.wait() == EXIT_CUT_OFF
            assert other.stop() == 0
    assert not redis.smembers("processes")


def test_who_ignores_its_timeout_costs_its_process_and_the_third_one_buries_the_id(
    redis: Redis, queue: Queue, work: Callable[..., Work]
) -> None:
    with work("w", "-c", "2", "-t", "1", ORDERED_GRACE="0.5") as one:
        (pid,) = one.ready(redis)
        with one.held():  # the process asks to be replaced, and lives until its supervisor hears it
            queue.push("x", "x1", 1, queue="brief", do="stubborn", seconds=600, times=9)
            crashes = until(lambda: redis.hget("hm:ordered:brief/crash", "x"), "a death is counted")
            assert crashes == b"1"
            assert redis.hexists("hm:ordered:brief/busy", "x"), "and it stays held until the process has ended"
        until(lambda: redis.zscore("hm:ordered:brief/morgue", "x") is not None, "after three it is in the morgue", 180)
        starts = queue.of("start")
        assert len(starts) == 3
        assert len({line.pid for line in starts}) == 3, "each time the process was replaced"
        assert not queue.of("beside")
        assert b"PoisonPill: its process died 3 times" in redis.hget("hm:ordered:brief/merr", "x")  # type: ignore[operator]
        queue.push("x", "x2", 2, queue="brief")
        until(lambda: queue.of("end"), "the id goes on")
        at_rest(redis, "brief", frozenset({"m:x", "merr", "morgue"}))
        assert not set(records(redis)) & {pid}
        assert "ignores its time-out" in one.log
        assert one.stop() == 0
