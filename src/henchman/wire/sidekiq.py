"""Sidekiq's forms in payloads: names, backtraces, and the fields that break pages of its Web UI."""

from __future__ import annotations

import base64
import binascii
import re
import traceback
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from henchman.errors import ArgumentError
from henchman.wire import jsontext, times
from henchman.wire.payload import new_jid

__all__ = [
    "QUEUE_NAME",
    "backtrace_of",
    "check_queue",
    "compress_backtrace",
    "display_class",
    "expand_backtrace",
    "sanitise",
    "wrapped_class",
]

QUEUE_NAME = re.compile(r"[A-Za-z0-9_:.\-]+")  #: Sidekiq's Web UI answers 404 for the page of any other queue

_WRAPPERS = frozenset({"ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper", "Sidekiq::ActiveJob::Wrapper"})
_MAILERS = frozenset({"ActionMailer::DeliveryJob", "ActionMailer::MailDeliveryJob"})
_TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
_MOST_LINES = 1_000
_MOST_BYTES = 1024 * 1024  # of an inflated backtrace: a few kilobytes in Redis must not become gigabytes here


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
        return _text(name)
    args = job.get("args")
    first = args[0] if isinstance(args, list) and args else None
    inner: Mapping[str, Any] = first if isinstance(first, dict) else {}
    wrapped = job.get("wrapped") or inner.get("job_class") or first
    if wrapped in _MAILERS if isinstance(wrapped, str) else False:
        arguments = inner.get("arguments")
        if isinstance(arguments, list) and arguments:
            return "#".join(_text(one) for one in arguments[:2])
    return wrapped if isinstance(wrapped, str) else _text(name)


def check_queue(name: object) -> str:
    """``name`` itself when a queue may be called so; ArgumentError otherwise."""
    if not isinstance(name, str):
        raise ArgumentError(f"{name!r} is not a queue name: it must be text")
    if not QUEUE_NAME.fullmatch(name):
        raise ArgumentError(f"{name[:100]!r} is not a queue name: letters, digits and _ : . - only, at least one")
    return name


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:200]


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
