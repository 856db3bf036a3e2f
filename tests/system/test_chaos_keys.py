"""The judge of the chaos run on jobs with a key and on the outbox: a ledger that is made to show each kind of harm, and
the rule that sees it.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from support.worker import looker

CHAOS = Path(__file__).parents[2] / "chaos"

ONCE = "keys: a key of `once` that has not exactly one job"
DUPLICATES = "keys: duplicates that ran, or of no job with that key"
JOBS = "keys: two jobs at once that may not be"
RUNS = "keys: two runs at once that may not be"
LEFT = "keys: left on the server"
ROWS = "outbox: a row that is not exactly one job"
ANSWERS = "outbox: what the database has differs from what it said"
ROWS_LEFT = "outbox: rows left"
LOST = "accepted jobs that did not reach their end"
COUNTERS = "counters differ from the ledger"


def pushed(key: str, name: str, told: str, at: float = 100.0, notes: str = "") -> list[str]:
    kind = key.partition("-")[0]
    words = told.split()
    return [
        f"{at} named {key} {kind} {name}",
        f"{at} push {key} {notes}".strip(),
        f"{at + 0.1:.1f} {' '.join([words[0], key, *words[1:]])}",
    ]


def ran(key: str, jid: str, since: float, to: float, attempt: int = 1, how: str = "ok") -> list[str]:
    return [f"{since} start {key} {attempt} {since} {jid}", f"{to} end {key} {attempt} {how}"]


def alone(name: str, key: str, token: int, since: float, to: float | None) -> list[str]:
    words = f"desk {name} {token}"
    end = [f"{to} kend {words} ok"] if to is not None else [f"{since + 0.1:.2f} kbeat {words}"]
    return [f"{since} kstart {words} {key}", *end]


def named_row(number: int, name: str) -> list[str]:
    row = f"once-seller-{number}"
    return [f"99.8 named {row} once {name}", f"99.8 push {row} fails={int(name == '17')}", f"99.8 order {row} accepted"]


#: one job of a key that comes once, of three pushes; two that follow each other, of each other kind
PRODUCED = [
    *pushed("once-a-1", "17", "accepted", notes="fails=1"),
    *pushed("once-b-1", "17", "duplicate j1", 100.2, "fails=1"),
    *pushed("once-a-2", "17", "unknown", 100.3, "fails=1"),
    "100.3 exists once 17",
    *pushed("until-a-3", "n1", "accepted", notes="fails=1"),
    *pushed("until-b-3", "n1", "duplicate j3", 100.5, "fails=0"),
    *pushed("until-b-4", "n1", "accepted", 104.0, "fails=0"),
    *pushed("turn-a-5", "n2", "accepted", notes="fails=0"),
    *pushed("turn-b-5", "n2", "accepted blocked", 100.2, "fails=0"),
    *pushed("queued-a-6", "n3", "accepted"),
    *pushed("queued-b-6", "n3", "accepted", 102.0),
    *pushed("desk-a-7", "n4", "accepted"),
    *pushed("desk-b-7", "n4", "accepted"),
    "100.0 fpush push-a-1 n5",
    "100.1 faccepted push-a-1 j8",
    "100.2 fpush push-b-1 n5",
    "100.3 fduplicate push-b-1 j8",
    "101.8 fpush push-a-2 n5",
    "101.9 funknown push-a-2",
    "99.8 push sold-seller-1",
    "99.8 order sold-seller-1 unknown",
    "100.0 order sold-seller-1 accepted",
    "99.8 push sold-seller-2",
    "99.8 order sold-seller-2 refused",
    "99.8 push sold-seller-3",
    "99.8 order sold-seller-3 unknown",
    "99.8 push sold-seller-4",
    "99.8 order sold-seller-4 unknown",
    *named_row(5, "17"),
]
WORKED = [
    *ran("once-a-1", "j1", 100.4, 100.5, how="ValueError"),
    *ran("once-a-1", "j1", 102.4, 102.5, attempt=2),
    *ran("until-a-3", "j3", 100.4, 100.5, how="ValueError"),
    *ran("until-a-3", "j3", 102.4, 103.5, attempt=2),
    *ran("until-b-4", "j4", 104.2, 104.5),
    *ran("turn-a-5", "j5", 100.4, 101.5),
    *ran("turn-b-5", "k5", 101.6, 102.5),
    "101.5 asked j6 j7 k7",
    *ran("queued-a-6", "j6", 101.6, 101.7),
    "102.9 asked k6 k7",
    *ran("queued-b-6", "k6", 103.6, 103.7),
    *ran("desk-a-7", "j7", 101.6, 102.7),
    *alone("n4", "desk-a-7", 1, 101.6, 102.7),
    "101.5 parked k7",
    *ran("desk-b-7", "k7", 102.9, 104.0),
    *alone("n4", "desk-b-7", 2, 102.9, 104.0),
    "101.5 asked j8",
    *ran("fresh-j8", "j8", 101.6, 101.7),
    "101.6 frun fresh-j8 push-b-1",
    "101.9 asked k8",
    *ran("fresh-k8", "k8", 102.0, 102.1),
    "102.0 frun fresh-k8 push-a-2",
    *ran("sold-seller-1", "s1", 100.1, 100.2),
    *ran("sold-seller-3", "s3", 100.1, 100.2),
]
LOOKED = ("200.0 committed 0 once-seller-5 sold-seller-1 sold-seller-3",)


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with looker(redis_url) as client:
        client.mset({"stat:processed": 15, "stat:failed": 2})
        yield client


@pytest.fixture
def judgement(redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What the judge says of the ledger above, without some lines and with others, of two processes."""
    monkeypatch.syspath_prepend(str(CHAOS))
    judge: Any = importlib.import_module("judge")
    history: Any = importlib.import_module("past")

    def look(*more: str, other: Any = (), without: str = "nothing", looked: tuple[str, ...] = LOOKED) -> Any:
        ledger = {
            "producer-7-a": [line for line in PRODUCED if not re.search(without, line)],
            "worker-8-b": [*(line for line in WORKED if not re.search(without, line)), *more],
            "worker-9-c": other,
            "chaos-6-d": looked,
        }
        for name, lines in ledger.items():
            (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        return judge.Judgement(history.History(tmp_path), redis)

    return look


@pytest.fixture
def judged(judgement: Callable[..., Any]) -> Callable[..., set[str]]:
    """The names of the rules that were violated; the counters tell of each job too many or too few, too."""

    def look(*more: str, **how: Any) -> set[str]:
        return {rule for rule, told in judgement(*more, **how).violations.items() if told} - {COUNTERS}

    return look


def test_the_judge_finds_nothing_in_a_good_ledger(judgement: Callable[..., Any]) -> None:
    verdict = judgement()
    assert not {rule: told for rule, told in verdict.violations.items() if told}
    assert verdict.facts["pushes with a key"] == "15 (10 accepted, 3 duplicate, 2 unknown) of 6 keys"
    assert verdict.facts["jobs that waited for their key"] == "1 when pushed, 1 when they were to start"
    assert verdict.facts["rows of the outbox"] == "5 (2 accepted, 2 unknown, 1 refused), 3 committed"


@pytest.mark.parametrize(
    ("rules", "more"),
    [
        ({ONCE}, ran("once-a-2", "j2", 105.0, 105.1, attempt=2) + ran("once-a-2", "j2", 103.0, 103.1)),
        ({ONCE, DUPLICATES}, ran("once-b-1", "j2", 105.0, 105.1, attempt=2) + ran("once-b-1", "j2", 103.0, 103.1)),
        ({ONCE}, pushed("once-a-8", "17", "accepted", 105.0, "fails=0") + ran("once-a-8", "j8", 105.2, 105.3)),
        ({ONCE}, ["100.0 exists once 18", *pushed("once-a-9", "18", "unknown", 100.0, "fails=0")]),
        ({ONCE, DUPLICATES}, pushed("once-a-9", "18", "duplicate j9", 100.0, "fails=0")),
        ({DUPLICATES}, pushed("once-a-9", "17", "duplicate j3", 100.0, "fails=0")),
        ({DUPLICATES}, pushed("until-a-9", "n1", "duplicate j9", 100.0, "fails=0")),
    ],
)
def test_a_key_that_comes_once(judged: Callable[..., set[str]], rules: set[str], more: list[str]) -> None:
    """Two jobs of it, a duplicate that ran, and duplicates of what is not there or is another's."""
    assert judged(*more) == rules


def test_a_key_whose_only_job_is_lost(judged: Callable[..., set[str]]) -> None:
    assert judged(without="once-a-1 2") == {LOST}
    assert judged(without="start once-a-1") == {LOST, ONCE, DUPLICATES, ROWS}


@pytest.mark.parametrize(
    ("at", "starts", "found"),
    [
        (102.9, 103.2, {JOBS}),  # accepted while the first one ran for the last time
        (101.4, 103.8, {JOBS}),  # while it waited for its retry
        (103.4, 103.8, set()),  # answered as it ended
    ],
)
def test_two_jobs_until_success(judged: Callable[..., set[str]], at: float, starts: float, found: set[str]) -> None:
    late = [*pushed("until-a-9", "n1", "accepted", at, "fails=0"), *ran("until-a-9", "j9", starts, starts + 0.1)]
    assert judged(*late) == found


def test_two_whose_answers_nobody_heard(judged: Callable[..., set[str]]) -> None:
    """Then the key was theirs when they started, at the latest."""
    late = pushed("until-a-9", "n1", "unknown", 100.5, "fails=0")
    assert judged(*late, *ran("until-a-9", "j9", 103.6, 103.7)) == set()
    assert judged(*late, *ran("until-a-9", "j9", 103.3, 103.4)) == {JOBS}


def test_a_repeat_after_the_end_keeps_nobody_out(judged: Callable[..., set[str]]) -> None:
    """Process 9 was frozen when it ran the job, and goes on when the next one has its turn."""
    first = ["100.3 start until-a-3 1 100.3 j3", "104.4 end until-a-3 1 ValueError"]
    frozen = ("105.0 window stopped 100.35 104.3 9",)
    assert judged(other=first, looked=(*LOOKED, *frozen)) == set()


def test_whose_turn_it_is_not_yet(judged: Callable[..., set[str]]) -> None:
    early = ran("turn-b-5", "k5", 101.3, 102.5)
    assert judged(*early, without="k5") - {LOST} == {JOBS}


def test_two_that_wait(judged: Callable[..., set[str]]) -> None:
    early = pushed("queued-a-9", "n3", "accepted", 100.9)
    assert judged(*early, "102.5 asked j9", *ran("queued-a-9", "j9", 102.6, 102.7)) == {JOBS}


def test_one_may_wait_as_soon_as_a_worker_asks_for_the_first(judged: Callable[..., set[str]]) -> None:
    """That asking may have been executed, and its process killed: then the job starts again much later."""
    late = ran("queued-a-6", "j6", 103.3, 103.4)
    assert judged(*late, without="start queued-a-6") == set()


def test_two_that_run(judged: Callable[..., set[str]]) -> None:
    early = [*pushed("desk-b-7", "n4", "accepted"), *ran("desk-b-7", "k7", 102.6, 104.0)]
    assert judged(*early, *alone("n4", "desk-b-7", 2, 102.6, 104.0), without="desk-b-7|n4 2") == {RUNS}
    assert judged(*early, *alone("n4", "desk-b-7", 2, 102.7, 104.0), without="desk-b-7|n4 2") == set()


def test_a_token_that_falls(judged: Callable[..., set[str]]) -> None:
    other = [*pushed("desk-b-9", "n4", "accepted"), *ran("desk-b-9", "j9", 105.0, 105.1)]
    assert judged(*other, other=alone("n4", "desk-b-9", 2, 105.0, 105.1)) == {RUNS}
    assert judged(*other, other=alone("n4", "desk-b-9", 3, 105.0, 105.1)) == set()


def test_who_was_killed_has_the_key_until_its_last_word(judged: Callable[..., set[str]]) -> None:
    """Process 9 began with desk-a-7 at 101.2, and was heard of at 101.3."""
    words = "101.2 start desk-a-7 1 101.2 j7"
    kill = (*LOOKED, "101.35 window kill 101.35 101.36 9")
    spans = [*alone("n4", "desk-a-7", 2, 101.6, 102.7), *alone("n4", "desk-b-7", 3, 102.9, 104.0)]
    first = alone("n4", "desk-a-7", 1, 101.2, None)
    assert judged(*spans, other=[words, *first], looked=kill, without="kstart|kend") == set()
    beat = "101.7 kbeat desk n4 1"
    assert judged(*spans, other=[words, *first, beat], looked=kill, without="kstart|kend") == {RUNS}


def test_a_zombie_has_no_key(judged: Callable[..., set[str]]) -> None:
    """Process 9 was stopped for half a minute with a job that others have run meanwhile, and goes on with it."""
    first = ["71.2 start desk-a-7 1 71.2 j7", *alone("n4", "desk-a-7", 0, 71.2, None), "103.0 kbeat desk n4 0"]
    stopped = "102.9 window stopped 71.35 102.9 9"
    assert RUNS in judged(other=first)
    assert RUNS not in judged(other=first, looked=(*LOOKED, stopped))
    briefly = "102.9 window stopped 84.0 102.9 9"
    assert RUNS in judged(other=first, looked=(*LOOKED, briefly)), "nobody is buried so soon"


FRESH = "keys: newer arguments that were forgotten, or refused and came"


def test_newer_arguments_that_are_forgotten(judged: Callable[..., set[str]]) -> None:
    """The job that waited runs with what it was pushed with first, or again with that after a crash."""
    old = "101.6 frun fresh-j8 push-a-1"
    assert judged(old, without="frun fresh-j8|k8") == {FRESH}
    assert judged(old) == set(), "one run was cut off, and repeated with the newer ones"
    assert judged("101.6 frun fresh-j8 push-a-9", without="frun fresh-j8|k8") == {FRESH}, "arguments that nobody pushed"


def test_newer_arguments_that_were_refused(judged: Callable[..., set[str]]) -> None:
    refused = ("101.0 fpush push-a-7 n5", "101.1 frefused push-a-7", "101.6 frun fresh-j8 push-a-7")
    assert judged(looked=(*LOOKED, *refused)) == {FRESH}


def test_a_job_whose_arguments_were_replaced_is_not_lost(judged: Callable[..., set[str]]) -> None:
    assert judged(without="start fresh-j8|k8") == {LOST, FRESH}


def test_two_that_wait_for_newer_arguments(judged: Callable[..., set[str]]) -> None:
    second = ("101.0 fpush push-a-9 n5", "101.1 faccepted push-a-9 j9")
    late = [*ran("fresh-j9", "j9", 103.0, 103.1), "102.9 asked j9", "103.0 frun fresh-j9 push-a-9"]
    assert judged(*late, looked=(*LOOKED, *second)) == {JOBS}


@pytest.mark.parametrize(
    "harm",
    [
        ("hset", "hm:lock:u:until", "n1", "j3 100.2 "),
        ("hset", "hm:lock:w:queued", "n3", "j6 100.2 "),
        ("hset", "hm:lock:r:desk", "n4", "j7 100.2 "),
        ("hset", "hm:lock:o:once", "17", "j1 100.2 0011"),
        ("hset", "hm:parked", "j7", "slow\n\nrunning\n{}"),
        ("zadd", "hm:await:rdesk\nn4", {"j7": 1}),
        ("zadd", "hm:parked:until", {"j7": 1}),
        ("sadd", "hm:needs:j7", "nx\ny"),
        ("rpush", "hm:decide", "over\n\n\nx\ny"),
        ("rpush", "hm:releases", "hm:ready:1"),
        ("zadd", "hm:ready:1", {"j7": 1}),
        ("hset", "hm:latest", "j6", "{}"),
        ("hset", "hm:debounce:x", "1", "1 {}"),
        ("sadd", "hm:outbox:abc:sent", "s1"),
    ],
)
def test_what_is_left(judged: Callable[..., set[str]], redis: Redis, harm: tuple[Any, ...]) -> None:
    getattr(redis, harm[0])(*harm[1:])
    assert judged() == {LEFT}


def test_a_dead_job_keeps_a_key_that_comes_once_and_no_other(judged: Callable[..., set[str]], redis: Redis) -> None:
    more = [*pushed("oncedead-a-9", "19", "accepted"), *ran("oncedead-a-9", "j9", 100.4, 100.5, how="Kill")]
    redis.zadd("dead", {json.dumps({"args": ["oncedead-a-9"], "jid": "j9"}): 100.5})
    redis.hset("hm:lock:o:oncedead", "19", "j9 100.2 0011")
    assert judged(*more) == set()
    redis.hset("hm:lock:w:oncedead", "19", "j9 100.2 0011")
    assert judged(*more) == {LEFT}


@pytest.mark.parametrize(
    ("rules", "more", "without", "looked"),
    [
        ({ROWS, LOST}, [], "start sold-seller-1", LOOKED),  # committed, and no job
        ({ROWS, LOST}, [], "start sold-seller-3", LOOKED),  # the same of one whose commit was not answered
        ({ROWS, "refused jobs that ran"}, ran("sold-seller-2", "s2", 100.1, 100.2), "nothing", LOOKED),  # rolled back
        ({ROWS, "refused jobs that ran"}, ran("sold-seller-4", "s4", 100.1, 100.2), "nothing", LOOKED),
        (
            {ROWS, "repeats without a cause"},
            ran("sold-seller-1", "s9", 100.3, 100.4),
            "nothing",
            LOOKED,
        ),  # a job too many
        ({ROWS_LEFT}, [], "nothing", ("200.0 committed 1 once-seller-5 sold-seller-1 sold-seller-3",)),
        ({ANSWERS, ROWS, "refused jobs that ran"}, [], "nothing", ("200.0 committed 0 once-seller-5 sold-seller-3",)),
        ({ANSWERS, ROWS, LOST}, [], "nothing", (*LOOKED, "200.0 committed 0 sold-seller-2")),
        ({ANSWERS}, [], "nothing", (*LOOKED, "200.0 committed 0 sold-seller-9")),  # nobody wrote it
        ({ROWS}, [], "nothing", ()),  # nobody could look
        (
            {ONCE},
            ran("once-seller-5", "s5", 103.0, 103.1) + ran("once-seller-5", "s5", 105.0, 105.1, 2),
            "nothing",
            LOOKED,
        ),
        ({ONCE, ROWS, LOST}, named_row(6, "21"), "nothing", (*LOOKED, "200.1 committed 0 once-seller-6")),
    ],
)
def test_rows_and_jobs(
    judged: Callable[..., set[str]], rules: set[str], more: list[str], without: str, looked: tuple[str, ...]
) -> None:
    assert judged(*more, without=without, looked=looked) == rules
