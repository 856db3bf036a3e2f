"""The outbox on three databases: SQLite always, PostgreSQL and MariaDB where they are installed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from henchman.outbox.relay import Relay
from support.databases import LEFT, SERVERS, DatabaseServer, available, running
from support.outbox import Hands, Shop, made_anew, relaying


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(LEFT))


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """What a test leaves to the garbage collector is collected while its own filters stand."""
    yield
    gc.collect()


class Servers:
    """Servers by name, started when a test first asks."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._held: dict[str, DatabaseServer] = {}

    def of(self, name: str) -> DatabaseServer:
        if not available(SERVERS[name]):
            pytest.skip(f"{name} is not installed (apt install postgresql mariadb-server)")
        if name not in self._held:
            self._held[name] = self._stack.enter_context(running(SERVERS[name]))
        return self._held[name]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def outbox_url(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> str:
    """The address of a database with an empty outbox."""
    url = f"sqlite:///{tmp_path}/shop.sqlite" if request.param == "sqlite" else servers.of(request.param).url
    made_anew(url)
    return url


@pytest.fixture(params=["postgresql", "mariadb"])
def database_server(request: pytest.FixtureRequest, servers: Servers) -> DatabaseServer:
    """A database server that may be killed, with an empty outbox; it must run again at the end of the test."""
    server = servers.of(request.param)
    made_anew(server.url)
    return server


@pytest.fixture
def shop(redis_url: str, outbox_url: str) -> Iterator[Shop]:
    made = Shop(redis_url, outbox_url)
    yield made
    made.close()


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def relay(shop: Shop, clock: Hands) -> Iterator[Relay]:
    with relaying(shop, clock) as made:
        yield made
