"""Jobs that wait for others as calls: their rows in ``hm:parked``, and what each waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from henchman.store.call import Call, command
from henchman.store.keys import Keys
from henchman.store.queues import raw

__all__ = ["Blocked", "blocked", "blocked_page"]


class Blocked(NamedTuple):
    """A job that waits: its queue; ``due``, "" or a Unix time for which it waits, too; ``reason``: ``running``,
    ``key <digest>`` or ``needs…``; ``missing``: scope and name of what it needs. A row that nobody can read is all
    payload."""

    jid: str
    queue: str
    due: str
    reason: str
    payload: bytes
    missing: Sequence[tuple[str, str]] = ()


def _blocked(jid: bytes, row: bytes) -> Blocked:
    pieces = row.split(b"\n", 3)
    if len(pieces) < 4:  # written by somebody else
        return Blocked(_text(jid), "", "", "", row)
    queue, due, reason, payload = pieces
    return Blocked(_text(jid), _text(queue), _text(due), _text(reason), payload)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def blocked(keys: Keys, jids: Sequence[str]) -> Call[list[Blocked | None]]:
    """Those of these jobs (at least one) that wait for others; None for the rest."""
    names = [raw(jid) for jid in jids]

    def read(rows: list[bytes | None]) -> list[Blocked | None]:
        return [None if row is None else _blocked(name, row) for name, row in zip(names, rows, strict=True)]

    return command("HMGET", keys.parked, *names, decode=read)


def blocked_page(keys: Keys, cursor: int, step: int = 100) -> Call[tuple[int, list[Blocked]]]:
    """One step of a scan over the jobs that wait: the next cursor, 0 at the end, and what was found."""

    def read(reply: Any) -> tuple[int, list[Blocked]]:
        pairs = reply[1].items() if isinstance(reply[1], dict) else zip(reply[1][::2], reply[1][1::2], strict=True)
        return int(reply[0]), [_blocked(name, row) for name, row in pairs]

    return command("HSCAN", keys.parked, cursor, "COUNT", step, decode=read)
