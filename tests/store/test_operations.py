"""Bulk work as operations: what is done, what is left, what can be taken back, and what nobody can lose."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.errors import ArgumentError
from henchman.inspector import operations as asked
from henchman.inspector.operations import Operation, Wish
from henchman.inspector.operator import Operator, carry_out
from henchman.store import operations as store
from henchman.store.call import command, run
from henchman.wire.payload import encode
from support.worker import jobs_in, until


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


def put(app: App, key: str, word: str, many: int, *, at: float | None = None, **more: Any) -> None:
    """Failed jobs of the class ``word`` in a set."""
    now = time.time() - 60 if at is None else at
    for number in range(many):
        job: dict[str, Any] = {"class": word, "queue": "q", "args": [number], "jid": f"{word}{number:020}", "retry": 5}
        job |= {"created_at": now, "failed_at": now, "error_class": "E", "error_message": "m", "retry_count": 0, **more}
        app.connections.run(command("ZADD", key, now, encode(job)))


def wish(act: Any, place: Any, text: str = "", **more: Any) -> Wish:
    return Wish(act, place, text, time.time(), **more)


def told(app: App, number: str) -> Operation:
    found = run(app.connections, asked.operation(app.keys, number))
    assert found is not None
    return found


def done(app: App, what: Wish) -> Operation:
    number = asked.begin(app, "ana", what)
    until(lambda: carry_out(app, number), "who did it before has resigned, or its lease is over")
    return told(app, number)


def undone(app: App, number: str) -> Operation:
    assert run(app.connections, asked.undo(app.keys, number))
    until(lambda: carry_out(app, number), "who did it before has resigned, or its lease is over")
    return told(app, number)


def contents(redis: Redis, key: str) -> list[tuple[bytes, float]]:
    found: Any = redis.zrange(key, 0, -1, withscores=True)
    return list(found)


@pytest.mark.parametrize(("act", "place", "key"), [("delete", "retries", "retry"), ("kill", "retries", "retry")])
def test_what_was_done_is_taken_back_as_it_was(app: App, redis: Redis, act: str, place: str, key: str) -> None:
    put(app, key, "sync", 250)
    put(app, key, "mail", 3)
    before = contents(redis, key)
    one = done(app, wish(act, place, "sync"))
    assert (one.state, one.done, one.kept, one.wish.planned) == ("done", 250, 250, 250)
    assert {job["class"] for job in jobs_in(redis, key)} == {"mail"}
    assert redis.zcard("dead") == (250 if act == "kill" else 0)
    assert one.may_undo
    back = undone(app, one.number)
    assert (back.state, back.back, back.ran) == ("undone", 250, 0)
    assert contents(redis, key) == before
    assert redis.zcard("dead") == 0
    assert not redis.exists("hm:operations:open", app.keys.trash(one.number), app.keys.doer(one.number))
    assert redis.hlen("hm:operations:trashes") == 0
    assert not back.may_undo


def test_a_retry_is_taken_back_as_far_as_jobs_have_not_begun(app: App, redis: Redis) -> None:
    put(app, "dead", "sync", 30)
    one = done(app, wish("retry", "dead"))
    assert redis.llen("queue:q") == 30
    redis.rpop("queue:q", 10)
    back = undone(app, one.number)
    assert (back.back, back.ran) == (20, 10)
    assert "10 could not be put back" in back.result
    assert (redis.llen("queue:q"), redis.zcard("dead")) == (0, 20)


def test_a_reschedule_and_its_undo(app: App, redis: Redis) -> None:
    put(app, "schedule", "sync", 5)
    before = contents(redis, "schedule")
    far = float(int(time.time()) + 9000)
    one = done(app, wish("reschedule", "scheduled", to=far))
    assert (one.done, {score for _, score in contents(redis, "schedule")}) == (5, {far})
    assert undone(app, one.number).back == 5
    assert contents(redis, "schedule") == before


def queue_up(redis: Redis, name: str, jids: list[str], kind: str = "even") -> None:
    for jid in jids:
        job = {"class": kind, "queue": name, "args": [2**63, 1.0], "jid": jid, "enqueued_at": time.time() - 60}
        redis.lpush(f"queue:{name}", encode(job))
    redis.sadd("queues", name)


def jids(redis: Redis, name: str) -> list[str]:
    """Those of a queue, the next to run first."""
    return [job["jid"] for job in jobs_in(redis, f"queue:{name}")]


def test_what_waits_moves_to_another_queue_in_order_and_back(app: App, redis: Redis) -> None:
    there, moving = [f"t{number:023}" for number in range(3)], [f"m{number:023}" for number in range(250)]
    queue_up(redis, "fast", there)
    queue_up(redis, "q", moving)
    redis.lpush("queue:q", b"no json")
    before = redis.lrange("queue:q", 0, -1)
    one = done(app, wish("move", "queues", name="q", into="fast"))
    assert (one.state, one.done, one.gone, one.kept) == ("done", 250, 0, 250)
    assert "250 jobs moved to fast" in one.result
    assert redis.lrange("queue:q", 0, -1) == [b"no json"], "what cannot be read stays"
    assert jids(redis, "fast") == moving + there
    assert {job["queue"] for job in jobs_in(redis, "queue:fast")} == {"fast"}
    assert all(job["args"] == [2**63, 1.0] for job in jobs_in(redis, "queue:fast"))
    assert redis.sismember("queues", "fast")
    redis.rpop("queue:fast", 10)
    back = undone(app, one.number)
    assert (back.state, back.back, back.ran) == ("undone", 240, 10)
    assert redis.lrange("queue:q", 0, -1) == before[:241]  # type: ignore[index]
    assert jids(redis, "fast") == there


def test_a_move_into_what_is_no_queue_leaves_all_where_it_is(app: App, redis: Redis) -> None:
    queue_up(redis, "q", ["a", "b"])
    redis.set("queue:broken", "a text")
    one = done(app, wish("move", "queues", name="q", into="broken"))
    assert (one.done, one.stayed) == (0, 2)
    assert "WRONGTYPE" in one.result
    assert jids(redis, "q") == ["a", "b"]
    assert not redis.sismember("queues", "broken")


def test_a_move_on_a_server_whose_names_of_queues_are_broken_does_nothing(app: App, redis: Redis) -> None:
    queue_up(redis, "q", ["a", "b"])
    number = asked.begin(app, "ana", wish("move", "queues", name="q", into="fast"))
    redis.delete("queues")
    redis.set("queues", "a text")
    carry_out(app, number)
    assert (jids(redis, "q"), redis.exists("queue:fast")) == (["a", "b"], 0)


def test_a_move_keeps_what_the_search_does_not_find(app: App, redis: Redis) -> None:
    queue_up(redis, "q", ["a", "b"], "odd")
    queue_up(redis, "q", ["c"])
    queue_up(redis, "q", ["d"], "odd")
    assert done(app, wish("move", "queues", "class:odd", name="q", into="slow")).done == 3
    assert (jids(redis, "q"), jids(redis, "slow")) == (["c"], ["a", "b", "d"])


@pytest.mark.parametrize(
    ("into", "said"), [("", "not a queue name"), ("q", "that is where"), ("a b", "not a queue name")]
)
def test_a_move_needs_another_queue(app: App, redis: Redis, into: str, said: str) -> None:
    queue_up(redis, "q", ["a"])
    with pytest.raises(ArgumentError, match=said):
        asked.begin(app, "ana", wish("move", "queues", name="q", into=into))


def test_a_queue_is_cleared_or_filtered_and_put_back_in_order(app: App, redis: Redis) -> None:
    for number in range(320):
        job = {"class": "odd" if number % 2 else "even", "queue": "q", "args": [number], "jid": f"{number:024}"}
        redis.lpush("queue:q", encode(job | {"enqueued_at": time.time() - 60, "created_at": time.time() - 60}))
    redis.sadd("queues", "q")
    before = redis.lrange("queue:q", 0, -1)
    one = done(app, wish("delete", "queues", '"odd"', name="q"))
    assert one.done == 160
    assert redis.lrange("queue:q", 0, -1) == [job for job in before if b'"odd"' not in job]  # type: ignore[union-attr]
    two = done(app, wish("delete", "queues", name="q"))
    assert (two.done, redis.exists("queue:q"), redis.sismember("queues", "q")) == (160, 0, 0)
    assert undone(app, two.number).back == 160
    assert redis.lrange("queue:q", 0, -1) == [job for job in before if b'"odd"' not in job]  # type: ignore[union-attr]
    assert redis.sismember("queues", "q")
    undone(app, one.number)
    assert sorted(redis.lrange("queue:q", 0, -1)) == sorted(before)  # type: ignore[arg-type]


def test_what_came_after_the_plan_is_left_alone(app: App, redis: Redis) -> None:
    put(app, "dead", "sync", 3)
    what = wish("delete", "dead")
    put(app, "dead", "late", 2, at=time.time() + 30)
    number = asked.begin(app, "ana", what)
    put(app, "dead", "later", 2, at=time.time() + 30)
    carry_out(app, number)
    assert told(app, number).done == 3
    assert {job["class"] for job in jobs_in(redis, "dead")} == {"late", "later"}


def test_an_abort_stops_it_between_two_slices_and_it_can_go_on(app: App, redis: Redis) -> None:
    put(app, "dead", "sync", 20)
    number = asked.begin(app, "ana", wish("delete", "dead", rate=5))
    operator = Operator(app)
    operator.wake(now=True)
    until(lambda: told(app, number).done > 0, "it has begun")
    assert run(app.connections, asked.abort(app.keys, number))
    until(lambda: not redis.exists(app.keys.doer(number)), "its doer has left it")
    one = told(app, number)
    assert (one.state, one.done + int(str(redis.zcard("dead")))) == ("aborted", 20)
    assert one.done < 20
    assert not carry_out(app, number), "it does nothing more"
    assert run(app.connections, asked.resume(app.keys, number))
    operator.wake(now=True)
    until(lambda: told(app, number).state == "done", "it went on")
    assert (told(app, number).done, redis.zcard("dead")) == (20, 0)


def test_one_at_a_time_carries_an_operation_out_and_a_silent_one_loses_it(app: App, redis: Redis) -> None:
    put(app, "dead", "sync", 3)
    number = asked.begin(app, "ana", wish("delete", "dead"))
    redis.set(app.keys.doer(number), "another", px=10_000)
    assert not carry_out(app, number)
    state = app.connections.run(
        store.operate(app.keys, number, "me", "me:1", "dead", [], looked=0, dead_max=1, dead_timeout=1.0)
    )
    assert state == "LOST"
    assert redis.zcard("dead") == 3
    redis.delete(app.keys.doer(number))
    assert carry_out(app, number)
    assert told(app, number).done == 3


def test_a_slice_that_is_sent_again_is_not_counted_again(app: App, redis: Redis) -> None:
    put(app, "dead", "sync", 2)
    number = asked.begin(app, "ana", wish("delete", "dead"))
    redis.set(app.keys.doer(number), "me", px=10_000)
    moves = [store.Move(payload, delete=True) for payload, _ in contents(redis, "dead")]
    for _ in range(2):
        call = store.operate(app.keys, number, "me", "me:1", "dead", moves, looked=2, dead_max=9, dead_timeout=9e9)
        assert app.connections.run(call) == "running"
    one = told(app, number)
    assert (one.done, one.gone, one.kept) == (2, 0, 2)
    assert redis.llen(app.keys.trash(number)) == 12


def test_the_trash_is_bounded_and_says_what_had_no_room(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "TRASH_BYTES", 4000)
    put(app, "dead", "sync", 100)
    one = done(app, wish("delete", "dead"))
    assert 0 < one.kept < 100
    assert one.kept + one.full == one.done == 100
    assert "had no room" in one.lasting
    assert undone(app, one.number).back == one.kept == redis.zcard("dead")


def test_a_job_on_which_others_hang_is_gone_for_good(app: App, redis: Redis) -> None:
    put(app, "dead", "sync", 2)
    put(app, "dead", "held", 1, hm={"key": ["scope", "key", "r"]})
    one = done(app, wish("delete", "dead"))
    assert (one.done, one.kept, one.final) == (3, 2, 1)
    assert "1 job on which" in one.lasting
    assert undone(app, one.number).back == redis.zcard("dead") == 2


def test_after_15_minutes_nothing_is_undone(app: App, redis: Redis) -> None:
    put(app, "dead", "sync", 2)
    one = done(app, wish("delete", "dead"))
    assert 0 < redis.ttl(app.keys.trash(one.number)) <= 900  # type: ignore[operator]
    redis.delete(app.keys.trash(one.number))  # as the server does then
    assert not run(app.connections, asked.undo(app.keys, one.number))
    assert told(app, one.number).state == "done"


def test_operations_are_bounded_and_listed_newest_first(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "KEPT", 3)
    put(app, "dead", "sync", 5)
    for number in range(5):
        done(app, wish("delete", "dead", f"sync{number:020}"))
    page = run(app.connections, asked.operations(app.keys, 0, 2))
    assert ([one.number for one in page.operations], page.total) == (["5", "4"], 3)
    assert page.operations[0].to_json()["result"] == "1 job deleted"


@pytest.mark.parametrize(
    "what",
    [
        wish("kill", "dead"),
        wish("delete", "nowhere"),
        wish("reschedule", "retries"),
        wish("delete", "queues"),
        wish("delete", "errors", name="no group"),
        wish("delete", "dead", "nothing like it"),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(app: App, redis: Redis, what: Wish) -> None:
    with pytest.raises(ArgumentError):
        asked.begin(app, "ana", what)
    assert not redis.exists("hm:operations", "hm:operations:open")
