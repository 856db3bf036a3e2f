"""Suspects run with nothing beside them: when such a process dies again, it is known whose fault it was."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from henchman.kernel.board import Board
from henchman.work.outcome import Outcome
from henchman.worker.acker import Acker
from henchman.worker.pool import Pool
from henchman.worker.run import Run

__all__ = ["Isolation"]

PATIENCE = 30.0  # seconds to wait for the jobs beside it; then the suspect is put off, for another process to try
STEP = 0.02


class Guest(Protocol):
    """Who asks for the process: one capsule's fetcher."""

    @property
    def pool(self) -> Pool: ...


class Isolation:
    """One a process. ``busy()`` counts the slots in use, over every capsule; ``wake()`` lets every fetcher look."""

    def __init__(self, board: Board, acker: Acker, busy: Callable[[], int], wake: Callable[[], None]) -> None:
        self._board = board
        self._acker = acker
        self._busy = busy
        self._wake = wake
        self._waiting: deque[tuple[Guest, Run, float]] = deque()
        self._inside: Run | None = None
        self._lock = threading.Lock()

    @property
    def pending(self) -> bool:
        """Whether a suspect waits or runs: nothing else may start then."""
        return bool(self._waiting)

    def add(self, guest: Guest, run: Run) -> None:
        """A suspect was fetched."""
        with self._lock:
            self._waiting.append((guest, run, time.monotonic()))
        self._wake()

    def step(self) -> float:
        """Start the next suspect when nothing else runs, see whether it has ended; seconds until the next step."""
        with self._lock:
            if self._waiting and not self._busy():
                if self._inside is not None:
                    self._waiting.popleft()
                    self._inside = None
                    self._board.alone(False)
                if self._waiting:
                    guest, self._inside, _ = self._waiting[0]
                    self._board.alone(True)
                    guest.pool.put([self._inside])
            elif self._waiting and self._inside is None and time.monotonic() - self._waiting[0][2] > PATIENCE:
                _, run, _ = self._waiting.popleft()
                reason = "a suspect: it could not have a process to itself"
                self._acker.submit(run.unit, Outcome("deferred", run.unit.payload, PATIENCE, reason), run.job)
        if not self._waiting:
            self._wake()
        return STEP

    def give_up(self) -> list[Run]:
        """The suspects that have not started; they will not start here."""
        with self._lock:
            kept = 1 if self._inside is not None else 0
            runs = [run for _, run, _ in list(self._waiting)[kept:]]
            self._waiting = deque(list(self._waiting)[:kept])
        return runs
