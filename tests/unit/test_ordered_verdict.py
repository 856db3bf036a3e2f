"""How the ids of a claim end: Lowkiq's arithmetic, and handlers of one's own that go wrong."""

from __future__ import annotations

from typing import Any

import pytest

from henchman import Failure, Snooze
from henchman.ordered.claim import Claim, OrderedRetryPolicy, retry_delay
from henchman.ordered.definition import OrderedOptions
from henchman.store.ordered import ClaimedId

JOB = {"class": "sync", "queue": "q", "args": [{}]}


class Told:
    """Calls handlers as the worker does: what raises is told, and answers nothing."""

    def __init__(self) -> None:
        self.broken: list[BaseException] = []
        self.deaths: list[dict[str, Any]] = []
        self.messages: list[str] = []

    def report(self, error: BaseException, facts: dict[str, Any]) -> None:
        self.messages.append(facts["message"])

    def call(self, handler: Any, *args: Any) -> Any:
        try:
            return handler(*args)
        except Exception as error:
            self.broken.append(error)
            return None

    def died(self, job: dict[str, Any], error: BaseException) -> None:
        self.deaths.append(job)


def claim(retry_count: int, *payloads: bytes) -> Claim:
    return Claim(7, [ClaimedId(b"x", retry_count, 0, [(float(n), one) for n, one in enumerate(payloads, 1)])])


@pytest.mark.parametrize("count", [0, 1, 5, 24])
def test_the_default_delay_is_lowkiqs(count: int) -> None:
    delays = {retry_delay(count) - count**4 - 15 for _ in range(1000)}
    assert delays <= {draw * (count + 1) for draw in range(30)}
    assert len(delays) > 20


@pytest.mark.parametrize(("most", "runs"), [(0, 1), (1, 2), (25, 26)])
def test_a_payload_runs_once_more_than_it_may_fail(most: int, runs: int) -> None:
    """max_retry_count + 1 in all, as there."""
    policy, count, ran = OrderedRetryPolicy(OrderedOptions(max_retries=most)), -1, 0
    while True:
        ran += 1
        one = claim(count, b"1")
        policy.ended(one, dict(JOB), {b"x": ValueError("no")}, Told())
        (verdict,) = one.verdicts or []
        if verdict.verdict == "to_morgue":
            break
        assert verdict.retry_count == count + 1
        count = verdict.retry_count
    assert ran == runs


def test_a_retry_in_that_raises_gives_the_default_delay_and_is_told() -> None:
    def broken(count: int) -> float:
        raise LookupError("mine")

    told, one = Told(), claim(-1, b"1")
    OrderedRetryPolicy(OrderedOptions(retry_in=broken)).ended(one, dict(JOB), {b"x": ValueError("no")}, told)
    (verdict,) = one.verdicts or []
    assert (verdict.verdict, 15 <= verdict.delay < 45) == ("retry", True)
    assert [str(error) for error in told.broken] == ["mine"]


def test_retries_exhausted_gets_the_lowest_payload_and_may_raise() -> None:
    got: list[Any] = []

    def broken(items: list[Any]) -> None:
        got.extend(items)
        raise LookupError("mine")

    told, one = Told(), claim(-1, b'{"v":1}', b'{"v":2}')
    policy = OrderedRetryPolicy(OrderedOptions(max_retries=0, retries_exhausted=broken))
    policy.ended(one, dict(JOB), {b"x": ValueError("no")}, told)
    assert got == [{"id": "x", "payloads": [[{"v": 1}, 1.0]], "error": "ValueError: no"}]
    assert (len(told.broken), len(told.deaths)) == (1, 1)
    ok = claim(-1, b"1")
    policy.ended(ok, dict(JOB), {}, told)
    assert len(got) == 1, "it is not called when nothing was buried"


def test_the_outcome_of_a_claim_speaks_of_its_worst_id() -> None:
    """Its ending, its delay and its reason are of one id, and no text has the name of the error's class twice."""
    errors = {b"a": Snooze(1), b"b": ConnectionError("no answer"), b"c": Failure("sold out")}
    one = Claim(7, [ClaimedId(name, -1, 0, [(1.0, b"1")]) for name in (*errors, b"d")])
    told = Told()
    outcome = OrderedRetryPolicy(OrderedOptions(retry_in=60)).ended(one, dict(JOB), errors, told)
    assert (outcome.ending, outcome.delay, outcome.error) == ("retry", 60, errors[b"b"])
    assert outcome.reason == "id 'b' and 2 more of 4: ConnectionError: no answer"
    assert told.messages == ["no answer"]
