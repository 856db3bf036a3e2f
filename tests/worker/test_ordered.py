"""Ordered queues in a worker: never two on an id, in order, and what is left on the server. In-process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from redis import Redis

from henchman import App, Discard, Failure, Kill, Snooze, current_job
from henchman.store import leases, ordered
from henchman.store.queues import Pause, pause, unpause
from henchman.worker import fetcher, watcher
from henchman.worker import launcher as launcher_module
from henchman.worker.rescue import give_back_list
from support.worker import Heard, overdue, until, working

REST = {b"hm:ordered:q/meta", b"hm:ordered:q/stat"}


def left(redis: Redis) -> set[Any]:
    """The keys of the queue q that hold more than counters and limits; a marker that nobody needed is none."""
    return set(redis.scan_iter("hm:ordered:q/*")) - REST - {b"hm:ordered:q/wake"}


def empty(redis: Redis) -> None:
    until(lambda: not left(redis), "nothing waits")
    assert not list(redis.scan_iter("hm:held:*")), "nobody holds anything"


def noting(runs: list[Any]) -> Any:
    def note(claim: dict[str, list[Any]]) -> None:
        runs.append(claim)

    return note


def test_payloads_of_an_id_come_together_in_the_order_of_their_scores(app: App, redis: Redis) -> None:
    claims: list[dict[str, list[Any]]] = []

    @app.ordered(queue="q", claim_size=2, name="note")
    def note(claim: dict[str, list[Any]]) -> None:
        claims.append(claim)

    for score in (3, 1, 2, 1):
        note.push("a", {"v": score}, score=score)
    note.push("b", "only")
    with working(app):
        until(lambda: claims, "it ran")
        empty(redis)
    assert claims == [{"a": [{"v": 1}, {"v": 2}, {"v": 3}], "b": ["only"]}], "merged, sorted, equal ones once"
    assert redis.hget("hm:ordered:q/stat", "processed") == b"2", "ids are counted"
    assert redis.get("stat:processed") == b"1", "and calls"


@pytest.mark.parametrize("track", [False, True], ids=["plain", "tracked"])
@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
def test_an_id_whose_payloads_another_hand_took_holds_up_nobody(
    redis_url: str, redis: Redis, several: bool, track: bool
) -> None:
    """An eviction (``maxmemory-policy``) takes whole keys."""
    app, claims = App(redis_url=redis_url, concurrency=4), list[dict[str, list[Any]]]()
    note = app.ordered(queue="q", claim_size=3, name="note", track=track)(noting(claims))
    for name in ("a", "b"):
        note.push(name, 1)
        note.push(name, 2) if several else None
    redis.delete("hm:ordered:q/p:a") if several else redis.hdel("hm:ordered:q/one", "a")
    redis.delete("hm:ordered:q/jp:a")
    with working(app):
        until(lambda: claims, "its neighbour ran")
        note.push("a", 3)
        until(lambda: len(claims) == 2, "it takes what comes later")
        empty(redis)
    assert claims == [{"b": [1, 2] if several else [1]}, {"a": [3]}]


def test_never_two_on_one_id_over_two_workers_and_in_order(redis_url: str, redis: Redis) -> None:
    inside: dict[str, int] = defaultdict(int)
    seen: dict[str, list[int]] = defaultdict(list)
    tokens: dict[str, list[int]] = defaultdict(list)
    overlaps: list[str] = []
    lock = threading.Lock()

    def handle(claim: dict[str, list[int]]) -> None:
        token = current_job().token
        assert token is not None
        with lock:
            for name, payloads in claim.items():
                inside[name] += 1
                if inside[name] > 1:
                    overlaps.append(name)
                seen[name] += payloads
                tokens[name].append(token)
        time.sleep(0.001)
        with lock:
            for name in claim:
                inside[name] -= 1

    apps = [App(redis_url=redis_url, concurrency=4) for _ in range(2)]
    jobs = [one.ordered(queue="q", claim_size=3, name="handle")(handle) for one in apps]

    def produce(first: int) -> None:
        for number in range(first, 600, 2):
            jobs[first].push(str(number % 20), number, score=number)

    with working(apps[0]), working(apps[1]):
        threads = [threading.Thread(target=produce, args=[first]) for first in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        until(lambda: sum(map(len, seen.values())) >= 600, "all ran")
        empty(redis)
    assert not overlaps
    for name, numbers in seen.items():
        assert numbers == sorted(range(int(name), 600, 20)), "each once, in order"
        assert tokens[name] == sorted(set(tokens[name])), "tokens rise"


def test_one_bad_id_does_not_fail_its_neighbours(app: App, redis: Redis) -> None:
    runs: list[list[str]] = []

    @app.ordered(queue="q", claim_size=10, name="some", retry_in=0.05, max_retries=1)
    def some(claim: dict[str, list[Any]]) -> dict[str, Any]:
        runs.append(sorted(claim))
        return {name: ValueError(f"{name} is bad") if name.startswith("bad") else None for name in claim}

    some.push_many([{"id": "a", "payload": 1}, {"id": "bad", "payload": 1}, {"id": "c", "payload": 1}])
    with working(app):
        until(lambda: redis.zcard("hm:ordered:q/morgue"), "the bad one is in the morgue")
        until(lambda: not redis.zcard("hm:ordered:q/due"), "nothing waits")
    assert runs == [["a", "bad", "c"], ["bad"]], "what failed before is claimed alone"
    assert redis.hget("hm:ordered:q/merr", "bad") == b"ValueError: bad is bad"
    assert redis.hmget("hm:ordered:q/stat", "processed", "failed") == [b"2", b"2"]
    assert not redis.exists("hm:ordered:q/retry", "hm:ordered:q/err", "hm:ordered:q/busy")


def test_a_raise_fails_every_id_and_the_lowest_payload_goes_first(app: App, redis: Redis) -> None:
    runs: list[list[int]] = []
    exhausted: list[Any] = []

    @app.ordered(queue="q", name="all", retry_in=0.02, max_retries=2, retries_exhausted=exhausted.extend)
    def fail(claim: dict[str, list[int]]) -> None:
        runs.append(claim["x"])
        if 1 in claim["x"]:
            raise ValueError("one is poison")

    fail.push("x", 1, score=1)
    fail.push("x", 2, score=2)
    with working(app):
        until(lambda: [2] in runs, "the rest went on")
        until(lambda: not redis.zcard("hm:ordered:q/due"), "nothing waits")
    assert runs == [[1, 2], [1, 2], [1, 2], [2]], "two retries, then the lowest is buried and the rest is fresh"
    assert exhausted == [{"id": "x", "payloads": [[1, 1.0]], "error": "ValueError: one is poison"}]
    assert redis.zrange("hm:ordered:q/m:x", 0, -1, withscores=True) == [(b"1", 1.0)]


def test_endings_of_single_ids(app: App, redis: Redis) -> None:
    runs: dict[str, int] = defaultdict(int)
    answers = {"failure": Failure("the answer is no"), "snooze": Snooze(0.05), "kill": Kill("never")}

    @app.ordered(queue="q", claim_size=10, name="ends")
    def ends(claim: dict[str, list[Any]]) -> dict[str, Any]:
        for name in claim:
            runs[name] += 1
        return {name: answers[name] for name in claim if name in answers and runs[name] < 2}

    ends.push_many([(name, 1) for name in ("failure", "snooze", "kill", "fine")])
    with working(app):
        until(lambda: runs["snooze"] == 2, "it came again")
        until(lambda: not redis.zcard("hm:ordered:q/due"), "nothing waits")
    assert dict(runs) == {"failure": 1, "snooze": 2, "kill": 1, "fine": 1}
    assert redis.zrange("hm:ordered:q/morgue", 0, -1) == [b"kill"]
    assert not redis.exists("hm:ordered:q/retry"), "nothing of this was a failure to be retried"


ANSWERS: dict[str, Any] = {
    "kill class": lambda: {"x": Kill},
    "snooze class": lambda: {"x": Snooze},
    "error class": lambda: {"x": OSError},
    "text": lambda: {"x": "could not be reached"},
    "list": lambda: {"x": ["no"]},
    "true": lambda: {"x": True},
    "all text": lambda: "no",
    "all list": lambda: [ValueError("no")],
    "all number": lambda: 0,
    "returned error": lambda: ValueError("no"),
    "stranger": lambda: {"X": ValueError("no")},
    "strange key": lambda: {object(): Kill("no")},
    "raises": lambda: Raises(x=ValueError("no")),
}


class Raises(dict[str, Any]):
    def items(self) -> Any:
        raise SystemExit("not to be looked at")


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_is_not_understood_is_an_error_of_its_id(app: App, redis: Redis, answer: str) -> None:
    """The payload is not gone; a class of our endings means one of its kind."""
    runs: list[list[int]] = []

    @app.ordered(queue="q", name="odd", retry_in=1000)
    def odd(claim: dict[str, list[int]]) -> Any:
        runs.append(claim["x"])
        return ANSWERS[answer]()

    odd.push("x", 7)
    with working(app):
        base = "hm:ordered:q/"
        if answer == "kill class":
            until(lambda: redis.zrange(base + "morgue", 0, -1) == [b"x"], "it is in the morgue")
            assert redis.zrange(base + "m:x", 0, -1) == [b"7"]
        else:
            until(lambda: redis.zscore(base + "retry", "x") == 0, "it will be tried again")
            assert redis.hexists(base + "one", "x"), "its payload is there"
        until(lambda: not redis.exists(base + "busy"), "nobody holds it")
        told = redis.hget(base + ("merr" if answer == "kill class" else "err"), "x")
    assert runs == [[7]]
    assert isinstance(told, bytes)
    said = {"kill class": b"Kill", "error class": b"OSError", "raises": b"SystemExit", "returned error": b"ValueError"}
    assert told.startswith(said.get(answer, b"ArgumentError"))
    assert b"could not be reached" not in told


def test_an_answer_for_no_id_of_the_claim_leaves_those_alone_that_it_names(app: App, redis: Redis) -> None:
    @app.ordered(queue="q", claim_size=10, name="odd", retry_in=1000)
    def odd(claim: dict[str, list[int]]) -> Any:
        return {"a": None, "b": Discard("enough"), "typo": ValueError("no"), "gone": None} if len(claim) == 3 else None

    odd.push_many([("a", 1), ("b", 1), ("c", 1)])
    with working(app):
        until(lambda: redis.zrange("hm:ordered:q/retry", 0, -1) == [b"c"], "the one that it does not name")
        until(lambda: not redis.exists("hm:ordered:q/busy"), "nobody holds them")
    assert redis.zrange("hm:ordered:q/due", 0, -1) == [b"c"]
    assert b"'typo', which is no id of this claim" in (redis.hget("hm:ordered:q/err", "c") or b"")


def test_what_arrives_while_an_id_runs_comes_after_it(app: App, redis: Redis) -> None:
    runs: list[list[int]] = []
    go_on = threading.Event()

    @app.ordered(queue="q", name="slow")
    def slow(claim: dict[str, list[int]]) -> None:
        runs.append(claim["x"])
        assert go_on.wait(30)

    with working(app):
        slow.push("x", 5, score=5)
        until(lambda: runs, "it runs")
        slow.push("x", 1, score=1)
        slow.push("x", 5, score=5)
        until(lambda: redis.zcard("hm:ordered:q/n:x") == 2, "they wait apart")
        assert len(runs) == 1, "not beside it"
        go_on.set()
        until(lambda: len(runs) == 2, "then they run")
        empty(redis)
    assert runs == [[5], [1, 5]], "an equal payload that came meanwhile is a new one"


@pytest.mark.alone("it measures how late a job is")
def test_delays_are_kept_to_the_moment(app: App, redis: Redis) -> None:
    late: list[float] = []

    @app.ordered(queue="q", name="timed")
    def timed(claim: dict[str, list[float]]) -> None:
        late.extend(time.time() - due for payloads in claim.values() for due in payloads)

    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 2, "it waits")
        for number in range(30):
            delay = 0.2 + 0.05 * (number * 7 % 30)
            timed.push(str(number), time.time() + delay, delay=delay)
        until(lambda: len(late) == 30, "all ran")
        empty(redis)
    assert min(late) > -0.05, "none early"
    assert sorted(late)[15] < 0.1, late
    assert max(late) < 2, late


def test_a_push_wakes_another_process_when_this_one_is_busy(
    redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "BLOCK", 600.0)  # by ring, not by the end of a wait
    monkeypatch.setattr(fetcher, "SURE", 600.0)  # nor by a look for safety
    ran: list[int] = []
    go_on = threading.Event()

    def handle(which: int) -> Any:
        def run(claim: dict[str, list[Any]]) -> None:
            ran.append(which)
            assert go_on.wait(60)

        return run

    apps = [App(redis_url=redis_url, concurrency=1) for _ in range(2)]
    jobs = [one.ordered(queue="q", name="hold")(handle(number)) for number, one in enumerate(apps)]
    with working(apps[0]) as first, working(apps[1]) as second:
        until(lambda: first.watcher.armed == 2 and second.watcher.armed == 2, "both wait")
        jobs[0].push("a", 1)
        jobs[0].push("b", 1)
        until(lambda: sorted(ran) == [0, 1], "each has one", 50)
        go_on.set()
        empty(redis)


def test_an_id_is_not_released_beside_a_handler_that_ignores_the_stop(app: App, redis: Redis) -> None:
    running, release, over = threading.Event(), threading.Event(), threading.Event()

    @app.ordered(queue="q", name="deaf")
    def deaf(claim: dict[str, list[Any]]) -> None:
        while not over.is_set():
            try:
                running.set()
                while not release.is_set():
                    time.sleep(0.01)  # until the test says so, whatever is raised in here
                over.set()
            except BaseException:  # noqa: S112
                continue

    deaf.push("x", 1)
    with working(app, stop=0.05) as launcher:
        assert running.wait(30)
        identity = launcher.session.identity
    assert not over.is_set(), "it still runs"
    assert redis.hget("hm:ordered:q/busy", "x"), "and is still held"
    again = App(redis_url=app.config.redis_url, concurrency=1)
    runs: list[Any] = []
    again.ordered(queue="q", name="deaf")(noting(runs))
    with working(again):
        again.connections.run(leases.renew(again.keys, identity, 60_000))
        time.sleep(0.2)  # nothing can be waited for: nothing may happen
        assert not runs
        release.set()
        assert over.wait(60)


def test_a_handler_that_heeds_the_stop_gives_its_id_back_as_it_was(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_module, "CLEAN_UP", 60.0)  # a loaded machine may take longer than 3 s to raise it
    running = threading.Event()

    @app.ordered(queue="q", name="waits")
    async def waits(claim: dict[str, list[Any]]) -> None:
        running.set()
        await asyncio.sleep(60)

    waits.push("x", 1, score=7)
    due = redis.zscore("hm:ordered:q/due", "x")
    with working(app, stop=0.05):
        assert running.wait(30)
    assert redis.zscore("hm:ordered:q/due", "x") == due, "its turn is as before"
    assert left(redis) == {b"hm:ordered:q/due", b"hm:ordered:q/one"}
    assert not redis.zcard("hm:identities")
    assert not list(redis.scan_iter("hm:held:*"))


def test_a_zombie_is_refused_and_told(redis_url: str, redis: Redis) -> None:
    go_on = threading.Event()
    ran: list[int] = []
    apps = [App(redis_url=redis_url, concurrency=1) for _ in range(2)]
    late = Heard(apps[0], "late", "lease_lost")

    def first(claim: dict[str, list[Any]]) -> None:
        ran.append(1)
        assert go_on.wait(60)

    apps[0].ordered(queue="q", name="x")(first).push("x", 1)
    apps[1].ordered(queue="q", name="x", retry_in=0)(lambda claim: ran.append(2))
    with working(apps[0]) as launcher:
        until(lambda: ran == [1], "it runs")
        identity = launcher.session.identity
        for key in launcher.session.lists():
            runner, keys = apps[1].connections, apps[1].keys
            runner.run(leases.entomb(keys, identity, force=True))
            if keys.is_held(key):
                give_back_list(apps[1], key, "q")
        with working(apps[1]):
            until(lambda: ran == [1, 2], "another has it")
            until(lambda: not redis.zcard("hm:ordered:q/due"), "and has ended it")
        go_on.set()
        until(lambda: late["late"], "the first is told")
    assert redis.hget("hm:ordered:q/stat", "processed") == b"1", "what it said changed nothing"


def test_a_ceiling_over_all_processes_changed_while_they_run(redis_url: str, redis: Redis) -> None:
    now, most, wanted = 0, 0, 2
    lock = threading.Lock()

    def handle(claim: dict[str, list[Any]]) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        until(lambda: most >= wanted, "as many run beside each other")
        time.sleep(0.01)
        with lock:
            now -= 1

    apps = [App(redis_url=redis_url, concurrency=4) for _ in range(2)]
    jobs = [one.ordered(queue="q", name="few", max_parallel=2)(handle) for one in apps]
    with working(apps[0]), working(apps[1]):
        jobs[0].push_many([(str(number), 1) for number in range(100)])
        empty(redis)
        assert most == 2
        wanted = 3
        redis.hset("hm:ordered:q/meta", "limit", 6)
        jobs[0].push_many([(str(number), 1) for number in range(100)])
        empty(redis)
    assert 2 < most <= 6


def test_at_most_so_many_of_a_group_beside_another_group(redis_url: str, redis: Redis) -> None:
    now: dict[str, int] = defaultdict(int)
    most: dict[str, int] = defaultdict(int)
    order: list[str] = []
    lock = threading.Lock()
    app = App(redis_url=redis_url, concurrency=8)

    @app.ordered(queue="q", name="grouped", max_per_group=2)
    def grouped(claim: dict[str, list[Any]]) -> None:
        (group,) = {name.partition("/")[0] for name in claim}
        with lock:
            now[group] += 1
            most[group] = max(most[group], now[group])
            order.append(group)
        until(lambda: most[group] >= 2, "two of it run beside each other")
        if group == "big" and order.count("big") > 100:
            until(lambda: order.count("small") == 10, "the small one is not behind the big one")
        time.sleep(0.005)
        with lock:
            now[group] -= 1

    grouped.push_many([(f"big/{number}", 1) for number in range(200)])
    grouped.push_many([(f"small/{number}", 1) for number in range(10)])
    with working(app):
        empty(redis)
    assert dict(most) == {"big": 2, "small": 2}
    assert len(order) == 210
    assert max(place for place, group in enumerate(order) if group == "small") < 150


def test_a_paused_queue_stands_still(app: App, redis: Redis) -> None:
    ran: list[Any] = []

    @app.ordered(queue="q", name="note")
    def job(claim: dict[str, list[Any]]) -> None:
        ran.append(claim)

    with working(app) as launcher:
        until(lambda: launcher.watcher.armed == 2, "it waits")
        app.connections.run(pause(app.keys, "q", Pause()))
        until(lambda: launcher.watcher.armed == 1, "it does not wait any more")
        job.push("a", 1)
        assert redis.zcard("hm:ordered:q/due") == 1
        assert not ran
        app.connections.run(unpause(app.keys, "q"))
        until(lambda: ran, "it goes on")
        empty(redis)


def test_neither_kind_starves_the_other(redis_url: str, redis: Redis) -> None:
    app = App(redis_url=redis_url, concurrency=1, queues=["q:1", "plain:1"])
    order: list[str] = []

    @app.ordered(queue="q", name="o")
    def o(claim: dict[str, list[Any]]) -> None:
        time.sleep(0.004)  # the work of a run
        order.append("o")

    @app.job(queue="plain", name="p")
    def p() -> None:
        time.sleep(0.004)  # the work of a run
        order.append("p")

    o.push_many([(str(number), 1) for number in range(300)])
    p.enqueue_many([()] * 300)
    with working(app):
        until(lambda: len(order) == 600, "all ran")
    first = order[:300]  # some sixty draws: fewer than a fifth is one run in a million
    assert min(first.count("o"), first.count("p")) > 60, first


class Price(msgspec.Struct):
    price: int


def test_a_payload_that_does_not_fit_fails_its_id_alone(app: App, redis: Redis) -> None:
    ran: list[Any] = []

    @app.ordered(queue="q", claim_size=5, name="typed", max_retries=0)
    def typed(claim: dict[str, list[Price]]) -> None:
        ran.append(claim)

    typed.push("good", Price(1))
    app.connections.run(ordered.push(app.keys, "q", "min", [ordered.Push(b"bad", "", "1", b'"no object"')]))
    app.connections.run(ordered.push(app.keys, "q", "min", [ordered.Push(b"torn", "", "1", b'{"price')]))
    with working(app):
        until(lambda: redis.zcard("hm:ordered:q/morgue") == 2, "two are in the morgue")
        until(lambda: not redis.zcard("hm:ordered:q/due"), "nothing waits")
    assert ran == [{"good": [Price(1)]}]
    assert b"ArgumentError" in redis.hget("hm:ordered:q/merr", "bad")  # type: ignore[operator]


def test_a_slow_id_delays_no_other(app: App, redis: Redis) -> None:
    ended: list[str] = []
    go_on = threading.Event()

    @app.ordered(queue="q", name="some")
    def some(claim: dict[str, list[Any]]) -> None:
        if "slow" in claim:
            assert go_on.wait(60)
        ended.extend(claim)

    some.push("slow", 1)
    with working(app):
        until(lambda: redis.hexists("hm:ordered:q/busy", "slow"), "it runs")
        some.push("slow", 2)
        some.push_many([(str(number), 1) for number in range(300)])
        until(lambda: len(ended) == 300, "all the others end")
        assert "slow" not in ended
        go_on.set()
        empty(redis)
    assert ended.count("slow") == 2, "and what came for it meanwhile is next"


def test_a_time_out_is_a_failure(app: App, redis: Redis) -> None:
    runs: list[int] = []

    @app.ordered(queue="q", name="long", timeout=600, max_retries=0)
    def long(claim: dict[str, list[Any]]) -> None:
        runs.append(1)
        until(lambda: False, "its time-out")

    long.push("x", 1)
    with working(app) as launcher:
        until(lambda: runs, "it runs")
        overdue(launcher)
        until(lambda: redis.zcard("hm:ordered:q/morgue"), "it is in the morgue")
    assert b"JobTimeout" in redis.hget("hm:ordered:q/merr", "x")  # type: ignore[operator]
    assert runs == [1]


def test_three_deaths_are_a_failure_and_a_suspect_runs_alone(app: App, redis: Redis) -> None:
    beside: list[int] = []
    busy = threading.Event()
    ended = threading.Event()

    @app.ordered(queue="q", name="x", max_retries=0)
    def x(claim: dict[str, list[Any]]) -> None:
        beside.append(launcher.manager.busy())
        assert launcher.board.was_alone()

    @app.job(name="long")
    def long() -> None:
        busy.set()
        assert ended.wait(30)

    redis.hset("hm:ordered:q/crash", mapping={"suspect": 2, "poison": 3})
    long.enqueue()
    with working(app) as launcher:
        assert busy.wait(30)
        x.push("poison", 1)
        until(lambda: redis.zscore("hm:ordered:q/morgue", "poison") is not None, "the poison is buried without a run")
        x.push("suspect", 1)
        until(lambda: redis.hexists("hm:ordered:q/busy", "suspect"), "the suspect is here")
        assert not beside, "the suspect waits for its neighbour"
        ended.set()
        until(lambda: beside, "then it runs")
        until(lambda: not redis.zcard("hm:ordered:q/due"), "nothing waits")
    assert beside == [1]
    assert b"died 3 times" in redis.hget("hm:ordered:q/merr", "poison")  # type: ignore[operator]
    assert not redis.exists("hm:ordered:q/crash"), "forgiven"
