"""Time-outs of running jobs: strikes at the deadline, gives up on a job that ignores it for ``grace`` seconds.

A job that stands where nothing may be raised is tried again every 10 ms.

Sleeps while no job with a time-out runs.
"""

from __future__ import annotations

import heapq
import itertools
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from henchman.errors import JobTimeout
from henchman.kernel.service import Ticker
from henchman.worker.run import Run, Seat

__all__ = ["Watchdog"]

Strike = Callable[[Seat, Run, type[BaseException]], str]

AGAIN = 0.01  # seconds until a job is tried again that stood where nothing may be raised
LONGEST = 0.003  # seconds; after that others may have the processor for AGAIN


class _Entry(NamedTuple):
    """At ``when`` raise ``error`` in ``seat``, or give the run up: without a seat, and at ``until``."""

    when: float
    number: int
    run: Run
    seat: Seat | None
    error: type[BaseException]
    until: float


class Watchdog(Ticker):
    """A heap of deadlines. ``on_abandon(run)`` is called once for a run that outlives its time-out by ``grace``."""

    name = "watchdog"

    def __init__(
        self,
        strike: Strike,
        on_abandon: Callable[[Run], None],
        on_error: Callable[[str, BaseException], None],
        grace: float = 30.0,
    ) -> None:
        super().__init__(on_error)
        self.grace = grace
        self.struck = 0  # how many jobs were
        self._strike = strike
        self._on_abandon = on_abandon
        self._heap: list[_Entry] = []
        self._runs: set[Run] = set()
        self._number = itertools.count()
        self._rested = 0.0
        self._lock = threading.Lock()

    def watch(self, run: Run, seat: Seat | None) -> None:
        """Watch ``run``, which has a deadline. Async runs strike themselves: they are only watched for the end."""
        if run.deadline is None:
            return
        first = run.deadline if seat is not None else run.deadline + self.grace
        self._add(first, run, seat, JobTimeout, first + self.grace)

    def strike(self, run: Run, seat: Seat, error: type[BaseException]) -> None:
        """Raise ``error`` in the job as soon as that is safe, for as long as it takes."""
        self._add(time.monotonic(), run, seat, error, math.inf)

    def _add(self, when: float, run: Run, seat: Seat | None, error: type[BaseException], until: float) -> None:
        with self._lock:
            self._runs.add(run)
            soonest = not self._heap or when < self._heap[0].when
            heapq.heappush(self._heap, _Entry(when, next(self._number), run, seat, error, until))
            if len(self._heap) > 1000 + 2 * len(self._runs):  # mostly runs that are over: keep what still runs
                self._heap = [entry for entry in self._heap if entry.run in self._runs]
                heapq.heapify(self._heap)
        if soonest:
            self.wake()

    def forget(self, run: Run) -> None:
        """The run is over."""
        with self._lock:
            self._runs.discard(run)

    def tick(self) -> float:
        """Strike whatever is due; seconds until the next deadline."""
        while True:
            now = time.monotonic()
            with self._lock:
                while self._heap and self._heap[0].run not in self._runs:
                    heapq.heappop(self._heap)
                if not self._heap or self._heap[0].when > now:
                    return self._heap[0].when - now if self._heap else 3600.0
                due = heapq.heappop(self._heap)
            then = self._due(due, now)
            if then is not None:
                with self._lock:
                    heapq.heappush(self._heap, then)

    def _insist(self, seat: Seat, run: Run, error: type[BaseException], now: float) -> str:
        """Look again and again for ``LONGEST`` seconds, and let the job go on for a few steps only between two looks.

        A thread gives the interpreter lock away where it waits, and what waits is in ``logging`` for instance, each
        time that somebody looks. Only in between it is where it may be struck.
        """
        if now < self._rested:
            return "later"
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            while (said := self._strike(seat, run, error)) == "later" and time.monotonic() < now + LONGEST:
                time.sleep(0)  # the interpreter lock, given and asked for again
            return said
        finally:
            sys.setswitchinterval(before)
            self._rested = time.monotonic() + AGAIN

    def _due(self, entry: _Entry, now: float) -> _Entry | None:
        """Strike, or give up; what is to be done about this run after that, and when."""
        run, seat = entry.run, entry.seat
        if seat is None or now >= entry.until:
            self.forget(run)
            self._on_abandon(run)
            return None
        if entry.error is JobTimeout and run.struck is not None:  # a stop was first
            return entry._replace(when=entry.until, seat=None)
        said = self._strike(seat, run, entry.error)
        if said == "later":
            said = self._insist(seat, run, entry.error, now)
        if said == "later":
            return entry._replace(when=now + AGAIN)
        if said == "over":
            self.forget(run)
            return None
        self.struck += 1
        return entry._replace(when=now + self.grace, seat=None) if entry.error is JobTimeout else None
