"""Settling: each ending, the fence, the order of what is given back, counters, the dead set, broken effects."""

from __future__ import annotations

import json

import pytest

from henchman.errors import LeaseLost
from henchman.store import jobs, leases
from henchman.store.call import Call
from henchman.store.jobs import EARLIER, SETTLED_TOGETHER, Settlement
from support.store import DAY, ME, Store

UNCANCEL = b'[["uncancel","j1"]]'


def flying(store: Store, *payloads: bytes, queue: str = "a") -> None:
    store.push(queue, *payloads)
    store.join(queue)
    assert store.fetch(queue, count=len(payloads)) == [list(payloads)]


def counted(store: Store) -> tuple[int, int, int, int]:
    keys = store.keys
    names = (keys.stat_processed, keys.stat_day("processed", DAY), keys.stat_failed, keys.stat_day("failed", DAY))
    processed, today, failed, failed_today = (int(one or 0) for one in store.ask("MGET", *names))
    return processed, today, failed, failed_today


@pytest.mark.parametrize(
    ("ending", "processed", "failed"),
    [
        ("done", 1, 0),
        ("failed", 1, 0),
        ("discarded", 1, 0),
        ("gone", 1, 1),
        ("expired", 0, 0),
        ("cancelled", 0, 0),
    ],
)
def test_endings_that_leave_no_trace(store: Store, ending: str, processed: int, failed: int) -> None:
    flying(store, b"1")

    assert store.settle(Settlement(1, b"1", ending)) == [1]

    assert counted(store) == (processed, processed, failed, failed)
    counters = {key for key in store.all_keys() if key.startswith("stat:")}
    assert store.all_keys() - counters == {
        "queues",
        store.keys.lease(ME),
        "hm:identities",
        store.keys.lists_of(ME),
    }


@pytest.mark.parametrize(("ending", "target", "failed"), [("retry", "retry", 1), ("snoozed", "schedule", 0)])
def test_later_is_counted_from_the_servers_now(store: Store, ending: str, target: str, failed: int) -> None:
    flying(store, b"1")
    before = store.now()

    assert store.settle(Settlement(1, b"1", ending, b"stored", 30.5)) == [1]

    assert before + 30.5 <= float(store.ask("ZSCORE", target, "stored")) <= store.now() + 30.5
    assert store.in_flight("a") == []
    assert counted(store) == (1, 1, failed, failed)


@pytest.mark.parametrize(("ending", "processed"), [("dead", 1), ("invalid", 0)])
def test_the_dead_set_gets_what_was_stored(store: Store, ending: str, processed: int) -> None:
    flying(store, b"1")
    before = store.now()

    assert store.settle(Settlement(1, b"1", ending, b"stored")) == [1]

    assert store.members("dead") == [b"stored"]
    assert before - 0.001 <= float(store.ask("ZSCORE", "dead", "stored")) <= store.now()
    assert counted(store) == (processed, processed, processed, processed)


def test_the_dead_set_is_trimmed_by_number(store: Store) -> None:
    flying(store, b"1", b"2", b"3")
    for one in (b"1", b"2", b"3"):  # one call each: the same microsecond would be ordered by text
        store.settle(Settlement(1, one, "dead", one), dead_max=2)
    assert store.members("dead") == [b"2", b"3"]


def test_the_dead_set_is_trimmed_by_age(store: Store) -> None:
    flying(store, b"1")
    store.ask("ZADD", "dead", store.now() - 61, "old", store.now() - 5, "young")
    store.settle(Settlement(1, b"1", "dead", b"new"), dead_timeout=60.0)
    assert store.members("dead") == [b"young", b"new"]


def test_what_is_released_last_runs_next(store: Store) -> None:
    flying(store, b"1", b"2", b"3")
    store.push("a", b"4")

    newest_first = [Settlement(1, one, "released") for one in (b"3", b"2", b"1")]
    assert store.settle(*newest_first) == [1, 1, 1]

    assert store.queue("a") == [b"1", b"2", b"3", b"4"]
    assert store.in_flight("a") == []
    assert counted(store) == (0, 0, 0, 0)


def test_a_queue_that_was_cleared_is_known_again_when_something_returns(redis_url: str) -> None:
    store = Store(redis_url, "ns")
    flying(store, b"1", queue="mail:x")
    store.ask("SREM", store.keys.queues, "mail:x")

    assert store.settle(Settlement(1, b"1", "released"), queues=("mail:x",)) == [1]

    assert store.ask("SMEMBERS", store.keys.queues) == [b"mail:x"]
    assert store.queue("mail:x") == [b"1"]


def test_the_same_call_twice_is_a_no_op(store: Store) -> None:
    flying(store, b"1", b"2")
    units = (Settlement(1, b"1", "done"), Settlement(1, b"2", "retry", b"stored", 5.0))

    assert store.settle(*units) == [1, 1]
    first = store.ask("ZSCORE", "retry", "stored")
    assert store.settle(*units) == [0, 0]

    assert store.ask("ZSCORE", "retry", "stored") == first
    assert counted(store) == (2, 2, 1, 1)


