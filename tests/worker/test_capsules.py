"""Capsules: groups of queues with slots of their own, in one process."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from henchman import App, ConfigError
from henchman.client.options import JobOptions
from henchman.config import Config
from henchman.config.capsules import parse_queues
from henchman.worker.launcher import default_capsules
from support.worker import looker, settled, until, working

SINGLE = {"single": {"queues": ["single"], "concurrency": 1}}


def test_a_full_capsule_does_not_hold_up_the_others(redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=2, capsules=SINGLE)
    gate, ran, most, now = threading.Event(), [], [0], [0]
    lock = threading.Lock()

    @app.job(name="one", queue="single")
    def one(number: int) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        gate.wait(60)
        with lock:
            now[0] -= 1

    @app.job(name="other")
    def other(number: int) -> None:
        ran.append(number)

    with looker(redis_url) as redis, working(app) as launcher:
        one.enqueue_many((number,) for number in range(5))
        until(lambda: now[0] == 1, "the slot of the capsule is taken")
        other.enqueue_many((number,) for number in range(20))
        until(lambda: len(ran) == 20, "the other queue is worked on")
        assert most == [1]
        until(lambda: redis.llen("queue:single") == 4, "what the capsule has no slot for waits in its queue")
        shown: Any = until(lambda: redis.hget(launcher.session.identity, "info"), "it shows itself")
        record = json.loads(shown)
        assert record["concurrency"] == 3
        assert record["capsules"]["single"] == {"concurrency": 1, "mode": "strict", "weights": {"single": 0}}
        gate.set()
        settled(redis, 25)
        assert most == [1]


def test_a_queue_belongs_to_one_capsule(redis_url: str) -> None:
    twice = {"a": {"queues": ["q"]}, "b": {"queues": ["q:2"]}}
    with pytest.raises(ConfigError, match=r"queue 'q' is served by two capsules, a and b"):
        default_capsules(App(redis_url=redis_url, capsules=twice))


def test_what_another_capsule_serves_is_not_the_default_ones(redis_url: str) -> None:
    app = App(redis_url=redis_url, capsules=SINGLE)
    app.job(name="x", queue="single")(lambda_free)
    assert [(one.name, one.queues) for one in default_capsules(app)] == [
        ("default", ("default",)),
        ("single", ("single",)),
    ]
    assert JobOptions().queue == "default"


def lambda_free() -> None:
    """A job that is never run here."""


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"default": {"queues": ["a"]}}, 'the name "default" is taken'),
        ({"x": {"queues": []}}, "x needs a list of queues"),
        ({"x": {"queues": ["a"], "concurrency": 0}}, "the concurrency of x"),
        ({"x": {"queues": ["a"], "slots": 3}}, "there is no 'slots'"),
    ],
)
def test_a_wrong_table_is_named(tables: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        App(capsules=tables)


@pytest.mark.parametrize("text", ["a:1001", "a:9999", "a:0", "a:", "a b", ":3", "ä"])
def test_the_settings_refuse_what_a_worker_would(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME or NAME:WEIGHT"):
        Config.load(arguments={"queues": [text]})
    with pytest.raises(ConfigError, match="NAME or NAME:WEIGHT"):
        Config.load(arguments={"capsules": {"one": {"queues": [text]}}})
    with pytest.raises(ConfigError, match="NAME or NAME:WEIGHT"):
        parse_queues([text])
