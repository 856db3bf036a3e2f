"""What is done to all jobs of a batch is an operation: its request ends at once, it is counted, and can be aborted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.inspector import operations
from henchman.inspector.operator import carry_out
from henchman.oncall.batch_operations import CARRIERS, begin_on_batch
from henchman.store import batches
from henchman.store.call import Call, command, run
from henchman.store.leases import ask_time
from henchman.store.operations import OperationSlice, Turned
from henchman.wire.payload import encode
from support.browsing import Browser
from support.worker import until, working


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """No operator of this test carries out what the next one begins."""
    yield
    until(lambda: "henchman-operations" not in {one.name for one in threading.enumerate()}, "its operators have ended")


def failed(app: App, many: int) -> Any:
    """A batch of so many jobs, all of which gave up a minute ago."""

    @app.job(name="shop.create", retry=0, queue="q")
    def create(number: int) -> None: ...

    with app.batch("Import") as batch:
        create.enqueue_many([(number,) for number in range(many)])
    ask, facts = app.connections.run, app.keys.batch(batch.id)
    waiting = ask(command("LRANGE", app.keys.queue("q"), 0, -1))
    ask(command("DEL", app.keys.queue("q"), f"{facts}:jobs"))
    at = ask(ask_time(app.clock)) - 60
    for start in range(0, many, 5000):
        ask(command("ZADD", f"{facts}:dead", *(word for one in waiting[start : start + 5000] for word in (at, one))))
    ask(command("HSET", facts, "n:enqueued", 0, "n:error", many, "state", "complete", "completed", repr(at)))
    return batch


def test_what_gave_up_is_pushed_slice_by_slice_and_counted(app: App, redis: Redis) -> None:
    batch, browser = failed(app, 250), Browser(app.console())
    page = f"/batches/{batch.id}/do/retry"
    assert "250 jobs of it gave up." in browser.get(page).words
    done = browser.act(page, page)
    assert (done.status, done.headers["location"].partition("?")[0]) == (303, "/operations/1")
    until(lambda: "250 jobs put into their queues" in browser.get("/operations/1").words, "the operation has ended")
    status = app.batch_status(batch.id)
    assert (status.counts["error"], status.counts["enqueued"], status.state) == (0, 250, "closed")
    assert redis.llen("queue:q") == 250
    assert f"retry 250: batch {batch.id}" in browser.get("/operations").words
    assert "Undo" not in browser.get("/operations/1").words, "they have been pushed"
    assert "retry" in browser.get("/audit").words
    told = run(app.connections, operations.operation(app.keys, "1"))
    assert told is not None
    assert (told.done, told.gone, told.stayed, told.looked, told.share) == (250, 0, 0, 250, 1.0)


def test_it_is_aborted_between_two_slices_and_goes_on(app: App, redis: Redis) -> None:
    batch, browser = failed(app, 250), Browser(app.console())
    number = begin_on_batch(app, "ana", batch.id, "retry", rate=10)
    browser.get("/operations")  # wakes who carries it out
    until(lambda: redis.llen("queue:q") > 0, "it has begun")
    assert browser.act(f"/operations/{number}", f"/operations/{number}/do/abort").status == 303
    until(lambda: not [one for one in threading.enumerate() if one.name == "henchman-operations"], "nobody does it")
    stopped = redis.llen("queue:q")
    assert stopped < 250
    told = run(app.connections, operations.operation(app.keys, number))
    assert told is not None
    assert (told.state, told.done) == ("aborted", stopped)
    assert app.batch_status(batch.id).counts["error"] == 250 - stopped
    assert not carry_out(app, number, CARRIERS), "it is at its end"
    assert redis.llen("queue:q") == stopped
    assert run(app.connections, operations.resume(app.keys, number))
    redis.hset(
        app.keys.operation(number), "wish", redis.hget(app.keys.operation(number), "wish").replace(b"10.0", b"0.0")
    )
    assert carry_out(app, number, CARRIERS)
    assert redis.llen("queue:q") == 250
    told = run(app.connections, operations.operation(app.keys, number))
    assert told is not None
    assert (told.state, told.done) == ("done", 250)


def test_a_slice_is_done_and_counted_once_and_only_by_its_doer(app: App, redis: Redis) -> None:
    """As after a lost answer, and as of a doer that slept so long that another took over."""
    batch = failed(app, 3)
    number = begin_on_batch(app, "ana", batch.id, "retry")
    page: Any = app.connections.run(batches.dead(app.keys, batch.id, 0, 10))
    rows = [batches.Retried(f"{n}", "q", one.payload, one.payload) for n, one in enumerate(page.members)]

    def part(identity: str, name: str) -> Call[list[int]]:
        return batches.retry(app.keys, batch.id, rows[:2], OperationSlice(number, identity, name, 10_000))

    with pytest.raises(Turned, match="LOST"):
        app.connections.run(part("me", "a"))
    assert redis.llen("queue:q") == 0
    redis.set(app.keys.doer(number), "me")
    assert app.connections.run(part("me", "a")) == [1, 1]
    with pytest.raises(Turned, match="running"):
        app.connections.run(part("me", "a"))
    assert app.connections.run(part("me", "b")) == [0, 0], "another slice finds them gone"
    assert redis.hmget(app.keys.operation(number), "done", "gone", "looked") == [b"2", b"2", b"4"]
    assert redis.llen("queue:q") == 2
    run(app.connections, operations.abort(app.keys, number))
    with pytest.raises(Turned, match="aborted"):
        app.connections.run(part("me", "c"))


def test_what_died_later_and_what_cannot_be_pushed_stays_and_is_told(app: App, redis: Redis) -> None:
    batch = failed(app, 5)
    dead = f"{app.keys.batch(batch.id)}:dead"
    number = begin_on_batch(app, "ana", batch.id, "retry")
    app.connections.run(
        command("ZADD", dead, 4e9, encode({"class": "later", "args": [], "jid": "l" * 24, "queue": "q"}))
    )
    odd = encode({"class": "odd", "args": [], "jid": "o" * 24, "queue": "broken"})
    app.connections.run(command("ZADD", dead, 5, odd))
    redis.set("queue:broken", "no list")
    assert carry_out(app, number, CARRIERS)
    told = run(app.connections, operations.operation(app.keys, number))
    assert told is not None
    assert (told.state, told.done, told.stayed) == ("done", 5, 1)
    assert "WRONGTYPE" in told.result
    assert redis.zcard(dead) == 2


def test_a_batch_is_cancelled_with_those_in_it(app: App, redis: Redis) -> None:
    @app.job(name="shop.create", queue="q")
    def create(number: int) -> None: ...

    with app.batch("Whole") as whole:
        create.enqueue_many([(1,), (2,)])
        create.using(delay=3600).enqueue_many([(number,) for number in range(150)])
        with app.batch("Part") as part:
            create.using(delay=3600).enqueue_many([(number,) for number in range(30)])
    with app.batch("Other") as other:
        create.using(delay=3600).enqueue(7)
    browser = Browser(app.console())
    page = f"/batches/{whole.id}/do/cancel"
    assert "152 jobs of it have not ended" in browser.get(page).words
    assert browser.act(page, page).status == 303
    until(lambda: "180 jobs taken out of their set" in browser.get("/operations/1").words, "the operation has ended")
    assert redis.zcard("schedule") == 1
    assert [app.batch_status(one).why for one in (whole.id, part.id, other.id)] == ["cancelled", "cancelled", ""]
    with working(app):
        until(
            lambda: app.batch_status(whole.id).state == "complete", "what waited in its queue ended when it was fetched"
        )
    assert app.batch_status(whole.id).counts["cancelled"] == 152
    assert app.batch_status(part.id).counts["cancelled"] == 30


def test_what_cannot_be_is_refused_before_it_begins(app: App, redis: Redis) -> None:
    @app.job(name="shop.create", queue="q")
    def create(number: int) -> None: ...

    browser = Browser(app.console())
    with app.batch("Waits") as batch:
        create.enqueue(1)
    page = f"/batches/{batch.id}/do/retry"
    assert browser.get(page).status == 409
    token = browser.token(f"/batches/{batch.id}/do/cancel")
    assert "no job of batch" in browser.post(page, {"token": token}).words
    batch.cancel()
    assert "some of its jobs have not ended yet" in browser.post(page, {"token": token}).words
    assert "there is no batch" in browser.post("/batches/0123/do/cancel", {"token": token}).words
    assert redis.exists(app.keys.operations) == 0


@pytest.mark.scale("a batch of half a million jobs that gave up")
@pytest.mark.timeout(600)
def test_the_request_for_half_a_million_ends_at_once(app: App, redis: Redis) -> None:
    batch = failed(app, 500_000)
    calls, kind = list[str](), type(app.connections)
    plain: Any = kind.run

    def counting(self: Any, call: Any) -> Any:
        if not threading.current_thread().name.startswith("henchman-"):
            calls.append(call.name)
        return plain(self, call)

    browser = Browser(app.console())
    token = browser.token(f"/batches/{batch.id}/do/retry")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "run", counting)
        assert browser.post(f"/batches/{batch.id}/do/retry", {"token": token}).status == 303
    assert len(calls) < 12, calls
    until(lambda: "500,000 jobs put into their queues" in browser.get("/operations/1").words, "all", limit=400)
    assert redis.llen("queue:q") == 500_000
