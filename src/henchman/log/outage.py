"""The server, gone and back: one line at each edge for the whole process, however many parts notice."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from henchman.errors import ServerAway
from henchman.kernel.text import described

__all__ = ["Outage"]


class Outage:
    """Remembers which parts cannot work with the server, and since when. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._log = logging.getLogger("henchman")
        self._lock = threading.Lock()
        self._silent: dict[str, bool] = {}  # part → whether it got no answer at all (else it was refused)
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
