"""A job that is written is a row of the caller's transaction: it is there with the commit, and gone with a rollback."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import event, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from henchman.contrib.sqlalchemy import bind
from henchman.errors import ArgumentError, DefinitionError, OutboxError
from henchman.outbox import session as sessions
from henchman.outbox.rows import insert_by_cursor
from support.outbox import Shop, made_anew, orders
from support.worker import jobs_in


def args(shop: Shop) -> list[Any]:
    return [json.loads(row.payload)["args"][0] for row in shop.rows()]


def test_a_commit_brings_the_row_and_a_rollback_takes_it(shop: Shop, redis: Redis) -> None:
    with shop.session() as session:
        handle = shop.app.outbox.write(session, shop.ship, 1)
        assert (handle.admission, len(handle.jid)) == ("deferred", 24)
        session.rollback()
        shop.app.outbox.write(session, shop.ship, 2)
    with shop.session() as session:
        shop.app.outbox.write(session, shop.ship, 3)
        session.commit()
        shop.app.outbox.write(session, shop.ship, 4)
        session.commit()
    assert args(shop) == [3, 4]
    assert not redis.keys("*")


def test_what_a_row_holds(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        handle = shop.app.outbox.write(session, shop.ship.using(queue="slow", delay=5, line="a"), 1)
        shop.app.outbox.write(session, shop.tracked, 2)
    first, second = shop.rows()
    job = json.loads(first.payload)
    assert (first.jid, first.queue, first.due, first.line) == (handle.jid, "slow", None, "a")
    assert (json.loads(first.meta), json.loads(second.meta)) == ({"delay": 5.0}, {"track": True})
    assert (job["jid"], job["class"], job["args"], job["queue"]) == (handle.jid, "ship", [1], "slow")
    assert "enqueued_at" not in job
    assert first.created == pytest.approx(job["created_at"], abs=1.0)


def test_a_savepoint_that_is_rolled_back_takes_its_rows_along(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        shop.order(session, 1)
        with session.begin_nested():
            shop.order(session, 2)
            with session.begin_nested():
                shop.order(session, 3)
        savepoint = session.begin_nested()
        shop.order(session, 4)
        with session.begin_nested():
            shop.order(session, 5)
        savepoint.rollback()
        shop.order(session, 6)
    assert sorted(args(shop)) == shop.sold() == [1, 2, 3, 6]


def test_what_was_inserted_with_a_released_savepoint_comes_back_when_one_around_it_is_rolled_back(shop: Shop) -> None:
    """The row of 1 goes in with the release of the inner savepoint, and out with the outer one: it goes in again."""
    with shop.session() as session, session.begin():
        shop.order(session, 1)
        outer = session.begin_nested()
        with session.begin_nested():
            shop.order(session, 2)
        outer.rollback()
        shop.order(session, 3)
    assert sorted(args(shop)) == shop.sold() == [1, 3]


def test_a_commit_with_a_savepoint_that_is_still_open_brings_everything(shop: Shop) -> None:
    with shop.session() as session, session.begin():
        shop.order(session, 1)
        session.begin_nested()
        shop.order(session, 2)
    assert sorted(args(shop)) == shop.sold() == [1, 2]


def test_many_rows_are_one_statement_just_before_the_commit(shop: Shop) -> None:
    said: list[tuple[str, bool]] = []
    shop.sell(0)  # the first job of a process is inserted at once

    @event.listens_for(shop.database.engine, "before_cursor_execute")
    def executing(_: Any, __: Any, statement: str, ___: Any, ____: Any, many: bool) -> None:
        said.append((" ".join(statement.split()[:3]), many))

    with shop.session() as session, session.begin():
        shop.order(session, 1)
        shop.order(session, 2, 3)
        pushed = shop.app.outbox.write_many(session, shop.ship, [(4,), (5,)])
        session.execute(insert(orders), [{"id": 4}, {"id": 5}])
    event.remove(shop.database.engine, "before_cursor_execute", executing)
    assert (pushed.count, pushed.deferred, pushed.created) == (2, 2, 0)
    assert [one for one in said if "henchman_outbox" in one[0]] == [("INSERT INTO henchman_outbox", True)]
    assert args(shop) == [0, 1, 2, 3, 4, 5]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


def test_a_job_that_is_written_within_a_flush_or_after_before_commit_is_not_lost(shop: Shop) -> None:
    with shop.session() as session:

        @event.listens_for(session, "after_flush")
        def flushed(_: Any, __: Any) -> None:
            for one in session.new:
                shop.app.outbox.write(session, shop.ship, one.id)

        session.add(Order(id=1))  # flushed by the commit itself
        session.commit()
        shop.app.outbox.write(session, shop.ship, 2)

        @event.listens_for(session, "before_commit")
        def committing(_: Any) -> None:
            if args_of(session) == [1, 2]:  # ours has been
                shop.app.outbox.write(session, shop.ship, 3)

        session.commit()
    assert args(shop) == [1, 2, 3]


def args_of(session: Session) -> list[int]:
    return [
        json.loads(one)["args"][0]
        for one in session.execute(text("SELECT payload FROM henchman_outbox ORDER BY id")).scalars()
    ]


def test_a_connection_writes_at_once(shop: Shop) -> None:
    with shop.engine.begin() as connection:
        connection.execute(insert(orders).values(id=1))
        shop.app.outbox.write(connection, shop.ship, 1)
    with shop.engine.connect() as connection:
        shop.app.outbox.write(connection, shop.ship, 2)
        connection.rollback()
    assert args(shop) == shop.sold() == [1]


def test_a_scoped_session_and_options_of_a_push_by_name(shop: Shop) -> None:
    scoped = scoped_session(sessionmaker(shop.engine))
    shop.app.outbox.write(scoped, shop.ship, 1)
    shop.app.enqueue("ElsewhereJob", "bob", outbox=scoped)
    scoped.commit()
    scoped.remove()
    assert args(shop) == [1, "bob"]


@pytest.mark.parametrize("before", ["nothing", "others"])
def test_async_sessions_and_connections_write_too(servers: Any, redis_url: str, before: str) -> None:
    """Also as the first that a process writes: then nothing listens to sessions yet."""
    if before == "nothing":
        sessions._listen()
        for name in ("before_commit", "after_soft_rollback", "after_commit", "after_transaction_end"):
            event.remove(Session, name, getattr(sessions, f"_{name}"))
    url = servers.of("postgresql").url
    made_anew(url)
    shop = Shop(redis_url, url)
    try:
        asyncio.run(_write_async(shop))
        assert args(shop) == [1, 3, 4]
    finally:
        shop.close()


async def _write_async(shop: Shop) -> None:
    engine = create_async_engine(shop.url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            handle = await shop.app.outbox.awrite(session, shop.ship, 1)
            assert handle.admission == "deferred"
            savepoint = await session.begin_nested()
            shop.app.outbox.write(session, shop.ship, 2)
            await savepoint.rollback()
        async with engine.begin() as connection:
            await shop.app.outbox.awrite(connection, shop.ship, 3)
            pushed = await shop.app.outbox.awrite_many(connection, shop.ship, [(4,)])
            assert pushed.deferred == 1
            with pytest.raises(ArgumentError, match="awrite"):
                shop.app.outbox.write(connection, shop.ship, 5)
    finally:
        await engine.dispose()


class AsDjango:
    """A connection of a driver, in the form of Django's; its transaction was begun by hand."""

    in_atomic_block = False

    def __init__(self, vendor: str, raw: Any) -> None:
        self.vendor, self._raw = vendor, raw

    def get_autocommit(self) -> bool:
        return False

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        cursor = self._raw.cursor()
        try:
            yield cursor
        finally:
            cursor.close()


