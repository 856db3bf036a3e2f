"""Batches by a real worker: every ending, callbacks, cancel, expiry, adding from inside, progress, memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis import Redis

from henchman import App, ArgumentError, DefinitionError, Discard, Failure, Kill, ServerAway, Snooze, current_job
from henchman.batch.batch import Batch, BatchStatus, leases
from henchman.errors import BatchClosed, BatchError, HistoryAway, UnknownBatch
from henchman.kernel import failpoints
from henchman.kernel.clock import ServerClock
from henchman.store import batches, history
from henchman.store.call import command, load
from henchman.worker.run import AWAY, LASTED, SAID
from support.history import stream
from support.worker import in_flight, looker, until, working


class Calls:
    """Callbacks that ran: ``calls["complete"]`` are the batch ids."""

    def __init__(self, app: App) -> None:
        self.heard: dict[str, list[str]] = {"success": [], "complete": [], "death": []}

        def job(which: str) -> Any:
            return app.job(name=f"on_{which}", queue="calls")(lambda batch: self.heard[which].append(batch))  # noqa: PLW0108 - it has a parameter to look at

        self.options = {f"on_{which}": job(which) for which in self.heard}

    def __getitem__(self, which: str) -> list[str]:
        return self.heard[which]


def complete(batch: Batch, generation: int = 1) -> BatchStatus:
    """Wait until it is, and check that nothing of it is left alive."""

    def look() -> BatchStatus | None:
        status = batch.status()
        return status if status.state == "complete" and status.generation == generation else None

    status = until(look, "the batch is complete")
    assert status.done == status.total == sum(status.counts.values())
    return status


def some(status: BatchStatus) -> dict[str, int]:
    return {name: count for name, count in status.counts.items() if count}


def test_every_ending_in_one_batch(app: App, redis: Redis) -> None:
    calls, tried = Calls(app), dict[int, int]()

    @app.job(name="work", retry=1, retry_in=0)
    def work(n: int) -> int:
        tried[n] = tried.get(n, 0) + 1
        if n == 1:
            raise Failure("not eligible")
        if n == 2:
            raise ValueError("always")
        if n == 3 and tried[n] == 1:
            raise ValueError("once")
        if n == 4 and tried[n] == 1:
            raise Snooze(0.01)
        if n == 5:
            raise Discard
        if n == 6:
            raise Kill("at once")
        return n

    with app.batch("all endings", tags=["t"], **calls.options) as batch:
        pushed = work.enqueue_many((n,) for n in range(20))
        app.enqueue("nobody.knows", retry=0)
        work.using(expires=0.001).enqueue(100)
    time.sleep(0.05)  # its time passes, by any clock
    assert pushed.created == 20
    with working(app):
        status = complete(batch)
        until(lambda: calls["complete"] and calls["death"], "callbacks ran")
    assert some(status) == {"finished": 16, "failed": 1, "error": 3, "cancelled": 1, "expired": 1}
    assert calls.heard == {"success": [], "complete": [batch.id], "death": [batch.id]}
    assert {(one.status, one.reason) for one in status.reasons} >= {("failed", "not eligible"), ("error", "always")}
    assert (status.description, status.tags, status.why, status.called) == (
        "all endings",
        ["t"],
        "",
        {"complete": [1], "death": [1]},
    )
    assert status.rate > 0
    assert (status.percent, status.eta, status.failed) == (100.0, None, 4)
    assert redis.zcard("dead") == 0, "they are kept with the batch"
    assert redis.zcard(f"hm:batch:{batch.id}:dead") == 3
    assert not in_flight(redis)
    assert not redis.exists(f"hm:batch:{batch.id}:jobs")
    assert not redis.lrange("hm:broken", 0, -1)
    assert json.loads(msgspec.json.encode(status))["counts"] == status.counts


def test_the_failed_ones_are_tried_again(app: App, redis: Redis) -> None:
    calls, healed = Calls(app), threading.Event()

    @app.job(name="work", retry=0)
    def work(n: int) -> None:
        if n % 2 and not healed.is_set():
            raise ValueError("not yet")
        assert current_job().attempt == 1

    with app.batch(**calls.options) as batch:
        work.enqueue_many((n,) for n in range(10))
    with working(app):
        assert some(complete(batch)) == {"finished": 5, "error": 5}
        healed.set()
        with pytest.raises(ArgumentError, match="error"):
            batch.retry("failed")
        assert app.get_batch(batch.id).retry() == 5
        status = complete(batch, 2)
        until(lambda: calls["success"] and len(calls["complete"]) == 2, "callbacks of the second generation ran")
    assert some(status) == {"finished": 10}
    assert status.reasons == []
    assert calls.heard == {"success": [batch.id], "complete": [batch.id] * 2, "death": [batch.id]}
    assert status.called == {"complete": [1, 2], "death": [1], "success": [2]}


def test_a_cancelled_batch_starts_nothing_more_and_tells_what_runs(app: App, redis: Redis) -> None:
    calls, began, seen = Calls(app), [threading.Event(), threading.Event()], list[str]()

    @app.job(name="long")
    async def long() -> None:
        began[0].set()
        await asyncio.sleep(30)

    @app.job(name="told")
    def told() -> None:
        began[1].set()
        until(lambda: current_job().cancelled, "it is told")
        seen.append("told")

    @app.job(name="never")
    def never() -> None:
        seen.append("never")

    with app.batch(**calls.options) as batch:
        long.enqueue()
        told.enqueue()
        never.using(delay=600).enqueue_many([()] * 7)
        never.using(queue="unserved").enqueue()
        with app.batch("child") as child:
            never.using(delay=600).enqueue()
    with working(app):
        until(lambda: all(one.is_set() for one in began), "both run")
        batch.cancel()
        assert redis.zcard("schedule") == 0, "what waits for its time is taken out at once"
        until(lambda: not in_flight(redis) and batch.status().done == 9, "what ran has ended")
        with pytest.raises(BatchError):
            batch.retry()
        with working(App_of(app, "unserved")):
            status = complete(batch)
        until(lambda: calls["complete"], "the callback ran")
    assert some(status) == {"cancelled": 9, "finished": 1}
    assert status.why == "cancelled"
    assert app.batch_status(child.id).why == "cancelled"
    assert seen == ["told"]
    assert calls["success"] == []
    assert redis.zrange("hm:cancelled", 0, -1) == []
    with pytest.raises(BatchClosed):
        batch.add(never, [()])


def App_of(app: App, queue: str) -> App:  # noqa: N802 - another app of the same jobs
    other = App(redis_url=app.config.redis_url, queues=[queue])
    for job in app.registry:
        other.registry.add(job)
    return other


def test_an_expired_batch_starts_nothing_more(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    @app.job(name="work")
    def work(n: int) -> None:
        ran.append(n)

    with app.batch(expires=3600) as batch:  # a short time might be over before the block is
        work.enqueue_many([(1,), (2,)])
        work.using(delay=0.1).enqueue(3)
    later = (batch.status().expires or 0) + 1
    monkeypatch.setattr(ServerClock, "now", lambda self: later)  # by which the worker judges
    with working(app):
        assert some(complete(batch)) == {"expired": 3}
    assert ran == []
    assert app.batch_status(batch.id).called == {}


def test_jobs_add_to_their_own_batch(app: App) -> None:
    calls = Calls(app)

    @app.job(name="leaf")
    def leaf(n: int) -> None: ...

    @app.job(name="tree")
    def tree(n: int) -> None:
        batch = current_job().batch
        assert batch.id == current_job().payload["hm"]["batch"]
        batch.add(leaf, [(i,) for i in range(n)])
        leaf.enqueue(0)  # not by itself

    with app.batch(**calls.options) as batch:
        tree.enqueue(5)
    with working(app):
        until(lambda: calls["success"], "it succeeded")
    assert batch.status().total == 6
    assert calls.heard == {"success": [batch.id], "complete": [batch.id], "death": []}


def test_a_parent_is_complete_after_its_children(app: App) -> None:
    calls = Calls(app)
    go = threading.Event()

    @app.job(name="work")
    def work() -> None:
        assert go.wait(30)

    with app.batch("parent", **calls.options) as parent:
        with app.batch("child") as child:
            work.enqueue()
        with app.batch("empty"):
            pass
    by_hand = app.batch("by hand", parent=parent).open()
    by_hand.close()
    assert app.batch_status(child.id).parent == parent.id
    assert (parent.status().state, parent.status().children) == ("closed", 3)
    with working(app):
        go.set()
        until(lambda: calls["success"], "the parent succeeded")
    assert calls["complete"] == [parent.id]
    with pytest.raises(BatchClosed):
        app.batch("late", parent=parent).open()


def test_a_child_that_ends_badly_spoils_its_parent(app: App) -> None:
    calls = Calls(app)

    @app.job(name="work")
    def work(*, well: bool) -> None:
        if not well:
            raise Failure("no")

    with app.batch("parent", **calls.options) as parent:
        work.enqueue(well=True)
        with app.batch("child"):
            work.enqueue(well=False)
    assert not parent.status().well
    with working(app):
        until(lambda: calls["complete"], "the parent is complete")
    status = parent.status()
    assert (status.state, status.counts["finished"], status.total, status.bad_children) == ("complete", 1, 1, 1)
    assert not status.well
    assert calls["success"] == []


@pytest.mark.parametrize("awaited", [False, True])
def test_a_parent_is_cancelled_when_a_child_is_gone(app: App, *, awaited: bool) -> None:
    """A server that lost the child's keys, or a hand that deleted them, keeps nobody from cancelling the rest."""

    @app.job(name="work")
    def work() -> None: ...

    with app.batch("parent") as parent:
        with app.batch("lost") as lost:
            work.enqueue()
        with app.batch("child") as child:
            work.enqueue()
    app.connections.run(command("UNLINK", app.keys.batch(lost.id)))
    asyncio.run(parent.acancel()) if awaited else parent.cancel()
    assert parent.status().why == child.status().why == "cancelled"


