"""The figures of what ran in one process: runs, failures, durations, by class."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from henchman.client.runtime import Runtime
from henchman.errors import ServerAway
from henchman.store.metrics import LIMITS, Counted, bucket_of, flush, forms, metric_name
from henchman.work.unit import Unit

__all__ = ["ExecutionMetrics"]

RAISED = frozenset({"retry", "dead", "kept", "gone"})
MOST_WRAPPED = 1000  # names that pushers chose; beyond, what is wrapped counts under the class that wraps it

_FIRST = LIMITS[0] / 1000  # seconds: quicker runs need no look into the limits


class _Cell:
    """The figures of one class since the last flush; ``seconds`` of runs that did not raise."""

    __slots__ = ("causes", "failed", "histogram", "processed", "seconds")

    def __init__(self) -> None:
        self.processed = self.failed = 0
        self.seconds = 0.0
        self.histogram = [0] * (len(LIMITS) + 1)
        self.causes = Counter[str]()  # of those that failed, other ones than an error


class ExecutionMetrics:
    """The figures of one process: what ran between two heartbeats. The acker's thread adds, the heart writes.

    A kill loses counts that were not written, and a write whose answer was lost may count twice. Only units that ran
    count; a business failure ran well, an error did not. A run that a stop interrupted does not count: it will run
    again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # once for each batch of settled units, never in a job's thread
        self._cells: dict[str, _Cell] = {}

    def count(self, rows: Iterable[tuple[Unit, str, bytes, float | str, bytes]]) -> None:
        """Add units that were settled, with their endings. Short runs of one class in a row are added up on the way."""
        with self._lock:
            last: Any = None
            short, seconds = 0, 0.0
            for unit, ending, _, _, _ in rows:
                elapsed = unit.elapsed
                if elapsed is None:
                    continue
                job = unit.job
                name = job.get("wrapped") or job["class"]
                if elapsed < _FIRST and ending == "done":
                    if name != last:
                        self._add_short(last, short, seconds)
                        last, short, seconds = self._known(name, job), 0, 0.0
                    short += 1
                    seconds += elapsed
                elif ending != "released":
                    self._add(self._cells[self._known(name, job)], unit, ending, elapsed)
            self._add_short(last, short, seconds)

    def _add_short(self, name: Any, count: int, seconds: float) -> None:
        if count:
            cell = self._cells[name]
            cell.processed += count
            cell.seconds += seconds
            cell.histogram[0] += count

    @staticmethod
    def _add(cell: _Cell, unit: Unit, ending: str, elapsed: float) -> None:
        cell.processed += 1
        if ending in RAISED:
            cell.failed += 1
            if (cause := getattr(unit, "cause", "error")) != "error":
                cell.causes[cause] += 1
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
            cells, self._cells = self._cells, {}
        taken: dict[str, Counted] = {}
        for name, cell in cells.items():
            if cell.processed:
                counted = Counted(cell.processed, cell.failed, round(cell.seconds * 1000), cell.histogram, cell.causes)
                _join(taken, metric_name(name), counted)
        return taken

    def flush(self, runtime: Runtime, now: float) -> None:
        """Write down what was counted as of the Unix time ``now``.

        ServerAway: it is kept and goes with the next. ServerError: the server refused it, it is lost.
        """
        counts = self.take()
        if not counts:
            return
        at = dt.datetime.fromtimestamp(now, dt.UTC)
        try:
            runtime.connections.run(flush(runtime.keys, at, counts, forms(runtime.config.sidekiq)))
        except ServerAway:
            self.put_back(counts)
            raise

    def put_back(self, counts: Mapping[str, Counted]) -> None:
        """Take back what could not be flushed; it goes with the next."""
        with self._lock:
            for name, one in counts.items():
                cell = self._cells.setdefault(name, _Cell())
                cell.processed += one.processed
                cell.failed += one.failed
                cell.seconds += one.ms / 1000
                cell.histogram = [old + new for old, new in zip(cell.histogram, one.histogram, strict=True)]
                cell.causes.update(one.causes)


def _join(taken: dict[str, Counted], name: str, more: Counted) -> None:
    """Two classes may have one name in metrics."""
    old = taken.get(name)
    if old is not None:
        histogram = [a + b for a, b in zip(old.histogram, more.histogram, strict=True)]
        figures = old.processed + more.processed, old.failed + more.failed, old.ms + more.ms
        more = Counted(*figures, histogram, Counter(old.causes) + Counter(more.causes))
    taken[name] = more
