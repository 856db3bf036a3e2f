"""Events whose listeners must not fail."""

from __future__ import annotations

from typing import Any

from henchman.kernel.events import Events


class StrictEvents(Events):
    """What a listener raises reaches the test that announces."""

    def emit(self, name: str, **facts: Any) -> None:
        for listener in self._listeners.get(name, ()):
            listener(**facts)
