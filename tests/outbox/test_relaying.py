"""The relay brings each committed row to the server, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import delete, event, insert, select, update

from henchman.errors import OutboxError, ServerError
from henchman.outbox import relay as module
from henchman.outbox.relay import Relay
from henchman.outbox.schema import marker, outbox
from henchman.store import outbox as store
from henchman.wire.payload import new_jid
from support.outbox import CONFIRMED, Hands, Shop, relaying, tick_until
from support.worker import jobs_in


def shipped(redis: Redis, queue: str = "default") -> list[Any]:
    return [job["args"][0] for job in jobs_in(redis, f"queue:{queue}")]


def test_committed_rows_are_pushed_in_order_and_deleted_two_seconds_later(
    shop: Shop, relay: Relay, clock: Hands, redis: Redis
) -> None:
    shop.sell(1, 2)
    relay.tick()
    shop.sell(3)
    relay.tick()
    assert shipped(redis) == [1, 2, 3]
    assert redis.smembers("queues") == {b"default"}
    first = jobs_in(redis, "queue:default")[0]
    assert first["enqueued_at"] >= first["created_at"]
    clock.now += 1.9
    relay.tick()
    assert (shop.count(), redis.scard(shop.sent()), relay.on_the_way) == (3, 3, 3)
    clock.now += CONFIRMED
    relay.tick()
    shop.judge(redis)
    assert relay.on_the_way == 0
    assert not shop.events


@pytest.mark.parametrize("outbox_url", ["postgresql", "mariadb"], indirect=True)  # SQLite has one writer at a time
def test_a_row_that_commits_late_with_a_low_id_is_found_by_its_gap(
    shop: Shop, relay: Relay, clock: Hands, redis: Redis
) -> None:
    relay.tick()  # the look at all rows is over
    looks = watched(relay, "look at all")
    with shop.session() as late, late.begin():
        shop.order(late, 1)
        with late.begin_nested():  # its release inserts what is pending: the id is given now
            pass
        shop.sell(2)
        shop.sell(3)
        for _ in range(240):  # a minute with an open transaction
            relay.tick()
            clock.now += 0.25
        assert shipped(redis) == [2, 3]
        looks.clear()
        clock.now += 1.0
        relay._all_at = clock.now + 60
    relay.tick()
    assert shipped(redis) == [2, 3, 1]
    assert not looks, "by its gap, not by a look at all rows"
    tick_until(relay, clock, lambda: not shop.count())
    shop.judge(redis)


def watched(relay: Relay, step: str) -> list[str]:
    """The steps of that name that the relay takes from now on."""
    taken: list[str] = []
    steps = relay.steps

    def watch() -> Any:
        for one in steps():
            taken.extend([one] if one == step else [])
            yield one

    relay.steps = watch  # type: ignore[method-assign]
    return taken


def test_ids_that_were_rolled_back_are_looked_for_ten_minutes_and_no_longer(
    shop: Shop, relay: Relay, clock: Hands
) -> None:
    with shop.session() as session:
        shop.order(session, 1)
        with session.begin_nested():
            pass
        session.rollback()
    shop.sell(2)
    tick_until(relay, clock, lambda: not relay.on_the_way and not shop.count())
    clock.now += module.GAPS_FOR + 2
    relay.tick()
    assert not relay._open


def test_scheduled_delayed_and_tracked_jobs_and_those_of_a_batch(
    shop: Shop, relay: Relay, redis: Redis, clock: Hands
) -> None:
    redis.set("hm:history:on", "strict 1000000")
    batch = shop.app.batch("Import")
    batch.open()
    with shop.session() as session, session.begin():
        shop.app.outbox.write(session, shop.ship.using(delay=60), 1)
        shop.app.outbox.write(session, shop.tracked, 2)
        shop.app.outbox.write(session, shop.ship.using(batch=batch), 3)
    relay.tick()
    [(payload, due)] = redis.zrange("schedule", 0, -1, withscores=True)  # type: ignore[misc]
    delayed = json.loads(payload)
    assert (delayed["args"], delayed["hm"]["delay"], "enqueued_at" in delayed) == ([1], 60.0, False)
    assert due == pytest.approx(delayed["created_at"] + 60, abs=5)
    assert shipped(redis, "tracked") == [2]
    assert shipped(redis) == [3]
    assert batch.status().total == 1
    told = redis.xrange("hm:history")
    assert [fields[b"s"] for _, fields in told if fields.get(b"k") == b"job"].count(b"enqueued") == 2  # type: ignore[union-attr]
    clock.now += CONFIRMED
    relay.tick()
    assert shop.count() == 0
    batch.close()


def test_a_job_of_a_closed_batch_is_refused_with_the_reason(
    shop: Shop, relay: Relay, redis: Redis, clock: Hands
) -> None:
    with shop.app.batch("Import") as batch, shop.session() as session, session.begin():
        shop.app.outbox.write(session, shop.ship.using(batch=batch), 1)
    tick_until(relay, clock, lambda: shop.events)
    [(name, facts)] = shop.events
    assert (name, facts["reason"]) == ("outbox_refused", "CLOSED")


def test_a_row_that_the_server_refuses_is_stepped_over_after_ten_tries_and_goes_when_it_may(
    shop: Shop, relay: Relay, clock: Hands, redis: Redis
) -> None:
    redis.set("queue:broken", "no list")
    with shop.session() as session, session.begin():
        shop.app.outbox.write(session, shop.ship.using(queue="broken"), 1)
    shop.sell(2)
    relay.tick()
    assert shipped(redis) == [2]
    assert redis.scard(shop.sent()) == 1
    rounds = 1
    while not shop.events:
        clock.now += 0.25
        relay.tick()
        rounds += 1
    assert rounds >= module.ATTEMPTS - 1  # the look at all rows tries, too
    [(name, facts)] = shop.events
    [row] = [one for one in shop.rows() if one.queue == "broken"]
    assert (name, facts["jid"], facts["queue"]) == ("outbox_refused", row.jid, "broken")
    assert "WRONGTYPE" in row.problem
    redis.delete("queue:broken")
    tick_until(relay, clock, lambda: shipped(redis, "broken") == [1])
    tick_until(relay, clock, lambda: not shop.count())
    assert len(shop.events) == 1
    assert not redis.exists(shop.sent())


@pytest.mark.parametrize(
    "values",
    [{"payload": "no JSON"}, {"payload": '{"class":"ship","jid":"another"}'}, {"meta": "[]"}, {"payload": "[]"}],
)
def test_a_row_that_cannot_be_read_stays_and_stops_no_other(
    shop: Shop, relay: Relay, clock: Hands, redis: Redis, values: dict[str, str]
) -> None:
    shop.sell(1)
    with shop.database.writing() as connection:
        connection.execute(update(outbox).values(**values))
    shop.sell(2)
    tick_until(relay, clock, lambda: shop.events)
    assert "cannot be read" in shop.events[0][1]["reason"]
    tick_until(relay, clock, lambda: shop.count() == 1)
    assert shipped(redis) == [2]


def test_a_full_server_steps_over_nothing(shop: Shop, relay: Relay, clock: Hands, redis: Redis) -> None:
    said: list[str] = []
    shop.sell(1)
    relay.tick()
    redis.config_set("maxmemory", "1")
    try:
        shop.sell(2, 3)
        for _ in range(30):
            clock.now += 0.5
            try:
                relay.tick()
            except ServerError as error:
                said.append(str(error))
    finally:
        redis.config_set("maxmemory", "0")
    assert len(said) > module.ATTEMPTS
    assert all("maxmemory" in one for one in said)
    assert not shop.events
    tick_until(relay, clock, lambda: not shop.count())
    shop.judge(redis)


def test_what_the_server_forgot_is_pushed_again_and_not_deleted(
    shop: Shop, relay: Relay, clock: Hands, redis: Redis
) -> None:
    shop.sell(1)
    relay.tick()
    clock.now += 1.0
    shop.sell(2)
    relay.tick()
    kept = redis.lindex("queue:default", -1)
    gone = json.loads(redis.lindex("queue:default", 0))["jid"]  # type: ignore[arg-type]
    redis.ltrim("queue:default", -1, -1)
    redis.srem(shop.sent(), gone)
    clock.now += CONFIRMED
    relay.tick()
    assert [json.loads(row.payload)["args"][0] for row in shop.rows()] == [2]
    tick_until(relay, clock, lambda: not shop.count())
    shop.judge(redis)
    assert redis.lindex("queue:default", -1) == kept


def test_what_another_relay_left_behind_is_swept(shop: Shop, relay: Relay, clock: Hands, redis: Redis) -> None:
    shop.sell(1)
    relay.tick()
    redis.sadd(shop.sent(), *(new_jid() for _ in range(1200)))
    clock.now += CONFIRMED
    relay.tick()
    assert redis.scard(shop.sent()) == 1200
    tick_until(relay, clock, lambda: not redis.exists(shop.sent()))
    shop.judge(redis)


def test_one_of_two_relays_leads_and_the_other_takes_over(shop: Shop, relay: Relay, redis: Redis, clock: Hands) -> None:
    with relaying(shop, clock) as other:
        relay.tick()
        other.tick()
        assert (relay.leads, other.leads) == (True, False)
        first = redis.get(shop.lease())
        assert 0 < redis.pttl(shop.lease()) <= 10_000  # type: ignore[operator]
        shop.sell(1)
        relay.stop()
        clock.now += 3.1
        other.tick()
        assert other.leads
        assert redis.get(shop.lease()) != first
        tick_until(other, clock, lambda: not shop.count())
    shop.judge(redis)
    assert not redis.exists(shop.lease())


def test_a_lease_that_ran_out_is_taken_with_another_token(shop: Shop, relay: Relay, redis: Redis, clock: Hands) -> None:
    relay.tick()
    first = redis.get(shop.lease())
    redis.delete(shop.lease())
    clock.now += 3.1
    relay.tick()
    assert relay.leads
    assert redis.get(shop.lease()) not in (None, first)


@pytest.mark.parametrize("step", ["push", "confirm", "forget"])
def test_a_relay_that_lost_its_lease_changes_nothing(
    shop: Shop, relay: Relay, redis: Redis, clock: Hands, step: str
) -> None:
    relay.tick()
    shop.sell(1)
    if step != "push":
        relay.tick()
        clock.now += CONFIRMED
        relay._renew_at = clock.now + 1
    steps = relay.steps()
    while next(steps) != step:
        pass
    redis.set(shop.lease(), "another", px=10_000)
    before = redis.smembers(shop.sent()), redis.lrange("queue:default", 0, -1)
    with pytest.raises(store.RelayFenced):
        list(steps)
    assert (redis.smembers(shop.sent()), redis.lrange("queue:default", 0, -1)) == before
    shop.sell(2)
    relay.tick()
    assert not relay.on_the_way, "it has noticed, and knows nothing any more"
    assert (redis.smembers(shop.sent()), redis.lrange("queue:default", 0, -1)) == before


def test_rows_of_one_line_go_in_the_order_of_their_commits(
    shop: Shop, relay: Relay, redis: Redis, clock: Hands
) -> None:
    """Also where the row before was refused, or is found late."""
    redis.set("queue:broken", "no list")
    with shop.session() as session, session.begin():
        shop.app.outbox.write(session, shop.ship.using(queue="broken", line="a"), 1)
    with shop.session() as session, session.begin():
        shop.app.outbox.write(session, shop.ship.using(line="a"), 2)
        shop.app.outbox.write(session, shop.ship.using(line="b"), 3)
        shop.app.outbox.write(session, shop.ship, 4)
    for _ in range(3):
        relay.tick()
        clock.now += 0.25
    assert shipped(redis) == [3, 4]
    redis.delete("queue:broken")
    tick_until(relay, clock, lambda: not shop.count())
    assert shipped(redis, "broken") == [1]
    assert shipped(redis) == [3, 4, 2]


def test_a_row_that_was_passed_over_comes_before_those_behind_it_on_its_line(
    shop: Shop, relay: Relay, redis: Redis, clock: Hands
) -> None:
    relay.tick()
    shop.sell(1, line="a")
    shop.sell(2, line="a")
    relay._high = shop.rows()[0].id  # as if the first one had been passed over, too long ago to be looked for
    relay.tick()
    assert shipped(redis) == [1, 2]


def test_an_outbox_belongs_to_one_namespace(shop: Shop, relay: Relay, redis_url: str) -> None:
    relay.tick()
    other = Shop(redis_url, shop.url, namespace="other")
    try:
        with relaying(other) as second:
            assert second.tick() > 0
            [(name, facts)] = other.events
            assert name == "outbox_away"
            assert "belongs to the namespace ''" in str(facts["error"])
            assert not second.leads
    finally:
        other.close()


def test_tables_that_were_made_anew_are_another_outbox(shop: Shop, relay: Relay, redis: Redis, clock: Hands) -> None:
    relay.tick()
    with shop.database.writing() as connection:
        connection.execute(update(marker).values(name="b" * 32))
    tick_until(relay, clock, lambda: redis.exists("hm:outbox:" + "b" * 32 + ":relay"))
    with shop.database.writing() as connection:
        connection.execute(delete(marker))
    with pytest.raises(OutboxError, match="has no row"):
        shop.database.marker()


@pytest.mark.parametrize("outbox_url", ["postgresql", "mariadb"], indirect=True)  # in SQLite the relay makes them
def test_tables_that_are_not_there_are_told_of(redis_url: str, shop: Shop, relay: Relay) -> None:
    with shop.database.writing() as connection:
        connection.exec_driver_sql("DROP TABLE henchman_outbox_version")
    assert relay.tick() > 0
    [(name, facts)] = shop.events
    assert name == "outbox_away"
    assert "henchman db upgrade --outbox" in str(facts["error"])


def test_an_idle_round_is_one_query(shop: Shop, relay: Relay, clock: Hands, redis: Redis) -> None:
    shop.sell(1)
    tick_until(relay, clock, lambda: not shop.count())
    clock.now += 1.5
    relay.tick()
    said: list[str] = []
    executing: Callable[..., None] = lambda *one: said.append(one[2])  # noqa: E731
    event.listen(relay.database.engine, "before_cursor_execute", executing)
    before = redis.info("stats")["total_commands_processed"]  # type: ignore[index]
    relay.tick()
    assert len([one for one in said if "henchman_outbox" in one]) <= 2
    assert redis.info("stats")["total_commands_processed"] - before <= 5  # type: ignore[index]


def test_a_backlog_is_drained_page_by_page(shop: Shop, relay: Relay, redis: Redis, clock: Hands) -> None:
    for first in range(0, 3000, 500):
        with shop.session() as session, session.begin():
            shop.app.outbox.write_many(session, shop.ship, [(number,) for number in range(first, first + 500)])
    tick_until(relay, clock, lambda: redis.llen("queue:default") == 3000)
    assert shipped(redis) == list(range(3000))
    tick_until(relay, clock, lambda: not shop.count())
    assert not redis.exists(shop.sent())
    assert not relay.on_the_way


def test_large_payloads_go_in_several_calls(shop: Shop, relay: Relay, redis: Redis, clock: Hands) -> None:
    with shop.database.writing() as connection:
        for number in range(12):
            jid = new_jid()
            payload = json.dumps({"class": "ship", "jid": jid, "args": ["x" * 1_000_000, number], "queue": "default"})
            connection.execute(insert(outbox).values(jid=jid, queue="default", payload=payload, created=1.0))
    steps = watched(relay, "push")
    tick_until(relay, clock, lambda: redis.llen("queue:default") == 12)
    assert len(steps) >= 3
    tick_until(relay, clock, lambda: not shop.count())
    with shop.database.reading() as connection:
        assert not connection.execute(select(outbox.c.id)).first()
