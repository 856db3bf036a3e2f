"""The lines of a fair queue for people: who waits, how many jobs, since when."""

from __future__ import annotations

import time
from typing import Final, NamedTuple, TypedDict

from henchman.errors import ArgumentError
from henchman.inspector.base import latency_of
from henchman.store import fair, queues
from henchman.store.call import Procedure, ask, side_by_side
from henchman.store.keys import Keys

__all__ = ["TenantJson", "TenantList", "TenantState", "set_weight", "tenants_of"]

MOST_WEIGHTS: Final = 1000  # tenants of a queue that have a weight: every fetch reads them


class TenantJson(TypedDict):
    """A line of a fair queue; ``latency``: seconds that its next job has waited."""

    tenant: str
    level: str
    size: int
    latency: float | None
    weight: int
    paused: bool


class TenantState(NamedTuple):
    """One line of a fair queue: of ``tenant`` ("" for jobs without one) on ``level``; its ``size``, since how many
    seconds its next job waits, its ``weight``, and whether it is paused."""

    tenant: str
    level: str
    size: int
    latency: float | None
    weight: int
    paused: bool

    def to_json(self) -> TenantJson:
        """As the command line and programs have it."""
        return {
            "tenant": self.tenant,
            "level": self.level,
            "size": self.size,
            "latency": self.latency,
            "weight": self.weight,
            "paused": self.paused,
        }


class TenantList(NamedTuple):
    """Some of the lines of a fair queue, by turns, and how many there are; ``arriving``: jobs that have yet to be taken
    into lines, or are next to run."""

    lines: list[TenantState]
    total: int
    arriving: int


def tenants_of(keys: Keys, name: str, most: int) -> Procedure[TenantList]:
    """The lines of a fair queue, at most ``most``; none of any other queue."""
    at = time.time()
    (lines, total), weights, paused, [look] = yield from side_by_side(
        fair.lines(keys, name, most),
        ask(fair.weights(keys, name)),
        ask(queues.paused(keys)),
        queues.look(keys, [name]),
    )
    states = [
        TenantState(
            one.tenant,
            one.level,
            one.size,
            latency_of(one.next, at),
            weights.get(one.tenant, 1),
            fair.line_name(name, one.level, one.tenant) in paused,
        )
        for one in lines
    ]
    return TenantList(states, total, 0 if isinstance(look, str) else look.size - look.lines)


def set_weight(keys: Keys, queue: str, tenant: str, weight: int) -> Procedure[None]:
    """Give the tenant so many turns where others have one; 1 is what all have."""
    if type(weight) is not int or not 1 <= weight <= 100:
        raise ArgumentError(f"weight={weight!r}: give a whole number of turns from 1 to 100")
    if queue not in (yield fair.names(keys)):
        raise ArgumentError(f"queue {queue!r} is not fair: no job of it says fair_by=")
    known: dict[str, int] = yield fair.weights(keys, queue)
    if len(known) >= MOST_WEIGHTS and tenant not in known and weight != 1:
        raise ArgumentError(f"{MOST_WEIGHTS:,} tenants of {queue!r} have weights already: take one back with 1")
    yield fair.set_weight(keys, queue, tenant, weight)
