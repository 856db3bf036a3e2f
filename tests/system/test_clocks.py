"""Hosts whose clocks are two hours off, and a server whose clock steps while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from support.faketime import HOUR, WrongClock, needs_faketime
from support.processes import PATHS, Work, records
from support.server import PrivateServer, running_server
from support.timely import SOON
from support.worker import in_flight, jobs_in, looker, until

pytestmark = needs_faketime


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with looker(redis_url) as client:
        yield client


def test_a_wrong_clock_is_the_wall_clock_alone(tmp_path: Path) -> None:
    clock = WrongClock(tmp_path / "clock", 2 * HOUR)
    code = "import time; print(time.time(), time.monotonic())"
    told = subprocess.run([sys.executable, "-c", code], env=clock.env, capture_output=True, text=True, check=True)
    wall, monotonic = map(float, told.stdout.split())
    assert abs(wall - time.time() - 2 * HOUR) < 60
    assert abs(monotonic - time.monotonic()) < 60


def test_a_servers_clock_can_be_stepped_while_it_runs(tmp_path: Path) -> None:
    clock = WrongClock(tmp_path / "clock")
    with running_server(clock=clock) as server:
        for ahead in (0.0, -5 * HOUR, 2 * HOUR):
            clock.set(ahead)
            until(lambda ahead=ahead: abs(_time_of(server) - time.time() - ahead) < 60, "the server's clock is stepped")  # type: ignore[misc]


def test_hosts_two_hours_off_lose_nothing_and_start_nothing_early(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """Two workers, one two hours ahead and one two hours behind, run what two such producers push."""
    clocks = {
        "ahead": WrongClock(tmp_path / "ahead.clock", 2 * HOUR),
        "behind": WrongClock(tmp_path / "behind.clock", -2 * HOUR),
    }
    trace = {"ACTING_TRACE": str(tmp_path / "trace")}
    (tmp_path / "trace").touch()
    with ExitStack() as stack:
        for name, clock in clocks.items():
            stack.enter_context(Work(tmp_path / name, redis_url, target="support.timely:app", **trace, **clock.env))
        until(lambda: len(records(redis)) == 2, "both work")
        pushed = time.time()
        for name, clock in clocks.items():
            env = os.environ | {"PYTHONPATH": os.pathsep.join(PATHS), "HENCHMAN_REDIS_URL": redis_url} | clock.env
            subprocess.run([sys.executable, "-m", "support.timely", name, str(pushed)], env=env, check=True, timeout=60)
        wanted = {f"{name}-{one}" for name in clocks for one in SOON}
        until(lambda: ran(tmp_path) >= wanted, "everything has run")
        assert ran(tmp_path) == wanted, "what is due in an hour has not"
        assert time.time() >= pushed + 2
        until(lambda: not in_flight(redis) and not redis.zcard("retry"), "nothing is left")
        assert sorted(job["args"] for job in jobs_in(redis, "schedule")) == [["ahead-far"], ["behind-far"]]
        assert sorted(job["args"] for job in jobs_in(redis, "dead")) == [["ahead-doomed"], ["behind-doomed"]]
        until(lambda: not redis.exists("hm:ordered:entities/due", "hm:ordered:entities/busy"), "no id is left")


def ran(folder: Path) -> set[str]:
    """The names of the jobs that have run."""
    return {line.split()[1] for line in (folder / "trace").read_text().splitlines() if line.startswith("ran ")}


@pytest.mark.parametrize("ahead", [2 * HOUR, -2 * HOUR])
def test_the_buried_are_swept_for_an_hour_of_the_server(
    redis: Redis, redis_url: str, tmp_path: Path, ahead: float
) -> None:
    now = time.time()
    redis.zadd("hm:tombs", {"fresh": now - 60, "old": now - 4000})
    with Work(tmp_path / "w", redis_url, target="support.timely:app", **WrongClock(tmp_path / "clock", ahead).env) as w:
        w.ready(redis)
        until(lambda: redis.zscore("hm:tombs", "old") is None, "it was forgotten")
        assert redis.zscore("hm:tombs", "fresh") == now - 60


def _time_of(server: PrivateServer) -> float:
    return float(server.ask("EVAL", "return redis.call('TIME')[1]", "0"))
