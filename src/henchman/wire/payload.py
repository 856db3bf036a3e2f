"""A job's payload: read from any client, written as Ruby writes it; and Sidekiq's forms in it: names, backtraces, and
the fields that break pages of its Web UI."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from henchman.errors import ArgumentError, PayloadError
from henchman.kernel.text import plain
from henchman.wire import jsontext, times
from henchman.wire.jsontext import EncodeError, kind_of

__all__ = [
    "INVALID_CLASS",
    "LONGEST",
    "MOST",
    "NAMED",
    "QUEUE_NAME",
    "Template",
    "backtrace_of",
    "check_queue",
    "compress_backtrace",
    "count",
    "decode",
    "delay_of",
    "display_class",
    "encode",
    "expand_backtrace",
    "invalid",
    "members",
    "name_of",
    "new_jid",
    "new_jids",
    "notice_of",
    "sanitise",
    "seconds",
    "with_delay",
    "with_field",
    "wrapped_class",
]

INVALID_CLASS = "InvalidPayload"
NAMED = "payload-"
_MAX_DEPTH = 100  # where Ruby stops
_KEPT_BYTES = 1024 * 1024
_ENVELOPE = jsontext.MAX_DEPTH - _MAX_DEPTH  # a whole payload may be deeper than its arguments
_SPACE = re.compile(r"[ \t\n\r]*")
# JSON holds integers of thousands of digits and floats up to 1.8e308. Beyond these bounds our arithmetic overflows, the
# C code that writes to the server ends the process, and SQL and Ruby's pages refuse the row.
LONGEST: Final = 9e9  #: seconds, 285 years; the longest wait that threads accept is a little more
MOST: Final = 10**9  #: of what is counted: it fits 32 bits
_read_value = json.JSONDecoder(parse_float=len, parse_int=len).raw_decode  # only the end of a value is used
QUEUE_NAME = re.compile(r"[A-Za-z0-9_:.\-]+")  #: Sidekiq's Web UI answers 404 for the page of any other queue

_WRAPPERS = frozenset({"ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper", "Sidekiq::ActiveJob::Wrapper"})
_MAILERS = frozenset({"ActionMailer::DeliveryJob", "ActionMailer::MailDeliveryJob"})
_TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
_MOST_LINES = 1_000
_MOST_BYTES = 1024 * 1024  # of an inflated backtrace: a few kilobytes in Redis must not become gigabytes here


def decode(payload: bytes) -> dict[str, Any]:
    """The job in ``payload``, with ``args`` always a list; PayloadError says what makes it unusable.

    As in Sidekiq, ``args``, ``jid``, ``queue`` and everything else but ``class`` may be missing.
    """
    try:
        job = jsontext.loads(payload)
    except msgspec.ValidationError as error:
        job = _reread(payload, error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(_unreadable(payload, error)) from None
    if type(job) is not dict:
        raise PayloadError(f"payload is JSON, but {kind_of(job)} and not an object")
    name = job.get("class")
    if type(name) is not str or not name:
        raise PayloadError("payload has no class" if not name else f"class is {kind_of(name)}, not text")
    if type(job.get("args")) is not list or type(job.get("jid")) is not str or "kwargs" in job:
        _check_fields(job)
    if len(payload) > 2 * _MAX_DEPTH:
        _check_depth(job, payload)
    return job


def _check_fields(job: dict[str, Any]) -> None:
    """Bring ``args`` and ``jid`` into form; PayloadError for what has none."""
    if type(job.get("args")) is not list:
        if job.get("args") is not None:
            raise PayloadError(f"args is {kind_of(job['args'])}, not a list")
        job["args"] = []
    if type(job.get("jid")) is not str and "jid" in job:
        _sanitise_jid(job)
    if "kwargs" in job and type(job["kwargs"]) is not dict and job["kwargs"] is not None:
        raise PayloadError(f"kwargs is {kind_of(job['kwargs'])}, not an object")


def _check_depth(job: dict[str, Any], payload: bytes) -> None:
    if payload.count(b"[") + payload.count(b"{") > _MAX_DEPTH and _deeper_than(job, _MAX_DEPTH):
        raise PayloadError(f"payload is nested deeper than {_MAX_DEPTH} levels")


def count(value: Any) -> int | None:
    """``value`` as a count from -1 to 1,000,000,000, cut to that; None for what is no integer.

    -1 is a ``retry_count`` too: Sidekiq takes one off for a retry by hand, so that this run is free.
    """
    return min(max(value, -1), MOST) if type(value) is int else None


def seconds(value: Any) -> float | None:
    """``value`` as a duration in seconds from -9e9 to 9e9, cut to that; None for what is no number."""
    if type(value) not in (int, float) or value != value:
        return None
    return float(min(max(value, -LONGEST), LONGEST))


def new_jid() -> str:
    """24 lower-case hex digits: 12 random bytes."""
    return os.urandom(12).hex()


def new_jids(count: int) -> list[bytes]:
    """``count`` job ids, as payloads hold them, from one request to the kernel."""
    text = os.urandom(12 * count).hex().encode()
    return [text[i : i + 24] for i in range(0, 24 * count, 24)]


def name_of(payload: bytes) -> str:
    """A name for a payload whose job has no id, always the same: deaths are charged to it."""
    return f"{NAMED}{len(payload)}-{zlib.crc32(payload):08x}"


def notice_of(job: Mapping[str, Any], text: bytes) -> bytes:
    """``text``, which is ``job``'s, without arguments where it is long: what death handlers are told."""
    return text if len(text) <= 2**16 else encode({**job, "args": [], "kwargs": {}})


