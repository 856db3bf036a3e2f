"""``henchman why``: made states of a job. The first sentence says what holds it up, and the command that it names,
carried out, changes that."""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from redis import Redis
from sqlalchemy import create_engine

from henchman import App, Concurrent, Kill, Leaky, current_job
from henchman.cli.main import henchman
from henchman.store import leases
from support.garbage import payload
from support.outbox import made_anew
from support.worker import until, working

JID = "1" * 24
DEAD_PROCESS = "gone-host:7:0123456789ab"


class Case(NamedTuple):
    """A job in a state; what is said of it (a pattern), which command, and whether that has changed it."""

    jid: str
    says: str
    command: str = ""
    cured: Callable[[], Any] = lambda: True


class Scene:
    """An app with jobs on the queue ``mail``, and workers of it that are started when they are needed."""

    def __init__(self, url: str, redis: Redis, folder: Path, closing: ExitStack) -> None:
        self.url = url
        self.redis = redis
        self.folder = folder
        self.closing = closing
        self.outbox: str | None = None
        self.ran: list[Any] = []
        self.go = threading.Event()
        self.app = self.make_app(heartbeat=0.2)
        self.jobs: dict[str, Any] = self.define(self.app)

    def make_app(self, **settings: Any) -> App:
        made = App(**{"redis_url": self.url, "concurrency": 1} | settings)
        self.closing.callback(made.close)
        return made

    def define(self, app: App) -> dict[str, Any]:
        @app.job(name="send", queue="mail", retry=3)
        def send(user: int) -> None:
            self.ran.append(user)

        @app.job(name="long", queue="mail")
        def long(user: int) -> None:
            self.ran.append(user)
            assert self.go.wait(60)

        @app.job(name="pay", queue="mail", limits=[Concurrent("bank", 1)])
        def pay(user: int) -> None:
            self.ran.append(user)
            assert user or self.go.wait(60)

        @app.job(name="call", queue="mail", limits=[Leaky("shop", 1, per=600)])
        def call(user: int) -> None:
            self.ran.append(user)

        @app.job(name="fatal", queue="mail", retry=0)
        def fatal(user: int) -> None:
            self.ran.append("fatal")
            raise Kill("no such user")

        @app.job(name="alone", queue="mail", key="user", unique="running", on_conflict="wait")
        def alone(user: int) -> None:
            self.ran.append(user)
            if self.ran.count(user) == 1:
                until(lambda: current_job().cancelled, "it is told to stop")

        @app.job(name="first", queue="mail", key="user", once=True)
        def first(user: int) -> None:
            self.ran.append(f"first {user}")

        @app.job(
            name="then", queue="mail", key="user", after=first, wait_at_most=3600, on_failed="cancel", on_dead="wait"
        )
        def then(user: int) -> None:
            self.ran.append(f"then {user}")

        jobs = {"send": send, "long": long, "fatal": fatal, "alone": alone, "first": first, "then": then}
        return jobs | {"pay": pay, "call": call}

    def worker(self, **settings: Any) -> Any:
        """A worker process of its own identity, in this process."""
        app = self.make_app(heartbeat=0.2, outbox=self.outbox, **settings)
        self.define(app)
        return self.closing.enter_context(working(app))

    def busy(self) -> str:
        """A worker whose one slot is taken, and says so."""
        held = self.jobs["long"].enqueue(0)
        self.worker()
        until(lambda: 0 in self.ran, "it runs")
        until(lambda: [one.entry.jid for one in self.app.work] == [held.jid], "the heartbeat tells")
        until(lambda: sum(one.busy for one in self.app.processes) == 1, "and that the slot is taken")
        return str(held.jid)

    def say(self, command: str) -> None:
        """Carry out a command; a worker is started here."""
        words = shlex.split(command)
        assert words[0] == "henchman"
        if words[1] == "work":
            assert words[2:] == ["-q", "mail"]
            self.worker()
            return
        done = CliRunner().invoke(henchman, [*words[1:], "--redis", self.url])
        assert done.exit_code == 0, done.output

    def process(self, beat: float, *, quiet: bool = False, queues: str = "mail") -> None:
        """The record of a process that is not there, and its in-flight list."""
        info = {"hostname": "h", "pid": 7, "queues": [queues], "concurrency": 1, "version": "henchman 0.1.0"}
        facts = {"info": json.dumps(info), "beat": time.time() - beat, "busy": 0, "concurrency": 1}
        # The record first: a name without one is taken off the list by whoever looks just then.
        self.redis.hset(DEAD_PROCESS, mapping=facts | {"quiet": "true" if quiet else "false"})
        self.redis.sadd("processes", DEAD_PROCESS)

    def in_flight(self, stored: bytes, lease_ms: int = 0) -> None:
        """A job that the process has fetched; without a lease it is dead."""
        keys = self.app.keys
        flight = keys.in_flight(DEAD_PROCESS, 1, "mail")
        self.app.connections.run(leases.join(keys, DEAD_PROCESS, [flight], lease_ms or 1))
        self.redis.lpush(flight, stored)
        until(lambda: lease_ms or not self.redis.exists(keys.lease(DEAD_PROCESS)), "its lease has run out")

    def finished(self, user: object) -> Callable[[], bool]:
        return lambda: user in self.ran


