"""Transactions of Django and SQLAlchemy on three databases: SQLite always, PostgreSQL and MariaDB where installed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from django.db import connections
from redis import Redis
from sqlalchemy import orm

from henchman import App
from henchman.contrib.sqlalchemy import bind
from support.django import django_databases
from support.sql_servers import DATABASES, Servers


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> str:
    """The address of a database."""
    return servers.url(request.param, tmp_path)


@pytest.fixture
def postgresql_url(servers: Servers) -> str:
    return servers.of("postgresql").url


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    """A transactional app with one job, ``note``."""
    made = App(redis_url=redis_url, transactional=True)

    @made.job(name="note", result_ttl=60)
    def note(number: int) -> None: ...

    yield made
    made.close()


@pytest.fixture
def note(app: App) -> Any:
    return app.registry.get("note")


@pytest.fixture
def pushed(redis: Redis) -> Callable[[], list[int]]:
    """The numbers of the jobs that were pushed, in order."""
    return lambda: [json.loads(one)["args"][0] for one in reversed(redis.lrange("queue:default", 0, -1))]  # type: ignore[call-overload]


def engine_address(url: str) -> sa.URL:
    """The address for SQLAlchemy, with the drivers that we have."""
    made = sa.make_url(url)
    drivers = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
    return made.set(drivername=drivers.get(made.drivername, made.drivername))


@pytest.fixture
def databases() -> Iterator[Callable[..., None]]:
    """``databases(default=url, other=url)``: these are Django's for the length of the test, each with a table ``t``."""
    with django_databases() as use:

        def with_tables(**urls: str) -> None:
            use(**urls)
            for alias in urls:
                with connections[alias].cursor() as cursor:
                    cursor.execute("DROP TABLE IF EXISTS t")
                    cursor.execute("CREATE TABLE t (n integer)")

        yield with_tables


@pytest.fixture
def session(app: App) -> Iterator[orm.Session]:
    """A session on SQLite in memory; pushes of ``app`` wait for its commits."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    maker = orm.sessionmaker(engine)
    bind(app, maker)
    with maker() as made, app.inside(made):
        yield made
    engine.dispose()
