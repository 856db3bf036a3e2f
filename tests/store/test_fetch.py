"""Fetching: out of the queues, into flight, oldest first; and what stops it."""

from __future__ import annotations

import pytest

from henchman.errors import LeaseLost
from henchman.store import jobs, leases, queues
from support.store import ME, Store, fetching


def many(count: int, start: int = 0) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(start, start + count)]


def test_the_oldest_comes_first_and_lies_in_flight(store: Store) -> None:
    store.push("a", b"1", b"2", b"3")
    store.join("a")

    assert store.fetch("a", count=2) == [[b"1", b"2"]]

    assert store.in_flight("a") == [b"1", b"2"]
    assert store.queue("a") == [b"3"]


def test_a_push_by_others_is_fetched_alike(store: Store) -> None:
    store.ask("LPUSH", "queue:a", "ruby")
    store.join("a")
    assert store.fetch("a") == [[b"ruby"]]


def test_queues_are_looked_at_in_the_order_given(store: Store) -> None:
    store.push("low", b"l1", b"l2")
    store.push("high", b"h1")
    store.join("low", "high")

    assert store.fetch("high", "low", count=2) == [[b"h1"], [b"l1"]]

    assert store.queue("low") == [b"l2"]
    assert (store.in_flight("high"), store.in_flight("low")) == ([b"h1"], [b"l1"])


def test_the_queue_that_fills_the_count_may_give_more(store: Store) -> None:
    store.push("a", *many(5))
    store.push("b", *many(5, 100))
    store.join("a", "b")

    assert store.fetch(("a", 2), ("b", 9), count=1) == [many(3), []]


def test_an_earlier_queue_that_does_not_fill_the_count_leaves_room(store: Store) -> None:
    store.push("a", *many(2))
    store.push("b", *many(9, 100))
    store.join("a", "b")

    got = store.fetch(("a", 3), ("b", 2), count=4)

    assert got == [many(2), many(4, 100)]  # two free slots and two extra


def test_more_than_lua_can_unpack_keeps_its_order(store: Store) -> None:
    payloads = many(3500)
    store.push("a", *payloads)
    store.join("a")

    assert store.fetch("a", count=3200) == [payloads[:3200]]

    assert store.in_flight("a") == payloads[:3200]
    assert store.queue("a") == payloads[3200:]


def test_nothing_comes_from_a_paused_queue(store: Store) -> None:
    store.push("a", b"1")
    store.push("b", b"2")
    store.join("a", "b")
    store.run(queues.pause(store.keys, "a", queues.Pause()))

    assert store.fetch("a", "b") == [[], [b"2"]]
    assert store.queue("a") == [b"1"]

    store.run(queues.unpause(store.keys, "a"))
    assert store.fetch("a") == [[b"1"]]


def test_the_paused_queues_are_told(store: Store) -> None:
    store.run(queues.pause(store.keys, "b", queues.Pause()))
    store.run(queues.pause(store.keys, "a", queues.Pause()))
    store.run(queues.pause(store.keys, "a", queues.Pause()))
    assert store.run(queues.paused(store.keys)) == {"a", "b"}


def test_a_fetch_renews_the_lease(store: Store) -> None:
    store.join("a", lease_ms=15_000)
    store.fetch("a")
    assert store.ask("PTTL", store.keys.lease(ME)) > 15_000, "30 s from here on"


def test_without_a_lease_nothing_is_taken(store: Store) -> None:
    store.push("a", b"1")
    with pytest.raises(jobs.LeaseLapsed):
        store.fetch("a")
    assert store.queue("a") == [b"1"]


def test_the_buried_get_nothing(store: Store) -> None:
    store.push("a", b"1")
    store.join("a")
    store.run(leases.entomb(store.keys, ME, force=True))

    with pytest.raises(LeaseLost) as caught:
        store.fetch("a")

    assert not isinstance(caught.value, jobs.LeaseLapsed)
    assert store.queue("a") == [b"1"]


def test_the_number_of_cancellations_comes_along(store: Store) -> None:
    store.join("a")
    call = fetching(store.keys, ("a", 0), count=1)
    assert store.run(call).cancels == 0
    store.run(jobs.cancel(store.keys, "j1"))
    store.run(jobs.cancel(store.keys, "j2"))
    assert store.run(call).cancels == 2


def test_a_key_that_is_no_list_stops_no_neighbour(store: Store) -> None:
    store.push("good", b"1")
    store.ask("SET", "queue:odd", "text")
    store.join("good", "odd")

    assert store.fetch("odd", "good") == [[], [b"1"]]
    assert store.in_flight("good") == [b"1"]


def test_nothing_falls_between_queue_and_flight(store: Store) -> None:
    store.push("a", b"1", b"2")
    store.join("a")
    store.ask("SET", store.flight("a"), "text")  # the list cannot be written

    with pytest.raises(Exception, match="WRONGTYPE"):
        store.fetch("a")

    assert store.queue("a") == [b"1", b"2"]


def test_namespaces_do_not_see_each_other(redis_url: str) -> None:
    red, blue = Store(redis_url, "red"), Store(redis_url, "blue")
    red.push("a", b"1")
    for one in (red, blue):
        one.join("a")

    assert blue.fetch("a") == [[]]
    assert red.fetch("a") == [[b"1"]]

    assert {key.partition(":")[0] for key in red.all_keys()} == {"red", "blue"}
