"""The outbox on three databases: SQLite always, PostgreSQL and MariaDB where they are installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from henchman.outbox.relay import Relay
from support.databases import SERVERS, DatabaseServer
from support.outbox import Hands, Shop, made_anew, relaying
from support.sql_servers import DATABASES, Servers


@pytest.fixture(params=DATABASES)
def outbox_url(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> str:
    """The address of a database with an empty outbox."""
    url = servers.url(request.param, tmp_path)
    made_anew(url)
    return url


@pytest.fixture(params=SERVERS)
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
