"""Reads calls to the server that a test caught: which jobs they push, and which need a real server."""

from __future__ import annotations

from typing import Any, NamedTuple

from henchman.errors import HenchmanError, PayloadError
from henchman.store.call import Arg, Call
from henchman.store.keys import Keys
from henchman.wire.payload import decode

__all__ = ["NotFaked", "Push", "arguments", "name_and_jid", "pushes"]


class NotFaked(HenchmanError):
    """Something was asked of the server that only a real one can answer; the text names it and the way out."""

    def __init__(self, call: Call[Any], mode: str) -> None:
        words = " ".join(_text(one) for one in call.parts[0][:2]) if call.script is None else call.name
        super().__init__(
            f"testing.{mode} catches pushes and cancellations only, and this needs a server: {words}; "
            "use testing.worker(app), or the fixture henchman"
        )


class Push(NamedTuple):
    """One payload on its way into ``queue``; ``at`` is the Unix time at which it is due, None for now."""

    queue: str
    payload: bytes
    at: float | None


def arguments(call: Call[Any]) -> tuple[list[Arg], list[Arg]]:
    """The keys and the arguments of a script call."""
    parts = call.parts[0]
    first = 3 + int(parts[2])
    return list(parts[3:first]), list(parts[first:])


def pushes(call: Call[Any], keys: Keys, now: float) -> list[Push] | None:
    """The jobs that ``call`` pushes; None when it does something else."""
    if call.script is not None and call.name == "schedule":
        rows = arguments(call)[1]
        return [_scheduled(rows[i : i + 3], now) for i in range(0, len(rows), 3)]
    if call.script is not None and call.name == "batch_push" and not arguments(call)[1][0]:  # tracked, in no batch
        _, _, queue, _, _, _, *rows = arguments(call)[1]
        return [Push(_text(queue), _bytes(rows[i + 2]), _due(_text(rows[i + 1]), now)) for i in range(0, len(rows), 4)]
    heads = [part[0] for part in call.parts]
    if heads == ["SADD", "LPUSH"] and call.parts[0][1] == keys.queues:
        queue = _text(call.parts[0][2])
        return [Push(queue, _bytes(payload), None) for payload in call.parts[1][2:]]
    return None


def _scheduled(row: list[Arg], now: float) -> Push:
    at, delay, payload = row
    queue = decode(_bytes(payload)).get("queue")
    due = float(at) if at not in ("", b"") else now + float(delay)
    return Push(queue if isinstance(queue, str) and queue else "default", _bytes(payload), due)


def _due(when: str, now: float) -> float | None:
    if not when:
        return None
    return now + float(when) if when.startswith("+") else float(when)


def _bytes(value: Arg) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _text(value: Arg) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def name_and_jid(payload: bytes) -> tuple[str, str]:
    """The class and the jid that a payload says; empty texts where it is no job."""
    try:
        job = decode(payload)
    except PayloadError:
        return "", ""
    return job["class"], job.get("jid", "")
