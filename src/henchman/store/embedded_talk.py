"""A few words with a server on a Unix socket: enough for PING, INFO and SHUTDOWN, and nothing to import for it.

Not for jobs: each call makes its own connection. ``connection.py`` is what speaks to a server for a living.
"""

from __future__ import annotations

import socket
from pathlib import Path

__all__ = ["ask", "info"]

SOON = 5.0  # seconds; a server that lives and has the processor to share with many others answers within it


def ask(path: Path, *words: str, limit: float | None = None) -> str:
    """The server's answer to one command, waited for at most ``limit`` seconds (else 5) a read.

    A status has its ``+`` and an error its ``-`` in front; a server that hung up instead of answering gives ``""``.
    OSError (TimeoutError among them) when nobody listens or answers.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(SOON if limit is None else limit)
        sock.connect(str(path))
        encoded = [word.encode() for word in words]
        sock.sendall(b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded))
        with sock.makefile("rb") as reader:
            line = reader.readline().rstrip(b"\r\n")
            if line[:1] == b"$" and line != b"$-1":
                return reader.read(int(line[1:]) + 2)[:-2].decode(errors="replace")
            return line.decode(errors="replace")


def info(path: Path, section: str, limit: float | None = None) -> dict[str, str]:
    """One section of the server's INFO as a dict; OSError as ``ask``."""
    lines = ask(path, "INFO", section, limit=limit).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
