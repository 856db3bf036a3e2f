"""Iterators over databases: real SQLAlchemy and real Django, on SQLite."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from henchman.iterators import aover_django, aover_sqlalchemy, over_django, over_sqlalchemy
from support.django import configure
from support.iterators import check, listed

sqlalchemy: Any = pytest.importorskip("sqlalchemy")
orm: Any = pytest.importorskip("sqlalchemy.orm")
django: Any = pytest.importorskip("django")
db: Any = pytest.importorskip("django.db")


class TestSqlAlchemy:
    """On SQLite; pages of two, so that there are full, partial and empty last ones."""

    sa = sqlalchemy

    @pytest.fixture(params=[4, 5])
    def table(self, request: pytest.FixtureRequest) -> Iterator[Any]:
        sa = self.sa
        table = sa.Table(
            "users",
            sa.MetaData(),
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("key", sa.Uuid),
            sa.Column("at", sa.DateTime),
            sa.Column("name", sa.String),
        )
        engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
        table.metadata.create_all(engine)
        first = dt.datetime(2026, 1, 1)  # noqa: DTZ001 - SQLite knows no zones
        rows = [
            {"id": 3 * n, "key": uuid.UUID(int=n), "at": first + dt.timedelta(microseconds=n), "name": f"user {n}"}
            for n in range(request.param)
        ]
        with engine.connect() as connection:
            connection.execute(table.insert(), rows)
            self.connection, self.count = connection, request.param
            yield table
        engine.dispose()

    @pytest.mark.parametrize("key", ["id", "key", "at"])
    def test_by_key(self, table: Any, key: str) -> None:
        query, column = self.sa.select(table.c.name), table.c[key]
        names = check(lambda cursor: over_sqlalchemy(self.connection, query, key=column, cursor=cursor, batch=2))
        assert names == [f"user {n}" for n in range(self.count)]

    def test_rows_of_several_columns_and_a_filter(self, table: Any) -> None:
        query = self.sa.select(table.c.id, table.c.name).where(table.c.id > 3)
        found = list(over_sqlalchemy(self.connection, query, key=table.c.id, cursor=6, batch=2))
        assert found == [((3 * n, f"user {n}"), 3 * n) for n in range(2, self.count)]

    def test_entities_and_rows_that_go_away_meanwhile(self, table: Any) -> None:
        user = type("User", (), {})
        registry = orm.registry()
        registry.map_imperatively(user, table)
        with orm.Session(self.connection) as session:
            seen = []
            for one, cursor in over_sqlalchemy(session, self.sa.select(user), key=user.id, cursor=None, batch=2):  # type: ignore[attr-defined]
                seen.append((one.name, cursor))
                session.execute(table.delete().where(table.c.id == one.id))
                session.commit()
            assert seen == [(f"user {n}", 3 * n) for n in range(self.count)]
        registry.dispose()

    def test_awaited(self, table: Any) -> None:
        class Awaited:
            """The connection, as an AsyncConnection answers."""

            async def execute(_, query: Any) -> Any:  # noqa: N805
                return self.connection.execute(query)

        query = self.sa.select(table.c.name)
        found = asyncio.run(listed(aover_sqlalchemy(Awaited(), query, key=table.c.id, cursor=3, batch=2)))
        assert found == list(over_sqlalchemy(self.connection, query, key=table.c.id, cursor=3, batch=2))
        assert len(found) == self.count - 1


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    """A Django model whose table is in memory, with five rows."""
    configure()

    class User(db.models.Model):  # type: ignore[misc, name-defined]
        key = db.models.UUIDField(unique=True)
        name = db.models.TextField()

        class Meta:
            app_label = "users"

    with db.connection.schema_editor() as editor:
        editor.create_model(User)
    for n in range(5):
        User.objects.create(id=3 * n + 1, key=uuid.UUID(int=9 - n), name=f"user {n}")
    yield User
    db.connections.close_all()


class TestDjango:
    """On SQLite in memory, one model made on the spot."""

    def test_by_primary_key(self, model: Any) -> None:
        found = check(lambda cursor: over_django(model.objects.order_by("name"), cursor=cursor, batch=2))
        assert [one.name for one in found] == [f"user {n}" for n in range(5)]

    def test_by_another_field_and_as_dicts(self, model: Any) -> None:
        rows = model.objects.exclude(name="user 2").values("key", "name")
        found = check(lambda cursor: over_django(rows, key="key", cursor=cursor, batch=2))
        assert [one["name"] for one in found] == ["user 4", "user 3", "user 1", "user 0"]

    def test_awaited(self, model: Any) -> None:
        found = asyncio.run(listed(aover_django(model.objects.all(), cursor=4, batch=2)))
        assert [(one.name, cursor) for one, cursor in found] == [(f"user {n}", 3 * n + 1) for n in range(1, 5)]
