"""What every test may ask for: a real server, empty at the start of each test."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest
from redis import Redis

from support.dispositions import let_children_hear
from support.server import PrivateServer, running_server
from support.store import Store
from support.worker import looker

pytest_plugins = ["support.require_all", "support.parts", "support.sql_servers"]


def pytest_configure() -> None:
    let_children_hear()


def pytest_collection_finish() -> None:
    """What was loaded stays: the collector, whom hundreds of tests call, looks only at what came since."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """A plain client of that server, for looking."""
    with looker(redis_url) as client:
        yield client


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    """The calls of the store, and questions behind its back."""
    made = Store(redis_url)
    yield made
    made.connections.close()


SERVICES = (
    *("acker", "auditor", "cron", "fetcher", "heart", "lifeline", "relay", "renewal", "stager", "watchdog", "watcher"),
)


def _services() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.removeprefix("henchman-") in SERVICES}


@pytest.fixture(autouse=True)
def _no_worker_is_left() -> Iterator[None]:
    """A worker that outlives its test goes on writing, into the server of the next one: that test would fail."""
    before = _services()
    yield
    limit = time.monotonic() + 20
    while (left := _services() - before) and time.monotonic() < limit:
        time.sleep(0.02)
    assert not left, f"this test leaves parts of a worker running: {sorted(one.name for one in left)}"
