"""Lines that would repeat: those that are alike are counted after the first 20 a second, the server's absence has one
line at each edge."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from henchman.errors import ServerAway
from henchman.kernel.text import described

__all__ = ["PER_SECOND", "Outage", "RateLimit"]

PER_SECOND = 20
_KEYS_MOST = 500

Key = tuple[str, ...]


@dataclass(slots=True)
class _Window:
    """How often a line came in the second that began at ``since``; ``held`` of them were not written."""

    since: float
    count: int = 0
    held: int = 0
    last: tuple[logging.Logger, int, str, Mapping[str, Any]] | None = None

    def sum_up(self) -> None:
        """Write how many were left out."""
        if self.last is not None:
            logger, level, text, facts = self.last
            shown = {name: facts[name] for name in ("class", "hm_secrets") if name in facts}
            logger.log(level, "%s more lines like this were left out: %s", f"{self.held:,}", text, extra=shown)


class RateLimit:
    """Rate limit for repeated log lines: those that are alike share a key. Thread-safe.

    The summary comes with the next such line, or with ``flush``.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: dict[Key, _Window] = {}

    def log(
        self, key: Key, logger: logging.Logger, level: int, text: str, facts: Mapping[str, Any], exc_info: Any = None
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
            one.sum_up()
        if not held:
            logger.log(level, "%s", text, extra=facts, exc_info=exc_info)

    def flush(self, *, all: bool = False) -> None:
        """Sum up every line whose second is over, or all."""
        now = self._monotonic()
        with self._lock:
            over = [key for key, window in self._windows.items() if all or now - window.since >= 1.0]
            windows = [self._windows.pop(key) for key in over]
        for window in windows:
            window.sum_up()


class Outage:
    """The server, gone and back: one line at each edge for the process, however many parts notice. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._log = logging.getLogger("henchman")
        self._lock = threading.Lock()
        self._silent: dict[str, bool] = {}  # part that cannot work → whether it got no answer (else it was refused)
        self._since = 0.0

    def away(self, part: str = "", error: BaseException | None = None, **_: Any) -> None:
        """``part`` could not work; the first one is written."""
        silent = isinstance(error, ServerAway)
        with self._lock:
            first = not self._silent
            if first:
                self._since = self._monotonic()
            self._silent[part] = silent
        if first:
            words = "the server is away" if silent else "the server refuses"
            said = "" if error is None else f": {described(error)}"
            self._log.error("%s%s", words, said, extra={"part": part})

    def back(self, part: str = "", **_: Any) -> None:
        """``part`` works again; written when it was the last."""
        self._over({part})

    def answered(self) -> None:
        """The server answers, whatever each part has noticed yet; those that it refused still wait."""
        if self._silent:
            with self._lock:
                silent = {part for part, silent in self._silent.items() if silent}
            self._over(silent)

    def _over(self, parts: set[str]) -> None:
        with self._lock:
            before = bool(self._silent)
            for part in parts:
                self._silent.pop(part, None)
            over = before and not self._silent
            downtime = self._monotonic() - self._since
        if over:
            self._log.warning("the server is back", extra={"downtime": round(downtime, 3)})
