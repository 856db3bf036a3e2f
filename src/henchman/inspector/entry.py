"""A stored payload as people see it. Reading one never fails: an unreadable one is shown as it is, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from henchman.errors import PayloadError
from henchman.kernel.text import shorten
from henchman.wire import jsontext, numbers, sidekiq, times
from henchman.wire.payload import INVALID_CLASS, decode
from henchman.wire.secret import masked, places_of

__all__ = ["Entry", "Mask", "argument_text", "text_of"]

#: (wire name, args, kwargs) → the same with secret values replaced; the app's registry knows which they are.
Mask = Callable[[str, list[Any], dict[str, Any]], tuple[list[Any], dict[str, Any]]]

_SHOWN_BYTES = 4096  # of arguments; more is cut where it is shown


class Entry:
    """One payload, with its score (Unix seconds) when it comes from a set. It is decoded when a field is first read."""

    def __init__(self, payload: bytes, score: float | None = None, mask: Mask | None = None) -> None:
        self.payload = payload
        self.score = score
        self._mask = mask

    def __repr__(self) -> str:
        return f"Entry({self.jid!r}, {shorten(self.name, 80)!r})"

    @cached_property
    def _read(self) -> tuple[dict[str, Any], str]:
        try:
            return decode(self.payload), ""
        except PayloadError as error:
            return _object(self.payload), str(error)

    @property
    def job(self) -> Mapping[str, Any]:
        """The payload's fields; empty when it is no JSON object."""
        return self._read[0]

    @property
    def problem(self) -> str:
        """Why no worker can run it; empty when one can."""
        return self._read[1] or ("a payload that could not be read" if self.job.get("class") == INVALID_CLASS else "")

    @property
    def jid(self) -> str:
        """The job's id; empty when it has none."""
        value = self.job.get("jid")
        return value if isinstance(value, str) else "" if value is None else str(value)[:200]

    @property
    def name(self) -> str:
        """The class as people know it; the beginning of the text itself when it is no JSON object."""
        if not self.job:
            return text_of(self.payload[:80])
        return sidekiq.display_class(self.job)

    @property
    def queue(self) -> str | None:
        """The queue it names, None when it names none."""
        value = self.job.get("queue")
        return value if isinstance(value, str) and value else None

    @cached_property
    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """``args`` and ``kwargs``, secret values masked."""
        args, kwargs = self.job.get("args"), self.job.get("kwargs")
        plain = args if isinstance(args, list) else [] if args is None else [args]
        named = kwargs if isinstance(kwargs, dict) else {}
        wire_name = self.job.get("class")
        plain, named = masked(places_of(self.job), plain, named)
        if self._mask is None or not isinstance(wire_name, str):
            return plain, named
        return self._mask(wire_name, plain, named)

    def call_text(self, most: int = 200) -> str:
        """The job as a call, ``mail.send(42, "de")``; the beginning of the text when it is no JSON object."""
        return f"{self.name}({argument_text(*self.arguments, most)})" if self.job else self.name

    def time(self, field: str) -> float | None:
        """A time of the payload in Unix seconds; None when it is not there or is no time."""
        return times.read(self.job.get(field))

    @property
    def attempts(self) -> int:
        """How many runs have failed so far."""
        count = numbers.count(self.job.get("retry_count"))
        return 0 if count is None else count + 1

    @property
    def error(self) -> tuple[str, str] | None:
        """Class and message of the last error."""
        kind, message = self.job.get("error_class"), self.job.get("error_message")
        if kind is None and message is None:
            return None
        return _plain(kind), _plain(message)

    @property
    def backtrace(self) -> list[str]:
        """The lines of the last error's backtrace, innermost first; empty when it was not kept."""
        return sidekiq.expand_backtrace(self.job.get("error_backtrace")) or []

    @property
    def tags(self) -> list[str]:
        """Its tags, also where a program stored them in a wrong form."""
        found = self.job.get("tags")
        return [_plain(one) for one in found] if isinstance(found, list) else [_plain(found)] if found else []

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs; times as ISO 8601 in UTC or null. ``payload`` only when it is unreadable."""
        args, kwargs = self.arguments
        error = self.error
        facts: dict[str, Any] = {
            "jid": self.jid or None,
            "class": self.name,
            "queue": self.queue,
            "args": args,
            "kwargs": kwargs,
            "tags": self.tags,
            "attempts": self.attempts,
            "error_class": error[0] if error else None,
            "error_message": error[1] if error else None,
            "at": times.iso(self.score) or None,
        }
        facts |= {
            field: times.iso(self.time(field)) or None
            for field in ("created_at", "enqueued_at", "failed_at", "retried_at")
        }
        facts["problem"] = self.problem or None
        if not self.job:
            facts["payload"] = text_of(self.payload)
        return facts


def text_of(raw: bytes) -> str:
    """Bytes as text: UTF-8, with escapes for what is none."""
    return raw.decode("utf-8", "backslashreplace")


def argument_text(args: list[Any], kwargs: Mapping[str, Any], most: int = _SHOWN_BYTES) -> str:
    """Arguments as they would stand in a call, at most ``most`` characters."""
    parts: list[str] = []
    left = most
    for label, value in [*(("", one) for one in args[:most]), *((f"{name}=", one) for name, one in kwargs.items())]:
        part = label + shorten(_json(value), most)
        parts.append(part)
        left -= len(part) + 2
        if left < 0:
            break
    return shorten(", ".join(parts), most)


def _json(value: Any) -> str:
    try:
        return jsontext.encode(value).decode("utf-8", "replace")
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return shorten(repr(value), _SHOWN_BYTES)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:10_000]


def _object(payload: bytes) -> dict[str, Any]:
    try:
        found = jsontext.loads(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
