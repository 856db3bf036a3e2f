"""The same tests on three databases: SQLite always, PostgreSQL and MariaDB where they are installed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman.history.database import Database
from henchman.history.reading import History
from henchman.history.recorder import Recorder
from support.databases import LEFT, SERVERS, DatabaseServer, available, emptied, running
from support.history import Home, Teller, recording


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(LEFT))


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """What a test leaves to the garbage collector is collected while its own filters stand."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def _database_servers() -> Iterator[dict[str, Any]]:
    """Servers by name, started when a test first asks."""
    held: dict[str, Any] = {}
    yield held
    for context, _ in held.values():
        context.__exit__(None, None, None)


def server_of(name: str, held: dict[str, Any]) -> DatabaseServer:
    kind = SERVERS[name]
    if not available(kind):
        pytest.skip(f"{name} is not installed (apt install postgresql mariadb-server)")
    if name not in held:
        context = running(kind)
        held[name] = context, context.__enter__()
    server: DatabaseServer = held[name][1]
    return server


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path, _database_servers: dict[str, Any]) -> str:
    """The address of an empty database with its tables made."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/history.sqlite"
    else:
        url = server_of(request.param, _database_servers).url
        emptied(url)
    database = Database(url)
    try:
        database.upgrade()
    finally:
        database.close()
    return url


@pytest.fixture(params=["postgresql", "mariadb"])
def database_server(request: pytest.FixtureRequest, _database_servers: dict[str, Any]) -> DatabaseServer:
    """A database server that may be killed, with empty tables; it must run again at the end of the test."""
    server = server_of(request.param, _database_servers)
    emptied(server.url)
    database = Database(server.url)
    try:
        database.upgrade()
    finally:
        database.close()
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
