"""The page of everything that is paused; and pausing a class or a tag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from henchman.client.runtime import Runtime
from henchman.console.pages import Query, Screen, View
from henchman.errors import ArgumentError
from henchman.inspector.pauses import Pauses
from henchman.kernel.text import visible
from henchman.oncall.deeds import NOBODY, Deed, Order, Unwanted
from henchman.oncall.pauses import paused
from henchman.store.call import run

__all__ = ["PausePages"]

_PAUSE: Final = (
    "No job of it starts any more, on any worker; what runs goes on, and so do ordered queues. Jobs whose turn comes "
    "wait as blocked, and those of others behind them go on."
)


class PausePages:
    """The page and the acts."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._pauses = Pauses(runtime)
        self.views: Mapping[tuple[str, int], View] = {("pauses", 0): self.all}
        self.deeds: Mapping[tuple[str, str], Deed] = {
            ("pauses", "pause"): Deed("Pause…", _PAUSE, self._pause, asks="Reason"),
            ("pauses", "add"): Deed("Pause", "", self._pause, fills=("what",)),
            ("pauses", "resume"): Deed("Resume", "", self._resume),
        }

    def all(self, query: Query) -> Screen:
        """Queues, batches, classes and tags."""
        return Screen("pauses.html", {"paused": run(self._runtime.connections, paused(self._runtime.keys))})

    def _pause(self, what: str, *, order: Order = NOBODY) -> str:
        try:
            self._pauses.pause(what, order.form.get("reason", ""), by=order.author)
        except ArgumentError as error:
            raise Unwanted(visible(str(error))) from None
        return f"{visible(what)} is paused: its jobs wait, and none starts"

    def _resume(self, what: str) -> str:
        try:
            ended = self._pauses.unpause(what)
        except ArgumentError as error:
            raise Unwanted(visible(str(error))) from None
        return f"{visible(what)} {'goes on' if ended else 'was not paused'}"
