"""A server that is far away: a TCP proxy before the tests' own, which delays every byte."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from urllib.parse import urlsplit

__all__ = ["Distant"]


class Distant:
    """``url`` leads to the server at ``server_url`` (a Unix socket), ``seconds`` away in each direction."""

    def __init__(self, server_url: str, seconds: float) -> None:
        self._path = urlsplit(server_url).path
        self.seconds = seconds  # may be changed while bytes are on their way
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Distant:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._ends):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for one in self._ends:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._path)
            self._ends += [client, server]
            for ends in ((client, server), (server, client)):
                thread = threading.Thread(target=self._carry, args=ends, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                time.sleep(self.seconds)
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
