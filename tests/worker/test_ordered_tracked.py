"""A tracked ordered queue from push to history: by a real worker, into a real database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App, Discard, Failure, Kill, Snooze, current_job
from henchman.history.reading import History
from henchman.history.records import JobRecord, Search
from henchman.worker import launcher
from support.worker import until, working


@pytest.fixture
def app(redis_url: str, tmp_path: Path) -> App:
    return App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path}/history.sqlite", concurrency=4)


@pytest.fixture
def history(app: App) -> Iterator[History]:
    made = History.open(app.config)
    yield made
    made.close()


def recorded(history: History, redis: Redis, jid: str | None, status: str) -> JobRecord:
    """The record ``jid``, once it is in the database with ``status``."""
    assert jid is not None

    def look() -> JobRecord | None:
        found = None if redis.xlen("hm:history") else history.job(jid)
        return found if found is not None and found.event.status == status else None

    return until(look, f"the record of {jid} is {status}")


def words(job: JobRecord) -> list[str]:
    return [change.status for change in job.changes]


def test_what_happened_to_the_push_of_price_17_for_product_42(app: App, redis: Redis, history: History) -> None:
    @app.ordered(queue="products", name="sync", track=True)
    def sync(claim: dict[str, list[Any]]) -> None:
        for changes in claim.values():
            current_job().log(f"{len(changes)} changes")
            current_job().progress(1, 2)

    first = sync.push("42", {"price": 17}, score=1001)
    same = sync.push("42", {"price": 17}, score=1002)
    sync.push_many([("42", {"price": 18}, 1003), ("43", {"price": 1}, 1)])
    with working(app) as worker:
        job = recorded(history, redis, first.jid, "finished")
        merged = recorded(history, redis, same.jid, "cancelled")
        until(lambda: history.find(Search(queue="products", status="finished"), limit=9).events[2:], "all have ended")
        identity = worker.session.identity
    assert words(job) == ["enqueued", "working", "finished"]
    assert [change.at for change in job.changes] == sorted(change.at for change in job.changes)
    event = job.event
    assert (event.class_, event.queue, event.args, event.kwargs) == (
        "sync", "products", ["42", {"price": 17}], {"score": 1001},
    )  # fmt: skip
    assert (event.attempts, event.process, event.progress_done, event.progress_total) == (1, identity, 1, 2)
    assert [message.text for message in job.messages] == ["2 changes"]
    [run] = job.runs
    assert (run.process, run.ending) == (identity, "done")
    assert run.started is not None
    assert run.ended is not None
    assert run.started < run.ended + 0.001  # what the stream tells is in whole milliseconds
    assert merged.event.message == f"merged into {first.jid}: an equal payload waits"
    found = history.find(Search(class_="sync", queue="products", text='{"price":17}'), limit=9).events
    assert {one.jid for one in found} == {first.jid, same.jid}
    assert not list(redis.scan_iter("hm:ordered:products/j*"))


def test_every_ending(app: App, redis: Redis, history: History) -> None:
    answers: dict[str, BaseException | None] = {
        "fine": None,
        "failed": Failure("sold out"),
        "discarded": Discard("no"),
        "error": Kill("no such thing"),
        "retrying": OSError("shop is away"),
        "scheduled": Snooze(1000),
    }

    @app.ordered(queue="q", name="end", track=True, claim_size=10, retry_in=1000)
    def end(claim: dict[str, list[Any]]) -> dict[str, BaseException]:
        return {name: answer for name in claim if (answer := answers[name]) is not None}

    jids = {name: end.push(name, 1).jid for name in answers}
    with working(app):
        jobs = {
            name: recorded(history, redis, jid, {"fine": "finished", "discarded": "cancelled"}.get(name, name))
            for name, jid in jids.items()
        }
    assert all(words(job)[:2] == ["enqueued", "working"] and len(job.changes) == 3 for job in jobs.values())
    assert jobs["failed"].event.message == "sold out"
    assert (jobs["retrying"].event.error_class, jobs["retrying"].event.message) == ("OSError", "shop is away")
    assert (jobs["error"].event.error_class, jobs["error"].event.message) == ("Kill", "no such thing")
    assert {name: job.runs[0].ending for name, job in jobs.items()} == {
        "fine": "done", "failed": "failed", "discarded": "discarded", "error": "dead", "retrying": "retry",
        "scheduled": "snoozed",
    }  # fmt: skip


def test_a_failed_one_is_tried_again_and_revived(app: App, redis: Redis, history: History) -> None:
    broken = [True]

    @app.ordered(queue="q", name="try_it", track=True, max_retries=1, retry_in=0)
    def try_it(claim: dict[str, list[Any]]) -> None:
        if broken:
            raise ValueError("not yet")

    jid = try_it.push("a", {"v": 1}).jid
    with working(app):
        job = recorded(history, redis, jid, "error")
        assert words(job) == ["enqueued", "working", "retrying", "working", "error"]
        assert [run.attempt for run in job.runs] == [1, 2]
        assert job.event.traceback[0].endswith("in try_it")
        broken.clear()
        assert app.ordered_queues["q"].revive("a")
        job = recorded(history, redis, jid, "finished")
    assert words(job)[5:] == ["enqueued", "working", "finished"]
    assert (job.event.message, job.event.error_class) == (None, None)


def test_what_people_do_goes_on_in_the_record(app: App, redis: Redis, history: History) -> None:
    def note(claim: dict[str, list[Any]]) -> None:
        pass

    push = app.ordered(queue="q", name="note", track=True)(note).push
    app.ordered(queue="r", name="other", track=True)(note)
    jids = {name: push(name, 1, delay=1000).jid for name in ("run", "delete", "kill", "revive", "bury", "move")}
    queue = app.ordered_queues["q"]
    queue.run_now("run")
    queue.delete("delete")
    queue.kill("kill", "revive", "bury")
    queue.revive("revive")
    queue.morgue_delete("bury")
    queue.move_to("r", "move")
    app.ordered_queues["r"].run_now("move")
    with working(app):
        lives = {
            name: recorded(history, redis, jids[name], status)
            for name, status in {
                "run": "finished", "delete": "cancelled", "kill": "error", "revive": "finished", "bury": "cancelled",
                "move": "finished",
            }.items()
        }  # fmt: skip
    assert {name: words(job)[1:] for name, job in lives.items()} == {
        "run": ["enqueued", "working", "finished"],
        "delete": ["cancelled"],
        "kill": ["error"],
        "revive": ["error", "enqueued", "working", "finished"],
        "bury": ["error", "cancelled"],
        "move": ["scheduled", "enqueued", "working", "finished"],
    }
    assert lives["delete"].event.message == "deleted by hand"
    assert lives["kill"].event.message == "killed by hand"
    assert lives["move"].event.queue == "r"


def test_stopped_in_the_middle_it_is_enqueued_again(
    app: App, redis: Redis, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "CLEAN_UP", 60.0)  # a loaded machine may take longer than 3 s to raise it

    @app.ordered(queue="q", name="wait", track=True)
    async def wait(claim: dict[str, list[Any]]) -> None:
        await asyncio.sleep(60 if current_job().attempt and not done else 0)

    done: list[int] = []
    jid = wait.push("a", 1).jid
    with working(app, stop=0.2):
        recorded(history, redis, jid, "working")
    done.append(1)
    with working(app):
        job = recorded(history, redis, jid, "finished")
    assert words(job) == ["enqueued", "working", "enqueued", "working", "finished"]
    assert job.runs[0].ending == "interrupted"


def test_awaited_and_with_partitions(app: App, redis: Redis, history: History) -> None:
    @app.ordered(name="Sync", queue="parts", partitions=2, track=True)
    def sync(claim: dict[str, list[Any]]) -> None:
        pass

    async def push() -> list[str | None]:
        made = [(await sync.apush(name, {"v": name})).jid for name in "abc"]
        await sync.apush_many([("d", 1), ("e", 2)])
        await app.aclose()
        return made

    jids = asyncio.run(push())
    with working(app):
        for jid in jids:
            assert recorded(history, redis, jid, "finished").event.queue.startswith("parts.")
        until(lambda: history.find(Search(class_="Sync", status="finished"), limit=9).events[4:], "all five")


def test_an_untracked_worker_keeps_the_records_of_another_generation(
    redis_url: str, app: App, redis: Redis, history: History
) -> None:
    """A deploy turns tracking off, or has not turned it on yet: what has a record ends with it."""

    def note(claim: dict[str, list[Any]]) -> None:
        pass

    jid = app.ordered(queue="q", name="note", track=True)(note).push("a", 1).jid
    other = App(redis_url=redis_url, database_url=app.config.database_url)
    plain = other.ordered(queue="q", name="note")(note)
    assert plain.push("a", 2).jid is None
    with working(other):
        job = recorded(history, redis, jid, "finished")
    assert words(job) == ["enqueued", "working", "finished"]


def test_in_a_batch_block_it_is_no_member(app: App, redis: Redis, history: History) -> None:
    @app.ordered(queue="q", name="note", track=True)
    def note(claim: dict[str, list[Any]]) -> None:
        pass

    with app.batch("some") as batch:
        jid = note.push("a", 1).jid
    assert batch.status().total == 0
    with working(app):
        job = recorded(history, redis, jid, "finished")
    assert job.event.batch is None


def test_what_a_handler_says_reaches_every_payload_it_has(app: App, redis: Redis, history: History) -> None:
    @app.ordered(queue="q", name="say", track=True, claim_size=3)
    def say(claim: dict[str, list[Any]]) -> None:
        current_job().log("all of it")

    first = say.push("d", 0).jid
    say.push_many([{"id": name, "payload": number} for name in "abc" for number in range(2)])
    with working(app):
        recorded(history, redis, first, "finished")
        until(lambda: len(history.find(Search(class_="say", status="finished"), limit=9).events) == 7, "all ended")
    for event in history.find(Search(class_="say"), limit=9).events:
        job = history.job(event.jid)
        assert job is not None
        assert [message.text for message in job.messages] == ["all of it"]


def test_an_untracked_queue_says_nothing(app: App, redis: Redis) -> None:
    ran: list[int] = []

    @app.ordered(queue="q", name="note")
    def note(claim: dict[str, list[Any]]) -> None:
        current_job().log("hello")
        current_job().progress(1, 2)
        ran.append(1)

    assert note.push("a", 1).jid is None
    with working(app):
        until(lambda: ran, "it ran")
        until(lambda: not redis.exists("hm:ordered:q/due"), "it was settled")
        entries = redis.xrange("hm:history")
    assert not entries
    assert b"track" not in redis.hkeys("hm:ordered:q/meta")  # type: ignore[operator]
