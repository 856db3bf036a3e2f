"""Ordered queues in users' tests: collected and drained by a clock, or run at once; nobody asks a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from henchman import (
    App,
    ArgumentError,
    Discard,
    Failure,
    Kill,
    Snooze,
    current_job,
    testing,
)
from henchman.errors import HenchmanError
from henchman.ordered.push import OrderedPush, OrderedPushed

START = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Price:
    amount: int


@pytest.fixture
def app() -> App:
    """An app whose server nobody may ask."""
    return App(redis_url="redis://nobody.invalid:1")


@pytest.fixture
def jobs(app: App) -> Iterator[testing.FakeJobs]:
    with testing.fake(app, clock=testing.Clock(START)) as collected:
        yield collected


class Shop:
    """An app with an ordered queue whose claims are kept; ``answer`` decides how one ends."""

    def __init__(self, app: App, **options: Any) -> None:
        self.claims: list[dict[str, list[Any]]] = []
        self.answer: Any = None

        @app.ordered(**{"name": "sync", "queue": "products", **options})
        def sync(claim: dict[str, list[Price]]) -> Any:
            self.claims.append({name: [one.amount for one in many] for name, many in claim.items()})
            return self.answer(claim) if callable(self.answer) else self.answer

        self.job: Any = sync

    def fail(self, error: BaseException) -> None:
        def answer(claim: Any) -> Any:
            raise error

        self.answer = answer


def test_pushes_are_collected(app: App, jobs: testing.FakeJobs) -> None:
    shop = Shop(app)
    assert shop.job.push(42, Price(5), score=2) == OrderedPush("42", "products", created=True)
    assert shop.job.push("42", Price(4), score=1, delay=60) == OrderedPush("42", "products", created=False)
    assert shop.job.push_many([(7, Price(1))]) == OrderedPushed(1, 1)
    first, second, _ = jobs.pushes(shop.job)
    assert (first.name, first.id, first.payload, first.score, first.at) == ("sync", "42", Price(5), 2.0, None)
    assert second.at == START + timedelta(seconds=60)
    assert jobs.waiting(shop.job) == {"42": [Price(4), Price(5)], "7": [Price(1)]}
    assert len(jobs) == 0, "those are plain jobs"
    jobs.assert_pushed(shop.job, 42)
    jobs.assert_pushed("sync", "42", Price(4), score=1, count=1, at=timedelta(seconds=60))
    jobs.assert_not_pushed(shop.job, 42, Price(6))
    jobs.assert_not_pushed(shop.job, 43)


def test_a_failed_assertion_says_what_there_was(app: App, jobs: testing.FakeJobs) -> None:
    shop = Shop(app)
    shop.job.push(42, Price(5), score=2)
    with pytest.raises(AssertionError) as told:
        jobs.assert_pushed(shop.job, 42, Price(6), score=2)
    assert str(told.value).splitlines() == [
        "expected a push of sync id='42' payload=Price(amount=6) score=2; found none",
        "pushed in all: 1",
        "  sync.push('42', Price(amount=5), score=2)  queue='products'",
    ]
    with pytest.raises(AssertionError, match="expected 2 pushes of sync id='42' payload=… score=…; found 1"):
        jobs.assert_pushed(shop.job, 42, count=2)
    with pytest.raises(AssertionError, match="expected no push of sync id='42'"):
        jobs.assert_not_pushed(shop.job, 42)
    with pytest.raises(ArgumentError, match="sync has an ordered queue: ask assert_pushed"):
        jobs.assert_enqueued(shop.job)
    plain = app.job(name="plain")(lambda: None)
    with pytest.raises(ArgumentError, match="has no ordered queue"):
        jobs.assert_pushed(plain, 1)  # type: ignore[arg-type]  # that is what is refused


def test_a_drain_claims_as_a_worker_does(app: App, jobs: testing.FakeJobs) -> None:
    shop = Shop(app, claim_size=2)
    shop.job.push_many([("b", Price(2), 2), ("a", Price(3), 3), ("b", Price(1), 1), ("c", Price(4))])
    shop.job.push("later", Price(5), delay=60)
    assert [one.ending for one in jobs.drain_all()] == ["done", "done"]
    assert shop.claims == [{"b": [1, 2], "a": [3]}, {"c": [4]}]
    assert jobs.waiting(shop.job) == {"later": [Price(5)]}
    jobs.clock.advance(60)
    assert jobs.drain(shop.job).count("done") == 1
    assert shop.claims[-1] == {"later": [5]}
    assert jobs.waiting(shop.job) == {}


@pytest.mark.parametrize(("collapse", "left"), [("min", [1, 3, 2]), ("latest", [2]), ("none", [1, 3, 1, 2])], ids=str)
def test_payloads_merge_as_on_the_server(app: App, jobs: testing.FakeJobs, collapse: str, left: list[int]) -> None:
    shop = Shop(app, collapse=collapse)
    shop.job.push_many([("a", Price(1), 2), ("a", Price(2), 3), ("a", Price(1), 1), ("a", Price(3), 1)])
    jobs.drain_all()
    assert shop.claims == [{"a": left}]


def test_an_id_that_fails_is_tried_again_by_the_clock_and_then_buried(app: App, jobs: testing.FakeJobs) -> None:
    exhausted: list[Any] = []
    shop = Shop(app, claim_size=5, max_retries=1, retry_in=30, retries_exhausted=exhausted.append)
    shop.answer = lambda claim: {"bad": ValueError("no")} if "bad" in claim else None
    shop.job.push_many([("bad", Price(1), 1), ("good", Price(2)), ("bad", Price(3), 3)])
    assert [one.ending for one in jobs.drain_all()] == ["retry"]
    assert jobs.waiting(shop.job) == {"bad": [Price(1), Price(3)]}, "its neighbour is done"
    shop.job.push("bad", Price(2), score=2)
    jobs.clock.advance(29)
    assert len(jobs.drain_all()) == 0, "new payloads wait with it"
    jobs.clock.advance(1)
    assert jobs.perform_one(shop.job).ending == "dead"
    assert jobs.morgue(shop.job) == {"bad": [Price(1)]}
    assert jobs.waiting(shop.job) == {"bad": [Price(2), Price(3)]}, "the rest goes on, with a fresh budget"
    assert [item["id"] for item in exhausted[0]] == ["bad"]
    shop.answer = None
    assert [one.ending for one in jobs.drain_all(advance=True)] == ["done"]
    assert jobs.waiting(shop.job) == {}


@pytest.mark.parametrize(
    ("error", "ending", "left"),
    [
        (Failure("no"), "failed", {}),
        (Discard("no"), "discarded", {}),
        (Snooze(30), "snoozed", {"a": [Price(1)]}),
        (Kill("no"), "dead", {}),
    ],
)
def test_a_claim_says_how_it_ends(
    app: App, jobs: testing.FakeJobs, error: BaseException, ending: str, left: dict[str, list[Price]]
) -> None:
    shop = Shop(app)
    shop.fail(error)
    shop.job.push("a", Price(1))
    assert [one.ending for one in jobs.drain_all()] == [ending]
    assert jobs.waiting(shop.job) == left
    assert jobs.morgue(shop.job) == ({"a": [Price(1)]} if ending == "dead" else {})


def test_what_arrives_while_an_id_runs_waits_for_its_turn(app: App, jobs: testing.FakeJobs) -> None:
    shop = Shop(app)
    shop.answer = lambda claim: shop.job.push("a", Price(2)) if claim["a"] == [Price(1)] else None
    shop.job.push("a", Price(1))
    jobs.drain_all(strict=True)
    assert shop.claims == [{"a": [1]}, {"a": [2]}]
    shop.answer = lambda claim: shop.job.push("a", Price(1))
    shop.job.push("a", Price(1))
    with pytest.raises(HenchmanError, match="5 jobs ran and there are still some"):
        jobs.drain_all(limit=5)
    assert jobs.waiting(shop.job) == {"a": [Price(1)]}


def test_clear_forgets_ordered_pushes_too(app: App, jobs: testing.FakeJobs) -> None:
    shop = Shop(app)
    shop.job.push("a", Price(1))
    jobs.clear()
    assert jobs.pushes() == []
    assert len(jobs.drain_all()) == 0


def test_async_handlers_run_in_the_tests_own_loop(app: App) -> None:
    loops: list[Any] = []

    @app.ordered(name="later")
    async def later(claim: dict[str, list[int]]) -> None:
        loops.append((asyncio.get_running_loop(), claim))

    async def go() -> None:
        with testing.fake(app, clock=testing.Clock(START)) as jobs:
            await later.apush("a", 1)
            assert (await jobs.adrain_all()).count("done") == 1
        with testing.inline(app):
            await later.apush("b", 2)
        assert loops == [(asyncio.get_running_loop(), {"a": [1]}), (asyncio.get_running_loop(), {"b": [2]})]

    asyncio.run(go())


def test_inline_runs_each_push_at_once(app: App) -> None:
    tokens: list[int | None] = []
    claims: list[Any] = []

    @app.ordered(name="It", queue="It")
    def it(claim: dict[str, list[Price]]) -> None:
        claims.append(claim)
        tokens.append(current_job().token)

    with testing.inline(app) as inline:
        assert it.push("a", Price(1)) == OrderedPush("a", "It", created=True)
        assert it.push_many([("a", Price(2)), ("b", Price(3))]).count == 2
        assert claims == [{"a": [Price(1)]}, {"a": [Price(2)]}, {"b": [Price(3)]}]
        assert [one.ending for one in inline.ran] == ["done"] * 3
    assert tokens == [1, 2, 3]


def test_inline_raises_what_is_an_error_and_tells_what_is_an_end(app: App) -> None:
    shop = Shop(app)
    with testing.inline(app) as inline:
        shop.fail(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            shop.job.push("a", Price(1))
        shop.answer = lambda claim: {"a": ValueError("of the id")}
        with pytest.raises(ValueError, match="of the id"):
            shop.job.push("a", Price(1))
        shop.fail(Failure("an answer"))
        shop.job.push("a", Price(1))
        assert inline.ran[-1].ending == "failed"
        shop.fail(Snooze(5))
        with pytest.raises(HenchmanError, match="put itself off 100 times"):
            shop.job.push("a", Price(1))
        tries = iter([Snooze(5), None])
        shop.answer = lambda claim: {"a": next(tries)}
        shop.job.push("a", Price(1))
        assert [one.ending for one in inline.ran[-2:]] == ["snoozed", "done"]


def test_tracked_queues_are_collected_and_run_like_others(app: App, jobs: testing.FakeJobs) -> None:
    shop = Shop(app, track=True, claim_size=5)
    first = shop.job.push("42", Price(17), score=2)
    shop.job.push_many([("42", Price(16), 1), ("43", Price(1))])
    assert first.jid is not None
    assert len(first.jid) == 24
    jobs.assert_pushed(shop.job, "42", Price(17), count=1)
    jobs.drain(shop.job)
    assert shop.claims == [{"42": [16, 17], "43": [1]}]


def test_tracked_queues_run_at_once_inline(app: App) -> None:
    with testing.inline(app):
        shop = Shop(app, track=True)
        shop.job.push("42", Price(17))
        assert shop.claims == [{"42": [17]}]
