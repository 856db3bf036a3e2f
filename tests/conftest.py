"""What every test may ask for: a real server, empty at the start of each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.server import PrivateServer, running_server

pytest_plugins = ["support.require_all", "support.parts"]


@pytest.fixture(scope="session")
def _server() -> Iterator[PrivateServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def server_url(_server: PrivateServer) -> str:
    """The URL of one private server for the whole run; what earlier tests wrote is still there."""
    return _server.url


@pytest.fixture
def redis_url(_server: PrivateServer) -> str:
    """The URL of the run's private server, with every database empty and no script known."""
    assert _server.ask("FLUSHALL") == "+OK"
    assert _server.ask("SCRIPT", "FLUSH") == "+OK"
    return _server.url
