"""The server of the workers, for a process that has no app: the supervisor and the history process."""

from __future__ import annotations

from henchman.config import Config
from henchman.embedded.server import EmbeddedServer
from henchman.kernel.clock import ServerClock
from henchman.kernel.events import Events
from henchman.store.connection import Connections
from henchman.store.keys import Keys


class ServerLink:
    """The part of a ``Runtime`` that giving work back and recording need. It uses the embedded server if that is it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.keys = Keys(config.namespace)
        self.clock = ServerClock()
        self.events = Events()
        self._server = None if config.redis_url is not None else EmbeddedServer(config.server_folder())
        url = str(config.redis_url) if self._server is None else self._server.acquire()
        limits = {"connect_timeout": config.connect_timeout, "io_timeout": config.io_timeout}
        self.connections = Connections(url, **limits, revive=self._revive if self._server else None)

    def _revive(self) -> bool:
        if self._server is not None:
            self._server.ensure()
        return True

    def close(self) -> None:
        """Close what is open, and leave the embedded server."""
        self.connections.close()
        if self._server is not None:
            self._server.release()
