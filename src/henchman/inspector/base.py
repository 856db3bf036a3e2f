"""What all inspectors share: the app, the mask of secrets, the validation of arguments, and a stored payload as people
see it. Reading one never fails: an unreadable one is shown as it is, with the reason."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, PayloadError, ServerAway, ServerError
from henchman.kernel.text import as_shown, plain, shorten
from henchman.store.call import BothWays, Procedure
from henchman.store.metrics import server_info
from henchman.store.queues import raw
from henchman.wire import jsontext, payload, times
from henchman.wire.deadlines import deadline_of
from henchman.wire.payload import INVALID_CLASS, decode
from henchman.wire.secret import MASK, Mask, shown_arguments
from henchman.work.locks import ONCE_FOR
from henchman.work.outcome import CAUSES

__all__ = [
    "FURTHEST",
    "Attempt",
    "Cause",
    "Entry",
    "Inspector",
    "Mask",
    "argument_text",
    "checked_entries",
    "checked_entry",
    "checked_id",
    "checked_name",
    "checked_page",
    "checked_text",
    "latency_of",
    "mask_all",
    "scoped",
    "seconds",
    "server_facts",
    "text_of",
]


def mask_all(name: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The mask of a program that does not know the jobs: any argument may be secret."""
    return [MASK] * len(args), dict.fromkeys(kwargs, MASK)


FURTHEST = 2**62  # the furthest place in a list that can be asked for: what the server adds stays within 64 bits
_SHOWN_BYTES = 4096  # of arguments; more is cut where it is shown
_LONGEST = 10_000  # characters of an error that is no text
_TOLD = 50  # failed attempts, or causes, that are read out of a payload: anybody may have written it


class Attempt(NamedTuple):
    """A failed attempt of a job: its number, when it failed (Unix seconds), the seconds that it took (None: it did not
    start), in which process, class, group and beginning of the message of its error, and why it failed, one of
    ``CAUSES``."""

    number: int
    at: float | None
    took: float | None
    process: str
    error: str
    group: str
    message: str
    cause: str = "error"


class Cause(NamedTuple):
    """What caused an error: the exception's class, the beginning of its message, and its backtrace, innermost first."""

    error: str
    message: str
    backtrace: list[str]


class Entry:
    """One payload, with its score (Unix seconds) when it comes from a set. It is decoded when a field is first read."""

    def __init__(self, payload: bytes, score: float | None = None, mask: Mask | None = None) -> None:
        self.payload = payload
        self.score = score
        self.shown = ""  # what an extension of the console says in place of the job's name and arguments
        self._mask = mask

    def __repr__(self) -> str:
        return f"Entry({self.jid!r}, {shorten(self.name, 80)!r})"

    @cached_property
    def _read(self) -> tuple[dict[str, Any], str]:
        try:
            return decode(self.payload), ""
        except PayloadError as error:
            return json_object(self.payload), str(error)

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
        return plain(self.job.get("jid"))

    @property
    def name(self) -> str:
        """The class as people know it; the beginning of the text itself when it is no JSON object."""
        if not self.job:
            return text_of(self.payload[:80])
        return payload.display_class(self.job)

    @property
    def queue(self) -> str | None:
        """The queue it names, None when it names none."""
        value = self.job.get("queue")
        return value if isinstance(value, str) and value else None

    @cached_property
    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """``args`` and ``kwargs``, secret values masked."""
        return shown_arguments(self.job, self._mask)

    def holds(self, text: str) -> bool:
        """Whether the payload holds a text where people see it: what stands in secret arguments alone is not found."""
        return raw(text) in self.payload and raw(text) in self._seen

    @cached_property
    def _seen(self) -> bytes:
        """The payload with its arguments as they are shown."""
        shown = dict(zip(("args", "kwargs"), self.arguments, strict=True))
        shown = {field: value for field, value in shown.items() if value != self.job.get(field, value)}
        try:
            return jsontext.dumps({**self.job, **shown}) if shown else self.payload
        except (jsontext.EncodeError, RecursionError):
            return b""

    def call_text(self, most: int = 200) -> str:
        """The job as a call, ``mail.send(42, "de")``; the beginning of the text when it is no JSON object."""
        if self.shown:
            return shorten(self.shown, most)
        return f"{self.name}({argument_text(*self.arguments, most)})" if self.job else self.name

    def time(self, field: str) -> float | None:
        """A time of the payload in Unix seconds; None when it is not there or is no time."""
        return times.read(self.job.get(field))

    @property
    def attempts(self) -> int:
        """How many runs have failed so far."""
        count = payload.count(self.job.get("retry_count"))
        return 0 if count is None else count + 1

    @property
    def error(self) -> tuple[str, str] | None:
        """Class and message of the last error."""
        kind, message = self.job.get("error_class"), self.job.get("error_message")
        if kind is None and message is None:
            return None
        return plain(kind, _LONGEST), plain(message, _LONGEST)

    @property
    def cause(self) -> str:
        """Why its last run failed, one of ``CAUSES``; empty when none has failed."""
        said = self.job.get("error_cause")
        return said if said in CAUSES else "error" if self.error else ""

    @property
    def deadline(self) -> float | None:
        """The Unix time at which it is over, with all its attempts; None: it has no deadline."""
        return deadline_of(self.job)

    @property
    def backtrace(self) -> list[str]:
        """The lines of the last error's backtrace, innermost first; empty when it was not kept."""
        return payload.expand_backtrace(self.job.get("error_backtrace")) or []

    @property
    def error_group(self) -> str:
        """The group of its last error; empty when it has none."""
        return plain(self.job.get("error_group"))

    @property
    def failures(self) -> list[Attempt]:
        """Its failed attempts, the first and the last nine, as far as its payload tells of them."""
        found = self.job.get("error_attempts")
        rows = found[-_TOLD:] if isinstance(found, list) else []
        return [_attempt(row) for row in rows if isinstance(row, list) and len(row) in _ATTEMPT]

    @property
    def causes(self) -> list[Cause]:
        """What caused its last error, the nearest first."""
        found = self.job.get("error_causes")
        rows = [one for one in (found[:_TOLD] if isinstance(found, list) else []) if isinstance(one, list)]
        told = [(one[0], one[1], one[2] if isinstance(one[2], list) else []) for one in rows if len(one) == 3]
        return [
            Cause(plain(error, _LONGEST), plain(message, _LONGEST), [plain(line, _LONGEST) for line in lines[:100]])
            for error, message, lines in told
        ]

    @property
    def tags(self) -> list[str]:
        """Its tags, also where a program stored them in a wrong form."""
        found = self.job.get("tags")
        return (
            [plain(one, _LONGEST) for one in found]
            if isinstance(found, list)
            else [plain(found, _LONGEST)]
            if found
            else []
        )

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
            "cause": self.cause or None,
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


