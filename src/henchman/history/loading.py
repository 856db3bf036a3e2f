"""Rows of the tables as records: JSON read, what was taken away shown as nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from henchman.history.entries import host_of
from henchman.history.records import OF_BATCH, Batch, Change, Event, Message, Run
from henchman.wire import jsontext

__all__ = ["batch_of", "change_of", "counts_of", "event_of", "message_of", "run_of"]


def _loads(text: str | None, otherwise: Any) -> Any:
    if not text:
        return otherwise
    try:
        return jsontext.loads(text)  # type: ignore[arg-type]
    except (msgspec.MsgspecError, ValueError):
        pass
    try:
        return json.loads(text)  # numbers that are too large for a quick reader
    except (ValueError, RecursionError):
        return otherwise


def _of_kind(value: Any, kind: type, otherwise: Any) -> Any:
    return value if isinstance(value, kind) else otherwise


def event_of(row: Any) -> Event:
    """An event out of its row, read with every column."""
    (
        jid, batch, class_, queue, args, kwargs, tags, status, attempts, enqueued_at, started_at, ended_at, result,
        error_class, message, traceback, done, total, process, host, born, changed,
    ) = row  # fmt: skip
    return Event(
        jid=jid,
        batch=batch,
        class_=class_ or "",
        queue=queue or "",
        args=_of_kind(_loads(args, None), list, None),
        kwargs=_of_kind(_loads(kwargs, None), dict, None),
        tags=_of_kind(_loads(tags, []), list, []),
        status=status or "",
        attempts=attempts or 0,
        enqueued_at=enqueued_at,
        started_at=started_at,
        ended_at=ended_at or None,
        result=_loads(result, None),
        error_class=error_class or None,
        message=message or None,
        traceback=[str(line) for line in _of_kind(_loads(traceback, []), list, [])],
        progress_done=done,
        progress_total=total,
        process=process,
        host=host,
        seq=born,
        changed=changed,
    )


def _of_job(jid: str | None) -> str | None:
    return None if jid is None or jid.startswith(OF_BATCH) else jid


def change_of(row: Any) -> Change:
    """A change out of its row."""
    whose, sid, batch, status, attempt, process, at, detail, started, elapsed, ending = row
    facts = {"ending": ending, "started": started, "elapsed": elapsed}
    told = {name: value for name, value in facts.items() if value is not None} | _of_kind(_loads(detail, {}), dict, {})
    return Change(
        position=sid,
        jid=_of_job(whose),
        batch=batch,
        status=status or "",
        attempt=attempt,
        process=process,
        at=at,
        detail=told,
    )


def run_of(row: Any) -> Run:
    """A run out of its row."""
    jid, _, attempt, process, started, ended, ending = row
    host = None if process is None else host_of(process)
    return Run(jid=jid, attempt=attempt, process=process, host=host, started=started, ended=ended, ending=ending)


def message_of(row: Any) -> Message:
    """A message out of its row."""
    jid, sid, _, at, text = row
    return Message(position=sid, jid=jid, at=at, text=text or "")


def counts_of(row: Any) -> dict[str, int]:
    """How many jobs had each status when the batch was complete; empty: it is not, or this was not told."""
    if row is None or row.state != "complete":
        return {}
    told = _of_kind(_loads(row.counts, {}), dict, {})
    return {status: many for status, many in told.items() if isinstance(many, int) and many > 0}


def batch_of(id: str, row: Any, counts: dict[str, int]) -> Batch:
    """A batch out of its row, or out of what its events tell when it has none."""
    told: tuple[Any, ...] = (id, *[None] * 12, 0) if row is None else tuple(row)
    _, description, tags, state, why, parent, created, closed, completed, expires, generation, total, _, changed = told
    return Batch(
        id=id,
        description=description or "",
        tags=_of_kind(_loads(tags, []), list, []),
        state=state or "",
        why=why or "",
        parent=parent,
        created=created,
        closed=closed,
        completed=completed or None,
        expires=expires,
        generation=generation or 1,
        total=max(total or 0, sum(counts.values())),
        counts=counts,
        position=changed,
    )
