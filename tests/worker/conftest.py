"""What most tests of a worker ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from henchman import App


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    """An app as a user makes it; its worker is started by the test, in the same process."""
    made = App(redis_url=redis_url, concurrency=4)
    yield made
    made.close()
