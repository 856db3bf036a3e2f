"""What people do to ids of an ordered queue: each row of the merge table that has to do with it, and the races."""

from __future__ import annotations

import pytest

from henchman.store import ordered_people
from henchman.store.ordered import Verdict
from henchman.store.ordered_people import CHUNK, Act
from support.ordered import FAR, OrderedQueue
from support.store import ME, Store


@pytest.fixture
def queue(store: Store) -> OrderedQueue:
    made = OrderedQueue(store)
    made.join(ME)
    return made


def act(
    queue: OrderedQueue, what: Act, *ids: bytes, only_failed: bool = False, floor: float = 0.0
) -> list[int | bytes]:
    call = ordered_people.act(queue.store.keys, queue.name, what, ids, only_failed=only_failed, floor=floor)
    return queue.store.run(call).statuses


def bury(queue: OrderedQueue, name: bytes, payload: bytes = b"dead", score: float = 5) -> None:
    """A payload of an id that was tried too often."""
    queue.put(name, payload, score)
    [(token, one)] = queue.take(ME)
    assert queue.settle(ME, Verdict(token, one.id, "to_morgue", error="Boom: no")) == [1]
    assert (score, payload) in queue.morgue(name)


def fail(queue: OrderedQueue, name: bytes, count: int = 3, delay: float = 1e6) -> None:
    """The id failed and waits for its next attempt."""
    [(token, one)] = queue.take(ME)
    assert one.id == name
    assert queue.settle(ME, Verdict(token, name, "retry", delay, count, "Boom: again")) == [1]


def nothing_left(queue: OrderedQueue) -> bool:
    return queue.left() == set()


