"""A host that is suspended, as far as processes can be made to see it: ``time.monotonic()`` stands still meanwhile.

The processes of a host are stopped (SIGSTOP), and when they go on the time for which they stood is taken off their
monotonic clock; ``CLOCK_BOOTTIME`` and the wall clock have gone on. Waits inside the kernel and inside locks end by the
true clock: that is all that differs from a real one. The processes share one small file, mapped into each of them.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

__all__ = ["VARIABLE", "Suspension", "true_monotonic", "watch"]

VARIABLE = "CHAOS_SUSPENDED"  # where the file is
MOST = 250  # suspensions
_HEAD, _ROW = struct.Struct("=qd"), struct.Struct("=dd")
_true = time.monotonic
_maps: list[mmap.mmap] = []  # of this process: one, or none


class Suspension:
    """The writing side: one host."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_HEAD.size + MOST * _ROW.size))
        self.path = path
        self._count, self._lost, self._since = 0, 0.0, 0.0

    def begin(self) -> None:
        """Called when every process of the host stands: from now on their monotonic clock does, too."""
        self._since = _true()

    def end(self) -> None:
        """Called before they go on."""
        lost = self._lost + _true() - self._since
        with self.path.open("r+b") as file:
            file.seek(_HEAD.size + self._count * _ROW.size)
            file.write(_ROW.pack(self._since - self._lost, lost))
            file.seek(0)
            file.write(_HEAD.pack(self._count + 1, lost))
        self._count, self._lost = (self._count + 1) % MOST, lost


def watch(path: str) -> None:
    """The reading side: from now on the monotonic clock of this process is that of its host."""
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _maps.append(mapped)
    read = _HEAD.unpack_from
    time.monotonic = lambda: _true() - read(mapped)[1]
    time.monotonic_ns = lambda: round((_true() - read(mapped)[1]) * 1e9)


def true_monotonic(moment: float) -> float:
    """What the true monotonic clock said when that of this process said ``moment``."""
    lost = 0.0
    for mapped in _maps:
        for place in range(_HEAD.unpack_from(mapped)[0]):
            stood_at, after = _ROW.unpack_from(mapped, _HEAD.size + place * _ROW.size)
            if moment > stood_at:
                lost = after
    return moment + lost
