"""A fetched payload with its lease: what a worker process holds, and where the server knows that it does."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Container, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import ref

import msgspec

from henchman.store.jobs import Settlement, settle, settle_oldest
from henchman.wire.payload import seconds
from henchman.wire.times import day

__all__ = ["FetchOrder", "InFlightList", "Row", "Unit", "settle_oldest_units", "settle_units"]

_UNREAD: Mapping[str, Any] = MappingProxyType({})
SPARE = 16  # units that have left their list and may stand in its order, beyond as many as are held


class InFlightList(NamedTuple):
    """One in-flight list: the queue it was filled from (its name and its key) and the list's own key."""

    queue: str
    queue_key: str
    key: str
    identity: str
    epoch: int


class Unit(msgspec.Struct, eq=False, weakref=True):
    """A payload that this process fetched and has not settled. ``payload`` is kept byte for byte: it is the fence."""

    payload: bytes
    flight: InFlightList
    fetched_at: float
    source: Any = None  # a work.source.Source, where the queue is not a plain list; None for all others
    claim: Any = None  # the source's own: what it gave; of a job with a key what its start was given
    job: Mapping[str, Any] = _UNREAD
    suspect: bool = False  # processes died with it: it runs with nothing beside it
    checkpoint: bool = False  # its job keeps one on the server, or found one there
    cancelled: bool = False  # somebody cancelled its job while it was here
    spent: int | None = None  # points that its run took of its limits, once it said so
    heir: str = ""  # the jid of who began in its places of limits, as it ended
    cause: str = "error"  # why its run failed, once that was judged
    elapsed: float | None = None  # seconds that it ran; None when it did not start, or was counted already

    @property
    def newest(self) -> bytes:
        """The payload as it goes on: with the newest arguments, where its start was given such."""
        if self.source is not None or self.claim is None:
            return self.payload
        newest: bytes = self.claim.payload
        return newest

    def __repr__(self) -> str:
        return f"Unit({self.job.get('jid')!r} from {self.flight.queue!r})"


#: how a unit ended: the ending, what is stored in its place, its delay or day, and its effects
Row = tuple[Unit, str, bytes, float | str, bytes]


class FetchOrder:
    """The units of one in-flight list as they lie there, oldest first: the oldest that have ended are cut off together.

    Only fetches fill it. A unit that is not in ``held`` any more has left the list, and is dropped at a later look; it
    may be large, so nothing here keeps it alive.
    Where a unit lies that came by a wait is not known: nothing is cut while a wait is open, or such a unit is held.
    docs/reliability.md has the argument.
    """

    def __init__(self, held: set[Unit]) -> None:
        self._held = held
        self._units: deque[ref[Unit]] = deque()
        self._waits: set[object] = set()  # those that are open
        self._came: set[ref[Unit]] = set()  # the units that a wait brought
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._units)

    def fetched(self, units: Sequence[Unit]) -> None:
        """A fetch brought ``units``, and they are held: they lie behind all others."""
        with self._lock:
            self._held.update(units)
            self._units.extend(map(ref, units))
            if len(self._units) > 2 * len(self._held) + SPARE:  # most were settled one by one
                self._units = deque(one for one in self._units if one() in self._held)

    def waits(self, wait: object) -> None:
        """``wait`` opens; what it brings may come at any moment."""
        self._waits.add(wait)

    def waited(self, wait: object, unit: Unit | None) -> None:
        """``wait`` has ended, and brought ``unit`` or nothing."""
        if unit is not None:
            self._came.add(ref(unit))
        self._waits.discard(wait)

    def oldest(self, ended: Container[Unit]) -> list[Unit]:
        """The oldest units of the list, as far as all of them are in ``ended``; none if the last one's payload is there
        twice, for then it would not tell where the cut is."""
        with self._lock:
            while self._units and self._units[0]() not in self._held:
                self._units.popleft()
            self._came -= {one for one in list(self._came) if one() not in self._held}
            if self._waits or self._came:
                return []
            held = (unit for one in self._units if (unit := one()) is not None and unit in self._held)
            found = list(takewhile(ended.__contains__, held))
        payloads = [unit.payload for unit in found]
        return found if found and payloads.count(payloads[-1]) == 1 else []


def settle_units(
    runtime: Any, identity: str, units: Sequence[tuple[Unit, str, bytes, float | str, bytes]]
) -> list[int | bytes]:
    """Settle (unit, ending, stored, delay, effects), all of one source; the statuses, see ``store.jobs.settle``.

    ``runtime``: a ``client.runtime.Runtime``, which stands above this room.
    """
    statuses: list[int | bytes]
    if units[0][0].source is not None:
        statuses = units[0][0].source.settle(identity, units)
        return statuses
    pairs: dict[str, tuple[int, str]] = {}
    rows = []
    for unit, ending, stored, delay, effects in units:
        flight = unit.flight
        known = pairs.get(flight.key)
        if known is None:
            known = pairs[flight.key] = (len(pairs) + 1, flight.queue_key)
        if delay and delay.__class__ is not str:
            delay = seconds(delay) or 0.0  # noqa: PLW2901 - whoever judged: what is handed to the server is bounded
        rows.append(Settlement(known[0], unit.payload, ending, stored, delay, effects))
    config = runtime.config
    statuses = runtime.connections.run(
        settle(
            runtime.keys,
            identity,
            [(key, queue_key) for key, (_, queue_key) in pairs.items()],
            rows,
            lease_ms=int(config.lease * 1000),
            day=day(runtime.clock.now()),
            dead_max=config.dead_max,
            dead_timeout=config.dead_timeout,
        )
    )
    return statuses


def settle_oldest_units(runtime: Any, identity: str, units: Sequence[Unit]) -> int | bytes:
    """Settle the oldest units of one in-flight list, all done, by one cut; see ``store.jobs.settle_oldest``."""
    flight, ends = units[0].flight.key, (units[0].payload, units[-1].payload)
    lease_ms, today = int(runtime.config.lease * 1000), day(runtime.clock.now())
    call = settle_oldest(runtime.keys, identity, flight, ends, len(units), lease_ms, today)
    status: int | bytes = runtime.connections.run(call)[0]
    return status
