from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.runners import AwaitedRunner, Maker, PlainRunner
from support.store import Store


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    made = Store(redis_url)
    yield made
    made.connections.close()


@pytest.fixture(params=[PlainRunner, AwaitedRunner], ids=["sync", "async"])
def runner(request: pytest.FixtureRequest) -> Iterator[Maker]:
    """Makes runners from a URL; the test goes through the sync and the async one."""
    maker = Maker(request.param)
    yield maker
    maker.close()