@pytest.fixture
def scene(redis_url: str, redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    for name in ("REDIS_URL", "HENCHMAN_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as closing:
        made = Scene(redis_url, redis, tmp_path, closing)
        closing.callback(made.go.set)
        yield made


def paused(scene: Scene) -> Case:
    launcher = scene.worker()
    scene.app.queues["mail"].pause("provider outage", by="ana")
    until(lambda: "mail" in launcher.fetcher.paused, "the worker has heard of it")
    jid = scene.jobs["send"].enqueue(1).jid
    says = r"queue mail is paused \(by ana, \d+ m?s ago: provider outage\), and it waits there, number 1$"
    return Case(jid, says, "henchman queues unpause mail", scene.finished(1))


def nobody_serves(scene: Scene) -> Case:
    jid = scene.jobs["send"].enqueue(1).jid
    return Case(
        jid, "no worker serves queue mail, where it waits, number 1$", "henchman work -q mail", scene.finished(1)
    )


def the_last_worker_is_gone(scene: Scene) -> Case:
    scene.process(beat=500)
    jid = scene.jobs["send"].enqueue(1).jid
    says = r"no worker serves queue mail, where it waits, number 1 \(the last one was heard of 8 min \d+ s ago\)$"
    return Case(jid, says, "henchman work -q mail", scene.finished(1))


def all_are_quiet(scene: Scene) -> Case:
    scene.process(beat=1, quiet=True)
    jid = scene.jobs["send"].enqueue(1).jid
    says = "all workers of queue mail were told to take no new jobs, and it waits there, number 1$"
    return Case(jid, says, "henchman work -q mail", scene.finished(1))


def all_slots_are_busy(scene: Scene) -> Case:
    held = scene.busy()
    jid = scene.jobs["send"].enqueue(1).jid
    says = (
        rf"the one slot that serves queue mail is busy, the longest with long \(job {held}\) for .* m?s; it waits there"
    )
    return Case(jid, says + ", number 1$", "henchman work -q mail", scene.finished(1))


def scheduled(scene: Scene) -> Case:
    scene.worker()
    jid = scene.jobs["send"].using(delay=600).enqueue(1).jid
    says = r"scheduled for 20\S+Z, in (10 min|9 min 5\d s)"
    return Case(jid, says, f"henchman scheduled retry {jid}", scene.finished(1))


def due_and_nobody_moves_it(scene: Scene) -> Case:
    scene.redis.zadd("schedule", {payload(JID, **{"class": "send", "args": [1]}): time.time() - 60})
    says = r"due since 20\S+Z, and no worker is alive to move it$"
    return Case(JID, says, "henchman work -q mail", scene.finished(1))


def retrying(scene: Scene) -> Case:
    scene.worker()
    facts = {"class": "send", "args": [1], "retry": 3, "retry_count": 1, "error_class": "E", "error_message": "no"}
    scene.redis.zadd("retry", {payload(JID, **facts): time.time() + 300})
    says = r"retry 2 of 3, after E: no, comes at 20\S+Z, in (5 min|4 min 5\d s)"
    return Case(JID, says, f"henchman retries retry {JID}", scene.finished(1))


def dead(scene: Scene) -> Case:
    scene.worker()
    facts = {"class": "send", "args": [1], "retry_count": 2, "error_class": "ValueError", "error_message": "no money"}
    scene.redis.zadd("dead", {payload(JID, **facts): time.time() - 60})
    says = r"dead since 20\S+Z, and not tried again by itself: ValueError: no money$"
    return Case(JID, says, f"henchman dead retry {JID}", scene.finished(1))


def dead_in_its_batch(scene: Scene) -> Case:
    with scene.app.batch("all") as batch:
        jid = scene.jobs["fatal"].enqueue(1).jid
    scene.worker()
    until(lambda: scene.app.batch_status(batch.id).counts["error"] == 1, "it is dead")
    says = r"dead since 20\S+Z, and not tried again by itself: Kill: no such user$"
    return Case(jid, says, f"henchman batch retry {batch.id}", lambda: scene.ran == ["fatal", "fatal"])


def no_place_under_a_limit(scene: Scene) -> Case:
    scene.worker(concurrency=2)
    scene.jobs["pay"].enqueue(0)
    until(lambda: 0 in scene.ran, "it has the one place")
    jid = scene.jobs["pay"].enqueue(1).jid
    until(lambda: scene.app.blocked.find(jid), "the next one waits for it")
    says = r"blocked by the limit bank: 1 of 1 places are taken, and it is number 1 of 1 in line, since 20\S+Z$"
    return Case(jid, says, "henchman limits set bank 2", scene.finished(1))


def its_turn_comes_later(scene: Scene) -> Case:
    scene.worker()
    scene.jobs["call"].enqueue(0)
    jid = scene.jobs["call"].enqueue(1).jid
    until(lambda: scene.redis.zcard("schedule"), "it was given its time")
    says = r"its turn under the limit shop comes at 20\S+Z, in (10 min|9 min 5\d s)"
    return Case(jid, says, f"henchman scheduled retry {jid}", scene.finished(1))


def held_by_an_atomic_batch(scene: Scene) -> Case:
    scene.worker()
    batch = scene.app.batch("all", atomic=True).open()
    batch.add(scene.jobs["send"], [(1,)])
    (jid,) = (one.decode() for one in scene.redis.hkeys(f"{scene.app.keys.batch(batch.id)}:jobs"))
    return Case(
        jid,
        f"waits until its atomic batch {batch.id} is released$",
        f"henchman batch close {batch.id}",
        scene.finished(1),
    )


def its_process_is_dead(scene: Scene) -> Case:
    scene.process(beat=90)
    scene.in_flight(payload(JID, **{"class": "send", "args": [1]}))
    says = f"in flight of {DEAD_PROCESS}, which is dead: no other worker is alive to give it back$"
    return Case(JID, says, "henchman work -q mail", scene.finished(1))


def its_process_is_silent(scene: Scene) -> Case:
    scene.process(beat=20)
    scene.in_flight(payload(JID, **{"class": "send", "args": [1]}), lease_ms=9000)
    says = (
        f"in flight of {DEAD_PROCESS}, which was last heard of 20 s ago: no other worker is alive to give it back "
        "unless it is back$"
    )
    return Case(JID, says, "henchman work -q mail", scene.finished(1))


def its_process_is_silent_and_another_lives(scene: Scene) -> Case:
    scene.worker()
    until(lambda: len(list(scene.app.processes)) == 1, "it shows itself")
    scene.process(beat=20)
    scene.in_flight(payload(JID, **{"class": "send", "args": [1]}), lease_ms=4000)
    says = (
        rf"in flight of {DEAD_PROCESS}, which was last heard of 20 s ago: another process gives it back within 1\d s "
    )
    return Case(JID, says + "unless it is back$", "", scene.finished(1))


def running(scene: Scene) -> Case:
    jid = scene.busy()
    says = r"running in \S+:\d+:\w+ for \S+ m?s$"

    def told() -> bool:
        return scene.app.job_status(jid).cancelled

    return Case(jid, says, f"henchman cancel {jid}", told)


def blocked_by_a_key(scene: Scene) -> Case:
    scene.worker(concurrency=2)
    holder = scene.jobs["alone"].enqueue(9)
    until(lambda: scene.ran == [9], "the first one runs")
    jid = scene.jobs["alone"].enqueue(9).jid
    until(lambda: scene.redis.hexists("hm:parked", jid), "the second one is parked")
    says = rf"blocked by job {holder.jid}, which has the key '9' of 'alone' and runs$"
    return Case(jid, says, f"henchman cancel {holder.jid}", lambda: scene.ran == [9, 9])


def blocked_by_one_that_lives(scene: Scene) -> Case:
    first = scene.jobs["first"].using(delay=600).enqueue(1)
    jid = scene.jobs["then"].enqueue(1).jid
    scene.worker()
    says = rf"blocked since 20\S+Z by first/1, which has not ended \(job {first.jid}\); it waits until 20\S+Z at most$"
    return Case(jid, says, f"henchman release {jid}", scene.finished("then 1"))


def blocked_by_one_that_was_never_pushed(scene: Scene) -> Case:
    jid = scene.jobs["then"].enqueue(1).jid
    scene.worker()
    says = (
        r"blocked since 20\S+Z by first/1, which is unknown: never pushed, or forgotten; it waits until 20\S+Z at most$"
    )
    return Case(jid, says, f"henchman release {jid}", scene.finished("then 1"))


def blocked_by_a_dead_one(scene: Scene) -> Case:
    first = scene.jobs["first"].using(delay=600).enqueue(1)
    jid = scene.jobs["then"].enqueue(1).jid
    scene.app.scheduled.kill(scene.app.scheduled.find(first.jid))
    scene.worker()
    says = (
        rf"blocked since 20\S+Z by first/1, which is dead since 20\S+Z \(job {first.jid}\).*"
        rf"; retry it \(henchman dead retry {first.jid}\), or let this one go all the same: henchman release {jid}$"
    )
    return Case(jid, says, f"henchman dead retry {first.jid}", scene.finished("then 1"))


def a_step_of_a_workflow(scene: Scene) -> Case:
    with scene.app.workflow("order 17") as flow:
        pay = flow.add(scene.jobs["long"].call(1))
        ship = flow.add(scene.jobs["send"].call(2), after=[pay])
    scene.worker(concurrency=2)
    until(lambda: 1 in scene.ran, "the first step runs")
    says = rf"blocked since 20\S+Z by step 'long' of batch {flow.id}, which has not ended \(job {pay.jid}\)$"
    return Case(ship.jid, says, f"henchman release {ship.jid}", scene.finished(2))


def cancelled(scene: Scene) -> Case:
    jid = scene.jobs["send"].enqueue(1).jid
    scene.app.cancel(jid)
    return Case(jid, r"cancelled, it will not start \(waiting in queue mail, number 1\)$")


def waits_behind_others(scene: Scene) -> Case:
    scene.process(beat=1)
    scene.jobs["send"].enqueue_many([(1,), (2,)])
    jid = scene.jobs["send"].enqueue(3).jid
    return Case(jid, "waiting in queue mail, number 3: 2 jobs before it, and slots are free$")


def in_the_outbox(scene: Scene) -> Case:
    scene.outbox = f"sqlite:///{scene.folder}/orders.sqlite"
    made_anew(scene.outbox)
    scene.app = scene.make_app(outbox=scene.outbox)
    send = scene.define(scene.app)["send"]
    engine = create_engine(scene.outbox)
    scene.closing.callback(engine.dispose)
    with engine.begin() as connection:
        jid = scene.app.outbox.write(connection, send, 1).jid
    says = r"in the outbox of sqlite:///\S+ for .* m?s, and nobody relays: a worker with this outbox does$"
    return Case(jid, says, "henchman work -q mail", scene.finished(1))


def finished(scene: Scene) -> Case:
    handle = scene.jobs["send"].using(result_ttl=60).enqueue(1)
    scene.worker()
    handle.result(timeout=60)
    return Case(handle.jid, "it has finished; its result is kept$")


def unknown(scene: Scene) -> Case:
    return Case(JID, "nothing holds it now: it has finished, was deleted, or never existed")


STATES = [
    *(paused, nobody_serves, the_last_worker_is_gone, all_are_quiet, all_slots_are_busy, waits_behind_others),
    *(scheduled, due_and_nobody_moves_it, retrying, dead, dead_in_its_batch, held_by_an_atomic_batch),
    *(its_process_is_dead, its_process_is_silent, its_process_is_silent_and_another_lives, running, cancelled),
    *(blocked_by_a_key, blocked_by_one_that_lives, blocked_by_one_that_was_never_pushed, blocked_by_a_dead_one),
    *(no_place_under_a_limit, its_turn_comes_later),
    *(a_step_of_a_workflow, in_the_outbox, finished, unknown),
]


@pytest.mark.parametrize("state", STATES, ids=lambda one: one.__name__)
def test_the_first_sentence_is_right_and_its_command_changes_it(scene: Scene, state: Callable[[Scene], Case]) -> None:
    case = state(scene)
    command = ["why", case.jid, "--redis", scene.url, "--json"]
    if scene.outbox is None:
        told = json.loads(CliRunner().invoke(henchman, command).stdout)
        assert re.match(case.says, told["text"]), told["text"]
        assert case.command in (told["command"] or "") or case.command in told["text"], told
        assert bool(case.command) == bool(told["command"] or case.command)
    whole = scene.app.why(case.jid)
    assert re.match(case.says.removesuffix("$"), whole)
    assert case.command in whole
    if case.command:
        scene.say(case.command)
    until(case.cured, f"{case.command or 'nothing'} changes it: {scene.app.why(case.jid)}")
