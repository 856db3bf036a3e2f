"""Pushes inside sessions of SQLAlchemy: each row of the table of what SQLAlchemy does, on real databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import sqlalchemy as sa
from redis import Redis
from sqlalchemy import event, orm
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Mapped, mapped_column

from contrib.conftest import engine_address
from henchman import App, ConfigError
from henchman.contrib.sqlalchemy import bind
from henchman.errors import AmbiguousTransaction, DefinitionError
from support.worker import Heard, until

Numbers = Callable[[], list[int]]


class Rollback(Exception):
    """What a block fails with."""


class Base(orm.DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "rows_of_ours"

    n: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(engine_address(database_url))
    Base.metadata.drop_all(made)
    Base.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def sqlite() -> Iterator[sa.Engine]:
    """One database in memory, where SAVEPOINT works as everywhere else."""
    made = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    _begin_by_hand(made)
    Base.metadata.create_all(made)
    yield made
    made.dispose()


def _begin_by_hand(engine: sa.Engine) -> None:
    """As SQLAlchemy's manual says for SQLite: its driver begins too late for SAVEPOINT."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")


def stored(engine: sa.Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(sa.select(Row.n).order_by(Row.n)))


class TestOnEveryDatabase:
    @pytest.fixture
    def maker(self, app: App, engine: sa.Engine) -> orm.sessionmaker[orm.Session]:
        if engine.dialect.name == "sqlite":
            _begin_by_hand(engine)
        made = orm.sessionmaker(engine)
        bind(app, made)
        return made

    def test_a_push_waits_for_the_commit(
        self, app: App, note: Any, maker: Any, engine: sa.Engine, pushed: Numbers
    ) -> None:
        with maker() as session, app.inside(session):
            session.add(Row(n=1))
            handle = note.enqueue(1)
            assert (len(handle.jid), handle.admission, handle.status().state) == (24, "deferred", "deferred")
            assert pushed() == []
            session.commit()
            assert (handle.admission, handle.problem, pushed()) == ("created", None, [1])
        assert stored(engine) == [1]

    def test_a_push_vanishes_with_a_rollback(
        self, app: App, note: Any, maker: Any, engine: sa.Engine, pushed: Numbers
    ) -> None:
        with maker() as session, app.inside(session):
            session.add(Row(n=1))
            handle = note.enqueue(1)
            session.rollback()
            assert "rolled back" in str(handle.problem)
            session.add(Row(n=2))
            note.enqueue(2)
            session.commit()
        assert (pushed(), stored(engine)) == ([2], [2])

    def test_a_savepoint_that_is_rolled_back_takes_its_own_pushes_along(
        self, app: App, note: Any, maker: Any, engine: sa.Engine, pushed: Numbers
    ) -> None:
        with maker() as session, app.inside(session):
            note.enqueue(1)
            with suppress(Rollback), session.begin_nested():
                session.add(Row(n=2))
                note.enqueue(2)
                with session.begin_nested():
                    session.add(Row(n=3))
                    note.enqueue(3)
                note.enqueue(4)
                raise Rollback
            note.enqueue(5)
            session.commit()
        assert (pushed(), stored(engine)) == ([1, 5], [])

    def test_a_savepoint_that_is_released_waits_on(
        self, app: App, note: Any, maker: Any, engine: sa.Engine, pushed: Numbers
    ) -> None:
        with maker() as session, app.inside(session):
            note.enqueue(1)
            with session.begin_nested():
                session.add(Row(n=2))
                note.enqueue(2)
                with session.begin_nested():
                    note.enqueue(3)
            note.enqueue(4)
            assert pushed() == []
            session.commit()
        assert (pushed(), stored(engine)) == ([1, 2, 3, 4], [2])

    def test_a_released_savepoint_vanishes_with_its_transaction(
        self, app: App, note: Any, maker: Any, engine: sa.Engine, pushed: Numbers
    ) -> None:
        with maker() as session, app.inside(session):
            with session.begin_nested():
                session.add(Row(n=1))
                note.enqueue(1)
            session.rollback()
        assert (pushed(), stored(engine)) == ([], [])


@pytest.fixture
def maker(app: App, sqlite: sa.Engine) -> orm.sessionmaker[orm.Session]:
    made = orm.sessionmaker(sqlite)
    bind(app, made)
    return made