def fail_after(batch: Batch, push: Callable[[], object]) -> None:
    with batch:
        push()
        raise RuntimeError("halfway")


def test_an_exception_keeps_what_was_pushed_and_shows(app: App) -> None:
    calls = Calls(app)

    @app.job(name="work")
    def work() -> None: ...

    batch = app.batch(**calls.options)
    with pytest.raises(RuntimeError, match="halfway"):
        fail_after(batch, work.enqueue)
    assert batch.status().why == "aborted"
    with working(app):
        assert some(complete(batch)) == {"finished": 1}
        until(lambda: calls["complete"], "it was called back")
    assert calls["success"] == []


def test_what_the_server_enqueues_says_once_when(app: App, redis: Redis, redis_url: str) -> None:
    """Also where a client middleware wrote ``enqueued_at`` itself: callbacks, what was parked, what was due later."""

    def link(job: dict[str, Any], call_next: Any) -> Any:
        job["enqueued_at"] = 1.5
        return call_next()

    app.client_middleware.add(link)
    noop = app.job(name="noop", queue="nobody")(lambda *_: None)
    app.job(name="called", queue="nobody")(lambda _: None)
    with app.batch(atomic=True, on_complete="called") as batch:
        noop.enqueue()
    with app.batch(on_complete="called"):
        pass
    noop.using(delay=0.01).enqueue()
    with working(App(redis_url=redis_url, queues=["somebody"])):
        until(lambda: redis.llen("queue:nobody") == 3, "parked, called and due")
    texts: list[bytes] = redis.lrange("queue:nobody", 0, -1)  # type: ignore[assignment]
    assert [text.count(b'"enqueued_at":') for text in texts] == [1, 1, 1]
    for text in texts:
        moment = json.loads(text)["enqueued_at"]
        assert abs(moment - time.time()) < 60
        assert b'"enqueued_at":%b' % repr(round(moment, 3)).encode() in text, "whole milliseconds"
    assert app.batch_status(batch.id).counts["blocked"] == 0


