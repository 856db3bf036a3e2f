"""How processes end whose supervisor was killed: nobody reads their status then but the run, which adopts them.

The run is the subreaper of all that it started (Linux): whoever loses its parent becomes its child. Without that only
the log of a process could tell why it ended, and a process that is killed writes nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Sequence

from groups import Group
from ledger import Ledger

__all__ = ["Orphans"]

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
LOOK = 0.1  # seconds between two looks: by so much the time of an end may be too late


class Orphans:
    """Writes down ``exit PID STATUS`` (negative: the signal) for each orphan of ``groups``, until ``close``."""

    def __init__(self, groups: Sequence[Group], ledger: Ledger) -> None:
        self._groups, self._ledger = groups, ledger
        self._known: set[int] = set()
        self._closing = threading.Event()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        self._thread = threading.Thread(target=self._run, name="orphans", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(LOOK):
            self.look()

    def look(self) -> None:
        """Take leave of those that have ended since the last look."""
        for group in self._groups:
            for pid in {*group.known} - {*group.supervisors} - self._known:
                try:
                    ended, status = os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:  # its supervisor lives, or has waited for it
                    continue
                if ended:
                    self._known.add(pid)
                    self._ledger.write("exit", pid, os.waitstatus_to_exitcode(status))

    def close(self) -> None:
        """Look for the last time."""
        self._closing.set()
        self._thread.join(5.0)
        self.look()