class TestWhatSqlAlchemyDoes:
    def test_a_session_that_is_closed_without_a_commit(self, app: App, note: Any, maker: Any, pushed: Numbers) -> None:
        with maker() as session, app.inside(session):
            handle = note.enqueue(1)
        assert (pushed(), "rolled back" in str(handle.problem)) == ([], True)
        with maker() as session, app.inside(session):
            session.commit()
        assert pushed() == []

    def test_a_push_before_the_first_work_waits_too(self, app: App, note: Any, maker: Any, pushed: Numbers) -> None:
        with maker() as session, app.inside(session):
            note.enqueue(1)
            session.add(Row(n=1))
            assert pushed() == []
            session.commit()
            note.enqueue(2)
            session.commit()
        assert pushed() == [1, 2]

    def test_begin_as_a_block(self, app: App, note: Any, maker: Any, pushed: Numbers) -> None:
        with maker.begin() as session, app.inside(session):
            note.enqueue(1)
        assert pushed() == [1]

    def test_a_flush_that_fails(self, app: App, note: Any, maker: Any, sqlite: sa.Engine, pushed: Numbers) -> None:
        with maker() as session, app.inside(session):
            session.add(Row(n=1))
            session.commit()
            note.enqueue(1)
            session.execute(sa.insert(Row).values(n=2))
            with pytest.raises(sa.exc.IntegrityError):
                session.execute(sa.insert(Row).values(n=1))
            session.rollback()
            note.enqueue(2)
            session.commit()
        assert (pushed(), stored(sqlite)) == ([2], [1])

    def test_a_push_by_a_listener_of_the_flush(self, app: App, note: Any, maker: Any, pushed: Numbers) -> None:
        """A flush has a level of its own, which is none of the database."""

        def push(mapper: Any, connection: Any, row: Row) -> None:
            note.enqueue(row.n)

        event.listen(Row, "after_insert", push)
        try:
            with maker() as session, app.inside(session):
                session.add(Row(n=1))
                session.flush()
                with session.begin_nested():
                    session.add(Row(n=2))
                assert pushed() == []
                session.commit()
        finally:
            event.remove(Row, "after_insert", push)
        assert pushed() == [1, 2]

    def test_a_push_by_a_listener_of_the_commit(self, app: App, note: Any, maker: Any, pushed: Numbers) -> None:
        with maker() as session, app.inside(session):
            session.add(Row(n=1))
            event.listen(session, "after_commit", lambda _: note.enqueue(2))
            note.enqueue(1)
            session.commit()
        assert pushed() == [1, 2]

    def test_a_listener_that_raises_after_the_commit(self, app: App, note: Any, maker: Any, pushed: Numbers) -> None:
        """The program's own: its session is lost, the jobs of what was committed are not."""
        with maker() as session, app.inside(session):
            event.listen(session, "after_commit", lambda _: 1 / 0)
            note.enqueue(1)
            with pytest.raises(ZeroDivisionError):
                session.commit()
        assert pushed() == [1]

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_what_strikes_in_our_hook_leaves_the_session_usable(
        self,
        app: App,
        note: Any,
        maker: Any,
        sqlite: sa.Engine,
        pushed: Numbers,
        monkeypatch: pytest.MonkeyPatch,
        error: type[BaseException],
    ) -> None:
        heard = Heard(app, "submission_lost")

        def strike(call: Any) -> Any:
            raise error("struck")

        with maker() as session, app.inside(session):
            session.add(Row(n=1))
            handle = note.enqueue(1)
            with monkeypatch.context() as patch:
                patch.setattr(app.connections, "run", strike)
                if error is ValueError:
                    session.commit()  # nothing of ours is raised
                else:
                    with pytest.raises(KeyboardInterrupt):
                        session.commit()
            assert "struck" in str(handle.problem)
            session.add(Row(n=2))
            note.enqueue(2)
            session.commit()
        assert (pushed(), stored(sqlite)) == ([2], [1, 2])
        assert [one["jids"] for one in heard["submission_lost"]] == [[handle.jid]]

    def test_the_recipe_of_tests_pushes_at_each_commit(self, app: App, note: Any, engine: Any, pushed: Numbers) -> None:
        """The outer transaction of the recipe is never committed; each commit of the session pushes."""
        if engine.dialect.name == "sqlite":
            _begin_by_hand(engine)
        with engine.connect() as connection:
            outer = connection.begin()
            with orm.Session(connection, join_transaction_mode="create_savepoint") as session:
                session.add(Row(n=1))
                note.using(session=session).enqueue(1)
                session.commit()
                assert pushed() == [1]
                note.using(session=session).enqueue(2)
                session.rollback()
            outer.rollback()
        assert (pushed(), stored(engine)) == ([1], [])

    def test_core_connections_are_not_seen(self, note: Any, sqlite: sa.Engine, pushed: Numbers) -> None:
        with sqlite.begin() as connection:
            connection.execute(sa.insert(Row).values(n=1))
            assert (note.enqueue(1).admission, pushed()) == ("created", [1])


