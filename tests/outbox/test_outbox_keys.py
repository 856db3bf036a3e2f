"""Jobs with a key as rows of the outbox: the key is computed at the call, and looked at when the row is pushed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import update

from henchman.client.push import Pushed
from henchman.errors import ArgumentError, DefinitionError
from henchman.outbox.relay import Relay
from henchman.outbox.schema import outbox
from henchman.store import batches
from henchman.testing import fake
from support.keys import PHASES, end, lock, locks, waiting
from support.outbox import CONFIRMED, Hands, Shop, tick_until

# The server decides, not the database; test_killed_relays.py has keys on all three.
pytestmark = pytest.mark.parametrize("outbox_url", ["sqlite"], indirect=True)


def keyed(shop: Shop, **options: Any) -> Any:
    @shop.app.job(name="pay", key="order", **(options or {"once": True}))
    def pay(order: str, cents: int = 0) -> None: ...

    return pay


def write(shop: Shop, job: Any, *rows: Any) -> list[Any]:
    """A transaction with a row for each; their handles."""
    with shop.session() as session, session.begin():
        return [shop.app.outbox.write(session, job, *row) for row in rows]


def paid(redis: Redis) -> list[Any]:
    return [job["args"] for job in waiting(redis)]


def duplicates(shop: Shop) -> list[tuple[str, str, bool]]:
    """Of each duplicate that was announced: its jid, whose duplicate it is, whether the arguments differ."""
    return [
        (facts["jid"], facts["duplicate_of"], facts["differs"])
        for name, facts in shop.events
        if name == "outbox_duplicate"
    ]


def records(redis: Redis) -> dict[str, tuple[str, dict[str, Any]]]:
    """By jid the status and the detail that the history was told."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for _, fields in redis.xrange("hm:history"):  # type: ignore[union-attr]
        one = {name.decode(): value.decode() for name, value in fields.items()}
        lines = one["d"].split("\n") if one["k"] == "jobs" else [f"{one['j']} {one['d']}"] if one["k"] == "job" else []
        found |= {line[:24]: (one["s"], json.loads(line[25:])) for line in lines}
    return found


@pytest.mark.parametrize("phase", PHASES)
def test_one_job_of_two_rows_with_a_key_the_other_is_told_of_and_counted(
    shop: Shop, relay: Relay, redis: Redis, clock: Hands, phase: str
) -> None:
    pay = keyed(shop, **PHASES[phase])
    first, second, other = write(shop, pay, ("17", 1), ("17", 2), ("18", 1))
    assert [one.admission for one in (first, second, other)] == ["deferred"] * 3
    assert len({first.jid, second.jid, other.jid}) == 3
    assert not redis.keys("*")
    relay.tick()
    assert paid(redis) == [["17", 1], ["18", 1]]
    assert all(job["enqueued_at"] >= job["created_at"] for job in waiting(redis))
    assert locks(redis, phase, "pay") == {"17": first.jid, "18": other.jid}
    [again] = write(shop, pay, ("18", 1))
    relay.tick()
    assert duplicates(shop) == [(second.jid, first.jid, True), (again.jid, other.jid, False)]
    assert shop.app.outbox.status().duplicates == 2
    clock.now += CONFIRMED
    tick_until(relay, clock, lambda: not shop.count())
    assert (len(paid(redis)), redis.exists(shop.sent())) == (2, 0)
    end(redis, phase, "pay", "17")
    [third] = write(shop, pay, ("17", 3))
    relay.tick()
    assert lock(redis, phase, "pay", "17") == third.jid


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("ran", [False, True])
def test_a_row_that_the_server_knows_no_more_is_no_duplicate_of_itself(
    shop: Shop, relay: Relay, redis: Redis, clock: Hands, phase: str, ran: bool
) -> None:
    """The set of what was pushed is gone, and the rest of what the push did is not."""
    [handle] = write(shop, keyed(shop, **PHASES[phase]), ("17", 1))
    relay.tick()
    if ran:
        end(redis, phase, "pay", "17")
    redis.delete(shop.sent())
    clock.now += CONFIRMED
    tick_until(relay, clock, lambda: not shop.count())
    assert duplicates(shop) == []
    assert shop.app.outbox.status().duplicates == 0
    assert [job["jid"] for job in waiting(redis)] == [handle.jid]
    assert lock(redis, phase, "pay", "17") == handle.jid


