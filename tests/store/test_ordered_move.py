"""Moving what waits from one ordered queue to another: nothing lost, times and scores kept, merged by the rules."""

from __future__ import annotations

import pytest

from henchman.errors import ServerError
from henchman.store import ordered
from henchman.store.ordered import Moved, Push, Verdict
from support.ordered import FAR, OrderedQueue
from support.store import Store

ME = "host:1:0123456789ab"


@pytest.fixture
def old(store: Store) -> OrderedQueue:
    made = OrderedQueue(store, "old")
    made.join(ME)
    return made


@pytest.fixture
def new(store: Store) -> OrderedQueue:
    return OrderedQueue(store, "new")


def move(old: OrderedQueue, new: OrderedQueue, *ids: bytes, skip: int = 0, most: int = 100) -> Moved:
    call = ordered.move(old.store.keys, old.name, new.name, new.collapse, ids=ids, skip=skip, most=most)
    return old.store.run(call)


def fail(queue: OrderedQueue, name: bytes, count: int, delay: float = 1000.0) -> None:
    queue.set_due(name, 1)
    [(token, _)] = queue.take(ME, claims=1)
    assert queue.settle(ME, Verdict(token, name, "retry", delay, count, f"error {count}")) == [1]


def test_everything_that_waits_moves_as_it_is(old: OrderedQueue, new: OrderedQueue) -> None:
    old.put("x", b"X", -2.5)
    fail(old, b"x", 3)
    old.push(Push(b"a", "1000", "7", b"1"), Push(b"b", "4000000000", "8", b"1"), Push(b"b", "", "9", b"2"))
    before = old.kept()

    assert move(old, new) == Moved(3, 0, [])

    assert new.kept()._replace(rung=before.rung) == before
    assert old.left() == set()
    assert new.silence()
    assert old.store.ask("SISMEMBER", "hm:ordered", "new") == 1
    assert move(old, new) == Moved(0, 0, [])


def test_what_is_in_flight_stays_and_is_told(old: OrderedQueue, new: OrderedQueue) -> None:
    for name in "abc":
        old.put(name)
    [(token, _)] = old.take(ME, claims=1)
    new.put("b")
    new.join(ME)
    new.take(ME)
    assert move(old, new) == Moved(1, 1, [b"b", b"a"])  # b is in flight in the new one
    old.settle(ME, Verdict(token, b"a", "retry"))
    assert move(old, new, b"a", b"gone") == Moved(1, 1, [])
    assert old.scores("due").keys() == {b"b"}
    assert new.waiting(b"a")


def test_it_goes_in_chunks(old: OrderedQueue, new: OrderedQueue) -> None:
    old.push(*(Push(b"%03d" % n, str(n + 1), "", b"1") for n in range(250)))
    old.take(ME, claims=30)
    old.overdue()  # in flight, and before all others
    seen, skip, calls = 0, 0, 0
    while (found := move(old, new, skip=skip, most=50)).moved or found.in_flight:
        seen, skip, calls = seen + found.moved, skip + len(found.in_flight), calls + 1
    assert (seen, skip, calls, found.left) == (220, 30, 5, 0)
    assert list(new.scores("due").values()) == [float(n + 1) for n in range(30, 250)]


@pytest.mark.parametrize(
    ("there", "here", "due", "count"),
    [
        (None, None, 1000, None),
        ((500, None), (1000, None), 500, None),
        ((2000, None), (1000, None), 1000, None),
        ((500, None), (1000, 2), 1000, 2),
        ((1500, 2), (1000, None), 1500, 2),
        ((1500, 2), (1000, 3), 1000, 3),
        ((1500, 3), (1000, 2), 1500, 3),
    ],
)
def test_whose_time_and_count_stay(
    old: OrderedQueue,
    new: OrderedQueue,
    there: tuple[float, int | None] | None,
    here: tuple[float, int | None] | None,
    due: float,
    count: int | None,
) -> None:
    for queue, state in ((new, there), (old, here or (1000, None))):
        if state:
            queue.join(ME)
            queue.put("a", b"same" if queue is old else b"other", 5)
            queue.put("a", b"same", 6 if queue is old else 4)
            if state[1] is not None:
                fail(queue, b"a", state[1])
            queue.set_due(b"a", state[0])
    assert move(old, new).moved == 1
    assert new.scores("due") == {b"a": due}
    assert new.scores("retry") == ({} if count is None else {b"a": count})
    assert new.table("err") == ({} if count is None else {b"a": f"error {count}".encode()})
    assert new.waiting(b"a") == ([(4, b"same"), (5, b"other")] if there else [(5, b"same")])


