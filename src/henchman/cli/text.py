"""How the command line speaks: lines, figures, times as people say them, JSON. Text from elsewhere stays text."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from typing import Any

import click
from rich.console import Console

from henchman.kernel.text import visible
from henchman.wire import times

__all__ = ["ago", "console", "count", "duration", "emit", "figure", "listed", "moment", "say"]

_PIPE_WIDTH = 1000  # nobody cuts a line that another program reads
_DAY = 86400.0


def console() -> Console:
    """Standard output: as wide as the terminal, and as wide as it takes elsewhere."""
    wide = not (sys.stdout.isatty() or "COLUMNS" in os.environ)
    return Console(highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH if wide else None)


def say(text: str) -> None:
    """One line of ours, with whatever of others it holds made visible."""
    click.echo(visible(text))


def count(many: int, one: str, more: str = "") -> str:
    """``1 job``, ``2,000 jobs``."""
    return f"{many:,} {one if many == 1 else more or one + 's'}"


def figure(number: float | None, form: str = ",") -> str:
    """A number with its thousands apart; ``–`` for None."""
    return "–" if number is None else format(number, form)


def duration(seconds: float | None) -> str:
    """``0.2 s``, ``12 s``, ``3 min``, ``2 h``, ``5 days``; ``–`` for None."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, size, unit in ((100, 1, "s"), (5400, 60, "min"), (36 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / _DAY:,.0f} days"


def ago(at: float | None, now: float) -> str:
    """``3 min ago``, ``in 2 h``; the day when it is far away; ``–`` for None."""
    if at is None:
        return "–"
    away = at - now
    if abs(away) > 400 * _DAY:
        return times.day(at) or ("never" if away > 0 else "long ago")
    if abs(away) < 1:
        return "now"
    return f"in {_plain(away)}" if away > 0 else f"{_plain(-away)} ago"


def _plain(seconds: float) -> str:
    return duration(seconds) if seconds >= 10 else f"{seconds:.0f} s"


def moment(at: float | None, now: float) -> str:
    """``2026-11-21T09:30:48.964Z (3 min ago)``; ``–`` for None."""
    stamp = times.iso(at)
    return f"{stamp} ({ago(at, now)})" if stamp else ago(at, now)


def emit(document: Any) -> None:
    """One JSON document: readable, every invisible character as an escape."""
    text = json.dumps(document, ensure_ascii=False, indent=2, default=str)
    click.echo(_escape(text))


def _escape(text: str) -> str:
    return re.sub(r"[^\x20-\x7e\n]", lambda match: _escaped(match[0]), text)


def _escaped(char: str) -> str:
    if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return char
    return json.dumps(char)[1:-1]


def listed(shown: int, total: int, what: str) -> str:
    """``50 of 1,234 retries``."""
    return f"{shown:,} of {total:,} {what}" if shown < total else f"{total:,} {what}"
