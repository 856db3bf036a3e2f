"""Sidekiq's own pages, real and under puma, over what we made: each answers, and its buttons work on our jobs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from interop.both import make_app, ours
from interop.ruby_side import RubyWeb
from interop.scene import Scene, scene
from support.garbage import GARBAGE, READABLE
from support.processes import PATHS, Work
from support.worker import in_flight, jobs_in, push_raw, until, working

TOP = ["/", "/busy", "/queues", "/retries", "/scheduled", "/morgue", "/stats", "/stats/queues"]
LINK = re.compile(r"""href=["'](/(?:queues|retries|scheduled|morgue)[^"']*)["']""")


@pytest.fixture
def made(redis_url: str, redis: Redis) -> Iterator[Scene]:
    with scene(redis_url, redis) as found:
        yield found


def crawl(web: RubyWeb) -> dict[str, str]:
    """Every page that can be reached, by its path; each has to answer 200."""
    pages: dict[str, str] = {}
    todo = [*TOP, "/?days=180", "/morgue?count=100", "/retries?count=100", "/scheduled?count=100"]
    while todo:
        path = todo.pop()
        if path not in pages:
            pages[path] = web.page(path)
            todo += [one.replace("&amp;", "&") for one in LINK.findall(pages[path]) if "poll" not in one]
    return pages


def key_of(redis: Redis, name: str, jid: str) -> str:
    """How the pages name an entry of a set."""
    for payload, score in redis.zrange(name, 0, -1, withscores=True):  # type: ignore[misc]
        if json.loads(payload)["jid"] == jid:
            return f"{score!r}-{jid}"
    raise AssertionError(f"{jid} is not in {name}")


def test_every_page_shows_what_we_made(web: RubyWeb, redis: Redis, made: Scene) -> None:
    for n in range(60):
        redis.zadd("dead", {json.dumps({"class": "Old", "args": [n], "jid": f"{n:024}", "queue": "py"}): 1.5 + n})
    pages = crawl(web)
    assert f"/retries/{key_of(redis, 'retry', made.retrying)}" in pages
    assert f"/scheduled/{key_of(redis, 'schedule', made.later)}" in pages
    assert f"/morgue/{key_of(redis, 'dead', made.dead)}" in pages
    assert any(path.startswith("/morgue?") and "page=2" in path for path in pages)
    assert {"/queues/py", "/queues/waiting"} <= pages.keys()
    retry = pages[f"/retries/{key_of(redis, 'retry', made.retrying)}"]
    for text in ("pkg.mod.fails", "vip", "LookupError", "kein Glück &lt;b&gt;again", "both.py", made.retrying):
        assert text in retry
    for text in (made.launcher.session.identity, "reliable", made.running, "pkg.mod.long", ">py<"):
        assert text in pages["/busy"]
    assert all(jid in pages["/queues/waiting"] or n in pages["/queues/waiting"] for n, jid in enumerate(made.waiting))
    figures = json.loads(pages["/stats"])["sidekiq"]
    latency = figures.pop("default_latency")
    assert latency == 0
    assert figures == {
        "processed": 4, "failed": 2, "busy": 1, "processes": 1, "enqueued": 3, "scheduled": 1, "retries": 1, "dead": 61,
    }  # fmt: skip
    assert json.loads(pages["/stats/queues"]) == {"waiting": 3, "py": 0}


def test_what_we_made_of_garbage_breaks_no_page(web: RubyWeb, redis: Redis, redis_url: str) -> None:
    """Whatever was pushed, scheduled or put among the retries: once it went through our hands it can be shown."""
    everything = [*GARBAGE, *READABLE, *POISON]
    with working(make_app(redis_url=redis_url, queues=["default", "py"], heartbeat=0.2, concurrency=4)):
        push_raw(redis, *everything)
        for index, one in enumerate(everything):
            moved = one.replace(b"1" * 24, b"%024d" % index)
            redis.zadd("schedule", {moved: time.time() - 1000 + index})
            redis.zadd("retry", {moved + b" ": time.time() - 1000 + index})
        until(lambda: not redis.zcount("schedule", "-inf", time.time()), "nothing is due in the schedule")
        until(lambda: not redis.zcount("retry", "-inf", time.time()), "nothing is due among the retries")
        until(lambda: not redis.llen("queue:default") and not in_flight(redis), "all was tried")
        assert redis.zcard("dead") >= 3 * len(GARBAGE)
        assert redis.zcard("retry") >= len(READABLE) + len(POISON) - 3
        pages = crawl(web)
    assert sum(path.startswith("/morgue/") for path in pages) >= len(GARBAGE)
    assert sum(path.startswith("/retries/") for path in pages) >= len(READABLE) + len(POISON) - 3


def odd(**fields: object) -> bytes:
    job = {"class": "pkg.mod.fails", "args": [1], "jid": "1" * 24, "queue": "py", "retry": True, "created_at": 1.5}
    return json.dumps(job | fields, separators=(",", ":")).encode()


#: each with one field that breaks one of Sidekiq's pages where it stands among the retries (wire format, 12.2)
POISON = [
    odd(jid="p" * 24, tags="text"),
    odd(jid="q" * 24, tags={"a": 1}),
    odd(jid="r" * 24, created_at="2026-11-21T09:30:48Z"),
    odd(jid="s" * 24, enqueued_at="yesterday"),
    odd(jid="t" * 24, created_at=1e300, enqueued_at=True),
    odd(jid="u" * 24, retry_count="3", failed_at="text"),
    odd(jid="v" * 24, retry_count=3, retried_at=[]),
    odd(jid="w" * 24, retry_count=-7),
    odd(jid="x" * 24, error_backtrace="no backtrace", **{"class": "nobody"}),
    odd(jid="y" * 24, encrypt=True, args=[]),
    odd(jid="z" * 24, cattr="text", retry_queue=7),
    odd(jid="A" * 24, **{"class": "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper", "wrapped": "X", "args": []}),
    odd(jid="B" * 24, **{"class": "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper", "args": []}),
    odd(jid="C" * 24, display_class=7, locale=7, bid=7),
    odd(jid="D" * 24, **{"class": "Sidekiq::Extensions::DelayedClass", "args": ["--- nonsense: ["]}),
]


def test_a_running_job_with_odd_fields_breaks_no_page(web: RubyWeb, redis: Redis, redis_url: str) -> None:
    with working(make_app(redis_url=redis_url, queues=["py"], heartbeat=0.2), stop=0.0):
        push_raw(redis, odd(**{"class": "pkg.mod.long"}, args=[600], jid="l" * 24, tags="text"), queue="py")
        until(lambda: "l" * 24 in web.page("/busy"), "the page shows it")
    assert jobs_in(redis, "queue:py")[0]["tags"] == "text", "what goes back is what came"


def test_buttons_of_the_retries(web: RubyWeb, redis: Redis, made: Scene) -> None:
    path = f"/retries/{key_of(redis, 'retry', made.retrying)}"
    web.press(path, "retry")
    until(lambda: [row[2] for row in ours(redis) if row[1] == made.retrying] == [1, 1], "it ran again at once")
    until(lambda: redis.zcard("retry"), "it failed again")
    (job,) = jobs_in(redis, "retry")
    assert job["retry_count"] == 0, "Sidekiq takes one off for a retry by hand, so this one is free"
    web.press("/retries", "kill", **{"key[]": key_of(redis, "retry", made.retrying)})
    assert {job["jid"] for job in jobs_in(redis, "dead")} == {made.dead, made.retrying}
    made.app.enqueue("pkg.mod.fails", "third")
    until(lambda: redis.zcard("retry"), "another failed")
    (third,) = jobs_in(redis, "retry")
    web.press(f"/retries/{key_of(redis, 'retry', third['jid'])}", "delete")
    assert not redis.exists("retry")


def test_buttons_for_all(web: RubyWeb, redis: Redis, made: Scene) -> None:
    for n in range(3):
        made.app.enqueue("pkg.mod.fails", n)
    until(lambda: redis.zcard("retry") == 4, "they failed")
    jids = [job["jid"] for job in jobs_in(redis, "retry")]
    web.press("/retries", "retry", "/retries/all/retry")  # until the set is empty: who fails meanwhile runs once more
    until(lambda: all([row[1] for row in ours(redis)].count(jid) >= 2 for jid in jids), "all four ran again")
    until(lambda: redis.zcard("retry") == 4, "and failed again")
    web.press("/retries", "kill", "/retries/all/kill")
    assert (redis.zcard("retry"), redis.zcard("dead")) == (0, 5)
    web.press("/morgue", "retry", "/morgue/all/retry")
    until(lambda: redis.zcard("retry") == 4 and redis.zcard("dead") == 1, "five ran again; retry: 0 died again")
    web.press("/retries", "delete", "/retries/all/delete")
    web.press("/morgue", "delete", "/morgue/all/delete")
    assert not redis.exists("retry", "dead")


def test_buttons_of_the_dead_the_scheduled_and_the_queues(web: RubyWeb, redis: Redis, made: Scene) -> None:
    web.press(f"/morgue/{key_of(redis, 'dead', made.dead)}", "retry")
    until(lambda: [row[1] for row in ours(redis)].count(made.dead) == 2, "it ran again")
    until(lambda: redis.zcard("dead"), "it died again")
    web.press(f"/morgue/{key_of(redis, 'dead', made.dead)}", "delete")
    assert not redis.exists("dead")
    web.press(f"/scheduled/{key_of(redis, 'schedule', made.later)}", "add_to_queue")
    until(lambda: made.later in [row[1] for row in ours(redis)], "it runs now")
    other = made.app.enqueue("pkg.mod.ok", "never", delay=3600).jid
    web.press("/scheduled", "delete", **{"key[]": key_of(redis, "schedule", other)})
    assert not redis.exists("schedule")
    (oldest,) = redis.lrange("queue:waiting", -1, -1)
    web.press("/queues/waiting", "delete", "/queues/waiting/delete", key_val=oldest.decode())
    assert [job["jid"] for job in jobs_in(redis, "queue:waiting")] == made.waiting[1:]
    web.press("/queues", "delete", "/queues/waiting")
    assert redis.smembers("queues") == {b"py"}


def test_quiet_and_stop_reach_our_process(web: RubyWeb, redis: Redis, redis_url: str, tmp_path: Path) -> None:
    env = {"HENCHMAN_HEARTBEAT": "0.2", "PYTHONPATH": ":".join(PATHS)}
    with Work(tmp_path / "w", redis_url, "-q", "py", target="interop.both:app", **env) as work:
        (pid,) = work.ready(redis)
        (identity,) = (one.decode() for one in redis.smembers("processes"))
        web.press("/busy", "quiet", identity=identity)
        until(lambda: redis.hget(identity, "quiet") == b"true", "it is quiet within two beats")
        until(lambda: ">quiet<" in web.page("/busy"), "the page says so")
        assert work.process.poll() is None
        web.press("/busy", "stop", identity=identity)
        until(lambda: identity.encode() not in redis.smembers("processes"), "it has stopped")
        (successor,) = work.ready(redis)
        assert successor != pid, "its supervisor starts another, as a process manager does with Sidekiq's"
        web.press("/busy", "quiet")
        until(
            lambda: [redis.hget(one.decode(), "quiet") for one in redis.smembers("processes")] == [b"true"], "all quiet"
        )
