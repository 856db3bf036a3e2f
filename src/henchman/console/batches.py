"""Pages of batches: all of them; one, with its counts, its reasons, its jobs, and as files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from henchman.batch import results as batch_results
from henchman.batch.batch import Batch, BatchStatus, find_batch
from henchman.batch.listing import BatchRow, find_batches, newest_batches, one_batch, workflow_steps
from henchman.client.runtime import Runtime
from henchman.console.files import EVENTS_CSV, JSON_LINES, file_of
from henchman.console.graph import draw, waterfall
from henchman.console.pages import Download, Query, Screen, View
from henchman.errors import ArgumentError, BatchError, HistoryError, UnknownBatch
from henchman.history.records import STATUSES, Event, LiveMessages, batch_status
from henchman.inspector.base import Entry
from henchman.kernel.text import visible
from henchman.oncall.deeds import NOBODY, Deed, Missing, Order, Unwanted
from henchman.store import batches
from henchman.store.call import iterate, run

__all__ = ["BatchPages", "Segment", "segments"]

_ROWS: Final = 25  # batches of a page
_JOBS: Final = 50  # jobs of a batch on a page
_STEPS: Final = 20  # steps of a workflow in the table, with their results
_GRAPH: Final = 2000  # steps of a workflow that are looked at for a picture
MARKS: Final = {
    "finished": "✓",
    "failed": "✕",
    "error": "✕",
    "working": "▶",
    "retrying": "↻",
    "blocked": "◌",
    "scheduled": "◷",
    "cancelled": "⊘",
    "expired": "⊘",
    "over": "⊘",
}
_PAUSE: Final = "No job of it starts any more, on any worker, nor of the batches in it; what runs goes on."
_FILE: Final = 500  # rows of a file that are read at once
_SHOWN: Final = {"": "all", "open": "under way", "bad": "with failures", "steps": "workflows"}
_ORDER: Final = ("finished", "failed", "error", "cancelled", "expired", "working", "retrying")


class Segment(NamedTuple):
    """A part of a bar: the status, how many, and place and width in thousandths."""

    status: str
    jobs: int
    x: float
    width: float


def segments(one: BatchStatus) -> list[Segment]:
    """The bar of a batch: what has ended, then what runs; what waits is the empty rest. No part is invisible."""
    found, at = list[Segment](), 0.0
    for status in _ORDER:
        many = one.counts.get(status, 0)
        if many and one.total:
            width = max(1000 * many / one.total, 4.0)
            found.append(Segment(status, many, at, width))
            at += width
    scale = min(1.0, 1000 / at) if at else 1.0
    return [part._replace(x=round(part.x * scale, 1), width=round(part.width * scale, 1)) for part in found]


class ServerJobs(NamedTuple):
    """What the server itself knows of a batch's jobs: those that gave up, and some that have not ended."""

    dead: Sequence[Entry]
    live: Sequence[tuple[str, str]]


class Recorded(NamedTuple):
    """The jobs of a batch out of history: a page of them, and where the next one begins; or why there is none."""

    events: Sequence[Event]
    after: int | None
    problem: str = ""