class TestRevive:
    def test_an_id_that_nothing_waits_under(self, queue: OrderedQueue) -> None:
        bury(queue, b"a")
        queue.silence()
        assert act(queue, "revive", b"a", b"nobody") == [1, 0]
        kept = queue.kept()
        assert kept.payloads == {b"a": [(5, b"dead")]}
        assert kept.due[b"a"] <= queue.store.now()
        assert (kept.retry, kept.errors, kept.morgue, kept.morgue_errors, kept.rung) == ({}, {}, {}, {}, True)
        assert queue.left() == {"due", "one"}

    def test_an_id_that_waits_for_its_next_attempt(self, queue: OrderedQueue) -> None:
        """§1.5: due now, -1, the payloads of both; an equal one keeps the lower score. The old error is cleared."""
        bury(queue, b"a", b"x", 5)
        queue.put("a", b"x", 9)
        fail(queue, b"a")
        queue.put("a", b"y", 1)
        assert act(queue, "revive", b"a") == [1]
        [(_, one)] = queue.take(ME)
        assert (one.payloads, one.retry_count, one.crashes) == ([(1, b"y"), (5, b"x")], -1, 0)
        assert queue.left() == {"due", "busy", "p:a"}

    def test_who_is_overdue_keeps_its_place(self, queue: OrderedQueue) -> None:
        bury(queue, b"a")
        queue.put("a", b"new", 6)
        queue.set_due(b"a", 17.0)
        assert act(queue, "revive", b"a") == [1]
        assert queue.scores("due") == {b"a": 17.0}
        assert queue.waiting(b"a") == [(5, b"dead"), (6, b"new")]

    def test_several_payloads(self, queue: OrderedQueue) -> None:
        bury(queue, b"a", b"x", 5)
        bury(queue, b"a", b"y", 4)
        assert act(queue, "revive", b"a") == [1]
        assert queue.waiting(b"a") == [(4, b"y"), (5, b"x")]

    @pytest.mark.parametrize("end", ["done", "retry", "to_morgue", "release"])
    def test_an_id_in_flight(self, queue: OrderedQueue, end: str) -> None:
        """The payloads wait beside the handler and join when it has ended, however it ends; nothing runs beside it."""
        bury(queue, b"a", b"dead", 5)
        queue.put("a", b"run", 7)
        [(token, _)] = queue.take(ME)
        queue.put("a", b"later", 8, FAR)
        assert act(queue, "revive", b"a") == [1]
        assert queue.kept().arrived == {b"a": [(5, b"dead"), (8, b"later")]}
        assert queue.kept().morgue == {}
        assert queue.take(ME) == [], "it is held"
        assert queue.settle(ME, Verdict(token, b"a", end, 1e6, 2, "Boom")) == [1]
        left = [(7, b"run")] if end in ("retry", "release") else []
        assert queue.waiting(b"a") == sorted([(5, b"dead"), (8, b"later"), *left])
        due = queue.scores("due")[b"a"]
        assert (due > queue.store.now()) == (end == "retry"), "the failed run's time counts, else the revival's"
        assert queue.scores("retry") == ({b"a": 2} if end == "retry" else {})
        assert queue.morgue(b"a") == ([(7, b"run")] if end == "to_morgue" else [])

    def test_what_enters_the_morgue_meanwhile_is_not_lost(self, queue: OrderedQueue) -> None:
        bury(queue, b"a", b"x", 5)
        queue.put("a", b"y", 6)
        [(token, _)] = queue.take(ME)
        assert act(queue, "revive", b"a") == [1]
        assert queue.settle(ME, Verdict(token, b"a", "to_morgue", error="Boom")) == [1]
        assert queue.morgue(b"a") == [(6, b"y")]
        assert queue.waiting(b"a") == [(5, b"x")]

    def test_the_newest_alone_where_the_queue_says_so(self, store: Store) -> None:
        queue = OrderedQueue(store, collapse="latest")
        queue.join(ME)
        bury(queue, b"a", b"old", 5)
        queue.put("a", b"run", 6)
        [(token, _)] = queue.take(ME)
        queue.put("a", b"new", 7)
        assert act(queue, "revive", b"a") == [1]
        assert queue.settle(ME, Verdict(token, b"a", "done")) == [1]
        assert queue.waiting(b"a") == [(7, b"new")]

    @pytest.mark.parametrize(("dead", "stays"), [(5, (6, b"new")), (7, (7, b"dead"))])
    def test_the_newest_alone_though_nothing_ever_arrived_in_flight(
        self, store: Store, dead: float, stays: tuple[float, bytes]
    ) -> None:
        queue = OrderedQueue(store, collapse="latest")
        queue.join(ME)
        bury(queue, b"a", b"dead", dead)
        queue.put("a", b"new", 6)
        assert act(queue, "revive", b"a") == [1]
        assert queue.waiting(b"a") == [stays]
        assert queue.left() == {"due", "one"}


class TestKill:
    def test_all_that_waits_goes_to_the_morgue(self, queue: OrderedQueue) -> None:
        bury(queue, b"a", b"x", 5)
        queue.put("a", b"x", 3)
        fail(queue, b"a")
        queue.put("a", b"y", 9)
        queue.put("b", b"only", 1)
        assert act(queue, "kill", b"a", b"b", b"nobody") == [1, 1, 0]
        assert queue.morgue(b"a") == [(3, b"x"), (9, b"y")]
        assert queue.morgue(b"b") == [(1, b"only")]
        assert queue.table("merr") == {b"a": b"Boom: again", b"b": b"killed by hand"}
        assert queue.left() == {"morgue", "merr", "m:a", "m:b"}

    def test_an_id_in_flight_stays(self, queue: OrderedQueue) -> None:
        queue.put("a", b"x", 1)
        [(token, _)] = queue.take(ME)
        queue.put("a", b"y", 2)
        before = queue.kept()
        assert act(queue, "kill", b"a") == [2]
        assert queue.kept() == before
        assert queue.settle(ME, Verdict(token, b"a", "done")) == [1]
        assert act(queue, "kill", b"a") == [1]
        assert queue.morgue(b"a") == [(2, b"y")]

    def test_a_push_right_behind_it(self, queue: OrderedQueue) -> None:
        """Each payload is either in the morgue or waits, whichever came first."""
        queue.put("a", b"x", 1)
        fail(queue, b"a")
        assert act(queue, "kill", b"a") == [1]
        assert queue.put("a", b"y", 2) == 1, "nothing waited"
        assert (queue.morgue(b"a"), queue.waiting(b"a")) == ([(1, b"x")], [(2, b"y")])
        [(_, one)] = queue.take(ME)
        assert one.retry_count == -1

    def test_only_failed(self, queue: OrderedQueue) -> None:
        queue.put("a")
        fail(queue, b"a")
        queue.put("b")
        for what in ("kill", "delete"):
            assert act(queue, what, b"b", only_failed=True) == [0]
        assert act(queue, "kill", b"a", b"b", only_failed=True) == [1, 0]
        assert queue.waiting(b"b")


