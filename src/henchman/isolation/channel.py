"""Messages between a worker and the process of an isolated run: lists of plain JSON over a pair of sockets."""

from __future__ import annotations

import select
import socket
import struct
import threading
from typing import Any, Final

from henchman.wire import jsontext

__all__ = ["Channel"]

_HEAD: Final = struct.Struct("!Q")
_PATIENCE: Final = 30.0  # seconds for which the other side may not read, or be in the middle of a message


class Channel:
    """One end. Many threads may send; one receives. OSError and EOFError: the other end is gone."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.settimeout(_PATIENCE)
        self._sending = threading.Lock()

    def send(self, *message: Any) -> None:
        """Send one message; OSError when nobody is there to read it."""
        text = jsontext.encode(message)
        with self._sending:
            self._end.sendall(_HEAD.pack(len(text)) + text)

    def receive(self, seconds: float | None = None) -> list[Any] | None:
        """The next message; None when none begins within ``seconds``. EOFError when the other end is gone."""
        waiting = select.poll()  # not select(): a worker may have more than 1,024 files
        waiting.register(self._end, select.POLLIN)
        if not waiting.poll(None if seconds is None else max(seconds, 0.0) * 1000):
            return None
        try:
            (size,) = _HEAD.unpack(self._exactly(_HEAD.size))
            message: list[Any] = jsontext.read(self._exactly(size))
        except OSError as error:
            raise EOFError(str(error)) from None
        return message

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._end.recv(min(size, 1 << 20))
            if not part:
                raise EOFError("the other end was closed")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close this end; a receiver of the other end gets EOFError."""
        self._end.close()
