"""How many slots the work asks for: what an autoscaler follows.

By Little's law, as many as ran in the last minutes on average, and as many more as it takes to empty the queues within
a time that is chosen. It knows what ended, not what is going to be pushed; where nothing ended lately, a run is taken
for a second long.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from henchman.errors import ArgumentError
from henchman.inspector.metrics import by_minutes
from henchman.inspector.ordered_id import OrderedStats
from henchman.inspector.queues import QueueState
from henchman.store.call import Procedure
from henchman.store.keys import Keys

__all__ = ["WITHIN", "Pace", "SlotsWanted", "checked_within", "pace", "wanted_slots", "within_of"]

WITHIN = 60.0  # seconds in which what waits should have started
_MINUTES = 5  # whose runs are looked at
_UNKNOWN = 1.0  # seconds that a run is taken to last when none has ended


class Pace(NamedTuple):
    """What ran in the last minutes: runs a second, and the seconds of one on average, None when none ended well."""

    rate: float
    seconds: float | None

    @property
    def busy(self) -> float:
        """Slots that were in use, on average."""
        return self.rate * (self.seconds or 0.0)


class SlotsWanted(NamedTuple):
    """Slots that should be there: in all, and of these what the backlog of each queue adds."""

    slots: int
    queues: dict[str, int]


def checked_within(seconds: object) -> float:
    """``seconds``; ArgumentError for what is no time from a second to a day."""
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 1 <= seconds <= 86_400:
        return float(seconds)
    raise ArgumentError(f"within={seconds!r}: give seconds, from 1 to 86400")


def within_of(text: str) -> float:
    """What ``within=`` in an address says, ``WITHIN`` where it says nothing; ArgumentError as above."""
    try:
        return checked_within(float(text)) if text else WITHIN
    except ValueError:  # no number, or none of those
        raise ArgumentError(f"within={text[:100]!r}: give seconds, from 1 to 86400") from None


def pace(keys: Keys, now: float) -> Procedure[Pace]:
    """How fast it went in the minutes before the Unix time ``now``; Ruby's runs are in it where they are counted."""
    minute = dt.datetime.fromtimestamp(now // 60 * 60, dt.UTC)
    moments = [minute - dt.timedelta(minutes=back) for back in range(_MINUTES)]
    found = [one for minute in (yield from by_minutes(keys, moments)) for one in minute.values()]
    runs, ms = sum(one.processed for one in found), sum(one.ms for one in found)
    good, seconds = runs - sum(one.failed for one in found), 60.0 * (_MINUTES - 1) + now % 60
    return Pace(runs / seconds, ms / good / 1000 if good > 0 else None)


def wanted_slots(
    queues: Iterable[QueueState], ordered: Sequence[OrderedStats], busy: int, pace: Pace, within: float = WITHIN
) -> SlotsWanted:
    """The slots for what runs (``busy`` jobs now), at this pace, and for what waits in queues that are not paused; none
    when nothing runs or waits, at least one otherwise."""
    backlog = {one.name: one.size or 0 for one in queues if not one.paused}
    backlog |= {one.name: one.length for one in ordered if not one.paused}
    each = pace.seconds if pace.seconds is not None else _UNKNOWN
    more = {name: waiting * each / within for name, waiting in backlog.items()}
    slots = math.ceil(round(pace.busy + sum(more.values()), 6))
    if busy or any(backlog.values()):
        slots = max(slots, 1)
    return SlotsWanted(slots, {name: math.ceil(round(one, 6)) for name, one in more.items()})