def test_a_throttled_row_is_no_duplicate_of_itself_either(shop: Shop, relay: Relay, redis: Redis, clock: Hands) -> None:
    first, second = write(shop, keyed(shop, throttle=60), ("17", 1), ("17", 2))
    relay.tick()
    assert (paid(redis), duplicates(shop)) == ([["17", 1]], [(second.jid, first.jid, False)])
    redis.srem(shop.sent(), first.jid)
    clock.now += CONFIRMED
    tick_until(relay, clock, lambda: not shop.count())
    assert (len(paid(redis)), len(duplicates(shop))) == (1, 1)


def test_a_second_row_replaces_the_arguments_of_the_first(shop: Shop, relay: Relay, redis: Redis) -> None:
    first, second = write(shop, keyed(shop, unique="queued", on_conflict="replace"), ("17", 1), ("17", 2))
    relay.tick()
    assert [(job["jid"], job["args"]) for job in waiting(redis)] == [(first.jid, ["17", 1])]
    assert json.loads(redis.hget("hm:latest", first.jid) or "")["args"] == ["17", 2]  # type: ignore[arg-type]
    assert duplicates(shop) == [(second.jid, first.jid, False)]


def test_a_second_row_waits_for_the_end_of_the_first(shop: Shop, relay: Relay, redis: Redis) -> None:
    first, second = write(shop, keyed(shop, unique="until_success", on_conflict="wait"), ("17", 1), ("17", 2))
    relay.tick()
    assert [job["jid"] for job in waiting(redis)] == [first.jid]
    assert waiting(redis)[0]["enqueued_at"]
    assert redis.hkeys("hm:parked") == [second.jid.encode()]
    assert duplicates(shop) == []


def test_a_burst_of_rows_is_one_job_with_the_last_arguments(
    shop: Shop, relay: Relay, redis: Redis, clock: Hands
) -> None:
    pay = keyed(shop, debounce=30)
    [first, *_] = write(shop, pay, ("17", 1), ("17", 2))
    relay.tick()
    write(shop, pay, ("17", 3))
    relay.tick()
    [job] = [json.loads(one) for one in redis.zrange("schedule", 0, -1)]  # type: ignore[union-attr]
    assert (job["jid"], job["args"], "enqueued_at" in job) == (first.jid, ["17", 3], False)
    assert (paid(redis), len(duplicates(shop))) == ([], 2)


def test_a_key_that_is_taken_at_the_start_alone_lets_every_row_through(shop: Shop, relay: Relay, redis: Redis) -> None:
    write(shop, keyed(shop, unique="running"), ("17", 1), ("17", 2))
    assert [row.meta for row in shop.rows()] == [None, None]
    relay.tick()
    assert paid(redis) == [["17", 1], ["17", 2]]
    assert [job["hm"]["key"] for job in waiting(redis)] == [["pay", "17", "r"]] * 2


def test_again_and_a_delay(shop: Shop, relay: Relay, redis: Redis) -> None:
    pay = keyed(shop, unique="queued")
    first, second = write(shop, pay, ("17", 1)) + write(shop, pay.using(again=True), ("17", 2))
    [late] = write(shop, pay.using(delay=60), ("18", 1))
    relay.tick()
    assert paid(redis) == [["17", 1], ["17", 2]]
    assert locks(redis, "w", "pay") == {"17": second.jid, "18": late.jid}
    assert first.jid != second.jid
    [job] = [json.loads(one) for one in redis.zrange("schedule", 0, -1)]  # type: ignore[union-attr]
    assert (job["jid"], "enqueued_at" in job) == (late.jid, False)


