"""A dam for lines that repeat themselves: the first 20 a second are written, the rest is counted and summed up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["PER_SECOND", "Flood"]

PER_SECOND = 20
_KEYS_MOST = 500

Key = tuple[str, ...]


class _Window:
    """How often a line came in the second that began at ``since``, and how many of them were not written."""

    __slots__ = ("count", "held", "last", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.held = 0
        self.last: tuple[logging.Logger, int, str, Mapping[str, Any]] | None = None


class Flood:
    """Lines that are alike share a key. The summary comes with the next such line, or with ``flush``. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: dict[Key, _Window] = {}

    def log(
        self,
        key: Key,
        logger: logging.Logger,
        level: int,
        text: str,
        facts: Mapping[str, Any],
        exc_info: Any = None,
    ) -> None:
        """Write the line, or count it when it came too often within this second."""
        if not logger.isEnabledFor(level):
            return
        now = self._monotonic()
        over: list[_Window] = []
        with self._lock:
            window = self._windows.get(key)
            if window is None or now - window.since >= 1.0:
                over += [] if window is None else [window]
                if len(self._windows) >= _KEYS_MOST:
                    over += self._windows.values()
                    self._windows.clear()
                window = self._windows[key] = _Window(now)
            window.count += 1
            held = window.count > PER_SECOND
            if held:
                window.held += 1
                window.last = (logger, level, text, facts)
        for one in over:
            _sum_up(one)
        if not held:
            logger.log(level, "%s", text, extra=facts, exc_info=exc_info)

    def flush(self, *, all: bool = False) -> None:
        """Sum up every line whose second is over, or all."""
        now = self._monotonic()
        with self._lock:
            over = [key for key, window in self._windows.items() if all or now - window.since >= 1.0]
            windows = [self._windows.pop(key) for key in over]
        for window in windows:
            _sum_up(window)


def _sum_up(window: _Window) -> None:
    if window.last is not None:
        logger, level, text, facts = window.last
        shown: dict[str, object] = {name: facts[name] for name in ("class", "hm_secrets") if name in facts}
        logger.log(level, "%s more lines like this were left out: %s", f"{window.held:,}", text, extra=shown)
