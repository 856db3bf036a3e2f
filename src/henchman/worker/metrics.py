"""The figures of what ran in one process, by class: runs, failures, durations; and what ended on which day."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import ServerAway
from henchman.store.days import ClassNames, DayEnds, EndedRow
from henchman.store.fair import queue_of
from henchman.store.metrics import LIMITS, Counted, bucket_of, flush, forms, metric_name
from henchman.wire import times
from henchman.work.effects import STATUS, tracked
from henchman.work.unit import Row, Unit

__all__ = ["ExecutionMetrics"]

RAISED = frozenset({"retry", "dead", "kept", "gone"})
MOST_WRAPPED = 1000  # names that pushers chose; beyond, what is wrapped counts under the class that wraps it

_ENDS: Final = {"finished": "done", "error": "dead", "failed": "failed", "cancelled": "cancelled", "expired": "expired"}
_BACK: Final = {ending for ending, status in STATUS.items() if status == "enqueued"}  # into the queue again
_DAY = 86400  # seconds
_ERROR: Final = ("error_class", "error_message")
_LARGE = 1 << 20  # bytes of a payload that is not read again for the error in it

_FIRST = LIMITS[0] / 1000  # seconds: quicker runs need no look into the limits


class _Cell:
    """The figures of one class since the last flush; ``seconds`` of runs that did not raise. ``short``: those that
    returned at once and ended by it, not yet among the others."""

    __slots__ = ("causes", "failed", "histogram", "processed", "seconds", "short")

    def __init__(self) -> None:
        self.processed = self.failed = self.short = 0
        self.seconds = 0.0
        self.histogram = [0] * (len(LIMITS) + 1)
        self.causes = Counter[str]()  # of those that failed, other ones than an error


class ExecutionMetrics:
    """The figures of one process: what ran between two heartbeats. The acker's thread adds, the heart writes.

    A kill loses counts that were not written, and a write whose answer was lost may count twice. Only units that ran
    count; a business failure ran well, an error did not. A run that a stop interrupted does not count: it will run
    again.

    Beside them stands what ended, run or not, under the day on which the server settled it: ``now()`` is the server's
    time.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()  # once for each batch of settled units, never in a job's thread
        self._cells: dict[str, _Cell] = {}
        self._day = 0  # its number, Unix time / 86,400
        self._ends = {self._day: DayEnds()}  # by the day
        self._names = ClassNames()
        self._left = Counter[str]()  # jobs that left each queue

    def count(self, rows: Sequence[Row], left: Container[Unit] = ()) -> None:
        """Add units that were settled, with their endings; those that did not end by this are ``left``."""
        now = self._now()
        with self._lock:
            if now // _DAY != self._day:
                self._next_day(int(now // _DAY))
            self._left.update([row[0].flight.queue for row in rows if row[1] not in _BACK and row[0] not in left])
            last: Any = None
            short, seconds = 0, 0.0  # of the short runs of one class in a row
            for row in rows:
                unit, ending, _, _, effects = row
                elapsed = unit.elapsed
                if elapsed is None or elapsed >= _FIRST or ending != "done" or unit in left:
                    self._add_other(row, now, unit not in left)
                    continue
                job = unit.job
                name = job.get("wrapped") or job["class"]
                if name != last:
                    self._add_short(last, short, seconds)
                    last, short, seconds = self._known(name, job), 0, 0.0
                short += 1
                seconds += elapsed
                if effects:
                    self._remember("done", last, now, row)
            self._add_short(last, short, seconds)

    def _add_short(self, name: Any, count: int, seconds: float) -> None:
        if count:
            cell = self._cells[name]
            cell.short += count
            cell.seconds += seconds

    def _add_other(self, row: Row, now: float, ended: bool) -> None:
        """Add what ran longer, did not return, or did not run."""
        unit, ending, _, _, _ = row
        job = unit.job
        name = job.get("wrapped") or job.get("class")
        if unit.elapsed is not None and ending != "released":
            name = self._known(name, job)
            self._add(self._cells[name], unit, ending, unit.elapsed)
        if ended and (end := _ENDS.get(STATUS.get(ending, ""))):
            name = name if isinstance(name, str) else str(job.get("class") or "?")
            self._ends[self._day].counts[name, end] += 1
            self._remember(end, name, now, row)

    def _remember(self, end: str, name: str, now: float, row: Row) -> None:
        """Keep what is to be told of a job that gave up, or that returned and is tracked or has a key."""
        job, ends = row[0].job, self._ends[self._day]
        if end == "dead":
            error = _error_in(row[2])
            ends.dead.append(EndedRow(now, _text(job.get("jid")), name, *map(_text, map(error.get, _ERROR))))
        elif end == "done" and (tracked(job) or "key" in job.get("hm", ())):
            ends.done.append(EndedRow(now, _text(job.get("jid")), name))

    def _next_day(self, day: int) -> None:
        self._add_up()
        self._day = day
        self._ends.setdefault(day, DayEnds())

    def _add_up(self) -> None:
        """Add the short runs to the others, and to the day."""
        for name, cell in self._cells.items():
            if cell.short:
                cell.processed += cell.short
                cell.histogram[0] += cell.short
                self._ends[self._day].counts[name, "done"] += cell.short
                cell.short = 0

    @staticmethod
    def _add(cell: _Cell, unit: Unit, ending: str, elapsed: float) -> None:
        cell.processed += 1
        if ending in RAISED:
            cell.failed += 1
            if unit.cause != "error":
                cell.causes[unit.cause] += 1
        else:
            cell.seconds += elapsed
            cell.histogram[bucket_of(elapsed * 1000)] += 1

    def _known(self, name: Any, job: Mapping[str, Any]) -> str:
        """The name under which a run counts; there is a cell of that name afterwards."""
        if not isinstance(name, str) or (name not in self._cells and len(self._cells) >= MOST_WRAPPED):
            name = job["class"]
        if name not in self._cells:
            self._cells[name] = _Cell()
        return str(name)

    def take(self) -> dict[str, Counted]:
        """What was counted since the last time, by class as it stands in metrics."""
        with self._lock:
            self._add_up()
            cells, self._cells = self._cells, {}
        taken: dict[str, Counted] = {}
        for name, cell in cells.items():
            if cell.processed:
                counted = Counted(cell.processed, cell.failed, round(cell.seconds * 1000), cell.histogram, cell.causes)
                _join(taken, metric_name(name), counted)
        return taken

    def take_days(self) -> dict[str, DayEnds]:
        """What ended since the last time, by day; of classes beyond those that a day counts apart under one name."""
        with self._lock:
            self._add_up()
            taken, self._ends = self._ends, {self._day: DayEnds()}
        return {times.day(day * _DAY): self._names.bounded(day, ends) for day, ends in taken.items() if ends.counts}

    def take_left(self) -> Counter[str]:
        """How many jobs left each queue since the last time; those of the lines of a fair queue are its own."""
        with self._lock:
            taken, self._left = self._left, Counter()
        left = Counter[str]()
        for name, many in taken.items():
            left[queue_of(name)] += many
        return left

    def flush(self, runtime: Runtime, now: float) -> None:
        """Write down what was counted as of the Unix time ``now``.

        ServerAway: it is kept and goes with the next. ServerError: the server refused it, it is lost.
        """
        counts, days, left = self.take(), self.take_days(), self.take_left()
        if not counts and not days and not left:
            return
        at = dt.datetime.fromtimestamp(now, dt.UTC)
        try:
            runtime.connections.run(flush(runtime.keys, at, counts, forms(runtime.config.sidekiq), days, left))
        except ServerAway:
            self.put_back(counts, days, left)
            raise

    def put_back(self, counts: Mapping[str, Counted], days: Mapping[str, DayEnds], left: Mapping[str, int]) -> None:
        """Take back what could not be flushed; it goes with the next."""
        with self._lock:
            self._left.update(left)
            for name, one in counts.items():
                cell = self._cells.setdefault(name, _Cell())
                cell.processed += one.processed
                cell.failed += one.failed
                cell.seconds += one.ms / 1000
                cell.histogram = [old + new for old, new in zip(cell.histogram, one.histogram, strict=True)]
                cell.causes.update(one.causes)
            for day, ends in days.items():
                number = int(times.first_of_day(day) // _DAY)
                ends.before(self._ends.get(number, DayEnds()))
                self._ends[number] = ends


def _join(taken: dict[str, Counted], name: str, more: Counted) -> None:
    """Two classes may have one name in metrics."""
    old = taken.get(name)
    if old is not None:
        histogram = [a + b for a, b in zip(old.histogram, more.histogram, strict=True)]
        figures = old.processed + more.processed, old.failed + more.failed, old.ms + more.ms
        more = Counted(*figures, histogram, Counter(old.causes) + Counter(more.causes))
    taken[name] = more


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _error_in(stored: bytes) -> Mapping[str, Any]:
    """The payload with which a job gave up; empty where it says nothing."""
    try:
        found = msgspec.json.decode(stored) if len(stored) < _LARGE else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
