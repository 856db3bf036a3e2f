"""A server that answers what it is told to, or nothing, and remembers what it was sent. Speaks RESP over TCP or TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import BinaryIO

__all__ = ["CLOSE", "HANG", "FakeServer"]

CLOSE = b"close"  # read the command, then close
HANG = b"hang"  # read the command and never answer

Answer = Callable[[list[bytes]], bytes]


class FakeServer:
    """``answer(words)`` gives the bytes to send for a command, CLOSE or HANG. ``received`` is all that came."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[list[bytes]] = []
        self._answer = answer
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis{'s' if tls else ''}://127.0.0.1:{self.port}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def connections(self) -> int:
        """How many were accepted."""
        return len(self._open)

    def __enter__(self) -> FakeServer:
        self._threads[0].start()
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(10)
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(sock)
            thread = threading.Thread(target=self._serve, args=[sock])
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            with sock, sock.makefile("rb") as stream:
                while words := _command(stream):
                    self.received.append(words)
                    reply = self._answer(words)
                    if reply == CLOSE:
                        return
                    if reply != HANG:
                        sock.sendall(reply)


def _command(stream: BinaryIO) -> list[bytes]:
    head = stream.readline()
    words = []
    for _ in range(int(head[1:]) if head else 0):
        size = int(stream.readline()[1:])
        words.append(stream.read(size + 2)[:-2])
    return words
