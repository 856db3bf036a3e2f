"""Probes over HTTP: ``GET /live``, ``GET /ready``, ``GET /health``. Alive means *fetching*, not just running."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from henchman.errors import ConfigError

__all__ = ["Health", "parse_address"]


def parse_address(text: str) -> tuple[str, int]:
    """``"8001"`` (all of this machine's loopback) or ``"host:8001"``; ConfigError names what is wrong."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise ConfigError(f"health = {text!r}: give a port such as 8001, or host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


class Health:
    """Answers 200 or 503 from ``facts()``: a dict with at least ``live`` and ``ready``."""

    def __init__(self, address: str, facts: Callable[[], dict[str, Any]]) -> None:
        host, port = parse_address(address)
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(facts))
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


def _handler(facts: Callable[[], dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_GET(self) -> None:
            known = facts()
            checks = {"/live": known["live"], "/ready": known["ready"], "/health": known["live"] and known["ready"]}
            path = self.path.partition("?")[0].rstrip("/") or "/health"
            fine = checks.get(path)
            body = msgspec.json.encode(known if fine is not None else {"paths": sorted(checks)})
            self.send_response(404 if fine is None else 200 if fine else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """A probe every few seconds is no news."""

    return Handler
