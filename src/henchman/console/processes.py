"""The page of one worker process: what it is, what it runs and holds, where its threads stand."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from henchman.client.runtime import Runtime
from henchman.console.graph import SlotRun, Slots, slots
from henchman.console.pages import Query, Screen, View, running_row
from henchman.errors import HistoryError
from henchman.history.records import Event
from henchman.inspector.metrics import usual_times
from henchman.inspector.processes import Work, look_at_process
from henchman.kernel.text import visible
from henchman.oncall.deeds import Deed, Missing
from henchman.oncall.findings import LOST
from henchman.store.call import run

__all__ = ["MemoryLine", "ProcessPages", "memory_line"]

_BACK: Final = 900.0  # seconds that the picture of its slots goes back
_BARS: Final = 80  # runs in it
_WORK: Final = 25  # running jobs of a page
_WIDTH, _HEIGHT = 600.0, 60.0  # of the picture of the memory


class MemoryLine(NamedTuple):
    """The memory of a process over time, as points of a line: KB at the least, at the most and at last."""

    points: str
    least: int
    most: int
    last: int
    minutes: int


def memory_line(kb: Sequence[int]) -> MemoryLine | None:
    """The line through figures of one minute each; None for fewer than two."""
    if len(kb) < 2:
        return None
    least, most = min(kb), max(kb)
    low, high = least * 0.9, max(most * 1.05, least + 1)  # a change of little stays a small one
    points = (
        f"{_WIDTH * at / (len(kb) - 1):.1f},{_HEIGHT * (1 - (one - low) / (high - low)):.1f}"
        for at, one in enumerate(kb)
    )
    return MemoryLine(" ".join(points), least, most, kb[-1], len(kb) - 1)


class ProcessPages:
    """The page of a process; what it can be told stands among the deeds of every app."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.views: Mapping[tuple[str, int], View] = {("processes", 1): self.one}
        self.deeds: Mapping[tuple[str, str], Deed] = {}

    def one(self, identity: str, query: Query) -> Screen:
        """One process."""
        query.unless_said(_WORK)
        seen = run(
            self._runtime.connections, look_at_process(self._runtime.keys, identity, self._runtime.registry.mask)
        )
        if seen is None:
            raise Missing(
                f"no process {visible(identity)[:120]} is known: it has stopped, or its record is older than a day"
            )
        age = seen.state.beat_age(time.time()) if seen.state else None
        some = seen.work[query.first : query.first + query.rows]
        usual = run(self._runtime.connections, usual_times(self._runtime.keys, [one.entry.name for one in some]))
        facts = {
            "identity": identity,
            "one": seen.state,
            "seen": seen,
            "is_lost": seen.entombed or seen.state is None or (age or 0.0) > LOST,
            "memory": memory_line(seen.memory),
            "in_flight": sum(many for _, many in seen.lists),
            "work": [running_row(one, self._runtime.clock.now(), usual) for one in some],
            "total": len(seen.work),
            "slots": self._slots(identity, seen.work),
            "back": _BACK,
        }
        return Screen("process.html", facts)

    def _slots(self, identity: str, work: Sequence[Work]) -> Slots | None:
        """What it ran lately, as history knows it, and what it runs."""
        now = self._runtime.clock.now()
        if self._runtime.config.why_history_is_off():
            return None
        try:
            ended: list[Event] = self._runtime.open_history().reading.longest_on(identity, now - _BACK, most=_BARS)
        except HistoryError:
            return None
        runs = [SlotRun(one.jid, one.class_, one.status, one.started_at or now, one.ended_at) for one in ended]
        longest = ((one.entry, one.run_at) for one in work[:_BARS])
        runs += [SlotRun(one.jid, one.name, "working", began, None) for one, began in longest if began is not None]
        return slots(runs, now - _BACK, now)
