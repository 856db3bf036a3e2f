"""Finds out that every job that runs in a thread waits for a lock that nobody gives back.

A job that was struck by its time-out may leave a lock of its own locked, or one of a driver: the job ends, and all that
come after it wait. The process looks alive, for its heart beats.
"""

from __future__ import annotations

import dis
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import NamedTuple

from henchman.worker.run import Run, Seat
from henchman.worker.strike import steps_calling

__all__ = ["AFTER_STRIKE", "Standstill"]

AFTER_STRIKE = 5.0  # seconds of standing still, in a process where a job was struck; in any other ``hang_after``
_OURS = {"logging": ("acquire", "_acquireLock"), "importlib._bootstrap": ("acquire",), "threading": ("__enter__",)}


class _Place(NamedTuple):
    """Where a job stood at the last look: its frame by ``id``, the step, and since when (``time.monotonic``)."""

    run: Run
    frame: int
    step: int
    since: float
    line: str  # where it waits for a lock; empty when it does something else


class Standstill:
    """``look`` is called each second; ``found`` says whether all that runs stands still."""

    def __init__(self) -> None:
        self._places: dict[Seat, _Place] = {}
        self.found: list[str] = []

    def look(self, seats: Iterable[Seat], limit: float) -> list[str]:
        """Where each running job waits for a lock, when all have done so for ``limit`` seconds; else nothing."""
        now, frames = time.monotonic(), sys._current_frames()
        places = {}
        for seat in seats:
            run, frame = seat.run, frames.get(seat.thread_id)
            if run is not None and frame is not None:
                places[seat] = self._place(self._places.get(seat), run, frame, now)
        self._places = places
        still = bool(places) and all(one.line and now - one.since >= limit for one in places.values())
        self.found = [f"{one.run.name} {one.run.jid} at {one.line}" for one in places.values()] if still else []
        return self.found

    @staticmethod
    def _place(before: _Place | None, run: Run, frame: FrameType, now: float) -> _Place:
        if before is not None and (before.run, before.frame, before.step) == (run, id(frame), frame.f_lasti):
            return before
        return _Place(run, id(frame), frame.f_lasti, now, _lock_waited_for(frame))


def _lock_waited_for(frame: FrameType) -> str:
    """Where in the job ``frame`` waits for a lock without a limit, as ``file:line``; empty when it does not."""
    code, module = frame.f_code, str(frame.f_globals.get("__name__"))
    if code is threading.Condition.wait.__code__:  # for a word of somebody, or for a semaphore
        caller = frame.f_back
        waits = caller is not None and caller.f_code is threading.Semaphore.acquire.__code__
        waits = waits and caller is not None and caller.f_locals.get("timeout") is None
    else:
        waits = code.co_name in _OURS.get(module, ()) or frame.f_lasti in _locking(frame)
    if not waits:
        return ""
    theirs = next((one for one in _outwards(frame) if str(one.f_globals.get("__name__")) not in _OURS), frame)
    return f"{theirs.f_code.co_filename}:{theirs.f_lineno}"


def _locking(frame: FrameType) -> set[int]:
    """The steps of a function at which it may wait for a lock of C: in ``with``, or in ``acquire()``."""
    code = frame.f_code
    calls = steps_calling(code, "acquire") | steps_calling(code, "__enter__")
    withs = {one.offset for one in dis.get_instructions(code) if one.opname == "BEFORE_WITH"}
    return withs | {step for step, arguments in calls.items() if not arguments}


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