def encode(job: Mapping[str, Any]) -> bytes:
    """``job`` as text, byte for byte as Ruby writes it; ArgumentError names what JSON cannot hold."""
    try:
        return jsontext.dumps(dict(job), _ENVELOPE)
    except EncodeError as error:
        raise ArgumentError(error.text("payload")) from None


def members(fields: Mapping[str, Any]) -> bytes:
    """``fields`` as the inside of an object, with a comma before it: what ``Template.render`` takes as ``extra``."""
    return b"," + encode(fields)[1:-1] if fields else b""


def with_field(stored: bytes, name: str, value: bytes) -> bytes:
    """``stored``, which ``decode`` could read, with the JSON text ``value`` in its field ``name``.

    In place of the old value where the field is there, else as the last one; all other bytes stay. A field that is
    there more than once stays where it is last.
    """
    key, members, ours = name.encode(), list[tuple[int, str, int, int]](), list[int]()
    if key in stored or b"\\u" in stored:  # a name may be written with escapes
        text = stored.decode()
        members = list(_members(text))
        ours = [at for at, member in enumerate(members) if member[1] == name]
    if not ours:
        return stored[: stored.rindex(b"}")] + b',"%b":%b}' % (key, value)
    _, _, first, last = members[ours[-1]]
    text = f"{text[:first]}{value.decode()}{text[last:]}"
    for at in reversed(ours[:-1]):
        text = text[: members[at][0]] + text[members[at + 1][0] :]
    return text.encode()


def with_delay(stored: bytes, delay: float | None) -> bytes:
    """``stored``, which ``decode`` can read, for the schedule: without the time of its last enqueuing, which is written
    anew, and with the note that it is due ``delay`` seconds after it was put there; None: it is due at a time.

    By the note a delay moves along when the server's clock steps; a time that a user gave stays.
    """
    job = decode(stored)
    job.pop("enqueued_at", None)
    ours = job.get("hm", {})
    if isinstance(ours, dict):  # else another program uses the field
        ours = {name: value for name, value in ours.items() if name != "delay"}
        job["hm"] = ours if delay is None else ours | {"delay": delay}
        if not job["hm"]:
            del job["hm"]
    return encode(job)


def delay_of(stored: bytes) -> float | None:
    """The seconds after which an entry of the schedule is due, where ``stored`` notes them; None: it is due at a time,
    or cannot be read."""
    try:
        ours = decode(stored).get("hm")
    except PayloadError:
        return None
    return seconds(ours.get("delay")) if isinstance(ours, dict) else None


