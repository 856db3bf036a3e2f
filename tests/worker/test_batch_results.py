"""What the jobs of a batch returned, by a real worker: in the order of the rows, typed, no other ending left out."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
import threading
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from redis import Redis

from henchman import App, ArgumentError, DefinitionError, Discard, Failure, JobFailed, ResultError, current_job
from henchman.batch.auditor import APART, STILL, Auditor
from henchman.batch.batch import Batch
from henchman.batch.results import BatchResult
from henchman.errors import BatchError, ServerError, UnknownBatch
from henchman.store import batches
from henchman.worker import acker
from support.worker import until, working


@dataclass
class Price:
    sku: str
    amount: Decimal
    day: dt.date


def complete(batch: Batch, generation: int = 1) -> None:
    def is_complete() -> bool:
        status = batch.status()
        return status.state == "complete" and status.generation == generation

    until(is_complete, "the batch is complete")


def ran(app: App, batch: Batch) -> list[BatchResult[Any]]:
    """The rows of ``batch`` after a worker has run what there was."""
    with working(app):
        complete(batch)
    rows = list(batch.results())
    assert [one.row for one in rows] == list(range(len(rows)))
    assert len(rows) == batch.status().total
    return rows


def told(rows: list[BatchResult[Any]]) -> list[Any]:
    """The value of each row, or its status."""
    return [one.value if one.ok else one.status for one in rows]


def test_results_come_in_the_order_of_the_rows_though_jobs_end_in_any(app: App, redis: Redis) -> None:
    first_runs = threading.Event()

    @app.job(name="price")
    def price(n: int) -> Price:
        if n == 0:
            assert first_runs.wait(60), "others end before the first row does"
        time.sleep(random.random() / 500)
        if n > 3:
            first_runs.set()
        return Price(f"sku-{n}", Decimal(n) / 4, dt.date(2030, 1, 1) + dt.timedelta(n))

    with app.batch("prices", results=True) as batch:
        price.enqueue(0)
        price.enqueue_many((n,) for n in range(1, 50))
        for n in range(50, 60):
            price.enqueue(n)
    rows = ran(app, batch)
    assert [one.value.sku for one in rows] == [f"sku-{n}" for n in range(60)]
    assert rows[7].value == Price("sku-7", Decimal("1.75"), dt.date(2030, 1, 8)), "as the job is annotated"
    assert rows[7].json == b'{"sku":"sku-7","amount":"1.75","day":"2030-01-08"}'
    assert {(one.job, one.status, one.message, one.ok) for one in rows} == {("price", "finished", "", True)}
    assert len({one.jid for one in rows}) == 60
    assert redis.hlen(f"hm:batch:{batch.id}:results") == redis.llen(f"hm:batch:{batch.id}:rows") == 60
    assert not redis.exists(f"hm:batch:{batch.id}:jobs", "hm:broken")


def test_no_ending_is_left_out(app: App) -> None:
    @app.job(name="work", retry=1, retry_in=0)
    def work(n: int) -> Any:
        if n == 1:
            raise Failure("not eligible")
        if n == 2:
            raise ValueError("always")
        if n == 3 and current_job().attempt == 1:
            raise ValueError("once")
        if n == 4:
            raise Discard
        if n == 5:
            return object()
        if n == 6:
            return "x" * 65_535  # with its quotes 65,537
        if n == 7:
            return "x" * 65_534
        return None if n == 8 else n

    with app.batch(results=True) as batch:
        work.enqueue_many((n,) for n in range(9))
        app.enqueue("nobody.knows", retry=0)
        work.using(expires=0.001).enqueue(100)
    time.sleep(0.05)  # its time passes, by any clock
    rows = ran(app, batch)
    statuses = ["finished", "failed", "error", "finished", "cancelled", *["finished"] * 4, "error", "expired"]
    assert [one.status for one in rows] == statuses
    assert [one.ok for one in rows] == [n in (0, 3, 7, 8) for n in range(11)]
    assert (rows[0].value, rows[3].value, len(rows[7].value), rows[8].value) == (0, 3, 65_534, None)
    for place, error_class, message in ((1, "Failure", "not eligible"), (2, "ValueError", "always")):
        with pytest.raises(JobFailed, match=message) as failed:
            rows[place].value  # noqa: B018 - it raises
        assert (failed.value.jid, failed.value.error_class) == (rows[place].jid, error_class)
        assert (rows[place].message, rows[place].error_class) == (message, error_class)
    for place in (4, 9, 10):
        with pytest.raises(JobFailed):
            rows[place].value  # noqa: B018 - it raises
    assert (rows[9].job, rows[9].error_class) == ("nobody.knows", "UnknownJob")
    with pytest.raises(ResultError, match="its result cannot be kept"):
        rows[5].value  # noqa: B018 - it raises
    with pytest.raises(ResultError, match=r"returned 65,537 bytes of JSON, and a batch keeps at most 65,536 of a job"):
        rows[6].value  # noqa: B018 - it raises


def test_a_message_is_kept_in_part(app: App) -> None:
    @app.job(name="work")
    def work() -> None:
        raise Failure("é" * 5000)

    with app.batch(results=True) as batch:
        work.enqueue()
    [row] = ran(app, batch)
    assert row.message == "é" * 1000


def test_rows_that_have_not_ended_say_so(app: App, redis: Redis) -> None:
    go = threading.Event()

    @app.job(name="work")
    def work(n: int) -> int:
        if n == 1:
            assert go.wait(60)
        return n

    with app.batch(results=True) as batch:
        work.enqueue_many([(0,), (1,)])
        work.using(delay=3600).enqueue(2)
    assert told(list(batch.results())) == ["enqueued", "enqueued", "scheduled"]
    with working(app):
        until(lambda: batch.status().counts["working"] and batch.status().counts["finished"], "one of them runs")
        rows = list(batch.results())
        assert told(rows) == [0, "working", "scheduled"]
        with pytest.raises(ResultError, match="has not ended: it is working"):
            rows[1].value  # noqa: B018 - it raises
        go.set()
        until(lambda: batch.status().done == 2, "it has ended")
    assert told(list(batch.results())) == [0, 1, "scheduled"]


def test_of_several_jobs_each_is_as_its_own_annotation_says(app: App) -> None:
    @app.job(name="amount")
    def amount(n: int) -> Decimal:
        return Decimal(n)

    @app.job(name="day")
    async def day(n: int) -> dt.date:
        return dt.date(2030, 1, n)

    with app.batch(results=True) as batch:
        for n in (1, 2):
            amount.enqueue(n)
            day.enqueue(n)
    rows = ran(app, batch)
    assert told(rows) == [Decimal(1), dt.date(2030, 1, 1), Decimal(2), dt.date(2030, 1, 2)]
    assert [(one.row, one.value) for one in batch.results(day)] == [(1, dt.date(2030, 1, 1)), (3, dt.date(2030, 1, 2))]
    assert [one.value for one in batch.results(amount.using(queue="other"))] == [1, 2]
    stranger = App(redis_url=app.config.redis_url)
    assert told(list(stranger.get_batch(batch.id).results())) == ["1", "2030-01-01", "2", "2030-01-02"]

    @stranger.job(name="amount")
    def other(n: int) -> dt.date:
        return dt.date(2030, 1, n)

    changed = next(stranger.get_batch(batch.id).results(other))
    with pytest.raises(ResultError, match="its result is of another kind"):
        changed.value  # noqa: B018 - it raises
    stranger.close()
    for wrong in (5, "amount", amount.function):
        with pytest.raises(ArgumentError, match="give a job of the app"):
            list(batch.results(wrong))  # type: ignore[call-overload]


def test_awaited(app: App) -> None:
    @app.job(name="work")
    async def work(n: int) -> Decimal:
        return Decimal(n)

    async def push() -> Batch:
        async with app.batch(results=True) as batch:
            await batch.aadd(work, [(n,) for n in range(5)])
        await app.aclose()
        return batch

    async def read(batch: Batch) -> list[Decimal]:
        values = [one.value async for one in batch.aresults(work)]
        with pytest.raises(UnknownBatch):
            await anext(app.get_batch("f" * 32).aresults())
        await app.aclose()
        return values

    batch = asyncio.run(push())
    with working(app):
        complete(batch)
    assert asyncio.run(read(batch)) == [Decimal(n) for n in range(5)]


def test_jobs_that_are_added_from_inside_or_by_the_id_are_rows_too(app: App) -> None:
    @app.job(name="leaf")
    def leaf(n: int) -> int:
        return n

    @app.job(name="tree")
    def tree(n: int) -> str:
        current_job().batch.add(leaf, [(i,) for i in range(n)])
        return "tree"

    batch = app.batch(results=True).open()
    tree.using(batch=batch).enqueue(3)
    with working(app):
        until(lambda: batch.status().done == 4, "what was added has run")
        app.get_batch(batch.id).add(leaf, [(7,)])
        batch.close()
        complete(batch)
    assert told(list(batch.results())) == ["tree", 0, 1, 2, 7]


def test_a_retried_row_has_its_new_result_in_its_old_place(app: App, redis: Redis) -> None:
    healed = threading.Event()

    @app.job(name="work", retry=0)
    def work(n: int) -> int:
        if n % 2 and not healed.is_set():
            raise ValueError("not yet")
        return n

    with app.batch(results=True, keep=60) as batch:
        work.enqueue_many((n,) for n in range(4))
    assert told(ran(app, batch)) == [0, "error", 2, "error"]
    assert 0 < redis.ttl(f"hm:batch:{batch.id}:rows") <= 60
    assert batch.retry() == 2
    assert redis.ttl(f"hm:batch:{batch.id}:rows") == redis.ttl(f"hm:batch:{batch.id}:results") == -1
    assert told(list(batch.results())) == [0, "enqueued", 2, "enqueued"], "what it failed of is no more"
    healed.set()
    with working(app):
        complete(batch, 2)
    assert told(list(batch.results())) == [0, 1, 2, 3]


def test_an_atomic_batch_keeps_the_order_and_one_that_was_aborted_says_what_became_of_its_rows(app: App) -> None:
    @app.job(name="work")
    def work(n: int) -> int:
        return n

    with app.batch(results=True, atomic=True) as batch:
        work.enqueue_many((n,) for n in range(5))
        assert told(list(batch.results())) == ["blocked"] * 5
    assert told(ran(app, batch)) == [0, 1, 2, 3, 4]
    aborted = app.batch(results=True, atomic=True)
    with contextlib.suppress(KeyError), aborted:
        work.enqueue_many([(1,), (2,)])
        raise KeyError
    rows = list(aborted.results())
    assert [(one.status, one.message) for one in rows] == [("cancelled", "the batch was not released")] * 2


def test_a_cancelled_batch_keeps_what_had_ended(app: App) -> None:
    started, go = threading.Event(), threading.Event()

    @app.job(name="work")
    def work(n: int) -> int:
        if n == 1:
            started.set()
            assert go.wait(60)
        return n

    with app.batch(results=True) as batch:
        work.enqueue_many([(0,), (1,)])
        work.using(delay=3600).enqueue(2)
    with working(app):
        assert started.wait(60)
        until(lambda: batch.status().counts["finished"], "the first has ended")
        batch.cancel()
        go.set()
        complete(batch)
    rows = list(batch.results())
    assert rows[0].value == 0
    assert rows[2].status == "cancelled"
    assert rows[2].message == "its batch was cancelled"
    assert rows[1].status in ("finished", "cancelled"), "it ran when the batch was cancelled"


def test_what_left_without_a_word_says_so(app: App, redis: Redis) -> None:
    @app.job(name="work")
    def work(n: int) -> int:
        return n

    class Clock:
        now = 1000.0

        def __call__(self) -> float:
            return self.now

    with app.batch(results=True) as batch:
        work.enqueue_many([(0,), (1,)])
    redis.lpop("queue:default")  # the last row
    clock = Clock()
    auditor = Auditor(app, monotonic=clock)
    for later in (0.0, STILL + 1, APART + 1):
        clock.now += later
        auditor.audit()
    rows = list(batch.results())
    assert [one.status for one in rows] == ["enqueued", "error"]
    assert "left without a word" in rows[1].message


def test_when_keep_is_over_nothing_is_left(app: App, redis: Redis) -> None:
    @app.job(name="work")
    def work(n: int) -> int:
        return n

    with app.batch(results=True, keep=60) as batch:
        work.enqueue_many([(0,), (1,)])
    ran(app, batch)
    base = f"hm:batch:{batch.id}"
    assert 0 < redis.ttl(base) <= 60
    assert 3600 < redis.ttl(f"{base}:results") <= 3660, "the auditor unlinks them before"
    for key in (base, f"{base}:rows", f"{base}:lanes"):
        assert redis.pexpire(key, 1)
    until(lambda: not redis.exists(base), "its time is over")
    with pytest.raises(UnknownBatch):
        list(batch.results())
    assert app.audit().forgotten == 1
    assert list(redis.scan_iter(match="hm:batch*")) == []


def test_a_batch_without_results_keeps_none(app: App, redis: Redis) -> None:
    @app.job(name="work")
    def work(n: int) -> int:
        return n

    with app.batch() as batch:
        work.enqueue_many([(0,), (1,)])
        assert b'"results"' not in redis.lrange("queue:default", 0, 0)[0]
    with working(app):
        complete(batch)
    with pytest.raises(BatchError, match=r"keeps no results: make it with app\.batch\(…, results=True\)"):
        list(batch.results())
    assert not redis.exists(f"hm:batch:{batch.id}:rows", f"hm:batch:{batch.id}:results")
    with pytest.raises(UnknownBatch):
        list(app.get_batch("f" * 32).results())
    with pytest.raises(DefinitionError, match="results='yes'"):
        app.batch(results="yes")  # type: ignore[arg-type]


def test_an_empty_batch_has_no_rows(app: App) -> None:
    with app.batch(results=True) as batch:
        assert list(batch.results()) == []
    assert list(batch.results()) == []


def test_pages_end_at_4_mb_and_nothing_is_missed_between_them(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.job(name="work")
    def work(n: int) -> str:
        return f"{n}" + "é" * 30_000

    with app.batch(results=True) as batch:
        work.enqueue_many((n,) for n in range(200))
    with working(app):
        complete(batch)
    sizes: list[int] = []
    real = app.connections.run

    def counting(call: Any) -> Any:
        found = real(call)
        if call.name == "batch_results":
            sizes.append(sum(len(text) for _, _, text in found.rows))
        return found

    monkeypatch.setattr(app.connections, "run", counting)
    rows = batch.results()
    assert next(rows).row == 0
    assert len(sizes) == 1, "the next page is read when it is asked for"
    assert [one.value[:-30_000] for one in rows] == [f"{n}" for n in range(1, 200)]
    assert len(sizes) == 3
    assert all(4 << 20 <= size < (4 << 20) + 65_536 for size in sizes[:2])


def test_large_results_are_settled_a_few_at_a_time(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = acker.settle_units

    def counting(runtime: Any, identity: str, rows: Any) -> Any:
        calls.append(sum(len(row[0].payload) + len(row[4]) for row in rows))
        return real(runtime, identity, rows)

    monkeypatch.setattr(acker, "settle_units", counting)

    @app.job(name="work")
    def work(n: int) -> str:
        return "x" * 60_000

    with app.batch(results=True) as batch:
        work.enqueue_many((n,) for n in range(300))
    with working(app):
        complete(batch)
    assert sum(calls) > 300 * 60_000
    assert max(calls) < (4 << 20) + 200_000, "one call settles 4 MB and the row that reaches them"


def test_a_full_server_takes_no_new_rows_and_keeps_the_results_of_those_that_have_run(app: App, redis: Redis) -> None:
    run = threading.Event()

    @app.job(name="work", retry=0)
    def work(n: int) -> str:
        assert run.wait(60)
        if n == 3:
            raise ValueError("broken")
        return "x" * 10_000

    with app.batch(results=True) as batch:
        work.enqueue_many((n,) for n in range(20))
        with working(app):
            until(lambda: batch.status().counts["working"], "jobs run")
            redis.config_set("maxmemory", 1)
            try:
                with pytest.raises(ServerError, match="maxmemory"):
                    work.enqueue(20)
                run.set()
                until(lambda: batch.status().done == 20, "all have ended")
                assert [one.status for one in batch.results()] == ["error" if n == 3 else "finished" for n in range(20)]
            finally:
                redis.config_set("maxmemory", 0)
    assert [one.ok and len(one.value) for one in batch.results(work)] == [n != 3 and 10_000 for n in range(20)]
    assert not redis.exists("hm:broken")


def test_names_of_jobs_are_read_whatever_they_hold(app: App) -> None:
    """The record of a row begins with the name of its job, as JSON."""
    names = ['say "hi"', "back\\slash", "naïve", "a b"]
    with app.batch(results=True) as batch:
        for name in names:
            app.enqueue(name)
    assert [one.job for one in batch.results()] == names


def test_a_page_may_be_of_any_size(app: App) -> None:
    @app.job(name="work")
    def work(n: int) -> int:
        return n

    with app.batch(results=True) as batch:
        work.enqueue_many((n,) for n in range(70))
    with working(app):
        complete(batch)
    for first, most, wanted in ((0, 1, [0]), (31, 3, [31, 32, 33]), (69, 10, [69]), (70, 10, []), (0, 100, range(70))):
        page = app.connections.run(batches.results(app.keys, batch.id, first, most))
        assert page.total == 70
        assert [text for _, _, text in page.rows] == [b"=%d" % n for n in wanted]
