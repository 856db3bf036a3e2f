"""What a worker needs of the app it works for: the app fits this shape, nobody here knows that there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from henchman.client.registry import Registry
from henchman.config import Config
from henchman.kernel.clock import ServerClock
from henchman.kernel.events import Events
from henchman.kernel.middleware import Chain
from henchman.store.call import Runner
from henchman.store.keys import Keys
from henchman.work.source import Source

__all__ = ["Companion", "Connector", "ErrorHandler", "Host", "Settler"]

#: called with (exception, facts): facts are plain values such as job, queue, context
ErrorHandler = Callable[[BaseException, dict[str, Any]], Any]


class Connector(Runner, Protocol):
    """A runner that can also open a connection for one user alone."""

    @property
    def opened(self) -> int:
        """Changes with each connection that is made: the next answer may be another server's."""
        ...

    def open(self, io_timeout: float | None = None) -> Any:
        """A connection for the caller alone, see ``store.connection.Line``."""
        ...

    def apart(self) -> Connector:
        """The same server by connections of one's own."""
        ...

    def close(self) -> None:
        """Close idle connections."""
        ...


class Settler(Protocol):
    """As much of a host as giving work back needs."""

    @property
    def config(self) -> Config: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def clock(self) -> ServerClock: ...
    @property
    def connections(self) -> Connector: ...


class Companion(Protocol):
    """A part that another room adds to a worker: started after its own parts, stopped before them."""

    @property
    def verbs(self) -> Mapping[str, Callable[[str], None]]:
        """What it obeys on the control channel: verb → handler(argument)."""
        ...

    def start(self) -> None: ...
    def quiet(self) -> None: ...
    def stop(self, timeout: float = 5.0) -> bool: ...


class Host(Protocol):
    """The app, as far as a worker is concerned."""

    @property
    def config(self) -> Config: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def clock(self) -> ServerClock: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def events(self) -> Events: ...
    @property
    def client_middleware(self) -> Chain: ...
    @property
    def server_middleware(self) -> Chain: ...
    @property
    def error_handlers(self) -> list[ErrorHandler]: ...
    @property
    def death_handlers(self) -> list[Callable[[dict[str, Any], BaseException], Any]]: ...
    @property
    def connections(self) -> Connector: ...
    @property
    def stamp(self) -> Callable[[float], bytes]: ...
    @property
    def open_door(self) -> Callable[[str], Any]:
        """What another room keeps ready under a name."""
        ...

    def companions(self, *, alone: bool = True) -> Sequence[Companion]:
        """The parts that other rooms add to each worker of this app; ``alone``: it has no supervisor."""
        ...

    def sources(self) -> Mapping[str, Source]:
        """By name, the queues that are no plain lists, and how their work is got."""
        ...

    def placement(self, queues: Sequence[str]) -> frozenset[str]:
        """Which of these queues, all of sources, this process serves."""
        ...
