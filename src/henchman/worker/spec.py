"""A definition made ready for running: middleware compiled around the function, its cost learnt on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from henchman.client.registry import Definition
from henchman.kernel.events import Events
from henchman.kernel.middleware import Chain, compile_async, compile_sync
from henchman.wire.returns import to_json
from henchman.work.outcome import Outcome

__all__ = ["TINY", "Spec"]

TINY = 0.0002  # seconds; jobs cheaper than this are not worth a second thread


def _no_batch(*facts: Any) -> None:
    """Where there is no server, a job is in no batch."""


class Spec:
    """What a process knows of one job. ``cost``: the usual seconds of a run (a running median), None before the first.

    ``hears_cancel``: a cancelled run starts all the same and ends by itself, and its task is not cancelled.
    ``iterable``: where it stands is kept apart, and removed with the job.
    ``ack_each``: a run is settled in a call of its own, before its slot is free.
    ``notes``: who carries what its tracked runs say. ``open_batch(id, jid, expires)``: the batch of a run.
    ``call(run)`` runs the job within the middleware; for an async job it is awaited.
    """

    __slots__ = (
        "ack_each",
        "call",
        "cost",
        "definition",
        "events",
        "expires",
        "hears_cancel",
        "is_async",
        "iterable",
        "name",
        "notes",
        "open_batch",
        "signature",
        "timeout",
    )

    def __init__(self, definition: Definition, middleware: Chain, events: Events) -> None:
        self.definition = definition
        self.name = definition.name
        self.is_async = definition.is_async
        self.hears_cancel = definition.hears_cancel
        self.signature = definition.signature
        self.timeout = definition.options.timeout
        self.expires = definition.options.expires
        self.iterable = definition.options.iterable
        self.ack_each = definition.options.ack == "each"
        self.events = events
        self.cost: float | None = None
        self.notes: Any = None
        self.open_batch: Callable[..., Any] = _no_batch
        self.call: Callable[[Any], Any] = self._compiled(middleware)

    def _compiled(self, middleware: Chain) -> Callable[[Any], Any]:
        function = self.definition.function
        if self.is_async:
            return compile_async(middleware, lambda run: function(*run.args, **run.kwargs))
        return compile_sync(middleware, lambda run: function(*run.args, **run.kwargs))

    def kept(self, result: Any) -> Outcome:
        """The outcome of a run that returned ``result``, which is kept: as its annotation says, in plain JSON."""
        try:
            return Outcome("done", result=to_json(self.definition.function, result))
        except ValueError as error:
            return Outcome("done", reason=f"its result cannot be kept: {error}")

    def learn(self, seconds: float) -> None:
        """Take a run's duration into account: up a tenth when it took longer than usual, else down."""
        cost = self.cost
        if cost is None:
            self.cost = max(seconds, 1e-6)
        elif seconds > cost:
            self.cost = cost * 1.1
        else:
            self.cost = max(cost * 0.909, 1e-6)
