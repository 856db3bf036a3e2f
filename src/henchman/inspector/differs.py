"""What differs: what the failures of an error have in common that other runs have not.

Failures by host and by version are held against the slots that living processes have there, of those that serve the
queues of the error; by the hour against the hours since it was first seen. Something differs where so many failures
have it that chance would do this once in a hundred times at most.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypedDict

from henchman.inspector.errors import ErrorGroup, error_group
from henchman.inspector.processes import ProcessState, list_processes, living
from henchman.kernel.text import count, shorten
from henchman.store.call import Procedure, side_by_side
from henchman.store.keys import Keys

__all__ = ["FEW", "Difference", "DifferenceJson", "look_at_error", "what_differs"]

FEW: Final = 5  # failures of which nothing is said
_ALL: Final = 0.9  # of the failures: those who have so many have them all, but for some
_CHANCE: Final = math.log(100)  # once in a hundred times
_NAMED: Final = 3  # values that a sentence names
_KEPT: Final = 48  # hours that a group counts

What = Literal["host", "version", "hour"]


class DifferenceJson(TypedDict):
    """As programs have it; ``others``: the share (0 to 1) that was to be expected."""

    what: str
    values: list[str]
    failures: int
    of: int
    others: float
    text: str


class Difference(NamedTuple):
    """Of the ``of`` failures of which this is known ``failures`` have one of the ``values``; ``others``: the share that
    was to be expected of them."""

    what: What
    values: tuple[str, ...]
    failures: int
    of: int
    others: float
    text: str

    def to_json(self) -> DifferenceJson:
        """As the command line and programs have it."""
        return {**self._asdict(), "values": list(self.values)}  # type: ignore[typeddict-item]


def look_at_error(keys: Keys, name: str, now: float) -> Procedure[tuple[ErrorGroup | None, list[Difference]]]:
    """One group with its traceback, and what differs, in two round trips; None when nobody knows it (any more)."""
    one, processes = yield from side_by_side(error_group(keys, name, now), list_processes(keys))
    return one, what_differs(one, living(processes, now), now) if one else []


def what_differs(one: ErrorGroup, alive: Iterable[ProcessState], now: float) -> list[Difference]:
    """What the failures of a group have in common as of ``now``, the farthest from what was to be expected first.
    ``alive``: the processes that live."""
    serving = [process for process in alive if not one.queues.keys().isdisjoint(process.queues)]
    by_host, by_version = Counter[str](), Counter[str]()
    for process in serving:
        by_host[process.hostname] += process.concurrency
        by_version[process.tag] += process.concurrency
    found = [
        *_placed("host", one.hosts, by_host, one.count),
        *_placed("version", one.versions, by_version, one.count),
        *_hours(one, now),
    ]
    return sorted(found, key=lambda each: each.others)


def _placed(what: What, failed: Mapping[str, int], slots: Mapping[str, int], every: int) -> list[Difference]:
    """Failures by place against slots by place. Places where no process lives any more are compared with nothing."""
    known = {name: many for name, many in failed.items() if slots.get(name)}
    if len(slots) < 2 or 2 * sum(known.values()) < every:
        return []
    found = _stands_out(known, slots)
    if found is None:
        return []
    values, many, expected = found
    has = "has" if len(values) == 1 else "have"
    own, total = sum(slots[name] for name in values), sum(slots.values())
    text = (
        f"{_named(what, values)} {has} {many:,} of {count(sum(known.values()), 'failure')}, "
        f"but {own:,} of the {total:,} slots that serve its queues"
    )
    return [Difference(what, values, many, sum(known.values()), expected, text)]


def _hours(one: ErrorGroup, now: float) -> list[Difference]:
    """Failures by the hour of the day, where the error is older than a day; else nothing is to be seen yet."""
    last = int(now // 3600)
    since = max(int(one.first // 3600), last - _KEPT + 1)
    if last - since < 24:
        return []
    counts = Counter[str]()
    for hour, many in one.hours.items():
        if since <= hour <= last:
            counts[_of_day(hour)] += many
    found = _stands_out(counts, Counter(map(_of_day, range(since, last + 1))))
    if found is None:
        return []
    values, many, expected = found
    when = f"In the {'hour' if len(values) == 1 else 'hours'} from {_listed(sorted(values))} UTC"
    text = f"{when} fall {many:,} of {count(sum(counts.values()), 'failure')} of the last two days"
    return [Difference("hour", tuple(sorted(values)), many, sum(counts.values()), expected, text)]


def _of_day(hour: int) -> str:
    return dt.datetime.fromtimestamp(hour * 3600, dt.UTC).strftime("%H:00")


def _stands_out(failed: Mapping[str, int], weights: Mapping[str, int]) -> tuple[tuple[str, ...], int, float] | None:
    """The fewest values that have nearly all failures, how many, and the share that their weights promise; None where
    that is what chance does, which has so many choices of as many values."""
    total, values, many = sum(failed.values()), list[str](), 0
    for name, some in sorted(failed.items(), key=lambda each: (-each[1], each[0])):
        if many >= _ALL * total:
            break
        values.append(name)
        many += some
    expected = sum(weights[name] for name in values) / max(sum(weights.values()), 1)
    if total < FEW or not 0 < expected < 1:
        return None
    choices = math.log(math.comb(len(weights), len(values)))
    return (tuple(values), many, expected) if total * _far(many / total, expected) >= _CHANCE + choices else None


def _far(share: float, expected: float) -> float:
    """How far a share is above what was expected, in the measure of large deviations; 0 where it is below."""
    if share <= expected:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - expected)) if share < 1 else 0.0
    return share * math.log(share / expected) + rest


def _named(what: str, values: Sequence[str]) -> str:
    return f"{what.capitalize()}{'' if len(values) == 1 else 's'} {_listed(values)}"


def _listed(values: Sequence[str]) -> str:
    """The first three, and how many more."""
    names = [shorten(one, 60) or "–" for one in values[:_NAMED]]
    if len(values) > _NAMED:
        return f"{', '.join(names)} and {len(values) - _NAMED:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
