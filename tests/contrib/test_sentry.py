"""Sentry: one event a death, in its own scope, without secrets; crons as check-ins."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from redis import Redis
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from henchman import App, ConfigError, Failure, Snooze
from henchman.contrib.sentry import instrument
from support.processes import PATHS, START, clean_environ
from support.worker import jobs_in, until, working


class Kept(Transport):
    """A transport that keeps what is sent."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._lock = threading.Lock()
        self.items: list[tuple[str, dict[str, Any]]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        with self._lock:
            self.items += [(item.type or "", json.loads(item.get_bytes())) for item in envelope.items]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [one for kind, one in self.items if kind == "event"]

    @property
    def check_ins(self) -> list[dict[str, Any]]:
        return [one for kind, one in self.items if kind == "check_in"]


@pytest.fixture
def sentry() -> Iterator[Kept]:
    kept = Kept()
    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=kept, default_integrations=True)
    yield kept
    sentry_sdk.get_global_scope().set_client(None)
    sentry_sdk.get_isolation_scope().clear()


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, concurrency=4)
    yield made
    made.close()


def test_one_event_a_death_with_group_and_tags(app: App, sentry: Kept, redis: Redis) -> None:
    instrument(app)

    @app.job(name="pay", retry=2, retry_in=0.01)
    def pay(order: int) -> None:
        raise ValueError(f"order {order} was refused")

    with working(app):
        handle = pay.enqueue(17)
        until(lambda: redis.zcard("dead"), "it is dead")
    (event,) = sentry.events
    (dead,) = jobs_in(redis, "dead")
    assert event["fingerprint"] == ["henchman", dead["error_group"]]
    assert event["tags"] == {
        "job": "pay",
        "queue": "default",
        "jid": handle.jid,
        "attempt": "3",
        "henchman.dead": "true",
        "henchman.cause": "error",
    }
    assert event["exception"]["values"][-1]["value"] == "order 17 was refused"
    assert event["exception"]["values"][-1]["mechanism"]["type"] == "henchman"
    assert event["contexts"]["henchman"]["args"] == [17]
    assert event["transaction"] == "pay"


def test_an_event_has_the_cause_of_the_death(app: App, sentry: Kept, redis: Redis) -> None:
    instrument(app)

    @app.job(name="slow", retry=0)
    def slow() -> None:
        while True:
            time.sleep(0.01)

    @app.job(name="wrong", deadline=60, retry=5, retry_in=3600)
    def wrong() -> None:
        raise ValueError("no")

    wanted = {
        slow.using(timeout=0.1, retry=False).enqueue().jid: ("timeout", "JobTimeout"),
        slow.using(deadline=0.7).enqueue().jid: ("deadline", "JobDeadline"),
        wrong.enqueue().jid: ("deadline", "ValueError"),  # its retry would come too late
    }
    with working(app):
        until(lambda: len(sentry.events) == 3, "each is told")
    events = {one["tags"]["jid"]: one for one in sentry.events}
    told = {jid: (one["tags"]["henchman.cause"], one["exception"]["values"][-1]["type"]) for jid, one in events.items()}
    assert told == wanted


def test_by_choice_each_failure_and_neither_a_snooze_nor_a_business_failure(
    app: App, sentry: Kept, redis: Redis
) -> None:
    instrument(app, each_failure=True)
    ended: list[str] = []

    @app.job(name="pay", retry=2, retry_in=0.01)
    async def pay() -> None:
        raise ValueError("refused")

    @app.job(name="other")
    def other(kind: str) -> None:
        ended.append(kind)
        raise Snooze(60) if kind == "snooze" else Failure("no such order")

    with working(app):
        other.enqueue("snooze")
        other.enqueue("failure")
        pay.enqueue()
        until(lambda: redis.zcard("dead") and len(ended) == 2, "all have ended")
    assert [(one["tags"]["attempt"], one["tags"]["henchman.dead"]) for one in sentry.events] == [
        ("1", "false"),
        ("2", "false"),
        ("3", "false"),
    ]
    assert len({tuple(one["fingerprint"]) for one in sentry.events}) == 1
    (dead,) = jobs_in(redis, "dead")
    assert sentry.events[0]["fingerprint"] == ["henchman", dead["error_group"]]