@pytest.mark.parametrize("outbox_url", ["postgresql", "mariadb"], indirect=True)  # SQLite has other marks
def test_a_connection_of_django_writes_at_once(shop: Shop) -> None:
    with shop.engine.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        django = AsDjango(shop.database.kind, raw)
        shop.app.outbox.write(django, shop.ship.using(line="a"), 1)
        raw.rollback()
        shop.app.outbox.write(django, shop.ship.using(line="a"), 2)
        raw.commit()
    assert args(shop) == [2]
    with pytest.raises(OutboxError, match="not in oracle"):
        insert_by_cursor(AsDjango("oracle", None), [], lambda: None)


@pytest.mark.parametrize("outbox_url", ["postgresql", "mariadb"], indirect=True)  # SQLite has one writer at a time
def test_writers_of_one_line_wait_for_each_other(shop: Shop) -> None:
    begun, done = threading.Event(), threading.Event()

    def second() -> None:
        with shop.session() as session, session.begin():
            begun.set()
            shop.order(session, 2, line="a")
        done.set()

    with shop.session() as session, session.begin():
        shop.order(session, 1, line="a")
        session.flush()
        with session.begin_nested():  # its release inserts what is pending, and takes the line
            pass
        other = threading.Thread(target=second)
        other.start()
        assert begun.wait(60)
        shop.sell(3, line="b")
        shop.sell(4)
        assert not done.is_set()
    other.join(60)
    assert done.is_set()
    assert [args(shop).index(one) for one in (1, 2)] == sorted(args(shop).index(one) for one in (1, 2))
    with shop.database.reading() as connection:
        ids = dict(connection.execute(select(text("payload"), text("id")).select_from(text("henchman_outbox"))).all())
    order = {json.loads(payload)["args"][0]: id for payload, id in ids.items()}
    assert order[1] < order[2]