_ATTEMPT = (len(Attempt._fields) - 1, len(Attempt._fields))  # an error needs no cause


def _attempt(row: list[Any]) -> Attempt:
    number, at, took, *texts = row
    if texts[4:] and texts[4] not in CAUSES:
        texts.pop()
    count, seconds = payload.count(number), times.read(took)
    return Attempt(count or 0, times.read(at), seconds, *(plain(one, _LONGEST) for one in texts))


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


def json_object(text: bytes) -> dict[str, Any]:
    """The object that ``text`` is; an empty one for anything else."""
    try:
        found = jsontext.loads(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class Inspector(BothWays):
    """Base of what reads and changes the stored jobs of an app for people. Attributes do no I/O."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._runtime = runtime
        self._keys = runtime.keys
        #: hides the arguments that registered jobs keep secret
        self._mask: Mask = runtime.registry.mask


def _shown(value: object) -> str:
    return f"{value!r:.100}"


def checked_text(call: str, text: object, meaning: str = "the id of a job, such as handle.jid") -> str:
    """``text`` if it is one; ``call`` is the name of the method, ``meaning`` what it wants."""
    if not isinstance(text, str):
        raise ArgumentError(f"{call}({_shown(text)}): give a text, {meaning}")
    return text


def checked_name(name: object) -> str:
    """The name of a queue."""
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"{name!r} is no name of a queue: it is a text")
    return name


def checked_id(one: object) -> bytes:
    """An id of an ordered queue, as the server has it."""
    if isinstance(one, bool) or not isinstance(one, str | int) or one == "":
        raise ArgumentError(f"{one!r} is no id: it is a text")
    return raw(str(one))


def checked_page(first: object, most: object) -> tuple[int, int]:
    """Where a page begins, and how long it is at most."""
    if not (_is_whole(first) and _is_whole(most)) or first < 0 or most < 1:  # type: ignore[operator]
        raise ArgumentError(
            f"page({_shown(first)}, {_shown(most)}): give two whole numbers, first is 0 or more, most is 1 or more"
        )
    return first, most  # type: ignore[return-value]


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def checked_entry(entry: object) -> Entry:
    """An entry that ``find``, ``page``, ``between`` or ``matching`` gave."""
    if not isinstance(entry, Entry):
        raise ArgumentError(f"{_shown(entry)} is no entry: find(jid), page() and matching(text) give entries")
    return entry


def checked_entries(entries: Entry | Iterable[Entry]) -> Iterable[Entry]:
    """One entry or several, each checked when it is reached."""
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        return [checked_entry(entries)]
    return map(checked_entry, entries)


def scoped(job: Any, key: Any) -> tuple[str, str, int]:
    """Scope, key as text, and seconds for which a ``once`` key is remembered; ``job``: a job, or the text of a scope.
    ArgumentError for anything else."""
    if isinstance(key, bool) or not isinstance(key, str | int) or key == "":
        raise ArgumentError(f"{as_shown(key, 80)} is no key: give its text, or a whole number")
    options = getattr(job, "options", None)
    if not isinstance(job, str) and options is None:
        raise ArgumentError(f"{as_shown(job, 80)} is neither a job nor the text of a scope")
    scope = job if isinstance(job, str) else getattr(options, "scope", None) or job.name
    once_for = getattr(options, "once_for", None)
    return str(scope), str(key), ONCE_FOR if not once_for else int(once_for)


def seconds(at: float | dt.datetime) -> float:
    """A time in Unix seconds; ArgumentError for anything but an aware datetime or Unix seconds."""
    if isinstance(at, dt.datetime):
        return times.seconds_of(at)
    if isinstance(at, bool) or not isinstance(at, int | float) or not -1e11 < at < 1e11:
        raise ArgumentError(f"{at!r} is no time: give an aware datetime or Unix seconds")
    return float(at)


def server_facts(*section: str) -> Procedure[Mapping[str, str]]:
    """What the server says of itself, all of it or a section; nothing where this user of it may not ask."""
    try:
        facts: Mapping[str, str] = yield server_info(*section)
    except ServerAway:
        raise
    except ServerError:
        return {}
    return facts


def latency_of(payload: bytes | None, now: float) -> float | None:
    """Seconds since ``payload`` was pushed: 0 for none, None when it does not say."""
    if payload is None:
        return 0.0
    entry = Entry(payload)
    pushed = entry.time("enqueued_at")
    if pushed is None:
        pushed = entry.time("created_at")
    return None if pushed is None else max(now - pushed, 0.0)
