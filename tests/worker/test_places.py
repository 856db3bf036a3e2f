"""``app.limit``: a place of a limit outside of jobs, beside jobs that want it too; and what becomes of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from henchman import App, Concurrent, Leaky
from henchman.batch.lock_auditor import APART, LockAuditor
from henchman.cli.main import henchman
from henchman.client import places as places_module
from henchman.errors import ArgumentError, DefinitionError, HenchmanError, LimitReached
from henchman.store import limits
from henchman.worker.lost_programs import LostPrograms
from support.server import running_server
from support.store import Store
from support.worker import looker, until, working


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, queues=("a",), concurrency=4, lease=5)
    yield made
    made.close()


def left(store: Store) -> list[str]:
    names = ("hm:slots:", "hm:limited:", "hm:programs", "hm:await:", "hm:parked", "hm:doubt")
    return [one for one in store.all_keys() if one.startswith(names)]


def places(store: Store, by: str = "") -> int:
    return int(store.ask("HLEN", store.keys.places("bank", by)))


def test_a_job_waits_for_a_program_and_a_program_for_a_job(store: Store, app: App) -> None:
    go, began = threading.Event(), list[int]()

    @app.job(name="m.pay", queue="a", limits=[Concurrent("bank", 1)])
    def pay(number: int) -> None:
        began.append(number)
        assert go.wait(60)

    with working(app):
        with app.limit("bank"):
            pay.enqueue(1)
            until(lambda: app.blocked.size() == 1, "the job waits")
            assert began == []
        until(lambda: began == [1], "and has the place when the block has ended")
        with pytest.raises(LimitReached) as caught, app.limit("bank", wait=0.05):
            pytest.fail("a job has the only place")
        assert str(caught.value).startswith("the limit bank had no place for 0.05 s: taken by job ")
        assert places(store) == 1
        threading.Timer(0.1, go.set).start()
        with app.limit("bank", wait=60):
            assert places(store) == 1
    assert left(store) == []


def test_who_came_first_is_first(store: Store, app: App) -> None:
    """Jobs 1 to 3 stand in line, then a program comes, then jobs 4 to 6: it has its place behind the third."""
    order, first = list[object](), threading.Event()

    @app.job(name="m.pay", queue="a", limits=[Concurrent("bank", 1)])
    def pay(number: int) -> None:
        order.append(number)
        if number == 0:
            assert first.wait(60)
        elif number > 3:
            threading.Event().wait(0.15)  # longer than between two looks

    def program() -> None:
        with app.limit("bank", wait=60):
            order.append("program")

    turn = threading.Thread(target=program)
    with working(app):
        pay.enqueue(0)
        until(lambda: order == [0], "the place is taken")
        pay.enqueue_many([(1,), (2,), (3,)])
        until(lambda: app.blocked.size() == 3, "three wait")
        turn.start()
        until(lambda: store.ask("EXISTS", store.keys.programs), "the program has asked")
        assert places(store) == 1, "it waits behind those that came before it"
        pay.enqueue_many([(4,), (5,), (6,)])
        until(lambda: app.blocked.size() == 6, "and three behind it")
        first.set()
        turn.join(60)
        until(lambda: len(order) == 8, "all had their turn")
    assert sorted(order[:4], key=str) == [0, 1, 2, 3]
    assert order.index("program") <= 5, order
    assert left(store) == []


def test_never_more_than_there_are_and_nobody_is_forgotten(store: Store, app: App) -> None:
    lock, now, most, done = threading.Lock(), [0], [0], [0]

    def spend() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.002)
        with lock:
            now[0] -= 1
            done[0] += 1

    @app.job(name="m.pay", queue="a", limits=[Concurrent("bank", 2)])
    def pay() -> None:
        spend()

    def program() -> None:
        for _ in range(5):
            with app.limit("bank", wait=80):
                spend()

    async def awaited() -> None:
        for _ in range(5):
            async with app.limit("bank", wait=80):
                await asyncio.to_thread(spend)

    threads = [threading.Thread(target=program) for _ in range(3)]
    threads.append(threading.Thread(target=lambda: asyncio.run(awaited())))
    pay.enqueue_many([()] * 60)
    with working(app):
        for one in threads:
            one.start()
        for one in threads:
            one.join(90)
        until(lambda: done[0] == 80, "all had a place")
        until(lambda: not left(store), "nothing is left")
    assert most[0] == 2


def test_a_program_that_was_killed_gives_its_place_back(store: Store, app: App, redis_url: str) -> None:
    ran = threading.Event()

    @app.job(name="m.pay", queue="a", limits=[Concurrent("bank", 1)])
    def pay() -> None:
        ran.set()

    words = [sys.executable, "-m", "support.placed", redis_url]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="tests") as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"has\n"
        with working(app):
            pay.enqueue()
            until(lambda: app.blocked.size() == 1, "the job waits")
            shown = CliRunner().invoke(henchman, ["limits", "show", "bank", "--redis", redis_url]).output
            assert f"program {os.uname().nodename}:{program.pid}" in shown
            ends = float(store.ask("ZRANGE", store.keys.programs, 0, 0, "WITHSCORES")[1])
            until(lambda: float(store.ask("ZRANGE", store.keys.programs, 0, 0, "WITHSCORES")[1]) > ends, "it renews")
            with (
                pytest.raises(LimitReached, match=f"taken by program .*:{program.pid} since "),
                app.limit("bank", wait=0),
            ):
                pytest.fail("the program has it")
            assert not ran.is_set()
            os.kill(program.pid, signal.SIGKILL)
            until(ran.is_set, "its lease has lapsed, and the job has its place")
            until(lambda: not left(store), "nothing is left")


def test_a_search_for_lost_jobs_leaves_programs_alone(store: Store, app: App) -> None:
    clock = [0.0]
    auditor = LockAuditor(app, monotonic=lambda: clock[0])

    @app.job(name="m.pay", queue="a", limits=[Concurrent("bank", 1)])
    def pay() -> None: ...

    with app.limit("bank"):
        [lease] = store.ask("HKEYS", store.keys.places("bank", ""))
        store.ask("HSET", store.keys.places("bank", ""), lease, "7 1000.0")
        store.ask("ZADD", store.keys.doubt, 1, "s bank\n")
        store.ask("ZADD", store.keys.awaits("sbank\n"), 9, "somebody")
        for _ in range(3):
            assert auditor.audit() == 0
            clock[0] += APART + 1
        assert places(store) == 1


def test_a_lease_that_lapsed_is_told(store: Store, redis_url: str) -> None:
    app = App(redis_url=redis_url, lease=5)
    said = list[str]()
    app.notice = lambda text, *facts: said.append(text % facts)  # type: ignore[method-assign]
    with app.limit(Concurrent("bank", 1)) as place:
        [member] = store.ask("ZRANGE", store.keys.programs, 0, -1)
        store.ask("ZADD", store.keys.programs, 1, member)  # as if it had stood still for longer than its lease
        lapsed = store.run(limits.unrenewed(store.keys, 2.0))
        assert len(store.run(limits.leave_lapsed(store.keys, lapsed))) == 1
        until(lambda: place.lost, "the program learns it")
    assert said == ["<a place of the limit bank> was given to another: its lease of 5 s was not renewed"]
    assert left(store) == []
    app.close()


def test_a_place_is_free_when_nobody_was_seen_to_renew_it_for_half_a_lease(store: Store, redis_url: str) -> None:
    app = App(redis_url=redis_url, lease=60)
    lost, same = LostPrograms(app), [True]

    def free(now: float) -> int:
        lost.free(now, lambda: same[0])
        return places(store)

    with app.limit(Concurrent("bank", 1)):
        assert free(0.0) == 1
        assert free(100.0) == 1, "its lease has not run out"
        [member] = store.ask("ZRANGE", store.keys.programs, 0, -1)
        store.ask("ZADD", store.keys.programs, 1, member)  # as if the server's clock had gone forward
        assert (free(200.0), free(229.0)) == (1, 1), "it was not seen for long enough"
        store.ask("ZADD", store.keys.programs, 2, member)
        assert (free(231.0), free(260.0)) == (1, 1), "it renewed"
        same[0] = False
        assert free(262.0) == 1, "another server says so"
        same[0] = True
        assert (free(263.0), free(292.0)) == (1, 1), "from there on it is watched anew"
        store.ask("HSET", store.keys.places("bank", ""), "~other", "7 1000.0")
        found = store.run(limits.unrenewed(store.keys, 9.0))
        store.ask("ZADD", store.keys.programs, 3, member)
        assert store.run(limits.leave_lapsed(store.keys, found)) == [], "it renewed in the last moment"
        store.ask("ZADD", store.keys.programs, 2, member)
        assert free(294.0) == 1, "the other program alone has one"
    store.ask("DEL", store.keys.places("bank", ""))
    app.close()


def test_an_outage_longer_than_the_lease_frees_no_place_of_a_living_program(monkeypatch: pytest.MonkeyPatch) -> None:
    tick, away, back = places_module._Renewal.tick, threading.Event(), threading.Event()

    def slowly(self: Any) -> float:
        if away.is_set():  # it comes back later than the workers do
            back.wait(60)
            threading.Event().wait(1.5)
        return tick(self)

    monkeypatch.setattr(places_module._Renewal, "tick", slowly)
    with running_server() as server:
        app = App(redis_url=server.url, queues=("a",), concurrency=1, lease=5)
        ran = threading.Event()

        @app.job(name="m.pay", queue="a", limits=[Concurrent("bank", 1)])
        def pay() -> None:
            ran.set()

        with app.limit("bank") as place, working(app):
            pay.enqueue()
            until(lambda: app.blocked.size() == 1, "the job waits")
            away.set()
            os.kill(server.pid, signal.SIGSTOP)
            try:
                assert not ran.wait(7)
            finally:
                os.kill(server.pid, signal.SIGCONT)
                back.set()
            with looker(server.url) as redis:
                ends = redis.zrange("hm:programs", 0, 0, withscores=True)[0][1]
                until(lambda: redis.zrange("hm:programs", 0, 0, withscores=True)[0][1] > ends, "it renews", 20)
            assert not ran.is_set()
            assert not place.lost
        app.close()


def test_one_that_is_cancelled_while_it_waits_leaves_nothing(store: Store, app: App) -> None:
    async def wait() -> None:
        async with app.limit("bank"):
            raise AssertionError("it is taken")

    async def main() -> None:
        task = asyncio.ensure_future(wait())
        await asyncio.to_thread(until, lambda: places(store) == 2, "it waits")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with app.limit(Concurrent("bank", 1)):
        asyncio.run(main())
        assert places(store) == 1
    assert left(store) == []


def test_each_value_has_its_own_places(store: Store, app: App) -> None:
    @app.job(name="m.pay", queue="a", limits=[Concurrent("bank", 1, by="tenant")])
    def pay(tenant: str) -> None: ...

    with app.limit("bank", by="x"), app.limit("bank", by="y", wait=0):
        assert (places(store, "x"), places(store, "y")) == (1, 1)
        pay.enqueue("x")
        with working(app):
            until(lambda: app.blocked.size() == 1, "the job of x waits")
    with pytest.raises(ArgumentError, match="each value has a limit of its own; say whose: by="):
        app.limit("bank")


def test_what_cannot_be_is_refused(store: Store, app: App) -> None:
    @app.job(name="m.pay", queue="a", limits=[Concurrent("bank", 1), Leaky("shop", 1, per=60)])
    def pay() -> None: ...

    with working(app):
        pay.enqueue()
        until(lambda: len(app.limits.all()) == 2, "both are known")
    for name, said in (
        ("shop", "this limit is leaky; only Concurrent has places"),
        ("bnk", "nobody knows such a limit"),
    ):
        with pytest.raises(ArgumentError, match=said), app.limit(name):
            pytest.fail("there are no places")
    with pytest.raises(ArgumentError, match="this limit is everybody's; leave by= out"):
        app.limit("bank", by="x")
    with pytest.raises(DefinitionError, match=r"the limit 'bank' is Concurrent\(3\) here and Concurrent\(1\) of m.pay"):
        app.limit(Concurrent("bank", 3))
    place = app.limit("bank")
    with place, pytest.raises(HenchmanError, match="is entered already"), place:
        pytest.fail("twice at once")
    assert left(store) == []


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("script", ["limit_declare", "limit_set", "limit_hand", "limit_enter", "limit_leave"])
def test_a_program_is_killed_at_each_script(store: Store, app: App, script: str, where: str) -> None:
    """Whatever it was about: who waits goes on, and no place is taken in the end."""
    go, began = threading.Event(), list[int]()

    @app.job(name="m.pay", queue="a", limits=[Concurrent("bank", 1)])
    def pay(number: int) -> None:
        began.append(number)
        assert go.wait(60)

    with working(app):
        pay.enqueue_many([(number,) for number in range(3)])
        until(lambda: app.blocked.size() == 2, "two wait for the first")
        acts = {
            "limit_declare": "from henchman.store import limits; app.connections.run(limits.declare(app.keys, LIMITS))",
            "limit_enter": "app.limits.set('shop', 2); app.limit('shop').__enter__()",
            "limit_set": "app.limits.set('bank', 3)",
            "limit_hand": "app.limits.set('bank', 3)",
            "limit_leave": "place = app.limit('shop'); place.__enter__(); place.__exit__(None, None, None)",
        }
        app.connections.run(limits.declare(app.keys, [("c", "shop", 1, 0.0)]))
        program = (
            "import sys; from henchman import App; from henchman.kernel import failpoints\n"
            "LIMITS = [('c', 'bank', 3, 0.0)]; app = App(redis_url=sys.argv[1], lease=5)\n"
            f"failpoints.open_points('kill@{script}:{where}')\n"
            f"{acts[script]}"
        )
        ended = subprocess.run([sys.executable, "-c", program, app.config.redis_url], check=False, timeout=60)
        assert ended.returncode == -signal.SIGKILL
        if (script, where) == ("limit_hand", "after"):
            until(lambda: len(began) == 3, "those who waited were let go")
        go.set()
        until(lambda: len(began) == 3 and not left(store), "all have run, and no place is taken")
