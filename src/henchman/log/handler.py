"""Log lines of a worker process: our handler on the root logger, the job's id and class on every line of a job.

Everything goes through the standard ``logging`` module, under "henchman" and "henchman.job", so that handlers of the
user's own work as they are used to; ``JobFilter`` gives them ``%(jid)s`` and ``%(class)s``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

from henchman.errors import ConfigError
from henchman.kernel.events import Events
from henchman.kernel.rare import load
from henchman.kernel.text import mask_urls, shorten, visible
from henchman.log.events import Announcer, level_of
from henchman.wire.secret import NO_SECRETS
from henchman.work.current import running

__all__ = ["FORMATS", "JobFilter", "LineHandler", "setup", "subscribe"]

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
    except Exception:  # a __str__ of the user's raises
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
    category = load("unicodedata").category
    return "".join(
        json.dumps(char)[1:-1] if char > "~" and category(char) in _HIDDEN else char for char in text
    ).replace("\x7f", "\\u007f")


LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def level_number(level: str) -> int:
    """The standard number of a level; ConfigError for a word that is none."""
    try:
        return LEVELS[level.lower()]
    except (KeyError, AttributeError):
        raise ConfigError(f"log level {level!r}: give debug, info, warning or error") from None


class JobFilter(logging.Filter):
    """Adds ``jid`` and ``class`` of the running job to every record ("" outside of one); keeps to its ``log_level``."""

    def filter(self, record: logging.LogRecord) -> bool:
        facts, floor = record.__dict__, 0
        with contextlib.suppress(Exception):  # a line without its job is better than none
            run: Any = running.get(None)
            if run is not None:
                floor = level_of(run)
                if getattr(run, "late", None) is not None:
                    run.late()  # its time is over: no lock of logging is held here
                if not facts.get("jid"):
                    facts["jid"] = run.jid
                    facts["class"] = getattr(run, "name", None) or run.payload.get("class", "")
                if "hm_secrets" not in facts and facts["jid"] == run.jid:
                    facts["hm_secrets"] = run.secrets
        facts.setdefault("jid", "")
        facts.setdefault("class", "")
        return record.levelno >= floor


class LineHandler(logging.Handler):
    """Writes each record with one call, so that the lines of several processes do not mix. It never raises."""

    def __init__(self, stream: TextIO, formatter: LineFormatter) -> None:
        super().__init__()
        self.stream = stream
        self.setFormatter(formatter)
        self.addFilter(JobFilter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
            try:
                self.stream.write(line)
            except UnicodeEncodeError:
                self.stream.write(line.encode("ascii", "backslashreplace").decode())
            self.stream.flush()
        except Exception:  # noqa: S110 - a log that cannot be written (pipe closed, disk full) stops no job
            pass


def setup(format: str, level: str, stream: TextIO | None = None, *, process_tag: str = "") -> None:
    """Write the log of this process to ``stream`` (standard error) in the format ``auto``, ``pretty``, ``json`` or
    ``logfmt``, from ``level`` on.

    ``process_tag`` names the process in every line. Called again, it replaces what it did before. A root handler that
    writes to the same stream is taken off (each line would come twice); every other stays. ConfigError when the format
    or level is unknown.
    """
    target = sys.stderr if stream is None else stream
    terminal = _is_terminal(target)
    chosen = ("pretty" if terminal else "logfmt") if format == "auto" else format
    if chosen not in FORMATS:
        raise ConfigError(f"log format {format!r}: give auto, pretty, json or logfmt")
    number = level_number(level)
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    handler = LineHandler(target, FORMATS[chosen](process_tag, colour=colour))
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old, LineHandler) or (type(old) is logging.StreamHandler and old.stream is target):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(number)
    logging.getLogger("alembic").setLevel(max(number, logging.WARNING))  # which parts it loads, each step: no news


def subscribe(events: Events, level: str) -> Announcer:
    """Turn what ``events`` announces into log lines, from ``level`` on.

    Nothing listens to an event whose lines would not be written: at "warning" the start and end of a job cost
    nothing. The returned announcer's ``flush()`` writes the summaries of repeated lines that are still held.
    """
    announcer = Announcer()
    for name, listener in announcer.listeners(level_number(level)):
        events.on(name, listener)
    return announcer


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False
