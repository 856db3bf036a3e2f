"""What a call to the server asks for, as far as a fake must know: the pushes in it, and its arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

from henchman.errors import HenchmanError, PayloadError
from henchman.store.call import Arg, Call
from henchman.store.keys import Keys
from henchman.testing.install import words_of
from henchman.wire.payload import decode

__all__ = [
    "NotFaked",
    "OrderedRow",
    "PlainPush",
    "as_bytes",
    "as_text",
    "class_of",
    "due_at",
    "is_script",
    "level_of",
    "ordered_rows",
    "pushes",
    "script_arguments",
]


class NotFaked(HenchmanError):
    """Something was asked of the server that only a real one can answer; the text names it and the way out."""

    def __init__(self, call: Call[Any], mode: str) -> None:
        super().__init__(
            f"testing.{mode} catches pushes, batches, results and cancellations, and this needs a server: "
            f"{words_of(call)}; use testing.worker(app), or the fixture henchman"
        )


class PlainPush(NamedTuple):
    """One payload on its way into ``queue``; ``at`` is the Unix time at which it is due, None for now."""

    queue: str
    payload: bytes
    at: float | None


class OrderedRow(NamedTuple):
    """One push to an ordered queue. ``at`` is the Unix time at which it is due, None for now; ``score`` as given."""

    queue: str
    id: bytes
    payload: bytes
    score: float | None
    at: float | None


def pushes(call: Call[Any], keys: Keys, now: float) -> list[PlainPush] | None:
    """The jobs that ``call`` pushes; None when it does something else."""
    if is_script(call, "schedule"):
        rows = script_arguments(call)[1]
        return [_scheduled(rows[i : i + 3], now) for i in range(0, len(rows), 3)]
    if is_script(call, "deliver"):
        rows = script_arguments(call)[1][1:]
        return [_delivered(rows[i : i + 4], now) for i in range(0, len(rows), 4)]
    if is_script(call, "batch_push") and not script_arguments(call)[1][0]:  # tracked, in no batch
        _, _, queue, _, _, _, *rows = script_arguments(call)[1]
        if rows[4]:
            return None  # jobs with a key
        return [
            PlainPush(as_text(queue), as_bytes(rows[i + 2]), due_at(rows[i + 1], now)) for i in range(0, len(rows), 5)
        ]
    if [part[0] for part in call.parts] == ["SADD", "LPUSH"] and call.parts[0][1] == keys.queues:
        return [PlainPush(as_text(call.parts[0][2]), as_bytes(payload), None) for payload in call.parts[1][2:]]
    return None


_BEFORE_ROWS = 5  # arguments of a push to an ordered queue


def ordered_rows(call: Call[Any], now: float) -> tuple[str, list[OrderedRow]] | None:
    """The merge rule of the ordered queue that ``call`` pushes to, and the pushes; None for any other call."""
    if not is_script(call, "ordered_push"):
        return None
    words = script_arguments(call)[1]
    queue, collapse, rest = as_text(words[0]), as_text(words[1]), words[_BEFORE_ROWS:]
    rows = []
    for i in range(0, len(rest), 4):
        id, due, score, payload = rest[i : i + 4]
        given = None if score == "" else float(score)
        rows.append(OrderedRow(queue, as_bytes(id), as_bytes(payload), given, due_at(due, now)))
    return collapse, rows


def class_of(payload: bytes) -> str:
    """The class that a payload names; empty where it is no job."""
    try:
        return str(decode(payload)["class"])
    except PayloadError:
        return ""


def level_of(payload: bytes) -> int:
    """0 of a job with high priority, 1 of most, 2 of one with low priority."""
    try:
        return {"high": 0, "low": 2}.get(str(decode(payload).get("priority")), 1)
    except PayloadError:
        return 1


def is_script(call: Call[Any], name: str) -> bool:
    """Whether ``call`` is that script."""
    return call.script is not None and call.name == name


def script_arguments(call: Call[Any]) -> tuple[list[Arg], list[Arg]]:
    """The keys and the arguments of a script call."""
    parts = call.parts[0]
    first = 3 + int(parts[2])
    return list(parts[3:first]), list(parts[first:])


def _scheduled(row: list[Arg], now: float) -> PlainPush:
    at, delay, payload = row
    queue = decode(as_bytes(payload)).get("queue")
    due = float(at) if at not in ("", b"") else now + float(delay)
    return PlainPush(queue if isinstance(queue, str) and queue else "default", as_bytes(payload), due)


def _delivered(row: list[Arg], now: float) -> PlainPush:
    name, at, delay, payload = row
    return PlainPush(as_text(name), as_bytes(payload), None) if name else _scheduled([at, delay, payload], now)


def due_at(when: Arg, now: float) -> float | None:
    """The Unix time that ``when`` means: "+5" in five seconds; None for now."""
    text = as_text(when)
    if not text:
        return None
    return now + float(text) if text.startswith("+") else float(text)


def as_bytes(value: Arg) -> bytes:
    """An argument as the server gets it."""
    return value if isinstance(value, bytes) else str(value).encode()


def as_text(value: Arg) -> str:
    """An argument as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
