"""Fixtures for pytest: ``henchman``, ``henchman_fake``, ``henchman_clock``, ``henchman_commits``, and ``henchman_app``
to say which app.

pytest loads this file at every start.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Unpack

import pytest

from henchman.app import App
from henchman.config import Config
from henchman.config.keywords import SettingKeywords
from henchman.contrib.submission import parts
from henchman.contrib.transactions import TransactionalClient
from henchman.supervisor.load import load_app
from henchman.testing.fake import FakeJobs, fake
from henchman.testing.install import Clock, refusing
from henchman.testing.real import Worker, bound, flush, private_server, worker
from henchman.wire.secret import NO_SECRETS, Secrets

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


_guard = pytest.StashKey[ExitStack]()
_errors = pytest.StashKey[list[str]]()
_SHOWN = 10  # errors of jobs in a report


def pytest_addoption(parser: pytest.Parser) -> None:
    """The setting that lets tests do without a fixture."""
    help = "whether tests may talk to the server of an app itself (default: only to what a fixture gives)"
    parser.addini("henchman_real_server", help, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """From now on a push that no fixture and no block catches is refused."""
    if not config.getini("henchman_real_server"):
        guard = config.stash[_guard] = ExitStack()
        guard.enter_context(refusing())


def pytest_unconfigure(config: pytest.Config) -> None:
    """The end of ``pytest_configure``."""
    if _guard in config.stash:
        config.stash[_guard].close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its jobs raised: a job's error is raised to nobody."""
    report = yield
    told = item.stash.get(_errors, [])
    if report.failed and told:
        more = [f"… and {len(told) - _SHOWN} more"] if len(told) > _SHOWN else []
        report.sections.append((f"what jobs raised: {len(told)}", "\n".join([*told[:_SHOWN], *more])))
    return report


@contextmanager
def _telling(request: pytest.FixtureRequest, app: App) -> Iterator[None]:
    """The errors of ``app``'s jobs stand in the report of a test that fails."""
    told = request.node.stash.setdefault(_errors, [])

    def note(*, error: BaseException, secrets: Secrets = NO_SECRETS, facts: Any = None, **_: Any) -> None:
        told.append(secrets.hide("".join(traceback.format_exception(error)).rstrip()))

    app.events.on("error", note)
    try:
        yield
    finally:
        app.events.off("error", note)


@pytest.fixture(scope="session")
def henchman_app() -> App:
    """The app under test: that of ``[tool.henchman] app`` or HENCHMAN_APP, else that of a Django project which was set
    up; override this fixture to give another."""
    target = Config.load().app
    project: Any = sys.modules.get("henchman.contrib.django")
    if target is None and project is not None:
        app: App = project.app
        return app
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
def henchman(henchman_app: App, _henchman_server: str, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The app on a private server (one a session, empty at each test); ``worker()`` and ``drain()`` run its jobs."""
    flush(_henchman_server)
    with bound(henchman_app, _henchman_server), _telling(request, henchman_app):
        yield Bench(henchman_app, _henchman_server)


@pytest.fixture
def henchman_clock() -> Clock:
    """The clock of ``henchman_fake``: ``advance`` and ``travel_to`` move it."""
    return Clock()


@pytest.fixture
def henchman_fake(henchman_app: App, henchman_clock: Clock, request: pytest.FixtureRequest) -> Iterator[FakeJobs]:
    """The app's pushes, collected instead of sent, see ``henchman.testing.fake``."""
    with fake(henchman_app, clock=henchman_clock) as jobs, _telling(request, henchman_app):
        yield jobs


@pytest.fixture
def henchman_commits(henchman_app: App) -> Callable[[], int]:
    """Call it where the program would have committed: what waits for a commit is pushed; how many jobs that are.

    For tests whose own transaction is never committed, as in Django's TestCase. What was rolled back does not wait.
    """

    def commit() -> int:
        client = henchman_app.client
        if not isinstance(client, TransactionalClient):
            pytest.fail("henchman_commits: this app waits for no commit; make it with App(transactional=True)")
        waiting = client.waiting()
        client.send(waiting)
        return sum(len(part.jobs) for part in parts(waiting))

    return commit
