"""A plugin for the folders whose tests run on real databases: SQLite always, PostgreSQL and MariaDB where installed.

Each server is started once a run, when a test first asks; the folders share it, and empty what they use.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.databases import LEFT, SERVERS, DatabaseServer, available, running

__all__ = ["DATABASES", "Servers"]

DATABASES = ("sqlite", *SERVERS)
_FOLDERS = frozenset({"contrib", "history", "outbox"})
_FILTERS = (LEFT, "ignore:Accessing the database during app initialization")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name in _FOLDERS:
            for text in _FILTERS:
                item.add_marker(pytest.mark.filterwarnings(text))


@pytest.fixture(autouse=True)
def _collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves to the garbage collector is collected while its own filters stand."""
    yield
    if request.path.parent.name in _FOLDERS:
        gc.collect()


class Servers:
    """Database servers by name."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._held: dict[str, DatabaseServer] = {}

    def of(self, name: str) -> DatabaseServer:
        """The server of that name, which may be killed; it must run again at the end of the test."""
        if not available(SERVERS[name]):
            pytest.skip(f"{name} is not installed (apt install postgresql mariadb-server)")
        if name not in self._held:
            self._held[name] = self._stack.enter_context(running(SERVERS[name]))
        return self._held[name]

    def url(self, name: str, folder: Path) -> str:
        """The address of a database on that server; of SQLite a file in ``folder``."""
        return f"sqlite:///{folder}/shop.sqlite" if name == "sqlite" else self.of(name).url


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)
