"""Memory shared by a bench and the processes it measures: when each numbered thing happened.

Writing to it is no call to the system and waits for nobody, so that measuring changes little of what is measured.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Self

PLACES = 200_000
_PLACE = struct.Struct("<q")


class Stamps:
    """Per number two times in nanoseconds: ``time.monotonic_ns()``, one clock for all processes of a host, and wall."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            if path.stat().st_size < 16 * PLACES:
                file.truncate(16 * PLACES)
            self._memory = mmap.mmap(file.fileno(), 16 * PLACES)

    @classmethod
    def of_environment(cls) -> Self | None:
        """Those that the bench named, or None."""
        path = os.environ.get("BENCH_STAMPS")
        return cls(Path(path)) if path else None

    def write(self, number: int) -> None:
        """Now is the time of ``number``, if it has none."""
        at = 16 * number
        if not _PLACE.unpack_from(self._memory, at)[0]:
            _PLACE.pack_into(self._memory, at + 8, time.time_ns())
            _PLACE.pack_into(self._memory, at, time.monotonic_ns())

    def monotonic(self, number: int) -> int:
        """When it was, on the monotonic clock; 0: not yet."""
        return int(_PLACE.unpack_from(self._memory, 16 * number)[0])

    def wall(self, number: int) -> int:
        """When it was, on the wall clock."""
        return int(_PLACE.unpack_from(self._memory, 16 * number + 8)[0])

    def all_written(self, numbers: range) -> bool:
        """Whether every one of ``numbers`` has its time."""
        return all(self.monotonic(number) for number in numbers)

    def clear(self, numbers: range) -> None:
        """Forget the times of ``numbers``, so that they can be used again; a range without gaps."""
        self._memory[16 * numbers.start : 16 * numbers.stop] = bytes(16 * len(numbers))