class TestDelete:
    def test_an_id_that_waits(self, queue: OrderedQueue) -> None:
        queue.put("a", b"x", 1)
        fail(queue, b"a")
        queue.put("a", b"y", 2)
        queue.put("b")
        assert act(queue, "delete", b"a", b"b", b"nobody") == [1, 1, 0]
        assert nothing_left(queue)

    def test_the_morgue_stays(self, queue: OrderedQueue) -> None:
        bury(queue, b"a")
        queue.put("a", b"x")
        assert act(queue, "delete", b"a") == [1]
        assert queue.left() == {"morgue", "merr", "m:a"}

    @pytest.mark.parametrize(("end", "left"), [("done", []), ("retry", [(1, b"x")]), ("release", [(1, b"x")])])
    def test_an_id_in_flight(self, queue: OrderedQueue, end: str, left: list[tuple[float, bytes]]) -> None:
        """What arrived goes; what runs is held until it has ended, and ends as if nothing had been."""
        queue.put("a", b"x", 1)
        [(token, _)] = queue.take(ME)
        queue.put("a", b"y", 2)
        assert act(queue, "delete", b"a") == [2]
        assert (queue.kept().arrived, queue.kept().arrived_due) == ({}, {})
        assert list(queue.kept().busy) == [b"a"]
        queue.put("a", b"z", 3)
        assert queue.take(ME) == [], "never beside a handler that runs"
        assert queue.settle(ME, Verdict(token, b"a", end, 0, 0, "Boom")) == [1]
        assert queue.waiting(b"a") == [*left, (3, b"z")]

    def test_an_id_in_flight_that_nothing_arrived_for(self, queue: OrderedQueue) -> None:
        queue.put("a")
        [(token, _)] = queue.take(ME)
        assert act(queue, "delete", b"a") == [2]
        assert queue.settle(ME, Verdict(token, b"a", "done")) == [1]
        assert nothing_left(queue)

    def test_an_id_that_its_group_put_off(self, queue: OrderedQueue) -> None:
        """Deleted and pushed anew for later: the group does not wake it at the time of before."""
        queue.declare(group_limit=1, separator="/")
        queue.put("g/1", when=1)
        queue.put("g/2", when=2)
        [(token, _)] = queue.take(ME)
        assert queue.kept().put_off == {b"g": {b"g/2": 2.0}}
        assert act(queue, "delete", b"g/2") == [1]
        queue.put("g/2", when=FAR)
        assert queue.settle(ME, Verdict(token, b"g/1", "done")) == [1]
        assert queue.scores("due") == {b"g/2": FAR}

    def test_bury_empties_the_morgue_alone(self, queue: OrderedQueue) -> None:
        bury(queue, b"a")
        queue.put("a", b"x")
        assert act(queue, "purge", b"a", b"nobody") == [1, 0]
        assert queue.left() == {"due", "one"}


