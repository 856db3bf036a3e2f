"""Checkpoints: kept for the next run of the job, removed with its good end, refused where they cannot be kept."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from redis import Redis

from henchman import App, ArgumentError, Failure, Kill, Snooze, current_job, testing
from henchman.errors import JobInterrupted
from henchman.store import jobs
from support.worker import in_flight, jobs_in, until, working

KEPT = "hm:checkpoint:"


@pytest.fixture
def app(redis_url: str) -> App:
    return App(redis_url=redis_url, concurrency=2)


def kept(redis: Redis) -> dict[str, bytes]:
    return {key.decode().removeprefix(KEPT): redis.get(key) for key in redis.scan_iter(f"{KEPT}*")}


def idle(redis: Redis) -> bool:
    return not in_flight(redis) and not redis.zcard("retry") and not redis.zcard("schedule")


@pytest.mark.parametrize("how", ["error", "snooze", "batch"])
def test_a_later_run_goes_on_where_the_earlier_one_was(app: App, redis: Redis, how: str) -> None:
    seen: list[Any] = []

    @app.job(name="plain", retry_in=0)
    def plain() -> None:
        job = current_job()
        seen.append(job.last_checkpoint())
        if len(seen) < 3:
            job.checkpoint({"step": len(seen), "rows": [1, 2.5, None, "ä"]})
            job.checkpoint({"step": len(seen)})
            assert job.last_checkpoint() == {"step": len(seen)}
            raise Snooze(0) if how == "snooze" else OSError("not yet")

    @app.job(name="awaited", retry_in=0)
    async def awaited() -> None:
        job = current_job()
        seen.append(await job.alast_checkpoint())
        if len(seen) < 6:
            await job.acheckpoint({"step": len(seen) - 3})
            raise Snooze(0) if how == "snooze" else OSError("not yet")

    steps = [None, {"step": 1}, {"step": 2}]
    for job, most in ((plain, 3), (awaited, 6)):
        with working(app):
            if how == "batch":
                with app.batch("x") as batch:
                    job.enqueue()
            else:
                job.enqueue()
            until(lambda most=most: len(seen) == most and idle(redis), "it has ended")  # type: ignore[misc]
            assert seen[-3:] == steps
            assert kept(redis) == {}, "removed with the end of the job"
        if how == "batch":
            assert app.batch_status(batch.id).counts["finished"] == 1
    assert redis.llen("hm:broken") == 0


@pytest.mark.parametrize(
    ("end", "left"), [(Failure("no"), 0), (Kill, 1), (OSError("x"), 1)], ids=["failed", "killed", "dead"]
)
def test_what_ends_for_good_leaves_nothing_and_what_may_be_retried_by_hand_keeps_it(
    app: App, redis: Redis, end: Any, left: int
) -> None:
    ran: list[Any] = []

    @app.job(name="work", retry=0)
    def work() -> None:
        ran.append(current_job().last_checkpoint())
        if ran[-1] is None:
            current_job().checkpoint(7)
            raise end

    with working(app):
        handle = work.enqueue()
        until(lambda: ran and not in_flight(redis), "it has ended")
        assert len(kept(redis)) == len(jobs_in(redis, "dead")) == left
        if left:
            assert 29 * 86400 < redis.ttl(KEPT + handle.jid) <= 30 * 86400  # type: ignore[operator]
            app.dead.retry_all()
            until(lambda: ran == [None, 7] and not in_flight(redis), "it went on where it was")
        assert kept(redis) == {}


@pytest.mark.parametrize(
    "end", [OSError("x"), Snooze(0), JobInterrupted("later")], ids=["error", "snooze", "interrupt"]
)
@pytest.mark.parametrize("member", [False, True], ids=["plain", "member"])
def test_a_good_run_that_did_not_ask_for_it_leaves_none(app: App, redis: Redis, end: Any, member: bool) -> None:
    ran: list[int] = []

    @app.job(name="work", retry_in=0)
    def work() -> None:
        ran.append(current_job().attempt)
        if len(ran) < 3:
            if len(ran) == 1:
                current_job().checkpoint(1)
            raise end

    with working(app):
        with app.batch() as batch:
            work.using(batch=batch if member else None).enqueue()
        until(lambda: len(ran) == 3 and idle(redis) and not redis.llen("queue:default"), "it has ended")
        assert kept(redis) == {}
    assert redis.llen("hm:broken") == 0


def test_who_deletes_a_job_by_hand_deletes_its_checkpoint(app: App, redis: Redis) -> None:
    @app.job(name="work", retry=0)
    def work() -> None:
        current_job().checkpoint(1)
        raise OSError("x")

    with working(app):
        work.enqueue()
        until(lambda: redis.zcard("dead") and not in_flight(redis), "it is dead")
    assert len(kept(redis)) == 1
    assert app.dead.clear().done == 1
    assert kept(redis) == {}


def test_what_cannot_be_kept_is_refused(app: App, redis: Redis) -> None:
    said: list[str] = []

    @app.job(name="work", secret=("card",))
    def work(card: str) -> None:
        for state in (math.nan, {1: 2}, object(), "x" * 70_000, b"bytes"):
            with pytest.raises(ArgumentError) as caught:
                current_job().checkpoint(state)
            said.append(str(caught.value))

    with working(app):
        work.enqueue("4111")
        until(lambda: len(said) == 5 and not in_flight(redis), "each was refused")
    assert kept(redis) == {}
    assert all(text.startswith("the checkpoint of work") for text in said)
    assert "70,002 bytes, more than 65,536" in said[3]
    with pytest.raises(RuntimeError, match="outside of a running job"):
        current_job().checkpoint(1)


def test_an_ordered_claim_has_none(app: App) -> None:
    said: list[str] = []

    @app.ordered(name="sync", queue="sync", max_retries=0)
    def sync(claim: dict[str, list[int]]) -> None:
        with pytest.raises(ArgumentError, match="a claim of an ordered queue has no checkpoint") as caught:
            current_job().checkpoint(1)
        said.append(str(caught.value))

    with working(app):
        sync.push("1", 5)
        until(lambda: said, "it was refused")


def test_a_process_that_lost_the_job_changes_nothing(app: App, redis: Redis) -> None:
    told: list[Any] = []

    @app.job(name="work", retry_in=3600)
    def work() -> None:
        job = current_job()
        job.checkpoint("mine")
        key = next(one for one in redis.scan_iter("hm:flight:*") if redis.type(one) == b"list")
        assert redis.llen(key) == 1
        redis.delete(key)  # somebody gave it back, and another process went on
        redis.set(KEPT + job.jid, '"theirs"')
        with pytest.raises(JobInterrupted, match="another process has this job"):
            job.checkpoint("late")
        told.append(job.last_checkpoint())

    with working(app):
        work.enqueue()
        until(lambda: told, "it tried")
        assert told == ["theirs"]
    assert list(kept(redis).values()) == [b'"theirs"'], "the end of the run that lost the job removes nothing"


def test_what_somebody_broke_is_named(app: App, redis: Redis) -> None:
    said: list[str] = []

    @app.job(name="work", retry=0)
    def work() -> None:
        redis.set(KEPT + current_job().jid, "{broken")
        try:
            current_job().last_checkpoint()
        except Exception as error:
            said.append(str(error))

    with working(app):
        work.enqueue()
        until(lambda: said, "it was read")
    assert "is not JSON" in said[0]
    assert "delete it to start anew" in said[0]


def test_the_fakes_keep_it_too(app: App) -> None:
    seen: list[Any] = []

    @app.job(name="work", retry_in=5)
    def work() -> None:
        seen.append(current_job().last_checkpoint())
        if seen[-1] is None:
            current_job().checkpoint([1])
            raise Snooze(5)

    @app.job(name="awaited")
    async def awaited() -> None:
        seen.append(await current_job().alast_checkpoint())
        await current_job().acheckpoint(1)

    with testing.fake(app) as collected:
        work.enqueue()
        collected.drain_all(advance=True)
        assert seen == [None, [1]]
        awaited.enqueue()
        asyncio.run(_drained(collected))
        assert collected._server._iterations._states == {}
    with testing.inline(app) as inline:
        work.enqueue()
        awaited.enqueue()
        assert seen[2:] == [None, None, [1], None]
        assert inline._iterations._states == {}


async def _drained(collected: testing.FakeJobs) -> None:
    await collected.adrain_all()


def test_calls(app: App) -> None:
    call = jobs.save_checkpoint(app.keys, "flight", b"{}", "jid", b"1")
    assert call.again, "sending it again does no harm"
