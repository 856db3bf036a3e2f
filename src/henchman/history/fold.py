"""Entries of the stream become rows: several of one job are merged here, before the database hears of them.

A pure function of the entries, the last position given out, and which runs were open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from henchman.config_history import ENDED
from henchman.history.entries import Detail, Entry, ident, name, number_of, plain, read_detail
from henchman.history.records import OF_BATCH
from henchman.history.rows import BatchRow, ChangeRow, EventRow, MessageRow, Rows, RunRow

__all__ = ["Fold"]

_ENDED = frozenset(ENDED)
_STATES = ("open", "closed", "complete")
_WHYS = ("aborted", "cancelled", "expired", "invalidated", "abandoned")
_NO_RUN = ("staged", "started")  # "endings" that end no run
_NONE = ""  # an error or result of an earlier run, taken away


class Fold:
    """One chunk of the stream. ``open_runs`` (jid → run) is not changed: ``runs_after`` gives what it becomes."""

    def __init__(self, highest: int, open_runs: Mapping[str, int]) -> None:
        self.rows = Rows({}, {}, {}, [], [])
        self.highest = highest
        self._before = open_runs
        self._runs: dict[str, int | None] = {}

    def add(self, entry: Entry) -> None:
        """Take in the next entry; kinds that are not known are left out."""
        stream_id, flat = entry
        told = dict(zip(flat[::2], flat[1::2], strict=False))
        number, at = number_of(stream_id)
        self.highest = sid = max(number, self.highest + 1)
        detail, text = read_detail(told.get(b"d", b""))
        kind = told.get(b"k")
        batch = ident(told.get(b"b", b"")) or None
        if kind == b"batch":
            if batch is not None:
                self._batch(sid, at, batch, told.get(b"s", b"").decode("utf-8", "replace"), detail, text)
            return
        jid = ident(told.get(b"j", b""))
        if not jid:
            return
        if kind == b"job":
            self._job(sid, at, jid, batch, told, detail, text)
        elif kind == b"log":
            self.rows.messages.append(MessageRow(jid, sid, batch, at, plain(detail.text) or ""))
            self._event(sid, jid, batch)
        elif kind == b"progress":
            event = self._event(sid, jid, batch)
            event.progress_done, event.progress_total = detail.done, detail.total

    def runs_after(self) -> Iterator[tuple[str, int | None]]:
        """The runs that this chunk opened, and with None those that it closed."""
        return iter(self._runs.items())

    def _event(self, sid: int, jid: str, batch: str | None) -> EventRow:
        event = self.rows.events.get(jid)
        if event is None:
            event = self.rows.events[jid] = EventRow(jid, batch, born=sid)
        event.changed = sid
        return event

    def _job(
        self, sid: int, at: float, jid: str, batch: str | None, told: dict[bytes, bytes], detail: Detail, text: str
    ) -> None:
        status = told.get(b"s", b"").decode("utf-8", "replace")[:20]
        process = name(told.get(b"w", b"").decode("utf-8", "replace")) or None
        number = told.get(b"a", b"")
        attempt = int(number) if number.isdigit() and len(number) < 9 else None
        event = self._event(sid, jid, batch)
        event.status = status
        if attempt:
            event.attempts = attempt
        if detail.class_ is not None:
            _born(event, at, detail)
            text = ""  # all of it stands in the event
        elif detail.queue is not None:
            event.queue = name(detail.queue)  # it was moved
        if status in _ENDED:
            event.ended_at = at
        else:
            event.ended_at = 0.0
        if status == "working":
            self._starts(sid, at, event, attempt, process)
        elif detail.ending not in _NO_RUN:
            self._ends(sid, at, event, attempt, process, detail)
        self.rows.changes.append(ChangeRow(jid, sid, batch, status, attempt, process, at, text))

    def _starts(self, sid: int, at: float, event: EventRow, attempt: int | None, process: str | None) -> None:
        event.started_at, event.process, event.host = at, process, _host(process)
        self.rows.runs[sid] = RunRow(event.jid, sid, attempt, process, event.host, at)
        self._runs[event.jid] = sid

    def _ends(
        self, sid: int, at: float, event: EventRow, attempt: int | None, process: str | None, detail: Detail
    ) -> None:
        """A run ended (or a job that did not run)."""
        if detail.error_class is not None or detail.message is not None or detail.reason is not None:
            event.error_class = name(detail.error_class) or _NONE
            event.message = plain(detail.message if detail.message is not None else detail.reason)
            event.traceback = _json(detail.traceback) or _NONE
        elif event.status == "finished":
            event.error_class = event.message = event.traceback = _NONE
        if event.status in _ENDED:
            event.result = _json(detail.result) or _NONE
        run = self._runs[event.jid] if event.jid in self._runs else self._before.get(event.jid)
        started = detail.started
        if run is None and started is None:
            return
        if started is not None:
            event.started_at = started
            if process is not None:
                event.process, event.host = process, _host(process)
        if run is None:
            row = self.rows.runs[sid] = RunRow(event.jid, sid, attempt, process, _host(process), started)
        else:
            row = self.rows.runs.setdefault(run, RunRow(event.jid, run))
            self._runs[event.jid] = None
        if started is not None:
            row.started = started  # its own word; that it runs was told a little later
        row.ended = at
        row.ending = (detail.ending or event.status or "")[:20]

    def _batch(self, sid: int, at: float, batch: str, state: str, detail: Detail, text: str) -> None:
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
        self.rows.changes.append(ChangeRow(OF_BATCH + batch, sid, batch, state[:20], None, None, at, text))


def _born(event: EventRow, at: float, detail: Detail) -> None:
    event.class_, event.queue = name(detail.class_), name(detail.queue)
    event.args, event.kwargs, event.tags = (_json(one) for one in (detail.args, detail.kwargs, detail.tags))
    event.enqueued_at = at


def _json(raw: object) -> str | None:
    """JSON as text; None when nothing was told."""
    return bytes(raw).decode() or None  # type: ignore[call-overload]


def _host(process: str | None) -> str | None:
    """The host of ``host:pid:nonce``."""
    return None if process is None else process.rsplit(":", 2)[0]
