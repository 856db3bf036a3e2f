"""Our worker processes in Ruby's hands: told by its API, stopped in the middle of Ruby's jobs."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from interop.both import ours
from interop.ruby_side import Ruby
from support.processes import PATHS, Work
from support.worker import in_flight, until

Start = Callable[..., Work]


@pytest.fixture
def start(redis: Redis, redis_url: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a supervisor with one worker process for the queue ``py``, and waits for it."""
    running: list[Work] = []

    def made(*args: str) -> Work:
        env = {"HENCHMAN_HEARTBEAT": "0.2", "HENCHMAN_LEASE": "300", "PYTHONPATH": ":".join(PATHS)}
        work = Work(tmp_path / "w", redis_url, "-q", "py", "-c", "1", *args, target="interop.both:app", **env)
        running.append(work)
        work.ready(redis)
        return work

    yield made
    for work in running:
        work.end()


def test_a_stop_gives_ruby_s_jobs_back_byte_for_byte(ruby: Ruby, redis: Redis, start: Start) -> None:
    work = start("-t", "0.5")
    long = ruby("Sidekiq::Client.push('class' => 'pkg.mod.long', 'queue' => 'py', 'args' => a)", 60, "é", 1e16, 10**30)
    until(lambda: ours(redis), "it runs")
    later = ruby("Sidekiq::Client.push('class' => 'pkg.mod.ok', 'queue' => 'py', 'args' => [])")
    before = until(lambda: in_flight(redis), "it is held")
    assert work.stop() == 3, "a job was cut off"
    left = redis.lrange("queue:py", 0, -1)
    assert [json.loads(one)["jid"] for one in left] == [later, long], "at the right end: next to run"
    assert left[-1] in before, "the very bytes that were fetched"
    assert ruby("Sidekiq.dump_json(Sidekiq.load_json(a[0]))", left[-1].decode()).encode() == left[-1]
    assert ruby("[Sidekiq::ProcessSet.new.size, Sidekiq::Workers.new.size, Sidekiq::Queue.new('py').size]") == [0, 0, 2]
    assert not in_flight(redis)
    assert not redis.exists("retry", "dead")


def test_what_ruby_says_to_a_process_is_obeyed(ruby: Ruby, redis: Redis, start: Start) -> None:
    work = start()
    (identity,) = ruby("Sidekiq::ProcessSet.new.map(&:identity)")
    ruby("Sidekiq::ProcessSet.new.first.dump_threads; nil")
    until(lambda: "heart" in work.log and "in tick" in work.log, "its stacks are in the log")
    ruby("Sidekiq::ProcessSet.new.first.quiet!; nil")
    until(lambda: ruby("Sidekiq::ProcessSet.new.first.stopping?"), "it is quiet within two beats")
    jid = ruby("Sidekiq::Client.push('class' => 'pkg.mod.ok', 'queue' => 'py', 'args' => [])")
    beat = float(redis.hget(identity, "beat") or 0)
    until(lambda: float(redis.hget(identity, "beat") or 0) > beat + 0.4, "two more beats")
    assert not ours(redis), "it takes nothing new"
    ruby("Sidekiq::ProcessSet.new.first.stop!; nil")
    until(lambda: identity not in ruby("Sidekiq::ProcessSet.new.map(&:identity)"), "it has stopped")
    until(lambda: [row[1] for row in ours(redis)] == [jid], "its successor runs the job")


def test_a_killed_process_leaves_ruby_s_list(ruby: Ruby, redis: Redis, start: Start) -> None:
    work = start()
    (pid,) = work.children
    jid = ruby("Sidekiq::Client.push('class' => 'pkg.mod.long', 'queue' => 'py', 'args' => [600])")
    until(lambda: ruby("Sidekiq::Workers.new.size") == 1, "Ruby sees it run")
    os.kill(pid, signal.SIGKILL)
    redis.set("our:open", "1")  # it ends at once when it runs again
    started = time.monotonic()
    until(lambda: pid not in ruby("Sidekiq::ProcessSet.new.map { |one| one['pid'] }"), "it is off the list")
    assert time.monotonic() - started < 55, "its supervisor took it off: it would have been there for 60 s"
    until(lambda: [row[1] for row in ours(redis)] == [jid, jid], "the job runs again")
    until(lambda: redis.get("stat:processed") == b"1", "and ends once")
    assert not redis.exists("queue:py", "retry", "dead")
