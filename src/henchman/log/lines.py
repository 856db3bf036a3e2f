"""A log record as text: pretty for a terminal, JSON and logfmt for machines. One event is one line in each.

Nothing that came from elsewhere can forge a line, hide one or fill the disk: control and invisible characters are
escaped, passwords in URLs and secret arguments are masked, and everything is cut at a bound. Only the pretty form
lets a traceback take lines of its own, indented.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
import traceback
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from henchman.kernel.text import mask_urls, shorten, visible
from henchman.wire.secret import NO_SECRETS

__all__ = ["FORMATS", "JsonFormatter", "LineFormatter", "LogfmtFormatter", "PrettyFormatter"]

MESSAGE_MOST = 10_000
FIELD_MOST = 1_000
FIELDS_MOST = 50
TRACEBACK_MOST = 20_000

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "hm_secrets"}
_OURS = frozenset({"ts", "level", "msg", "logger", "pid", "process", "traceback"})
_BARE = re.compile(r"[^\s\"=\\]+")
_ODD_KEY = re.compile(r"[^A-Za-z0-9_.-]")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class LineFormatter(logging.Formatter):
    """What the three have in common. ``process_tag`` names the process in every line; "" names none."""

    def __init__(self, process_tag: str = "", *, colour: bool = False) -> None:
        super().__init__()
        self.process_tag = process_tag
        self.colour = colour

    def message(self, record: logging.LogRecord) -> str:
        """The record's message, fit to be shown but not escaped."""
        try:
            text = record.getMessage()
        except Exception as error:  # wrong arguments, a __str__ that raises: the line is written all the same
            text = f"{record.msg!s} (its arguments do not fit: {type(error).__name__})"
        return _fit(text, MESSAGE_MOST, record)

    def fields(self, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
        """What was given with ``extra=``: plain values, in order, at most 50."""
        own = [(name, value) for name, value in record.__dict__.items() if name not in _STANDARD]
        for name, value in own[:FIELDS_MOST]:
            if value == "" and name in ("jid", "class"):
                continue
            key = _ODD_KEY.sub("_", name)[:100]
            yield (f"extra_{key}" if key in _OURS else key), _plain(value, record)

    def traceback(self, record: logging.LogRecord) -> str:
        """The traceback of the record, and the stack where one was asked for; "" without."""
        text = ""
        if record.exc_info and record.exc_info[1] is not None:
            text = "".join(traceback.format_exception(*record.exc_info))
        elif record.exc_text:
            text = record.exc_text
        if record.stack_info:
            text += record.stack_info
        text = getattr(record, "hm_secrets", NO_SECRETS).hide(text)  # whole, before a cut goes through one
        if len(text) > TRACEBACK_MOST:
            half = TRACEBACK_MOST // 2
            text = f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
        return _fit(text.rstrip(), 2 * TRACEBACK_MOST, record)


class PrettyFormatter(LineFormatter):
    """For people: time of day, level, job, message, what else is known; a traceback below, indented."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(self.fields(record))
        job = " ".join(_shown(fields.pop(name)) for name in ("class", "jid") if name in fields)
        level = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}.get(record.levelno, record.levelname)[:5].ljust(5)
        parts = [
            self._painted("2", f"{time.strftime('%H:%M:%S', time.localtime(record.created))}.{int(record.msecs):03d}"),
            self._painted(_COLOURS.get(record.levelno, "0"), visible(level)),
        ]
        parts += [self._painted("2", visible(self.process_tag))] if self.process_tag else []
        parts += [self._painted("36", job)] if job else []
        if not record.name.startswith("henchman"):
            parts.append(self._painted("2", visible(shorten(record.name, 100))))
        parts.append(visible(self.message(record)))
        parts += [f"{self._painted('2', name + '=')}{_quoted(value)}" for name, value in fields.items()]
        told = self.traceback(record)
        lines = [f"    {visible(line).replace(chr(92) + 't', '    ')}" for line in told.split("\n")] if told else []
        return "\n".join([" ".join(parts), *lines])

    def _painted(self, colour: str, text: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if self.colour else text


class LogfmtFormatter(LineFormatter):
    """``key=value`` pairs; what is not one bare word is quoted as in JSON."""

    def format(self, record: logging.LogRecord) -> str:
        pairs = [f"{name}={_quoted(value)}" for name, value in _pairs(self, record)]
        return " ".join(pairs)


class JsonFormatter(LineFormatter):
    """One JSON object a line; line feeds inside come back when it is read."""

    def format(self, record: logging.LogRecord) -> str:
        return _json(dict(_pairs(self, record)))


FORMATS: dict[str, type[LineFormatter]] = {"pretty": PrettyFormatter, "json": JsonFormatter, "logfmt": LogfmtFormatter}
_COLOURS = {
    logging.DEBUG: "2",
    logging.INFO: "32",
    logging.WARNING: "33",
    logging.ERROR: "31",
    logging.CRITICAL: "1;31",
}


def _pairs(form: LineFormatter, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    moment = datetime.fromtimestamp(record.created, UTC)
    yield "ts", moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    yield "level", record.levelname.lower()
    yield "pid", record.process
    if form.process_tag:
        yield "process", form.process_tag
    yield "logger", shorten(record.name, 100)
    yield "msg", form.message(record)
    yield from form.fields(record)
    told = form.traceback(record)
    if told:
        yield "traceback", told


def _fit(text: str, most: int, record: logging.LogRecord) -> str:
    """``text`` without secrets and passwords, cut at ``most`` characters."""
    text = getattr(record, "hm_secrets", NO_SECRETS).hide(text)
    if len(text) > 4 * most:  # masking an URL costs time: what is cut anyway is not looked through
        text = text[: 4 * most]
    return shorten(mask_urls(text), most)


def _plain(value: Any, record: logging.LogRecord) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (int, float)) and abs(value) < 1e18:
        text = str(value)
        shown = getattr(record, "hm_secrets", NO_SECRETS).hide(text)
        return value if shown == text else shown
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # somebody else's __str__
        text = f"({type(value).__name__} cannot be shown)"
    return _fit(text, FIELD_MOST, record)


def _shown(value: Any) -> str:
    return visible(str(value))


def _quoted(value: Any) -> str:
    """``value`` as one logfmt word: bare, or as a JSON text."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = str(value)
    if _BARE.fullmatch(text) and visible(text) == text:
        return text
    return _json(text)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(
        json.dumps(char)[1:-1] if char > "~" and unicodedata.category(char) in _HIDDEN else char for char in text
    ).replace("\x7f", "\\u007f")