def _members(text: str) -> Iterator[tuple[int, str, int, int]]:
    """The fields of the object ``text``: where each begins, its name, where its value begins and ends."""

    def past_space(at: int) -> int:
        found = _SPACE.match(text, at)
        return found.end() if found else at

    at = past_space(past_space(0) + 1)
    while text[at] != "}":
        key, colon = _read_value(text, at)
        first = past_space(past_space(colon) + 1)
        _, last = _read_value(text, first)
        yield at, key, first, last
        at = past_space(last)
        if text[at] == ",":
            at = past_space(at + 1)


def invalid(payload: bytes, reason: str, queue: str, now: float) -> bytes:
    """The dead set's entry for a payload that cannot be run: always an object that wraps it.

    Sidekiq puts text that is not JSON there as it is; but that does not say why, and a list, number or null crashes
    its pages. So all of them are wrapped in one way: ``args`` holds the original text (in Base64 when it is not
    UTF-8; its first MiB when it is longer), ``error_message`` the reason. Times are float seconds, which every reader
    understands, and ``failed_at`` is there because pages crash without it. A usable jid of the original is kept, so
    that the job is found under the id its caller knows. ``retry`` is false: a Ruby worker that is handed it from a
    page forgets it instead of retrying for weeks.
    """
    kept = payload[:_KEPT_BYTES]
    try:
        text, form = kept.decode(), "text"
    except UnicodeDecodeError as error:
        if len(kept) < len(payload) and error.start > len(kept) - 4:  # only cut in the middle of a character
            text, form = kept[: error.start].decode(), "text"
        else:
            text, form = base64.b64encode(kept).decode(), "base64"
    moment = float(times.write(now, "seconds"))
    return encode(
        {
            "class": INVALID_CLASS,
            "args": [text],
            "queue": queue.encode("utf-8", "replace").decode(),
            "jid": _known_jid(payload) or new_jid(),
            "retry": False,
            "created_at": moment,
            "failed_at": moment,
            "error_class": "PayloadError",
            "error_message": reason.encode("utf-8", "replace").decode()[:10_000],
            "original": form,
            "original_bytes": len(payload),
        }
    )


class Template:
    """The text of one job definition's payloads, with holes for what differs from job to job.

    ``tenant``: how the tenant follows from args and kwargs (JSON); payloads of a fair queue begin with it, so that a
    script finds it without reading further.
    """

    __slots__ = ("_head", "_tenant")

    def __init__(self, fixed: Mapping[str, Any], tenant: Callable[[bytes, bytes | None], str] | None = None) -> None:
        taken = fixed.keys() & {"args", "kwargs", "jid", "created_at", "enqueued_at"}
        if taken or not fixed:
            raise ValueError(f"a template needs fixed fields, and not {sorted(taken)}")
        self._head = encode(fixed)[:-1] + b',"args":'
        self._tenant = tenant

    def _headed(self, args: bytes, kwargs: bytes | None) -> bytes:
        """The head of a payload with its tenant; without one nothing is said."""
        if self._tenant is None or not (tenant := self._tenant(args, kwargs)):
            return self._head
        return b'{"fair":' + _quoted(tenant) + b"," + self._head[1:]

    def ending(self, until: float) -> Template:
        """The same of jobs that are over at the Unix time ``until``."""
        fixed = jsontext.loads(self._head[: -len(b',"args":')] + b"}")
        return Template(fixed | {"hm": fixed.get("hm", {}) | {"deadline": until}}, self._tenant)

    def render_many(
        self,
        arguments: Sequence[tuple[bytes, bytes | None]],
        jids: Sequence[bytes],
        created_at: bytes,
        enqueued_at: bytes | None,
    ) -> list[bytes]:
        """One payload for each (args, kwargs), all of the same times; a jid is 24 hex digits."""
        tail = b'","created_at":' + created_at
        tail += b"}" if enqueued_at is None else b',"enqueued_at":' + enqueued_at + b"}"
        head, plain = self._head, b',"jid":"'
        if self._tenant is not None:
            heads = [self._headed(*one) for one in arguments]
            return [
                b"".join((head, args, plain if kwargs is None else b',"kwargs":' + kwargs + plain, jid, tail))
                for head, (args, kwargs), jid in zip(heads, arguments, jids, strict=True)
            ]
        return [
            b"".join((head, args, plain if kwargs is None else b',"kwargs":' + kwargs + plain, jid, tail))
            for (args, kwargs), jid in zip(arguments, jids, strict=True)
        ]

    def render(
        self,
        args: bytes,
        kwargs: bytes | None,
        jid: str,
        created_at: bytes,
        enqueued_at: bytes | None,
        extra: bytes = b"",
    ) -> bytes:
        """One payload. All parts are JSON text already; ``enqueued_at`` is None for a job that is scheduled."""
        name = jid.encode() if jid.isalnum() else _quoted(jid)[1:-1]
        head = self._head if self._tenant is None else self._headed(args, kwargs)
        if kwargs is not None:
            args = args + b',"kwargs":' + kwargs
        tail = b"}" if enqueued_at is None else b',"enqueued_at":' + enqueued_at + b"}"
        return b"".join((head, args, extra, b',"jid":"', name, b'","created_at":', created_at, tail))


