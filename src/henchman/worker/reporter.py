"""What a process reports beside outcomes: figures of each class, and what tracked jobs say while they run.

``ExecutionMetrics`` counts what ran between two heartbeats: the acker's thread adds, the heart writes. Its limits: a
kill loses counts that were not written, and a write whose answer was lost may count twice. Only units that ran count; a
business failure ran well, an error did not. A run that a stop interrupted does not count: it will run again.

``JobReporter`` carries messages, progress and starts of tracked jobs to the server, ahead of their ends. It reports a
start when the run has lasted a while; the end of a shorter run tells when it began. It drops and counts the oldest
messages when they come faster than it can send them; of progress it sends only the latest.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import ServerAway
from henchman.store import batches
from henchman.store.call import command
from henchman.store.metrics import LIMITS, Counted, bucket_of, flush, forms, metric_name
from henchman.work.effects import EndingFacts, attempt_of, encoded
from henchman.work.unit import Unit
from henchman.worker.run import Run

__all__ = ["ExecutionMetrics", "JobReporter"]

LASTED = 0.05  # seconds after which a run is written down as started
SAID = 0.1  # seconds that words wait for company
AWAY = 0.5  # seconds between two tries while the server is away
MOST = 10_000  # words that wait
CHUNK = 500  # notes in one call
_TEXT = 10_000  # characters of one message


class JobReporter:
    """One a process; many threads speak. ``ring()`` wakes the thread that sends."""

    def __init__(self, runtime: Runtime, ring: Callable[[], None] = lambda: None) -> None:
        self._runtime = runtime
        self._ring = ring
        self._fresh: dict[Run, None] = {}  # running, and not written down yet; the first began first
        self._words: deque[tuple[str, ...]] = deque()
        self._progress: dict[str, tuple[str, ...]] = {}
        self._since = 0.0
        self._not_before = 0.0
        self._dropped = 0
        self._begun = self._timed = False  # a run began since the last look; whoever sends will look by itself
        self._sending = threading.Lock()

    def begin(self, run: Run) -> None:
        """A tracked run starts."""
        self._fresh[run] = None
        self._begun = True
        if not self._timed:  # else whoever sends looks again in a moment: short runs must not wake it each time
            self._timed = True
            self._ring()

    def end(self, run: Run) -> None:
        """It has ended: its end says everything."""
        self._fresh.pop(run, None)

    def log(self, run: Run, message: str) -> None:
        """A job says something."""
        records = run.records
        if not records:
            return
        text = str(message)[:_TEXT].encode("utf-8", "replace").decode()
        for jid in records:
            if len(self._words) >= MOST:
                self._words.popleft()
                self._dropped += 1
            self._words.append(_word("log", jid, run, {"text": text}))
        self._rung()

    def progress(self, run: Run, done: float, total: float | None) -> None:
        """A job says how far it is."""
        for jid in run.records:
            self._progress[jid] = _word("progress", jid, run, {"done": done, "total": total})
            self._rung()

    def _rung(self) -> None:
        if not self._since:
            self._since = time.monotonic()
            self._ring()

    def due_in(self) -> float | None:
        """Seconds until something should be sent; None when there is nothing."""
        if not self._fresh and not self._since:
            if self._begun:
                self._begun = False
                return LASTED
            self._timed = False
            if not self._fresh:  # else one began just now, and did not ring
                return None
        self._timed = True
        due = self._since + SAID if self._since else None
        for run in list(self._fresh):
            at = run.started + LASTED
            due = at if due is None else min(due, at)
            break
        return None if due is None else max(due, self._not_before) - time.monotonic()

    def send(self) -> None:
        """Send what there is to say. What cannot be sent because the server is away is kept."""
        if not self._fresh and not self._since:
            return
        with self._sending:
            if time.monotonic() < self._not_before:
                return
            try:
                self._send_started()
                self._send_words()
            except ServerAway:
                self._not_before = time.monotonic() + AWAY
            except Exception as error:  # refused, or a defect of ours: jobs go on, and their ends are what counts
                self._not_before = time.monotonic() + AWAY
                self._runtime.events.emit("part_failed", part="notes", error=error)

    def _send_started(self) -> None:
        before = time.monotonic() - LASTED
        lasting = [run for run in list(self._fresh) if 0.0 < run.started < before][:CHUNK]
        if not lasting:
            return
        keys = self._runtime.keys
        started = [batches.Started(run.unit.flight.key, run.unit.payload, _start(keys, run)) for run in lasting]
        try:
            self._runtime.connections.run(batches.started(keys, started))
        except ServerAway as error:
            if error.executed is None:  # perhaps it was written: a batch knows that, nobody else does
                lasting = [run for run in lasting if not run.batch_id]
                self._forget(lasting)
            raise
        self._forget(lasting)

    def _forget(self, runs: list[Run]) -> None:
        for run in runs:
            self._fresh.pop(run, None)

    def _send_words(self) -> None:
        if not self._since:
            return
        self._since = 0.0
        keys, runner = self._runtime.keys, self._runtime.connections
        while self._words or self._progress:
            some = [self._words.popleft() for _ in range(min(CHUNK, len(self._words)))]
            said = dict(self._progress)
            try:
                runner.run(batches.note(keys, [msgspec.json.encode([*some, *said.values()])]))
            except ServerAway as error:
                if error.executed is False:
                    self._words.extendleft(reversed(some))
                self._since = time.monotonic()
                raise
            for jid, word in said.items():
                if self._progress.get(jid) is word:
                    del self._progress[jid]
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            runner.run(command("INCRBY", keys.history_dropped, dropped, again=False))


def _word(kind: str, jid: str, run: Run, detail: dict[str, Any]) -> tuple[str, ...]:
    text = msgspec.json.encode(detail).decode()
    return ("said", kind, jid, run.batch_id, run.unit.flight.identity, text)


def _start(keys: Any, run: Run) -> bytes:
    told = EndingFacts(run.unit.flight.identity, attempt_of(run.job), {"started": round(run.started_at, 6)})
    return encoded(keys, run.job, "started", told)


RAISED = frozenset({"retry", "dead", "kept", "gone"})
MOST_WRAPPED = 1000  # names that pushers chose; beyond, what is wrapped counts under the class that wraps it

_FIRST = LIMITS[0] / 1000  # seconds: quicker runs need no look into the limits


class _Cell:
    """The figures of one class since the last flush; ``seconds`` of runs that did not raise."""

    __slots__ = ("failed", "histogram", "processed", "seconds")

    def __init__(self) -> None:
        self.processed = 0
        self.failed = 0
        self.seconds = 0.0
        self.histogram = [0] * (len(LIMITS) + 1)


class ExecutionMetrics:
    """The figures of one process."""

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
                    self._add(self._cells[self._known(name, job)], ending, elapsed)
            self._add_short(last, short, seconds)

    def _add_short(self, name: Any, count: int, seconds: float) -> None:
        if count:
            cell = self._cells[name]
            cell.processed += count
            cell.seconds += seconds
            cell.histogram[0] += count

    @staticmethod
    def _add(cell: _Cell, ending: str, elapsed: float) -> None:
        cell.processed += 1
        if ending in RAISED:
            cell.failed += 1
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
                counted = Counted(cell.processed, cell.failed, round(cell.seconds * 1000), cell.histogram)
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


def _join(taken: dict[str, Counted], name: str, more: Counted) -> None:
    """Two classes may have one name in metrics."""
    old = taken.get(name)
    if old is not None:
        histogram = [a + b for a, b in zip(old.histogram, more.histogram, strict=True)]
        more = Counted(old.processed + more.processed, old.failed + more.failed, old.ms + more.ms, histogram)
    taken[name] = more
