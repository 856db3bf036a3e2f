"""The lease of whoever fills a batch, renewed by one thread of the process for all that it fills.

When the process dies, its batches show as abandoned half a minute later.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from henchman.client.runtime import Runtime
from henchman.errors import HenchmanError
from henchman.store import batches

__all__ = ["Leases", "leases"]

RENEW = batches.PRODUCER_MS / 3000  # seconds


class Leases:
    """Which batches of which apps this process fills. A forked child fills none of its parent's."""

    def __init__(self) -> None:
        self._start_empty()
        os.register_at_fork(after_in_child=self._start_empty)

    def _start_empty(self) -> None:
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._filled: dict[str, Runtime] = {}
        self._thread: threading.Thread | None = None

    def hold(self, desk: Runtime, batch: str) -> None:
        """Renew the lease of ``batch`` from now on."""
        with self._lock:
            self._filled[batch] = desk
            if self._thread is None:
                self._thread = threading.Thread(target=self._body, name="henchman-batches", daemon=True)
                self._thread.start()

    def let_go(self, batch: str) -> None:
        """Renew it no more."""
        with self._lock:
            self._filled.pop(batch, None)
            if not self._filled:
                self._bell.set()  # the thread has nothing to do any more, and ends

    def renew(self) -> None:
        """Renew every lease now. A server that is away hears of it the next time."""
        with self._lock:
            by_desk: dict[int, tuple[Any, list[str]]] = {}
            for batch, desk in self._filled.items():
                by_desk.setdefault(id(desk), (desk, []))[1].append(batch)
        for desk, names in by_desk.values():
            try:
                desk.connections.run(batches.renew_producer(desk.keys, names))
            except HenchmanError:
                continue

    def _body(self) -> None:
        while True:
            self._bell.wait(RENEW)
            with self._lock:
                self._bell.clear()
                if not self._filled:
                    self._thread = None
                    return
            self.renew()


leases = Leases()
