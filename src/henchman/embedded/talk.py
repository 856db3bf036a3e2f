"""A few words with a server on a Unix socket: enough for PING, INFO and SHUTDOWN, and nothing to import for it.

Not for jobs: each call makes its own connection. ``connection.py`` is what speaks to a server for a living. A server
of another user is not spoken to.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import IO

SOON = 5.0  # seconds; a server that lives and has the processor to share with many others answers within it


def ask(path: Path, *words: str, limit: float | None = None) -> str:
    """The server's answer to one command, waited for at most ``limit`` seconds (else 5) a read.

    A status has its ``+`` and an error its ``-`` in front; a list gives its texts as lines; a server that hung up
    instead of answering gives ``""``. OSError when nobody listens or answers (TimeoutError), or the process that
    listens is another user's (PermissionError).
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(SOON if limit is None else limit)
        sock.connect(str(path))
        _must_be_ours(sock, path)
        encoded = [word.encode() for word in words]
        sock.sendall(b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded))
        with sock.makefile("rb") as reader:
            return _read(reader)


def _read(reader: IO[bytes]) -> str:
    line = reader.readline().rstrip(b"\r\n")
    if line[:1] == b"$" and line != b"$-1":
        return reader.read(int(line[1:]) + 2)[:-2].decode(errors="replace")
    if line[:1] == b"*":
        return "\n".join(_read(reader) for _ in range(int(line[1:])))
    return line.decode(errors="replace")


def _must_be_ours(sock: socket.socket, path: Path) -> None:
    facts = _peer(sock)
    uid = path.stat().st_uid if facts is None else facts[1]
    if uid != os.geteuid():
        raise PermissionError(1, f"the server there is run by user number {uid}", str(path))


def _peer(sock: socket.socket) -> tuple[int, int] | None:
    """Process and user that listen; None where the kernel does not say (it does on Linux)."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    size = struct.calcsize("iII")
    pid, uid, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def listener(path: Path) -> int:
    """The process that listens on ``path``; 0 when the kernel does not say; OSError when there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(SOON)
        sock.connect(str(path))
        facts = _peer(sock)
        return 0 if facts is None else facts[0]


def info(path: Path, section: str, limit: float | None = None) -> dict[str, str]:
    """One section of the server's INFO as a dict; OSError as ``ask``."""
    lines = ask(path, "INFO", section, limit=limit).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