def test_an_atomic_batch_starts_when_its_block_has_ended_well(app: App, redis: Redis) -> None:
    @app.job(name="work")
    def work(n: int) -> None: ...

    with working(app):
        with app.batch(atomic=True) as batch:
            assert work.enqueue(0).admission == "blocked"
            work.enqueue_many((n,) for n in range(1, 1200))
            work.using(delay=0.05).enqueue(1)
            assert some(batch.status()) == {"blocked": 1201}
            assert redis.llen("queue:default") == redis.zcard("schedule") == 0
        assert some(complete(batch)) == {"finished": 1201}
        bad = app.batch(atomic=True)
        with pytest.raises(RuntimeError):
            fail_after(bad, lambda: work.enqueue_many((n,) for n in range(700)))
        assert some(complete(bad)) == {"cancelled": 700}


def test_threads_do_not_join_tasks_do(app: App) -> None:
    @app.job(name="work")
    def work() -> None: ...

    async def main() -> Batch:
        async with app.batch() as batch:
            await asyncio.gather(work.aenqueue(), work.aenqueue())
            pushed = await batch.aadd(work, iter([()] * 3))
            assert pushed.created == 3
            assert (await batch.astatus()).total == 5
        with pytest.raises(BatchClosed):
            await batch.aadd(work, [()])
        await app.aclose()
        return batch

    with app.batch() as batch:
        thread = threading.Thread(target=work.enqueue)
        thread.start()
        thread.join()
    assert batch.status().total == 0
    found = asyncio.run(main())
    assert app.batch_status(found.id).state == "closed"


