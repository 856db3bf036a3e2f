"""The judge of the chaos run on jobs that wait for others: a ledger that is made to show each kind of harm."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from support.worker import looker

CHAOS = Path(__file__).parents[2] / "chaos"
BEFORE = "dependencies: started before what it waits for had succeeded"
LOST = "accepted jobs that did not reach their end"
LEFT = "keys: left on the server"


def accepted(key: str, about: str = "", notes: str = "") -> list[str]:
    before = [f"100.0 {about.replace('KEY', key)}"] if about else []
    return [*before, f"100.0 push {key} {notes}".strip(), f"100.1 accepted {key}"]


def ran(
    key: str, jid: str, since: float, to: float, how: str = "ok", queued: float = 100.0, attempt: int = 1
) -> list[str]:
    return [f"{since} start {key} {attempt} {queued} {jid}", f"{to} end {key} {attempt} {how}"]


#: heirs of a base that fails first and of a riser that dies and is revived; one whose nay says no; one after a handle
PRODUCED = [
    *accepted("heirs-a-1", "needs KEY base/17 riser/17"),
    *accepted("base-a-2", "named KEY base 17", "fails=1"),
    *accepted("riser-b-3", "named KEY riser 17"),
    *accepted("anyway-a-4", "needs KEY nay/18"),
    *accepted("nay-b-5", "named KEY nay 18"),
    *accepted("first-a-6", notes="fails=0"),
    *accepted("second-a-7", "needs KEY first/first-a-6"),
]
WORKED = [
    *ran("base-a-2", "j2", 100.2, 100.3, "ValueError"),
    *ran("base-a-2", "j2", 101.4, 101.5, attempt=2),
    *ran("riser-b-3", "j3", 100.2, 100.3, "Kill"),
    *ran("riser-b-3", "j3", 103.1, 103.2, queued=103.0, attempt=2),
    *ran("heirs-a-1", "j1", 103.3, 103.4),
    *ran("nay-b-5", "j5", 100.2, 100.3, "Failure"),
    *ran("anyway-a-4", "j4", 100.4, 100.5),
    *ran("first-a-6", "j6", 100.2, 100.3),
    *ran("second-a-7", "j7", 100.4, 100.5),
]


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with looker(redis_url) as client:
        client.mset({"stat:processed": 9, "stat:failed": 2})
        yield client


@pytest.fixture
def judged(redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """The names of the rules that the ledger above violates, without some lines and with others."""
    monkeypatch.syspath_prepend(str(CHAOS))
    judge: Any = importlib.import_module("judge")
    history: Any = importlib.import_module("past")

    def look(*more: str, without: str = "nothing") -> set[str]:
        for name, lines in (("producer-7-a", PRODUCED), ("worker-8-b", WORKED)):
            kept = [*(line for line in lines if without not in line), *(more if "worker" in name else ())]
            (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in kept))
        return {rule for rule, told in judge.Judgement(history.History(tmp_path), redis).violations.items() if told}

    return look


def test_the_judge_finds_nothing_in_a_good_ledger(judged: Callable[..., set[str]]) -> None:
    assert judged() == set()


@pytest.mark.parametrize(
    ("key", "jid", "begun", "found"),
    [
        ("heirs-a-1", "j1", 103.15, {BEFORE}),  # the riser was being run for the second time
        ("heirs-a-1", "j1", 101.6, {BEFORE}),  # it was dead
        ("heirs-a-1", "j1", 100.15, {BEFORE}),
        ("heirs-a-1", "j1", 103.2, set()),
        ("anyway-a-4", "j4", 100.25, {BEFORE}),  # before the Failure that lets it go
        ("second-a-7", "j7", 100.25, {BEFORE}),
    ],
)
def test_who_starts_too_early(
    judged: Callable[..., set[str]], key: str, jid: str, begun: float, found: set[str]
) -> None:
    assert judged(*ran(key, jid, begun, 103.5), without=f"{key} 1") == found


@pytest.mark.parametrize("end", ["end riser-b-3 2 ok", "end first-a-6 1 ok", "end nay-b-5 1 Failure"])
def test_who_starts_without(judged: Callable[..., set[str]], end: str) -> None:
    """What it waits for has not ended so at all."""
    assert BEFORE in judged(without=end)


def test_a_success_that_comes_before_a_failure_is_none_of_another_attempt(judged: Callable[..., set[str]]) -> None:
    """The first attempt of the base fails: its end lets nobody go."""
    assert judged(*ran("heirs-a-1", "j1", 103.3, 103.4), without="base-a-2 2") >= {BEFORE, LOST}


@pytest.mark.parametrize("key", ["heirs-a-1", "anyway-a-4", "second-a-7"])
def test_who_is_forgotten(judged: Callable[..., set[str]], key: str) -> None:
    assert judged(without=f"{key} 1") == {LOST}


def test_who_is_parked_still(judged: Callable[..., set[str]], redis: Redis) -> None:
    redis.hset("hm:parked", "j1", "slow\n\nneeds\n\n{}")
    redis.zadd("hm:await:nriser\n17", {"j1": 1})
    assert judged() == {LEFT}


def test_a_riser_that_nobody_revived_is_dead_and_one_that_was_is_not(
    judged: Callable[..., set[str]], redis: Redis
) -> None:
    redis.zadd("dead", {json.dumps({"args": ["riser-b-3"], "jid": "j3"}): 100.3})
    assert judged() == {"dead set"}
    assert "dead set" not in judged(without="riser-b-3 2 103.0")


@pytest.mark.parametrize("attempts", [(1, 3), (1, 2, 3)])
def test_a_riser_runs_once_more_when_it_was_revived(judged: Callable[..., set[str]], attempts: tuple[int, ...]) -> None:
    runs = [ran("riser-b-3", "j3", 102.0 + one, 102.1 + one, queued=102.0 + one, attempt=one) for one in attempts[1:]]
    assert "retries miscounted" in judged(*(line for run in runs for line in run), without="riser-b-3 2")
