"""Places of limits that jobs of this process have, and who waits for them in it: short jobs, one behind the other.

While a limit is full a job that comes is parked on the server, and its turn costs three round trips. So short jobs
wait here, in flight (``lua/lib/claim_places.lua``): when a job ends, the oldest of them starts at once in its place,
and the call that settles the one hands the place to the other. The server decides who may wait here: nobody passes
who has waited longer. No more wait here than are prefetched, and who waits too long goes back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from henchman.work.unit import Unit
from henchman.worker.run import Run

__all__ = ["Places"]


class _Line:
    """Of one set of limits: the units that have its places here, and the runs that wait behind them."""

    __slots__ = ("holders", "waiting")

    def __init__(self) -> None:
        self.holders: set[Unit] = set()
        self.waiting: deque[Run] = deque()


class Places:
    """One a process. ``limits``: as the claim says them (JSON), for each run that needs places alone."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._lock = threading.Lock()

    def held(self, limits: str) -> bool:
        """Whether a job of this process has places of ``limits``."""
        return limits in self._lines

    def took(self, limits: str, runs: Sequence[Run], behind: Sequence[Run]) -> list[Run]:
        """``runs`` have places, and ``behind`` wait for them. Those of ``behind`` are returned for which nobody is left
        whose place they could have: all have ended since the server was asked."""
        with self._lock:
            line = self._lines.get(limits) or _Line()
            line.holders.update(run.unit for run in runs)
            if not line.holders:
                return list(behind)
            self._lines[limits] = line
            line.waiting.extend(behind)
        return []

    def forget(self, units: Sequence[Unit]) -> None:
        """``units`` are not held any more, or will be given back, and nobody begins in their places."""
        with self._lock:
            for unit in units:
                limits = "" if unit.claim is None or unit.source is not None else unit.claim.limits
                line = self._lines.get(limits)
                if line is not None:
                    line.holders.discard(unit)
                    if not line.holders:
                        del self._lines[limits]

    def ended(self, unit: Unit) -> Run | None:
        """``unit`` has ended: the run that has its places from now on, and is to be started when the end was noted."""
        limits: str = unit.claim.limits
        with self._lock:
            line = self._lines.get(limits)
            if line is None or unit not in line.holders:
                return None
            line.holders.discard(unit)
            while line.waiting:
                run = line.waiting.popleft()
                if run.pool is not None and run.pool.take_late(run):  # else it went back
                    line.holders.add(run.unit)
                    unit.heir = run.jid
                    return run
            if not line.holders:
                del self._lines[limits]
        return None
