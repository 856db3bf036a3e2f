"""Time-outs of running jobs: strikes at the deadline, gives up on a job that ignores it for ``grace`` seconds.

Sleeps while no job with a time-out runs.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from henchman.errors import JobTimeout
from henchman.kernel.service import Ticker
from henchman.worker.run import Run, Seat

__all__ = ["Watchdog"]

Strike = Callable[[Seat, Run, type[BaseException]], bool]


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
        self._strike = strike
        self._on_abandon = on_abandon
        self._heap: list[tuple[float, int, Run, Seat | None]] = []
        self._runs: set[Run] = set()
        self._number = itertools.count()
        self._lock = threading.Lock()

    def watch(self, run: Run, seat: Seat | None) -> None:
        """Watch ``run``, which has a deadline. Async runs strike themselves: they are only watched for the end."""
        if run.deadline is None:
            return
        first = run.deadline if seat is not None else run.deadline + self.grace
        with self._lock:
            self._runs.add(run)
            soonest = not self._heap or first < self._heap[0][0]
            heapq.heappush(self._heap, (first, next(self._number), run, seat))
            if len(self._heap) > 1000 + 2 * len(self._runs):  # mostly runs that are over: keep what still runs
                self._heap = [entry for entry in self._heap if entry[2] in self._runs]
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
                while self._heap and self._heap[0][2] not in self._runs:
                    heapq.heappop(self._heap)
                if not self._heap or self._heap[0][0] > now:
                    return self._heap[0][0] - now if self._heap else 3600.0
                due, number, run, seat = heapq.heappop(self._heap)
            if seat is not None and run.struck is None:
                if self._strike(seat, run, JobTimeout):
                    with self._lock:
                        heapq.heappush(self._heap, (due + self.grace, number, run, None))
            else:
                self.forget(run)
                self._on_abandon(run)
