"""Jobs with limits in a worker: never more at once than there are places, whatever happens; and nothing is left."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from henchman import App, Bucket, Concurrent, Failure, Kill, Leaky, Points, Snooze, Window, current_job
from henchman.batch.lock_auditor import APART, LockAuditor
from henchman.errors import ArgumentError
from support.store import Store
from support.worker import until, working


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, queues=("a",), concurrency=8)
    yield made
    made.close()


class Spans:
    """Who runs; ``most``: how many at once of each name."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {}
        self.starts: list[tuple[str, float]] = []
        self._now: dict[str, int] = {}
        self._lock = threading.Lock()

    def run(self, name: str, seconds: float = 0.003) -> None:
        with self._lock:
            self.starts.append((name, time.time()))
            self._now[name] = self._now.get(name, 0) + 1
            self.most[name] = max(self.most.get(name, 0), self._now[name])
        time.sleep(seconds)
        with self._lock:
            self._now[name] -= 1


def left(store: Store) -> list[str]:
    """What is left of jobs and of their limits; that of a limit itself stays."""
    names = (
        "queue:",
        "retry",
        "schedule",
        "hm:flight:",
        "hm:slots:",
        "hm:await:",
        "hm:parked",
        "hm:behind",
        "hm:doubt",
    )
    return [one for one in store.all_keys() if one.startswith(names)]


def nothing_left(store: Store) -> None:
    until(lambda: not left(store), "every job has ended, and nothing is left of its limits")
    assert not store.ask("EXISTS", store.keys.broken)


def calls(store: Store) -> int:
    """How many scripts were called since the server started; it names no command that nobody has called."""
    told = re.search(rb"cmdstat_evalsha:calls=(\d+)", store.ask("INFO", "commandstats"))
    return int(told.group(1)) if told else 0


def test_never_more_at_once_than_there_are_places_and_each_value_has_its_own(store: Store, app: App) -> None:
    spans = Spans()

    @app.job(name="m.f", queue="a", limits=[Concurrent("bank", 2, by="tenant")])
    def pay(tenant: str, number: int) -> None:
        spans.run(tenant)

    pay.enqueue_many([(f"t{number % 3}", number) for number in range(90)])
    with working(app):
        nothing_left(store)
    assert spans.most == {"t0": 2, "t1": 2, "t2": 2}
    assert len(spans.starts) == 90
    assert int(store.ask("GET", "stat:processed")) == 90
    assert store.ask("HGETALL", store.keys.limits) == [b"bank", b"c 2 0 2 0"]


def test_a_place_goes_to_the_oldest_who_waits(store: Store, app: App) -> None:
    ran: list[int] = []

    @app.job(name="m.f", queue="a", limits=[Concurrent("bank", 1)])
    def pay(number: int) -> None:
        ran.append(number)

    pay.enqueue_many([(number,) for number in range(60)])
    with working(app):
        nothing_left(store)
    assert ran == list(range(60))


def test_short_jobs_of_a_full_limit_start_in_their_process_and_are_settled_together(store: Store, app: App) -> None:
    spans, count = Spans(), 2_000

    @app.job(name="m.f", queue="a", limits=[Concurrent("bank", 2)])
    def pay(number: int) -> None:
        spans.run("bank", 0)

    pay.enqueue_many([(number,) for number in range(count)])
    before = calls(store)
    with working(app):
        nothing_left(store)
    assert len(spans.starts) == count
    assert spans.most["bank"] <= 2, "jobs as short as these may never meet, but three must not"
    assert calls(store) - before < 0.7 * count, "one after the other two of them cost three"


def test_two_workers_share_a_full_limit_and_nobody_is_passed_over(store: Store, app: App, redis_url: str) -> None:
    other, spans, ran = App(redis_url=redis_url, queues=("a",), concurrency=8), Spans(), set[str]()

    def made(where: str, one: App) -> Any:
        @one.job(name="m.f", queue="a", limits=[Concurrent("bank", 3)])
        def pay(number: int) -> None:
            ran.add(where)
            spans.run("bank", 0.0002)

        return pay

    jobs = [made("one", app), made("other", other)]
    with working(app), working(other):
        jobs[0].enqueue_many([(number,) for number in range(1_500)])
        nothing_left(store)
    other.close()
    assert (len(spans.starts), spans.most["bank"] <= 3, ran) == (1_500, True, {"one", "other"})


def test_who_waits_here_behind_a_job_that_is_not_short_after_all_goes_on_elsewhere(store: Store, app: App) -> None:
    gate, ran = threading.Event(), list[int]()

    @app.job(name="m.f", queue="a", limits=[Concurrent("bank", 2)])
    def pay(number: int) -> None:
        ran.append(number)
        if number in (300, 301):
            gate.wait(20)

    pay.enqueue_many([(number,) for number in range(600)])
    with working(app):
        until(lambda: {300, 301} <= set(ran), "both places are taken for long")
        until(lambda: store.ask("HLEN", store.keys.parked) == 600 - len(ran), "who waited behind them stands in line")
        gate.set()
        nothing_left(store)
    assert sorted(ran) == list(range(600))