def _quoted(text: str) -> bytes:
    """``text`` as a JSON string; ArgumentError for a lone surrogate."""
    try:
        return jsontext.dumps(text)
    except EncodeError as error:
        raise ArgumentError(error.text(repr(text))) from None


def _unreadable(payload: bytes, error: Exception) -> str:
    if not payload.strip():
        return "payload is empty"
    if isinstance(error, RecursionError):
        return f"payload is nested deeper than {_MAX_DEPTH} levels"
    if isinstance(error, UnicodeDecodeError):
        return f"payload is not UTF-8: {error.reason} at byte {error.start} of a text"
    return f"payload is not JSON: {error}"


def _reread(payload: bytes, error: Exception) -> Any:
    try:
        return jsontext.loads_slowly(payload)
    except (ValueError, RecursionError):
        raise PayloadError(f"payload holds a number that cannot be read: {error}") from None


def _sanitise_jid(job: dict[str, Any]) -> None:
    jid = job["jid"]
    if jid is None:
        del job["jid"]
    elif isinstance(jid, int | float) and not isinstance(jid, bool):
        job["jid"] = str(jid)
    else:
        raise PayloadError(f"jid is {kind_of(jid)}, not text")


def _known_jid(payload: bytes) -> str | None:
    try:
        job = jsontext.loads(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    jid = job.get("jid") if isinstance(job, dict) else None
    return jid if isinstance(jid, str) and 0 < len(jid) <= 200 else None


def _deeper_than(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels + 1):
        nested = [one for one in layer if isinstance(one, dict | list)]
        if not nested:
            return False
        layer = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
    return True


# --- names -----------------------------------------------------------------------------------------------------------


def _is_wrapper(name: object) -> bool:
    """Whether ``name`` is one of the classes in which Rails wraps its own jobs."""
    return isinstance(name, str) and name in _WRAPPERS


def wrapped_class(job: Mapping[str, Any]) -> str:
    """The class that Rails wrapped in its own for ``job``; "" for any other job."""
    return display_class(job) if _is_wrapper(job.get("class")) else ""


def display_class(job: Mapping[str, Any]) -> str:
    """The name to show for ``job``, found as Sidekiq does; never fails, whatever the payload holds."""
    shown = job.get("display_class")
    if isinstance(shown, str) and shown:
        return shown
    name = job.get("class")
    if not _is_wrapper(name):
        return plain(name)
    args = job.get("args")
    first = args[0] if isinstance(args, list) and args else None
    inner: Mapping[str, Any] = first if isinstance(first, dict) else {}
    wrapped = job.get("wrapped") or inner.get("job_class") or first
    if wrapped in _MAILERS if isinstance(wrapped, str) else False:
        arguments = inner.get("arguments")
        if isinstance(arguments, list) and arguments:
            return "#".join(plain(one) for one in arguments[:2])
    return wrapped if isinstance(wrapped, str) else plain(name)


def check_queue(name: object) -> str:
    """``name`` itself when a queue may be called so; ArgumentError otherwise."""
    if not isinstance(name, str):
        raise ArgumentError(f"{name!r} is not a queue name: it must be text")
    if not QUEUE_NAME.fullmatch(name):
        raise ArgumentError(f"{name[:100]!r} is not a queue name: letters, digits and _ : . - only, at least one")
    return name


# --- backtraces ------------------------------------------------------------------------------------------------------


def compress_backtrace(lines: Sequence[str]) -> str:
    """``error_backtrace`` (wire format, section 6.5): lines as JSON, deflated, in strict Base64, which every Sidekiq
    reads."""
    text = jsontext.encode([line.encode("utf-8", "replace").decode() for line in lines])
    return base64.b64encode(zlib.compress(text)).decode()


def expand_backtrace(text: Any) -> list[str] | None:
    """The lines out of strict or MIME Base64 or a plain array, at most 1,000; None for what is no backtrace."""
    if isinstance(text, list):
        return [str(line) for line in text[:_MOST_LINES]]
    if not isinstance(text, str) or not text:
        return None
    try:
        inflater = zlib.decompressobj()
        raw = inflater.decompress(binascii.a2b_base64(text.encode()), _MOST_BYTES)
        if not inflater.eof:
            return None
        lines = jsontext.loads(raw)
    except (binascii.Error, zlib.error, msgspec.DecodeError, ValueError, RecursionError):
        return None
    return [str(line) for line in lines[:_MOST_LINES]] if isinstance(lines, list) else None


def backtrace_of(error: BaseException, limit: int | None = None) -> list[str]:
    """``path:line:in function`` of each frame, newest first; the first ``limit`` of them, at most 1,000."""
    newest_first = list(traceback.walk_tb(error.__traceback__))[::-1]
    most = _MOST_LINES if limit is None else max(0, min(limit, _MOST_LINES))
    return [f"{frame.f_code.co_filename}:{line}:in {frame.f_code.co_name}" for frame, line in newest_first[:most]]


# --- fields that break pages -----------------------------------------------------------------------------------------


def sanitise(job: dict[str, Any]) -> bool:
    """Repair, in ``job`` itself, the fields that break a page of Sidekiq's Web UI; whether any did.

    A page shows 25 jobs, and one job with text where a list is due makes it answer 500 for all of them (wire format,
    section 12.2). Call this before a job is stored where those pages look; all other fields stay as they came.
    """
    before = dict(job)
    for field in _TIMES:
        if field in job:
            _sanitise_time(job, field)
    if "tags" in job:
        _sanitise_tags(job)
    if job.get("error_backtrace") is not None:
        _sanitise_backtrace(job)
    if job.get("encrypt") and not job.get("args"):
        del job["encrypt"]  # they replace the last argument
    for field in [one for one in job if one.startswith("cattr") and isinstance(job[one], str)]:
        del job[field]
    if not job.get("jid"):
        job["jid"] = new_jid()
    if _is_wrapper(job.get("class")) and job.get("wrapped"):
        _sanitise_wrapped(job)
    return job != before


def _sanitise_time(job: dict[str, Any], field: str) -> None:
    seconds = times.read(job[field])
    if seconds is None:
        del job[field]
    elif isinstance(job[field], str):
        job[field] = times.rounded(seconds)


def _sanitise_tags(job: dict[str, Any]) -> None:
    tags = job["tags"]
    if isinstance(tags, str):
        job["tags"] = [tags]
    elif not isinstance(tags, list):
        del job["tags"]
    else:
        job["tags"] = [one if isinstance(one, str) else str(one) for one in tags]


def _sanitise_backtrace(job: dict[str, Any]) -> None:
    text = job["error_backtrace"]
    lines = expand_backtrace(text)
    if lines is None:
        del job["error_backtrace"]
    elif not isinstance(text, str):
        job["error_backtrace"] = compress_backtrace(lines)


def _sanitise_wrapped(job: dict[str, Any]) -> None:
    """Pages read the arguments of an ActiveJob out of the first one; where there are none, keep only its name."""
    args = job.get("args")
    first = args[0] if args else None
    inner = first.get("arguments") if isinstance(first, dict) else None
    mail = job["wrapped"] == "ActionMailer::MailDeliveryJob"
    if isinstance(inner, list) and (not mail or (len(inner) > 3 and isinstance(inner[3], dict))):
        return
    name = job.pop("wrapped")
    if isinstance(name, str):
        job.setdefault("display_class", name)
