"""testing.fake: pushes are collected and run by a clock that moves when told."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from henchman import App, ArgumentError, Discard, Failure, IterableJob, Kill, Snooze, current_job, testing
from henchman.errors import HenchmanError

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def app() -> App:
    """An app whose server nobody may ask."""
    return App(redis_url="redis://nobody.invalid:1")


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock(START)


@pytest.fixture
def jobs(app: App, clock: testing.Clock) -> Iterator[testing.FakeJobs]:
    with testing.fake(app, clock=clock) as collected:
        yield collected


def endings(drained: testing.Drained) -> list[str]:
    return [one.ending for one in drained]


def test_pushes_are_collected_with_decoded_arguments(app: App, jobs: testing.FakeJobs) -> None:
    @app.job(name="pay", queue="money")
    def pay(amount: Decimal, *, to: str = "bank") -> None: ...

    handle = pay.enqueue(Decimal("1.50"), to="me")
    pay.using(delay=60, tags=["vip", "eu"], queue="later").enqueue(Decimal(2))
    pay.enqueue_many([(Decimal(3),)])
    app.enqueue("HardJob", "bob", 5, queue="ruby")
    first, second, *_ = jobs
    assert (first.name, first.args, first.kwargs) == ("pay", (Decimal("1.50"),), {"to": "me"})
    assert (first.jid, first.queue, first.at, first.place) == (handle.jid, "money", None, "queue")
    assert first.payload["created_at"] == START.timestamp()
    assert (second.queue, second.tags, second.at) == ("later", ("vip", "eu"), START + timedelta(seconds=60))
    assert len(jobs) == 4
    assert [one.args for one in jobs.of("HardJob")] == [("bob", 5)]
    assert [one.args for one in jobs.of(pay)] == [(Decimal("1.50"),), (Decimal(2),), (Decimal(3),)]
    assert jobs.list(pay, args=pay.call(Decimal("1.50"), to="me")) == [first]
    assert jobs.list(pay, args=(Decimal(2),)) == [second]
    assert jobs.list(tags=["vip"]) == jobs.list(queue="later") == [second]
    assert jobs.list(at=timedelta(minutes=1)) == jobs.list(at=START + timedelta(seconds=60)) == [second]
    assert jobs.list(at=START) == []
    with pytest.raises(ArgumentError, match="give that too"):
        jobs.list(args=(1,))
    jobs.clear()
    assert len(jobs) == len(jobs.pushed) == 0


def test_a_drain_runs_what_is_due_and_what_that_enqueues(app: App, jobs: testing.FakeJobs) -> None:
    got: list[str] = []

    @app.job(name="child")
    async def child(word: str) -> None:
        await asyncio.sleep(0)
        got.append(word)

    @app.job(name="parent")
    def parent(more: int) -> int:
        got.append(f"parent {more}")
        child.enqueue(f"of {more}")
        if more:
            parent.enqueue(more - 1)
        return more

    parent.enqueue(1)
    child.using(delay=10).enqueue("later")
    app.enqueue("HardJob")  # for a worker in another language
    assert [one.result for one in jobs.drain(parent)] == [1, 0]
    assert got == ["parent 1", "parent 0"]
    assert len(jobs.of(child)) == 3
    assert jobs.drain_all().count("done") == 2
    assert got[2:] == ["of 1", "of 0"]
    jobs.clock.advance(9.9)
    assert len(jobs.drain_all()) == 0
    jobs.clock.advance(0.1)
    assert endings(jobs.drain_all()) == ["done"]
    assert [one.name for one in jobs] == ["HardJob"]
    jobs.assert_enqueued(child, "of 1")  # pushes are remembered after they ran


def test_one_at_a_time(app: App, jobs: testing.FakeJobs) -> None:
    @app.job(name="one")
    def one(number: int) -> int:
        return number

    one.enqueue_many([(1,), (2,)])
    one.using(queue="other").enqueue(3)
    assert jobs.perform_one().result == 1
    assert jobs.perform_one(queue="other").result == 3
    assert asyncio.run(jobs.aperform_one(one)).result == 2
    with pytest.raises(LookupError, match="nothing waits"):
        jobs.perform_one()
    one.using(delay=30).enqueue(4)
    with pytest.raises(LookupError, match=r"1 wait; the next is due in 30\.0 s"):
        jobs.perform_one(one)


def test_retries_as_a_worker_would(app: App, jobs: testing.FakeJobs, clock: testing.Clock) -> None:
    attempts: list[tuple[int, Any]] = []
    told: list[Any] = []
    app.error_handlers.append(lambda error, facts: told.append(str(error)))
    app.death_handlers.append(lambda job, error: told.append(f"death of {job['class']}"))

    @app.job(name="boom", retry=2, retry_in=lambda count: 100 * (count + 1))
    def boom() -> None:
        job = current_job()
        attempts.append((job.attempt, job.payload.get("failed_at")))
        raise ValueError(f"attempt {job.attempt}")

    boom.enqueue()
    drained = jobs.drain_all()
    assert endings(drained) == ["retry"]
    assert [str(error) for error in drained.errors] == ["attempt 1"]
    [retry] = jobs.retries
    assert retry.at == START + timedelta(seconds=100)
    assert retry.payload["error_message"] == "attempt 1"
    clock.advance(99)
    assert len(jobs.drain_all()) == 0
    clock.advance(timedelta(seconds=1))
    with pytest.raises(ValueError, match="attempt 2"):
        jobs.drain_all(strict=True)
    assert jobs.retries[0].at == START + timedelta(seconds=300)
    assert endings(jobs.drain_all(advance=True)) == ["dead"]
    assert clock.now() == START + timedelta(seconds=300)
    assert attempts == [(1, None), (2, START.timestamp()), (3, START.timestamp())]
    assert told == ["attempt 1", "attempt 2", "attempt 3", "death of boom"]
    [dead] = jobs.dead
    assert (dead.place, dead.payload["retry_count"], len(jobs)) == ("dead", 2, 0)


def test_retry_for_goes_by_the_clock(app: App, jobs: testing.FakeJobs, clock: testing.Clock) -> None:
    @app.job(name="boom", retry_for=3600, retry_in=1000)
    def boom() -> None:
        raise ValueError

    boom.enqueue()
    assert endings(jobs.drain_all(advance=True)) == ["retry"] * 4 + ["dead"]
    assert clock.now() == START + timedelta(seconds=4000)


def test_every_ending(app: App, jobs: testing.FakeJobs, clock: testing.Clock) -> None:
    snoozes = [Snooze(60)]

    @app.job(name="end")
    def end(how: str) -> None:
        if how == "snooze":
            if snoozes:
                raise snoozes.pop()
            return
        raise {"failure": Failure("no"), "discard": Discard(), "kill": Kill("enough"), "gone": OSError()}[how]

    for how in ("failure", "discard", "kill", "snooze"):
        end.enqueue(how)
    end.using(retry=False).enqueue("gone")
    drained = jobs.drain_all()
    assert endings(drained) == ["failed", "discarded", "dead", "snoozed", "gone"]
    assert [type(error) for error in drained.errors] == [Kill, OSError]
    assert [(one.place, one.at) for one in jobs] == [("schedule", START + timedelta(minutes=1))]
    clock.advance(60)
    assert endings(jobs.drain_all()) == ["done"]


def test_expiry_counts_from_when_a_job_became_due(app: App, jobs: testing.FakeJobs, clock: testing.Clock) -> None:
    @app.job(name="brief", expires=120)
    def brief() -> None: ...

    brief.enqueue()
    brief.using(delay=60).enqueue()
    brief.using(delay=100).enqueue()
    clock.advance(200)
    assert endings(jobs.drain_all()) == ["expired", "expired", "done"]


def test_cancelled_before_it_started(app: App, jobs: testing.FakeJobs) -> None:
    @app.job(name="job")
    def job() -> None: ...

    handle = job.enqueue()
    handle.cancel()
    asyncio.run(job.enqueue().acancel())
    job.enqueue()
    assert endings(jobs.drain_all()) == ["cancelled", "cancelled", "done"]


def test_middleware_sees_due_jobs_too(app: App, jobs: testing.FakeJobs, clock: testing.Clock) -> None:
    seen: list[Any] = []

    @app.client_middleware.add
    def stamp(job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        seen.append(job["args"])
        return call_next() if job["args"] != [0] or len(seen) == 1 else None

    @app.job(name="job")
    def job(number: int) -> int:
        return number

    job.using(delay=5).enqueue(0)
    job.using(delay=5).enqueue(1)
    clock.advance(5)
    assert [one.result for one in jobs.drain_all()] == [1]
    assert seen == [[0], [1], [0], [1]]
    assert jobs.dead[0].payload["error_class"] == "PushStopped"


def test_a_clock_in_the_past_decides_what_is_due(app: App) -> None:
    clock = testing.Clock()
    clock.travel_to(datetime(2020, 1, 1, tzinfo=UTC))

    @app.job(name="job")
    def job() -> None: ...

    with testing.fake(app, clock=clock) as jobs:
        job.using(at=datetime(2020, 1, 2, tzinfo=UTC)).enqueue()
        job.using(at=datetime(2019, 1, 2, tzinfo=UTC)).enqueue()
        assert [one.place for one in jobs] == ["schedule", "queue"]
        assert len(jobs.drain_all()) == 1
        clock.travel_to(datetime(2020, 1, 2, tzinfo=UTC))
        assert len(jobs.drain_all()) == 1


def test_a_clock_that_nobody_told_goes_with_the_worlds() -> None:
    clock = testing.Clock()
    before = datetime.now(UTC)
    assert before <= clock.now() <= datetime.now(UTC)
    clock.advance(3600)
    assert clock.now() >= before + timedelta(hours=1)
    clock.reach(before.timestamp() + 7200)
    assert before + timedelta(hours=2) <= clock.now() < before + timedelta(hours=2, minutes=5)
    for wrong in (-1, float("nan")):
        with pytest.raises(ArgumentError, match="travel_to"):
            clock.advance(wrong)
    with pytest.raises(ArgumentError, match="time zone"):
        clock.travel_to(datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point


def test_a_job_that_enqueues_itself_for_ever(app: App, jobs: testing.FakeJobs) -> None:
    @app.job(name="ever")
    def ever() -> None:
        ever.enqueue()

    ever.enqueue()
    with pytest.raises(HenchmanError, match=r"20 jobs ran and there are still some \(next: ever\(\)"):
        jobs.drain_all(limit=20)
    assert len(jobs) == 1


def test_what_is_meant_for_the_test_goes_to_the_test(app: App, jobs: testing.FakeJobs) -> None:
    @app.job(name="asks")
    def asks() -> None:
        app.job_status("0" * 24)

    @app.job(name="stops")
    def stops() -> None:
        pytest.fail("from within")

    asks.enqueue()
    with pytest.raises(testing.NotFaked, match=r"testing\.fake catches pushes"):
        jobs.drain_all()
    stops.enqueue()
    with pytest.raises(pytest.fail.Exception, match="from within"):
        jobs.drain(stops)
    assert len(jobs) == 2  # nothing was lost
    with pytest.raises(testing.NotFaked, match="needs a server: SMEMBERS queues"):
        list(app.queues)


def test_a_run_ends_and_is_announced_as_on_a_worker(app: App, jobs: testing.FakeJobs) -> None:
    @app.job(name="slow", timeout=0.001, retry=0)
    def slow() -> None:
        time.sleep(0.01)

    @app.job(name="late", expires=5, retry=0)
    def late() -> None: ...

    heard: list[tuple[str, str]] = []
    app.events.on("job_start", lambda run, **facts: heard.append(("start", run.name)))
    app.events.on("job_failed", lambda run, outcome, **facts: heard.append((outcome.ending, run.name)))
    slow.enqueue()
    assert [(one.ending, one.reason) for one in jobs.drain_all()] == [
        ("dead", "the job ran longer than its timeout of 0.001 s")
    ]
    late.enqueue()
    jobs.clock.advance(10)
    assert endings(jobs.drain_all()) == ["expired"]
    assert heard == [("start", "slow"), ("dead", "slow"), ("expired", "late")]


def test_awaited_drains_run_in_the_tests_loop(app: App, jobs: testing.FakeJobs) -> None:
    @app.job(name="where")
    async def where() -> int:
        return id(asyncio.get_running_loop())

    async def scene() -> None:
        await where.aenqueue()
        await where.aenqueue_many([()])
        here = id(asyncio.get_running_loop())
        assert [one.result for one in await jobs.adrain(where, limit=2)] == [here, here]
        where.enqueue()
        assert [one.result for one in await jobs.adrain_all()] == [here]
        where.enqueue()
        assert [one.result for one in jobs.drain_all()] != [here]
        await app.aclose()
        await where.aenqueue()

    asyncio.run(scene())
    assert len(jobs) == 1


def test_iterable_jobs_go_on_where_they_were(app: App, jobs: testing.FakeJobs) -> None:
    done: list[int] = []

    @app.iterable(name="numbers", retry_in=30)
    class Numbers(IterableJob[[int]]):
        def build(self, most: int, *, cursor: int | None) -> Iterator[tuple[int, int]]:
            return ((n, n) for n in range(cursor or 0, most))

        def each_iteration(self, item: int, most: int) -> None:
            if item == 3 and current_job().attempt == 1:
                raise OSError
            done.append(item)

    Numbers.enqueue(5)
    jobs.assert_enqueued(Numbers, 5)
    assert endings(jobs.drain(Numbers, advance=True)) == ["retry", "done"]
    assert done == [0, 1, 2, 3, 4]


def test_modes_nest_and_leave_things_as_they_were(app: App) -> None:
    ran: list[int] = []

    @app.job(name="job")
    def job(number: int) -> None:
        ran.append(number)

    with testing.fake(app) as outer:
        job.enqueue(1)
        with testing.inline(app):
            job.enqueue(2)
            with testing.fake(app) as inner:
                job.enqueue(3)
            job.enqueue(4)
        job.enqueue(5)
        app.close()
        job.enqueue(6)
    assert ran == [2, 4]
    assert [one.args[0] for one in inner] == [3]
    assert [one.args[0] for one in outer] == [1, 5, 6]
    assert app.stand_ins == ()
    with pytest.raises(RuntimeError, match="as it should"), testing.inline(app):
        raise RuntimeError("as it should")
    assert app.stand_ins == ()


def test_pushes_of_every_thread_are_collected(app: App, jobs: testing.FakeJobs) -> None:
    @app.job(name="job")
    def job(number: int) -> None: ...

    def push() -> None:
        for number in range(200):
            job.enqueue(number)
            with testing.fake(other):
                elsewhere.enqueue()

    other = App(redis_url="redis://nobody.invalid:1")

    @other.job(name="elsewhere")
    def elsewhere() -> None: ...

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(jobs) == 800
    assert other.stand_ins == ()


def test_tracked_jobs_are_pushed_as_any_other() -> None:
    app = App()
    ran: list[int] = []

    @app.job(name="tracked", track=True)
    def tracked(n: int) -> None:
        current_job().log("said")
        current_job().progress(n, 3)
        assert current_job().batch is None
        ran.append(n)

    with testing.fake(app) as jobs:
        tracked.enqueue(1)
        tracked.using(delay=60).enqueue(2)
        tracked.enqueue_many([(3,)])
        assert len(jobs) == 3
        jobs.drain_all(advance=True)
    assert ran == [1, 3, 2]
    with testing.inline(app):
        tracked.enqueue(4)
    assert ran[-1] == 4
