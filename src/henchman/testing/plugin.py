"""Fixtures for pytest: ``henchman``, ``henchman_fake``, ``henchman_clock``, and ``henchman_app`` to say which app.

pytest loads this file at every start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

import pytest

from henchman.app import App
from henchman.config import Config
from henchman.config.keywords import SettingKeywords
from henchman.supervisor.load import load_app
from henchman.testing.fake import FakeJobs, fake
from henchman.testing.install import Clock
from henchman.testing.real import Worker, bound, flush, private_server, worker

__all__ = ["Bench"]


class Bench:
    """An app on an empty private server, as the fixture ``henchman`` gives it."""

    def __init__(self, app: App, url: str) -> None:
        self.app = app
        self.url = url

    def worker(self, **settings: Unpack[SettingKeywords]) -> Worker:
        """A worker for the length of a block, see ``henchman.testing.worker``."""
        return worker(self.app, url=self.url, **settings)

    def drain(self, timeout: float = 10.0, **settings: Unpack[SettingKeywords]) -> Worker:
        """Run a worker until nothing is left to do now; it has stopped then, and ``errors`` tells what was raised."""
        with self.worker(**settings) as one:
            one.drain(timeout)
        return one


@pytest.fixture(scope="session")
def henchman_app() -> App:
    """The app under test: that of ``[tool.henchman] app`` or HENCHMAN_APP; override this fixture to give another."""
    target = Config.load().app
    if target is None:
        pytest.fail(
            "which app? Define a fixture henchman_app that returns it, or set app in [tool.henchman]", pytrace=False
        )
    return load_app(target)


@pytest.fixture(scope="session")
def _henchman_server() -> Iterator[str]:
    with private_server() as url:
        yield url


@pytest.fixture
def henchman(henchman_app: App, _henchman_server: str) -> Iterator[Bench]:
    """The app on a private server (one a session, empty at each test); ``worker()`` and ``drain()`` run its jobs."""
    flush(_henchman_server)
    with bound(henchman_app, _henchman_server):
        yield Bench(henchman_app, _henchman_server)


@pytest.fixture
def henchman_clock() -> Clock:
    """The clock of ``henchman_fake``: ``advance`` and ``travel_to`` move it."""
    return Clock()


@pytest.fixture
def henchman_fake(henchman_app: App, henchman_clock: Clock) -> Iterator[FakeJobs]:
    """The app's pushes, collected instead of sent, see ``henchman.testing.fake``."""
    with fake(henchman_app, clock=henchman_clock) as jobs:
        yield jobs
