"""A paused batch, by a real worker: none of its jobs starts, all that is not of it goes on, nothing is lost, and
nothing is left when it goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from redis import Redis

from henchman import App, ArgumentError, Concurrent, IterableJob, Kill, Leaky
from henchman.batch.auditor import Auditor
from henchman.batch.batch import Batch
from henchman.errors import BatchError, UnknownBatch
from henchman.iterators import over_range
from henchman.store.queues import Pause
from henchman.wire.payload import decode
from support.garbage import payload
from support.worker import in_flight, until, working


class Ran:
    """What ran, in order; ``work(n)`` waits for ``go`` when n is -1."""

    def __init__(self, app: App, **options: Any) -> None:
        self.app, self.rows, self.go = app, list[int](), threading.Event()

        @app.job(name="work", queue="mail", **options)
        def work(n: int) -> None:
            self.rows.append(n)
            assert n != -1 or self.go.wait(60)

        @app.job(name="other", queue="mail")
        def other(n: int) -> None:
            self.rows.append(1000 + n)

        self.work, self.other = work, other

    def batch(self, rows: range, **options: Any) -> Batch:
        with self.app.batch("import", **options) as batch:
            batch.add(self.work, ((n,) for n in rows))
        return batch


@pytest.fixture
def ran(app: App) -> Ran:
    return Ran(app)


def counted(batch: Batch, status: str, many: int) -> None:
    until(lambda: batch.status().counts[status] == many, f"{many} are {status}: {batch.status().counts}")


def complete(batch: Batch) -> None:
    until(lambda: batch.status().state == "complete", "the batch is complete")


def nothing_is_left(redis: Redis) -> None:
    """No trace of a pause: whom it held, what for, and that it was."""
    left = [*redis.scan_iter("hm:needs:*"), *redis.scan_iter("hm:await:*"), *redis.scan_iter("hm:ready:*")]
    assert not left
    for name in ("hm:parked", "hm:batches:paused", "hm:parked:until", "hm:parked:due", "hm:decide", "hm:releases"):
        until(lambda name=name: not redis.exists(name), f"{name} is gone")  # type: ignore[misc]
    until(lambda: not in_flight(redis), "nothing is in flight")
    assert not redis.lrange("hm:broken", 0, -1)


def test_its_jobs_wait_and_others_go_on(app: App, ran: Ran, redis: Redis) -> None:
    """More than the script itself lets go, so that the stager has the rest to do."""
    batch = ran.batch(range(400))
    batch.pause("  provider \n outage ", by="ana")
    ran.other.enqueue_many((n,) for n in range(3))
    with working(app):
        counted(batch, "blocked", 400)
        until(lambda: sorted(ran.rows) == [1000, 1001, 1002], "the others of that queue ran, and nothing of the batch")
        assert redis.llen("queue:mail") == 0
        status = batch.status()
        assert status.paused is not None
        assert (status.paused.by, status.paused.reason, status.state) == ("ana", "provider outage", "closed")
        assert abs((status.paused.at or 0) - time.time()) < 60
        batch.unpause()
        complete(batch)
    assert sorted(ran.rows) == [*range(400), 1000, 1001, 1002], "each once"
    assert batch.status().paused is None
    assert batch.status().counts["finished"] == 400
    nothing_is_left(redis)


def test_nothing_starts_once_the_call_has_returned(app: App, redis: Redis) -> None:
    """Also of what stood in the process already, ahead of its slots; what runs ends."""
    begun, seen = threading.Event(), list[float]()

    @app.job(name="slow", queue="mail")
    def slow(n: int) -> None:
        seen.append(time.monotonic())
        begun.set()
        time.sleep(0.005)  # a short job: others of its kind stand ahead of the slots

    with working(app):
        with app.batch() as batch:
            batch.add(slow, [(n,) for n in range(2000)])
        assert begun.wait(60)
        until(lambda: len(seen) > 300, "they are short, and many stand ahead")
        batch.pause()
        late = time.monotonic() + 0.1
        until(lambda: batch.status().counts["blocked"] == 2000 - len(seen), "all the others wait")
        assert [one for one in seen if one > late] == [], "PROTOCOL: nothing starts 100 ms after it returned"
        batch.unpause()
        complete(batch)
    assert len(seen) == 2000
    nothing_is_left(redis)


def test_a_worker_that_begins_later_knows_of_it(app: App, ran: Ran, redis: Redis) -> None:
    batch = ran.batch(range(3))
    batch.pause()
    batch.pause("once more")  # the newest reason is shown
    with working(app):
        counted(batch, "blocked", 3)
    assert not ran.rows
    assert batch.status().paused == Pause(at=batch.status().paused.at, reason="once more")
    with working(app):
        batch.unpause()
        batch.unpause()  # it is not, any more: nothing happens
        complete(batch)
    assert sorted(ran.rows) == [0, 1, 2]
    nothing_is_left(redis)


def test_who_waits_takes_no_key_and_no_place(app: App, redis: Redis) -> None:
    """What a job takes at its start is there for others while it waits, and is taken when it goes on."""
    ran = Ran(app, key="n", unique="running", limits=[Concurrent("bank", 1)])
    batch = ran.batch(range(5))
    batch.pause()
    with working(app):
        counted(batch, "blocked", 5)
        assert not redis.exists("hm:lock:r:work")
        assert not [*redis.scan_iter("hm:slots:*")]
        ran.work.enqueue(3)
        until(lambda: ran.rows == [3], "another with the same key and the same limit runs")
        batch.unpause()
        complete(batch)
    assert sorted(ran.rows) == [0, 1, 2, 3, 3, 4]
    assert not [*redis.scan_iter("hm:slots:*")]
    nothing_is_left(redis)


def test_who_waits_in_a_process_for_a_place_leaves_it(app: App, redis: Redis) -> None:
    """Of short jobs with a limit many wait beside those that have the places, and others in line are handed one, one
    after the other: on a pause they all give it up."""
    seen = list[int]()

    @app.job(name="work", queue="mail", limits=[Concurrent("bank", 2)])
    def work(n: int) -> None:
        seen.append(n)
        time.sleep(0.001)  # a short job: others of its kind wait for its place

    with working(app):
        with app.batch() as batch:
            batch.add(work, [(n,) for n in range(3000)])
        for _ in range(3):
            before = len(seen)
            until(lambda before=before: len(seen) > before + 200, "they run")  # type: ignore[misc]
            batch.pause()
            until(lambda: batch.status().counts["blocked"] + len(set(seen)) == 3000, "all the others wait")
            until(lambda: not [*redis.scan_iter("hm:slots:*")], "no place is taken")
            batch.unpause()
        complete(batch)
    assert sorted(seen) == list(range(3000))
    assert not [*redis.scan_iter("hm:slots:*")]
    assert not redis.exists("hm:behind")
    nothing_is_left(redis)


def test_what_is_due_meanwhile_waits_too(app: App, redis: Redis) -> None:
    tried = list[int]()

    @app.job(name="work", queue="mail", retry=2, retry_in=0.1)
    def work(n: int) -> None:
        tried.append(n)
        if tried.count(n) == 1 and n == 0:
            batch.pause("at its first failure")
            raise ValueError("once")

    with app.batch() as batch:
        work.enqueue(0)
        work.using(delay=0.3).enqueue(1)
    with working(app):
        counted(batch, "blocked", 2)
        assert tried == [0]
        batch.unpause()
        complete(batch)
    assert sorted(tried) == [0, 0, 1]
    nothing_is_left(redis)


def test_a_payload_goes_on_as_it_was_with_the_time_of_its_new_push(app: App, redis: Redis) -> None:
    """Numbers of any size, texts that look like our own fields; and one field of each name."""
    got = list[Any]()

    @app.job(name="work", queue="mail")
    def work(**facts: Any) -> None:
        got.append(facts)

    facts = {"big": 2**63 + 1, "text": ',"enqueued_at":1}', "deep": {"enqueued_at": 1.5}, "ratio": 0.1}
    with app.batch() as batch:
        work.enqueue(**facts)
    [before] = redis.lrange("queue:mail", 0, -1)
    batch.pause()
    with working(app):
        counted(batch, "blocked", 1)
    batch.unpause()
    [after] = redis.lrange("queue:mail", 0, -1)
    old, new = decode(before), decode(after)
    assert old.pop("enqueued_at") < new.pop("enqueued_at")
    assert old == new
    assert after.count(b'"enqueued_at":') == before.count(b'"enqueued_at":')
    with working(app):
        complete(batch)
    assert got == [facts]


def test_a_paused_batch_can_be_cancelled(app: App, ran: Ran, redis: Redis) -> None:
    batch = ran.batch(range(150))
    batch.pause()
    with working(app):
        counted(batch, "blocked", 150)
        batch.cancel()
        complete(batch)
    assert batch.status().counts["cancelled"] == 150
    assert batch.status().paused is None
    assert not ran.rows
    nothing_is_left(redis)


def test_its_jobs_can_be_retried_and_wait(app: App, redis: Redis) -> None:
    tried = list[int]()

    @app.job(name="work", queue="mail")
    def work(n: int) -> None:
        tried.append(n)
        if len(tried) < 3:
            raise Kill("down")

    with app.batch() as batch:
        work.enqueue(0)
        work.enqueue(1)
        work.using(delay=600).enqueue(2)
    with working(app):
        counted(batch, "error", 2)
        batch.pause()
        assert batch.retry() == 2
        counted(batch, "blocked", 2)
        assert len(tried) == 2
        batch.unpause()
        counted(batch, "finished", 2)
        batch.cancel()
        complete(batch)
    nothing_is_left(redis)


def test_batches_in_it_are_paused_too(app: App, ran: Ran, redis: Redis) -> None:
    """Those that are there, and one that comes."""
    outer = app.batch("outer")
    with outer:
        with app.batch("first") as first:
            ran.work.enqueue(1)
        outer.pause("all of it", by="ana")
        with app.batch("second") as second:
            ran.work.enqueue(2)
    assert [one.status().paused.reason for one in (outer, first, second)] == ["all of it"] * 3  # type: ignore[union-attr]
    with working(app):
        counted(first, "blocked", 1)
        counted(second, "blocked", 1)
        outer.unpause()
        complete(outer)
    assert sorted(ran.rows) == [1, 2]
    nothing_is_left(redis)


def test_a_suspect_waits_too(app: App, ran: Ran, redis: Redis) -> None:
    """It would keep a process for itself alone, and go back, again and again."""
    batch = ran.batch(range(1))
    [jid] = (one.decode() for one in redis.hkeys(f"hm:batch:{batch.id}:jobs"))
    redis.sadd("hm:suspects", jid)
    batch.pause()
    with working(app):
        counted(batch, "blocked", 1)
        ran.other.enqueue(1)
        until(lambda: ran.rows == [1001], "the process is free for others")
        batch.unpause()
        complete(batch)
    assert ran.rows == [1001, 0]


def test_its_deadline_ends_a_job_that_waits(app: App, ran: Ran, redis: Redis) -> None:
    with app.batch() as batch:
        ran.work.using(deadline=1.5).enqueue(1)
    batch.pause()
    with working(app):
        counted(batch, "blocked", 1)
        complete(batch)
    assert not ran.rows
    assert batch.status().done == 1
    nothing_is_left(redis)


def test_what_waits_expires_with_its_batch(app: App, ran: Ran, redis: Redis) -> None:
    with app.batch(expires=1.0) as batch:
        ran.work.enqueue(1)
    batch.pause()
    with working(app) as launcher:
        counted(batch, "blocked", 1)
        [auditor] = [one for one in launcher.companions if isinstance(one, Auditor)]
        until(lambda: auditor.audit().expired, "the auditor sees that its time is over")
        complete(batch)
    assert not ran.rows
    status = batch.status()
    assert (status.why, status.counts["expired"], status.paused) == ("expired", 1, None)
    nothing_is_left(redis)


def test_what_was_cancelled_while_it_was_paused_ends_and_is_not_held(app: App, redis: Redis) -> None:
    """Nobody fetched anything between the pause and the cancellation; one kind ends by itself, after it has begun."""
    ran, heard = Ran(app), list[int]()

    @app.iterable(name="walk", queue="mail")
    class Walk(IterableJob[[]]):
        def build(self, *, cursor: int | None) -> Iterator[tuple[int, int]]:
            return over_range(3, cursor=cursor)

        def each_iteration(self, item: int) -> None:
            heard.append(item)

    with app.batch() as batch:
        alone = ran.work.enqueue(0)
        ran.work.enqueue(1)
        app.enqueue("walk")
    batch.pause()
    alone.cancel()
    with working(app):
        counted(batch, "cancelled", 1)
        counted(batch, "blocked", 2)
    batch.cancel()
    with working(app):
        complete(batch)
    assert batch.status().counts["cancelled"] == 3
    assert not ran.rows
    assert not heard
    nothing_is_left(redis)


def test_a_cancelled_batch_that_nobody_had_fetched_from_ends(app: App, ran: Ran, redis: Redis) -> None:
    batch = ran.batch(range(200))
    batch.pause()
    batch.cancel()
    with working(app):
        complete(batch)
    assert batch.status().counts["cancelled"] == 200
    assert not ran.rows
    nothing_is_left(redis)


def test_why_says_who_and_what_to_do(app: App, ran: Ran) -> None:
    batch = ran.batch(range(1))
    batch.pause("provider outage", by="ana")
    with working(app):
        counted(batch, "blocked", 1)
        [blocked] = app.blocked
        why = app.why(blocked.jid)
        assert f"its batch {batch.id}, which is paused since 20" in why
        assert why.endswith(f" by ana: provider outage: henchman batch unpause {batch.id}")
        acted = app.blocked.release(blocked.jid)
        assert (acted.done, acted.stayed) == (0, 1)
        assert f"henchman batch unpause {batch.id}" in acted.reasons[0]
    batch.unpause()
    batch.pause("again", by="bo")
    waits = app.why(blocked.jid)
    assert waits.startswith("no worker serves") or f"its batch {batch.id} is paused (by bo, " in waits
    assert f": henchman batch unpause {batch.id}" in waits or "henchman work -q mail" in waits


def test_a_batch_that_was_deleted_by_hand_holds_nobody(app: App, ran: Ran, redis: Redis) -> None:
    """The server's set says that it is paused, and there is no batch: its jobs run."""
    batch = ran.batch(range(3))
    batch.pause()
    redis.delete(f"hm:batch:{batch.id}")
    with working(app):
        until(lambda: sorted(ran.rows) == [0, 1, 2], "they run")
    assert not redis.exists("hm:batches:paused")
    assert not in_flight(redis)