@pytest.mark.parametrize("how", [Failure("no"), Snooze(0.01), ValueError("x"), Kill("x")])
def test_every_ending_gives_its_place_back(store: Store, app: App, how: Exception) -> None:
    ran: list[int] = []

    @app.job(name="m.f", queue="a", limits=[Concurrent("bank", 1)], retry_in=0.05)
    def pay(number: int) -> None:
        ran.append(number)
        if number == 0 and ran.count(0) == 1:
            raise how

    pay.enqueue_many([(0,), (1,)])
    with working(app):
        nothing_left(store)
    assert ran == ([0, 1] if isinstance(how, Failure | Kill) else [0, 1, 0])


def test_a_rate_starts_jobs_one_after_the_other_and_moves_each_once(store: Store, app: App) -> None:
    spans = Spans()

    @app.job(name="m.f", queue="a", limits=[Leaky("shop", 10, per=0.5)])
    def call() -> None:
        assert "reserved_at" not in current_job().payload
        spans.run("shop", 0)

    call.enqueue_many([() for _ in range(40)])
    with working(app):
        nothing_left(store)
    at = sorted(at for _, at in spans.starts)
    assert at[39] - at[0] >= 30 * 0.05 - 0.06
    print([round(one - at[0], 3) for one in at])
    assert all(later - one >= 0.5 - 0.06 for one, later in zip(at, at[21:], strict=False))
    assert (
        not [one for one in store.all_keys() if one.startswith("hm:rate:")]
        or store.ask("PTTL", store.keys.rate("l", "shop", "")) > 0
    )


def test_what_would_wait_longer_than_it_wants_to_is_dead_with_its_cause(store: Store, app: App) -> None:
    @app.job(name="m.f", queue="a", limits=[Leaky("shop", 1, per=60)], max_wait=5)
    def call() -> None: ...

    call.enqueue_many([(), ()])
    with working(app):
        until(lambda: store.ask("ZCARD", "dead") == 1, "the second is dead")
        nothing_left(store)
    [entry] = app.dead
    assert (entry.error[0], entry.cause) == ("LimitReached", "limit")
    assert "its turn under the limit shop would come in" in entry.error[1]


def test_a_place_of_a_job_that_somebody_else_removed_is_found_and_handed_on(store: Store, app: App) -> None:
    @app.job(name="m.f", queue="a", limits=[Concurrent("bank", 1)])
    def pay(number: int) -> None: ...

    lost = pay.enqueue(0).jid
    store.ask("HSET", store.keys.places("bank", ""), lost, "7 1.5")  # long ago
    store.ask("SADD", store.keys.taken("bank"), "")
    store.ask("DEL", "queue:a")
    pay.enqueue(1)
    clock = [1000.0]
    auditor = LockAuditor(app, monotonic=lambda: clock[0])
    with working(app):
        until(lambda: app.blocked.size() == 1, "the next one waits")
        assert auditor.audit() == 0
        assert store.ask("HEXISTS", store.keys.places("bank", ""), lost), "one look is not enough"
        clock[0] += APART + 1
        assert auditor.audit() == 1
        nothing_left(store)
    assert int(store.ask("GET", "stat:processed")) == 1


def test_points_are_what_the_run_says_that_it_took(store: Store, app: App) -> None:
    job = app.job(name="spend", queue="a", limits=[Points("api", 100, per=1000, estimate=60)])(spent)
    job.enqueue(10)
    with working(app):
        until(lambda: int(store.ask("GET", "stat:processed") or 0) == 1, "it ran")
        full = float(store.ask("GET", store.keys.rate("p", "api", ""))) - store.now()
        assert 90 < full <= 100, "10 points come back in 100 s"
        job.enqueue(95)
        until(
            lambda: store.ask("ZCARD", "schedule") == 0 and int(store.ask("GET", "stat:processed")) == 2, "so has this"
        )
        full = float(store.ask("GET", store.keys.rate("p", "api", ""))) - store.now()
        assert 1040 < full <= 1050
        job.enqueue(1)
        until(lambda: store.ask("ZCARD", "schedule") == 1, "60 more come when they are there")


def spent(points: int) -> None:
    """A run that takes so many points."""
    with pytest.raises(ArgumentError, match="give points from 0"):
        current_job().spent(-1)
    current_job().spent(points)


def test_a_window_has_no_more_in_any_time_and_a_bucket_none_in_a_period_of_the_clock(store: Store, app: App) -> None:
    starts: dict[str, list[float]] = {"w": [], "b": []}

    @app.job(name="w", queue="a", limits=[Window("w", 3, per=0.5)])
    def in_window() -> None: ...

    @app.job(name="b", queue="a", limits=[Bucket("b", 3, per=0.5)])
    def in_bucket() -> None: ...

    in_window.enqueue_many([() for _ in range(10)])
    in_bucket.enqueue_many([() for _ in range(10)])
    with working(app):
        until(lambda: not store.ask("LLEN", "queue:a"), "each has started, or was given its time")
        for payload, at in zip(*[iter(store.ask("ZRANGE", "schedule", 0, -1, "WITHSCORES"))] * 2, strict=True):
            starts["w" if b'"class":"w"' in payload else "b"].append(float(at))
        nothing_left(store)
    assert int(store.ask("GET", "stat:processed")) == 20
    windows, periods = sorted(starts["w"]), [round(at / 0.5) for at in starts["b"]]
    assert all(fourth - first >= 0.5 - 1e-3 for first, fourth in zip(windows, windows[3:], strict=False))
    assert max((periods.count(one) for one in periods), default=0) <= 3
    assert all(abs(at / 0.5 - round(at / 0.5)) < 1e-5 for at in starts["b"]), "they come when a period begins"
