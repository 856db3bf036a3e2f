"""How fast queues go, out of what workers write down of each minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from henchman.inspector.queues import QueueState
from henchman.store import queues

__all__ = ["Flow", "flow_of"]


class Flow(NamedTuple):
    """How fast a queue goes, in jobs a second over the last minutes, None where that is not known yet: ``left`` it,
    run or dropped by workers of Henchman; ``net``: by how many it grew, less than zero where it drains."""

    left: float | None = None
    net: float | None = None

    @property
    def entered(self) -> float | None:
        """How many were pushed a second, also by retries and the schedule."""
        return None if self.left is None or self.net is None else max(self.left + self.net, 0.0)


def flow_of(past: Sequence[queues.Level], ran: Mapping[str, int], state: QueueState, at: float) -> Flow:
    """How fast a queue went in the last ten minutes as of ``at`` (Unix seconds), out of what was written down of them,
    the latest first, and how many jobs have left it by now."""
    name, size = state.name, state.size or 0
    known = [one for one in past if 60 <= at - one.at < 600 and (name in one.sizes or name in one.ran)]
    if not known:
        return Flow()
    first = known[-1]
    seconds, before = at - first.at, first.ran.get(name)
    left = None if before is None or ran.get(name, 0) < before else (ran[name] - before) / seconds
    return Flow(left, (size - first.sizes.get(name, 0)) / seconds)
