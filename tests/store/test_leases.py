"""Leases: who holds what, who is buried, and how work comes back."""

from __future__ import annotations

import threading

import pytest

from henchman.errors import LeaseLost
from henchman.store import jobs, leases
from support.store import ME, Store


def lapse(store: Store) -> None:
    store.ask("DEL", store.keys.lease(ME))


def test_joining_takes_a_lease_and_registers_the_lists(store: Store) -> None:
    store.join("a", "b", lease_ms=200_000)

    assert 150_000 < store.ask("PTTL", store.keys.lease(ME)) <= 200_000
    assert store.run(leases.joined(store.keys)) == [ME]
    assert store.run(leases.in_flight_lists(store.keys, ME)) == [store.flight("a"), store.flight("b")]
    assert store.ask("EXISTS", store.keys.lease(ME))


def test_a_raised_epoch_adds_its_lists(store: Store) -> None:
    store.join("a")
    later = store.keys.in_flight(ME, 2, "a")
    store.run(leases.join(store.keys, ME, [later], 30_000))
    assert store.run(leases.in_flight_lists(store.keys, ME)) == [store.flight("a"), later]


def test_a_lease_ends_by_itself(store: Store) -> None:
    store.join("a", lease_ms=1)
    while store.ask("EXISTS", store.keys.lease(ME)):
        pass
    assert store.run(leases.joined(store.keys)) == [ME]  # it stays on the books: it may hold something


def test_renewing(store: Store) -> None:
    store.join("a", lease_ms=60_000)
    assert store.run(leases.renew(store.keys, ME, 250_000)) == 1
    assert 200_000 < store.ask("PTTL", store.keys.lease(ME)) <= 250_000


def test_a_lapsed_lease_can_be_taken_again(store: Store) -> None:
    store.join("a")
    lapse(store)
    assert store.run(leases.renew(store.keys, ME, 25_000)) == 2
    assert store.ask("EXISTS", store.keys.lease(ME))


def test_the_living_are_not_buried(store: Store) -> None:
    store.join("a")
    assert store.run(leases.entomb(store.keys, ME, force=False)) == 0
    assert store.run(leases.renew(store.keys, ME, 30_000)) == 1
    assert store.ask("EXISTS", store.keys.tomb(ME), store.keys.tombs) == 0


@pytest.mark.parametrize("force", [True, False])
def test_the_buried_are_lost_for_an_hour(store: Store, force: bool) -> None:
    store.join("a")
    if not force:
        lapse(store)

    assert store.run(leases.entomb(store.keys, ME, force=force)) == 1

    assert not store.ask("EXISTS", store.keys.lease(ME))
    for call in (leases.renew(store.keys, ME, 1000), leases.join(store.keys, ME, [], 1000)):
        with pytest.raises(LeaseLost):
            store.run(call)
    assert not store.ask("EXISTS", store.keys.lease(ME))
    assert 3_600_000 < store.ask("PTTL", store.keys.tomb(ME)) <= 3_720_000
    assert store.members(store.keys.tombs) == [ME.encode()]


def test_who_was_buried_stays_so_as_long_as_its_lists_are_swept(store: Store) -> None:
    """Its tomb may run out before: a step of the server's clock, or an hour in which nobody lived to sweep."""
    store.join("a")
    store.run(leases.entomb(store.keys, ME, force=True))
    store.ask("DEL", store.keys.tomb(ME))
    with pytest.raises(LeaseLost):
        store.run(leases.renew(store.keys, ME, 1000))
    assert store.run(leases.renew_all(store.keys, [ME, "host:2:0123456789ab"], 1000)) == [ME]
    assert not store.ask("EXISTS", store.keys.lease(ME))
    store.ask("ZREM", store.keys.tombs, ME)
    assert store.run(leases.renew(store.keys, ME, 1000)) == 2


def test_burying_twice_is_harmless(store: Store) -> None:
    store.join("a")
    assert store.run(leases.entomb(store.keys, ME, force=True)) == 1
    assert store.run(leases.entomb(store.keys, ME, force=False)) == 1
    assert store.members(store.keys.tombs) == [ME.encode()]


