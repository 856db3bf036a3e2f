"""Which jobs were cancelled, and which are suspects, as far as this process must know.

A counter on the server rises with each cancellation; every fetch answers it, every cancellation is also announced on
the control channel. When the counter is not the one we know, the list is read before anything else starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from henchman.store.call import Call, command, commands
from henchman.worker.host import Host

__all__ = ["Cancels"]


class Cancels:
    """The cancelled jids, and those of suspects; reading them is one look into a set."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.seen = 0
        self.jids: frozenset[str] = frozenset()
        self.suspects: frozenset[str] = frozenset()
        self.on_change: Callable[[], None] = lambda: None

    def catch_up(self, counter: int) -> None:
        """Read the list if ``counter`` is not the one we know."""
        if counter != self.seen:
            self.load()

    def load(self) -> None:
        """Read the list; ServerAway when the server is not there."""
        keys = self._host.keys
        read: Call[Any] = commands(
            ("GET", keys.cancels), ("ZRANGE", keys.cancelled, 0, -1), ("SMEMBERS", keys.suspects)
        )
        counter, jids, suspects = self._host.connections.run(read)
        self.jids = frozenset(jid.decode("utf-8", "replace") for jid in jids)
        self.suspects = frozenset(jid.decode("utf-8", "replace") for jid in suspects)
        self.seen = int(counter or 0)
        self.on_change()

    def add(self, jid: str) -> None:
        """One was announced."""
        self.jids |= {jid}
        self.on_change()

    def look(self) -> None:
        """Compare the counter, as each beat does."""
        self.catch_up(int(self._host.connections.run(command("GET", self._host.keys.cancels)) or 0))
