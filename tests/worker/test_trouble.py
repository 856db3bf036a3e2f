"""The server is away, forgets, or cuts every connection; somebody deletes our keys. In-process, real servers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from redis import Redis

from henchman import App
from henchman.errors import LeaseLost
from henchman.kernel import failpoints
from henchman.store.leases import entomb
from henchman.worker.fetcher import Doing
from support.server import running_server
from support.worker import Heard, in_flight, jobs_in, looker, settled, until, working


def test_a_server_restart_in_mid_work_loses_nothing(tmp_path: Path) -> None:
    with running_server("--appendfsync", "always", appendonly=True) as server:
        app = App(redis_url=server.url, concurrency=4)
        heard = Heard(app, "server_away", "server_back", "part_failed")
        release = threading.Event()
        begun: list[str] = []
        ran: list[str] = []

        @app.job(name="hold")
        def hold(name: str) -> None:
            begun.append(name)
            release.wait(30)
            ran.append(name)

        @app.job(name="note")
        def note(name: str) -> None:
            ran.append(name)

        with working(app):
            hold.enqueue_many([(f"h{n}",) for n in range(4)])
            until(lambda: len(begun) == 4, "four run")
            server.kill()
            until(lambda: heard["server_away"], "it is noticed")
            release.set()
            until(lambda: len(ran) == 4, "what runs is finished without the server")
            server.start()
            with looker(server.url) as redis:
                settled(redis, 4)  # settled late
                note.enqueue("after")
                until(lambda: ran[4:] == ["after"], "fetching has resumed by itself")
                until(lambda: not in_flight(redis), "nothing is left in flight")
                assert not jobs_in(redis, "queue:default")
        assert sorted(ran) == ["after", "h0", "h1", "h2", "h3"]
        assert not heard["part_failed"], heard["part_failed"]


def test_every_connection_cut_again_and_again_while_20000_jobs_are_drained(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=4, heartbeat=0.5)
    heard = Heard(app, "part_failed")
    ran: Counter[int] = Counter()
    leash = 3_000

    @app.job(name="note")
    def note(number: int) -> None:
        ran[number] += 1
        while len(ran) > leash:  # who cuts was held up: what is left must not be drained without him
            time.sleep(0.001)

    note.enqueue_many([(n,) for n in range(20_000)])
    cuts = 0
    with working(app):
        while len(ran) < 19_000 and cuts < 60:
            mark = len(ran)
            until(lambda mark=mark: len(ran) >= min(mark + 1500, 20_000), "jobs run")  # type: ignore[misc]
            redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            cuts += 1
            leash = len(ran) + 3_000
        leash = 20_000
        until(lambda: len(ran) == 20_000, "every job ran")
        until(lambda: not in_flight(redis) and not redis.llen("queue:default"), "nothing is left in flight")
    assert cuts >= 5, "the test did not strike often enough"
    assert not redis.exists("retry", "dead")
    assert not heard["part_failed"], heard["part_failed"]
    twice = sum(ran.values()) - 20_000
    assert twice <= cuts * 1000, f"{twice} ran twice after {cuts} cuts"


def test_scripts_forgotten_under_load(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=4)
    heard = Heard(app, "part_failed", "server_away")
    ran: Counter[int] = Counter()

    @app.job(name="note")
    def note(number: int) -> None:
        ran[number] += 1

    with working(app):
        for turn in range(40):
            note.enqueue_many([(turn * 100 + n,) for n in range(100)])
            note.using(delay=0.01).enqueue(100_000 + turn)
            redis.script_flush()
        until(lambda: len(ran) == 4040, "every job ran")
        settled(redis, 4040)
    assert set(ran.values()) == {1}
    assert not heard["part_failed"], heard["part_failed"]
    assert not heard["server_away"], heard["server_away"]


def test_a_lease_deleted_by_hand_is_taken_again(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, lease=5, heartbeat=0.2)
    ran: list[int] = []

    @app.job(name="note")
    def note(number: int) -> None:
        ran.append(number)

    with working(app) as launcher:
        identity = launcher.session.identity
        redis.delete(f"hm:lease:{identity}")
        until(lambda: redis.exists(f"hm:lease:{identity}"), "the lease is back")
        note.enqueue(1)
        until(lambda: ran == [1], "it works on")
        assert launcher.session.identity == identity


def test_a_lease_that_lapsed_and_a_server_that_is_away_when_it_is_taken_again_end_no_fetcher(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    """A fetcher that ended takes no work any more, in a process that goes on showing that it lives."""
    app = App(redis_url=redis_url, lease=1800, heartbeat=600)  # nobody else renews
    heard = Heard(app, "server_away", "server_back")
    ran: list[int] = []

    @app.job(name="note")
    def note(number: int) -> None:
        ran.append(number)

    with working(app) as launcher:
        until(lambda: launcher.renewal.round_trip and launcher.watcher.armed, "it waits for pushes")
        lease = f"hm:lease:{launcher.session.identity}"
        redis.delete(lease)
        failpoints.open_points("drop@renew:before#1,drop@renew:before#2", tmp_path)
        try:
            launcher.fetcher.look()
            until(lambda: heard["server_away"], "it is said", 30)
            until(lambda: redis.exists(lease), "the lease is taken again", 30)
        finally:
            failpoints.close()
        assert launcher.fetcher.alive
        until(lambda: launcher.fetcher.doing is Doing.RESTING, "it fetches again")
        note.enqueue(1)
        until(lambda: ran == [1], "it works on")
    assert [one["part"] for one in heard["server_away"]] == ["fetcher"]
    assert [one["part"] for one in heard["server_back"]] == ["fetcher"]


def test_after_a_flush_of_the_whole_server_work_is_rescuable_again(redis: Redis, redis_url: str) -> None:
    """A server that lost its data: who holds what must be on the books again, else a later death loses work."""
    app = App(redis_url=redis_url, lease=5, heartbeat=0.2)
    release = threading.Event()

    @app.job(name="hold")
    def hold() -> None:
        release.wait(30)

    with working(app) as launcher:
        identity = launcher.session.identity
        until(lambda: redis.sismember("processes", identity), "it shows itself")
        redis.flushall()
        until(lambda: redis.sismember("processes", identity), "it shows itself again")
        hold.enqueue()
        until(lambda: in_flight(redis), "it runs")
        until(lambda: redis.zscore("hm:identities", identity) is not None, "rescuers can find it")
        lists = redis.smembers(f"hm:flights:{identity}")
        assert launcher.session.current["default"].key.encode() in lists  # type: ignore[operator]
        release.set()
        until(lambda: not in_flight(redis), "settled")


def test_a_buried_process_goes_on_under_a_new_name(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, lease=5, heartbeat=0.2, concurrency=4)
    heard = Heard(app, "lease_lost", "late", "part_failed")
    release = threading.Event()
    ran: list[str] = []

    @app.job(name="hold")
    def hold(name: str) -> None:
        release.wait(30)
        ran.append(name)

    @app.job(name="note")
    def note(name: str) -> None:
        ran.append(name)

    with working(app) as launcher:
        old = launcher.session.identity
        hold.enqueue("a")
        until(lambda: len(in_flight(redis)) == 1, "it runs")
        # only this test buries who lives: a sweep before it knows would hand the job to its open wait, again and again
        redis.set(app.keys.lifeline, "nobody", px=60_000)
        until(lambda: not launcher.lifeline.leader.leads, "nobody sweeps")
        app.connections.run(entomb(app.keys, old, force=True))
        until(lambda: launcher.session.identity != old, "it took a new name")
        redis.delete(app.keys.lifeline)
        note.enqueue("b")
        until(lambda: ran == ["b"], "it works under it")
        release.set()
        until(lambda: heard["late"], "the old unit's outcome counts for nothing")
        until(lambda: ran == ["b", "a", "a"], "swept back, it runs again")
        until(lambda: not in_flight(redis), "settled")
        assert redis.get("stat:processed") == b"2", "the late word was not counted"
    assert len(heard["lease_lost"]) == 1
    assert not heard["part_failed"], heard["part_failed"]


def test_a_name_that_was_taken_while_the_heart_asked_is_kept(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heart is told that the old name is buried when a fetcher has taken a new one already: that one lives."""
    app = App(redis_url=redis_url, lease=5, heartbeat=0.1, concurrency=2)
    heard = Heard(app, "lease_lost")
    with working(app) as launcher:
        session, renew = launcher.session, launcher.session.renew
        old = session.identity
        asked: list[str] = []

        def slow() -> None:
            asked.append(session.identity)
            if len(asked) > 1:
                return renew()
            app.connections.run(entomb(app.keys, old, force=True))
            for fetcher in launcher.manager:
                fetcher.buried(old)
            until(lambda: session.identity != old, "a fetcher took a new name")
            raise LeaseLost("buried")

        monkeypatch.setattr(session, "renew", slow)
        until(lambda: len(asked) > 10, "the heart goes on")
    assert len(set(asked)) == 2, "one new name"
    assert [facts["identity"] for facts in heard["lease_lost"]] == [old]


@pytest.mark.alone("it measures how late a job is")
def test_due_jobs_start_within_100_ms(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url)
    late: list[float] = []

    @app.job(name="due")
    def due(at: float) -> None:
        late.append(time.time() - at)

    with working(app):
        for number in range(30):
            delay = 1.0 + number * 0.05
            due.using(delay=delay).enqueue(time.time() + delay)
        until(lambda: len(late) == 30, "all ran")
    assert min(late) > -0.05
    assert sorted(late)[15] < 0.1, sorted(late)
