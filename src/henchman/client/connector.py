"""What the app's connections offer, and those that are made at their first call.

Making them may take long (the embedded server is started, modules are imported), and asking for an attribute must not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from henchman.kernel.middleware import in_thread
from henchman.store.call import AsyncRunner, Call, Runner

__all__ = ["AsyncConnector", "Connector", "LateAsyncConnections", "LateConnections"]

T = TypeVar("T")


class Connector(Runner, Protocol):
    """A runner that also opens connections for one user alone; see ``store.connection.Connections``."""

    @property
    def opened(self) -> int:
        """A number that changes with each new connection: the next answer may come from another server."""
        ...

    def open(self, io_timeout: float | None = None) -> Any:
        """A connection for the caller alone; see ``store.connection.Line``."""
        ...

    def apart(self) -> Connector:
        """A connector to the same server with connections of its own."""
        ...

    def close(self) -> None:
        """Close idle connections."""
        ...


class AsyncConnector(AsyncRunner, Protocol):
    """As ``Connector``, awaited: its ``run`` is all that parts need."""

    async def close(self) -> None:
        """Close the idle connections of this event loop."""
        ...


class LateConnections:
    """A ``Connector`` of which nothing exists before its first use: ``make()`` gives the real one, again each time."""

    def __init__(self, make: Callable[[], Connector]) -> None:
        self._make = make

    @property
    def opened(self) -> int:
        return self._make().opened

    def run(self, call: Call[T]) -> T:
        return self._make().run(call)

    def open(self, io_timeout: float | None = None) -> Any:
        return self._make().open(io_timeout)

    def apart(self) -> Connector:
        return self._make().apart()

    def close(self) -> None:
        """There is nothing to close."""


class LateAsyncConnections:
    """As ``LateConnections``, awaited: ``make()`` runs in a thread."""

    def __init__(self, make: Callable[[], AsyncConnector]) -> None:
        self._make = make

    async def run(self, call: Call[T]) -> T:
        made: AsyncConnector = await in_thread(self._make)
        return await made.run(call)

    async def close(self) -> None:
        """There is nothing to close."""