def test_what_is_wrong_is_said_where_it_is_written(app: App) -> None:
    @app.job(name="work")
    def work(a: int, b: int) -> None: ...

    wrong: list[Callable[[], Any]] = [
        lambda: app.batch(on_success=work),  # takes two arguments
        lambda: app.batch(on_success=5),  # type: ignore[arg-type]
        lambda: app.batch(on_success=work.using(delay=5)),
        lambda: app.batch(expires=-1),
        lambda: app.batch(tags="abc"),
        lambda: app.batch(parent=5),  # type: ignore[arg-type]
        lambda: work.using(batch="b"),
    ]
    for one in wrong:
        with pytest.raises(DefinitionError):
            one()
    with pytest.raises(UnknownBatch):
        app.batch_status("0" * 32)
    with pytest.raises(UnknownBatch):
        app.get_batch("0" * 32).close()
    with pytest.raises(UnknownBatch):
        app.get_batch("0" * 32).add(work, [(1, 2)])
    with pytest.raises(ArgumentError):
        app.get_batch("")


def test_a_push_leaves_the_batch_of_its_block(app: App, redis: Redis) -> None:
    @app.job(name="note")
    def note(n: int) -> None: ...

    with app.batch("block") as batch:
        inside = note.enqueue(1)
        outside = [note.using(batch=None).enqueue(2), app.enqueue("note", 3, batch=None)]
        again = note.using(batch=None).using(batch=batch).enqueue(4)
        note.using(batch=None).enqueue_many([(5,), (6,)])
    members = set(redis.hkeys(f"hm:batch:{batch.id}:jobs"))  # type: ignore[arg-type]
    assert members == {inside.jid.encode(), again.jid.encode()}
    assert not {one.jid.encode() for one in outside} & members
    assert batch.status().total == 2
    assert redis.llen("queue:default") == 6


def test_a_job_of_ruby_is_no_member(app: App, redis: Redis) -> None:
    """A Ruby worker says to no batch how a job ended: it would count as an error, however well it ran."""
    app.job(name="Known")(lambda: None)
    with app.batch("block") as batch:
        for name in ("HardJob", "Mail::Sender"):
            with pytest.raises(BatchError, match=f"{name} is no job of this app.* batch=None"):
                app.enqueue(name, 1)
            with pytest.raises(BatchError, match="Ruby"):
                asyncio.run(app.aenqueue(name, 1))
            app.enqueue(name, 1, batch=None)
        app.enqueue("Known")
        app.enqueue("other.app.job")
    assert batch.status().total == 2
    assert redis.llen("queue:default") == 4


def test_a_batch_is_never_buffered() -> None:
    app = App(redis_url="redis://127.0.0.1:1", buffer=100, connect_timeout=0.2)

    @app.job(name="work")
    def work() -> None: ...

    with pytest.raises(ServerAway):
        work.using(batch=app.batch()).enqueue()
    with pytest.raises(ServerAway):
        work.using(track=True).enqueue()
    assert app.client.buffer.waiting == 0