def test_what_is_interrupted_goes_to_the_end_of_its_queue(redis_url: str) -> None:
    store = Store(redis_url, "ns")
    flying(store, b"1", queue="mail:x")
    store.push("mail:x", b"2", b"3")
    store.ask("SREM", store.keys.queues, "mail:x")

    assert store.settle(Settlement(1, b"1", "interrupted", b"stored"), queues=("mail:x",)) == [1]
    assert store.settle(Settlement(1, b"1", "interrupted", b"stored"), queues=("mail:x",)) == [0]

    assert store.queue("mail:x") == [b"2", b"3", b"stored"]
    assert store.in_flight("mail:x") == []
    assert store.ask("SMEMBERS", store.keys.queues) == [b"mail:x"]
    assert counted(store) == (1, 1, 1, 1)


@pytest.mark.parametrize("ending", ["done", "retry", "snoozed", "dead", "released", "interrupted", "cancelled"])
def test_a_late_word_changes_nothing(store: Store, ending: str) -> None:
    store.join("a")
    store.ask("ZADD", "hm:cancelled", 1, "j1")
    before = store.all_keys()

    assert store.settle(Settlement(1, b"1", ending, b"stored", 5.0, UNCANCEL)) == [0]

    assert store.all_keys() == before
    assert store.members("hm:cancelled") == [b"j1"]


def test_equal_payloads_are_settled_one_by_one(store: Store) -> None:
    flying(store, b"1", b"1")
    assert store.settle(Settlement(1, b"1", "done")) == [1]
    assert store.in_flight("a") == [b"1"]


def test_the_buried_settle_nothing(store: Store) -> None:
    flying(store, b"1")
    store.run(leases.entomb(store.keys, ME, force=True))

    with pytest.raises(LeaseLost):
        store.settle(Settlement(1, b"1", "done", effects=UNCANCEL))

    assert store.in_flight("a") == [b"1"]


def test_a_settlement_renews_the_lease(store: Store) -> None:
    store.join("a", lease_ms=15_000)
    store.settle()
    assert store.ask("PTTL", store.keys.lease(ME)) > 15_000, "30 s from here on"


def test_many_units_of_two_queues_in_one_call(store: Store) -> None:
    here, there = [b"h%d" % n for n in range(1500)], [b"t%d" % n for n in range(1500)]
    flying(store, *here)
    flying(store, *there, queue="b")

    units = [Settlement(1, one, "done") for one in here] + [Settlement(2, one, "dead", one) for one in there]
    assert store.settle(*units, queues=("a", "b"), dead_max=10_000) == [1] * 3000

    assert store.in_flight("a") == store.in_flight("b") == []
    assert store.ask("ZCARD", "dead") == 1500
    assert counted(store) == (3000, 3000, 1500, 1500)


def test_the_counters_of_a_day_last_five_years(store: Store) -> None:
    flying(store, b"1", b"2")
    for one in (b"1", b"2"):
        store.settle(Settlement(1, one, "gone"))
    five_years = 5 * 365 * 86400
    for which in ("processed", "failed"):
        assert five_years - 60 < store.ask("TTL", store.keys.stat_day(which, DAY)) <= five_years
        assert store.ask("TTL", f"stat:{which}") == -1


@pytest.mark.parametrize(("ending", "target"), [("retry", "retry"), ("snoozed", "schedule"), ("dead", "dead")])
def test_a_unit_that_cannot_be_stored_stays_in_flight(store: Store, ending: str, target: str) -> None:
    flying(store, b"1", b"2")
    store.ask("SET", target, "text")

    refusal, neighbour = store.settle(Settlement(1, b"1", ending, b"x", 5.0, UNCANCEL), Settlement(1, b"2", "done"))

    assert isinstance(refusal, bytes)
    assert refusal.startswith(b"WRONGTYPE")
    assert neighbour == 1
    assert store.in_flight("a") == [b"1"]
    assert counted(store) == (1, 1, 0, 0)


def test_a_release_into_something_else_stays_in_flight(store: Store) -> None:
    flying(store, b"1")
    store.ask("SET", "queue:a", "text")
    [status] = store.settle(Settlement(1, b"1", "released"))
    assert isinstance(status, bytes)
    assert store.in_flight("a") == [b"1"]


def test_a_list_of_another_type_spoils_no_neighbour(store: Store) -> None:
    flying(store, b"1")
    store.ask("SET", store.flight("b"), "text")

    first, second = store.settle(Settlement(2, b"9", "done"), Settlement(1, b"1", "done"), queues=("a", "b"))

    assert isinstance(first, bytes)
    assert second == 1
    assert counted(store) == (1, 1, 0, 0)


def test_a_broken_counter_hides_nothing(store: Store) -> None:
    flying(store, b"1")
    store.ask("SET", "stat:processed", "many")
    assert store.settle(Settlement(1, b"1", "gone")) == [1]
    assert store.ask("GET", store.keys.stat_day("processed", DAY)) == b"1"
    assert store.ask("GET", "stat:failed") == b"1"


