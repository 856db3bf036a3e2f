"""Entries of the stream become rows: several of one job are merged here, before the database hears of them.

A pure function of the entries and the last position given out. Every entry passes through here: it is written
for speed.
"""

from __future__ import annotations

from functools import lru_cache

from henchman.config_history import ENDED
from henchman.history.entries import (
    NOT_TOLD,
    Detail,
    Entry,
    batch_of,
    host_of,
    ident,
    name,
    number_of,
    plain,
    read_detail,
    said,
)
from henchman.history.records import OF_BATCH
from henchman.history.rows import BatchRow, ChangeRow, EventRow, MessageRow, Rows
from henchman.history.schema import WORD

__all__ = ["Fold"]

_ENDED = frozenset(ENDED)
_STATES = ("open", "closed", "complete")
_WHYS = ("aborted", "cancelled", "expired", "invalidated", "abandoned")
_NO_RUN = ("staged", "started")  # "endings" that end no run
_NONE = ""  # an error or result of an earlier run, taken away
_AS_WRITTEN = [b"k", b"j", b"b", b"s", b"a", b"w", b"d"]  # the fields of a job's entry, as the scripts write them


class Fold:
    """One chunk of the stream."""

    def __init__(self, highest: int) -> None:
        self.rows = Rows({}, {}, [], [])
        self.highest = highest

    def add(self, entry: Entry) -> None:
        """Take in the next entry; kinds that are not known are left out."""
        stream_id, flat = entry
        number, at = number_of(stream_id)
        self.highest = sid = number if number > self.highest else self.highest + 1
        if flat[1] == b"job" and flat[::2] == _AS_WRITTEN:
            jid, batch, status, attempt, process, text = flat[3::2]
            self._job(sid, at, ident(jid), batch_of(batch), said(status), attempt, process, text)
        else:
            self._other(sid, at, dict(zip(flat[::2], flat[1::2], strict=False)))

    def _other(self, sid: int, at: float, told: dict[bytes, bytes]) -> None:
        kind, batch, jid = told.get(b"k"), batch_of(told.get(b"b", b"")), ident(told.get(b"j", b""))
        words, text = told.get(b"s", b""), told.get(b"d", b"")
        if kind == b"batch":
            if batch is not None:
                self._batch(sid, at, batch, said(words), text)
        elif not jid:
            return
        elif kind == b"job":
            self._job(sid, at, jid, batch, said(words), told.get(b"a", b""), told.get(b"w", b""), text)
        elif kind == b"log":
            detail, _ = read_detail(text)
            self.rows.messages.append(MessageRow(jid, sid, batch, at, plain(detail.text) or ""))
            self._event(sid, jid, batch)
        elif kind == b"progress":
            detail, _ = read_detail(text)
            event = self._event(sid, jid, batch)
            event.progress_done, event.progress_total = detail.done, detail.total

    def _event(self, sid: int, jid: str, batch: str | None) -> EventRow:
        event = self.rows.events.get(jid)
        if event is None:
            event = self.rows.events[jid] = EventRow(jid, batch, born=sid)
        event.changed = sid
        return event

    def _job(
        self, sid: int, at: float, jid: str, batch: str | None, status: str, number: bytes, worker: bytes, text: bytes
    ) -> None:
        detail, kept = read_detail(text)
        process = _process(worker)
        attempt = _attempt(number)
        event = self.rows.events.get(jid) or self._event(sid, jid, batch)
        event.changed = sid
        event.status = status = status[:WORD]
        if attempt:
            event.attempts = attempt
        if detail.class_ is not None:
            _born(event, at, detail)
        elif detail.queue is not None:
            event.queue = name(detail.queue)  # it was moved
        event.ended_at = at if status in _ENDED else 0.0
        started, ending = detail.started, plain(detail.ending)
        if status == "working":
            event.started_at, event.process, event.host = at, process, process and host_of(process)
        elif ending not in _NO_RUN:
            _ends(event, detail)
            if started is not None:
                event.started_at = started
                if process is not None:
                    event.process, event.host = process, host_of(process)
        ended = ending and ending[:WORD]
        change = (jid, sid, batch, status, attempt, process, at, kept, started, detail.elapsed, ended)
        self.rows.changes.append(change)  # a ChangeRow, without what it costs to make one

    def _batch(self, sid: int, at: float, batch: str, state: str, text: bytes) -> None:
        detail, kept = read_detail(text)
        row = self.rows.batches.get(batch)
        if row is None:
            row = self.rows.batches[batch] = BatchRow(batch)
        row.changed = sid
        if state in _STATES:
            row.state = state
        elif state in _WHYS:
            row.why = state
        if state == "open":
            row.created = at
        elif state == "closed":
            row.closed, row.completed = at, 0.0
        elif state == "complete":
            row.completed = at
        row.description = plain(detail.description) if detail.description is not None else row.description
        row.tags = _json(detail.tags) or row.tags
        row.parent = ident(detail.parent.encode()) if detail.parent else row.parent
        row.expires = detail.expires if isinstance(detail.expires, float) else row.expires
        row.generation = detail.generation if detail.generation is not None else row.generation
        row.total = int(detail.total) if detail.total is not None else row.total
        row.counts = _json(detail.counts) or row.counts
        self.rows.changes.append(ChangeRow(OF_BATCH + batch, sid, batch, state[:WORD], None, None, at, kept))


def _born(event: EventRow, at: float, detail: Detail) -> None:
    event.class_, event.queue = name(detail.class_), name(detail.queue)
    event.args = _json(detail.args)
    if detail.kwargs is not NOT_TOLD:
        event.kwargs = _json(detail.kwargs)
    if detail.tags is not NOT_TOLD:
        event.tags = _json(detail.tags)
    event.enqueued_at = at


def _ends(event: EventRow, detail: Detail) -> None:
    """A run ended (or a job that did not run)."""
    if detail.error_class is not None or detail.message is not None or detail.reason is not None:
        event.error_class = name(detail.error_class) or _NONE
        event.message = plain(detail.message if detail.message is not None else detail.reason)
        event.traceback = _json(detail.traceback) or _NONE
    elif event.status == "finished":
        event.error_class = event.message = event.traceback = _NONE
    if event.status in _ENDED:
        event.result = _NONE if detail.result is NOT_TOLD else _json(detail.result)


def _json(raw: object) -> str | None:
    """JSON as text; None when nothing was told."""
    return bytes(raw).decode() or None  # type: ignore[call-overload]


@lru_cache(100)
def _attempt(number: bytes) -> int | None:
    return int(number) if number.isdigit() and len(number) < 9 else None


@lru_cache(1000)
def _process(worker: bytes) -> str | None:
    return name(said(worker)) or None