def test_what_one_run_leaves_in_its_scope_is_in_no_other(app: App, sentry: Kept, redis: Redis) -> None:
    instrument(app)
    together = threading.Barrier(2, timeout=30)
    met = asyncio.Barrier(2)

    def leave(number: int) -> None:
        sentry_sdk.add_breadcrumb(message=f"crumb {number}")
        sentry_sdk.set_tag("mine", str(number))
        logging.getLogger("mine").warning("line %d", number)

    @app.job(name="threaded", retry=0)
    def threaded(number: int) -> None:
        leave(number)
        together.wait()
        raise ValueError(f"number {number}")

    @app.job(name="awaited", retry=0)
    async def awaited(number: int) -> None:
        leave(number)
        await met.wait()
        raise ValueError(f"number {number}")

    with working(app):
        for number, job in enumerate((threaded, threaded, awaited, awaited)):
            job.enqueue(number)
        until(lambda: redis.zcard("dead") == 4, "all are dead")
    assert len(sentry.events) == 4
    for event in sentry.events:
        (number,) = event["contexts"]["henchman"]["args"]
        assert event["tags"]["mine"] == str(number)
        crumbs = [one["message"] for one in event["breadcrumbs"]["values"]]
        assert crumbs == [f"crumb {number}", f"line {number}"]
    assert "mine" not in sentry_sdk.get_isolation_scope()._tags


def test_no_secret_leaves_neither_by_our_event_nor_by_one_of_the_job(app: App, sentry: Kept, redis: Redis) -> None:
    instrument(app)

    @app.job(name="pay", secret=("card",), retry=0)
    def pay(card: str) -> None:
        copy = f"a copy of {card}"
        sentry_sdk.add_breadcrumb(message=copy, data={"card": [card]})
        logging.getLogger("mine").error("refused %s", card)
        raise ValueError(f"refused {card}") from KeyError(card)

    with working(app):
        pay.enqueue("4111-1111")
        until(lambda: redis.zcard("dead"), "it is dead")
    assert len(sentry.events) == 2
    assert "4111-1111" not in json.dumps(sentry.events)
    own = sentry.events[-1]
    assert own["contexts"]["henchman"]["args"] == ["***"]
    assert [one["value"] for one in own["exception"]["values"]] == ["'***'", "refused ***"]


def test_a_job_that_a_missing_definition_kills_is_told_too(app: App, sentry: Kept, redis: Redis) -> None:
    instrument(app)
    with working(app):
        app.enqueue("Nobody", retry=0)
        until(lambda: redis.zcard("dead"), "it is dead")
    (event,) = sentry.events
    assert event["tags"]["job"] == "Nobody"
    assert event["exception"]["values"][-1]["type"] == "UnknownJob"


def test_a_cron_checks_in(app: App, sentry: Kept, redis: Redis) -> None:
    instrument(app)
    fails = [True]

    @app.cron("*/5 * * * *", tz="Europe/Paris", name="Every five")
    @app.job(name="fine")
    def fine() -> None: ...

    @app.cron(every=120, name="often")
    @app.job(name="often", retry_in=0.01, retry=1)
    async def often() -> None:
        if fails.pop() if fails else False:
            raise ValueError("once")

    with working(app):
        until(lambda: "Every five" in app.crons.declared, "declared")
        for name, job in (("Every five", "fine"), ("often", "often")):
            payload = {"class": job, "jid": f"{len(job):024x}", "args": [], "queue": "default", "hm": {"cron": name}}
            redis.lpush("queue:default", json.dumps(payload))
        until(lambda: len(sentry.check_ins) == 6, "all check-ins")
    by_slug: dict[str, list[dict[str, Any]]] = {}
    for one in sentry.check_ins:
        by_slug.setdefault(one["monitor_slug"], []).append(one)
    assert [one["status"] for one in by_slug["every-five"]] == ["in_progress", "ok"]
    assert by_slug["every-five"][0]["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "*/5 * * * *"},
        "timezone": "Europe/Paris",
    }
    assert [one["status"] for one in by_slug["often"]] == ["in_progress", "error", "in_progress", "ok"]
    assert by_slug["often"][0]["monitor_config"] == {"schedule": {"type": "interval", "value": 2, "unit": "minute"}}
    assert len({one["check_in_id"] for one in by_slug["often"]}) == 1


