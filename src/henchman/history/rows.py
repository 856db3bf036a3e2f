"""Rows as they go into the tables: fields in the order of the columns; None leaves what stands there."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

__all__ = ["BatchRow", "ChangeRow", "EventRow", "MessageRow", "Rows"]


class BatchRow(msgspec.Struct, gc=False):
    id: str
    description: str | None = None
    tags: str | None = None
    state: str | None = None
    why: str | None = None
    parent: str | None = None
    created: float | None = None
    closed: float | None = None
    completed: float | None = None
    expires: float | None = None
    generation: int | None = None
    total: int | None = None
    counts: str | None = None
    changed: int = 0


class EventRow(msgspec.Struct, gc=False):
    jid: str
    batch: str | None = None
    class_: str | None = msgspec.field(default=None, name="class")
    queue: str | None = None
    args: str | None = None
    kwargs: str | None = None
    tags: str | None = None
    status: str | None = None
    attempts: int | None = None
    enqueued_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    result: str | None = None
    error_class: str | None = None
    message: str | None = None
    traceback: str | None = None
    progress_done: float | None = None
    progress_total: float | None = None
    process: str | None = None
    host: str | None = None
    born: int = 0
    changed: int = 0


class ChangeRow(NamedTuple):
    jid: str
    sid: int
    batch: str | None = None
    status: str | None = None
    attempt: int | None = None
    process: str | None = None
    at: float | None = None
    detail: str | None = None
    started: float | None = None
    elapsed: float | None = None
    ending: str | None = None


class MessageRow(NamedTuple):
    jid: str
    sid: int
    batch: str | None = None
    at: float | None = None
    text: str | None = None


class Rows(NamedTuple):
    """What one transaction writes."""

    batches: dict[str, BatchRow]
    events: dict[str, EventRow]
    changes: list[tuple[Any, ...]]
    messages: list[tuple[Any, ...]]
