"""What a worker needs of the app it works for: the app fits this shape, nobody here knows that there is one."""

from __future__ import annotations

from typing import Protocol

from henchman.client.runtime import Companion, Connector, ErrorHandler, Runtime
from henchman.config import Config
from henchman.kernel.clock import ServerClock
from henchman.store.keys import Keys

__all__ = ["Companion", "Connector", "ErrorHandler", "Host", "Settler"]


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


#: the app, as far as a worker is concerned
Host = Runtime
