"""Log lines of a worker process: our handler on the root logger, the job's id and class on every line of a job.

Everything goes through the standard ``logging`` module, under "henchman" and "henchman.job", so that handlers of the
user's own work as they are used to; ``JobFilter`` gives them ``%(jid)s`` and ``%(class)s``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import Any, TextIO

from henchman.errors import ConfigError
from henchman.kernel.events import Events
from henchman.log.events import Announcer, level_of
from henchman.log.lines import FORMATS, LineFormatter
from henchman.work.current import running

__all__ = ["JobFilter", "LineHandler", "level_number", "setup", "subscribe"]

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
