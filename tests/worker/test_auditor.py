"""The auditor: what left our hands is settled with its reason, and nothing that only waits is."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from redis import Redis

from henchman import App
from henchman.batch.auditor import APART, LATEST, STILL, Audited, Auditor
from henchman.batch.batch import Batch, leases
from support.worker import Heard, until, working


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    app = App(redis_url=redis_url)
    app.job(name="work")(work)
    yield app
    app.close()


def work(n: int) -> None: ...


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """A batch of ten jobs, and an auditor whose clock the test moves."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.clock = Clock()
        self.auditor = Auditor(app, monotonic=self.clock)
        with app.batch("ten") as self.batch:
            app.registry.get("work").enqueue_many((n,) for n in range(10))  # type: ignore[attr-defined]

    def audit(self, after: float = 0.0) -> Audited:
        self.clock.now += after
        return self.auditor.audit()

    def counts(self, batch: Batch | None = None) -> dict[str, int]:
        return {name: count for name, count in (batch or self.batch).status().counts.items() if count}


def test_what_is_nowhere_is_settled_after_two_looks(app: App, redis: Redis) -> None:
    scene, heard = Scene(app), Heard(app, "batch_settled")
    redis.ltrim("queue:default", 0, 6)
    assert scene.audit() == Audited()
    assert scene.audit(STILL - 1) == Audited(), "it is not still for long enough"
    assert scene.audit(2) == Audited(), "the first look settles nothing"
    assert scene.audit(APART - 1) == Audited()
    assert scene.audit(2) == Audited(settled=3)
    assert scene.counts() == {"enqueued": 7, "error": 3}
    [reason] = scene.batch.status().reasons
    assert "left without a word" in reason.reason
    assert heard["batch_settled"][0]["jobs"] == 3
    redis.delete("queue:default")
    for after in (0.0, STILL + 1, APART + 1):
        scene.audit(after)
    status = scene.batch.status()
    assert (status.state, status.counts["error"]) == ("complete", 10)
    assert redis.hlen(f"hm:batch:{scene.batch.id}:jobs") == 0


def test_what_waits_somewhere_is_left_alone_and_looked_for_more_and_more_rarely(app: App, redis: Redis) -> None:
    scene = Scene(app)
    rows = redis.lrange("queue:default", 0, -1)
    assert isinstance(rows, list)
    redis.delete("queue:default")
    redis.lpush("queue:default", *rows[:2])
    redis.zadd("schedule", {rows[2]: 1.0, rows[3]: 2.0})
    redis.zadd("retry", {rows[4]: 1.0})
    redis.zadd("hm:identities", {"host:1:0123456789ab": 1.0})
    redis.zadd("hm:tombs", {"host:2:0123456789ab": 1.0})
    for number in (1, 2):
        flight = f"hm:flight:host:{number}:0123456789ab:1:default"
        redis.sadd(f"hm:flights:host:{number}:0123456789ab", flight)
        redis.lpush(flight, rows[4 + number])
    redis.lpush("queue:other", *rows[7:])
    redis.sadd("queues", "other")
    scene.audit()
    for _ in range(20):
        assert scene.audit(STILL) == Audited()
    assert scene.counts() == {"enqueued": 10}
    one = scene.auditor._watched[scene.batch.id]
    assert one.wait == LATEST
    assert not one.missed


def test_what_moved_between_the_looks_is_not_lost(app: App, redis: Redis) -> None:
    scene = Scene(app)
    rows = redis.lrange("queue:default", 0, -1)
    redis.delete("queue:default")
    scene.audit()
    assert scene.audit(STILL + 1) == Audited()
    redis.lpush("queue:default", *rows)  # type: ignore[misc]
    assert scene.audit(APART + 1) == Audited()
    redis.delete("queue:default")
    assert scene.audit(STILL + 1) == Audited(), "it needs two looks again"
    app.registry.get("work").using(batch=app.batch("another").open()).enqueue(1)  # type: ignore[attr-defined]
    assert scene.audit(APART + 1) == Audited(settled=10)