class BatchPages:
    """The pages and acts of batches."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.views: Mapping[tuple[str, int], View] = {
            ("batches", 0): self.all,
            ("batches", 1): self.one,
            ("batches", 2): self.file,
        }
        self.deeds: Mapping[tuple[str, str], Deed] = {
            ("batches", "pause"): Deed("Pause…", _PAUSE, self._pause, "one", asks="Reason"),
            ("batches", "resume"): Deed("Resume", "", self._resume, "one"),
            ("batches", "close"): Deed("Close…", "It takes no more jobs then.", self._close, "one"),
        }

    def all(self, query: Query) -> Screen:
        """All batches, the newest first."""
        query.unless_said(_ROWS)
        show: Any = query.word("show", *_SHOWN)
        keys = self._runtime.keys
        asked = newest_batches(keys, query.first, query.rows)
        if query.search or show:
            asked = find_batches(keys, query.search, show, query.first, query.rows)
        found = run(self._runtime.connections, asked)
        rows = [(one, segments(one.status)) for one in found.rows]
        facts = {"batches": rows, "total": found.total, "looked": found.looked, "show": show, "shows": _SHOWN}
        return Screen("batches.html", facts)

    def one(self, id: str, query: Query) -> Screen:
        """One batch: as the server counts it; as it is recorded, when the server has forgotten it."""
        _checked(self._runtime, id)
        row: BatchRow | None = run(self._runtime.connections, one_batch(self._runtime.keys, id))
        status = query.word("status", *STATUSES)
        if row and row.steps:
            query.unless_said(_STEPS)
        recorded = self._recorded(id, status, query)
        found = row or self._from_history(id)
        facts = {
            "batch": found.status,
            "bar": segments(found.status),
            "known": row is not None,
            "status": status,
            "recorded": recorded,
            "waterfall": waterfall(recorded.events, time.time()) if query.word("view", "waterfall") else None,
            "view": query.word("view", "waterfall"),
            "live": self._live(id, found.status, recorded),
            "jobs": self._on_server(id) if row and recorded.problem and not found.steps else None,
            "results": found.results,
        }
        return Screen("batch.html", facts | self._workflow(id, found.steps))

    def _workflow(self, id: str, many: int) -> dict[str, Any]:
        """The steps of a workflow, and their picture; of others none."""
        steps = run(self._runtime.connections, workflow_steps(self._runtime.keys, id, _STEPS)) if many else []
        if many > _GRAPH:
            return {"steps": steps, "shown": _STEPS, "drawing": None, "marks": {}}
        return {"steps": steps, "shown": _STEPS, "drawing": draw(steps) if steps else None, "marks": MARKS}

    def _from_history(self, id: str) -> BatchRow:
        """A batch that the server has forgotten; Missing when nothing is recorded of it."""
        missing = Missing(f"there is no batch {visible(id)} on this server (any more)")
        if self._runtime.config.why_history_is_off():
            raise missing
        try:
            found = self._runtime.open_history().reading.batch(id)
        except HistoryError as error:
            raise Missing(f"{missing}, and history does not answer: {error}") from None
        if found is None:
            raise Missing(f"{missing}, and nothing is recorded of one")
        return BatchRow(msgspec.convert(batch_status(found) | {"created": found.created or 0.0}, BatchStatus))

    def _recorded(self, id: str, status: str, query: Query) -> Recorded:
        if off := self._runtime.config.why_history_is_off():
            return Recorded([], None, off)
        try:
            reading = self._runtime.open_history().reading
            page = reading.events(id, status or None, after=query.after, limit=query.rows)
        except HistoryError as error:
            return Recorded([], None, str(error))
        return Recorded(page.events, page.after)

    def _live(self, id: str, status: BatchStatus, recorded: Recorded) -> LiveMessages | None:
        """What its running jobs say; None when none runs, or history does not tell."""
        if recorded.problem or not (status.counts.get("working") or status.done < status.total):
            return None
        try:
            found = self._runtime.open_history().reading.running_messages(id)
        except HistoryError:
            return None
        return found if found.messages or found.progress else None

    def _on_server(self, id: str) -> ServerJobs:
        keys, ask = self._runtime.keys, self._runtime.connections.run
        members = ask(batches.dead(keys, id, 0, _JOBS)).members
        _, live = ask(batches.live(keys, id, 0, _JOBS))
        dead = [Entry(one.payload, one.score, self._runtime.registry.mask) for one in members]
        jobs = [(jid, status) for jid, status in live.items() if not jid.startswith("batch:")]
        return ServerJobs(dead, jobs[:_JOBS])

    # ---- files

    def file(self, id: str, name: str, query: Query) -> Download:
        """``events``: its jobs out of history; ``results``: what they returned; for a spreadsheet or for programs."""
        _checked(self._runtime, id)
        makers: Mapping[str, Callable[[], Iterator[bytes]]] = {
            "events.csv": lambda: EVENTS_CSV.parts(self._events(id, query)),
            "events.ndjson": lambda: JSON_LINES.parts(self._events(id, query)),
            "results.csv": lambda: iterate(self._runtime.connections, batch_results.as_csv(self._runtime, id)),
            "results.ndjson": lambda: iterate(
                self._runtime.connections, batch_results.as_json_lines(self._runtime, id)
            ),
        }
        if name not in makers:
            raise Missing(f"there is no such file: {', '.join(makers)}")
        try:
            return file_of(f"{id[:40]}-{name}", makers[name]())
        except (UnknownBatch, BatchError, HistoryError) as error:
            raise Missing(str(error)) from None

    def _events(self, id: str, query: Query) -> Iterator[Sequence[Event]]:
        reading = self._runtime.open_history().reading
        status = query.word("status", *STATUSES)
        after: int | None = 0
        while after is not None:
            page = reading.events(id, status or None, after=after, limit=_FILE)
            yield page.events
            after = page.after

    # ---- acts

    def _close(self, id: str) -> str:
        self._act(id, lambda one: one.close())
        return f"{visible(id)} takes no more jobs"

    def _pause(self, id: str, *, order: Order = NOBODY) -> str:
        self._act(id, lambda one: one.pause(order.form.get("reason", ""), by=order.author))
        return f"{visible(id)} is paused: its jobs wait, and none starts"

    def _resume(self, id: str) -> str:
        self._act(id, lambda one: one.unpause())
        return f"{visible(id)} goes on"

    def _act(self, id: str, act: Callable[[Batch], Any]) -> Any:
        try:
            return act(find_batch(self._runtime, id))
        except (ArgumentError, BatchError) as error:
            raise Unwanted(str(error)) from None


def _checked(runtime: Runtime, id: str) -> None:
    """Missing when nothing can have this id."""
    try:
        find_batch(runtime, id)
    except ArgumentError:
        raise Missing(f"{visible(id)} is no id of a batch") from None
