"""Transactions of Django and SQLAlchemy on three databases: SQLite always, PostgreSQL and MariaDB where installed."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pymysql
import pytest
import sqlalchemy as sa
from django.db import connections
from redis import Redis
from sqlalchemy import orm

from henchman import App
from henchman.contrib.sqlalchemy import bind
from support.databases import LEFT, SERVERS, DatabaseServer, available, running
from support.django import configure


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(LEFT))
            item.add_marker(pytest.mark.filterwarnings("ignore:Accessing the database during app initialization"))


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """What a test leaves to the garbage collector is collected while its own filters stand."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def _database() -> Iterator[Callable[[str], DatabaseServer]]:
    """The server of that name, started when a test first asks."""
    held: dict[str, DatabaseServer] = {}
    with ExitStack() as stack:

        def server(name: str) -> DatabaseServer:
            if not available(SERVERS[name]):
                pytest.skip(f"{name} is not installed (apt install postgresql mariadb-server)")
            if name not in held:
                held[name] = stack.enter_context(running(SERVERS[name]))
            return held[name]

        yield server


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path, _database: Callable[[str], DatabaseServer]) -> str:
    """The address of a database."""
    return f"sqlite:///{tmp_path}/shop.sqlite" if request.param == "sqlite" else _database(request.param).url


@pytest.fixture
def postgresql_url(_database: Callable[[str], DatabaseServer]) -> str:
    return _database("postgresql").url


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


def django_database(url: str) -> dict[str, Any]:
    """The entry of DATABASES for an address of our test servers."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": parts.path[1:] if parts.path[1:2] == "/" else ":memory:",
        }
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    name, user = parts.path.strip("/"), parts.username
    if parts.scheme == "postgresql":
        return {"ENGINE": "django.db.backends.postgresql", "NAME": name, "USER": user, "HOST": query["host"]}
    options = {"unix_socket": query["unix_socket"]}
    return {"ENGINE": "django.db.backends.mysql", "NAME": name, "USER": user, "HOST": "localhost", "OPTIONS": options}


def _forget_connections() -> None:
    for alias in list(connections.settings):
        with suppress(AttributeError):
            connections[alias].close()
            del connections[alias]


@pytest.fixture
def databases(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """``databases(default=url, other=url)``: these are Django's for the length of the test, each with a table ``t``."""
    configure()
    had_mysql = "MySQLdb" in sys.modules
    pymysql.install_as_MySQLdb()
    before = dict(connections.settings)

    def use(**urls: str) -> None:
        _forget_connections()
        connections.settings.clear()
        connections.settings.update(
            connections.configure_settings({alias: django_database(url) for alias, url in urls.items()})
        )
        for alias in urls:
            with connections[alias].cursor() as cursor:
                cursor.execute("DROP TABLE IF EXISTS t")
                cursor.execute("CREATE TABLE t (n integer)")

    yield use
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            connection.close()
    _forget_connections()
    connections.settings.clear()
    connections.settings.update(before)
    if not had_mysql:
        for name in [one for one in sys.modules if one == "MySQLdb" or one.startswith("MySQLdb.")]:
            del sys.modules[name]


@pytest.fixture
def session(app: App) -> Iterator[orm.Session]:
    """A session on SQLite in memory; pushes of ``app`` wait for its commits."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    maker = orm.sessionmaker(engine)
    bind(app, maker)
    with maker() as made, app.inside(made):
        yield made
    engine.dispose()