def test_who_holds_nothing_may_leave(store: Store) -> None:
    store.join("a", "b")
    lists = [store.flight("a"), store.flight("b")]
    assert store.run(leases.leave(store.keys, ME, lists)) == 1
    assert store.all_keys() == set()


def test_who_holds_something_stays_on_the_books(store: Store) -> None:
    store.push("b", b"1")
    store.join("a", "b")
    store.fetch("b")
    before = store.all_keys()

    assert store.run(leases.leave(store.keys, ME, [store.flight("a"), store.flight("b")])) == 0

    assert store.all_keys() == before


def test_what_is_given_back_runs_next_and_in_its_old_order(store: Store) -> None:
    store.push("a", b"1", b"2", b"3", b"4")
    store.join("a")
    store.fetch("a", count=3)

    assert store.run(jobs.give_back(store.keys, store.flight("a"), "a", 100)) == 3

    assert store.queue("a") == [b"1", b"2", b"3", b"4"]
    assert store.in_flight("a") == []


def test_giving_back_in_chunks_keeps_the_order(store: Store) -> None:
    payloads = [b"%d" % n for n in range(25)]
    store.push("a", *payloads)
    store.join("a")
    store.fetch("a", count=25)
    call = jobs.give_back(store.keys, store.flight("a"), "a", 10)

    assert [store.run(call) for _ in range(4)] == [10, 10, 5, 0]

    assert store.queue("a") == payloads


def test_a_cleared_queue_is_known_again(store: Store) -> None:
    store.push("a", b"1")
    store.join("a")
    store.fetch("a")
    store.ask("SREM", "queues", "a")
    store.run(jobs.give_back(store.keys, store.flight("a"), "a", 10))
    assert store.ask("SMEMBERS", "queues") == [b"a"]


def test_nothing_to_give_back_makes_no_queue(store: Store) -> None:
    assert store.run(jobs.give_back(store.keys, store.flight("a"), "a", 10)) == 0
    assert store.all_keys() == set()


def test_what_cannot_be_given_back_is_kept_in_its_order(store: Store) -> None:
    store.push("a", b"1", b"2")
    store.join("a")
    store.fetch("a")
    store.ask("SET", "queue:a", "text")

    with pytest.raises(Exception, match="WRONGTYPE"):
        store.run(jobs.give_back(store.keys, store.flight("a"), "a", 10))

    assert store.in_flight("a") == [b"1", b"2"]


def test_two_that_give_back_at_once_lose_and_double_nothing(redis_url: str) -> None:
    stores = [Store(redis_url), Store(redis_url)]
    payloads = [b"%d" % n for n in range(500)]
    stores[0].push("a", *payloads)
    stores[0].join("a")
    stores[0].fetch("a", count=500)

    def rescue(one: Store) -> None:
        while one.run(jobs.give_back(one.keys, one.flight("a"), "a", 7)):
            pass

    threads = [threading.Thread(target=rescue, args=[one]) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert stores[0].queue("a") == payloads


def test_a_cancellation_is_written_down_and_told(store: Store) -> None:
    line = store.connections.open()
    line.send("SUBSCRIBE", store.keys.control_all)
    line.read()
    before = store.now()

    assert store.run(jobs.cancel(store.keys, "j1")) == 1

    assert line.read() == [b"message", b"hm:control", b"cancel j1"]
    assert store.ask("GET", "hm:cancels") == b"1"
    assert before - 0.001 <= float(store.ask("ZSCORE", "hm:cancelled", "j1")) <= store.now()
    line.close()


def test_old_cancellations_are_forgotten(store: Store) -> None:
    now = store.now()
    store.ask("ZADD", "hm:cancelled", now - jobs.KEEP_CANCELS - 1, "old", now - jobs.KEEP_CANCELS + 100, "young")
    store.run(jobs.cancel(store.keys, "j1"))
    assert store.members("hm:cancelled") == [b"young", b"j1"]
