"""What a test measures of itself: its memory, and how long a look takes."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["median", "resident_kb"]


def resident_kb() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def median(look: Callable[[], Any]) -> float:
    """The median of seven runs, in seconds."""
    took = []
    for _ in range(7):
        started = time.perf_counter()
        look()
        took.append(time.perf_counter() - started)
    return statistics.median(took)