def test_who_waits_for_a_batch_that_is_gone_can_be_let_go(app: App, ran: Ran, redis: Redis) -> None:
    batch = ran.batch(range(1))
    batch.pause()
    with working(app):
        counted(batch, "blocked", 1)
        [one] = app.blocked
        redis.delete(f"hm:batch:{batch.id}")
        assert "goes on" in app.why(one.jid)
        assert app.blocked.release(one.jid).done == 1
        until(lambda: ran.rows == [0], "it runs")
    assert not redis.exists("hm:parked")


def test_what_the_server_refuses_stays_and_is_tried_again(
    app: App, ran: Ran, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key of ours that holds something else: the job waits in the schedule, and nothing is lost."""
    monkeypatch.setattr("henchman.worker.claim.REFUSED", 0.3)
    batch = ran.batch(range(2))
    batch.pause()
    line = f"hm:await:nbatch:\n{batch.id}"
    redis.set(line, "no line")
    with working(app):
        until(lambda: redis.zcard("schedule") == 2, "they are put off")
        assert not ran.rows
        assert not redis.exists("hm:parked")
        redis.delete(line)
        counted(batch, "blocked", 2)
        batch.unpause()
        complete(batch)
    assert sorted(ran.rows) == [0, 1]
    nothing_is_left(redis)


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda batch: batch.pause("x" * 201), ArgumentError, "201 characters"),
        (lambda batch: batch.pause(), BatchError, "is complete: there is nothing left to pause"),
    ],
)
def test_what_makes_no_sense(app: App, act: Callable[[Batch], None], error: type[Exception], words: str) -> None:
    with app.batch() as batch:
        pass
    with pytest.raises(error, match=words):
        act(batch)
    batch.unpause()  # which may be said of any batch that there is
    for id in ("gone", "class:work"):
        for one in (app.get_batch(id).pause, app.get_batch(id).unpause):
            with pytest.raises(UnknownBatch, match=f"'{id}'"):
                one()
    assert not app.pauses.all()


def test_the_same_awaited(app: App, ran: Ran) -> None:
    async def both() -> list[bool]:
        await batch.apause("later", by="ana")
        paused = (await batch.astatus()).paused is not None
        await batch.aunpause()
        return [paused, (await batch.astatus()).paused is None]

    batch = ran.batch(range(1))
    assert asyncio.run(both()) == [True, True]


def test_its_time_under_a_rate_is_given_anew(app: App, redis: Redis) -> None:
    """Those that had their time while it was paused come one after the other all the same, not all at once."""
    seen = list[float]()

    @app.job(name="call", queue="mail", limits=[Leaky("shop", 1, per=0.3)])
    def call(n: int) -> None:
        seen.append(time.monotonic())

    with app.batch() as batch:
        batch.add(call, [(n,) for n in range(4)])
    with working(app):
        until(lambda: redis.zcard("schedule") + len(seen) == 4, "they have their times")
        batch.pause()
        until(lambda: batch.status().counts["blocked"] + len(seen) == 4, "and wait, when these have come")
        batch.unpause()
        complete(batch)
    assert len(seen) == 4
    assert all(b - a > 0.2 for a, b in pairwise(seen)), seen
    nothing_is_left(redis)


# ---- classes and tags


def test_a_class_and_a_tag_wait_and_others_go_on(app: App, redis: Redis) -> None:
    """Jobs of no batch, tracked or not, from this app or another; more than the script itself lets go."""
    ran = Ran(app)

    @app.job(name="tagged", queue="mail", tags=["vip", "eu"], track=True)
    def tagged(n: int) -> None:
        ran.rows.append(2000 + n)

    app.pauses.pause("class:work", "provider outage", by="ana")
    app.pauses.pause("tag:eu")
    ran.work.enqueue_many([(n,) for n in range(300)])
    ran.other.enqueue_many([(n,) for n in range(3)])
    tagged.enqueue_many([(n,) for n in range(3)])
    redis.lpush("queue:mail", payload("r" * 24, **{"class": "work", "args": [300], "queue": "mail"}))
    with working(app):
        until(lambda: redis.hlen("hm:parked") == 304, "they wait")
        until(lambda: sorted(ran.rows) == [1000, 1001, 1002], "the others ran")
        assert list(app.pauses.all()) == ["class:work", "tag:eu"]
        assert app.pauses.all()["class:work"].reason == "provider outage"
        why = app.why("r" * 24)
        assert "blocked by its class work, which is paused since 20" in why
        assert why.endswith(" by ana: provider outage: henchman pauses unpause class:work")
        assert app.pauses.unpause("tag:eu")
        until(lambda: sorted(ran.rows)[3:] == [2000, 2001, 2002], "those with the tag go on")
        assert app.pauses.unpause("class:work")
        assert not app.pauses.unpause("class:work")
        until(lambda: len(ran.rows) == 307, "and the class")
    assert sorted(ran.rows)[:301] == list(range(301))
    assert not redis.exists("hm:paused")
    nothing_is_left(redis)


def test_a_job_of_a_paused_batch_and_class_waits_for_both(app: App, ran: Ran, redis: Redis) -> None:
    batch = ran.batch(range(2))
    batch.pause()
    app.pauses.pause("class:work")
    with working(app):
        counted(batch, "blocked", 2)
        batch.unpause()
        until(lambda: all("class work" in app.why(one.jid) for one in app.blocked) and app.blocked.size() == 2, "both")
        assert not ran.rows
        app.pauses.unpause("class:work")
        complete(batch)
    assert sorted(ran.rows) == [0, 1]
    nothing_is_left(redis)


def test_two_jobs_with_one_id_are_both_kept(app: App, ran: Ran, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made them so: the second one does not take the place of the first."""
    monkeypatch.setattr("henchman.worker.claim.REFUSED", 0.2)
    for n in (1, 2):
        redis.lpush("queue:mail", payload("7" * 24, **{"class": "work", "args": [n], "queue": "mail"}))
    app.pauses.pause("class:work")
    with working(app):
        until(lambda: redis.hlen("hm:parked") == 1 and redis.zcard("schedule") == 1, "one waits, one is put off")
        app.pauses.unpause("class:work")
        until(lambda: sorted(ran.rows) == [1, 2], "both run")
    nothing_is_left(redis)


def test_what_cannot_be_found_again_and_ordered_queues_go_on(app: App, ran: Ran, redis: Redis) -> None:
    seen = list[Any]()

    @app.ordered(name="sync", queue="products")
    def sync(claim: dict[str, list[Any]]) -> None:
        seen.append(claim)

    for name in ("class:sync", "class:work"):
        app.pauses.pause(name)
    sync.push("sku-1", 1)
    redis.sadd("queues", "mail")
    redis.lpush("queue:mail", b'{"class":"work","args":[5],"queue":"mail","retry":true}')
    with working(app):
        until(lambda: seen and ran.rows == [5], "both ran")
    app.pauses.unpause("class:sync")
    app.pauses.unpause("class:work")


@pytest.mark.parametrize("what", ["mail", "queue:mail", "class:", "tag:" + "x" * 201, "class:a\nb", 7, None])
def test_what_is_no_class_and_no_tag(app: App, redis: Redis, what: Any) -> None:
    for act in (app.pauses.pause, app.pauses.unpause):
        with pytest.raises(ArgumentError, match="cannot be paused: say class:NAME or tag:NAME"):
            act(what)
    assert not redis.exists("hm:paused")
