"""Whoever carries an operation out is killed before a slice, or between its execution and its answer; another goes on.
Every job is where it was, where it is to be, or in the trash: never twice, never nowhere."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from henchman import App
from henchman.inspector import operations as asked
from henchman.inspector.operations import Wish
from henchman.inspector.operator import SLICE, carry_out
from henchman.kernel import failpoints
from henchman.store.call import run
from support.mortal import Nursery
from support.worker import jobs_in

MANY = 3 * SLICE - 50
SCRIPTS = ("operate", "operation_back", "operation_turn", "lead")


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()
    failpoints.close()


def put(redis: Redis, place: str) -> None:
    """Jobs in the retry set, or in the queue ``q``."""
    now = time.time() - 60
    for number in range(MANY):
        job = {"class": "act", "queue": "q", "args": [number], "jid": f"{number:024}", "retry": 5, "created_at": now}
        text = json.dumps(job | {"failed_at": now, "error_class": "E", "error_message": "m", "retry_count": 0})
        if place == "queues":
            redis.lpush("queue:q", text)
        else:
            redis.zadd("retry", {text: now})
    redis.sadd("queues", "q")


def places(redis: Redis, app: App, number: str) -> dict[str, list[str]]:
    """Where the jobs are, by their ids."""
    found = {
        name: [str(job["jid"]) for job in jobs_in(redis, name)] for name in ("retry", "dead", "queue:q", "queue:other")
    }
    trash: list[bytes] = redis.lrange(app.keys.trash(number), 0, -1)  # type: ignore[assignment]
    return found | {"trash": [json.loads(one)["jid"] for one in trash[4::6]]}


def once(found: dict[str, list[str]], *which: str) -> bool:
    """Whether each job is in one of these places, once."""
    every = [jid for name in which for jid in found[name]]
    return sorted(every) == [f"{number:024}" for number in range(MANY)]


def killed(mortals: Nursery, faults: str, url: str, tmp_path: Path, number: str) -> None:
    order = {"part": "client", "do": "operation", "url": url, "trace": tmp_path / "trace", "folder": tmp_path}
    assert mortals.run(faults=faults, number=number, **order) == -signal.SIGKILL


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize(
    ("act", "place", "home", "goal"),
    [
        ("retry", "retries", "retry", "queue:q"),
        ("kill", "retries", "retry", "dead"),
        ("delete", "retries", "retry", "trash"),
        ("delete", "queues", "queue:q", "trash"),
        ("move", "queues", "queue:q", "queue:other"),
    ],
)
def test_who_carries_it_out_is_killed(
    app: App, redis: Redis, mortals: Nursery, redis_url: str, tmp_path: Path, where: str, act: str, place: str,
    home: str, goal: str,
) -> None:  # fmt: skip
    put(redis, place)
    name, into = "q" if place == "queues" else "", "other" if act == "move" else ""
    wish = Wish(act, place, "", time.time(), name=name, into=into)  # type: ignore[arg-type]
    number = asked.begin(app, "ana", wish)
    killed(mortals, f"kill@operate:{where}#2", redis_url, tmp_path, number)
    done = SLICE if where == "before" else 2 * SLICE
    found = places(redis, app, number)
    assert len(found[goal]) == done
    assert once(found, home, goal)

    assert not carry_out(app, number), "its doer may be alive"
    redis.delete(app.keys.doer(number))  # ten seconds of silence
    assert carry_out(app, number)
    one = run(app.connections, asked.operation(app.keys, number))
    assert one is not None
    assert (one.done, one.gone, one.stayed) == (MANY, 0, 0)
    assert once(places(redis, app, number), goal)

    assert run(app.connections, asked.undo(app.keys, number))
    killed(mortals, f"kill@operation_back:{where}#2", redis_url, tmp_path, number)
    found = places(redis, app, number)
    assert len(found[home]) == (50 if where == "before" else 100)
    assert once(found, home, goal)
    redis.delete(app.keys.doer(number))
    assert carry_out(app, number)
    assert once(places(redis, app, number), home)
    one = run(app.connections, asked.operation(app.keys, number))
    assert one is not None
    assert (one.state, one.back, one.ran) == ("undone", MANY, 0)


@pytest.mark.parametrize("where", ["before", "after"])
def test_who_ends_it_is_killed(
    app: App, redis: Redis, mortals: Nursery, redis_url: str, tmp_path: Path, where: str
) -> None:
    put(redis, "retries")
    number = asked.begin(app, "ana", Wish("delete", "retries", "", time.time()))
    killed(mortals, f"kill@operation_turn:{where}#1", redis_url, tmp_path, number)
    redis.delete(app.keys.doer(number))
    assert carry_out(app, number) is (where == "before")
    one = run(app.connections, asked.operation(app.keys, number))
    assert one is not None
    assert (one.state, one.done) == ("done", MANY)
    assert once(places(redis, app, number), "trash")
    assert not redis.exists("hm:operations:open")
