"""The same tests on three databases: SQLite always, PostgreSQL and MariaDB where they are installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from henchman.history.database import Database
from henchman.history.reading import History
from henchman.history.recorder import Recorder
from support.databases import SERVERS, DatabaseServer, emptied
from support.history import Home, Teller, recording
from support.sql_servers import DATABASES, Servers


def made_anew(url: str) -> None:
    """The tables of history, empty."""
    emptied(url)
    database = Database(url)
    try:
        database.upgrade()
    finally:
        database.close()


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> str:
    """The address of an empty database with its tables made."""
    url = servers.url(request.param, tmp_path)
    made_anew(url)
    return url


@pytest.fixture(params=SERVERS)
def database_server(request: pytest.FixtureRequest, servers: Servers) -> DatabaseServer:
    """A database server that may be killed, with empty tables; it must run again at the end of the test."""
    server = servers.of(request.param)
    made_anew(server.url)
    return server


@pytest.fixture
def teller(redis: Redis) -> Teller:
    return Teller(redis)


@pytest.fixture
def home(redis_url: str, database_url: str) -> Home:
    return Home(redis_url, database_url)


@pytest.fixture
def recorder(home: Home) -> Iterator[Recorder]:
    with recording(home) as made:
        yield made


@pytest.fixture
def history(database_url: str) -> Iterator[History]:
    made = History(Database(database_url))
    yield made
    made.close()
