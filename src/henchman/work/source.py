"""Where a worker gets the work of a queue that is not a plain list, and how that work is read, ended and given back.

Plain queues need none of this: fetching, reading, judging and settling are the worker's own. A worker has one source
for each such queue; whatever one says of time is in seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

from henchman.store.call import Arg
from henchman.work.outcome import Outcome
from henchman.work.unit import InFlightList, Unit

__all__ = ["Brought", "Ended", "Reading", "Source", "Teller"]

#: (unit, ending, stored, delay or batch, effects) of a unit that is to be settled
Ended = tuple[Unit, str, bytes, float | str, bytes]


class Brought(NamedTuple):
    """What a source gave. ``look_in``: when to ask again though nothing rings; None: only when something rings."""

    units: list[Unit]
    look_in: float | None


class Reading(NamedTuple):
    """A unit that can run: the name of its definition, the job as people see it, and the arguments."""

    name: str
    job: dict[str, Any]
    args: tuple[Any, ...]


class Teller(Protocol):
    """Who tells people of failures, and calls their handlers: the worker's RetryPolicy."""

    def report(self, error: BaseException, facts: dict[str, Any]) -> object: ...
    def call(self, handler: Any, *args: Any) -> Any: ...
    def died(self, job: dict[str, Any], error: BaseException) -> None: ...


class Source(Protocol):
    """One queue. Everything but ``read`` and ``ended`` talks to the server."""

    def declare(self) -> None:
        """Make the queue and its limits known, once at the start of a worker."""

    def in_flight_list(self, identity: str, epoch: int) -> InFlightList:
        """Where the server notes what a process of that name holds of this queue."""
        ...

    def wait(self, flight: InFlightList, seconds: float) -> tuple[Arg, ...]:
        """The command that blocks until somebody should look, and moves nothing that matters."""
        ...

    def order(self, names: Sequence[str]) -> list[str]:
        """Queues of this kind, itself among them, in the order to look into them now."""
        ...

    def ring(self) -> None:
        """Wake another process: there is work that this one has no room for."""

    def fetch(self, flight: InFlightList, want: int, extra: int) -> Brought:
        """Take up to ``want`` units, and up to ``extra`` more if they are cheap. Raises LeaseLost, LeaseLapsed."""
        ...

    def read(self, unit: Unit, teller: Teller) -> Reading | Outcome:
        """What ``unit`` asks to be run, or how it ends without running."""
        ...

    def ended(
        self, unit: Unit, job: dict[str, Any], result: Any, problem: BaseException | None, teller: Teller
    ) -> Outcome:
        """What became of a run that returned ``result`` or raised ``problem``."""
        ...

    def abandon(self, unit: Unit) -> None:
        """The run ignores its time-out, and its process will end: count that against it, and keep it held."""

    def settle(self, identity: str, rows: Sequence[Ended]) -> list[int | bytes]:
        """End units: 1 settled, 0 some of it was not ours any more, bytes the server's refusal. Raises LeaseLost."""
        ...

    def strays(self, flight: InFlightList, held: Collection[Unit]) -> set[bytes]:
        """Marks of what the server says is held under ``flight`` and is not among ``held``."""
        ...

    def free(self, flight: InFlightList, held: Collection[Unit]) -> int:
        """Give back what the server says is held under ``flight`` and is not among ``held``; how much that was."""
        ...
