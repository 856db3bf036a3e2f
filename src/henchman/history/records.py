"""The records of history: frozen structs, each with ``to_json`` (plain values; times are Unix seconds), and a search.

``seq`` and ``changed`` are positions: whole numbers that only rise, in the order of recording. Pages and
``changed_since`` go by them; they mean nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from henchman.config.settings import ENDED
from henchman.kernel.terms import Term

__all__ = [
    "FAILURES",
    "MOST",
    "OF_BATCH",
    "STATUSES",
    "BatchRecord",
    "Change",
    "Changes",
    "Event",
    "EventPage",
    "JobRecord",
    "LiveMessages",
    "Message",
    "RunRecord",
    "Search",
    "batch_status",
]

STATUSES = (
    *("blocked", "scheduled", "enqueued", "working", "retrying"),
    *("finished", "failed", "error", "cancelled", "expired"),
)
FAILURES = ("failed", "error")
OF_BATCH = "batch:"  # and its id: the owner of a change that is no job's
MOST = 10_000  # records of one page


class HistoryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The base of every record."""

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Event(HistoryRecord, frozen=True, kw_only=True):
    """One job: where it stands, or how it ended. Errors and results are those of its latest run.

    ``class_`` is ``class`` in JSON. ``status`` is empty for a job of which only messages are known. ``args`` is None
    when the beginning of the job was not recorded.
    """

    jid: str
    batch: str | None
    class_: str = msgspec.field(name="class")
    queue: str
    args: list[Any] | None
    kwargs: dict[str, Any] | None
    tags: list[Any]
    status: str
    attempts: int
    enqueued_at: float | None
    started_at: float | None
    ended_at: float | None
    result: Any
    error_class: str | None
    message: str | None
    traceback: list[str]
    progress_done: float | None
    progress_total: float | None
    process: str | None
    host: str | None
    seq: int
    changed: int
    cause: str | None = None


class EventPage(HistoryRecord, frozen=True, kw_only=True):
    """Some events, and ``after`` to ask for the next ones with; None: there are no more."""

    events: list[Event]
    after: int | None


class Changes(HistoryRecord, frozen=True, kw_only=True):
    """The events that changed, in the order in which they did, and the position to go on from."""

    events: list[Event]
    position: int
    more: bool


class Change(HistoryRecord, frozen=True, kw_only=True):
    """One step in the life of a job (or of a batch, then ``jid`` is None). ``detail``: the facts recorded with it."""

    position: int
    jid: str | None
    batch: str | None
    status: str
    attempt: int | None
    process: str | None
    at: float
    detail: dict[str, Any]


class RunRecord(HistoryRecord, frozen=True, kw_only=True):
    """One execution: where, when, and how it ended (``ending`` is None while it goes on)."""

    jid: str
    attempt: int | None
    process: str | None
    host: str | None
    started: float | None
    ended: float | None
    ending: str | None


class LiveMessages(HistoryRecord, frozen=True, kw_only=True):
    """What jobs of a batch say that run now, the newest first; and those of them that tell how far they are."""

    messages: list[Message]
    progress: list[Event]


class Message(HistoryRecord, frozen=True, kw_only=True):
    """A message that a job wrote with ``current_job().log``."""

    position: int
    jid: str
    at: float
    text: str


class JobRecord(HistoryRecord, frozen=True, kw_only=True):
    """One job with its whole life, each list in the order in which it came about."""

    event: Event
    changes: list[Change]
    runs: list[RunRecord]
    messages: list[Message]


class DayRecord(msgspec.Struct, frozen=True):
    """What ended on one day, in UTC and by the server's clock: how many jobs by class and status, and the latest of
    them."""

    day: str
    counts: dict[str, dict[str, int]]
    events: list[Event]

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs."""
        return {"day": self.day, "counts": self.counts, "jobs": [one.to_json() for one in self.events]}


class BatchRecord(HistoryRecord, frozen=True, kw_only=True):
    """The record of a batch. ``counts``: jobs by status, as the server counted them when it was complete, else events
    as history has them now."""

    id: str
    description: str
    tags: list[Any]
    state: str
    why: str
    parent: str | None
    created: float | None
    closed: float | None
    completed: float | None
    expires: float | None
    generation: int
    total: int
    counts: dict[str, int]
    position: int


class Search(NamedTuple):
    """A search; every field that is set must fit. Times are Unix seconds of when a job was enqueued.

    ``text`` is searched for in messages, error classes and arguments, in any case: set another field with it, because
    every event that fits the rest is read. ``terms``: what else has to hold, as ``history.search`` reads it.
    """

    class_: str | None = None
    status: str | None = None
    batch: str | None = None
    queue: str | None = None
    cause: str | None = None
    since: float | None = None
    until: float | None = None
    text: str | None = None
    terms: Sequence[Term] = ()


def batch_status(found: BatchRecord) -> dict[str, Any]:
    """The status of a batch that only history knows, as plain values in the form of the server's (``batch.status``).
    Reasons and callbacks are not recorded: they are empty."""
    counts = {status: found.counts.get(status, 0) for status in STATUSES}
    done = sum(counts[status] for status in ENDED)
    plain = found.to_json()
    del plain["position"]
    return plain | {
        "counts": counts,
        "done": done,
        "percent": 100.0 * done / found.total if found.total else (100.0 if found.state == "complete" else 0.0),
        "rate": 0.0,
        "eta": None,
        "children": 0,
        "bad_children": 0,
        "reasons": [],
        "called": {},
        "paused": None,
    }
