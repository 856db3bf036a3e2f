from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from support.store import Store
from support.worker import looker


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    """A plain client of the server, for looking."""
    with looker(redis_url) as client:
        yield client


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    """The calls of the store, and questions behind its back."""
    made = Store(redis_url)
    yield made
    made.connections.close()