@pytest.mark.parametrize("source", ["min", "latest", "none"])
@pytest.mark.parametrize("target", ["min", "latest", "none"])
def test_payloads_go_by_the_rules_of_the_target(store: Store, source: str, target: str) -> None:
    old, new = OrderedQueue(store, "old", source), OrderedQueue(store, "new", target)
    new.put("a", b"\0n", 2)
    for body in (b"z", b"\0n", b"z"):
        old.put("a", body, 2)
    move(old, new)
    waiting = [body for _, body in new.waiting(b"a")]
    if target == "latest":
        assert waiting == [b"z"]
    elif target == "min":
        assert set(waiting) == {b"z", b"\0n"} if source != "latest" else {b"z"}
        assert len(waiting) == 2
    else:
        assert waiting == [b"\0n", *{"min": [b"\0n", b"z"], "latest": [b"z"], "none": [b"z", b"\0n", b"z"]}[source]]


def test_a_group_that_put_ids_off_moves_with_their_times(old: OrderedQueue, new: OrderedQueue) -> None:
    old.declare(group_limit=1, separator="/")
    for at, name in enumerate((b"g/1", b"g/2", b"g/3")):
        old.put(name, when=at + 1)
    [(token, _)] = old.take(ME)
    assert move(old, new).moved == 2
    assert new.scores("due") == {b"g/2": 2, b"g/3": 3}
    old.settle(ME, Verdict(token, b"g/1", "done"))
    assert old.left() == set()


def test_a_group_there_that_put_an_id_off_learns_of_the_earlier_time(old: OrderedQueue, new: OrderedQueue) -> None:
    new.join(ME)
    new.declare(group_limit=1, separator="/")
    new.put("g/1", when=1)
    new.put("g/2", when=7)
    [(token, _)] = new.take(ME)
    old.put("g/2", b"older", 0, 5)
    assert move(old, new).moved == 1
    assert new.take(ME) == []
    new.settle(ME, Verdict(token, b"g/1", "done"))
    assert new.scores("due") == {b"g/2": 5}


def test_deaths_move_too(old: OrderedQueue, new: OrderedQueue) -> None:
    old.put("a")
    old.take(ME)
    old.bury(ME)
    old.free(ME, charge=True)
    move(old, new)
    assert new.kept().crashes == {b"a": 1}


def test_a_full_server_refuses_before_anything_has_moved(old: OrderedQueue, new: OrderedQueue) -> None:
    old.put("a", b"1", 1, FAR)
    before = old.kept()
    old.store.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(ServerError, match="maxmemory"):
            move(old, new)
    finally:
        old.store.ask("CONFIG", "SET", "maxmemory", 0)
    assert (old.kept(), new.left()) == (before, set())


def test_an_id_of_very_many_payloads_ends_a_chunk(old: OrderedQueue, new: OrderedQueue) -> None:
    for start in range(0, 10_000, 500):
        old.push(*(Push(b"a", "1", "", b"%d" % n) for n in range(start, start + 500)))
    old.put("b", when=2)
    assert move(old, new) == Moved(1, 1, [])
    assert len(new.waiting(b"a")) == 10_000
    assert move(old, new) == Moved(1, 0, [])


def test_a_queue_does_not_move_to_itself(old: OrderedQueue) -> None:
    with pytest.raises(ValueError, match="itself"):
        move(old, old)