KILLING = """
import json, os, signal, sys
import sentry_sdk
from sentry_sdk.transport import Transport
from henchman import App
from henchman.contrib.sentry import instrument

class ToFile(Transport):
    def capture_envelope(self, envelope):
        with open("sent", "a") as file:
            for item in envelope.items:
                file.write(json.dumps([item.type, json.loads(item.get_bytes())]) + "\\n")

sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=ToFile())
app = App(heartbeat=0.2, log_level="warning")
instrument(app)

@app.job(name="crash", secret=("card",))
def crash(order: int, card: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_job_that_kills_its_processes_is_told_once_by_one_that_lives(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    (tmp_path / "killing.py").write_text(KILLING)
    sent = tmp_path / "sent"
    payload = {"class": "crash", "jid": "c" * 24, "args": [17, "4111-1111"], "queue": "default", "retry": 3}
    redis.lpush("queue:default", json.dumps(payload | {"hm": {"cron": "Every five"}}))
    environ = clean_environ() | {"PYTHONPATH": os.pathsep.join(PATHS), "HENCHMAN_REDIS_URL": redis_url}
    command = [sys.executable, "-c", START, "killing:app", "-p", "2", "-c", "2"]

    def told() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in sent.read_text().splitlines()] if sent.exists() else []
        return [one for kind, one in lines if kind == "event"]

    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.DEVNULL) as work:
        try:
            until(lambda: redis.zcard("dead"), "it is dead", 60)
            until(told, "it is told", 30)
            until(lambda: not redis.exists("hm:notices"), "nobody else will tell it")
        finally:
            work.terminate()
    (event,) = told()
    assert event["exception"]["values"][-1]["type"] == "PoisonPill"
    assert event["exception"]["values"][-1]["value"].count("SIGKILL") == 3
    assert event["fingerprint"][0] == "henchman"
    assert event["tags"]["job"] == "crash"
    assert event["tags"]["jid"] == "c" * 24
    assert event["tags"]["henchman.dead"] == "true"
    assert event["contexts"]["henchman"]["args"] == [17, "***"]
    assert "4111-1111" not in sent.read_text()  # four digits alone stand in some id or time
    check_ins = [one for kind, one in map(json.loads, sent.read_text().splitlines()) if kind == "check_in"]
    assert [one["status"] for one in check_ins].count("error") == 1, "the tick of its cron has failed"
    assert len({one["check_in_id"] for one in check_ins}) == 1


def test_the_pill_of_another_application_is_left_to_its_own_workers(app: App, sentry: Kept, redis: Redis) -> None:
    instrument(app)
    told: list[str] = []
    app.death_handlers.append(lambda job, error: told.append(f"{job['jid']} {error}"))

    @app.job(name="ours")
    def ours() -> None: ...

    foreign, own = ({"class": one, "jid": one, "args": [], "error_message": "died"} for one in ("theirs", "ours"))
    redis.rpush("hm:notices", b"not JSON", json.dumps(foreign), json.dumps(own))
    with working(app):
        until(lambda: told, "ours is told")
        until(lambda: redis.llen("hm:notices") == 2, "the others wait for theirs")
    assert told == ["ours died"]
    assert [one["tags"]["job"] for one in sentry.events] == ["ours"]


def test_where_each_failure_is_told_a_pill_is_too(app: App, sentry: Kept, redis: Redis) -> None:
    instrument(app, each_failure=True)

    @app.job(name="ours")
    def ours() -> None: ...

    redis.rpush("hm:notices", json.dumps({"class": "ours", "jid": "j", "args": [], "error_message": "died"}))
    with working(app):
        until(lambda: sentry.events, "it is told")
    (event,) = sentry.events
    assert event["tags"]["henchman.dead"] == "true"


def test_twice_is_refused_and_henchman_alone_imports_none_of_it(app: App) -> None:
    instrument(app)
    with pytest.raises(ConfigError, match="already"):
        instrument(app)
    look = "import sys, henchman.cli.main; app = henchman.App(); print([m for m in sys.modules if 'sentry' in m])"
    environ = clean_environ() | {"PYTHONPATH": os.pathsep.join(PATHS)}
    command = [sys.executable, "-c", look]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "[]\n"
