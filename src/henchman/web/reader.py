"""The history of an app, opened for reading at the first question; each question is asked in a thread."""

from __future__ import annotations

import threading
from typing import Any

from henchman.app import App
from henchman.history import load
from henchman.kernel.middleware import in_thread
from henchman.web.answers import Refusal

__all__ = ["HistoryReader"]


class HistoryReader:
    """Asks ``history.reading:History``. Refusal (501) when history is off."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._desk: Any = None
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        """Whether this app's settings name a database."""
        return not self._app.config.why_history_is_off()

    async def ask(self, method: str, *args: Any, **named: Any) -> Any:
        """What the method of History answers; HistoryAway, HistoryError."""
        return await in_thread(self._ask, method, args, named)

    def close(self) -> None:
        """Close its connections; opened again when it is asked again."""
        with self._lock:
            desk, self._desk = self._desk, None
        if desk is not None:
            desk.close()

    def _ask(self, method: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        with self._lock:
            if self._desk is None:
                if not self.is_on:
                    raise Refusal(501, "this needs the history, which is off: see database_url in the settings")
                self._desk = load(self._app.config)
            reading = self._desk.reading
        return getattr(reading, method)(*args, **named)
