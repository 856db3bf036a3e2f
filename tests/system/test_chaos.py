"""The chaos run, in short; and its judge, who must see each kind of harm in a ledger that was made to show it."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from support.worker import looker

CHAOS = Path(__file__).parents[2] / "chaos"


def chaos(*args: str, limit: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHAOS / "run.py"), *args]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit)


#: What no run may show. The other rules weigh moments of several processes against each other: on a machine that is
#: busy with other things the judge may miss a cause; then one of two more runs must pass whole.
NEVER = (
    *(
        "did not reach their end",
        "were not done",
        "that ran",
        "nobody pushed",
        "never pushed",
        "arguments arrived changed",
    ),
    *("two at once", "out of order", "exactly once", "left on the server"),
)


def proven(*args: str, limit: float) -> str:
    """What the first of at most three runs that passed has printed; what no run may show fails at once."""
    for seed in ("1", "2", "3"):
        run = chaos(*args, "--seed", seed, limit=limit)
        if run.returncode == 0:
            return run.stdout
        print(run.stdout, run.stderr)
        failed = [line for line in run.stdout.splitlines() if line.strip().startswith(("FAIL", "MISSED"))]
        if not failed or any(rule in line for rule in NEVER for line in failed):
            break
    pytest.fail(f"seed {seed}: {'; '.join(failed) or run.stderr[-2000:]}", pytrace=False)


@pytest.mark.scale("two minutes of attacks, and the judge weighs moments of several processes against each other")
@pytest.mark.timeout(2800)
def test_two_minutes_of_everything_lose_nothing() -> None:
    assert "CHAOS: PASSED" in proven("--minutes", "2", limit=900)


@pytest.mark.scale("a minute of attacks and a failover, weighed as above")
@pytest.mark.timeout(1900)
def test_a_failover_loses_nothing_that_the_replica_had_confirmed() -> None:
    assert "accepted but not confirmed by the replica" in proven("--failover", limit=600)


PRODUCED = [
    "100.0 push tiny-exact-1",
    "100.1 accepted tiny-exact-1",
    "100.0 push later-exact-2 delay=5",
    "100.1 accepted later-exact-2",
    "100.0 push flaky-exact-3 fails=1",
    "100.1 accepted flaky-exact-3",
    "100.0 push doomed-exact-4 delay=5",
    "100.1 accepted doomed-exact-4",
    "100.2 cancelling doomed-exact-4",
    "100.3 cancelled doomed-exact-4",
    "100.0 push brief-exact-5",
    "100.1 accepted brief-exact-5",
    "100.0 push killer-exact-6",
    "100.1 accepted killer-exact-6",
    "100.0 push tiny-exact-7",
    "100.1 refused tiny-exact-7",
]
WORKED = [
    "100.2 start tiny-exact-1 1 100.05 a",
    "100.3 end tiny-exact-1 1 ok",
    "105.2 start later-exact-2 1 105.1 b",
    "105.3 end later-exact-2 1 ok",
    "100.2 start flaky-exact-3 1 100.05 c",
    "100.3 end flaky-exact-3 1 ValueError",
    "101.4 start flaky-exact-3 2 101.3 c",
    "101.5 end flaky-exact-3 2 ok",
    "105.2 cancelled doomed-exact-4",
    "103.0 expired brief-exact-5",
    "100.2 start killer-exact-6 1 100.05 f",
    "100.3 end killer-exact-6 1 Kill",
]
DEAD = json.dumps({"args": ["killer-exact-6"]})


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with looker(redis_url) as client:
        client.zadd("dead", {DEAD: 100.3})
        client.mset({"stat:processed": 5, "stat:failed": 2})
        yield client


@pytest.fixture
def judgement(redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What the judge says of the ledger above, without some lines and with others."""
    monkeypatch.syspath_prepend(str(CHAOS))
    judge: Any = importlib.import_module("judge")
    history: Any = importlib.import_module("past")

    def look(
        *more: str,
        without: str = "?",
        attacks: tuple[str, ...] = (),
        unconfirmed: tuple[float, float] | None = None,
    ) -> Any:
        worked = [*(line for line in WORKED if without not in line), *more]
        for name, lines in (("producer-7-a", PRODUCED), ("worker-8-b", worked), ("chaos-9-c", attacks)):
            (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        return judge.Judgement(history.History(tmp_path), redis, unconfirmed)

    return look


@pytest.fixture
def judged(judgement: Callable[..., Any]) -> Callable[..., dict[str, list[str]]]:
    """The violations that the judge finds."""

    def look(*more: str, **how: Any) -> dict[str, list[str]]:
        return {rule: told for rule, told in judgement(*more, **how).violations.items() if told}

    return look


def test_the_judge_finds_nothing_in_a_good_ledger(judged: Callable[..., dict[str, list[str]]]) -> None:
    assert judged() == {}


@pytest.mark.parametrize(
    ("rule", "more", "without"),
    [
        ("accepted jobs that did not reach their end", (), "tiny-exact-1"),
        ("accepted jobs that did not reach their end", (), "end tiny-exact-1"),
        ("accepted jobs that did not reach their end", (), "flaky-exact-3 2"),
        ("accepted jobs that did not reach their end", (), "expired"),
        ("refused jobs that ran", ("100.2 start tiny-exact-7 1 100.0 g", "100.3 end tiny-exact-7 1 ok"), "?"),
        ("jobs that nobody pushed", ("100.2 start tiny-exact-8 1 100.0 h", "100.3 end tiny-exact-8 1 ok"), "?"),
        ("ran although cancelled or expired", ("105.2 start doomed-exact-4 1 105.1 d",), "?"),
        ("ran although cancelled or expired", ("103.2 start brief-exact-5 1 100.05 e",), "?"),
        ("started early", ("104.9 start later-exact-2 1 104.8 b", "105.0 end later-exact-2 1 ok"), "105."),
        ("started early", ("101.1 start flaky-exact-3 2 101.0 c", "101.2 end flaky-exact-3 2 ok"), "flaky-exact-3 2"),
        ("retries miscounted", ("103.4 start flaky-exact-3 3 103.3 c", "103.5 end flaky-exact-3 3 ok"), "?"),
        ("repeats without a cause", ("100.5 start tiny-exact-1 1 100.0 a", "100.6 end tiny-exact-1 1 ok"), "?"),
        ("arguments arrived changed", ("100.2 torn tiny-exact-1",), "?"),
    ],
)
def test_the_judge_sees_harm_in_the_ledger(
    judged: Callable[..., dict[str, list[str]]], rule: str, more: tuple[str, ...], without: str
) -> None:
    assert rule in judged(*more, without=without)


@pytest.mark.parametrize(
    ("rule", "harm"),
    [
        ("left on the server", ("rpush", "hm:flight:h:1:abcdefabcdef:1:fast", "x")),
        ("left on the server", ("rpush", "queue:fast", "x")),
        ("left on the server", ("zadd", "retry", {"{}": 1})),
        ("left on the server", ("rpush", "hm:broken", "x")),
        ("dead set", ("delete", "dead")),
        ("dead set", ("zadd", "dead", {'{"args": ["tiny-exact-1"]}': 1})),
        ("counters differ from the ledger", ("incr", "stat:processed")),
        ("counters differ from the ledger", ("decr", "stat:failed")),
    ],
)
def test_the_judge_sees_harm_on_the_server(
    judged: Callable[..., dict[str, list[str]]], redis: Redis, rule: str, harm: tuple[Any, ...]
) -> None:
    getattr(redis, harm[0])(*harm[1:])
    assert rule in judged()


def test_the_judge_counts_places_and_what_is_left_of_them(
    judged: Callable[..., dict[str, list[str]]], redis: Redis
) -> None:
    rule, keys = "limits: more ran at once than there are places", [f"capped-exact-{2 * one}" for one in range(10, 14)]
    pushed = tuple(f"100.0 push {key}" for key in keys) + tuple(f"100.1 accepted {key}" for key in keys)
    starts = tuple(f"100.{place + 2} start {key} 1 100.0 j{place}" for place, key in enumerate(keys))
    ends = tuple(f"101.{place} end {key} 1 ok" for place, key in enumerate(keys))
    assert rule in judged(*starts, *ends, attacks=pushed)
    early = ("100.45 end capped-exact-20 1 ok", *ends[1:])
    assert rule not in judged(*starts, *early, attacks=pushed), "the fourth began when the first had ended"
    frozen = (*pushed, "131.0 window stopped 100.25 130.9 8")
    assert rule not in judged(*starts, *ends, attacks=frozen), "what a zombie does does not count"
    left = "limits: places left on the server"
    assert left not in judged()
    redis.hset("hm:slots:capped:0", "jid", "1 100")
    assert left in judged()


def test_the_judge_holds_jobs_to_their_deadlines(judged: Callable[..., dict[str, list[str]]], redis: Redis) -> None:
    """Such a job runs in time, expires, or is dead because of its deadline."""
    late, causes = "deadlines: started after its deadline", "deadlines: dead for another reason"
    pushed = ("100.0 push pressed-exact-9", "100.1 accepted pressed-exact-9")
    assert late in judged("102.3 start pressed-exact-9 1 100.0 p", attacks=pushed)
    began = "101.0 start pressed-exact-9 1 100.0 p"
    lost = "accepted jobs that did not reach their end"
    assert lost in judged(began, attacks=pushed), "it was killed, and nobody knows how it ended"
    assert lost not in judged(began, "102.5 expired pressed-exact-9", attacks=pushed)
    dead = {"class": "pressed", "args": ["pressed-exact-9"], "error_cause": "deadline"}
    redis.zadd("dead", {json.dumps(dead, separators=(",", ":")): 100.4})
    found = judged(began, attacks=pushed)
    assert not {lost, late, causes, "dead set"} & found.keys()
    redis.zadd("dead", {json.dumps(dead | {"error_cause": "error"}, separators=(",", ":")): 100.4})
    assert causes in judged(began, attacks=pushed)


AGAINST_WILL = "ran although cancelled or expired"


def test_a_repeat_is_explained_by_a_kill_at_its_time_and_by_no_other(
    judged: Callable[..., dict[str, list[str]]],
) -> None:
    again = ("106.0 start long-exact-9 1 100.05 a", "109.0 end long-exact-9 1 ok")
    first = "100.2 start long-exact-9 1 100.05 a"
    pushed = ("100.0 push long-exact-9", "100.1 accepted long-exact-9")
    kill = "105.0 window kill 105.0 105.0 8"
    other = "105.0 window kill 105.0 105.0 77"
    rule = "repeats without a cause"
    assert rule not in judged(first, *again, attacks=(*pushed, kill))
    assert rule in judged(first, *again, attacks=(*pushed, other))
    ended = "104.0 end long-exact-9 1 ok"
    assert rule in judged(first, ended, *again, attacks=(*pushed, kill)), "it had ended a second before"
    for away, told in (("103.9 104.9", True), ("102.0 103.8", True), ("102.0 103.4", False), ("104.9 105.9", False)):
        gone = f"105.0 window away {away} all"  # the next try comes 1.5 s after that, at the latest
        assert (rule not in judged(first, ended, *again, attacks=(*pushed, kill, gone))) is told, away


@pytest.mark.parametrize(("back", "known"), [("103.0", True), ("103.9", False)])
def test_what_ends_before_the_next_try_makes_one_absence_of_two(
    judgement: Callable[..., Any], back: str, known: bool
) -> None:
    """The server was there for less than the time to the next try, and went away again until the kill."""
    ran = "100.2 start long-exact-9 1 100.05 a", "101.0 end long-exact-9 1 ok"
    pushed = ("100.0 push long-exact-9", "100.1 accepted long-exact-9")
    again = ("107.0 start long-exact-9 1 100.05 a", "109.0 end long-exact-9 1 ok")
    away = ("102.0 window away 100.9 102.0 all", f"105.0 window away {back} 105.0 all")
    repeats = judgement(*ran, attacks=(*pushed, *again, *away, "105.5 window kill 105.5 105.5 8")).repeats
    assert bool(repeats.unexplained) is not known
    assert repeats.causes == ({"kill: it had ended while the server was away": 1} if known else {})


def test_a_run_that_was_let_start_before_a_freeze_and_no_other_may_be_repeated_because_of_it(
    judged: Callable[..., dict[str, list[str]]],
) -> None:
    """Frozen between the worker's check and the job's first line: the line says when the check was."""
    pushed = ("100.0 push long-exact-9", "100.1 accepted long-exact-9", "131.0 window stopped 100.41 130.9 8")
    elsewhere = ("128.0 start long-exact-9 1 100.05 a", "129.0 end long-exact-9 1 ok")
    rule = "repeats without a cause"
    for begun, cause in (("begun=100.4", True), ("begun=130.91", False), ("", False)):
        late = (f"130.95 start long-exact-9 1 100.05 a {begun}".strip(), "130.96 end long-exact-9 1 ok")
        assert (rule not in judged(*late, attacks=(*pushed, *elsewhere))) is cause, begun


@pytest.mark.parametrize("cause", ["kill", "stopped", "orphaned"])
def test_what_the_server_has_confirmed_is_never_run_again(judgement: Callable[..., Any], cause: str) -> None:
    strike = f"100.5 window {cause} 100.301 100.5 8"
    pushed = ("100.0 push long-exact-9", "100.1 accepted long-exact-9", "100.5 window away 100.25 100.31 all", strike)
    elsewhere = ("106.0 start long-exact-9 1 100.05 a", "107.0 end long-exact-9 1 ok")
    ran = ("100.2 start long-exact-9 1 100.05 a", "100.3 end long-exact-9 1 ok")
    if cause == "orphaned":
        ran = (ran[0], "106.3 end long-exact-9 1 ok")
    assert judgement(*ran, "100.4 settled b", attacks=(*pushed, *elsewhere)).repeats.causes
    assert judgement(*ran, "100.4 settled b a", attacks=(*pushed, *elsewhere)).repeats.unexplained


@pytest.mark.parametrize(
    ("end", "away", "cause"),
    [
        ("101.0 end long-exact-9 1 ok", None, None),
        ("105.2 end long-exact-9 1 ok", None, "orphaned: it was running"),
        ("104.9 end long-exact-9 1 JobShutdown", None, "orphaned: it was running"),
        (None, None, "orphaned: it was running"),
        ("101.0 end long-exact-9 1 ok", "100.8 103.0", "orphaned: it had ended while the server was away"),
        ("101.0 end long-exact-9 1 ok", "102.0 103.0", None),
    ],
)
def test_an_orphan_repeats_what_it_cut_off_and_what_it_could_not_tell(
    judgement: Callable[..., Any], end: str | None, away: str | None, cause: str | None
) -> None:
    pushed = ("100.0 push long-exact-9", "100.1 accepted long-exact-9", "100.1 window orphaned 100.1 115.1 8")
    elsewhere = ("106.0 start long-exact-9 1 100.05 a", "107.0 end long-exact-9 1 ok")
    gone = (f"103.0 window away {away} all",) if away else ()
    ran = ("100.2 start long-exact-9 1 100.05 a", *([end] if end else []))
    repeats = judgement(*ran, attacks=(*pushed, *elsewhere, *gone)).repeats
    assert repeats.causes == ({cause: 1} if cause else {})
    assert bool(repeats.unexplained) is (cause is None)


@pytest.mark.parametrize(
    ("status", "window", "asked"),
    [
        (0, None, True),
        (-9, "kill", True),
        (-1, "kill", True),  # the kernel's, to a group that lost its parent
        (-1, "orphaned", False),
        (-9, None, False),
        (-1, None, False),
        (-11, "kill", False),
    ],
)
def test_an_orphan_whom_a_signal_ended_was_attacked(
    judged: Callable[..., dict[str, list[str]]], status: int, window: str | None, asked: bool
) -> None:
    attacks = (f"103.2 exit 18 {status}", *([f"103.3 window {window} 103.0 103.3 18"] if window else ()))
    assert ("orphans that nobody killed, and that a signal ended" not in judged(attacks=attacks)) is asked


def test_what_was_stopped_says_itself_what_it_told_too_late(judgement: Callable[..., Any]) -> None:
    ran = "100.2 start long-exact-9 1 100.05 a", "100.3 end long-exact-9 1 ok"
    late = "131.0 event late unit=Unit('a'_from_'fast') ending='done'"
    elsewhere = ("128.0 start long-exact-9 1 100.05 a", "129.0 end long-exact-9 1 ok")
    pushed = ("100.0 push long-exact-9", "100.1 accepted long-exact-9", *elsewhere)
    stopped, killed = (f"131.0 window {cause} 100.41 130.9 8" for cause in ("stopped", "kill"))
    too_late, busy = (
        "stopped: it had ended, and its word came too late",
        "it had ended 5 to 500 ms before (machine busy)",
    )
    for window, said, cause in (
        (stopped, late, too_late),
        (stopped, "131.0 event late unit=Unit('x'_from_'fast') ending='done'", f"stopped: {busy}"),
        (killed, late, f"kill: {busy}"),
    ):
        assert judgement(*ran, said, attacks=(*pushed, window)).repeats.causes == {cause: 1}
    nobody = judgement(*ran, late, attacks=pushed)
    assert nobody.repeats.unexplained, "a late word alone is no cause"


def test_a_job_that_was_let_start_in_time_has_not_expired(judged: Callable[..., dict[str, list[str]]]) -> None:
    ran = "105.0 start brief-exact-5 1 100.05 e begun={}", "105.1 end brief-exact-5 1 ok"
    assert AGAINST_WILL not in judged(ran[0].format(102.04), ran[1])
    assert AGAINST_WILL in judged(ran[0].format(102.2), ran[1])


RAN_CANCELLED = ("105.2 start doomed-exact-4 1 105.1 d", "105.3 end doomed-exact-4 1 ok")  # cancelled at 100.3


def test_a_cancellation_that_no_replica_had_confirmed_may_be_lost_and_is_counted(judgement: Callable[..., Any]) -> None:
    verdict = judgement(*RAN_CANCELLED, without="cancelled doomed", unconfirmed=(100.25, 101.0))
    assert not any(verdict.violations.values())
    assert verdict.facts["cancelled but not confirmed by the replica"] == "1, ran all the same 1"
    assert verdict.facts["accepted but not confirmed by the replica"] == "0, lost 0"


@pytest.mark.parametrize("unconfirmed", [(100.4, 101.0), (99.0, 99.9)], ids=["confirmed before", "on the new server"])
def test_one_that_was_confirmed_may_not(judgement: Callable[..., Any], unconfirmed: tuple[float, float]) -> None:
    verdict = judgement(*RAN_CANCELLED, without="cancelled doomed", unconfirmed=unconfirmed)
    assert [rule for rule, found in verdict.violations.items() if found] == [AGAINST_WILL]
    assert verdict.facts["cancelled but not confirmed by the replica"] == "0, ran all the same 0"


def test_a_confirmed_job_ends_in_one_way_or_the_other_when_its_cancellation_was_not(
    judged: Callable[..., dict[str, list[str]]],
) -> None:
    found = judged(without="doomed", unconfirmed=(100.25, 101.0))
    assert list(found) == ["accepted jobs that did not reach their end"]


def test_a_push_that_no_replica_had_confirmed_may_be_lost_and_is_counted(judgement: Callable[..., Any]) -> None:
    verdict = judgement(without="later", unconfirmed=(100.05, 101.0))
    assert not any(verdict.violations.values())
    assert verdict.facts["accepted but not confirmed by the replica"] == "6, lost 1"


EARLY = "started early"


@pytest.mark.parametrize(
    ("steps", "seen"),
    [
        ((), True),
        (("102.0 stepped 102.0 102.1 60", "104.0 stepped 104.0 104.1 0"), False),  # then it was due, by the server
        (("102.0 stepped 102.0 102.1 0.5", "104.0 stepped 104.0 104.1 0"), True),
        (("102.0 stepped 102.0 102.1 -60", "104.0 stepped 104.0 104.1 0"), True),
        (("104.95 stepped 104.95 105.0 60", "110.0 stepped 110.0 110.1 0"), True),  # it had started before
        (("90.0 stepped 90.0 90.1 60", "95.0 stepped 95.0 95.1 0"), True),
        (("99.0 stepped 99.0 99.1 60", "100.05 stepped 100.05 100.06 0"), False),  # pushed by either
        (("99.0 stepped 99.0 99.1 -60", "100.2 stepped 100.2 100.3 0"), False),
    ],
)
def test_what_is_early_goes_by_the_server_s_clock(
    judged: Callable[..., dict[str, list[str]]], steps: tuple[str, ...], seen: bool
) -> None:
    """A job of the schedule, due at 105.0, that started at 103.9."""
    late = ("103.9 start later-exact-2 1 103.8 b", "103.95 end later-exact-2 1 ok")
    assert (EARLY in judged(*late, without="later-exact-2", attacks=steps)) is seen


def test_a_retry_is_early_unless_the_server_s_clock_was_stepped(judged: Callable[..., dict[str, list[str]]]) -> None:
    retry = ("100.9 start flaky-exact-3 2 100.8 c", "101.5 end flaky-exact-3 2 ok")
    assert EARLY in judged(*retry, without="flaky-exact-3 2")
    for ahead, at, noticed, seen in (
        (20, 100.5, 101.0, False),
        (-20, 99.5, 100.3, False),
        (-20, 97.5, 98.0, True),
        (-20, 97.5, 100.1, False),  # while that was moved along
        (-20, 97.5, 100.3, False),  # what was written before that may have been taken for something from before
        (-20, 80.0, 100.3, True),  # so late is never
        (20, 101.0, 101.5, True),
    ):
        step = (f"{at} stepped {at} {at + 0.1:.1f} {ahead}", "105.5 stepped 105.5 105.6 0")
        lines = (*step, f"{noticed} event clock_stepped seconds={ahead}", "105.7 event clock_stepped seconds=0")
        found = judged(*retry, without="flaky-exact-3 2", attacks=lines)
        assert (EARLY in found) is seen, (ahead, at, noticed)


TOO_SOON = "expired before its time"


def test_a_job_expires_by_the_server_s_clock_alone(judged: Callable[..., dict[str, list[str]]]) -> None:
    """Pushed at 100.0, to expire at 102.0: a host that is ahead must not drop it at 101.5."""
    on = ("101.0 stepped 101.0 101.1 20", "106.0 stepped 106.0 106.1 0")
    slow = ("100.5 window delayed 99.0 101.0 8",)
    assert TOO_SOON in judged("101.5 expired brief-exact-5", without="expired")
    assert TOO_SOON not in judged("101.95 expired brief-exact-5", without="expired"), "clocks are known to 0.1 s"
    assert TOO_SOON not in judged("101.5 expired brief-exact-5", without="expired", attacks=on)
    assert TOO_SOON not in judged("101.5 expired brief-exact-5", without="expired", attacks=slow)
    assert AGAINST_WILL not in judged("104.0 start brief-exact-5 1 100.05 e", attacks=on), "it was stepped meanwhile"
    assert AGAINST_WILL in judged("104.8 start brief-exact-5 1 100.05 e", attacks=slow), "more than slowness explains"


def test_answers_that_come_late_explain_ends_that_were_not_told_yet(judgement: Callable[..., Any]) -> None:
    pushed = ("100.0 push long-exact-9", "100.1 accepted long-exact-9", "105.0 window kill 105.0 105.0 8")
    ran = ("100.2 start long-exact-9 1 100.05 a", "104.4 end long-exact-9 1 ok")
    elsewhere = ("106.0 start long-exact-9 1 100.05 a", "109.0 end long-exact-9 1 ok")
    for window, cause in (
        (("100.0 window delayed 100.0 104.5 8",), {"kill: it had ended while answers came late": 1}),
        (("100.0 window delayed 100.0 104.3 8",), {}),
        (("100.0 window delayed 100.0 104.5 77",), {}),
        ((), {}),
    ):
        assert judgement(*ran, *elsewhere, attacks=(*pushed, *window)).repeats.causes == cause
    ran = ("100.2 start long-exact-9 1 100.05 a", "104.2 end long-exact-9 1 ok")
    slow = "100.0 window delayed 100.0 104.7 8"
    assert judgement(*ran, *elsewhere, attacks=(*pushed, slow)).repeats.unexplained, "0.8 s is too long"


def test_an_attempt_may_end_in_its_time_out_before_its_first_line(judged: Callable[..., dict[str, list[str]]]) -> None:
    pushed = ("100.0 push slowpoke-exact-9", "100.1 accepted slowpoke-exact-9")
    first = ("100.2 start slowpoke-exact-9 1 100.05 a", "100.8 end slowpoke-exact-9 1 JobTimeout")
    lost, miscounted = "accepted jobs that did not reach their end", "retries miscounted"
    assert lost in judged(*first, attacks=pushed)
    assert lost not in judged(*first, "102.3 struck slowpoke-exact-9 2", attacks=pushed)
    second = ("102.0 start slowpoke-exact-9 2 101.9 a", "102.8 end slowpoke-exact-9 2 JobTimeout")
    assert miscounted in judged(*second, attacks=pushed)
    assert miscounted not in judged(*second, "100.8 struck slowpoke-exact-9 1", attacks=pushed)
    assert miscounted in judged(*first, *second, "104.8 struck slowpoke-exact-9 3", attacks=pushed)


def test_hostile_payloads_excuse_nothing_but_counts(judged: Callable[..., dict[str, list[str]]], redis: Redis) -> None:
    counters, told = "counters differ from the ledger", "110.0 hostile 2"
    redis.zadd("dead", {'{"class":"InvalidPayload","args":["x"]}': 1, '{"class":"x","args":[1],"jid":"hostile1"}': 1})
    redis.incr("stat:processed", 2)
    assert counters in judged()
    assert judged(attacks=(told,)) == {}
    redis.incr("stat:processed", 7)
    assert counters in judged(attacks=(told,))
    assert judged("101.0 hostilerun", attacks=(told,)) == {}, "one that raises is tried again as long as it likes"
    redis.decr("stat:processed", 20)
    assert counters in judged(attacks=(told,)), "never fewer"
    redis.zadd("dead", {'{"class":"tiny","args":["tiny-exact-1"]}': 1})
    assert "dead set" in judged(attacks=(told,))


def test_the_verdict_counts_what_jobs_attack_and_names_what_is_left_out(
    judgement: Callable[..., Any], tmp_path: Path
) -> None:
    verdict: Any = importlib.import_module("verdict")
    struck = [
        *(f"100.0 push {key}" for key in ("huge-exact-8", "chatty-exact-9")),
        *(f"100.1 accepted {key}" for key in ("huge-exact-8", "chatty-exact-9")),
        *("100.2 start huge-exact-8 1 100.05 h", "100.4 end huge-exact-8 1 ok"),
        *("100.2 start chatty-exact-9 1 100.05 i", "100.5 end chatty-exact-9 1 JobTimeout"),
    ]
    everything = dict.fromkeys((*verdict.ATTACKS, *verdict.PARTS), "no reason")

    def told(*lines: str) -> str:
        text: str = verdict.page(judgement(*lines), "again", 1, tmp_path, left_out=everything)
        return text

    assert "LEFT OUT SCRIPT FLUSH: no reason" in told(*struck)
    assert "MISSED" not in told(*struck)
    assert "MISSED payloads of 3 MB: 0 hits in 1 minute" in told(*struck[:5], *struck[6:])
    assert "MISSED time-outs that strike while a job logs" in told(*struck[:-1])


def test_a_suspended_host_has_a_monotonic_clock_that_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CHAOS))
    suspended: Any = importlib.import_module("suspended")
    code = "import json, sys, time, suspended; suspended.watch(sys.argv[1]); print('ready', flush=True)\n"
    code += "for line in sys.stdin: print(json.dumps([time.monotonic(), time.clock_gettime(time.CLOCK_MONOTONIC),\n"
    code += "    time.monotonic(), suspended.true_monotonic(float(line))]), flush=True)"
    host = suspended.Suspension(tmp_path / "host")
    with subprocess.Popen(
        [sys.executable, "-c", code, str(host.path)],
        cwd=CHAOS,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        def ask(moment: float) -> tuple[float, float, float, float]:
            print(moment, file=process.stdin, flush=True)
            shown, true, later, before = json.loads(process.stdout.readline())
            return shown, true, later, before

        first, true, later, _ = ask(0.0)
        assert first <= true <= later, "nothing is lost"
        least = most = 0.0  # for which it stood
        for _ in range(2):
            process.send_signal(signal.SIGSTOP)
            most -= time.monotonic()
            host.begin()
            least -= time.monotonic()
            time.sleep(0.5)
            least += time.monotonic()
            host.end()
            most += time.monotonic()
            process.send_signal(signal.SIGCONT)
            shown, true, later, before = ask(first)
            assert shown + least <= true <= later + most
            assert before == first, "what was read before it stood"
            assert shown + least <= ask(shown)[3] <= shown + most
        process.stdin.close()
