"""Timestamps as they stand in payloads: every form is read, one of two is written (wire format, section 3.3).

Both are whole milliseconds. Of those Ruby and Python write the same digits, of microseconds not always: Ruby's json
writes one of a thousand with a digit more, and Sidekiq finds some entries by the text that it would write itself.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Final, Literal

from henchman.errors import ArgumentError
from henchman.kernel.text import SECONDS_OF, as_shown, visible
from henchman.wire import jsontext

__all__ = ["Form", "answered_seconds", "day", "first_of_day", "iso", "read", "rounded"]
__all__ += ["said_moment", "seconds_of", "write"]

Form = Literal["seconds", "ms"]

_MS_FROM = 100_000_000_000
"""From here on an integer is milliseconds: as seconds it is the year 5138, as milliseconds March 1973."""

_LATEST = 1e11  # seconds
_WHEN: Final = "a time ago such as 90s, 30m, 2h, 5d, 1w, or a moment such as 2026-11-21 or 2026-11-21T09:30 (UTC)"


def read(value: Any) -> float | None:
    """Unix seconds out of a payload's value: float seconds, integer seconds or ms, ISO 8601 text.

    None for the rest, and for what is further than the year 5138.
    """
    seconds: float | None = None
    if isinstance(value, float):
        seconds = value
    elif isinstance(value, int) and not isinstance(value, bool):
        try:
            seconds = float(value) if abs(value) < _MS_FROM else value / 1000
        except OverflowError:
            return None
    elif isinstance(value, str):
        seconds = _read_text(value)
    return seconds if seconds is not None and -_LATEST < seconds < _LATEST else None


def write(seconds: float, form: Form) -> bytes:
    """Unix ``seconds`` as JSON: a float with its point, or integer milliseconds; ArgumentError for what is no time.
    Whole milliseconds in both forms."""
    if not -_LATEST < seconds < _LATEST:
        raise ArgumentError(f"{seconds!r} is not a time: seconds since 1970 are expected")
    if form == "ms":
        return b"%d" % round(seconds * 1000)
    return jsontext.encode(rounded(seconds))


def rounded(seconds: float) -> float:
    """``seconds``, finite, in whole milliseconds, as payloads hold them."""
    return round(seconds * 1000) / 1000  # the same as round(seconds, 3), in a quarter of its time


def iso(seconds: float | None) -> str:
    """``2026-11-21T09:30:48.964Z``; empty for None and for what no calendar holds."""
    moment = _moment(seconds)
    return "" if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def day(seconds: float) -> str:
    """The UTC day as ``YYYY-MM-DD``; empty for what no calendar holds."""
    moment = _moment(seconds)
    return "" if moment is None else moment.date().isoformat()


def first_of_day(day: str) -> float:
    """The Unix time at which the UTC ``day`` (``2026-11-21``) begins; ArgumentError for what is no day."""
    try:
        return dt.datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=dt.UTC).timestamp()
    except ValueError:
        raise ArgumentError(f"{as_shown(day, 40)} is no day: write it as in 2026-11-21") from None


def said_moment(name: str, text: str, now: float) -> float:
    """The Unix time that a search says behind ``name:``, a time ago (``2h``, ``-2h``), ahead (``+2h``), or a moment;
    ArgumentError where it says none."""
    if away := re.fullmatch(r"([-+]?)([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", text):
        return now + float(away[2]) * SECONDS_OF[away[3]] * (1 if away[1] == "+" else -1)
    moment = read(text) if re.match(r"\d{4}-", text) else None
    if moment is None:
        raise ArgumentError(f"{name}:{visible(text)}: it must be {_WHEN}")
    return moment


def seconds_of(moment: dt.datetime) -> float:
    """Unix seconds of an aware ``moment``; ArgumentError for a naive one."""
    if not isinstance(moment, dt.datetime):
        raise ArgumentError(f"{moment!r} is not a datetime")
    if moment.utcoffset() is None:
        raise ArgumentError(f"naive datetime {moment.isoformat()}: give it a time zone, such as UTC")
    return moment.timestamp()


def _moment(seconds: float | None) -> dt.datetime | None:
    if seconds is None:
        return None
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _read_text(text: str) -> float | None:
    if len(text) > 100:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = dt.datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def answered_seconds(answer: Any) -> float | None:
    """The delay that a ``retry_in`` answered, in seconds or as a timedelta; None when it is none, or out of range."""
    if isinstance(answer, dt.timedelta):
        answer = answer.total_seconds()
    fits = isinstance(answer, int | float) and not isinstance(answer, bool) and 0 <= answer < 1e10
    return float(answer) if fits else None
