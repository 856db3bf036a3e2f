"""Batches and results in ``fake`` and ``inline``: counted, called back and kept as on a server."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from henchman import App, BatchClosed, BatchError, Failure, JobFailed, Snooze, UnknownBatch, current_job, testing
from henchman.batch.batch import leases
from henchman.errors import HenchmanError


@dataclass
class Price:
    amount: Decimal
    day: dt.date


class Shop:
    """An app and what its jobs were called with."""

    def __init__(self) -> None:
        self.app = app = App(redis_url="redis://nobody.invalid:1")
        self.called: list[str] = []

        @app.job(name="work", retry=1, retry_in=10)
        def work(number: int) -> None:
            if number < 0:
                raise OSError("broken")
            if number == 0:
                raise Failure("no zero")

        @app.job(name="price", result_ttl=60)
        def price(amount: str) -> Price:
            if amount == "none":
                raise Failure("no price")
            return Price(Decimal(amount), dt.date(2030, 1, 1))

        self.work, self.price = work, price
        self.on_complete = app.job(name="complete")(self._callback("complete"))
        self.on_success = app.job(name="success")(self._callback("success"))
        self.on_death = app.job(name="death")(self._callback("death"))
        self.callbacks: dict[str, Any] = {
            "on_complete": self.on_complete,
            "on_success": self.on_success,
            "on_death": self.on_death,
        }

    def _callback(self, which: str) -> Callable[[str], None]:
        def callback(batch: str) -> None:
            self.called.append(which)

        return callback


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_batch_that_goes_well(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        with shop.app.batch("Import", tags=["x"], **shop.callbacks) as batch:
            shop.work.enqueue(1)
            shop.work.using(delay=60).enqueue(2)
            assert shop.work.enqueue_many([(3,), (4,)]).created == 2
            assert batch.status().state == "open"
        status = batch.status()
        assert (status.total, status.counts["enqueued"], status.counts["scheduled"]) == (4, 3, 1)
        assert (status.description, status.tags, status.state, status.done) == ("Import", ["x"], "closed", 0)
        with pytest.raises(BatchClosed):
            batch.add(shop.work, [(5,)])
        jobs.drain_all()
        assert batch.status().counts["finished"] == 3
        assert shop.called == []
        jobs.clock.advance(60)
        jobs.drain_all()
        assert shop.called == ["complete", "success"]
        jobs.assert_enqueued(shop.on_complete, batch.id, count=1)
        jobs.assert_not_enqueued(shop.on_death)
        assert (shop.app.batch_status(batch.id).state, batch.status().percent) == ("complete", 100.0)
        jobs.clear()
        with pytest.raises(UnknownBatch):
            batch.status()


def test_a_batch_with_failures_and_errors(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        with shop.app.batch("Import", **shop.callbacks) as batch:
            shop.work.enqueue_many([(1,), (0,), (-1,)])
        jobs.drain_all()
        assert batch.status().counts["retrying"] == 1
        assert shop.called == []
        jobs.drain_all(advance=True)
        assert sorted(shop.called) == ["complete", "death"]
        status = batch.status()
        assert (status.counts["finished"], status.counts["failed"], status.counts["error"]) == (1, 1, 1)
        assert {(one.status, one.reason) for one in status.reasons} == {("failed", "no zero"), ("error", "broken")}


def test_an_atomic_batch_waits_for_its_block_and_an_aborted_one_starts_nothing(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        with shop.app.batch("x", atomic=True) as batch:
            assert shop.work.enqueue(1).admission == "blocked"
            assert len(jobs) == 0
        assert jobs.drain_all().count("done") == 1
        assert batch.status().state == "complete"
        other = shop.app.batch("y", atomic=True, on_complete=shop.on_complete)
        with suppress(KeyError), other:
            shop.work.enqueue(2)
            raise KeyError
        assert [ran.name for ran in jobs.drain_all()] == ["complete"]
        assert (other.status().why, other.status().counts["cancelled"]) == ("aborted", 1)


def test_batches_in_batches_and_jobs_that_add_to_their_own(shop: Shop) -> None:
    @shop.app.job(name="more")
    def more() -> None:
        current_job().batch.add(shop.work, [(1,), (2,)])

    with testing.fake(shop.app) as jobs:
        with shop.app.batch("outer", on_success=shop.on_success) as outer:
            with shop.app.batch("inner") as inner:
                more.enqueue()
            assert inner.status().parent == outer.id
        jobs.drain_all()
        assert (inner.status().total, inner.status().state, outer.status().children) == (3, "complete", 1)
        assert (outer.status().state, shop.called) == ("complete", ["success"])


def test_awaited(shop: Shop) -> None:
    async def scene() -> None:
        async with shop.app.batch("x", on_complete=shop.on_complete) as batch:
            await batch.aadd(shop.work, [(1,), (2,)])
        await jobs.adrain_all()
        assert (await batch.astatus()).counts["finished"] == 2
        handle = await shop.price.aenqueue("1.5")
        await jobs.adrain_all()
        assert (await handle.aresult(timeout=1)).amount == Decimal("1.5")

    with testing.fake(shop.app) as jobs:
        asyncio.run(scene())
    assert shop.called == ["complete"]


def test_inline(shop: Shop) -> None:
    with testing.inline(shop.app) as jobs:
        with shop.app.batch("x", **shop.callbacks) as batch:
            shop.work.enqueue_many([(1,), (0,)])
            assert batch.status().counts["failed"] == 1
        assert shop.called == ["complete"]
        assert (batch.status().state, batch.status().done) == ("complete", 2)
        assert [ran.name for ran in jobs.ran] == ["work", "work", "complete"]
        with shop.app.batch("y", atomic=True, on_success=shop.on_success):
            shop.work.enqueue(3)
            assert len(jobs.ran) == 3
        assert shop.called == ["complete", "success"]
        assert shop.price.enqueue("2").result() == Price(Decimal(2), dt.date(2030, 1, 1))
        with pytest.raises(ConnectionError), shop.app.batch("z"):
            raise ConnectionError


def test_results(shop: Shop) -> None:
    @shop.app.job(name="snoozed", result_ttl=60)
    def snoozed() -> int:
        if current_job().last_checkpoint() is None:
            current_job().checkpoint(1)
            raise Snooze(5)
        return 7

    with testing.fake(shop.app) as jobs:
        handle, failed, late = shop.price.enqueue("1.50"), shop.price.enqueue("none"), snoozed.enqueue()
        with pytest.raises(HenchmanError, match="this job has not run, or it kept no result; drain first"):
            handle.result(timeout=5)
        jobs.drain_all()
        assert handle.result(timeout=5) == Price(Decimal("1.50"), dt.date(2030, 1, 1))
        assert shop.app.result(handle.jid, 5) == {"amount": "1.50", "day": "2030-01-01"}
        with pytest.raises(JobFailed, match="no price"):
            failed.result(timeout=5)
        jobs.drain_all(advance=True)
        assert late.result(timeout=5) == 7


def test_results_of_a_batch(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        with shop.app.batch("x", results=True) as batch:
            shop.price.enqueue_many([("1.50",), ("none",)])
            shop.work.enqueue(1)
            assert [one.status for one in batch.results()] == ["enqueued"] * 3
        jobs.drain_all()
        rows = list(batch.results())
        assert [one.status for one in rows] == ["finished", "failed", "finished"]
        assert (rows[0].value, rows[2].value) == (Price(Decimal("1.50"), dt.date(2030, 1, 1)), None)
        with pytest.raises(JobFailed, match="no price"):
            rows[1].value  # noqa: B018 - it raises
        assert [one.row for one in batch.results(shop.price)] == [0, 1]
        with shop.app.batch("y") as other:
            shop.work.enqueue(1)
        with pytest.raises(BatchError, match="keeps no results"):
            list(other.results())
        with pytest.raises(UnknownBatch):
            list(shop.app.get_batch("f" * 32).results())
        aborted = shop.app.batch("z", results=True, atomic=True)
        with suppress(KeyError), aborted:
            shop.work.enqueue(2)
            raise KeyError
        assert [one.status for one in aborted.results()] == ["cancelled"]


def test_results_of_a_batch_inline(shop: Shop) -> None:
    async def scene() -> list[str]:
        return [one.job async for one in batch.aresults()]

    with testing.inline(shop.app):
        with shop.app.batch("x", results=True) as batch:
            shop.price.enqueue_many([("1",), ("2",)])
            shop.app.get_batch(batch.id).add(shop.price, [("3",)])
        assert [one.value.amount for one in batch.results(shop.price)] == [1, 2, 3]
        assert asyncio.run(scene()) == ["price"] * 3


def test_what_takes_a_server(shop: Shop) -> None:
    for mode in (testing.fake, testing.inline):
        with mode(shop.app):  # type: ignore[operator]
            batch = shop.app.batch("x").open()
            for ask in (batch.cancel, batch.invalidate, shop.app.queues["q"].size):
                with pytest.raises(testing.NotFaked, match=r"testing\.worker"):
                    ask()
            batch.close()


def test_the_lease_of_a_batch_that_is_filled_for_long_is_renewed(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        with shop.app.batch("one") as one:
            leases.renew()
            with shop.app.batch("two") as two:  # one command is answered otherwise than several
                leases.renew()
                shop.work.enqueue(2)
        jobs.drain_all()
        assert (one.status().state, two.status().state) == ("complete", "complete")