def test_effects_are_carried_out(store: Store) -> None:
    flying(store, b"1")
    store.ask("ZADD", "hm:cancelled", 1, "j1", 1, "j2")
    assert store.settle(Settlement(1, b"1", "cancelled", effects=UNCANCEL)) == [1]
    assert store.members("hm:cancelled") == [b"j2"]


@pytest.mark.parametrize(
    ("effects", "error"),
    [
        (UNCANCEL, "WRONGTYPE"),
        (b'[["fly","j1"]]', "unknown kind"),
        (b"[7]", "unknown kind"),
        (b"not json", "not a JSON list"),
        (b'"text"', "not a JSON list"),
    ],
)
def test_an_effect_that_fails_is_kept_and_stops_nobody(store: Store, effects: bytes, error: str) -> None:
    flying(store, b"1", b"2")
    store.ask("SET", "hm:cancelled", "text")

    assert store.settle(Settlement(1, b"1", "cancelled", effects=effects), Settlement(1, b"2", "done")) == [1, 1]

    [note] = store.ask("LRANGE", "hm:broken", 0, -1)
    told = json.loads(note)
    assert (told["unit"], told["ending"], told["effects"]) == ("1", "cancelled", effects.decode())
    assert error in told["error"]
    assert store.in_flight("a") == []
    assert counted(store) == (1, 1, 0, 0)


def test_the_broken_list_keeps_the_last_thousand(store: Store) -> None:
    payloads = [b"%d" % n for n in range(1005)]
    flying(store, *payloads)
    store.settle(*(Settlement(1, one, "done", effects=b'[["fly"]]') for one in payloads))
    assert store.ask("LLEN", "hm:broken") == 1000
    assert json.loads(store.ask("LINDEX", "hm:broken", 0))["unit"] == "1004"


def test_nowhere_to_note_a_broken_effect_is_no_reason_to_lose_a_neighbour(store: Store) -> None:
    flying(store, b"1", b"2")
    store.ask("SET", "hm:broken", "text")
    units = Settlement(1, b"1", "done", effects=b'[["fly"]]'), Settlement(1, b"2", "retry", b"2", 1.0)
    assert store.settle(*units) == [1, 1]
    assert store.members("retry") == [b"2"]


# ---- many with effects: several calls of the script in one write


MANY = 2 * SETTLED_TOGETHER + 50


def many_ended(store: Store, effects: bytes = UNCANCEL) -> Call[list[int | bytes]]:
    """The call that ends MANY units which are in flight."""
    payloads = [b"%d" % number for number in range(MANY)]
    flying(store, *payloads)
    units = [Settlement(1, one, "done", effects=effects) for one in payloads]
    pairs = [(store.flight("a"), store.keys.queue("a"))]
    return jobs.settle(store.keys, ME, pairs, units, lease_ms=30_000, day=DAY, dead_max=9, dead_timeout=9.0)


def test_many_with_effects_are_several_calls_in_one_write(store: Store) -> None:
    call = many_ended(store)
    assert len(call.parts) == 3
    assert store.run(call) == [1] * MANY
    assert store.in_flight("a") == []
    assert counted(store)[:2] == (MANY, MANY)
    assert store.run(call) == [0] * MANY, "a late word finds nothing"
    assert counted(store)[:2] == (MANY, MANY)


def test_many_without_effects_are_one_call(store: Store) -> None:
    call = many_ended(store, effects=b"")
    assert len(call.parts) == 1
    assert store.run(call) == [1] * MANY


def test_a_server_that_forgot_the_script_gets_it_once_for_all_calls(store: Store) -> None:
    call = many_ended(store)
    store.ask("SCRIPT", "FLUSH")
    assert store.run(call) == [1] * MANY
    assert counted(store)[0] == MANY


def test_sent_again_when_the_server_died_between_two_of_the_calls(store: Store) -> None:
    """What was executed before is told as such, the rest is settled now; each counts once."""
    call = many_ended(store)
    parts = call.with_texts(call.parts)
    store.ask(*parts[0])
    replies = [store.ask(*part) for part in parts]
    assert call.decode_again(replies) == [EARLIER] * SETTLED_TOGETHER + [1] * (MANY - SETTLED_TOGETHER)
    assert counted(store)[0] == MANY


def test_buried_between_two_of_the_calls(store: Store) -> None:
    """What was settled before stays so; the rest is not ours any more, and in flight for whoever rescues."""
    call = many_ended(store)
    first, *rest = call.with_texts(call.parts)
    replies = [store.ask(*first)]
    store.ask("SET", store.keys.tomb(ME), "1")
    replies += [store.ask(*part) for part in rest]
    assert call.decode(replies) == [1] * SETTLED_TOGETHER + [0] * (MANY - SETTLED_TOGETHER)
    assert len(store.in_flight("a")) == MANY - SETTLED_TOGETHER
    with pytest.raises(LeaseLost):
        store.run(call)
