"""What is read from history: frozen structs, each with ``to_json`` (plain values; times are Unix seconds).

``seq`` and ``changed`` are positions: whole numbers that only rise, in the order in which things were recorded. They
are what pages and ``changed_since`` go by, and they mean nothing else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

__all__ = [
    "FAILURES",
    "MOST",
    "OF_BATCH",
    "STATUSES",
    "Batch",
    "Change",
    "Changes",
    "Event",
    "EventPage",
    "Job",
    "Message",
    "Run",
    "Search",
]

STATUSES = (
    *("blocked", "scheduled", "enqueued", "working", "retrying"),
    *("finished", "failed", "error", "cancelled", "expired"),
)
FAILURES = ("failed", "error")
OF_BATCH = "batch:"  # and its id: whose change it is, where it is no job's
MOST = 10_000  # records of one page


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The root of what is read."""

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Event(Record, frozen=True, kw_only=True):
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


class EventPage(Record, frozen=True, kw_only=True):
    """Some events, and ``after`` to ask for the next ones with; None: there are no more."""

    events: list[Event]
    after: int | None


class Changes(Record, frozen=True, kw_only=True):
    """The events that changed, in the order in which they did, and the position to go on from."""

    events: list[Event]
    position: int
    more: bool


class Change(Record, frozen=True, kw_only=True):
    """One step in the life of a job (or of a batch, then ``jid`` is None). ``detail``: what was told with it."""

    position: int
    jid: str | None
    batch: str | None
    status: str
    attempt: int | None
    process: str | None
    at: float
    detail: dict[str, Any]


class Run(Record, frozen=True, kw_only=True):
    """One execution: where, when, and how it ended (``ending`` is None while it goes on)."""

    jid: str
    attempt: int | None
    process: str | None
    host: str | None
    started: float | None
    ended: float | None
    ending: str | None


class Message(Record, frozen=True, kw_only=True):
    """What a job said with ``current_job().log``."""

    position: int
    jid: str
    at: float
    text: str


class Job(Record, frozen=True, kw_only=True):
    """One job with its whole life, each list in the order in which it came about."""

    event: Event
    changes: list[Change]
    runs: list[Run]
    messages: list[Message]


class Batch(Record, frozen=True, kw_only=True):
    """What is recorded of a batch. ``counts``: jobs by status, as the server counted them when it was complete,
    else events as history has them now."""

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
    """What to look for; everything that is given must fit. Times are Unix seconds of when a job was enqueued.

    ``text`` is looked for in messages, error classes and arguments, in any case: give something else with it, or a
    time, because every event that fits the rest is read.
    """

    class_: str | None = None
    status: str | None = None
    batch: str | None = None
    queue: str | None = None
    since: float | None = None
    until: float | None = None
    text: str | None = None
