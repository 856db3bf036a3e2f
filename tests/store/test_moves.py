"""The schedule and the stager's moves: what is due, who may stage, where each entry goes."""

from __future__ import annotations

import threading

import pytest

from henchman.store import jobs
from henchman.store.jobs import Move
from support.store import ME, Store

OTHER = "host:2:ba9876543210"


def look(store: Store, identity: str = ME, most: int = 100, staging_ms: int = 2000) -> jobs.Due:
    return store.run(jobs.due(store.keys, identity, staging_ms, most))


def test_at_is_the_producers_and_delay_counts_from_the_servers_now(store: Store) -> None:
    before = store.now()
    store.run(jobs.schedule(store.keys, [(1234567890.25, 0.0, b"at"), (None, 30.5, b"delay")]))

    assert float(store.ask("ZSCORE", "schedule", "at")) == 1234567890.25
    assert before + 30.5 <= float(store.ask("ZSCORE", "schedule", "delay")) <= store.now() + 30.5
    assert store.all_keys() == {"schedule"}


def test_a_thousand_entries_in_one_call(store: Store) -> None:
    entries = [(float(n), 0.0, b"%d" % n) for n in range(2500)]
    assert store.run(jobs.schedule(store.keys, entries)) == 2500
    assert store.members("schedule") == [b"%d" % n for n in range(2500)]


def test_what_is_due_is_looked_at_and_not_removed(store: Store) -> None:
    now = store.now()
    store.ask("ZADD", "retry", now - 2, "r1", now + 100, "r2")
    store.ask("ZADD", "schedule", now - 1, "s1", now - 3, "s2", now + 50.5, "s3")

    seen = look(store)

    assert seen.mine
    assert (seen.retries, seen.scheduled) == ([b"r1"], [b"s2", b"s1"])
    assert now <= seen.now <= store.now()
    assert seen.next_at == pytest.approx(now + 50.5)
    assert store.ask("ZCARD", "retry") == 2
    assert store.ask("ZCARD", "schedule") == 3


def test_nothing_scheduled_has_no_next_time(store: Store) -> None:
    assert look(store).next_at is None


def test_a_look_is_bounded(store: Store) -> None:
    store.ask("ZADD", "schedule", *(one for n in range(50) for one in (n, f"s{n:02}")))
    assert look(store, most=3).scheduled == [b"s00", b"s01", b"s02"]


def test_one_stages_at_a_time(store: Store) -> None:
    assert look(store).mine
    assert not look(store, OTHER).mine
    assert look(store).mine  # and prolongs its turn
    assert 0 < store.ask("PTTL", "hm:staging") <= 2000

    store.ask("DEL", "hm:staging")
    assert look(store, OTHER).mine
    assert not look(store).mine


def test_each_entry_goes_where_it_is_sent(store: Store) -> None:
    store.ask("ZADD", "schedule", 1, "a1", 2, "a2", 3, "b1", 4, "dies", 5, "goes", 6, "stays")

    moves = [
        Move(b"a1", b"A1", "a"),
        Move(b"b1", b"B1", "b"),
        Move(b"a2", b"A2", "a"),
        Move(b"dies", b"DEAD"),
        Move(b"goes", delete=True),
        Move(b"was not there", b"X", "a"),
    ]
    assert store.move("schedule", *moves) == [1, 1, 1, 1, 1, 0]

    assert store.queue("a") == [b"A1", b"A2"]
    assert store.queue("b") == [b"B1"]
    assert store.members("dead") == [b"DEAD"]
    assert store.members("schedule") == [b"stays"]
    assert sorted(store.ask("SMEMBERS", "queues")) == [b"a", b"b"]


def test_a_move_twice_is_a_no_op(store: Store) -> None:
    store.ask("ZADD", "retry", 1, "x")
    assert store.move("retry", Move(b"x", b"X", "a")) == [1]
    assert store.move("retry", Move(b"x", b"X", "a")) == [0]
    assert store.queue("a") == [b"X"]


def test_of_two_that_move_the_same_one_succeeds(redis_url: str) -> None:
    stores = [Store(redis_url) for _ in range(4)]
    entries = [b"%d" % n for n in range(200)]
    stores[0].ask("ZADD", "schedule", *(part for one in entries for part in (1, one)))
    together = threading.Barrier(4)
    moved: list[int] = []

    def stage(one: Store) -> None:
        together.wait()
        for entry in entries:
            moved.extend(int(status) for status in one.move("schedule", Move(entry, entry, "a")))

    threads = [threading.Thread(target=stage, args=[one]) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(moved) == 200
    assert sorted(stores[0].queue("a")) == sorted(entries)


@pytest.mark.parametrize("key", ["queue:a", "queues", "dead"])
def test_an_entry_that_cannot_be_moved_is_where_it_was(store: Store, key: str) -> None:
    store.ask("ZADD", "retry", 1234567890.123456, "x", 2, "y")
    store.ask("SET", key, "text")
    target = None if key == "dead" else "a"

    refusal, neighbour = store.move("retry", Move(b"x", b"X", target), Move(b"y", delete=True))

    assert isinstance(refusal, bytes)
    assert refusal.startswith(b"WRONGTYPE")
    assert neighbour == 1
    assert store.members("retry") == [b"x"]
    assert float(store.ask("ZSCORE", "retry", "x")) == 1234567890.123456
    assert store.ask("GET", key) == b"text"
    assert key == "queue:a" or store.ask("EXISTS", "queue:a") == 0  # not pushed and kept at once


def test_thousands_in_one_call(store: Store) -> None:
    entries = [b"%d" % n for n in range(2500)]
    store.ask("ZADD", "schedule", *(part for n, one in enumerate(entries) for part in (n, one)))
    assert store.move("schedule", *(Move(one, one, "a") for one in entries)) == [1] * 2500
    assert store.queue("a") == entries


def test_the_dead_set_is_trimmed_when_something_is_added(store: Store) -> None:
    store.ask("ZADD", "dead", store.now() - 100, "old", store.now() - 5, "young")
    store.ask("ZADD", "retry", 1, "x")
    store.move("retry", Move(b"x", b"x"), dead_timeout=60.0)
    assert store.members("dead") == [b"young", b"x"]
    store.ask("ZADD", "retry", 1, "y")
    store.move("retry", Move(b"y", b"y"), dead_max=2)
    assert store.members("dead") == [b"x", b"y"]


def test_from_the_dead_set_back_to_a_queue(store: Store) -> None:
    store.ask("ZADD", "dead", store.now(), "x")
    assert store.move("dead", Move(b"x", b"X", "a")) == [1]
    assert store.members("dead") == []
    assert store.queue("a") == [b"X"]


def test_everything_below_the_namespace(redis_url: str) -> None:
    store = Store(redis_url, "ns")
    store.run(jobs.schedule(store.keys, [(1.0, 0.0, b"x"), (2.0, 0.0, b"y")]))
    look(store)
    store.move(store.keys.schedule, Move(b"x", b"x", "a"), Move(b"y", b"y"))
    assert store.all_keys() == {"ns:queue:a", "ns:queues", "ns:dead", "ns:hm:staging", "ns:hm:clock"}
