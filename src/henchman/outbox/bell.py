"""The bell: who committed rows rings it, and the relay that waits looks at once.

A ring that is missed costs a relay what it waits between two looks, no more.
"""

from __future__ import annotations

import select
import threading
import time
from typing import Any, Final

from henchman.client.runtime import Runtime
from henchman.errors import ServerAway

__all__ = ["Bell"]

HEARS_STOP: Final = 0.25  # seconds that a stop waits for the end of a wait, at most
QUIET: Final = 60.0  # without a ring, then the line is opened anew: it may be that nothing arrives on it any more


class Bell:
    """A line to the server on which rings are heard. It is opened by the first wait."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._line: Any = None
        self._heard = 0.0

    def heard(self, wait: float, stopping: threading.Event) -> bool:
        """Whether it rang within ``wait`` seconds; ``ServerAway`` where that cannot be known."""
        try:
            self._open()
            end = time.monotonic() + wait
            poll = select.poll()
            poll.register(self._line.fileno(), select.POLLIN)
            while not stopping.is_set() and (left := end - time.monotonic()) > 0:
                if self._line.readable() or poll.poll(min(left, HEARS_STOP) * 1000):
                    while self._line.readable():
                        self._line.read()
                    self._heard = time.monotonic()
                    return True
        except ServerAway:
            self.close()
            raise
        return False

    def _open(self) -> None:
        if self._line is not None and time.monotonic() - self._heard > QUIET:
            self.close()
        if self._line is None:
            self._line = self._runtime.connections.open(5.0)
            self._heard = time.monotonic()  # also where we may not listen: that is said once a minute
            self._line.send("SUBSCRIBE", self._runtime.keys.outbox_wake)
            self._line.read()

    def close(self) -> None:
        """Hang up; the next wait opens another line."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
