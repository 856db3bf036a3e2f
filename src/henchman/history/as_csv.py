"""Events as CSV for a spreadsheet: one line a job. Times are in UTC, as spreadsheets read them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from henchman.history.records import Event
from henchman.kernel.spreadsheet import MARK, safe, written
from henchman.wire import times

__all__ = ["head", "json_cell", "lines", "moment_cell"]

_COLUMNS = (
    *("job id", "class", "queue", "status", "attempts", "message", "error class", "arguments", "keyword arguments"),
    *("tags", "enqueued (UTC)", "started (UTC)", "ended (UTC)", "process", "host"),
)


def head() -> bytes:
    """The byte order mark and the line of titles."""
    return MARK + written([_COLUMNS])


def lines(events: Iterable[Event]) -> bytes:
    """One line for each event."""
    return written(_cells(one) for one in events)


def _cells(one: Event) -> tuple[str | int, ...]:
    texts = (json_cell(one.args), json_cell(one.kwargs), json_cell(one.tags or None))
    return (
        *map(safe, (one.jid, one.class_, one.queue, one.status)),
        one.attempts,
        *map(safe, (one.message or "", one.error_class or "", *texts)),
        *map(moment_cell, (one.enqueued_at, one.started_at, one.ended_at)),
        *map(safe, (one.process or "", one.host or "")),
    )


def json_cell(value: Any) -> str:
    """A value as JSON; empty for None."""
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def moment_cell(at: float | None) -> str:
    """A Unix time as spreadsheets read it."""
    return times.iso(at).replace("T", " ").removesuffix("Z")
