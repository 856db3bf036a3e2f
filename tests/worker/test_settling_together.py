"""What ends in the order of its fetch is settled by one cut, all else one by one; and each is settled exactly once.

Here nothing is settled until a test says so: jobs have ended, and their outcomes wait.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.kernel import failpoints
from henchman.store import jobs, leases
from henchman.work.unit import SPARE, FetchOrder, InFlightList, Unit
from henchman.worker.launcher import Launcher
from henchman.worker.watcher import Watcher
from support.dead import Spy
from support.worker import Heard, in_flight, jobs_in, settled, until, working

COUNT = 40


class Scene:
    """COUNT jobs that have ended, whose outcomes wait until ``settle()``."""

    def __init__(self, app: App, redis: Redis) -> None:
        self.app, self.redis = app, redis
        self.gates: dict[int, threading.Event] = {}
        self.fails: set[int] = set()
        self.heard = Heard(app, "late", "refused", "part_failed", "beat")
        self.launcher: Any = None

        @app.job(name="note")
        def note(number: int) -> None:
            if number in self.gates:
                assert self.gates[number].wait(60)
            if number in self.fails:
                raise ValueError(number)

        self.note: Any = note

    @contextmanager
    def ended(
        self, *, but: int = 0, before: Callable[[Launcher], object] = lambda _: None, batch: bool = False
    ) -> Iterator[Spy]:
        """All have ended, ``but`` so many; what is called from here on. ``batch``: they are members of one."""
        with self.app.batch("all") if batch else nullcontext() as made:
            self.note.enqueue_many([(number,) for number in range(COUNT)])
        self.batch = made.id if made is not None else ""
        with working(self.app, start=False) as launcher:
            self.launcher = launcher
            with launcher.acker._flushing:
                launcher.start()
                rows = launcher.acker._rows
                until(lambda: self.heard["beat"], "the only beat is over: it writes figures down")
                until(lambda: len(rows) == COUNT - but and len(in_flight(self.redis)) == COUNT, "all have ended")
                before(launcher)
                spy = Spy(self.app)
                spy.__enter__()
            try:
                yield spy
            finally:
                for gate in self.gates.values():
                    gate.set()
                spy.__exit__()

    def all_settled(self, failed: int = 0) -> None:
        settled(self.redis, COUNT)
        assert int(self.redis.get("stat:processed") or 0) == COUNT  # type: ignore[arg-type]
        assert int(self.redis.get("stat:failed") or 0) == failed  # type: ignore[arg-type]
        until(lambda: not self.launcher.session.held, "nothing is held")
        counts = self.launcher.acker.metrics.take()["note"]
        assert (counts.processed, counts.failed) == (COUNT, failed)
        assert sum(counts.histogram) == COUNT - failed
        assert self.heard["late"] == self.heard["part_failed"] == []


@pytest.fixture
def scene(redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(Watcher, "arm", lambda self: None)  # all come by fetches
    app = App(redis_url=redis_url, concurrency=2 * COUNT, heartbeat=600.0, lease=1800.0)  # no beat writes figures down
    yield Scene(app, redis)
    failpoints.close()
    app.close()


def cuts(spy: Spy) -> list[int]:
    """How many units each cut was about."""
    return [call.parts[0][-3] for call in spy.calls if call.name == "settle_oldest"]


def test_all_that_ended_end_by_one_cut(scene: Scene) -> None:
    with scene.ended() as spy:
        scene.all_settled()
    assert cuts(spy) == [COUNT]
    assert "settle" not in spy.names()


def test_one_in_the_middle_that_runs_on_ends_the_cut(scene: Scene) -> None:
    """Two threads that finish out of order: what stands behind it is settled one by one."""
    scene.gates[25] = threading.Event()
    with scene.ended(but=1) as spy:
        settled_but_one(scene)
        assert cuts(spy) == [25]
        assert [job["args"] for job in jobs_in(scene.redis, flight(scene))] == [[25]]
        scene.gates[25].set()
        scene.all_settled()
    assert cuts(spy) == [25]


def test_behind_one_that_runs_for_long_all_are_settled_one_by_one(scene: Scene) -> None:
    scene.gates[0] = threading.Event()
    with scene.ended(but=1) as spy:
        settled_but_one(scene)
        assert cuts(spy) == []
        scene.gates[0].set()
        scene.all_settled()


def test_a_failure_in_the_middle_ends_the_cut(scene: Scene) -> None:
    scene.fails.add(30)
    with scene.ended() as spy:
        scene.all_settled(failed=1)
    assert cuts(spy) == [30]
    assert [job["args"] for job in jobs_in(scene.redis, "retry")] == [[30]]


def test_few_are_not_worth_a_call(scene: Scene) -> None:
    scene.gates[5] = threading.Event()
    with scene.ended(but=1) as spy:
        settled_but_one(scene)
        assert cuts(spy) == []
        scene.gates[5].set()
        scene.all_settled()


def test_a_lost_answer_is_asked_for_once_more_and_nobody_is_late(scene: Scene) -> None:
    """Whether the server had executed it or not: each counts once."""
    with scene.ended(before=lambda _: failpoints.open_points("drop@settle_oldest:after")) as spy:
        scene.all_settled()
    assert cuts(spy) == [COUNT]
    assert not scene.launcher.acker._doubted


def test_a_server_that_is_away_for_longer(scene: Scene) -> None:
    """After a call of which nobody knows whether it was executed, all of it is settled one by one."""
    points = "drop@settle_oldest:after#1,drop@settle_oldest:before#2"
    with scene.ended(before=lambda _: failpoints.open_points(points)) as spy:
        scene.all_settled()
    assert cuts(spy) == [COUNT]
    assert spy.names().count("settle") >= 1
    assert not scene.launcher.acker._doubted


def test_one_that_may_have_been_settled_before_is_part_of_no_cut(scene: Scene) -> None:
    def doubt(launcher: Launcher) -> None:
        launcher.acker._doubted.add(next(unit for unit in launcher.session.held if unit.job["args"] == [20]))

    with scene.ended(before=doubt) as spy:
        scene.all_settled()
    assert cuts(spy) == [20]


def test_nothing_is_cut_while_it_is_not_known_what_a_list_holds(scene: Scene) -> None:
    with scene.ended(before=lambda launcher: setattr(launcher.session, "doubts", 1)) as spy:
        scene.all_settled()
    assert cuts(spy) == []


def test_a_unit_that_stands_before_all_others(scene: Scene) -> None:
    """As one does whose move was refused: the server says so, and all are settled one by one."""

    def put_first(launcher: Launcher) -> None:
        key = next(iter(launcher.session.current.values())).key
        scene.redis.rpush(key, b"refused")

    with scene.ended(before=put_first) as spy:
        until(lambda: in_flight(scene.redis) == [b"refused"], "only that is left")
        assert cuts(spy) == [COUNT]
        assert int(scene.redis.get("stat:processed") or 0) == COUNT  # type: ignore[arg-type]
        until(lambda: not scene.launcher.session.held, "none is held")
    assert scene.heard["late"] == []


def test_a_unit_that_a_hand_took_out_is_the_only_one_that_is_late(scene: Scene) -> None:
    def take(launcher: Launcher) -> None:
        key = next(iter(launcher.session.current.values())).key
        scene.redis.lrem(key, 1, scene.redis.lindex(key, 17))  # type: ignore[arg-type]

    with scene.ended(before=take):
        until(lambda: not scene.launcher.session.held, "nothing is held")
        assert int(scene.redis.get("stat:processed") or 0) == COUNT - 1  # type: ignore[arg-type]
        assert not in_flight(scene.redis)
    assert len(scene.heard["late"]) == 1


def test_a_tomb_between_the_end_and_the_call(scene: Scene) -> None:
    """The identity was buried: nothing is cut, every word is late, and all go to whoever gives them back."""

    def bury(launcher: Launcher) -> None:
        launcher.runtime.connections.run(leases.entomb(scene.app.keys, launcher.session.identity, force=True))

    with scene.ended(before=bury) as spy:
        until(lambda: len(scene.heard["late"]) == COUNT, "every word is late")
        assert cuts(spy) == [COUNT]
        assert scene.heard["part_failed"] == []
        assert len(in_flight(scene.redis)) == COUNT
        assert not scene.redis.get("stat:processed")


# --- the order of fetches ---------------------------------------------------------------------------------------------


LIST = InFlightList("default", "queue:default", "hm:flight:x", "x", 1)


def units(count: int, first: int = 0) -> list[Unit]:
    return [Unit(b"%d" % number, LIST, 0.0) for number in range(first, first + count)]


@pytest.fixture
def held() -> set[Unit]:
    return set()


@pytest.fixture
def order(held: set[Unit]) -> FetchOrder:
    return FetchOrder(held)


def test_what_is_not_held_any_more_has_left_the_list(order: FetchOrder, held: set[Unit]) -> None:
    some = units(6)
    held.update(some)
    order.fetched(some)
    held.discard(some[0])
    held.discard(some[3])
    assert order.oldest(set(some[:5])) == [some[1], some[2], some[4]]
    assert len(order) == 5


def test_nothing_while_a_wait_is_open_or_what_it_brought_is_held(order: FetchOrder, held: set[Unit]) -> None:
    some, brought = units(3), units(1, 9)[0]
    held.update(some)
    order.fetched(some)
    order.waits("wait")
    assert order.oldest(set(some)) == []
    held.add(brought)
    order.waited("wait", brought)
    assert order.oldest(set(some)) == []
    assert order.oldest({*some, brought}) == []
    held.discard(brought)
    assert order.oldest(set(some)) == some
    order.waits("wait")
    order.waited("wait", None)
    assert order.oldest(set(some)) == some


def test_it_keeps_nothing_alive(order: FetchOrder, held: set[Unit]) -> None:
    """Payloads of megabytes that were settled one by one, while nothing is fetched."""
    some, brought = units(3), units(1, 9)[0]
    held.update([*some, brought])
    order.fetched(some)
    order.waits("wait")
    order.waited("wait", brought)
    gone = [weakref.ref(one) for one in [*some, brought]]
    held.clear()
    del some, brought
    assert [one() for one in gone] == [None] * 4
    assert order.oldest(set()) == []


def test_nothing_where_the_last_payload_is_there_twice(order: FetchOrder, held: set[Unit]) -> None:
    """It would stand at its place though the cut were at the other one."""
    some = [*units(3), *units(1), *units(1, 7)]
    held.update(some)
    order.fetched(some)
    assert order.oldest(set(some[:4])) == []
    assert order.oldest(set(some[:3])) == some[:3]
    assert order.oldest(set(some)) == some


def test_it_does_not_grow_behind_one_that_runs_for_long(order: FetchOrder, held: set[Unit]) -> None:
    slow = units(1)
    held.update(slow)
    order.fetched(slow)
    for turn in range(100):
        some = units(500, 1 + 500 * turn)
        held.update(some)
        order.fetched(some)
        assert order.oldest(set(some)) == []
        held.difference_update(some)
    order.fetched([])
    assert len(order) <= 2 + SPARE, "what was settled is not kept, however large it was"
    held.difference_update(slow)
    some = units(5, 100_000)
    held.update(some)
    order.fetched(some)
    assert order.oldest(set(some)) == some
    assert len(order) == 5


def flight(scene: Scene) -> str:
    return str(next(iter(scene.launcher.session.current.values())).key)


def settled_but_one(scene: Scene) -> None:
    until(lambda: len(in_flight(scene.redis)) == 1 == len(scene.launcher.session.held), "one is left")
    assert int(scene.redis.get("stat:processed") or 0) == COUNT - 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "points",
    [
        "",
        "drop@settle:after",  # executed, and sent again
        "drop@settle:before",
        "drop@settle:after#1,drop@settle:before#2",  # nobody knows whether it was executed: settled once more, later
    ],
)
def test_many_with_effects_are_settled_in_one_write_of_several_calls(
    scene: Scene, points: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("henchman.store.jobs.SETTLED_TOGETHER", 15)
    with scene.ended(batch=True, before=lambda _: points and failpoints.open_points(points)) as spy:
        scene.all_settled()
    assert next(len(call.parts) for call in spy.calls if call.name == "settle") == 3
    assert not scene.launcher.acker._doubted
    status = scene.app.batch_status(scene.batch)
    assert (status.state, status.done, status.counts["finished"]) == ("complete", COUNT, COUNT)


def test_a_call_that_is_refused_beside_one_that_was_executed_makes_nothing_late(
    scene: Scene, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis.script_load(jobs._SETTLE.text)  # the server knows it: what is not refused is executed
    monkeypatch.setattr("henchman.store.jobs.SETTLED_TOGETHER", 15)
    together, refused = jobs._in_one_write, []

    def second_refused(calls: Any, sizes: Any) -> Any:
        call = together(calls, sizes)
        call.parts[1] = ("EVAL", "return redis.error_reply('ERR no')", 0)
        refused.append(call)
        return call

    monkeypatch.setattr(jobs, "_in_one_write", second_refused)
    with scene.ended(batch=True):
        scene.all_settled()
    assert len(refused) == 1, "then they went one by one"
    assert not scene.heard["late"]
    assert not scene.launcher.acker._doubted
    status = scene.app.batch_status(scene.batch)
    assert (status.state, status.done, status.counts["finished"]) == ("complete", COUNT, COUNT)