class TestRun:
    def test_the_order_stays(self, queue: OrderedQueue) -> None:
        for place, name in enumerate([b"d", b"c", b"b", b"a"]):
            queue.put(name, when=FAR + place)
        queue.put("old", when=17)
        queue.silence()
        assert act(queue, "run", b"a", b"b", b"c", b"d", b"old", b"nobody") == [1, 1, 1, 1, 1, 0]
        assert [one.id for _, one in queue.take(ME)] == [b"old", b"d", b"c", b"b", b"a"]
        assert queue.kept().rung

    def test_what_failed_stays_counted(self, queue: OrderedQueue) -> None:
        queue.put("a")
        fail(queue, b"a", 3)
        assert act(queue, "run", b"a") == [1]
        [(_, one)] = queue.take(ME)
        assert one.retry_count == 3

    def test_an_id_in_flight_stays(self, queue: OrderedQueue) -> None:
        queue.put("a")
        queue.take(ME)
        before = queue.kept()
        assert act(queue, "run", b"a") == [2]
        assert queue.kept() == before

    def test_calls_in_a_row_keep_one_order(self, queue: OrderedQueue) -> None:
        for place, name in enumerate([b"a", b"b", b"c"]):
            queue.put(name, when=FAR + place)
        first = queue.store.run(ordered_people.act(queue.store.keys, "q", "run", [b"a", b"b"]))
        ahead = queue.store.now() + 100
        second = queue.store.run(ordered_people.act(queue.store.keys, "q", "run", [b"c"], floor=ahead))
        assert first.last < ahead < second.last
        assert queue.scores("due")[b"c"] == pytest.approx(ahead, abs=0.001)


def test_a_hundred_ids_in_one_call(queue: OrderedQueue) -> None:
    ids = [b"%03d" % number for number in range(CHUNK)]
    for name in ids:
        queue.put(name)
    for what in ("kill", "revive", "run", "delete"):
        assert act(queue, what, *ids) == [1] * CHUNK
    assert nothing_left(queue)


def test_an_id_that_breaks_stops_nobody(queue: OrderedQueue) -> None:
    for name in (b"a", b"b", b"c"):
        queue.put(name, b"x", 1)
    queue.store.ask("SET", queue.key("m:b"), "no set")
    first, second, third = act(queue, "kill", b"a", b"b", b"c")
    assert (first, third) == (1, 1)
    assert isinstance(second, bytes)
    assert b"WRONGTYPE" in second
    assert queue.waiting(b"b") == [(1, b"x")], "it waits as before"
    assert b"b" in queue.scores("due")


def test_a_full_server_lets_people_make_room(queue: OrderedQueue) -> None:
    for name in (b"a", b"b", b"c"):
        bury(queue, name)
    for name in (b"a", b"b", b"c"):
        queue.put(name, b"x", 9)
    queue.store.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        assert act(queue, "delete", b"a") == [1]
        assert act(queue, "purge", b"a") == [1]
        assert act(queue, "kill", b"b") == [1]
        assert act(queue, "revive", b"c") == [1]
    finally:
        queue.store.ask("CONFIG", "SET", "maxmemory", 0)
    assert queue.morgue(b"b") == [(5, b"dead"), (9, b"x")]
    assert queue.waiting(b"c") == [(5, b"dead"), (9, b"x")]


def test_the_ceiling_and_the_pause_wake_somebody(queue: OrderedQueue) -> None:
    keys = queue.store.keys
    queue.declare(limit=4)
    queue.silence()
    queue.store.run(ordered_people.set_limit(keys, "q", 9))
    assert (queue.table("meta")[b"limit"], queue.silence()) == (b"9", True)
    queue.store.run(ordered_people.set_limit(keys, "q", None))
    assert (b"limit" in queue.table("meta"), queue.silence()) == (False, True)
    queue.store.ask("SADD", keys.paused, "q")
    queue.store.run(ordered_people.go_on(keys, "q"))
    assert (queue.store.ask("EXISTS", keys.paused), queue.silence()) == (0, True)