def test_what_died_elsewhere_says_so(app: App, redis: Redis) -> None:
    scene = Scene(app)
    [row] = redis.rpop("queue:default", 1)  # type: ignore[misc]
    redis.zadd("dead", {row[:-1] + b',"error_message":"Ruby said no"}': 1.0})
    scene.audit()
    assert scene.audit(STILL + 1) == Audited(settled=1)
    [reason] = scene.batch.status().reasons
    assert reason.reason == "died elsewhere: Ruby said no"
    assert redis.zcard("dead") == 1


def test_who_waits_for_a_step_that_died_elsewhere_goes_on_when_it_is_revived(app: App, redis: Redis) -> None:
    clock = Clock()
    auditor, job = Auditor(app, monotonic=clock), app.registry.get("work")
    with app.workflow("two") as flow:
        flow.add(job.call(2), name="second", after=flow.add(job.call(1), name="first"))  # type: ignore[attr-defined]
    [row] = redis.rpop("queue:default", 1)  # type: ignore[misc]
    redis.zadd("dead", {row: 1.0})  # as Sidekiq's pages kill
    for after in (0.0, STILL + 1):
        clock.now += after
        auditor.audit()
    assert redis.hget(f"hm:batch:{flow.id}:steps", "first") == b"d", "dead, not over"
    with working(app):
        until(lambda: b"needs dead" in b"".join(redis.hvals("hm:parked")), "who waits was told, and is not cancelled")
        assert app.dead.retry_all().done == 1
        until(lambda: flow.status().state == "complete", "both ran")
    counts = flow.status().counts
    assert (counts["finished"], counts["error"], counts["cancelled"]) == (1, 1, 0), "the first was counted when it died"
    assert not redis.exists("hm:parked")


def test_a_batch_left_open_is_closed_when_its_producer_is_gone(app: App, redis: Redis) -> None:
    scene = Scene(app)
    batch = app.batch("open", open_for=60, atomic=True).open()
    batch.add(app.registry.get("work"), [(1,), (2,)])
    redis.hset(f"hm:batch:{batch.id}", "open_for", "0.0")
    assert scene.audit() == Audited(), "whoever fills it lives"
    redis.delete(f"hm:batch:{batch.id}:producer")
    assert scene.audit() == Audited(), "it needs two looks"
    assert scene.audit(APART + 1) == Audited(closed=1)
    status = batch.status()
    assert (status.state, status.why, status.counts["cancelled"]) == ("complete", "aborted", 2)
    later = app.batch("later", open_for=3600).open()
    redis.delete(f"hm:batch:{later.id}:producer")
    assert scene.audit() == Audited()
    later.close()


def test_a_step_of_the_clock_closes_no_batch_that_somebody_fills(app: App, redis: Redis) -> None:
    """The server's clock goes two hours forward: every lease has run out, and the time for which it may stay open. Its
    producer takes the lease again within seconds."""
    scene = Scene(app)
    batch = app.batch("open", open_for=3600, atomic=True).open()
    batch.add(app.registry.get("work"), [(1,), (2,)])
    redis.hset(f"hm:batch:{batch.id}", "open_for", "0.0")
    redis.delete(f"hm:batch:{batch.id}:producer")
    assert scene.audit() == Audited()
    leases.renew()
    assert scene.audit(APART + 1) == Audited()
    redis.delete(f"hm:batch:{batch.id}:producer")
    assert scene.audit(APART + 1) == Audited(), "two looks in a row"
    leases.renew()
    batch.add(app.registry.get("work"), [(3,)])
    batch.close()
    assert batch.status().counts["enqueued"] == 3


def test_what_a_producer_had_not_released_is_released(app: App, redis: Redis) -> None:
    scene = Scene(app)
    batch = app.batch("atomic", atomic=True).open()
    batch.add(app.registry.get("work"), [(1,), (2,)])
    redis.hset(f"hm:batch:{batch.id}", "state", "closed")
    assert scene.audit() == Audited(released=1)
    assert scene.counts(batch) == {"enqueued": 2}


