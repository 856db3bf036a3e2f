"""Suspects run with nothing beside them: when such a process dies again, it is known whose fault it was."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

from henchman.kernel.scoreboard import Scoreboard
from henchman.work.outcome import Outcome
from henchman.work.unit import Unit
from henchman.worker.acker import Acker
from henchman.worker.pool import Pool

__all__ = ["Isolation"]

PATIENCE = 30.0  # seconds to wait for the jobs beside it; then the suspect is put off, for another process to try
STEP = 0.02


class Guest(Protocol):
    """Who asks for the process: one capsule's fetcher."""

    @property
    def pool(self) -> Pool: ...
    def start_alone(self, unit: Unit) -> None:
        """Read it and start it, or settle what cannot run."""


class Isolation:
    """One a process. ``busy()`` counts the slots in use, over every capsule; ``wake()`` lets every fetcher look;
    ``held``: what is not settled yet. A suspect is read, run and settled before anything else begins.
    """

    def __init__(
        self, board: Scoreboard, acker: Acker, busy: Callable[[], int], wake: Callable[[], None], held: Collection[Unit]
    ) -> None:
        self._held = held
        self._board = board
        self._acker = acker
        self._busy = busy
        self._wake = wake
        self._waiting: deque[tuple[Guest, Unit, float]] = deque()
        self._inside: Unit | None = None
        self._began = 0.0
        self._lock = threading.Lock()

    @property
    def pending(self) -> bool:
        """Whether a suspect waits or runs: nothing else may start then."""
        return bool(self._waiting)

    def add(self, guest: Guest, unit: Unit) -> None:
        """A suspect was fetched."""
        with self._lock:
            self._waiting.append((guest, unit, time.monotonic()))
        self._wake()

    def step(self) -> float:
        """Start the next suspect when nothing else runs, see whether it has ended; seconds until the next step."""
        with self._lock:
            if self._waiting and not self._busy() and not self._settling():
                if self._inside is not None:
                    self._waiting.popleft()
                    self._inside = None
                    self._board.alone(False)
                if self._waiting:
                    guest, self._inside, _ = self._waiting[0]
                    self._began = time.monotonic()
                    self._board.alone(True)
                    guest.start_alone(self._inside)
            elif self._waiting and self._inside is None and time.monotonic() - self._waiting[0][2] > PATIENCE:
                _, unit, _ = self._waiting.popleft()
                reason = "a suspect: it could not have a process to itself"
                self._acker.submit(unit, Outcome("deferred", unit.payload, PATIENCE, reason), unit.job)
        if not self._waiting:
            self._wake()
        return STEP

    def _settling(self) -> bool:
        """Whether what ran alone waits to be settled, and not for so long that the server must be refusing it."""
        return self._inside in self._held and time.monotonic() - self._began < PATIENCE

    def give_up(self) -> list[Unit]:
        """The suspects that have not started; they will not start here."""
        with self._lock:
            kept = 1 if self._inside is not None else 0
            units = [unit for _, unit, _ in list(self._waiting)[kept:]]
            self._waiting = deque(list(self._waiting)[:kept])
        return units