class TestWhichSession:
    def test_a_session_that_is_named(self, note: Any, sqlite: sa.Engine, pushed: Numbers) -> None:
        with orm.Session(sqlite) as session:
            note.using(session=session).enqueue(1)
            note.enqueue(2)
            assert pushed() == [2]
            session.commit()
        assert pushed() == [2, 1]

    def test_two_at_once_are_ambiguous(self, app: App, note: Any, maker: Any, pushed: Numbers) -> None:
        with maker() as one, maker() as other, app.inside(one), app.inside(other):
            with pytest.raises(AmbiguousTransaction, match=r"using\(session=…\)"):
                note.enqueue(1)
            note.using(session=one).enqueue(2)
            one.commit()
            assert pushed() == [2]
            note.using(now=True).enqueue(3)
            with app.inside(one), pytest.raises(AmbiguousTransaction):
                note.enqueue(4)
        assert pushed() == [2, 3]

    def test_the_same_twice_is_one(self, app: App, note: Any, maker: Any, pushed: Numbers) -> None:
        with maker() as one, app.inside(one), app.inside(one):
            note.enqueue(1)
            one.commit()
        assert pushed() == [1]

    def test_a_scoped_session(self, app: App, note: Any, sqlite: sa.Engine, pushed: Numbers) -> None:
        scoped = orm.scoped_session(orm.sessionmaker(sqlite))
        bind(app, scoped)
        with app.inside(scoped):
            note.enqueue(1)
            assert pushed() == []
            scoped.commit()
        note.using(session=scoped).enqueue(2)
        scoped.commit()
        scoped.remove()
        assert pushed() == [1, 2]

    def test_after_the_block_pushes_go_at_once(self, app: App, note: Any, maker: Any, pushed: Numbers) -> None:
        with maker() as session:
            with app.inside(session):
                note.enqueue(1)
            note.enqueue(2)
            assert pushed() == [2]
            session.commit()
        assert pushed() == [2, 1]

    def test_an_unbound_maker_is_refused(self, app: App, sqlite: sa.Engine) -> None:
        with orm.Session(sqlite) as session, pytest.raises(ConfigError, match="bind"), app.inside(session):
            pass

    @pytest.mark.parametrize("given", ["a session", None, 7, sa.MetaData()])
    def test_what_makes_no_sessions_is_refused(self, app: App, given: Any) -> None:
        with pytest.raises(ConfigError, match="give a sessionmaker"):
            bind(app, given)

    def test_an_app_that_waits_for_nothing_refuses(self, maker: Any, redis_url: str) -> None:
        app = App(redis_url=redis_url)
        with pytest.raises(ConfigError, match="transactional=True"):
            bind(app, maker)
        with maker() as session:
            with pytest.raises(ConfigError, match="transactional=True"):
                app.inside(session)
            with pytest.raises(DefinitionError, match=r"session= needs an app .*transactional=True"):
                app.enqueue("note", 1, session=session)
            with pytest.raises(DefinitionError, match=r"db= needs an app .*transactional=True"):
                app.enqueue("note", 1, db="default")
        app.close()

    def test_something_else_as_a_session_is_refused(self, note: Any) -> None:
        with pytest.raises(DefinitionError, match="session='s': give a Session"):
            note.using(session="s")

        class Like:
            def commit(self) -> None: ...

        with pytest.raises(DefinitionError, match="give a Session or an AsyncSession"):
            note.using(session=Like()).enqueue(1)


@asynccontextmanager
async def sessions(app: App, url: str) -> AsyncIterator[async_sessionmaker[AsyncSession]]:
    """A bound maker of async sessions on an empty table."""
    engine = create_async_engine(engine_address(url))
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)
    maker = async_sessionmaker(engine)
    bind(app, maker)
    try:
        yield maker
    finally:
        await engine.dispose()
        await app.aconnections.close()