@pytest.mark.parametrize("producer", ["reads on slowly", "is gone"])
def test_what_is_parked_waits_as_long_as_its_batch_is_open(app: App, redis: Redis, producer: str) -> None:
    scene, heard = Scene(app), Heard(app, "batch_settled")
    batch = app.batch("atomic", atomic=True).open()
    batch.add(app.registry.get("work"), [(1,), (2,)])
    if producer == "is gone":
        redis.delete(f"hm:batch:{batch.id}:producer")
    for after in (0.0, STILL + 1, APART + 1, STILL + 1, APART + 1):
        assert scene.audit(after) == Audited()
    assert scene.counts(batch) == {"blocked": 2}
    redis.lpop(f"hm:batch:{batch.id}:parked", 2)
    batch.close()
    for after in (0.0, STILL + 1):
        assert scene.audit(after) == Audited()
    assert scene.audit(APART + 1) == Audited(settled=2), "what is parked nowhere is lost like any other"
    assert len(heard["batch_settled"]) == 1


def test_what_was_parked_for_long_runs_after_all(app: App, redis: Redis) -> None:
    scene = Scene(app)
    batch = app.batch("atomic", atomic=True).open()
    batch.add(app.registry.get("work"), [(1,), (2,)])
    for after in (0.0, STILL + 1, APART + 1):
        scene.audit(after)
    batch.close()
    status = batch.status()
    assert (status.state, status.counts["enqueued"], status.failed) == ("closed", 2, 0)
    assert redis.llen("queue:default") == 12


def test_the_time_of_a_batch_is_over(app: App, redis: Redis) -> None:
    scene = Scene(app)
    batch = app.batch("short", expires=3600).open()
    batch.add(app.registry.get("work").using(delay=3600), [(1,), (2,)])  # type: ignore[attr-defined]
    redis.hset(f"hm:batch:{batch.id}", "expires", "1.0")
    assert scene.audit() == Audited(expired=1)
    status = batch.status()
    assert (status.state, status.why, status.counts["expired"]) == ("complete", "expired", 2)
    assert redis.zcard("schedule") == 0


@pytest.mark.parametrize("field", ["expires", "open_for"])
def test_what_the_clock_leapt_over_is_no_time_of_a_batch(app: App, redis: Redis, field: str) -> None:
    """As far as this process saw the step; what really passes then counts."""
    scene = Scene(app)
    app.clock.heard(time.time(), app.clock.sent())
    batch = app.batch("short", expires=7200, open_for=7200).open()
    key = f"hm:batch:{batch.id}"
    redis.delete(key + ":producer")
    facts = {"created": time.time() - 3600, "expires": time.time() + 4000, "open_for": 7600}
    facts[field] = 3500 if field == "open_for" else time.time() - 100
    redis.hset(key, mapping=facts)  # type: ignore[arg-type]
    leap = (time.time() - 1800, 1000.0)
    app.clock._leaps = (leap,)
    for after in (0, APART + 1):
        assert scene.audit(after) == Audited()
    app.clock._leaps = ((leap[0], 50.0),)
    scene.audit()
    scene.audit(APART + 1)
    assert batch.status().why == ("expired" if field == "expires" else "aborted")


def test_what_is_gone_is_forgotten_and_a_parent_does_not_wait_for_it(app: App, redis: Redis) -> None:
    scene = Scene(app)
    with app.batch("parent") as parent:
        child = app.batch("child").open()
    child_key = f"hm:batch:{child.id}"
    redis.delete(child_key, child_key + ":producer")
    assert scene.audit() == Audited(forgotten=1)
    assert redis.zscore("hm:batches", child.id) is None
    scene.audit(STILL + 1)
    scene.audit(APART + 1)
    assert parent.status().state == "complete"
    assert parent.status().why == ""


def test_one_process_audits_at_a_time(app: App, redis: Redis) -> None:
    first, second = Auditor(app), Auditor(app)
    for one in (first, second):
        assert one.tick() == 60.0  # the first of a worker does nothing
    first.tick()
    second.tick()
    assert (first._leader.leads, second._leader.leads) == (True, False)
    first.stop()
    assert not redis.exists("hm:auditor")
    second.tick()
    assert second._leader.leads
    assert app.audit() == Audited()
