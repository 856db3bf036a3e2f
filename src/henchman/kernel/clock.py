"""Which clock is asked for what, and how long to wait after failures.

Stored times are the server's: ``ServerClock.now()``. What bounds waiting is ``time.monotonic()``. A lease is judged by
``awake()``, which goes on while the machine sleeps. The wall clock of this machine is for log lines and for what is
shown; every use of it stands with its reason in ``tests/architecture/wall_clocks.toml``.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from functools import partial

STEP = 1.0  # seconds; what the server's clock differs by from what was expected is a step, less is slewing
_LEAPS = 8  # steps forward that are remembered


def _awake() -> Callable[[], float]:
    """CLOCK_BOOTTIME on Linux. The CLOCK_MONOTONIC of macOS counts sleep too, ``time.monotonic()`` there does not.
    Where there is neither, a lease may be believed for too long by the length of a sleep."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None and sys.platform == "darwin":
        clock = time.CLOCK_MONOTONIC
    return time.monotonic if clock is None else partial(time.clock_gettime, clock)


#: seconds (float) that also pass while the machine sleeps; only differences mean something
awake: Callable[[], float] = _awake()


class ServerClock:
    """The server's time as this process knows it: its difference to ``awake()``, learned from answers that carry it.

    Until the first answer, ``now()`` is the wall clock of this machine. Any thread may call anything.
    """

    def __init__(self, lasting: Callable[[], float] | None = None, wall: Callable[[], float] = time.time) -> None:
        self._lasting = lasting or awake
        self._wall = wall
        self._ahead: float | None = None
        self._heard = 0.0
        self._leaps: tuple[tuple[float, float], ...] = ()  # steps forward: the time before each, and its seconds
        self.stepped = 0.0  # seconds that all steps of the server's clock came to: who remembers it sees the next one

    def now(self) -> float:
        """The server's Unix time in seconds."""
        ahead = self._ahead
        return self._wall() if ahead is None else ahead + self._lasting()

    def leapt(self, since: float) -> float:
        """Seconds by which the server's clock has stepped forward since its time was ``since``, as this process saw: so
        much less has passed than it says."""
        return sum(seconds for before, seconds in self._leaps if since < before + seconds / 2)

    @property
    def age(self) -> float:
        """Seconds since the server told its time; infinite before it did."""
        return float("inf") if self._ahead is None else self._lasting() - self._heard

    def sent(self) -> float:
        """The moment at which a question is sent whose answer carries the time, for ``heard``."""
        return self._lasting()

    def heard(self, server: float, sent: float) -> None:
        """Learn that the server's time was ``server`` at some moment between ``sent`` and now."""
        received, before = self._lasting(), self._ahead
        least, most = server - received, server - sent
        self._heard = received
        if before is None:
            self._ahead = (least + most) / 2
            return
        step = min(max(before, least), most) - before
        if step > STEP:
            self._leaps = (*self._leaps[1 - _LEAPS :], (before + received, step))
        self._ahead = before + step
        if abs(step) > STEP:
            self.stepped += step


def capped_backoff(failures: int, *, first: float = 0.1, most: float = 30.0) -> float:
    """Seconds to wait after ``failures`` failures in a row: doubles from ``first`` to ``most``, plus up to 20 %."""
    base: float = min(most, first * 2.0 ** min(failures, 30))
    return base * (1 + random.random() / 5)  # noqa: S311
