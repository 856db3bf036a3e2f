from __future__ import annotations

from collections.abc import Iterator

import pytest

from henchman.worker import retry
from henchman.worker.retry import retry_delay
from interop.ruby_side import Ruby, RubyWeb, missing


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails in a worker of ours is retried an hour later than usual: not while Ruby looks at it."""
    monkeypatch.setattr(retry, "retry_delay", lambda count: 3600.0 + retry_delay(count))


@pytest.fixture(scope="session")
def _ruby_is_there() -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def _ruby(_ruby_is_there: None, server_url: str) -> Iterator[Ruby]:
    with Ruby(server_url) as ruby:
        yield ruby


@pytest.fixture
def ruby(_ruby: Ruby, redis_url: str) -> Ruby:
    """Ruby's Sidekiq, ready for questions, on the empty server of this test."""
    return _ruby


@pytest.fixture(scope="session")
def _web(_ruby_is_there: None, server_url: str) -> Iterator[RubyWeb]:
    with RubyWeb(server_url) as web:
        yield web


@pytest.fixture
def web(_web: RubyWeb, redis_url: str) -> RubyWeb:
    """Sidekiq's own pages on the empty server of this test."""
    return _web