def test_who_fills_a_batch_keeps_its_lease(app: App, redis: Redis) -> None:
    batch = app.batch("open").open()
    redis.pexpire(f"hm:batch:{batch.id}:producer", 15_000)
    leases.renew()
    assert redis.pttl(f"hm:batch:{batch.id}:producer") > 20_000  # type: ignore[operator]
    assert batch.status().state == "open"
    redis.delete(f"hm:batch:{batch.id}:producer")
    assert batch.status().state == "abandoned"
    batch.close()
    leases.renew()
    assert not redis.exists(f"hm:batch:{batch.id}:producer")


def test_a_lease_that_ran_out_is_taken_again_as_long_as_its_batch_is_open(app: App, redis: Redis) -> None:
    batch, other = app.batch("open").open(), app.batch("other").open()
    for one in (batch, other):  # an outage, or a step of the server's clock
        redis.delete(f"hm:batch:{one.id}:producer")
    app.connections.run(batches.close(app.keys, other.id))  # by another process
    leases.renew()
    assert batch.status().state == "open"
    assert redis.pttl(f"hm:batch:{batch.id}:producer") > 20_000  # type: ignore[operator]
    assert not redis.exists(f"hm:batch:{other.id}:producer")
    assert other.id not in leases._filled
    batch.close()
    assert batch.status().state == "complete"


def test_what_a_job_says_is_in_the_history_in_order(app: App, redis: Redis) -> None:
    app.connections.run(history.turn_on(app.keys, "strict", 1_000_000))
    go, spoke = threading.Event(), list[float]()

    @app.job(name="talk", track=True, secret=("pin",))
    def talk(n: int, *, pin: str) -> str:
        job = current_job()
        job.log(f"begin {n}")
        began = time.monotonic()
        for done in range(100):
            job.progress(done, 100)
        spoke.append(time.monotonic() - began)
        assert go.wait(30)
        job.log("end")
        return "said"

    handle = talk.enqueue(1, pin="4321-pin")
    with working(app):
        until(lambda: any(row.get("s") == "working" for row in stream(redis)), "it is shown as working")
        until(lambda: any(row["k"] == "progress" for row in stream(redis)), "its progress is shown")
        go.set()
        until(lambda: any(row.get("s") == "finished" for row in stream(redis)), "it has finished")
    rows = [row for row in stream(redis) if row["j"] == handle.jid]
    assert [row.get("s") or row["k"] for row in rows if row["k"] != "progress"] == [
        "enqueued",
        *(["log", "working"] if rows[1]["k"] == "log" else ["working", "log"]),
        "log",
        "finished",
    ]
    most = 10 + spoke[0] / SAID
    assert sum(row["k"] == "progress" for row in rows) < most, "of what is said fast only the latest is sent"
    first, last = json.loads(rows[0]["d"]), json.loads(rows[-1]["d"])
    assert first == {"class": "talk", "queue": "default", "args": [1], "kwargs": {"pin": "***"}}
    assert last["result"] == "said"
    assert last["elapsed"] > 0
    assert "4321-pin" not in json.dumps(rows)


def test_short_jobs_write_no_start(app: App, redis: Redis) -> None:
    app.connections.run(history.turn_on(app.keys, "strict", 10_000_000))

    @app.job(name="quick")
    def quick(n: int) -> None: ...

    with app.batch() as batch:
        quick.enqueue_many((n,) for n in range(500))
    with working(app):
        complete(batch)
    rows = [row for row in stream(redis) if row["k"] == "job"]
    statuses = [row["s"] for row in rows]
    assert statuses.count("finished") == statuses.count("enqueued") == 500
    held_up = [row for row in rows if row["s"] == "finished" and json.loads(row["d"])["elapsed"] > LASTED]
    assert statuses.count("working") < 50 + len(held_up)


