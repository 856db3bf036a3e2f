"""``with_session``: each run has a session of its own, committed when it went well, rolled back when it did not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from redis import Redis
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from henchman import App, Discard, Failure, Snooze
from henchman.contrib.sqlalchemy import bind, with_session
from henchman.errors import ArgumentError, DefinitionError
from support.sql_servers import Servers
from support.worker import settled, until, working

ENDS: dict[str, Any] = {
    "fine": None,
    "error": ValueError("no"),
    "failure": Failure("no"),
    "discard": Discard("no"),
    "snooze": Snooze(3600),
}


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, transactional=True)
    yield made
    made.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"sqlite:///{tmp_path}/rows.sqlite")
    with made.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (n INTEGER UNIQUE)"))
    yield made
    made.dispose()


@pytest.fixture
def maker(engine: sa.Engine) -> orm.sessionmaker[orm.Session]:
    return orm.sessionmaker(engine)


def rows(engine: sa.Engine) -> list[int]:
    with engine.connect() as connection:
        return [row[0] for row in connection.execute(sa.text("SELECT n FROM t ORDER BY n"))]


def insert(number: int) -> tuple[Any, dict[str, int]]:
    return sa.text("INSERT INTO t VALUES (:n)"), {"n": number}


def test_what_went_well_is_committed_and_nothing_else(
    app: App, engine: sa.Engine, maker: orm.sessionmaker[orm.Session], redis: Redis
) -> None:
    seen: list[orm.Session] = []

    @app.job(name="note", retry=False)
    @with_session(maker)
    def note(number: int, end: str, session: orm.Session) -> None:
        seen.append(session)
        session.execute(*insert(number))
        if ENDS[end] is not None:
            raise ENDS[end]

    for number, end in enumerate(ENDS):
        note.enqueue(number, end=end)
    assert [json.loads(one)["args"] for one in redis.lrange("queue:default", 0, 0)] == [[len(ENDS) - 1, "snooze"]]  # type: ignore[union-attr]
    with working(app):
        settled(redis, len(ENDS))
        until(lambda: len(set(map(id, seen))) == len(ENDS), "each had one of its own")
    assert rows(engine) == [0]
    assert not any(one.in_transaction() for one in seen)
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_a_commit_that_fails_is_a_run_that_fails(app: App, engine: sa.Engine, redis: Redis) -> None:
    maker = orm.sessionmaker(engine)

    @sa.event.listens_for(maker, "before_commit")
    def refuse(session: orm.Session) -> None:
        raise ValueError("the database refuses")

    @app.job(name="note", retry=0)
    @with_session(maker)
    def note(session: orm.Session) -> None:
        session.execute(*insert(1))

    note.enqueue()
    with working(app):
        settled(redis, 1)
    assert rows(engine) == []
    (dead,) = redis.zrange("dead", 0, -1)  # type: ignore[misc]
    assert json.loads(dead)["error_message"] == "the database refuses"


def test_pushes_of_the_run_wait_for_its_commit(app: App, maker: orm.sessionmaker[orm.Session], redis: Redis) -> None:
    bind(app, maker)
    followed: list[int] = []

    @app.job(name="next", queue="later")
    def after(number: int) -> None:
        followed.append(number)

    @app.job(name="note", retry=False)
    @with_session(maker, app=app)
    def note(number: int, session: orm.Session) -> None:
        session.execute(*insert(number))
        app.enqueue("next", number)
        if number:
            raise Failure("no")

    note.enqueue(0)
    note.enqueue(1)
    with working(app):
        settled(redis, 3)
    assert followed == [0]


def test_whoever_gives_a_session_keeps_it_in_hand(engine: sa.Engine, maker: orm.sessionmaker[orm.Session]) -> None:
    @with_session(maker)
    def note(number: int, *, session: orm.Session) -> None:
        session.execute(*insert(number))

    note(1)
    with maker() as mine:
        note(2, session=mine)
    assert rows(engine) == [1], "a test rolls back what it did"


def test_the_session_may_stand_anywhere(maker: orm.sessionmaker[orm.Session]) -> None:
    def first(session: orm.Session, number: int, *more: int) -> Any:
        return (session.is_active, number, *more)

    def between(number: int, session: orm.Session, other: int = 5) -> Any:
        return (session.is_active, number, other)

    def named(number: int, *more: int, session: orm.Session) -> Any:
        return (session.is_active, number, *more)

    given: Any
    for given in (with_session(maker)(first), with_session(maker)(named)):
        assert given(17) == (True, 17)
        assert given(17, 18, 19) == (True, 17, 18, 19)
    assert with_session(maker)(first)(number=17) == (True, 17)  # type: ignore[call-arg]
    given = with_session(maker)(between)
    assert given(17) == given(number=17) == (True, 17, 5)
    assert given(17, 6) == given(17, other=6) == (True, 17, 6)


class TestAwaited:
    def test_on_postgresql_also_after_a_time_out(self, app: App, servers: Servers, redis: Redis) -> None:
        url = sa.make_url(servers.of("postgresql").url).set(drivername="postgresql+psycopg")
        plain = sa.create_engine(url)
        with plain.begin() as connection:
            connection.execute(sa.text("DROP TABLE IF EXISTS t"))
            connection.execute(sa.text("CREATE TABLE t (n INTEGER)"))
        engine: AsyncEngine = create_async_engine(url, poolclass=sa.NullPool)
        maker = async_sessionmaker(engine)

        @app.job(name="note", retry=False, timeout=1)
        @with_session(maker)
        async def note(number: int, session: AsyncSession) -> None:
            await session.execute(*insert(number))
            if number:
                await asyncio.sleep(60)

        for number in (0, 1):
            note.enqueue(number)
        with working(app):
            settled(redis, 2)
        with plain.connect() as connection:
            assert [tuple(row) for row in connection.execute(sa.text("SELECT n FROM t"))] == [(0,)]
            open_ = sa.text("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'")
            assert connection.execute(open_).scalar() == 0, "nothing is left in a transaction"
        plain.dispose()


class TestDefinition:
    def refused(self, maker: Any, function: Any, said: str) -> None:
        with pytest.raises(DefinitionError, match=said):
            with_session(maker)(function)

    def test_what_cannot_be_given_a_session(self, maker: orm.sessionmaker[orm.Session]) -> None:
        def none(number: int) -> None: ...
        def two(one: orm.Session, other: orm.Session) -> None: ...
        async def awaited(session: orm.Session) -> None: ...
        def many(session: orm.Session) -> Iterator[int]:
            yield 1

        def first(session: orm.Session, /) -> None: ...

        self.refused(maker, none, "none has no parameter annotated Session")
        self.refused(maker, two, r"several parameters \(one, other\)")
        self.refused(maker, awaited, "of different kinds: async def with an async_sessionmaker")
        self.refused(maker, many, "is a generator")
        self.refused(maker, first, "positional only")
        self.refused(async_sessionmaker(), none, "of different kinds")
        with pytest.raises(DefinitionError, match="give a sessionmaker"):
            with_session("sqlite://")

    def test_it_is_no_argument_of_the_job(self, app: App, maker: orm.sessionmaker[orm.Session]) -> None:
        @app.job(name="note")
        @with_session(maker)
        def note(number: int, session: orm.Session) -> None: ...

        with pytest.raises(ArgumentError, match="session"):
            note.enqueue(1, session=None)
