"""systemd: says when the worker is ready, stopping and alive (``Type=notify``, ``WatchdogSec=``).

The protocol is a datagram to the socket named by ``NOTIFY_SOCKET`` (sd_notify(3)); without it nothing is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

__all__ = ["Notifier"]


class Notifier:
    """One a supervisor. ``watchdog`` is the pause between two signs of life in seconds, None when none are wanted."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        self.watchdog = self._watchdog_pause()
        self._last = 0.0
        self._ready = False

    @staticmethod
    def _watchdog_pause() -> float | None:
        micros, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
        if not micros.isdecimal() or (pid.isdecimal() and int(pid) != os.getpid()):
            return None
        return int(micros) / 2_000_000  # half of the limit, as sd_watchdog_enabled(3) advises

    def ready(self) -> None:
        """Every worker process is ready; said once."""
        if not self._ready:
            self._ready = True
            self._send("READY=1")

    def stopping(self) -> None:
        """Told to stop."""
        self._send("STOPPING=1")

    def alive(self, fine: bool) -> None:
        """A sign of life, when it is time and ``fine``: a worker that does not fetch deserves the watchdog."""
        now = time.monotonic()
        if self.watchdog is not None and fine and now - self._last >= self.watchdog:
            self._last = now
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(text.encode(), address)
