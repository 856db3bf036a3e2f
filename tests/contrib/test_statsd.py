"""StatsD: what an agent gets by UDP and by a Unix socket, and that nothing waits for it."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from henchman import App, ConfigError
from henchman.contrib import statsd
from henchman.contrib.statsd import instrument
from support.worker import until, working


class Agent:
    """What an agent was sent so far, as lines."""

    def __init__(self, bound: socket.socket) -> None:
        self._socket = bound
        bound.setblocking(False)
        self._lines: list[str] = []

    @property
    def lines(self) -> list[str]:
        while True:
            try:
                packet = self._socket.recv(65536)
            except BlockingIOError:
                return self._lines
            assert len(packet) <= 1400
            self._lines += packet.decode().splitlines()

    def has(self, line: str) -> bool:
        return line in self.lines

    def like(self, pattern: str) -> list[str]:
        return [one for one in self.lines if re.fullmatch(pattern, one)]


@pytest.fixture
def agent() -> Iterator[Agent]:
    with udp() as made:
        yield made


@contextmanager
def udp() -> Iterator[Agent]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        yield Agent(bound)


def address(agent: Agent) -> str:
    return f"127.0.0.1:{agent._socket.getsockname()[1]}"


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, concurrency=4, heartbeat=0.1)
    yield made
    made.close()


def test_dogstatsd_has_jobs_and_queues_as_tags(app: App, agent: Agent, redis: Redis) -> None:
    instrument(app, address(agent), dialect="dogstatsd", tags={"env": "test"})

    @app.job(name="mail", retry=1, retry_in=0.01)
    def mail(number: int) -> None:
        if number == 3:
            raise ValueError("no")

    mail.enqueue(1)
    mail.enqueue_many([(2,), (3,)])
    about = "env:test,job:mail,queue:default"
    assert agent.lines == [f"henchman.jobs.pushed:1|c|#{about}", f"henchman.jobs.pushed:2|c|#{about}"]
    with working(app):
        until(lambda: redis.zcard("dead"), "the third is dead")
        until(lambda: agent.has(f"henchman.jobs.dead:1|c|#{about}"), "its death is told")
        until(lambda: agent.has("henchman.dead:1|g|#env:test"), "how many are dead")
        assert redis.exists("hm:gauges")
    assert not redis.exists("hm:gauges")  # its turn ended with it
    assert len(agent.like(re.escape(f"henchman.jobs.run:1|c|#{about}"))) == 4  # three jobs, one retry
    assert len(agent.like(re.escape(f"henchman.jobs.failed:1|c|#{about}"))) == 2
    assert len(agent.like(r"henchman\.jobs\.duration:[0-9.]+\|ms\|#" + re.escape(about))) == 4
    assert len(agent.like(r"henchman\.jobs\.pushed.*")) == 2  # a retry that becomes due is no push


def test_statsd_has_them_in_the_names_and_gauges_tell_of_queues(app: App, agent: Agent, redis: Redis) -> None:
    instrument(app, address(agent), prefix="shop")

    @app.job(name="pkg.jobs.mail", queue="a.b")
    async def mail() -> None: ...

    async def push() -> None:
        await mail.aenqueue()
        await app.aclose()

    asyncio.run(push())
    assert agent.lines == ["shop.jobs.pushed.pkg_jobs_mail.a_b:1|c"]
    app.enqueue("Nobody", queue="c.d")  # which nobody serves
    with working(app):
        until(lambda: agent.has("shop.queue.size.c_d:1|g"), "the queue is told of", 20)
        until(lambda: agent.like(r"shop\.queue\.latency_seconds\.c_d:[0-9.e-]+\|g"), "and how old its next job is", 20)
        until(lambda: agent.has("shop.processes:1|g"), "and the processes")


@pytest.mark.parametrize("dialect", ["statsd", "dogstatsd"])
def test_each_end_that_has_a_cause_is_told_with_it(app: App, agent: Agent, redis: Redis, dialect: Any) -> None:
    instrument(app, address(agent), dialect=dialect, gauges=False)

    @app.job(name="slow", retry=0)
    def slow(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.01)

    @app.job(name="wrong", retry=0)
    def wrong() -> None:
        raise ValueError("no")

    slow.enqueue(0)
    for ends in ({"timeout": 0.1}, {"deadline": 0.7}):
        slow.using(**ends).enqueue(60)
    wrong.enqueue()
    late = slow.using(deadline=0.05).enqueue(0)
    until(lambda: app.clock.now() > app.job_status(late.jid).created_at + 0.1, "that is over before it could start")
    with working(app):
        until(lambda: len([one for one in agent.lines if "ended_by" in one]) == 4, "four are told")
        until(lambda: redis.zcard("dead") == 3, "three are dead")
    form = "henchman.jobs.ended_by:1|c|#job:{},queue:default,cause:{}"
    form = form if dialect == "dogstatsd" else "henchman.jobs.ended_by.{}.default.{}:1|c"
    wanted = [("slow", "timeout"), ("slow", "deadline"), ("slow", "deadline"), ("wrong", "error")]
    assert sorted(one for one in agent.lines if "ended_by" in one) == sorted(form.format(*one) for one in wanted)


def arrived(app: App, agent: Agent) -> list[str]:
    app.enqueue("Later")
    return agent.lines


def test_a_unix_socket_that_begins_to_listen_later(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statsd, "_AGAIN", 0.0)
    path = tmp_path / "agent.sock"
    instrument(app, f"unix://{path}")
    app.enqueue("Early")
    for _ in range(2):  # the second time the agent was started anew
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
            bound.bind(str(path))
            agent = Agent(bound)
            until(partial(arrived, app, agent), "a line arrives")
            assert set(agent.lines) == {"henchman.jobs.pushed.Later.default:1|c"}
        path.unlink()


def test_an_agent_that_reads_nothing_holds_nobody_up(app: App, tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(path))
        instrument(app, f"unix://{path}")
        began = time.monotonic()
        for _ in range(300):  # far more than its buffer takes
            app.enqueue("Anything")
        assert time.monotonic() - began < 30
        assert app.queues["default"].size() == 300


def test_a_sample_says_so(app: App, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    instrument(app, address(agent), sample_rate=0.25)
    draws = iter([0.2, 0.3, 0.24])
    monkeypatch.setattr(statsd, "random", lambda: next(draws))
    for name in ("First", "Second", "Third"):
        app.enqueue(name)
    assert agent.lines == [
        "henchman.jobs.pushed.First.default:1|c|@0.25",
        "henchman.jobs.pushed.Third.default:1|c|@0.25",
    ]


def test_processes_of_isolated_runs_that_were_killed_or_crashed_are_counted(app: App, agent: Agent) -> None:
    instrument(app, address(agent), dialect="dogstatsd", sample_rate=0.000001)
    run = SimpleNamespace(name="crunch", queue="heavy")
    app.events.emit("process_killed", run=run, child=1, reason="it does not heed its cancellation")
    app.events.emit("process_crashed", run=run, child=1, reason="was killed by signal 11")
    about = "job:crunch,queue:heavy"
    assert agent.lines == [f"henchman.isolated.killed:1|c|#{about}", f"henchman.isolated.crashed:1|c|#{about}"]


def test_names_are_bounded_and_harmless(app: App, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statsd, "NAMES_MOST", 2)
    instrument(app, address(agent), dialect="dogstatsd")
    for name in ("A|c#x:1,\ny", "B", "C", "B", "D"):
        app.enqueue(name)
    told = [re.sub(r".*job:(.*),queue.*", r"\1", one) for one in agent.lines]
    assert told == ["A_c_x_1__y", "B", "other", "B", "other"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"address": "nowhere"}, "give 'host:port'"),
        ({"address": "127.0.0.1:99999"}, "give 'host:port'"),
        ({"address": 8125}, "give 'host:port'"),
        ({"sample_rate": 0}, "above 0"),
        ({"sample_rate": True}, "above 0"),
        ({"dialect": "carbon"}, "'statsd' or 'dogstatsd'"),
        ({"tags": {"env": "x"}}, "StatsD knows none"),
    ],
)
def test_what_is_wrong_is_said_at_once(app: App, given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        instrument(app, **given)


def test_a_name_that_nobody_knows_loses_figures_and_nothing_else(app: App) -> None:
    instrument(app, "no-such-host.invalid:8125")
    assert app.enqueue("Anything").admission == "created"
    with pytest.raises(ConfigError, match="already"):
        instrument(app)
