"""One look at the server for all who watch the same page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["Snapshot"]

T = TypeVar("T")
_SHARE: Final = 0.05  # of the time that looks may take
_SAVED: Final = 1.0  # seconds of looks that may come at once after a quiet time
_OLDEST: Final = 2.0  # seconds that a look may be old


class Snapshot(Generic[T]):
    """What ``read`` returns: read afresh for whoever asks, as long as looks take ``share`` of the time at most; when
    many watch, a look of up to ``oldest`` seconds ago is shared. Thread-safe: who asks while it is read waits for
    that. ``saved``: seconds of looks that may come at once after a quiet time."""

    def __init__(
        self, read: Callable[[], T], share: float = _SHARE, oldest: float = _OLDEST, saved: float = _SAVED
    ) -> None:
        self._read = read
        self._share, self._oldest, self._most = share, oldest, saved
        self._lock = threading.Lock()
        self._known: tuple[float, float, T] | None = None  # when it began to be read and was read, and what it gave
        self._left, self._counted = saved, time.monotonic()

    def get(self) -> T:
        """What it is now, or was a moment ago."""
        asked = time.monotonic()
        with self._lock:
            now = time.monotonic()
            self._left = min(self._left + (now - self._counted) * self._share, self._most)
            self._counted = now
            if self._known is not None:
                begun, ended, value = self._known
                if begun >= asked or (self._left <= 0 and now - ended < self._oldest):
                    return value
            try:
                value = self._read()
            finally:
                ended = time.monotonic()
                self._left -= ended - now
            self._known = now, ended, value
            return value

    def forget(self) -> None:
        """Something was done: the next look is a fresh one."""
        with self._lock:
            self._known = None