def test_in_bulk_a_link_may_stop_some_and_a_row_without_a_key_is_an_error_at_the_call(
    shop: Shop, relay: Relay, redis: Redis
) -> None:
    pay = keyed(shop)
    shop.app.client_middleware.add(lambda job, call_next: call_next() if job["args"][0] != "stop" else None)
    with shop.session() as session, session.begin():
        pushed = shop.app.outbox.write_many(session, pay, [("1",), ("stop",), ("1",), ("2",)])
        assert pushed == Pushed(4, 0, 0, 1, deferred=3)
        assert shop.app.outbox.write(session, pay, "stop").admission == "stopped"
        with pytest.raises(ArgumentError, match=r"row 1: .*the key"):
            shop.app.outbox.write_many(session, pay, [("3",), ("",)])
    relay.tick()
    assert paid(redis) == [["1"], ["2"], ["3"]]


def test_awaited(shop: Shop, relay: Relay, redis: Redis) -> None:
    async def writing(session: Any) -> Any:
        return await shop.app.outbox.awrite(session, pay, "17")

    pay = keyed(shop)
    with shop.session() as session, session.begin():
        assert asyncio.run(writing(session)).admission == "deferred"
    relay.tick()
    assert paid(redis) == [["17"]]


def test_a_duplicate_is_no_member_of_its_batch_and_history_says_why_it_does_not_run(
    shop: Shop, relay: Relay, redis: Redis, clock: Hands
) -> None:
    redis.set("hm:history:on", "strict 1000000")
    pay = keyed(shop)
    batch = shop.app.batch("Payments", results=True)
    batch.open()
    first, second = write(shop, pay.using(batch=batch), ("1", 1), ("1", 2))
    tracked, third = write(shop, pay.using(track=True), ("2", 1), ("1", 3))
    relay.tick()
    assert batch.status().total == 1
    assert [(one.jid, one.status) for one in batch.results()] == [(first.jid, "enqueued")]
    told = records(redis)
    statuses = {first.jid: "enqueued", tracked.jid: "enqueued", second.jid: "cancelled", third.jid: "cancelled"}
    assert {jid: status for jid, (status, _) in told.items()} == statuses
    assert told[second.jid][1]["reason"] == f"a duplicate of {first.jid}"
    assert (told[third.jid][1]["class"], told[third.jid][1]["args"]) == ("pay", ["1", 3])
    clock.now += CONFIRMED
    tick_until(relay, clock, lambda: not shop.count())
    batch.close()


def test_an_atomic_batch_meets_the_key_when_it_is_released(shop: Shop, relay: Relay, redis: Redis) -> None:
    pay = keyed(shop)
    batch = shop.app.batch("Payments", atomic=True, results=True)
    batch.open()
    first, second = write(shop, pay.using(batch=batch), ("1", 1), ("1", 2))
    relay.tick()
    assert (paid(redis), batch.status().total) == ([], 2)
    batch.close()
    assert paid(redis) == [["1", 1]]
    assert lock(redis, "o", "pay", "1") == first.jid
    rows = [(one.jid, one.status, one.message) for one in batch.results()]
    assert rows == [(first.jid, "enqueued", ""), (second.jid, "cancelled", f"a duplicate of {first.jid}")]


def test_a_transactional_app_writes_rows_with_keys(redis_url: str, outbox_url: str, redis: Redis) -> None:
    shop = Shop(redis_url, outbox_url, transactional=True)
    try:
        pay = keyed(shop)
        with shop.session() as session:
            handle = pay.using(session=session).enqueue("17", 1)
            assert handle.admission == "deferred"
            assert pay.using(session=session).enqueue_many([("17", 2), ("18", 1)]).deferred == 2
            session.commit()
        assert [json.loads(row.meta)["ask"]["key"] for row in shop.rows()] == ["17", "17", "18"]
        assert not redis.keys("*")
    finally:
        shop.close()


def test_a_duplicate_that_is_to_raise_is_refused_at_the_call(shop: Shop) -> None:
    pay = keyed(shop, once=True, on_conflict="raise")
    with pytest.raises(DefinitionError, match=r"on_conflict='raise'.*outbox=False"):
        write(shop, pay, ("17", 1))
    assert shop.count() == 0


