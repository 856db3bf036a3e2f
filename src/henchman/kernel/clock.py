"""The only place that asks for the time.

Durations come from ``monotonic``, stored times from ``wall``; tests pass a clock of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["SYSTEM", "Clock"]


class Clock(NamedTuple):
    """Two sources of seconds (float): ``wall`` is the Unix time, ``monotonic`` only measures differences."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


SYSTEM = Clock()
