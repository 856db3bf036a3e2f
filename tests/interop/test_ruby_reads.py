"""Ruby's API over what we made: queues, sets, processes, running jobs, counters, all with the right values."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from redis import Redis

from interop.both import ours
from interop.ruby_side import Ruby
from interop.scene import Scene, scene
from support.worker import until


@pytest.fixture
def made(redis_url: str, redis: Redis) -> Iterator[Scene]:
    with scene(redis_url, redis) as found:
        yield found


def test_ruby_reads_our_queues_and_sets(ruby: Ruby, made: Scene) -> None:
    now = time.time()
    assert ruby("Sidekiq::Queue.all.map(&:name)") == ["py", "waiting"]
    name, size, latency, jobs = ruby(
        "q = Sidekiq::Queue.new('waiting'); [q.name, q.size, q.latency, q.map { |j| [j.jid, j.klass, j.args, j.tags] }]"
    )
    assert (name, size) == ("waiting", 3)
    assert 0 <= latency < 120
    assert jobs == [[jid, "pkg.mod.ok", [n, "é"], ["a", "b"]] for n, jid in reversed(list(enumerate(made.waiting)))]
    assert ruby("Sidekiq::Queue.new('waiting').find_job(a[0]).enqueued_at.to_f", made.waiting[0]) == pytest.approx(
        now, abs=120
    )
    assert ruby("Sidekiq::ScheduledSet.new.map { |e| [e.jid, e.queue, e.args] }") == [[made.later, "py", ["later"]]]
    assert ruby("Sidekiq::ScheduledSet.new.first.at.to_f") == pytest.approx(now + 3600, abs=120)

    code = """Sidekiq::RetrySet.new.find_job(a[0]).then { |e| {
        queue: e.queue, klass: e.klass, display: e.display_class, args: e.args, tags: e.tags,
        error: [e["error_class"], e["error_message"]], count: e["retry_count"], failed: e["failed_at"],
        retried: e["retried_at"], trace: e.error_backtrace, at: e.at.to_f, created: e.created_at.to_f } }"""
    found = ruby(code, made.retrying)
    assert found["queue"] == "py"
    assert found["klass"] == found["display"] == "pkg.mod.fails"
    assert (found["args"], found["tags"]) == (["again"], ["vip", "é"])
    assert found["error"] == ["LookupError", "kein Glück <b>again</b>"]
    assert (found["count"], found["retried"]) == (0, None)
    assert found["failed"] == pytest.approx(now, abs=120)
    assert found["created"] == pytest.approx(now, abs=120)
    assert 3614 < found["at"] - found["failed"] < 3660, "15 to 24 s, and the hour that we added"
    assert found["trace"][0].endswith("in fails")
    assert "both.py:" in found["trace"][0]
    assert ruby("Sidekiq::DeadSet.new.map { |e| [e.jid, e['retry_count'], e.args] }") == [[made.dead, 0, ["dies"]]]


def test_ruby_reads_our_counters(ruby: Ruby, made: Scene) -> None:
    """Two errors of three endings: a business failure is an answer, not an error."""
    code = """s = Sidekiq::Stats.new; [s.processed, s.failed, s.enqueued, s.scheduled_size, s.retry_size, s.dead_size,
        s.processes_size, s.workers_size]"""
    assert ruby(code) == [4, 2, 3, 1, 1, 1, 1, 1]
    today = datetime.now(UTC).date().isoformat()
    history = ruby("h = Sidekiq::Stats::History.new(2); [h.processed, h.failed]")
    assert [day.get(today) for day in history] == [4, 2]
    assert ruby("Sidekiq::Stats::Queues.new.lengths") == {"py": 0, "waiting": 3}


def test_ruby_reads_our_process_and_what_it_runs(ruby: Ruby, made: Scene, redis: Redis) -> None:
    code = """Sidekiq::ProcessSet.new.map { |p| { identity: p.identity, host: p["hostname"], pid: p["pid"], tag: p.tag,
        labels: p.labels, queues: p.queues, busy: p["busy"], concurrency: p["concurrency"], quiet: p["quiet"],
        stopping: p.stopping?, started: p["started_at"], beat: p["beat"], rss: p["rss"] } }"""
    (found,) = ruby(code)
    assert found["identity"] == made.launcher.session.identity
    assert (found["host"], found["pid"], found["tag"]) == (socket.gethostname(), os.getpid(), "both")
    assert (found["labels"], found["queues"]) == (["reliable"], ["py"])
    assert (int(found["busy"]), found["concurrency"], found["stopping"]) == (1, 3, False)
    assert found["started"] == pytest.approx(time.time(), abs=300)
    assert float(found["beat"]) == pytest.approx(time.time(), abs=30)
    assert int(found["rss"]) > 10_000
    assert ruby("s = Sidekiq::ProcessSet.new; [s.size, s.total_concurrency, s.total_rss > 10_000]") == [1, 3, True]

    code = """Sidekiq::Workers.new.map { |process, thread, work| [process, work["queue"], work["run_at"],
        Sidekiq::JobRecord.new(work["payload"]).then { |j| [j.jid, j.display_class, j.args] }] }"""
    ((process, queue, run_at, job),) = ruby(code)
    assert (process, queue, job) == (found["identity"], "py", [made.running, "pkg.mod.long", [600.0, "é"]])
    assert run_at == pytest.approx(time.time(), abs=120)
    assert isinstance(run_at, int)
    raw = redis.hvals(f"{process}:workers")
    assert raw == redis.hvals(f"{process}:work"), "for readers before and after 6.4.2"


def test_ruby_acts_on_our_jobs(ruby: Ruby, made: Scene, redis: Redis) -> None:
    assert (
        ruby("Sidekiq::Queue.new('waiting').find_job(a[0]).delete; Sidekiq::Queue.new('waiting').size", made.waiting[1])
        == 2
    )
    ruby("Sidekiq::DeadSet.new.find_job(a[0]).retry; nil", made.dead)
    until(lambda: sum(row[1] == made.dead for row in ours(redis)) == 2, "it ran again here")
    until(lambda: redis.zcard("dead") == 1, "and died again")
    ruby("Sidekiq::RetrySet.new.find_job(a[0]).kill; nil", made.retrying)
    assert set(ruby("Sidekiq::DeadSet.new.map(&:jid)")) == {made.dead, made.retrying}
    ruby("Sidekiq::RetrySet.new.size; Sidekiq::DeadSet.new.retry_all; nil")
    until(lambda: sum(row[1] == made.retrying for row in ours(redis)) == 2, "both ran again")
    ruby("Sidekiq::Queue.new('waiting').clear; nil")
    assert not redis.sismember("queues", "waiting")


def test_ruby_finds_our_entries_by_their_score(ruby: Ruby, made: Scene) -> None:
    """As its pages do: by ``<score>-<jid>``, with the score gone through a float and back."""
    code = """Sidekiq::RetrySet.new.map { |e| Sidekiq::RetrySet.new.fetch(e.score.to_s.to_f, e.jid).map(&:jid) }"""
    assert ruby(code) == [[made.retrying]]