@pytest.mark.parametrize(
    "change",
    [{"news": 1}, {"needs": [["pay"]]}, {"phases": "x"}, {"once_for": 0}, {"scope": None}, {"conflict": "raise"}],
)
def test_a_row_that_asks_for_what_we_do_not_know_is_not_pushed_without_it(
    shop: Shop, relay: Relay, clock: Hands, redis: Redis, change: dict[str, Any]
) -> None:
    write(shop, keyed(shop), ("17", 1))
    [row] = shop.rows()
    meta = json.loads(row.meta)
    with shop.database.writing() as connection:
        connection.execute(update(outbox).values(meta=json.dumps({"ask": meta["ask"] | change})))
    tick_until(relay, clock, lambda: shop.events)
    assert "cannot be read" in shop.events[0][1]["reason"]
    assert (paid(redis), shop.count()) == ([], 1)


@pytest.mark.parametrize("met", [False, True])
def test_a_row_that_waits_for_another_job_is_parked_until_that_has_succeeded(
    shop: Shop, relay: Relay, redis: Redis, clock: Hands, met: bool
) -> None:
    [handle] = write(shop, shop.ship, (1,))
    before = "b" * 24
    ask = {"scope": "", "phases": "", "conflict": "skip", "key": "", "mark": "", "needs": [["", before, 604_800]]}
    with shop.database.writing() as connection:
        connection.execute(update(outbox).values(meta=json.dumps({"ask": ask})))
    if met:
        done = [["unlock", "f", "", before, before, "s", 604_800]]
        redis.hset("hm:lock:f:", before, f"{before} 1.0 ")
        shop.app.connections.run(batches.note(shop.app.keys, [json.dumps(done).encode()]))
    relay.tick()
    assert [job["jid"] for job in waiting(redis)] == [handle.jid] * met
    assert redis.hkeys("hm:parked") == [handle.jid.encode()] * (not met)
    assert all("enqueued_at" in job for job in waiting(redis))
    clock.now += CONFIRMED
    tick_until(relay, clock, lambda: not shop.count())
    assert (len(waiting(redis)), redis.hlen("hm:parked")) == (met, not met)


def test_a_key_that_holds_something_else_refuses_the_row_and_stops_no_other(
    shop: Shop, relay: Relay, clock: Hands, redis: Redis
) -> None:
    redis.set("hm:lock:o:pay", "no hash")
    write(shop, keyed(shop), ("17", 1))
    shop.sell(1)
    relay.tick()
    assert paid(redis) == [[1]]
    redis.delete("hm:lock:o:pay")
    tick_until(relay, clock, lambda: len(paid(redis)) == 2)
    tick_until(relay, clock, lambda: not shop.count())
    assert paid(redis) == [[1], ["17", 1]]


def test_the_fake_holds_keys_too(shop: Shop) -> None:
    pay = keyed(shop)
    with fake(shop.app) as jobs:
        handles = write(shop, pay, ("17", 1), ("17", 2), ("18", 1))
        assert [one.admission for one in handles] == ["deferred"] * 3
        assert [list(one.args) for one in jobs] == [["17", 1], ["18", 1]]
    assert shop.count() == 0


def test_a_row_waits_for_another_whichever_was_written_first(shop: Shop, relay: Relay, redis: Redis) -> None:
    pay = keyed(shop, followed=True, once_for=60)

    @shop.app.job(name="deliver", key="order", after=pay, on_failed="run", wait_at_most=60)
    def deliver(order: str) -> None: ...

    [later], [first] = write(shop, deliver, ("17",)), write(shop, pay, ("17", 1))
    relay.tick()
    assert paid(redis) == [["17", 1]]
    assert {one.decode() for one in redis.hkeys("hm:parked")} == {later.jid}  # type: ignore[union-attr]
    assert locks(redis, "f", "pay") == {"17": first.jid}
    assert (later.need, first.need.scope, first.need.once_for) == (None, "pay", 60)
    assert not [name for name, _ in shop.events if name == "outbox_problem"]
