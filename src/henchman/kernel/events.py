"""The core announces, others listen.

``emit`` on an event that nobody listens to costs one dict look-up. A listener that throws is caught and announced as
``handler_broken``; it never breaks the part that announced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from henchman.errors import ServerAway

Listener = Callable[..., Any]


class Events:
    """Listeners by event name. Thread-safe: tuples are replaced, never changed."""

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[Listener, ...]] = {}

    def on(self, name: str, listener: Listener) -> None:
        """Call ``listener(**facts)`` at each event ``name``, in order of registration."""
        self._listeners[name] = (*self._listeners.get(name, ()), listener)

    def off(self, name: str, listener: Listener) -> None:
        """Stop calling ``listener``."""
        left = tuple(one for one in self._listeners.get(name, ()) if one != listener)
        if left:
            self._listeners[name] = left
        else:
            self._listeners.pop(name, None)

    def heard(self, name: str) -> bool:
        """Whether anybody listens to ``name``: the hot path asks once, not at each job."""
        return name in self._listeners

    def emit(self, name: str, **facts: Any) -> None:
        """Tell every listener of ``name``."""
        for listener in self._listeners.get(name, ()):
            try:
                listener(**facts)
            except Exception as error:  # a listener is somebody else's code: named, never fatal
                if name != "handler_broken":
                    self.emit("handler_broken", handler=listener, error=error)

    def failed(self, part: str, error: BaseException) -> None:
        """Tell that ``part`` failed and goes on; that the server is away is nobody's failure, and told as that."""
        self.emit("server_away" if isinstance(error, ServerAway) else "part_failed", part=part, error=error)
