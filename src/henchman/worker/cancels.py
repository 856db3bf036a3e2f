"""Which jobs were cancelled, and which are suspects, as far as this process must know.

A counter on the server rises with each cancellation; every fetch answers it, every cancellation is also announced on
the control channel. When the counter is not the one we know, the list is read before anything else starts. So it is
when a connection was made since the list was read: a counter proves nothing on another server (a replica that took
over, or one that lost its last second, may stand at the same figure with other names behind it).

What is read here may be older than a mark's end (somebody retried a cancelled job by hand, and a watcher brought it
before any fetch): a run ends as cancelled only if the mark still stands when it is settled (``settle.lua``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from henchman.store.call import Call, command, commands
from henchman.wire.payload import NAMED, name_of
from henchman.worker.host import Host
from henchman.worker.run import Run

__all__ = ["Cancels"]

NEVER = -1  # no counter stands there: read the list


class Cancels:
    """The cancelled jids (of a batch ``batch:<id>``), and those of suspects; reading them is one look into a set.

    ``on_change()`` follows news.
    """

    def __init__(self, host: Host, on_change: Callable[[], None] = lambda: None) -> None:
        self._host = host
        self._on_change = on_change
        self.seen = NEVER
        self.jids: frozenset[str] = frozenset()
        self.suspects: frozenset[str] = frozenset()
        self._opened = 0
        self._lock = threading.Lock()
        self._begun = self._read = 0  # several threads read: what an earlier one brings late is old
        self._under_way: dict[int, set[str]] = {}  # what was announced while it was read

    def catch_up(self, counter: int) -> None:
        """Read the list if ``counter`` is not the one we know, or may be another server's."""
        if counter != self.seen or self._host.connections.opened != self._opened:
            self.load()

    def load(self) -> None:
        """Read the list; ServerAway when the server is not there."""
        keys = self._host.keys
        read: Call[Any] = commands(
            ("GET", keys.cancels), ("ZRANGE", keys.cancelled, 0, -1), ("SMEMBERS", keys.suspects)
        )
        with self._lock:
            self._begun = turn = self._begun + 1
            announced = self._under_way[turn] = set()
        opened = self._host.connections.opened
        try:
            counter, jids, suspects = self._host.connections.run(read)
        finally:
            with self._lock:
                del self._under_way[turn]
        found = {jid.decode("utf-8", "replace") for jid in jids}
        with self._lock:
            if turn < self._read:
                return
            self._read, self._opened = turn, opened
            self.suspects = frozenset(jid.decode("utf-8", "replace") for jid in suspects)
            self.jids = frozenset(found | announced)
            self.seen = NEVER if announced - found else int(counter or 0)
        self._on_change()

    def add(self, jid: str) -> None:
        """One was announced."""
        with self._lock:
            self.jids |= {jid}
            for announced in self._under_way.values():
                announced.add(jid)
        self._on_change()

    def has(self, run: Run) -> bool:
        """Whether ``run``, or the batch that it is of, was cancelled."""
        return run.jid in self.jids or (run.batch_id != "" and f"batch:{run.batch_id}" in self.jids)

    def suspected(self, payload: bytes) -> bool:
        """Whether ``payload``, which was not read yet, may be a suspect's: reading it may be what killed."""
        return any(
            name_of(payload) == one if one.startswith(NAMED) else one.encode() in payload for one in self.suspects
        )

    def look(self) -> None:
        """Compare the counter, as each beat does."""
        self.catch_up(int(self._host.connections.run(command("GET", self._host.keys.cancels)) or 0))
