"""Job ids and process identities, as Sidekiq writes them (wire format, sections 3.1 and 11.1)."""

from __future__ import annotations

import os


def new_jid() -> str:
    """24 lower-case hex digits: 12 random bytes."""
    return os.urandom(12).hex()


def new_jids(count: int) -> list[bytes]:
    """``count`` job ids, as payloads hold them, from one request to the kernel."""
    text = os.urandom(12 * count).hex().encode()
    return [text[i : i + 24] for i in range(0, 24 * count, 24)]


def new_identity() -> str:
    """``<hostname>:<pid>:<12 hex digits>``; the host is the variable DYNO where it is set."""
    host = os.environ.get("DYNO") or os.uname().nodename
    return f"{host}:{os.getpid()}:{os.urandom(6).hex()}"
