"""What happened, written down outside Redis: one append-only file a process, one ``write`` a line.

A line that was written is in the kernel's hands: kill -9 of the writer a moment later cannot take it back, and two
writers never share a file. Times are the machine's wall clock as it was when the run began, gone on with by the
kernel's monotonic clock: no clock that an attack steps or lets stand is asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["ASKED", "BEGUN", "Entry", "Ledger", "read_all", "wall"]

#: the wall clock less the monotonic one, as the run found them; its processes inherit it
EPOCH = float(os.environ.setdefault("CHAOS_EPOCH", repr(time.time() - time.clock_gettime(time.CLOCK_MONOTONIC))))
ASKED = "asked="  # before the time at which a claim was asked for
BEGUN = "begun="  # before a time, as the last word of a line: see ``begun.py``


def wall() -> float:
    """Unix seconds by a clock that nobody steps."""
    return EPOCH + time.clock_gettime(time.CLOCK_MONOTONIC)


class Entry(NamedTuple):
    """One line: when, who wrote it, what."""

    at: float
    role: str
    pid: int
    words: list[str]

    @property
    def begun(self) -> float:
        """When the worker let start what starts here; the time of the line where that is not said."""
        said = self.words[-1].removeprefix(BEGUN)
        return self.at if said == self.words[-1] else float(said)


class Ledger:
    """Writes for one process. ``role`` says what it is: worker, producer, chaos."""

    def __init__(self, folder: Path, role: str) -> None:
        path = folder / f"{role}-{os.getpid()}-{os.urandom(3).hex()}.txt"
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *words: object) -> float:
        """Write one line; the time that stands in it."""
        now = wall()
        text = " ".join(str(word).replace("\n", "|").replace(" ", "_") or "-" for word in words)
        os.write(self._fd, f"{now:.6f} {text[:4000]}\n".encode())
        return now


def read_all(folder: Path) -> Iterator[Entry]:
    """Every line of every process, file by file; within a file in order."""
    for path in sorted(folder.glob("*-*-*.txt")):
        role, pid, _ = path.name.split("-", 2)
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                at, *words = line.split()
                if words and line.endswith("\n"):
                    yield Entry(float(at), role, int(pid), words)
