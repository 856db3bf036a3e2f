"""PROTOCOL, sections 7 and 8: who is charged for a death; time-outs in threads."""

from __future__ import annotations

import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.errors import JobShutdown, JobTimeout
from henchman.kernel.scoreboard import Scoreboard
from henchman.store import jobs
from henchman.supervisor.supervisor import Supervisor
from henchman.worker.rescue import Death, charge, held_in
from henchman.worker.watchdog import Watchdog, strike
from support.dead import DEAD, corpse, job
from support.processes import Work, push
from support.runs import make_run, running_a_job
from support.store import Store
from support.worker import until


class Ended:
    """A child that ended while it ran ``jids``; ``doomed``: we killed it."""

    def __init__(self, jids: list[str], doomed: bool) -> None:
        self.board, self.doomed = Scoreboard(), doomed
        for place, jid in enumerate(jids):
            self.board.start(place, jid)


@pytest.mark.parametrize(
    ("jids", "doomed", "status", "expected", "charged"),
    [
        (["a", "b"], False, -signal.SIGKILL, False, [b"a", b"b"]),  # killed from outside, or by one of them
        (["a", "b"], True, -signal.SIGKILL, False, None),  # we killed it: nobody knows which of them hung
        (["a"], True, -signal.SIGKILL, False, [b"a"]),  # we killed it for this one
        (["a"], False, -signal.SIGKILL, True, None),  # it was to end: a deploy, a limit of memory
        (["a"], False, 0, False, None),
        ([], False, -signal.SIGSEGV, False, []),
    ],
)
def test_whom_a_death_is_charged_to(
    jids: list[str], doomed: bool, status: int, expected: bool, charged: list[bytes] | None
) -> None:
    """7: only what had started; of deaths that we caused, only the one that it was about."""
    child: Any = Ended(jids, doomed)
    death = Supervisor._death(child, status, expected)
    assert (None if death is None else list(death.started)) == charged


def test_what_was_held_and_had_not_started_is_not_charged(redis_url: str) -> None:
    """7: of what lies in flight, only the marked ones; of a host that is gone, all."""
    store, app = Store(redis_url), App(redis_url=redis_url)
    corpse(store, job("a"), job("b"))
    held = held_in(app, store.keys.in_flight(DEAD, 1, "default"))
    charge(app, DEAD, held, Death("it ended", started=[b"b"], alone=False))
    assert store.ask("HKEYS", store.keys.deaths) == [b"b"]
    charge(app, "h:2:c", held, Death("its host is gone"))
    assert sorted(store.ask("HKEYS", store.keys.deaths)) == [b"a", b"b"]
    assert store.ask("SMEMBERS", store.keys.suspects) == [b"b"]
    store.connections.close()
    app.close()


def charged(store: Store, flight: str, line: str) -> int:
    """Charge job "a", which ran alone, with one death."""
    return store.run(
        jobs.charge(
            *(store.keys, flight, "a", line.encode(), job("a"), b"dead"), alone=True, dead_max=9, dead_timeout=99.0
        )
    )


def test_a_death_is_charged_once_however_often_it_is_told(redis_url: str) -> None:
    """7 and 3.1: the answer to a charge was lost, and the supervisor says it again, a little later."""
    store = Store(redis_url)
    corpse(store, job("a"))
    flight = store.keys.in_flight(DEAD, 1, "default")

    charge = partial(charged, store, flight)
    assert [charge(f"{n}:00 {DEAD} it ended") for n in range(4)] == [1, 1, 1, 1]
    assert [charge("5:00 h:2:b it ended"), charge("6:00 h:2:b it ended")] == [2, 2]
    assert [charge("7:00 h:3:c it ended"), charge("8:00 h:3:c it ended")] == [-1, -1]
    assert store.members("dead") == [b"dead"]
    assert not store.ask("EXISTS", store.keys.deaths, store.keys.suspects, flight)
    store.connections.close()


def test_a_poison_pill_that_the_dead_set_refuses_is_not_lost(redis_url: str) -> None:
    """7 and 4.1: its key holds something else. It stays a suspect until it dies again, and doctor tells why."""
    store = Store(redis_url)
    corpse(store, job("a"))
    flight = store.keys.in_flight(DEAD, 1, "default")

    charge = partial(charged, store, flight)
    store.ask("SET", store.keys.dead, "no set")
    assert [charge(f"{n}:00 h:{n}:b it ended") for n in (1, 2, 3)] == [1, 2, 3]
    assert store.ask("LRANGE", flight, 0, -1) == [job("a")]
    assert store.ask("SMEMBERS", store.keys.suspects) == [b"a"]
    [note] = store.ask("LRANGE", store.keys.broken, 0, -1)
    assert b"WRONGTYPE" in note
    store.ask("DEL", store.keys.dead)
    assert charge("4:00 h:4:b it ended") == -1
    assert store.members("dead") == [b"dead"]
    assert not store.ask("EXISTS", store.keys.deaths, store.keys.charged, store.keys.suspects, flight)
    store.connections.close()


def test_they_pass_a_bare_retry_loop() -> None:
    """8"""
    for kind in (JobTimeout, JobShutdown):
        assert issubclass(kind, BaseException)
        assert not issubclass(kind, Exception)


def test_a_strike_is_meant_for_one_run_and_waits_for_the_lock() -> None:
    """8: raised only under the slot's lock, and only while it still runs what it is meant for."""
    with running_a_job() as (slot, run, thread, raised):
        assert strike(slot, make_run([2]), JobTimeout) == "over"
        assert run.struck is None
        done = threading.Event()
        striker = threading.Thread(
            target=lambda: (until(lambda: strike(slot, run, JobTimeout) == "struck", ""), done.set())
        )
        with slot.lock:
            striker.start()
            assert not done.wait(0.1)
            assert run.struck is None
        assert done.wait(30)
        striker.join()
        thread.join(30)
    assert run.struck is JobTimeout  # type: ignore[comparison-overlap]
    assert [type(error) for error in raised] == [JobTimeout]


def test_a_job_that_ignores_it_for_30_s_is_abandoned() -> None:
    """8"""
    assert Watchdog(strike, lambda run: None, lambda part, error: None).grace == 30


def test_an_event_loop_that_does_not_turn_is_a_hung_process(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """8: after ``hang_after``, though its threads go on: stacks are written, it is killed, the job runs elsewhere."""
    with Work(tmp_path / "w", redis_url, "-c", "2", HENCHMAN_HANG_AFTER="6", HENCHMAN_LEASE="30") as work:
        work.ready(redis)
        push(redis, "ablock_once", ("j", 60.0))
        until(lambda: work.count("start")["j"] == 1, "it runs")
        until(lambda: work.count("end")["j"] == 1, "it ran elsewhere")
        assert "has an event loop that has not turned for 6 s" in work.log
        assert "in ablock_once" in work.log, "where it stood"
