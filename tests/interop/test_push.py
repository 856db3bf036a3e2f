"""Jobs pushed on one side as the other side finds them: Ruby's client to our worker, our client to Ruby's eyes."""

from __future__ import annotations

import json
import random
import struct
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from henchman.wire import jsontext, times
from interop.both import make_app, ours
from interop.ruby_side import Ruby
from support.worker import jobs_in, settled, until, working

TEXTS = ["", "é", "日本語 😀", "\u2028\u2029\x7f/", "\x00\x01\x1f\b\f\n\r\t", '"\\', "</script>&'", "e\u0301", "\ufeff"]
NUMBERS = [0, -1, 2**53 + 1, 2**64, -(10**40), 0.1, 1e-4, 3.0, -0.0, 9.9e14]
BEYOND = [1e-5, 1e-7, 1e15, 1e16, 1e22, 1.5e300, 5e-324]  # Debian's Ruby writes them as it did before json 2.10
NESTED = [None, True, False, [], {}, [[[]]], {"a": {"b": [{"": None}]}}, {"é\n": [1, 2.5, "x"]}]
VALUES = [*TEXTS, *NUMBERS, *NESTED]


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same types: 3.0 is not 3."""
    return json.dumps(left) == json.dumps(right)


def test_ruby_pushes_now_and_we_run_it(ruby: Ruby, redis: Redis, redis_url: str) -> None:
    jid = ruby("Echo.perform_async(*a)", *VALUES, *BEYOND)
    with working(make_app(redis_url=redis_url, queues=["ruby"])):
        settled(redis, 1)
    ((event, ran, _, *got),) = ours(redis)
    assert (event, ran) == ("echo", jid)
    assert same(got, [*VALUES, *BEYOND])
    assert not redis.exists("retry", "dead", "queue:ruby")


def test_ruby_schedules_and_we_run_it_when_it_is_due(ruby: Ruby, redis: Redis, redis_url: str) -> None:
    with working(make_app(redis_url=redis_url, queues=["ruby"])):
        started = time.time()
        jid, later = ruby("[Echo.perform_in(0.5, 'now'), Echo.perform_at(Time.now + 3600, 'later')]")
        payload, at = redis.zrange("schedule", -1, -1, withscores=True)[0]  # the first may run already
        assert json.loads(payload)["jid"] == later
        assert b"enqueued_at" not in payload
        assert at == pytest.approx(started + 3600, abs=60)
        settled(redis, 1)
        assert time.time() - started >= 0.5
    assert [row[1] for row in ours(redis)] == [jid]
    assert [job["jid"] for job in jobs_in(redis, "schedule")] == [later]


def test_ruby_pushes_in_bulk_and_we_run_all_in_order(ruby: Ruby, redis: Redis, redis_url: str) -> None:
    jids = ruby("Echo.perform_bulk((0...2500).map { |n| [n, 'é'] })")
    assert len(set(jids)) == 2500
    with working(make_app(redis_url=redis_url, queues=["ruby"], concurrency=1)):
        settled(redis, 2500)
    assert [row[1] for row in ours(redis)] == jids
    assert [row[3] for row in ours(redis)] == list(range(2500))


def test_every_option_of_a_ruby_push_is_understood(ruby: Ruby, redis: Redis, redis_url: str) -> None:
    code = "Sidekiq::Client.push('class' => a[0], 'args' => [1], 'queue' => 'py', **a[1])"
    options = {"retry": 0, "tags": ["x"], "backtrace": 1, "cattr": {"user": 7}, "locale": "fr", "made_up": [1.0, {}]}
    ruby(code, "pkg.mod.fails", options)
    with working(make_app(redis_url=redis_url, queues=["py"])):
        settled(redis, 1)
    (dead,) = jobs_in(redis, "dead")
    assert {name: dead[name] for name in options} == options, "unknown fields survive"
    assert dead["retry_count"] == 0
    assert ruby("Sidekiq::DeadSet.new.first.error_backtrace.size") == 1


def test_what_we_push_is_byte_for_byte_what_ruby_would_write(ruby: Ruby, redis: Redis, redis_url: str) -> None:
    app = make_app(redis_url=redis_url)
    ok, fails = app.registry.find("pkg.mod.ok"), app.registry.find("pkg.mod.fails")
    assert ok is not None
    assert fails is not None
    first = ok.enqueue(*VALUES)
    fails.using(queue="mail", retry=3, retry_for=60, tags=["a", "日"], timeout=5).enqueue({"k": 1.0})
    ok.enqueue_many([(n, "é") for n in range(3)])
    app.enqueue("HardJob", "bob", 5, queue="ruby", backtrace=2, dead=False, retry_queue="slow", log_level="debug")
    ok.using(delay=3600).enqueue("later")
    ok.using(at=datetime.now(UTC) + timedelta(days=1)).enqueue("tomorrow", 1e14)
    app.close()

    raw = [*redis.lrange("queue:py", 0, -1), *redis.lrange("queue:mail", 0, -1), *redis.lrange("queue:ruby", 0, -1)]
    raw += redis.zrange("schedule", 0, -1)
    texts = [one.decode() for one in raw]
    assert ruby("a.map { |text| Sidekiq.dump_json(Sidekiq.load_json(text)) }", *texts) == texts
    assert redis.smembers("queues") == {b"py", b"mail", b"ruby"}, "scheduled jobs name their queue when they are due"
    seen = ruby("Sidekiq::Queue.new('py').map { |job| [job.jid, job.klass, job.args] }")
    assert seen[-1][:2] == [first.jid, "pkg.mod.ok"], "the oldest is at the right end"
    assert same(seen[-1][2], VALUES)
    assert [args for _, _, args in reversed(seen[:-1])] == [[0, "é"], [1, "é"], [2, "é"]]


def test_ruby_reads_our_scheduled_jobs_and_moving_one_doubles_none(ruby: Ruby, redis: Redis, redis_url: str) -> None:
    app = make_app(redis_url=redis_url)
    ok = app.registry.find("pkg.mod.ok")
    assert ok is not None
    handles = [ok.using(delay=3600 + n).enqueue(value, [value]) for n, value in enumerate(VALUES)]
    app.close()
    assert set(ruby("Sidekiq::ScheduledSet.new.map(&:jid)")) == {one.jid for one in handles}
    target = time.time() + 7200
    ruby("set = Sidekiq::ScheduledSet.new; set.to_a.each { |entry| entry.reschedule(Time.at(a[0])) }; nil", target)
    found = redis.zrange("schedule", 0, -1, withscores=True)
    assert len(found) == len(handles), "each is there once"
    assert [score for _, score in found] == pytest.approx([target] * len(found), abs=0.01)


def test_moving_a_retry_of_ours_in_ruby_doubles_none(ruby: Ruby, redis: Redis, redis_url: str) -> None:
    app = make_app(redis_url=redis_url, queues=["py"])
    fails = app.registry.find("pkg.mod.fails")
    assert fails is not None
    with working(app):
        for value in VALUES:
            fails.enqueue(value)
        settled(redis, len(VALUES))
    code = "set = Sidekiq::RetrySet.new; set.to_a.each { |entry| entry.reschedule(Time.at(a[0])) }; set.size"
    assert ruby(code, time.time() + 7200) == len(VALUES)


def test_a_job_that_ruby_puts_into_its_queue_from_the_schedule_runs_once(
    ruby: Ruby, redis: Redis, redis_url: str
) -> None:
    app = make_app(redis_url=redis_url, queues=["py"])
    ok = app.registry.find("pkg.mod.ok")
    assert ok is not None
    with working(app):
        handle = ok.using(delay=3600).enqueue("soon")
        ruby("Sidekiq::ScheduledSet.new.find_job(a[0]).add_to_queue; nil", handle.jid)
        until(lambda: ours(redis), "it runs")
        settled(redis, 1)
    assert [row[1] for row in ours(redis)] == [handle.jid]
    assert not redis.exists("schedule", "queue:py")


def test_numbers_are_written_as_ruby_writes_them(ruby: Ruby) -> None:
    """Sidekiq finds some entries by the text that it would write itself. Below 1e-4 and from 1e15 on Debian's Ruby
    writes otherwise than those of today (tests/unit/floats_of_ruby.txt), and must read the same."""
    chance = random.Random(6)
    numbers = [chance.random() * 10.0 ** chance.randint(-3, 14) for _ in range(10_000)]
    numbers += [factor * 10.0**power for power in range(-4, 14) for factor in (1, -1, 9.5, 1.234567890123456)]
    numbers += [chance.randint(-(2**70), 2**70) for _ in range(100)]
    texts = [jsontext.dumps(one).decode() for one in numbers if not isinstance(one, float) or abs(one) >= 1e-4]
    back = ruby("a.map { |text| JSON.generate(JSON.parse(text)) }", *texts)
    assert [pair for pair in zip(texts, back, strict=True) if pair[0] != pair[1]] == []
    beyond = [struct.unpack("d", chance.randbytes(8))[0] for _ in range(5000)]
    read = ruby("a.map { |text| JSON.parse(text) }", *[jsontext.dumps(one).decode() for one in beyond if one == one])
    assert read == [one for one in beyond if one == one]


def test_times_that_we_write_are_written_alike_by_ruby(ruby: Ruby) -> None:
    """Whole milliseconds, from 1970 to 5138, also those that Ruby makes of its clock."""
    chance = random.Random(7)
    texts = [times.write(chance.random() * 10 ** chance.uniform(0, 11), "seconds").decode() for _ in range(100_000)]
    back = ruby("a.map { |text| JSON.generate(JSON.parse(text)) }", *texts)
    assert [pair for pair in zip(texts, back, strict=True) if pair[0] != pair[1]] == []


def test_what_is_due_enters_its_queue_as_ruby_s_own_scheduler_would_do_it(
    ruby: Ruby, redis: Redis, redis_url: str
) -> None:
    """Ruby's retry and Ruby's scheduled job, put into their queues by our stager, read by Ruby."""
    old = {"class": "Echo", "args": ["é"], "queue": "nobody", "retry": True, "created_at": 1.5, "enqueued_at": 2.5}
    retry = old | {"jid": "r" * 24, "retry_count": 3, "failed_at": 3.5, "retried_at": 4.5, "custom": [1.0, None]}
    later = ruby("Echo.set(queue: 'nobody').perform_at(Time.now + 0.1, 1)")
    stored: str = ruby("Sidekiq.dump_json(a[0])", retry)
    redis.zadd("retry", {stored: time.time() - 1})
    before = time.time()
    with working(make_app(redis_url=redis_url, queues=["py"])):
        until(lambda: redis.llen("queue:nobody") == 2, "both are there")
    assert not redis.exists("retry", "schedule")
    found = {job["jid"]: job for job in ruby("Sidekiq::Queue.new('nobody').map(&:item)")}
    assert found[later]["enqueued_at"] == pytest.approx(before, abs=60)
    assert found["r" * 24].pop("enqueued_at") == pytest.approx(before, abs=60)
    assert found["r" * 24] == {name: value for name, value in retry.items() if name != "enqueued_at"}
    assert 0 <= ruby("Sidekiq::Queue.new('nobody').latency") < 60
    texts = [one.decode() for one in redis.lrange("queue:nobody", 0, -1)]
    assert [one.count('"enqueued_at":') for one in texts] == [1, 1], "current Ruby warns of a field that is there twice"
    assert ruby("a.map { |text| JSON.generate(JSON.parse(text)) }", *texts) == texts
    head, _, tail = stored.partition("2.5")
    (moved,) = [one for one in texts if "custom" in one]
    assert moved.startswith(head)
    assert moved.endswith(tail)


def test_ruby_says_the_tenant_of_a_fair_queue(ruby: Ruby, redis: Redis, redis_url: str) -> None:
    app = make_app(redis_url=redis_url, queues=["turns"], concurrency=1)
    app.job(name="Turn", queue="turns", fair_by="tenant")(_turn)
    app.queues["turns"].pause()
    ruby(
        "(0...5).each { |n| Echo.set(queue: 'turns', fair: 'A').perform_async('A', n) }; "
        "Echo.set(queue: 'turns', fair: 'B', priority: 'high').perform_async('B', 0); "
        "Sidekiq::Client.push('class' => 'Turn', 'queue' => 'turns', 'args' => ['C', 0])"
    )
    with working(app):
        app.queues["turns"].unpause()
        settled(redis, 7)
    assert [row[3] for row in ours(redis)][:2] == ["B", "A"]
    assert sorted(row[4] for row in ours(redis) if row[3] == "A") == list(range(5))
    assert [key for key in redis.keys("queue:*") if key.startswith(b"queue:turns")] == []  # type: ignore[union-attr]


def _turn(tenant: str, number: int) -> None:
    """It is found by its name."""