def test_a_transactional_app_writes_into_the_transaction_that_is_open(
    redis_url: str, outbox_url: str, redis: Redis
) -> None:
    shop = Shop(redis_url, outbox_url, transactional=True)
    maker = sessionmaker(shop.engine)
    bind(shop.app, maker)
    try:
        with maker() as session, shop.app.inside(session):
            handle = shop.ship.enqueue(1)  # as the setting says
            assert handle.admission == "deferred"
            shop.ship.using(outbox=True, line="a").enqueue(2)
            shop.ship.using(outbox=False).enqueue(3)  # after the commit
            assert shop.ship.enqueue_many([(4,)]).deferred == 1
            assert not redis.exists("queue:default")
            session.commit()
            shop.ship.enqueue(5)
            session.rollback()
        shop.ship.enqueue(6)
        assert args(shop) == [1, 2, 4]
        assert [job["args"] for job in jobs_in(redis, "queue:default")] == [[3], [6]]
    finally:
        shop.close()


def test_the_server_is_not_needed_to_write(outbox_url: str) -> None:
    shop = Shop("redis://127.0.0.1:1", outbox_url, connect_timeout=0.1)
    try:
        shop.sell(1, 2)
        assert args(shop) == [1, 2]
    finally:
        shop.close()


def test_what_cannot_be_a_transaction_is_refused(shop: Shop) -> None:
    with pytest.raises(DefinitionError, match="session or connection of SQLAlchemy or Django"):
        shop.ship.using(outbox="default")  # type: ignore[arg-type, unused-ignore]
    with pytest.raises(DefinitionError, match="say outbox= too"):
        shop.ship.using(line="a").enqueue(1)
    with pytest.raises(DefinitionError, match="1 to 64 characters"):
        shop.ship.using(outbox=True, line="")
    with pytest.raises(OutboxError, match="no session here"):
        shop.ship.using(outbox=True).enqueue(1)
    with pytest.raises(ArgumentError, match="give the session or connection"):
        shop.ship.using(outbox=Strange()).enqueue(1)
    assert asyncio.run(_refused(shop)) == "thread of their own"


def test_what_a_row_of_a_job_with_a_key_holds(shop: Shop) -> None:
    shop.sell(1)
    with shop.session() as session, session.begin():
        handle = shop.app.outbox.write(session, shop.charge, 17, 990)
    [_, row] = shop.rows()
    job, ask = json.loads(row.payload), json.loads(row.meta)["ask"]
    assert (job["jid"], job["hm"]["key"], "enqueued_at" in job) == (handle.jid, ["charge", "17", "o"], False)
    assert (ask["scope"], ask["key"], ask["phases"], ask["conflict"]) == ("charge", "17", "o", "skip")


class Strange:
    """As much as a connection of another library."""

    def execute(self) -> None: ...


async def _refused(shop: Shop) -> str:
    with pytest.raises(OutboxError) as raised:
        await shop.ship.using(outbox=AsDjango("postgresql", None)).aenqueue(1)
    return "thread of their own" if "thread of their own" in str(raised.value) else str(raised.value)