def drop(queue: OrderedQueue, pile: str, name: bytes, score: float, payload: bytes) -> int:
    return queue.store.run(ordered_people.drop(queue.store.keys, queue.name, name, pile, score, payload))


class TestDropOne:
    def test_one_of_several_that_wait(self, queue: OrderedQueue) -> None:
        """The others stay, with when they are due and how often they failed."""
        queue.put("a", b"x", 1)
        queue.put("a", b"y", 2)
        fail(queue, b"a")
        before = queue.kept()
        assert drop(queue, "p", b"a", 1, b"y") == 0, "another score"
        assert drop(queue, "p", b"a", 1, b"x") == 1
        assert drop(queue, "p", b"a", 1, b"x") == 0, "it is gone"
        kept = queue.kept()
        assert kept.payloads == {b"a": [(2, b"y")]}
        assert (kept.due, kept.retry, kept.errors) == (before.due, before.retry, before.errors)

    @pytest.mark.parametrize("many", [1, 2])
    def test_the_last_takes_the_id_along(self, queue: OrderedQueue, many: int) -> None:
        """One that stands alone, and the last of a pile; a payload is found with any score that a double holds."""
        for number in range(many):
            queue.put("a", b"%d" % number, 0.1 + number)
        fail(queue, b"a")
        for number in range(many):
            assert drop(queue, "p", b"a", 0.1 + number, b"%d" % number) == 1
        assert nothing_left(queue)

    def test_what_a_holder_has_in_hand_stays(self, queue: OrderedQueue) -> None:
        queue.put("a", b"x", 1)
        [(token, one)] = queue.take(ME)
        queue.put("a", b"new", 2)
        assert drop(queue, "p", b"a", 1, b"x") == ordered_people.IN_FLIGHT
        assert drop(queue, "n", b"a", 2, b"new") == 1
        assert queue.kept().arrived_due == {}
        assert queue.settle(ME, Verdict(token, one.id, "done")) == [1]
        assert nothing_left(queue)

    def test_one_of_the_morgue(self, queue: OrderedQueue) -> None:
        bury(queue, b"a", b"x", 5)
        bury(queue, b"a", b"y", 4)
        assert drop(queue, "m", b"a", 5, b"x") == 1
        assert queue.morgue(b"a") == [(4, b"y")]
        assert queue.kept().morgue_errors == {b"a": b"Boom: no"}
        assert drop(queue, "m", b"a", 4, b"y") == 1
        assert nothing_left(queue)

    def test_of_equal_ones_that_are_kept_apart_one(self, store: Store) -> None:
        queue = OrderedQueue(store, "all", "none")
        queue.join(ME)
        for score in (1, 1, 2):
            queue.put("a", b"x", score)
        queue.put("a", b"\0odd", 3)
        assert drop(queue, "p", b"a", 1, b"x") == 1
        assert drop(queue, "p", b"a", 3, b"\0odd") == 1
        assert queue.waiting(b"a") == [(1, b"x"), (2, b"x")]
        assert drop(queue, "p", b"a", 2, b"x") == drop(queue, "p", b"a", 1, b"x") == 1
        assert nothing_left(queue)

    def test_a_group_forgets_the_id_that_it_put_off(self, store: Store) -> None:
        queue = OrderedQueue(store, "grouped")
        queue.join(ME)
        queue.declare(group_limit=1, separator="/")
        queue.put("g/a", b"x", 1)
        queue.put("g/b", b"x", 2)
        assert [one.id for _, one in queue.take(ME)] == [b"g/a"]
        assert queue.kept().put_off == {b"g": {b"g/b": pytest.approx(queue.store.now(), abs=60)}}
        assert drop(queue, "p", b"g/b", 2, b"x") == 1
        assert queue.kept().put_off == {}
