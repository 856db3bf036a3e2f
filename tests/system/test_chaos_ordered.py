"""The judge of the chaos run on ordered queues: a ledger that is made to show each kind of harm, and the rule that sees
it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from support.worker import looker

CHAOS = Path(__file__).parents[2] / "chaos"

LOST = "ordered: accepted payloads that were not done"
STRANGE = "ordered: payloads that were refused, or never pushed, or another's"
ORDER = "ordered: out of order"
TWO = "ordered: two at once"
REFUSED = "ordered: writes refused by the fence without a cause"
REPEATS = "ordered: repeats without a cause"
MORGUE = "ordered: morgue"
LEFT = "ordered: left on the server"
COUNTERS = "ordered: counters differ from the ledger"

#: a1 and a2 run together; a3 fails once and is done with a4, which came meanwhile; a5 is buried after three failures
PUSHED = [
    *(f"100.0 opush e{n} accounts a1 {n} -" for n in (1, 2)),
    *(f"100.1 oaccepted e{n}" for n in (1, 2)),
    "101.0 opush e3 accounts a1 3 -",
    "101.1 oaccepted e3",
    "103.0 opush e4 accounts a1 4 -",
    "103.1 oaccepted e4",
    "100.0 opush e5 accounts a2 5 dead",
    "100.1 oaccepted e5",
    "100.0 opush e6 accounts a3 6 -",
    "100.1 orefused e6",
]
RAN = [
    "100.3 ostart accounts a1 100200000 -1 e1 e2",
    "100.4 obeat accounts a1 100200000",
    "100.5 oend accounts a1 100200000 ok",
    "102.3 ostart accounts a1 102200000 -1 e3",
    "102.4 oend accounts a1 102200000 answer",
    "104.3 ostart accounts a1 104200000 0 e3 e4",
    "104.4 oend accounts a1 104200000 ok",
    *(
        line
        for count, at in ((-1, 200), (0, 210), (1, 220), (2, 230))
        for line in (
            f"{at}.3 ostart accounts a2 {at}200000 {count} e5",
            f"{at}.4 oend accounts a2 {at}200000 ValueError",
        )
    ),
]
BODY = '{"dead":true,"key":"e5"}'
BASE = "hm:ordered:accounts/"


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with looker(redis_url) as client:
        client.hset(f"{BASE}stat", mapping={"processed": 2, "failed": 5})
        client.zadd(f"{BASE}morgue", {"a2": 230.5})
        client.zadd(f"{BASE}m:a2", {BODY: 5})
        client.hset(f"{BASE}merr", "a2", "ValueError: e5 fails as told")
        client.hset(f"{BASE}meta", "token", "1")
        client.mset({"stat:processed": 7, "stat:failed": 5})
        yield client


@pytest.fixture
def judgement(redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What the judge says of the ledger above, without some lines and with others, of two processes."""
    monkeypatch.syspath_prepend(str(CHAOS))
    judge: Any = importlib.import_module("judge")
    history: Any = importlib.import_module("past")

    def look(
        *more: str, other: tuple[str, ...] = (), without: str = "?", attacks: tuple[str, ...] = (), **how: Any
    ) -> Any:
        pushed = [line for line in PUSHED if without not in line]
        ran = [*(line for line in RAN if without not in line), *more]
        ledger = {"producer-7-a": pushed, "worker-8-b": ran, "worker-9-c": other, "chaos-6-d": attacks}
        for name, lines in ledger.items():
            (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        return judge.Judgement(history.History(tmp_path), redis, **how)

    return look


@pytest.fixture
def judged(judgement: Callable[..., Any]) -> Callable[..., set[str]]:
    """The names of the rules that were violated."""

    def look(*more: str, **how: Any) -> set[str]:
        return {rule for rule, told in judgement(*more, **how).violations.items() if told}

    return look


def test_the_judge_finds_nothing_in_a_good_ledger(judgement: Callable[..., Any]) -> None:
    verdict = judgement()
    assert not {rule: told for rule, told in verdict.violations.items() if told}
    assert verdict.facts["ordered payloads in the morgue, as they should"] == 1
    assert verdict.facts["late writes refused by the fence of their id"] == 0


@pytest.mark.parametrize(
    ("rule", "more", "without"),
    [
        (LOST, (), "104200000"),  # a payload that was never done
        (LOST, (), "oend accounts a1 104200000"),  # whose last run never ended
        (STRANGE, ("100.3 ostart accounts a3 100200000 -1 e6", "100.4 oend accounts a3 100200000 ok"), "?"),
        (STRANGE, ("100.3 ostart accounts a3 100200000 -1 e9", "100.4 oend accounts a3 100200000 ok"), "?"),
        (STRANGE, ("105.3 ostart accounts a3 105200000 -1 e4", "105.4 oend accounts a3 105200000 ok"), "?"),
        (REPEATS, ("106.3 ostart accounts a1 106200000 -1 e4", "106.4 oend accounts a1 106200000 ok"), "?"),
        (MORGUE, (), "230200000"),  # buried before it had failed often enough
    ],
)
def test_the_judge_sees_harm_in_the_ledger(
    judged: Callable[..., set[str]], rule: str, more: tuple[str, ...], without: str
) -> None:
    assert rule in judged(*more, without=without)


def test_scores_that_fall_within_a_claim(judged: Callable[..., set[str]]) -> None:
    turned = ("104.3 ostart accounts a1 104200000 0 e4 e3", "104.4 oend accounts a1 104200000 ok")
    assert judged(*turned, without="104200000") == {ORDER}


def test_a_later_score_that_overtakes(judged: Callable[..., set[str]]) -> None:
    """e3 had been accepted a second before the claim in which e4 came alone."""
    first = ("103.3 ostart accounts a1 103200000 0 e4", "103.4 oend accounts a1 103200000 ok")
    then = ("104.3 ostart accounts a1 104200000 0 e3", "104.4 oend accounts a1 104200000 ok")
    assert ORDER in judged(*first, *then, without="104200000")


def test_a_lower_score_that_the_server_did_not_have_in_time_comes_later(judged: Callable[..., set[str]]) -> None:
    pushed = ("105.0 opush e0 accounts a1 0 -", "105.1 oaccepted e0")
    ran = ("105.3 ostart accounts a1 105200000 -1 e0", "105.4 oend accounts a1 105200000 ok")
    assert judged(*ran, attacks=pushed) == {COUNTERS, "counters differ from the ledger"}, "it is one more, no more"


OTHER = ("100.35 ostart accounts a1 100300000 -1 e1 e2", "100.6 oend accounts a1 100300000 ok")


def test_two_processes_on_an_id(judged: Callable[..., set[str]]) -> None:
    assert TWO in judged(other=OTHER)


def test_who_was_killed_holds_nothing_after_its_last_word(judged: Callable[..., set[str]]) -> None:
    kill = "100.45 window kill 100.45 100.46 8"
    again = ("100.6 ostart accounts a1 100600000 -1 e1 e2", "100.7 oend accounts a1 100600000 ok")
    assert judged(other=again, without="oend accounts a1 100200000", attacks=(kill,)) == set()
    beside = ("100.38 ostart accounts a1 100600000 -1 e1 e2", "100.7 oend accounts a1 100600000 ok")
    assert TWO in judged(other=beside, without="oend accounts a1 100200000", attacks=(kill,)), "it still beat at 100.4"


def test_a_token_that_falls(judged: Callable[..., set[str]]) -> None:
    earlier = ("104.3 ostart accounts a1 101200000 0 e3 e4", "104.4 oend accounts a1 101200000 ok")
    assert TWO in judged(*earlier, without="104200000")


def test_a_write_that_the_fence_refused_must_be_a_zombies(judgement: Callable[..., Any]) -> None:
    """e1, e2: process 8 is frozen while it runs them, 9 does them; what 8 says at 130 is refused."""
    late = "130.0 orefused accounts a1 100200000 oend"
    there = ("128.0 ostart accounts a1 100900000 -1 e1 e2", "128.1 oend accounts a1 100900000 ok")
    frozen = "130.0 window stopped 100.41 129.9 8"
    lines: dict[str, Any] = {"other": there, "without": "oend accounts a1 100200000"}
    verdict = judgement(late, attacks=(frozen,), **lines)
    assert verdict.facts["late writes refused by the fence of their id"] == 1
    assert not verdict.violations[REFUSED]
    assert not verdict.violations[REPEATS]
    assert not verdict.violations[LOST]
    assert judgement(late, **lines).violations[REFUSED]
    short = "130.0 window stopped 100.41 104.9 8"
    assert judgement(late, attacks=(short,), **lines).violations[REFUSED], "nobody is buried so soon"


@pytest.mark.parametrize(("begun", "cause"), [("100.4", True), ("129.95", False)])
def test_who_was_frozen_before_its_first_line_is_refused_there(
    judgement: Callable[..., Any], begun: str, cause: bool
) -> None:
    late = f"130.0 orefused accounts a1 100200000 ostart begun={begun}"
    there = ("128.0 ostart accounts a1 100900000 -1 e1 e2 begun=128.0", "128.1 oend accounts a1 100900000 ok")
    frozen = "130.0 window stopped 100.41 129.9 8"
    verdict = judgement(late, attacks=(frozen,), other=there, without="accounts a1 100200000")
    assert bool(verdict.violations[REFUSED]) is not cause
    assert not verdict.violations[LOST]


@pytest.mark.parametrize(
    ("rule", "harm"),
    [
        (LEFT, ("hset", "hm:held:h:1:abcdefabcdef:1:accounts", "a1", "5")),
        (LEFT, ("hset", f"{BASE}busy", "a1", "5|0|1|h:1:x")),
        (LEFT, ("zadd", f"{BASE}due", {"a1": 1})),
        (LEFT, ("zadd", f"{BASE}next", {"a1": 1})),
        (LEFT, ("zadd", f"{BASE}n:a1", {"x": 1})),
        (LEFT, ("zadd", f"{BASE}p:a1", {"x": 1})),
        (LEFT, ("hset", f"{BASE}one", "a1", "x")),
        (LEFT, ("hset", f"{BASE}crash", "a1", "1")),
        (LEFT, ("zadd", f"{BASE}open", {"5|h:1:x": 1})),
        (LEFT, ("zadd", f"{BASE}retry", {"a1": 1})),
        (MORGUE, ("zadd", f"{BASE}m:a2", {'{"key":"e4"}': 1})),
        (MORGUE, ("delete", f"{BASE}merr")),
        (LOST, ("delete", f"{BASE}morgue")),
        (MORGUE, ("delete", f"{BASE}morgue")),
        (COUNTERS, ("hincrby", f"{BASE}stat", "processed", 1)),
        (COUNTERS, ("hincrby", f"{BASE}stat", "failed", -1)),
        ("counters differ from the ledger", ("incr", "stat:processed")),
        ("counters differ from the ledger", ("decr", "stat:failed")),
    ],
)
def test_the_judge_sees_harm_on_the_server(
    judged: Callable[..., set[str]], redis: Redis, rule: str, harm: tuple[Any, ...]
) -> None:
    getattr(redis, harm[0])(*harm[1:])
    assert rule in judged()


def test_a_repeat_after_a_kill_is_explained_and_one_without_is_not(judged: Callable[..., set[str]]) -> None:
    again = ("104.6 ostart accounts a1 104600000 -1 e3 e4", "104.7 oend accounts a1 104600000 ok")
    assert REPEATS in judged(other=again)
    assert judged(other=again, attacks=("104.402 window kill 104.402 104.41 8",)) == set(), "it was not told in time"
    assert REPEATS in judged(other=again, attacks=("104.402 window kill 104.402 104.41 77",))


@pytest.mark.parametrize(
    ("ended", "failures", "found"), [("108.4", 0, set()), ("108.4", -1, {REPEATS}), ("108.2", 0, {REPEATS})]
)
def test_who_returns_after_its_time_out_has_failed(
    judged: Callable[..., set[str]], ended: str, failures: int, found: set[str]
) -> None:
    """A busy machine may strike so late that the handler has returned; what comes next counts the failure."""
    late = (f"{ended} oend accounts a1 102200000 ok",)
    then = (f"109.3 ostart accounts a1 109200000 {failures} e3 e4", "109.4 oend accounts a1 109200000 ok")
    told = judged(*late, *then, without="104200000")
    assert {rule for rule in told if "counters" not in rule} == found


def test_what_no_replica_had_confirmed_may_be_lost_and_is_counted(judgement: Callable[..., Any]) -> None:
    verdict = judgement(without="e4", unconfirmed=(103.05, 103.5))
    gone = [line for line in PUSHED if "e4" in line]
    assert len(gone) == 2
    pushed = judgement(*gone, without="104200000", unconfirmed=(103.05, 103.5))
    assert not verdict.violations[ORDER]
    assert pushed.facts["ordered payloads not confirmed by the replica"] == "1, lost 1"
    assert [told for told in pushed.violations[LOST] if told.startswith("e4")] == []
    confirmed = judgement(*gone, without="104200000", unconfirmed=(103.2, 103.5))
    assert [told for told in confirmed.violations[LOST] if told.startswith("e4")]


@pytest.mark.parametrize("token", [105_200_000, 105_200_000 + 3_600_000_000, 101_000_000])
def test_a_claim_is_judged_by_when_it_was_asked_for_whatever_its_token_says(
    judged: Callable[..., set[str]], token: int
) -> None:
    """The server's clock was right when it was given, an hour ahead, or behind: e7 was left behind by e8."""
    pushed = [f"105.{n - 7} opush e{n} accounts a5 {n} -" for n in (7, 8)]
    pushed += [f"105.1{n} oaccepted e{n}" for n in (7, 8)]
    spans = [f"105.3 ostart accounts a5 {token} -1 e8 asked={{}} begun=105.25", f"105.4 oend accounts a5 {token} ok"]
    spans += [f"106.3 ostart accounts a5 {token + 1} -1 e7", f"106.4 oend accounts a5 {token + 1} ok"]
    for asked, seen in ((105.2, True), (105.05, False)):  # before the push was answered
        found = judged(spans[0].format(asked), *spans[1:], attacks=tuple(pushed))
        assert (ORDER in found) is seen, asked
