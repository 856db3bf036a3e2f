"""Settling by a cut: the oldest units of an in-flight list end together, if both ends of them stand where they must."""

from __future__ import annotations

import pytest

from henchman.errors import LeaseLost, ServerAway
from henchman.kernel import failpoints
from henchman.store import jobs, leases
from henchman.store.jobs import EARLIER, Settlement
from support.store import DAY, ME, Store

FIVE = [b"1", b"2", b"3", b"4", b"5"]


@pytest.fixture
def flying(store: Store) -> Store:
    """Five units in flight from the queue a."""
    store.push("a", *FIVE)
    store.join("a", lease_ms=20_000)
    assert store.fetch("a") == [FIVE]
    return store


def cut(store: Store, count: int, oldest: bytes, newest: bytes) -> int:
    call = jobs.settle_oldest(store.keys, ME, store.flight("a"), (oldest, newest), count, 90_000, DAY)
    return int(store.run(call)[0])


def processed(store: Store) -> list[bytes | None]:
    names = (store.keys.stat_processed, store.keys.stat_day("processed", DAY))
    return list(store.ask("MGET", *names))


def test_they_are_cut_off_counted_and_the_lease_is_renewed(flying: Store) -> None:
    assert cut(flying, 3, b"1", b"3") == 1
    assert flying.in_flight("a") == [b"4", b"5"]
    assert processed(flying) == [b"3", b"3"]
    assert flying.ask("PTTL", flying.keys.lease(ME)) > 40_000
    assert flying.ask("TTL", flying.keys.stat_day("processed", DAY)) > 0


def test_of_all_of_them_nothing_is_left(flying: Store) -> None:
    assert cut(flying, 5, b"1", b"5") == 1
    assert not flying.ask("EXISTS", flying.flight("a"))


@pytest.mark.parametrize(
    ("count", "oldest", "newest"),
    [(3, b"2", b"3"), (3, b"1", b"4"), (2, b"1", b"3"), (4, b"1", b"3"), (9, b"1", b"5"), (3, b"", b"3")],
)
def test_what_does_not_fit_changes_nothing(flying: Store, count: int, oldest: bytes, newest: bytes) -> None:
    assert cut(flying, count, oldest, newest) == 0
    assert flying.in_flight("a") == FIVE
    assert processed(flying) == [None, None]


def test_a_unit_that_somebody_moved_in_between(flying: Store) -> None:
    """As a wait does: it stands behind the oldest, and what was fetched after it stands further on."""
    flying.push("a", b"wait")
    flying.ask("LMOVE", flying.keys.queue("a"), flying.flight("a"), "RIGHT", "LEFT")
    flying.push("a", b"6", b"7")
    flying.fetch("a")

    assert cut(flying, 7, b"1", b"7") == 0
    assert flying.in_flight("a") == [*FIVE, b"wait", b"6", b"7"]
    assert cut(flying, 5, b"1", b"5") == 1, "what stands before it is where it must be"


def test_a_unit_whose_move_was_refused_stands_before_the_oldest(flying: Store) -> None:
    """``settle`` puts it back at the right end."""
    flying.ask("SET", "retry", "no sorted set")
    assert isinstance(flying.settle(Settlement(1, b"3", "retry", b"3", 1.0))[0], bytes)
    assert flying.in_flight("a") == [b"3", b"1", b"2", b"4", b"5"]

    assert cut(flying, 2, b"1", b"2") == 0
    assert flying.in_flight("a") == [b"3", b"1", b"2", b"4", b"5"]


def test_the_buried_are_told(flying: Store) -> None:
    flying.run(leases.entomb(flying.keys, ME, force=True))
    with pytest.raises(LeaseLost):
        cut(flying, 3, b"1", b"3")
    assert flying.in_flight("a") == FIVE
    assert processed(flying) == [None, None]


@pytest.mark.parametrize("where", ["before", "after"])
def test_sent_again_after_a_lost_answer_it_cuts_once(flying: Store, where: str) -> None:
    assert cut(flying, 9, b"1", b"9") == 0, "the server knows the script"
    failpoints.open_points(f"drop@settle_oldest:{where}")
    try:
        assert cut(flying, 3, b"1", b"3") == (1 if where == "before" else EARLIER)
    finally:
        failpoints.close()
    assert flying.in_flight("a") == [b"4", b"5"]
    assert processed(flying) == [b"3", b"3"]


def test_a_word_that_comes_late_finds_another_payload_at_the_end(flying: Store) -> None:
    assert cut(flying, 3, b"1", b"3") == 1
    assert cut(flying, 3, b"1", b"3") == 0
    flying.settle(Settlement(1, b"4", "done"), Settlement(1, b"5", "done"))
    assert cut(flying, 1, b"4", b"4") == 0, "nothing is there"
    assert processed(flying) == [b"5", b"5"]


def test_a_key_that_is_no_list_is_left_to_whoever_settles_one_by_one(flying: Store) -> None:
    flying.ask("DEL", flying.flight("a"))
    flying.ask("SET", flying.flight("a"), "x")
    assert cut(flying, 3, b"1", b"3") == 0


def test_a_full_server_accepts_it(flying: Store) -> None:
    flying.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        assert cut(flying, 3, b"1", b"3") == 1
    finally:
        flying.ask("CONFIG", "SET", "maxmemory", 0)
    assert flying.in_flight("a") == [b"4", b"5"]
    assert processed(flying) == [b"3", b"3"]


def test_a_counter_that_was_overwritten_hides_nothing(flying: Store) -> None:
    flying.ask("SET", flying.keys.stat_processed, "no number")
    assert cut(flying, 3, b"1", b"3") == 1
    assert flying.in_flight("a") == [b"4", b"5"]


def test_a_server_that_is_not_there_is_away() -> None:
    store = Store("redis://127.0.0.1:1/0")
    with pytest.raises(ServerAway) as caught:
        cut(store, 3, b"1", b"3")
    assert caught.value.executed is False
