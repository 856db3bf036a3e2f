"""What tells others how the worker is: probes over HTTP (``Health``) and systemd's notifications (``Notifier``).

Probes are ``GET /live``, ``GET /ready`` and ``GET /health``. Alive means *fetching*, not just running.
``GET /metrics`` is for Prometheus. systemd (``Type=notify``, ``WatchdogSec=``) names a socket in ``NOTIFY_SOCKET``
(sd_notify(3)); without it nothing is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from henchman.errors import ConfigError
from henchman.inspector.prometheus import CONTENT_TYPE


def parse_address(text: str) -> tuple[str, int]:
    """``"8001"`` (all of this machine's loopback) or ``"host:8001"``; ConfigError names what is wrong."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise ConfigError(f"health = {text!r}: give a port such as 8001, or host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


class Health:
    """Answers 200 or 503 from ``facts()``: a dict with at least ``live`` and ``ready``; ``figures(query)`` gives the
    status and the text of ``/metrics``."""

    def __init__(
        self, address: str, facts: Callable[[], dict[str, Any]], figures: Callable[[str], tuple[int, str]]
    ) -> None:
        host, port = parse_address(address)
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(facts, figures))
        except OSError as error:
            raise ConfigError(f"health = {address!r}: cannot listen there: {error}") from None
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="henchman-health", daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def _handler(
    facts: Callable[[], dict[str, Any]], figures: Callable[[str], tuple[int, str]]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            path = path.rstrip("/") or "/health"
            if path == "/metrics":
                status, text = figures(query)
                self._answer(status, CONTENT_TYPE, text.encode())
                return
            known = facts()
            checks = {"/live": known["live"], "/ready": known["ready"], "/health": known["live"] and known["ready"]}
            fine = checks.get(path)
            body = msgspec.json.encode(known if fine is not None else {"paths": sorted([*checks, "/metrics"])})
            self._answer(404 if fine is None else 200 if fine else 503, "application/json", body)

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """A probe every few seconds is no news."""

    return Handler


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
