from __future__ import annotations

from collections.abc import Iterator

import pytest

from henchman import App
from support.faces import Face
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


@pytest.fixture(params=[False, True], ids=["plain", "awaited"])
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    """What people look through: the plain form of each method, and the awaited one."""
    made = Face(request.param)
    yield made
    made.close()


@pytest.fixture
def app(redis_url: str, face: Face) -> Iterator[App]:
    """An app on the run's server, seen through a face."""
    made = App(redis_url=redis_url)
    yield made
    face.run(made.aclose())