class TestAwaited:
    def test_commit_rollback_savepoint(self, app: App, note: Any, postgresql_url: str, pushed: Numbers) -> None:
        async def scene() -> None:
            async with sessions(app, postgresql_url) as maker:
                async with maker() as session:
                    with app.inside(session):
                        session.add(Row(n=1))
                        handle = await note.aenqueue(1)
                        assert (handle.admission, (await handle.astatus()).state) == ("deferred", "deferred")
                        with suppress(Rollback):
                            async with session.begin_nested():
                                await note.aenqueue(2)
                                raise Rollback
                        async with session.begin_nested():
                            await note.aenqueue(3)
                        assert pushed() == []
                        await session.commit()
                        assert (handle.admission, pushed()) == ("created", [1, 3])
                        await note.aenqueue(4)
                        await session.rollback()
                    await note.using(session=session).aenqueue(5)
                    assert pushed() == [1, 3]
                    await session.commit()
                assert pushed() == [1, 3, 5]
                async with maker.begin() as session:
                    with app.inside(session):
                        assert (await note.aenqueue_many([(6,), (7,)])).deferred == 2
                assert pushed() == [1, 3, 5, 6, 7]

        asyncio.run(scene())

    def test_tasks_do_not_see_each_others_sessions(
        self, app: App, note: Any, postgresql_url: str, pushed: Numbers
    ) -> None:
        async def one(maker: Any, number: int, commits: bool) -> None:
            async with maker() as session:
                with app.inside(session):
                    await session.execute(sa.select(sa.func.pg_sleep(0.01)))
                    await note.aenqueue(number)
                    if commits:
                        await session.commit()

        async def scene() -> None:
            async with sessions(app, postgresql_url) as maker:
                await asyncio.gather(*(one(maker, number, number % 2 == 0) for number in range(10)))

        asyncio.run(scene())
        assert sorted(pushed()) == [0, 2, 4, 6, 8]

    def test_a_request_that_is_cancelled_while_it_commits_still_pushes(
        self, app: App, note: Any, postgresql_url: str, pushed: Numbers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The rows are committed: so the jobs have to be pushed; and the session is in order afterwards."""
        app.connections  # noqa: B018 - it is connected
        run = app.connections.run

        async def scene() -> None:
            loop, asked, go = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

            def slowly(call: Any) -> Any:
                if call.name == "deliver" and not go.is_set():
                    loop.call_soon_threadsafe(asked.set)
                    asyncio.run_coroutine_threadsafe(go.wait(), loop).result(30)
                return run(call)

            monkeypatch.setattr(app.connections, "run", slowly)
            async with sessions(app, postgresql_url) as maker, maker() as session:

                async def request() -> None:
                    with app.inside(session):
                        session.add(Row(n=1))
                        await note.aenqueue(1)
                        await session.commit()

                task = asyncio.create_task(request())
                await asyncio.wait_for(asked.wait(), 30)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert pushed() == []
                go.set()
                await asyncio.to_thread(until, lambda: pushed() == [1], "the job is pushed")
                assert list(await session.scalars(sa.select(Row.n))) == [1]
                await note.using(session=session).aenqueue(2)
                await session.commit()
                assert pushed() == [1, 2]

        asyncio.run(scene())

    def test_a_loop_that_ends_while_it_commits_still_pushes(
        self, app: App, note: Any, postgresql_url: str, pushed: Numbers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app.connections  # noqa: B018 - it is connected
        run = app.connections.run

        async def scene() -> None:
            loop, asked = asyncio.get_running_loop(), asyncio.Event()

            def tell(call: Any) -> Any:
                if call.name == "deliver":
                    loop.call_soon_threadsafe(asked.set)
                return run(call)

            monkeypatch.setattr(app.connections, "run", tell)
            async with sessions(app, postgresql_url) as maker:

                async def request() -> None:
                    async with maker() as session:
                        await note.using(session=session).aenqueue(1)
                        await session.commit()

                task = asyncio.create_task(request())
                await asyncio.wait_for(asked.wait(), 30)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        asyncio.run(scene())
        assert pushed() == [1]


def test_a_commit_whose_answer_is_lost_is_told_and_not_pushed(
    app: App, note: Any, postgresql_url: str, pushed: Numbers, redis: Redis
) -> None:
    heard = Heard(app, "submission_lost")
    engine = sa.create_engine(engine_address(postgresql_url))
    Base.metadata.create_all(engine)
    handles = []

    def work() -> None:
        with engine.connect() as other, orm.Session(engine) as session:
            pid = session.scalar(sa.func.pg_backend_pid())
            handles.append(note.using(session=session).enqueue(1))
            other.execute(sa.select(sa.func.pg_terminate_backend(pid)))
            session.commit()

    with pytest.raises(DBAPIError):
        work()
    engine.dispose()
    [handle] = handles
    assert pushed() == []
    assert [one["jids"] for one in heard["submission_lost"]] == [[handle.jid]]
    assert "perhaps lost" in str(handle.problem)
    assert redis.hget("hm:submissions_lost", "count") == b"1"
