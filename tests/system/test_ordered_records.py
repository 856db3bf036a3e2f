"""The records of a tracked ordered queue over real processes that are killed: none is lost, none is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman.config import Config
from henchman.history.reading import History
from henchman.history.records import Event, Search
from support.acting_ordered import app, lines
from support.processes import Work
from support.worker import until


@pytest.fixture
def database(redis_url: str, tmp_path: Path) -> Iterator[str]:
    url = f"sqlite:///{tmp_path}/history.sqlite"
    app.configure(redis_url=redis_url, database_url=url)
    yield url
    app.close()
    app.configure(database_url=None)


def work(tmp_path: Path, redis_url: str, database: str, **env: str) -> Work:
    settings = {"ORDERED_TRACE": str(tmp_path / "trace"), "HENCHMAN_DATABASE_URL": database} | env
    return Work(tmp_path / "w", redis_url, "-c", "3", target="support.acting_ordered:app", **settings)


def push(*rows: Any) -> None:
    app.registry.ordered()["told"].push_many(rows)  # type: ignore[attr-defined]  # it is one


def events(history: History) -> list[Event]:
    return history.find(Search(queue="told"), limit=9999).events


def ends(tmp_path: Path) -> int:
    """How many claims have ended."""
    return sum(line.event == "end" for line in lines(tmp_path / "trace"))


def at_rest(redis: Redis) -> None:
    """Nothing waits, and everything that was said is in the database."""
    until(lambda: not redis.zcard("hm:ordered:told/due"), "nothing waits")

    def left() -> set[str]:
        return {key.decode().removeprefix("hm:ordered:told/") for key in redis.scan_iter("hm:ordered:told/*")}

    until(lambda: left() <= {"meta", "stat", "wake"}, "and nothing is held")
    until(lambda: not redis.xlen("hm:history"), "all is recorded")
    assert not redis.exists("hm:broken")


def test_killed_in_the_middle_then_finished(redis: Redis, redis_url: str, tmp_path: Path, database: str) -> None:
    with work(tmp_path, redis_url, database) as one:
        (pid,) = one.ready(redis)
        push(("x", {"key": "x1", "do": "sleep", "seconds": 60}, 1))
        until(lambda: [line for line in lines(tmp_path / "trace") if line.event == "start"], "it runs")
        push(("x", {"key": "x2"}, 2))
        os.kill(pid, signal.SIGKILL)
        at_rest(redis)
        with closing(History.open(Config(redis_url=redis_url, database_url=database))) as history:
            by_key = {event.args[1]["key"]: event for event in events(history) if event.args}
            first, second = history.job(by_key["x1"].jid), history.job(by_key["x2"].jid)
        assert first is not None
        assert second is not None
        steps = [(change.status, change.detail.get("ending")) for change in first.changes]
        assert steps == [
            ("enqueued", None), ("working", "started"), ("enqueued", "rescued"), ("working", "started"),
            ("finished", "done"),
        ]  # fmt: skip
        assert first.changes[1].process != first.changes[3].process
        assert [run.ending for run in first.runs] == ["rescued", "done"]
        assert [change.status for change in second.changes] == ["enqueued", "working", "finished"]
        found = subprocess.run(
            [sys.executable, "-m", "henchman", "history", "find", "class:told", "queue:told", "x2", "--json"],
            capture_output=True, text=True, timeout=150, check=True,
            env={**os.environ, "HENCHMAN_REDIS_URL": redis_url, "HENCHMAN_DATABASE_URL": database},
        )  # fmt: skip
        assert [one["jid"] for one in json.loads(found.stdout)["events"]] == [second.event.jid]
        assert one.stop() == 0


def test_whoever_is_killed_each_payload_that_ran_is_finished_once(
    redis: Redis, redis_url: str, tmp_path: Path, database: str
) -> None:
    chance = random.Random(11)
    with work(tmp_path, redis_url, database) as one:
        number = 0
        for _ in range(4):
            one.ready(redis)
            ended = ends(tmp_path)
            for _ in range(3):
                rows = [
                    (f"id{chance.randrange(20)}", {"key": str(number + place)}, number + place) for place in range(50)
                ]
                push(*rows)
                number += 50
                time.sleep(chance.random() * 0.1)  # the kill comes at any moment of the work
            # whoever cannot end anything between two deaths is a poison pill: that is another test
            until(lambda ended=ended: ends(tmp_path) > ended, "it gets on")  # type: ignore[misc]
            one.kill_one()
        at_rest(redis)
        with closing(History.open(Config(redis_url=redis_url, database_url=database))) as history:
            found = events(history)
            assert len(found) == number
            assert {event.status for event in found} == {"finished"}
            for event in found:
                job = history.job(event.jid)
                assert job is not None
                assert [change.status for change in job.changes].count("finished") == 1
                assert all(run.ended is not None for run in job.runs)
        ran = {key for line in lines(tmp_path / "trace") if line.event == "end" for key in line.keys}
        assert ran == {str(one) for one in range(number)}
        assert one.stop() == 0
