"""Lock files that the kernel frees when their holder dies, and that a forked child neither keeps nor frees.

A ``flock`` belongs to the open file, and a fork shares open files: a child that unlocked would unlock its parent, and
one that merely lived on would keep the lock of a dead parent. So every descriptor is closed in the child at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path


class LockFile:
    """One lock on one file, for the process that took it; without ``make`` the file must be there."""

    def __init__(self, path: Path, *, make: bool = True) -> None:
        self.path = path
        self._make = os.O_CREAT if make else 0
        self._fd: int | None = None
        self._file: os.stat_result | None = None
        self._heir = 0  # the thread whose next child shall have it
        _LOCKS.add(self)

    @property
    def held(self) -> bool:
        """Whether this process holds it, on the file that is still there under that name."""
        try:  # the folder may have been removed and made anew
            return self._is_open() and self._file is not None and os.path.samestat(self._file, os.stat(self.path))
        except OSError:
            return False

    def lock(self, *, shared: bool = False, limit: float = 0.0) -> bool:
        """Take it, or change it from shared to exclusive; False when others still hold it after ``limit`` seconds.

        A failed change loses what was held. OSError when the file cannot be made, or is a link.
        """
        how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        end, pause = time.monotonic() + limit, 0.001
        while True:
            if not self.held:
                self._open()
            try:
                fcntl.flock(self.fileno(), how)
            except BlockingIOError:
                if time.monotonic() >= end:
                    self.let_go()
                    return False
                time.sleep(pause)
                pause = min(pause * 2, 0.02)
            else:
                if self.held:  # else the file was replaced while we waited
                    return True

    def unlock(self) -> None:
        """Free it, also for a child that was forked with a copy of the descriptor."""
        if self._is_open():
            fcntl.flock(self.fileno(), fcntl.LOCK_UN)
        self.let_go()

    def let_go(self) -> None:
        """Close it without unlocking: a process that inherited the descriptor keeps the lock."""
        with _FORK:
            if self._is_open():
                os.close(self.fileno())
            self._fd = self._file = None

    @contextlib.contextmanager
    def handed_over(self) -> Iterator[int]:
        """The descriptor, for a process that this thread starts now and that shall hold the lock.

        A child that this thread forks meanwhile keeps it: gevent's ``subprocess`` forks in Python, before it executes.
        """
        self._heir = threading.get_ident()
        try:
            yield self.fileno()
        finally:
            self._heir = 0

    def fileno(self) -> int:
        """The descriptor; ValueError when there is none."""
        if self._fd is None:
            raise ValueError(f"{self.path} is not open")
        return self._fd

    def _open(self) -> None:
        self.let_go()
        with _FORK:
            self._fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | self._make, 0o600)
            self._file = os.fstat(self._fd)
            if self._file.st_mode & 0o777 != 0o600:
                os.fchmod(self._fd, 0o600)  # whatever the umask

    def _is_open(self) -> bool:
        try:  # a daemon may have closed all it had, and the number may be another file's by now
            return self._fd is not None and self._file is not None and os.path.samestat(os.fstat(self._fd), self._file)
        except OSError:
            return False


_LOCKS: weakref.WeakSet[LockFile] = weakref.WeakSet()
_FORK = threading.Lock()  # no descriptor is made or closed while the process forks


def _in_child() -> None:
    _FORK.release()
    for lock in list(_LOCKS):
        if lock._heir != threading.get_ident():
            lock.let_go()


os.register_at_fork(before=_FORK.acquire, after_in_parent=_FORK.release, after_in_child=_in_child)
