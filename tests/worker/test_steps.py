"""The server's clock steps, as its stager sees it: which times move along, each once, whoever dies in between.

The clock of the real server stays. What it is compared with is changed: the time of the last look, and the time that
this process expects.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.store import batches
from henchman.store.call import command
from henchman.wire.payload import delay_of, name_of
from henchman.work.effects import of_payload
from henchman.worker import pool
from henchman.worker.stager import Stager
from support.worker import Heard, in_flight, jobs_in, until, working

BY = 5 * 3600.0
DAY = 86400.0


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    made.job(name="act")(lambda *args: None)
    yield made
    made.close()


def steps(app: App, by: float) -> float:
    """The clock has gone ``by`` seconds, for all that looked before; what time it would be without that."""
    last = float(app.connections.run(command("HGET", app.keys.clock, "now")))
    app.connections.run(command("HSET", app.keys.clock, "now", repr(last - by)))
    if app.clock._ahead is not None:
        app.clock._ahead -= by
    return time.time() - by


def put(redis: Redis, key: str, written: float, name: str, after: float, *, noted: bool = True) -> None:
    """An entry that was written at ``written``, to be due so many seconds later."""
    redis.zadd(key, {entry(name, after if noted else None): written + after})


def entry(name: str, delay: float | None) -> str:
    job = {"class": "act", "queue": "default", "args": [], "jid": name}
    return json.dumps(job if delay is None else job | {"hm": {"delay": delay}})


def times(redis: Redis, key: str) -> dict[str, float]:
    return {json.loads(one)["jid"]: score for one, score in redis.zrange(key, 0, -1, withscores=True)}  # type: ignore[union-attr,misc]


def carry_out(stager: Stager) -> None:
    """Look until nothing more is left to do at once."""
    while stager.tick() == 0.0:
        pass


def near(moment: float) -> Any:
    return pytest.approx(moment, abs=2.0)


def test_what_was_computed_before_the_clock_went_back_is_computed_anew(app: App, redis: Redis) -> None:
    """A time that the clock shows twice says nothing of when it was written: what was written then stays."""
    heard, stager = Heard(app, "clock_stepped"), Stager(app)
    stager.tick()
    old = steps(app, -BY)
    put(redis, "schedule", old - 10, "fresh", 60)
    put(redis, "schedule", old - 2 * BY, "long", DAY)
    put(redis, "schedule", time.time(), "after", 60)
    put(redis, "schedule", old - 10, "at", 60, noted=False)
    put(redis, "retry", old - 10, "failed", 40, noted=False)
    redis.zadd("hm:tombs", {"buried": old - 60})
    carry_out(stager)
    now = old - BY
    assert times(redis, "schedule") == {
        "fresh": near(now + 50),
        "long": near(now - 2 * BY + DAY),
        "after": near(now + 60),
        "at": near(old + 50),
    }
    assert times(redis, "retry") == {"failed": near(now + 30)}
    assert redis.zscore("hm:tombs", "buried") == near(now - 60)
    assert [facts["seconds"] for facts in heard["clock_stepped"]] == [near(-BY)]
    assert set(redis.hgetall("hm:clock")) == {b"now", b"by", b"at"}, "nothing is left to do"  # type: ignore[arg-type]


def test_what_was_computed_before_the_clock_went_forward_is_computed_anew(app: App, redis: Redis) -> None:
    """And nothing is staged before."""
    heard, stager = Heard(app, "clock_stepped"), Stager(app)
    stager.tick()
    old = steps(app, BY)
    put(redis, "schedule", old - 10, "fresh", 60)
    put(redis, "schedule", old - 2 * BY, "long", DAY)
    put(redis, "schedule", old - 100, "was-due", 60)
    put(redis, "schedule", time.time(), "after", 60)
    put(redis, "schedule", old - 10, "at", 60, noted=False)
    put(redis, "retry", old - 10, "failed", 40, noted=False)
    put(redis, "retry", time.time(), "failed-after", 40, noted=False)
    put(redis, "retry", old - 100, "was-due-again", 40, noted=False)
    redis.zadd("hm:tombs", {"buried": old - 60, "buried-after": time.time()})
    carry_out(stager)
    now = old + BY
    assert times(redis, "schedule") == {
        "fresh": near(now + 50),
        "long": near(now - 2 * BY + DAY),
        "after": near(now + 60),
    }
    assert times(redis, "retry") == {"failed": near(now + 30), "failed-after": near(now + 40)}
    assert {job["jid"] for job in jobs_in(redis, "queue:default")} == {"at", "was-due", "was-due-again"}
    assert redis.zscore("hm:tombs", "buried") == near(now - 60)
    assert redis.zscore("hm:tombs", "buried-after") == near(now)
    assert [facts["seconds"] for facts in heard["clock_stepped"]] == [near(BY)]
    assert set(redis.hgetall("hm:clock")) == {b"now", b"by", b"at"}, "nothing is left to do"  # type: ignore[arg-type]


def wait(
    redis: Redis, name: str, written: float, *, at_most: float | None, due: float | None, noted: bool = True
) -> None:
    """A job that was parked at ``written``."""
    ours = {"needs": [["", "first", 604800, "first"]], "on_failed": "cancel"}
    ours |= {"wait_at_most": at_most} if at_most is not None else {}
    ours |= {"delay": due} if due is not None and noted else {}
    job = {"class": "act", "queue": "default", "args": [], "jid": name, "hm": ours}
    row = f"default\n{'' if due is None else written + due}\nneeds\n\n{json.dumps(job, separators=(',', ':'))}"
    redis.hset("hm:parked", name, row)
    redis.zadd("hm:await:n\nfirst", {name: redis.incr("hm:token")})  # type: ignore[dict-item]
    if at_most is not None:
        redis.zadd("hm:parked:until", {name: written + at_most})
    if due is not None:
        redis.zadd("hm:parked:due", {name: written + due})


def scores(redis: Redis, key: str) -> dict[str, float]:
    return {one.decode(): score for one, score in redis.zrange(key, 0, -1, withscores=True)}  # type: ignore[union-attr,misc]


@pytest.mark.parametrize("by", [-BY, BY])
def test_the_times_of_those_who_wait_for_others_move_along(app: App, redis: Redis, by: float) -> None:
    """So that nobody stops waiting too early, or runs before the delay is over."""
    stager = Stager(app)
    stager.tick()
    old = steps(app, by)
    wait(redis, "short", old - 10, at_most=60, due=None)
    wait(redis, "long", old - 2 * BY, at_most=DAY, due=None)
    wait(redis, "after", time.time(), at_most=60, due=60)
    wait(redis, "late", old - 10, at_most=None, due=2 * BY)
    wait(redis, "at", old - 10, at_most=None, due=2 * BY, noted=False)
    carry_out(stager)
    now = old + by
    until_when = {"short": near(now + 50), "long": near(now - 2 * BY + DAY), "after": near(now + 60)}
    assert scores(redis, "hm:parked:until") == until_when
    due = {"after": near(now + 60), "late": near(now - 10 + 2 * BY), "at": near(old - 10 + 2 * BY)}
    assert scores(redis, "hm:parked:due") == due
    assert redis.hlen("hm:parked") == 5
    assert not redis.hexists("hm:clock", "left"), "nothing is left to do"


@pytest.mark.parametrize("by", [-BY, BY])
def test_the_dead_keep_their_age(app: App, redis: Redis, by: float) -> None:
    """Else those who die after a step back are trimmed before others, and a step forward makes all of them old."""
    stager = Stager(app)
    stager.tick()
    old = steps(app, by)
    now = old + by
    redis.zadd("dead", {entry("long-ago", None): now - 9 * DAY - by, entry("just", None): old - 10})
    redis.zadd("dead", {entry("new", None): now})
    carry_out(stager)
    long_ago = now - 9 * DAY - (by if by < 0 else 0)  # by what the clock shows now, it may be one from after the step
    assert times(redis, "dead") == {"long-ago": near(long_ago), "just": near(now - 10), "new": near(now)}


def test_who_is_let_go_after_a_step_goes_by_the_time_that_moved_along(app: App, redis: Redis) -> None:
    """Also in the moment in which the step was not noticed yet: then by way of the schedule."""
    app.job(name="first", followed=True)(lambda: None)
    app.job(name="second")(lambda: None)
    stager = Stager(app)
    stager.tick()
    first = app.enqueue("first")
    moved = app.job(name="third")(lambda: None).using(after=first, delay=3 * BY).enqueue()
    waits = app.job(name="fourth")(lambda: None).using(after=first, delay=0.001).enqueue()
    old = steps(app, BY)
    redis.zadd("hm:parked:due", {moved.jid: old + 3 * BY})
    row = redis.hget("hm:parked", moved.jid)
    assert isinstance(row, bytes)
    carry_out(stager)
    assert scores(redis, "hm:parked:due")[moved.jid] == near(old + 4 * BY)
    app.connections.run(command("HSET", app.keys.clock, "now", repr(time.time() - BY)))  # the next step, not noticed
    effects = of_payload(app.keys, redis.lindex("queue:default", 0), "done")
    app.connections.run(batches.note(app.keys, [effects]))
    assert times(redis, "schedule").keys() == {moved.jid, waits.jid}, "none runs before the clock is known"
    assert times(redis, "schedule")[moved.jid] == near(old + 4 * BY)
    assert not redis.exists("hm:parked", "hm:parked:due", "hm:await:n\n" + first.jid)


def test_what_is_left_of_a_wait_without_a_row_is_taken_away(app: App, redis: Redis) -> None:
    """Its row was deleted by hand: else it is looked at for ever, and keeps a hundred others from being looked at."""
    stager = Stager(app)
    for number in range(150):
        wait(redis, f"gone-{number}", time.time() - 100, at_most=60, due=None)
    redis.delete("hm:parked")
    wait(redis, "here", time.time() - 100, at_most=70, due=None)
    redis.sadd("hm:needs:gone-0", "n\nfirst", "nother\n7")
    redis.zadd("hm:await:nother\n7", {"gone-0": 1})
    carry_out(stager)
    assert not redis.exists("hm:parked:until", "hm:parked", "hm:needs:gone-0", "hm:await:nother\n7")
    redis.rpush("hm:decide", "over\n\n0\n\nfirst")
    carry_out(stager)
    assert not redis.exists("hm:await:n\nfirst", "hm:decide"), "the line too, when what they waited for is over"


def test_what_others_have_seen_was_no_step(app: App, redis: Redis) -> None:
    """The clock of this process had stood still: the time that it finds, another one has seen coming."""
    stager = Stager(app)
    stager.tick()
    old = steps(app, BY)
    redis.hset("hm:clock", "now", repr(time.time() - 1))
    put(redis, "schedule", old, "due", 60)
    carry_out(stager)
    assert not redis.zcard("schedule")
    assert not redis.hexists("hm:clock", "at")


def test_a_process_that_did_not_see_the_step_moves_only_what_is_certain(app: App, redis: Redis) -> None:
    """All were dead: nobody knows how long ago the clock went back, and what was pushed since."""
    redis.hset("hm:clock", "now", repr(time.time() + BY))
    old = time.time() + BY
    put(redis, "schedule", old - 10, "before", 60)
    put(redis, "schedule", time.time() - 1800, "since", 3600)
    put(redis, "retry", old - 10, "failed", 40, noted=False)
    carry_out(Stager(app))
    now = old - BY
    assert times(redis, "schedule") == {"before": near(now + 50), "since": near(now + 1800)}
    assert times(redis, "retry") == {"failed": near(now + 30)}


@pytest.mark.parametrize("by", [-BY, BY])
@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_dies_each_time_moves_along_once(app: App, redis: Redis, by: float, when: str) -> None:
    """Each second page is broken off before it is moved, or after: another process goes on. Many of one time are more
    than a page."""
    first = Stager(app)
    first.tick()
    old = time.time() - by
    tied = old + 7200.0 + max(by, 0.0)
    scheduled = {entry(f"at-{n}", None): tied for n in range(1300)}
    scheduled |= {entry(f"delay-{n}", tied - old): tied for n in range(1300)}
    scheduled |= {entry(f"later-{n}", 7200.0): old + 7200.0 + n for n in range(700)}
    redis.zadd("schedule", scheduled)
    redis.zadd("retry", {entry(f"failed-{n}", None): old + 600 + n / 100 for n in range(700)})
    steps(app, by)
    before, run, broken = times(redis, "schedule") | times(redis, "retry"), app.connections.run, 0

    def breaks_off(call: Any) -> Any:
        nonlocal broken
        broken += call.name == "rebase"
        if call.name == "rebase" and broken % 2:
            if when == "after":
                run(call)
            raise InterruptedError
        return run(call)

    app.connections.run = breaks_off  # type: ignore[method-assign]
    stager = first
    while True:
        try:
            if stager.tick():
                break
        except InterruptedError:
            stager.leader.resign(app.connections, app.events, "stager")
            stager = Stager(app)
    del app.connections.run  # type: ignore[method-assign]
    after = times(redis, "schedule") | times(redis, "retry")
    assert broken > 10
    assert after == {name: near(score + (0 if name[:2] == "at" else by)) for name, score in before.items()}
    assert not redis.hexists("hm:clock", "left")


def test_steps_one_after_the_other(app: App, redis: Redis) -> None:
    """The first one is not done with when the clock is put right again."""
    stager = Stager(app)
    stager.tick()
    put(redis, "schedule", time.time(), "delay", 60)
    put(redis, "retry", time.time(), "failed", 40, noted=False)
    before = times(redis, "schedule") | times(redis, "retry")
    stager.stopping.set()  # it only looks
    for by in (-BY, BY):
        steps(app, by)
        stager.tick()
    left = redis.hget("hm:clock", "left")
    assert isinstance(left, bytes)
    assert len(left.splitlines()) == 2
    stager.stopping.clear()
    carry_out(stager)
    assert times(redis, "schedule") | times(redis, "retry") == {name: near(at) for name, at in before.items()}


def test_a_suspect_that_is_put_off_says_after_what_delay_it_is_due(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without an id stays as it is: its deaths are charged to its bytes."""
    monkeypatch.setattr(pool, "ALONE_WITHIN", 1.0)
    busy, release = threading.Event(), threading.Event()
    app.job(name="hold")(lambda: (busy.set(), release.wait(30)))
    named, nameless = entry("suspect", None), '{"class":"act","args":[]}'
    redis.sadd("hm:suspects", "suspect", name_of(nameless.encode()))
    app.enqueue("hold")
    with working(app):
        assert busy.wait(30)
        redis.lpush("queue:default", named, nameless)
        stored, wanted = set[bytes](), {nameless.encode(), entry("suspect", 1.0).encode().replace(b" ", b"")}
        until(lambda: stored.update(redis.zrange("schedule", 0, -1)) or wanted <= stored, "each is put off")  # type: ignore[arg-type,func-returns-value]
        release.set()
        until(lambda: not redis.exists("schedule", "queue:default") and not in_flight(redis), "both run")


def test_what_is_due_after_a_delay_says_so(app: App, redis: Redis) -> None:
    """A time that a user gives takes the note away."""
    app.enqueue("act", delay=60)
    app.enqueue("act", at=datetime.now(UTC) + timedelta(seconds=60))
    assert sorted(str(delay_of(one)) for one in redis.zrange("schedule", 0, -1)) == ["60.0", "None"]  # type: ignore[union-attr]
    (found,) = [one for one in app.scheduled if delay_of(one.payload)]
    moment = time.time() + 500
    assert app.scheduled.reschedule(found, moment)
    assert app.scheduled.reschedule(found, moment + 1), "found by what it was"
    assert [job.get("hm") for job in jobs_in(redis, "schedule")] == [None, None]
    assert times(redis, "schedule")[found.jid] == pytest.approx(moment + 1, abs=0.01)
    app.scheduled.clear()
    assert not app.scheduled.reschedule(found, moment)
    assert not redis.zcard("schedule")
