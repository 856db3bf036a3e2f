"""Ruby's worker: it runs what we push, it fails what we retry and the reverse, and we read what it leaves."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from henchman import App
from henchman.cli.main import henchman
from henchman.inspector.jobs import find_job
from henchman.inspector.metrics import overview
from henchman.store.call import run
from interop.both import make_app, ours
from interop.ruby_side import Ruby, RubyWorker, trace
from support.server import running_server
from support.worker import in_flight, jobs_in, looker, until, working


@pytest.fixture(scope="module")
def _there(_ruby_is_there: None) -> Iterator[tuple[str, Redis, RubyWorker, Ruby]]:
    """A server of this module's own, so that Ruby's poller does not reach into other tests."""
    with (
        running_server() as server,
        looker(server.url) as redis,
        Ruby(server.url) as ruby,
        RubyWorker(server.url, redis, "ruby") as worker,
    ):
        yield server.url, redis, worker, ruby
        assert worker.stop() == 0


@pytest.fixture
def url(_there: tuple[str, Redis, RubyWorker, Ruby]) -> str:
    url, redis, worker, _ = _there
    for _ in range(2):  # a beat counts what has run, and then, in a second step, writes the record
        started = time.time()

        def at_rest(started: float = started) -> bool:  # what earlier tests left has run and is counted
            busy, beat = redis.hmget(worker.identity, "busy", "beat")
            return busy == b"0" and float(beat or 0) > started

        until(at_rest, "Ruby is at rest")
    kept = {worker.identity.encode(), b"processes", f"{worker.identity}:workers".encode()}
    gone = [key for key in redis.scan_iter(count=1000) if key not in kept]
    if gone:
        redis.delete(*gone)
    return url


@pytest.fixture
def redis(_there: tuple[str, Redis, RubyWorker, Ruby], url: str) -> Redis:
    return _there[1]


@pytest.fixture
def worker(_there: tuple[str, Redis, RubyWorker, Ruby], url: str) -> RubyWorker:
    return _there[2]


@pytest.fixture
def ruby(_there: tuple[str, Redis, RubyWorker, Ruby], url: str) -> Ruby:
    return _there[3]


@pytest.fixture
def app(url: str) -> Iterator[App]:
    made = make_app(redis_url=url, queues=["shared", "py"], heartbeat=0.2)
    yield made
    made.close()


def due(redis: Redis, key: str) -> None:
    """What waits in a set is due now."""
    for payload in redis.zrange(key, 0, -1):  # type: ignore[union-attr]
        redis.zadd(key, {payload: time.time() - 1}, xx=True)


def push(app: App, name: str, *args: Any, **options: Any) -> str:
    found = app.registry.find(name)
    assert found is not None
    jid: str = found.using(**options).enqueue(*args).jid
    return jid


def test_ruby_runs_what_we_push(app: App, redis: Redis, worker: RubyWorker) -> None:
    values = ["é日本😀", 10**40, 0.1, 1e16, None, {"a": [True]}]
    now = push(app, "Echo", *values)
    later = push(app, "Echo", "later", delay=0.2)
    by_name = app.enqueue("Echo", "by name", queue="ruby").jid
    echo = app.registry.find("Echo")
    assert echo is not None
    assert echo.enqueue_many([(n,) for n in range(300)]).count == 300
    until(lambda: len(trace(redis)) >= 303, "Ruby ran all")
    rows = {row[1]: row[2:] for row in trace(redis)}
    assert json.dumps(rows[now]) == json.dumps(values)
    assert rows[later] == ["later"]
    assert rows[by_name] == ["by name"]
    assert sorted(row[0] for row in rows.values() if isinstance(row[0], int)) == list(range(300))
    assert not redis.exists("retry", "schedule", "dead")


def test_fails_in_ruby_and_is_retried_here(app: App, redis: Redis, worker: RubyWorker) -> None:
    jid = push(app, "Shared", "ruby", "é", queue="ruby")
    until(lambda: redis.zcard("retry"), "it failed in Ruby")
    (payload,) = redis.zrange("retry", 0, -1)
    job = json.loads(payload)
    assert (job["error_message"], job["retry_count"], job["queue"]) == ("failed in Ruby", 0, "ruby")
    entry = app.retries.find(jid)
    assert entry is not None
    assert entry.error == ("RuntimeError", "failed in Ruby")
    assert entry.attempts == 1
    redis.zrem("retry", payload)
    redis.zadd("retry", {json.dumps(job | {"queue": "shared"}): time.time() - 1})
    with working(app):
        until(lambda: ours(redis), "it ran here")  # Ruby counts what it ran under the same name, when it beats
        until(lambda: not redis.exists("retry", "queue:shared") and not in_flight(redis), "and is settled")
    assert [row[:3] for row in ours(redis)] == [["shared", jid, 2]], "the second attempt, under the same id"


def test_fails_in_ruby_then_here_then_succeeds_in_ruby(app: App, redis: Redis, worker: RubyWorker) -> None:
    """One job goes round: ``retry_queue`` leads it from one language to the other."""
    fields = {"class": "Shared", "args": ["both"], "jid": "b" * 24, "queue": "ruby", "retry": 2, "custom": [1.0]}
    redis.lpush("queue:ruby", json.dumps(fields | {"retry_queue": "shared", "backtrace": 3, "created_at": 1.5}))
    until(lambda: redis.zcard("retry"), "it failed in Ruby")
    (first,) = jobs_in(redis, "retry")
    assert (first["queue"], first["error_class"]) == ("shared", "RuntimeError")
    with working(app):
        due(redis, "retry")
        until(lambda: [job["retry_count"] for job in jobs_in(redis, "retry")] == [1], "it failed here")
        (second,) = jobs_in(redis, "retry")
        assert second["failed_at"] == round(first["failed_at"], 3), "the first failure, in whole milliseconds"
        assert second["retried_at"] > first["failed_at"]
        assert (second["error_class"], second["error_message"]) == ("ValueError", "failed in Python")
        assert {name: second[name] for name in fields if name != "queue"} == {
            name: fields[name] for name in fields if name != "queue"
        }
        assert second["created_at"] == 1.5
        assert second["enqueued_at"] > first["failed_at"], "it was enqueued again for its retry"
        redis.zremrangebyrank("retry", 0, -1)
        redis.lpush("queue:ruby", json.dumps(second))
        until(lambda: redis.zcard("dead"), "it failed in Ruby for the last time")
    (dead,) = jobs_in(redis, "dead")
    assert (dead["retry_count"], dead["failed_at"]) == (2, round(first["failed_at"], 3))
    assert [row[2] for row in ours(redis)] == [2]


def test_fails_here_and_is_retried_in_ruby(app: App, redis: Redis, worker: RubyWorker, ruby: Ruby) -> None:
    jid = "c" * 24
    job = {"class": "Shared", "args": ["python", "é"], "jid": jid, "retry": True, "retry_queue": "ruby"}
    redis.lpush("queue:shared", json.dumps(job | {"queue": "shared", "backtrace": True}))
    with working(app):
        until(lambda: redis.zcard("retry"), "it failed here")
    assert ruby("Sidekiq::RetrySet.new.map { |e| [e.jid, e.queue, e['error_class']] }") == [[jid, "ruby", "ValueError"]]
    lines = ruby("Sidekiq::RetrySet.new.first.error_backtrace")
    assert "both.py" in lines[0]
    due(redis, "retry")
    until(lambda: trace(redis), "Ruby ran it")
    assert trace(redis) == [["shared", jid, "python", "é"]]
    assert not redis.exists("retry", "dead")


def test_what_a_stopped_ruby_gives_back_runs_here(app: App, redis: Redis, url: str, ruby: Ruby) -> None:
    jid = "d" * 24
    payload = json.dumps({"class": "Long", "args": [60], "jid": jid, "retry": True, "queue": "shared"})
    # One slot: an idle one beside it would take what the stop gives back, up to 2 s later, and be killed with it.
    with RubyWorker(url, redis, "shared", concurrency=1, timeout=1) as other:
        redis.lpush("queue:shared", payload)
        until(lambda: trace(redis), "Ruby runs it")
        assert other.stop() == 0
    assert redis.lrange("queue:shared", 0, -1) == [payload.encode()]

    @app.job(name="Long")
    def long(seconds: float) -> None:
        redis.rpush("our:trace", json.dumps(["long", seconds]))

    with working(app):
        until(lambda: ours(redis), "it ran here")
        until(lambda: not redis.exists("queue:shared") and not in_flight(redis), "and is settled")
    assert ours(redis) == [["long", 60]]


def told(url: str, command: str, *more: str) -> str:
    """What a command says to programs: one JSON text."""
    result = CliRunner().invoke(henchman, ["--redis", url, *command.split(), *more, "--json"])
    assert result.exit_code == 0, result.output
    return json.dumps(json.loads(result.stdout), ensure_ascii=False)


def test_we_read_what_ruby_left(app: App, redis: Redis, url: str, worker: RubyWorker, ruby: Ruby) -> None:
    ruby("Fails.set(retry: 0).perform_async('dies')")
    failing = ruby("Fails.set(tags: ['x', 'é']).perform_async('fails')")
    ok = ruby("Echo.perform_async('fine')")
    later = ruby("Echo.perform_in(3600, 'later')")
    ruby("Echo.set(queue: 'nobody').perform_async('waits')")
    running = ruby("Long.perform_async(80)")  # until it is told to end
    runner, keys = app.connections, app.keys
    until(lambda: redis.zcard("retry") and redis.zcard("dead"), "failures are there")
    ((stored, due_at),) = redis.zrange("retry", 0, -1, withscores=True)  # type: ignore[misc]
    assert 14 < due_at - json.loads(stored)["failed_at"] < 60
    redis.zincrby("retry", 3600, stored)  # not while we look

    def alone() -> Any:
        now = app.processes.work()
        return now if [one.entry.jid for one in now] == [running] else None

    work = until(alone, "Ruby's beat tells what runs, and of nothing else any more")
    assert [(one.entry.jid, one.queue, one.entry.call_text(), one.identity) for one in work] == [
        (running, "ruby", "Long(80)", worker.identity)
    ]
    assert work[0].run_at == pytest.approx(time.time(), abs=80)
    assert run(runner, find_job(keys, running)).state == "working"
    # Ruby's beat writes what runs, and then, in a second step, its own record.
    (process,) = until(lambda: [one for one in app.processes.states() if one.busy == 1], "its record too")
    assert (process.identity, process.pid, process.queues) == (worker.identity, worker.pid, ("ruby",))
    assert (process.concurrency, process.quiet, process.ours) == (2, False, False)
    assert process.busy == 1
    assert process.rss_kb > 10_000
    assert process.beat_age(time.time()) == pytest.approx(0, abs=30)
    retry = app.retries.find(failing)
    assert retry is not None
    assert (retry.name, retry.arguments[0], retry.tags, retry.attempts) == ("Fails", ["fails"], ["x", "é"], 1)
    assert retry.error == ("ArgumentError", "pas d'été fails")
    assert "jobs.rb" in retry.backtrace[0]
    assert retry.score == pytest.approx(due_at + 3600)
    assert [one.arguments[0] for one in app.dead] == [["dies"]]
    assert run(runner, find_job(keys, later)).state == "scheduled"
    assert [(one.name, one.size) for one in app.queues.states() if one.size] == [("nobody", 1)]

    def counted() -> Any:
        now = run(runner, overview(keys)).stats
        return now if now.processed >= 3 and now.failed >= 2 and now.processed_today == now.processed else None

    figures = until(counted, "counted at Ruby's beat, one figure after the other")
    assert figures.failed == 2
    assert (figures.scheduled, figures.retries, figures.dead, figures.enqueued) == (1, 1, 1, 1)
    assert (figures.processes, figures.busy, figures.processed_today) == (1, 1, figures.processed)
    assert ok in [row[1] for row in trace(redis)]
    said = {command: told(url, command) for command in ("status", "queues", "processes", "retries list", "dead list")}
    assert failing in said["retries list"]
    assert "pas d'été fails" in said["retries list"]
    assert '"dies"' in said["dead list"]
    assert worker.identity in said["processes"]
    assert running in said["processes"]
    assert '"nobody"' in said["queues"]
    assert '"working"' in told(url, "job", running)
    redis.set("ruby:open", "1")
    until(lambda: not app.processes.work(), "it ends")


def test_ruby_s_older_backtraces_are_read(app: App, redis: Redis, worker: RubyWorker, ruby: Ruby) -> None:
    """6.x breaks its Base64 into lines."""
    ruby("Fails.perform_async('x' * 500)")
    until(lambda: redis.zcard("retry"), "it failed")
    (job,) = jobs_in(redis, "retry")
    assert "\n" in job["error_backtrace"]
    assert base64.b64decode(job["error_backtrace"])[:1] == b"\x78"
    (entry,) = app.retries
    assert entry.backtrace == ruby("Sidekiq::RetrySet.new.first.error_backtrace")


def test_our_buttons_work_on_ruby_s_jobs_and_process(
    app: App, redis: Redis, url: str, worker: RubyWorker, ruby: Ruby
) -> None:
    jids = [ruby("Fails.perform_async(a[0])", n) for n in range(3)]
    until(lambda: redis.zcard("retry") == 3, "they failed")
    retries = app.retries
    entries = {one.jid: one for one in retries}
    assert retries.kill([entries[jids[0]]]).done == 1
    assert retries.delete([entries[jids[1]]]).done == 1
    assert ruby("Sidekiq::DeadSet.new.map(&:jid)") == [jids[0]]
    assert retries.retry([entries[jids[2]]]).done == 1
    until(lambda: [job["retry_count"] for job in jobs_in(redis, "retry")] == [1], "Ruby ran it again")
    with RubyWorker(url, redis, "nobody") as other:
        processes = app.processes
        state = processes.find(other.identity)
        assert state is not None
        assert processes.tell(state, "quiet") is False
        until(lambda: (now := processes.find(other.identity)) and now.quiet, "Ruby is quiet")
        processes.tell(state, "stop")
        assert other.process.wait(90) == 0
