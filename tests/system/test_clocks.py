"""Hosts whose clocks are two hours off, and a server whose clock steps while it runs."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from henchman import App
from henchman.client.push import TIME_KNOWN
from henchman.inspector.doctor import examine
from henchman.store.connection import Connections
from henchman.store.keys import Keys
from support.faketime import HOUR, WrongClock, needs_faketime
from support.processes import PATHS, Work, push, records
from support.server import PrivateServer, running_server
from support.timely import SOON
from support.worker import in_flight, jobs_in, looker, until

pytestmark = needs_faketime


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


@pytest.fixture
def stepping(tmp_path: Path) -> Iterator[tuple[WrongClock, PrivateServer, Redis]]:
    """A server of its own whose clock can be stepped."""
    clock = WrongClock(tmp_path / "server.clock")
    with running_server(clock=clock) as server, looker(server.url) as redis:
        yield clock, server, redis


def step(clock: WrongClock, server: PrivateServer, ahead: float) -> None:
    clock.set(ahead)
    until(lambda: abs(_time_of(server) - time.time() - ahead) < 60, "the server's clock is stepped")


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_producer_notices_a_step_within_seconds(
    stepping: tuple[WrongClock, PrivateServer, Redis], ahead: float
) -> None:
    """Else a job with ``at=`` starts early, and one with ``expires`` is dropped before its time."""
    clock, server, redis = stepping
    step(clock, server, ahead)
    app = App(redis_url=server.url)
    job = app.job(name="act")(lambda name: None)
    job.using(expires=60).enqueue("learns the time")
    step(clock, server, 0.0)
    time.sleep(TIME_KNOWN)
    job.using(at=dt.datetime.now(dt.UTC) + dt.timedelta(seconds=60)).enqueue("at")
    job.using(expires=60).enqueue("expires")
    assert [one["args"] for one in jobs_in(redis, "schedule")] == [["at"]]
    stored = next(one for one in map(json.loads, redis.lrange("queue:default", 0, -1)) if one["args"] == ["expires"])  # type: ignore[arg-type]
    assert abs(stored["enqueued_at"] - time.time()) < 30
    app.close()


def ticks(work: Work) -> int:
    return sum(line[0] == "tick" for line in work.trace())


@pytest.mark.parametrize("ahead", [-5 * HOUR, 5 * HOUR, 30 * 24 * HOUR])
def test_crons_go_on_when_the_servers_clock_steps(
    stepping: tuple[WrongClock, PrivateServer, Redis], tmp_path: Path, ahead: float
) -> None:
    clock, server, redis = stepping
    with Work(tmp_path / "w", server.url, target="support.clockwork:app") as work:
        until(lambda: ticks(work) > 2, "it ticks")
        for now in (ahead, 0.0):  # and back again
            step(clock, server, now)
            before = ticks(work)
            until(lambda before=before: ticks(work) > before + 2, "it ticks again", 30)  # type: ignore[misc]
            until(
                lambda now=now: abs(float(work.trace()[-1][1]) - time.time() - now) < 60,  # type: ignore[misc]
                "it ticks for the time that it is now",
            )
            assert redis.hlen("hm:crons") == redis.zcard("hm:cron:declared") == 2, "none was forgotten"


def test_what_the_dead_held_is_rescued_and_moved_on_after_the_clock_went_back(
    stepping: tuple[WrongClock, PrivateServer, Redis], tmp_path: Path
) -> None:
    """Every worker is killed, the clock goes back before their leases and locks are over: the next ones go on."""
    clock, server, redis = stepping
    settings = {"HENCHMAN_LEASE": "5", "HENCHMAN_HEARTBEAT": "0.5", "ACTING_WATCH": "1"}
    with Work(tmp_path / "w", server.url, **settings) as work:
        work.ready(redis)
        push(redis, "act", ("held", "held", 60.0))
        until(lambda: work.count("start")["held"], "it runs")
        until(lambda: redis.exists("hm:staging", "hm:lifeline", "hm:auditor") >= 2, "it has its duties")
        for duty in ("hm:auditor", "hm:recorder"):
            redis.set(duty, "who died", px=10_000)
        work.kill_all()
        step(clock, server, -5 * HOUR)
        redis.zadd("retry", {json.dumps({"class": "act", "args": ["due"], "jid": "1" * 24, "queue": "default"}): 1})
        assert redis.pttl("hm:lifeline") > 4 * HOUR * 1000  # type: ignore[operator]
    with Work(tmp_path / "v", server.url, **settings) as work:
        until(lambda: work.count("end")["due"], "what was due is moved", 30)
        work.open()
        until(lambda: work.count("end")["held"], "what the dead held is rescued", 60)
        until(lambda: not in_flight(redis), "nothing is left in flight")


@pytest.mark.parametrize("ahead", [-5 * HOUR, 5 * HOUR])
def test_ordered_ids_go_on_in_their_order_when_the_clock_steps(
    stepping: tuple[WrongClock, PrivateServer, Redis], tmp_path: Path, ahead: float
) -> None:
    clock, server, redis = stepping
    app = App(redis_url=server.url)
    entities = app.ordered(queue="entities", name="entities")(lambda claim: None)
    with Work(tmp_path / "w", server.url, target="support.timely:app") as work:
        work.ready(redis)
        entities.push("held", "hold-1")
        entities.push("failed", "shaky")
        until(lambda: work.count("holds")["hold-1"] and work.count("failed")["shaky"], "one is held, one has failed")
        entities.push("held", "held-2")
        work.signal(signal.SIGTSTP)
        until(lambda: all(one[b"quiet"] == b"true" for one in shown(redis)), "it takes nothing more")
        for name in ("waits-1", "waits-2"):
            entities.push("waits", name)
        step(clock, server, ahead)
        for name in ("waits-3", "waits-4"):
            entities.push("waits", name)
        entities.push("held", "held-3")
        work.open()
        until(lambda: work.count("ran")["hold-1"], "it is let go")
        until(lambda: not redis.exists("hm:ordered:entities/busy"), "its end is settled: nothing is to be rescued")
    with Work(tmp_path / "v", server.url, target="support.timely:app") as work:
        until(lambda: sum(work.count("ran").values()) == 7, "everything runs", 60)
        names = [line[1] for line in work.trace() if line[0] == "ran"]
        assert [name for name in names if name.startswith("waits")] == [f"waits-{n}" for n in (1, 2, 3, 4)]
        assert [name for name in names if name.startswith("held")] == ["held-2", "held-3"]
        tokens = int(redis.hget("hm:ordered:entities/meta", "token") or 0)  # type: ignore[arg-type]
        entities.push("last", "last")
        until(lambda: work.count("ran")["last"], "the next one runs")
        assert int(redis.hget("hm:ordered:entities/meta", "token")) > tokens > (time.time() - 60) * 1e6  # type: ignore[arg-type]
        until(lambda: not redis.exists("hm:ordered:entities/due", "hm:ordered:entities/busy"), "no id is left")
    app.close()


@pytest.mark.parametrize("ahead", [-5 * HOUR, 5 * HOUR])
def test_a_step_is_said_once_and_what_failed_is_tried_again(
    stepping: tuple[WrongClock, PrivateServer, Redis], tmp_path: Path, ahead: float
) -> None:
    """The wait of a retry is ours, and moves along, and so does a delay; the time of a job with at= is the user's, and
    stays."""
    clock, server, redis = stepping
    app = App(redis_url=server.url)
    with Work(tmp_path / "w", server.url, "-p", "2") as work:
        work.ready(redis, 2)
        until(lambda: redis.hget("hm:clock", "now"), "one has looked")
        now = time.time()
        redis.zadd("retry", {_act(f"r{n}"): now + 4 + n / 1000 for n in range(700)})
        redis.zadd("schedule", {_act("at"): now + 7200})
        for seconds in (6, 3600):
            app.enqueue("act", f"delay-{seconds}", delay=seconds)
        pushed = time.monotonic()
        redis.zadd("hm:tombs", {"buried": now - 60})
        step(clock, server, ahead)
        until(lambda: len(work.count("end")) >= 700, "what failed runs again", 60)
        until(lambda: "clock went" in work.log, "it is said")
        assert work.log.count("clock went") == 1
        assert abs(redis.zscore("hm:tombs", "buried") - now - ahead) < 65, "it is looked after for its hour"  # type: ignore[operator]
        until(lambda: work.count("end")["delay-6"], "the delay is over", 60)
        assert time.monotonic() >= pushed + 5, "and was not before: the step is known to the time that an answer takes"
        until(lambda: work.count("end")["at"] == (1 if ahead > 0 else 0), "what is due at a time goes by the clock")
        due = _due(redis)
        assert due.keys() == {"delay-3600"} | ({"at"} if ahead < 0 else set())
        assert abs(due["delay-3600"] - now - ahead - 3600) < 60
        found = {check.name: check for check in examine(Connections(server.url), Keys(""))}["clocks"]
        assert found.verdict == "warn"
        assert ("back by 18,00" in found.text or "back by 17,99" in found.text) == (ahead < 0)
    app.close()


def test_the_clock_went_back_while_no_worker_lived(
    stepping: tuple[WrongClock, PrivateServer, Redis], tmp_path: Path
) -> None:
    """The next one sees it: what was computed before waits no longer than was meant, from when somebody looks again."""
    clock, server, redis = stepping
    app = App(redis_url=server.url)
    with Work(tmp_path / "w", server.url) as work:
        work.ready(redis)
        until(lambda: redis.hget("hm:clock", "now"), "one has looked")
        work.kill_all()
    now = time.time()
    app.enqueue("act", "delay", delay=5)
    app.enqueue("act", "at", at=dt.datetime.fromtimestamp(now + 60, dt.UTC))
    redis.zadd("retry", {_act("failed"): now + 5})
    step(clock, server, -5 * HOUR)
    app.enqueue("act", "since", delay=3600)
    assert {round((at - now) / HOUR) for at in (*_scores(redis, "retry"), *_scores(redis, "schedule"))} == {0, -4}
    with Work(tmp_path / "v", server.url) as work:
        until(lambda: {"delay", "failed"} <= work.count("end").keys(), "what was under way runs", 60)
        assert work.count("end").keys() == {"delay", "failed"}
        assert work.log.count("clock went") == 1
    due = _due(redis)
    assert due.keys() == {"at", "since"}
    assert abs(due["at"] - now - 60) < 1, "it is the user's"
    assert abs(due["since"] - now - 3600 + 5 * HOUR) < 60, "it was pushed by the clock as it is"
    app.close()


def _due(redis: Redis) -> dict[str, float]:
    """When the jobs of the schedule are due, by their first argument."""
    return dict(zip((job["args"][0] for job in jobs_in(redis, "schedule")), _scores(redis, "schedule"), strict=True))


def _scores(redis: Redis, key: str) -> list[float]:
    return [score for _, score in redis.zrange(key, 0, -1, withscores=True)]  # type: ignore[union-attr,misc]


def _act(name: str) -> str:
    return json.dumps({"class": "act", "args": [name], "jid": name, "queue": "default"})


def shown(redis: Redis) -> list[dict[bytes, bytes]]:
    return [redis.hgetall(name) for name in redis.smembers("processes")]  # type: ignore[union-attr,misc]


def _time_of(server: PrivateServer) -> float:
    return float(server.ask("EVAL", "return redis.call('TIME')[1]", "0"))
