from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from henchman.store.call import load
from support.mortal import Nursery, nursery
from support.worker import looker


@pytest.fixture
def redis(redis_url: str, request: pytest.FixtureRequest) -> Iterator[Redis]:
    """The server knows the SCRIPTS of the module: a call passes its points once, not once with the hash and once with
    the text."""
    with looker(redis_url) as client:
        for name in getattr(request.module, "SCRIPTS", ()):
            client.script_load(load(name).text)
        yield client


@pytest.fixture(scope="module")
def mortals() -> Iterator[Nursery]:
    with nursery() as made:
        yield made
