"""Jobs with a key that wait for a commit: the key is computed at the call, and the server decides after the commit."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis
from sqlalchemy import orm

from henchman import App
from henchman.client.push import Pushed
from henchman.errors import ArgumentError
from support.keys import locks, waiting
from support.worker import Heard


def sent(redis: Redis) -> list[Any]:
    return [job["args"] for job in waiting(redis)]


def charging(app: App, **options: Any) -> Any:
    @app.job(name="charge", key="order", **(options or {"unique": "queued"}))
    def charge(order: str, cents: int = 0) -> None: ...

    return charge


@pytest.mark.parametrize("again", [1, 2])
def test_the_commit_decides_whose_the_key_is(app: App, session: orm.Session, redis: Redis, again: int) -> None:
    charge = charging(app)
    for _ in range(again):
        charge.enqueue_many([])  # the second push of a prepared one goes another way
        first, second, other = charge.enqueue("17", 1), charge.enqueue("17", 2), charge.enqueue("18")
        assert [one.admission for one in (first, second, other)] == ["deferred"] * 3
        assert (sent(redis), locks(redis, "w", "charge")) == ([], {})
        session.rollback()
        assert "rolled back" in str(first.problem)
    first, second, other = charge.enqueue("17", 1), charge.enqueue("17", 2), charge.enqueue("18")
    jid = second.jid
    session.commit()
    assert [one.admission for one in (first, second, other)] == ["created", "duplicate", "created"]
    assert (second.jid, second.duplicate_of, second.differs) == (first.jid, first.jid, True)
    assert jid != first.jid
    assert sent(redis) == [["17", 1], ["18"]]
    assert all("enqueued_at" in job for job in waiting(redis))
    assert locks(redis, "w", "charge") == {"17": first.jid, "18": other.jid}
    third = charge.enqueue("17")
    session.commit()
    assert (third.admission, third.jid) == ("duplicate", first.jid)


def test_a_duplicate_that_is_an_error_is_told_by_the_handle(app: App, session: orm.Session, redis: Redis) -> None:
    heard, charge = Heard(app, "submission_lost"), charging(app, unique="queued", on_conflict="raise")
    handles = [charge.enqueue(order) for order in ("17", "17", "18", "18", "19")]
    session.commit()  # nothing is raised after a commit
    assert [one.admission for one in handles] == ["created", "duplicate", "created", "duplicate", "created"]
    assert ["has this key" in str(one.problem) for one in handles] == [False, True, False, True, False]
    assert (sent(redis), heard["submission_lost"]) == ([["17"], ["18"], ["19"]], [])


def test_in_bulk(app: App, session: orm.Session, redis: Redis) -> None:
    charge = charging(app)
    rows = [(str(number % 600),) for number in range(1200)]
    assert charge.enqueue_many(rows) == Pushed(1200, 0, 0, 0, deferred=1200)
    assert sent(redis) == []
    session.commit()
    assert sent(redis) == [[str(number)] for number in range(600)]


def test_a_row_without_a_key_is_an_error_at_the_call(app: App, session: orm.Session, redis: Redis) -> None:
    charge = charging(app)
    with pytest.raises(ArgumentError, match=r"row 2: .*the key"):
        charge.enqueue_many([("1",), ("2",), ("",), ("4",)])
    with pytest.raises(ArgumentError, match="the key"):
        charge.enqueue("")
    session.commit()
    assert sent(redis) == [["1"], ["2"]]


def test_tracked_and_in_a_batch(app: App, session: orm.Session, redis: Redis) -> None:
    charge = charging(app)
    tracked = charge.using(track=True).enqueue("1")
    with app.batch("orders") as batch:
        first, second = charge.enqueue("2"), charge.enqueue("2")
        session.commit()
        assert batch.status().total == 1
    assert [one.admission for one in (tracked, first, second)] == ["created", "created", "duplicate"]
    assert sent(redis) == [["1"], ["2"]]


def test_a_link_may_stop_it_and_now_goes_at_once(app: App, session: orm.Session, redis: Redis) -> None:
    charge = charging(app)
    assert charge.using(now=True).enqueue("1").admission == "created"
    app.client_middleware.add(lambda job, call_next: call_next() if job["args"][0] != "2" else None)
    assert [charge.enqueue(order).admission for order in ("2", "3")] == ["stopped", "deferred"]
    session.commit()
    assert sent(redis) == [["1"], ["3"]]


def test_one_waits_for_another_that_waits_for_the_same_commit(app: App, session: orm.Session, redis: Redis) -> None:
    note: Any = app.registry.get("note")
    charge = charging(app, once=True)

    @app.job(name="ship", key="order", after=charge)
    def ship(order: str) -> None: ...

    first = note.using(followed=True).enqueue(1)
    later = note.using(after=first).enqueue(2)
    pushed = [ship.enqueue("17"), charge.enqueue("17"), later, first]
    assert {one.admission for one in pushed} == {"deferred"}
    session.rollback()
    assert not redis.keys("*")
    first = note.using(followed=True).enqueue(1)
    pushed = [ship.enqueue("17"), charge.enqueue("17"), note.using(after=first).enqueue(2), first]
    session.commit()
    assert [one.admission for one in pushed] == ["blocked", "created", "blocked", "created"]
    assert sent(redis) == [[1], ["17"]]