def test_many_rows_are_never_in_memory_at_once(app: App) -> None:
    @app.job(name="work")
    def work(text: str) -> None: ...

    read = 0

    def rows() -> Iterator[tuple[str]]:
        nonlocal read
        for read in range(1, 20_001):  # noqa: B007 - counted
            yield ("x" * 500,)

    batch = app.batch("many").open()
    batch.add(work, [("x",)])
    tracemalloc.start()
    try:
        assert batch.add(work, rows()).created == 20_000
        assert tracemalloc.get_traced_memory()[1] < 8_000_000, "10 MB of rows in slices of a thousand"
    finally:
        tracemalloc.stop()
    batch.close()
    with working(app):
        assert some(complete(batch)) == {"finished": 20_001}
    assert read == 20_000


def test_what_is_pushed_before_the_first_worker_is_recorded_whole(redis_url: str, redis: Redis, tmp_path: Path) -> None:
    app = App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path / 'history.sqlite'}")
    app.job(name="note")(lambda number: None)
    with app.batch("early") as batch:
        app.enqueue("note", 7)
    assert redis.get("hm:history:on") == b"strict 268435456"

    def recorded() -> list[Any]:
        with contextlib.suppress(HistoryAway):  # its tables are not made yet
            return [one for one in batch.events() if one.status == "finished"]
        return []

    with working(app):
        until(lambda: batch.status().state == "complete", "it ran")
        [event] = until(recorded, "it is recorded")
    assert (event.class_, event.args) == ("note", [7])
    redis.set("hm:history:on", "best_effort 1000000")
    with app.batch("later"):
        pass
    assert redis.get("hm:history:on") == b"best_effort 1000000", "what a recorder said stands"
    quiet = App(redis_url=redis_url, history="off")
    redis.delete("hm:history:on")
    with quiet.batch("untold"):
        pass
    assert not redis.exists("hm:history:on")
    quiet.close()


def test_what_is_pushed_before_any_recorder_has_led_has_a_record(redis_url: str, tmp_path: Path) -> None:
    """Fifty tracked jobs, one by one, in bulk, by name and of a cron; then the first worker of all."""
    app = App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path / 'history.sqlite'}")

    @app.job(name="note", track=True)
    def note(n: int) -> None: ...

    with looker(redis_url) as redis:
        handles = [note.enqueue(n) for n in range(20)]
        note.enqueue_many([(n,) for n in range(20, 48)])
        handles += [app.enqueue("note", 48), note.using(delay=0.01).enqueue(49)]
        assert redis.get("hm:history:on") == b"strict 268435456"
        born = {row["j"]: row for row in stream(redis)}
        assert len(born) == 50
        assert {handle.jid for handle in handles} <= born.keys()
        redis.set("hm:history:on", "best_effort 1000000")
        note.enqueue(50)
        assert redis.get("hm:history:on") == b"best_effort 1000000", "what a recorder said stands"
        redis.delete("hm:history:on")
        quiet = App(redis_url=redis_url, history="off")
        quiet.job(name="note", track=True)(lambda n: None)
        quiet.enqueue("note", 51)
        assert not redis.exists("hm:history:on")
        quiet.close()
    app.close()


@pytest.mark.parametrize("alone", [False, True], ids=["member", "alone"])
def test_a_start_whose_answer_was_lost_is_written_down_once(
    app: App, redis: Redis, tmp_path: Path, alone: bool
) -> None:
    """Never `working` after `working` in the life of one job."""
    redis.set("hm:history:on", "strict 1000000")
    redis.script_load(load("started").text)
    release = threading.Event()

    @app.job(name="long", track=True)
    def long() -> None:
        assert release.wait(60)

    with app.batch("some") as batch:
        jid = long.using(batch=None if alone else batch).enqueue().jid
    app.connections  # noqa: B018 - connects before the points are open
    failpoints.open_points("drop@started:after#1", tmp_path)

    def life() -> list[str]:
        return [row["s"] for row in stream(redis) if row.get("j") == jid]

    try:
        with working(app):
            until(lambda: "working" in life(), "its start is written down")
            until(lambda: any(one.name.startswith("drop") for one in tmp_path.iterdir()), "the answer was lost")
            time.sleep(2 * AWAY)  # it would be sent again by then
            release.set()
            until(lambda: life()[-1] == "finished", "it ends")
    finally:
        failpoints.close()
        release.set()
    assert life() == ["enqueued", "working", "finished"]
