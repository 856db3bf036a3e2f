"""A server whose memory is full: it refuses what is new, and must lose nothing of what it has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from henchman.errors import ServerAway, ServerError
from henchman.store import jobs, leases
from henchman.store.jobs import Move, Settlement
from support.store import ME, Store


@pytest.fixture
def full(redis_url: str) -> Iterator[Store]:
    """Three jobs in flight from a queue of five, one scheduled, one cancelled; then the memory is full."""
    store = Store(redis_url)
    store.push("a", b"1", b"2", b"3", b"4", b"5")
    store.join("a")
    store.fetch("a", count=3)
    store.ask("ZADD", "schedule", 1, "due")
    store.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        yield store
    finally:
        store.ask("CONFIG", "SET", "maxmemory", 0)
        store.connections.close()


def test_a_push_is_refused_and_says_so(full: Store) -> None:
    for call in (jobs.push(full.keys, "a", b"9"), jobs.schedule(full.keys, [(1.0, 0.0, b"9")])):
        with pytest.raises(ServerError, match="maxmemory") as caught:
            full.run(call)
        assert not isinstance(caught.value, ServerAway)
    assert full.queue("a") == [b"4", b"5"]


def test_a_lease_is_renewed(full: Store) -> None:
    assert full.run(leases.renew(full.keys, ME, 90_000)) == 1
    assert full.ask("PTTL", full.keys.lease(ME)) > 40_000, "it had 30 s"


def test_a_lapsed_lease_is_taken_again(full: Store) -> None:
    full.ask("DEL", full.keys.lease(ME))
    assert full.run(leases.renew(full.keys, ME, 40_000)) == 2


def test_joining_works(full: Store) -> None:
    full.join("a", identity="host:9:0")
    assert full.ask("SCARD", full.keys.lists_of("host:9:0")) == 1


def test_fetching_goes_on(full: Store) -> None:
    assert full.fetch("a") == [[b"4", b"5"]]
    assert full.in_flight("a") == [b"1", b"2", b"3", b"4", b"5"]


def test_every_ending_is_settled(full: Store) -> None:
    units = (
        Settlement(1, b"1", "retry", b"R", 5.0),
        Settlement(1, b"2", "dead", b"D", effects=b'[["uncancel","j"]]'),
        Settlement(1, b"3", "released"),
    )
    assert full.settle(*units) == [1, 1, 1]
    assert full.members("retry") == [b"R"]
    assert full.members("dead") == [b"D"]
    assert full.queue("a") == [b"3", b"4", b"5"]
    assert full.ask("GET", "stat:processed") == b"2"


def test_work_is_given_back(full: Store) -> None:
    assert full.run(jobs.give_back(full.keys, full.flight("a"), "a", 10)) == 3
    assert full.queue("a") == [b"1", b"2", b"3", b"4", b"5"]


def test_what_is_due_is_staged(full: Store) -> None:
    assert full.run(jobs.due(full.keys, ME, 2000, 10)).scheduled == [b"due"]
    assert full.move("schedule", Move(b"due", b"DUE", "b")) == [1]
    assert full.queue("b") == [b"DUE"]


def test_the_dead_are_buried(full: Store) -> None:
    assert full.run(leases.entomb(full.keys, ME, force=True)) == 1
    assert full.ask("EXISTS", full.keys.tomb(ME)) == 1


def test_cancelling_works(full: Store) -> None:
    full.run(jobs.cancel(full.keys, "j1"))
    assert full.members("hm:cancelled") == [b"j1"]


def test_a_script_that_the_server_forgot_is_sent_again(full: Store) -> None:
    full.ask("SCRIPT", "FLUSH")
    assert full.settle(Settlement(1, b"1", "done")) == [1]


def test_a_beat_is_refused_as_a_whole(full: Store) -> None:
    call = leases.beat(full.keys, ME, {"info": "{}"}, {}, old_work=True)
    with pytest.raises(ServerError, match="maxmemory"):
        full.run(call)
    assert full.ask("EXISTS", full.keys.processes, full.keys.process(ME)) == 0
    full.ask("CONFIG", "SET", "maxmemory", 0)
    assert full.run(call).first
