"""The judge of the chaos run on jobs that wait for others, and on what becomes of them when these do not succeed: a
ledger that is made to show each kind of harm."""

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
DEAD, RETRIES = "dead set", "retries miscounted"
POLICY = "dependencies: a policy that was carried out otherwise"
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
    # one that waits for the base only if it is quick; those that are cancelled, or fail, and so never run; what is told
    # to one that runs although its need was cancelled; one that waits for what nobody ever pushes
    *accepted("kept-a-8", "needs KEY base/17"),
    *accepted("patient-a-9", "needs KEY base/17"),
    "100.0 named spared-b-10 spared 18",
    *accepted("spared-b-10", "needs KEY nay/18"),
    *accepted("witness-a-11", "needs KEY spared/18"),
    *accepted("fallen-a-12", "needs KEY nay/18"),
    *accepted("wreck-b-13", "named KEY wreck 19"),
    *accepted("ruined-a-14", "needs KEY wreck/19"),
    *accepted("weary-a-15", "needs KEY ghost/19"),
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
    *ran("kept-a-8", "j8", 101.6, 101.7),
    *ran("patient-a-9", "j9", 101.6, 101.7),
    "101.65 told patient-a-9 finished",
    *ran("witness-a-11", "j11", 100.4, 100.5),
    "100.45 told witness-a-11 over",
    *ran("wreck-b-13", "j13", 100.2, 100.3, "Kill"),
]
BURIED = {
    key: json.dumps({"args": [key, "18"], "jid": f"j-{key}"}) for key in ("fallen-a-12", "wreck-b-13", "ruined-a-14")
}


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with looker(redis_url) as client:
        client.mset({"stat:processed": 13, "stat:failed": 3})
        client.zadd("dead", dict.fromkeys(BURIED.values(), 100.4))
        yield client


@pytest.fixture
def judged(redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """The names of the rules that the ledger above violates, without some lines and with others."""
    monkeypatch.syspath_prepend(str(CHAOS))
    judge: Any = importlib.import_module("judge")
    history: Any = importlib.import_module("past")

    def look(*more: str, without: str = "nothing", hide: str = "nothing") -> set[str]:
        for name, lines in (("producer-7-a", PRODUCED), ("worker-8-b", WORKED)):
            kept = [
                *(line for line in lines if without not in line and hide not in line),
                *(more if "worker" in name else ()),
            ]
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


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("spared-b-10", {POLICY, RETRIES}),
        ("weary-a-15", {POLICY, RETRIES}),
        ("fallen-a-12", {POLICY, RETRIES}),
        ("ruined-a-14", {POLICY, RETRIES}),
    ],
)
def test_who_runs_though_it_was_to_be_cancelled_or_to_fail(
    judged: Callable[..., set[str]], key: str, found: set[str]
) -> None:
    assert judged(*ran(key, f"j-{key}", 104.0, 104.1)) >= found


@pytest.mark.parametrize("key", ["kept-a-8", "patient-a-9", "witness-a-11"])
def test_who_is_cancelled_though_it_was_to_run(judged: Callable[..., set[str]], key: str) -> None:
    assert judged(without=f"{key} 1") == {LOST}


@pytest.mark.parametrize(
    ("key", "told", "begun", "found"),
    [
        ("patient-a-9", "finished", 101.45, {BEFORE}),  # the base was being run for the second time
        ("patient-a-9", "over", 101.6, {POLICY}),  # it was retried, not over
        ("patient-a-9", "time", 103.1, set()),
        ("patient-a-9", "time", 102.8, {POLICY}),  # after less than its three seconds
        ("witness-a-11", "over", 100.25, {BEFORE}),  # before the Failure for which its need was cancelled
        ("witness-a-11", "finished", 100.4, {POLICY}),
        ("witness-a-11", "time", 114.0, {POLICY}),
        ("witness-a-11", "time", 115.2, set()),
    ],
)
def test_who_is_told_what_is_not_so(
    judged: Callable[..., set[str]], key: str, told: str, begun: float, found: set[str]
) -> None:
    jid = f"j{key.rpartition('-')[2]}"
    lines = [*ran(key, jid, begun, begun + 0.1), f"{begun + 0.05:.2f} told {key} {told}"]
    assert judged(*lines, without=f"{key} 1", hide=f"told {key}") == found


def test_a_wait_goes_by_the_clock_of_the_server(judged: Callable[..., set[str]]) -> None:
    lines = [*ran("patient-a-9", "j9", 101.7, 101.8), "101.75 told patient-a-9 time"]
    assert judged(*lines, without="patient-a-9 1", hide="told patient-a-9") == {POLICY}
    lines += ["100.6 stepped 100.5 100.6 60"]  # it was set forward by a minute
    assert judged(*lines, without="patient-a-9 1", hide="told patient-a-9") == set()


@pytest.mark.parametrize("key", list(BURIED))
def test_who_was_to_fail_is_dead(judged: Callable[..., set[str]], redis: Redis, key: str) -> None:
    redis.zrem("dead", BURIED[key])
    assert judged() == {DEAD}


@pytest.mark.parametrize("key", ["spared-b-10", "weary-a-15", "kept-a-8"])
def test_who_was_not_to_fail_is_not_dead(judged: Callable[..., set[str]], redis: Redis, key: str) -> None:
    redis.zadd("dead", {json.dumps({"args": [key, "18"], "jid": "j"}): 100.4})
    assert judged() == {DEAD}


def test_of_whom_nobody_heard_may_be_dead_or_not(judged: Callable[..., set[str]], redis: Redis) -> None:
    unheard = "100.1 unknown fallen-a-12"
    assert judged(unheard, hide="accepted fallen-a-12") == set()
    redis.zrem("dead", BURIED["fallen-a-12"])
    assert judged(unheard, hide="accepted fallen-a-12") == set()


@pytest.mark.parametrize("left", ["hm:await:nghost\n19", "hm:needs:j15"])
def test_who_waits_still_for_what_never_comes(judged: Callable[..., set[str]], redis: Redis, left: str) -> None:
    redis.zadd(left, {"j15": 1})
    assert judged() == {LEFT}
