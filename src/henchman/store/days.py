"""What ended on each day, in UTC by the server's clock, as calls: bounded, and there without SQL.

Its limits first: a day has counts of what worker processes settled, written at their heartbeats; the latest 1,000 that
gave up; of jobs that are tracked or have a key the latest 200 that returned; all of it for 180 days.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from henchman.store.call import Arg, Call, commands
from henchman.store.keys import Keys
from henchman.store.queues import raw

__all__ = [
    "DAYS_KEPT",
    "DEAD_MOST",
    "DONE_MOST",
    "ENDS",
    "NAMES_MOST",
    "OTHERS",
    "ClassNames",
    "DayEnds",
    "DaySizes",
    "EndedRow",
    "add",
    "day_counts",
    "ends_of",
    "sizes",
]

DAYS_KEPT: Final = 180
DEAD_MOST: Final = 1000
DONE_MOST: Final = 200
NAMES_MOST: Final = 1000  # classes of a day that one process counts apart; those beyond count under ``OTHERS``
OTHERS: Final = "(others)"
#: how an end is counted: ``dead`` is what gave up, whether it was kept or not
ENDS: Final = ("done", "failed", "dead", "cancelled", "expired")

_LIFE: Final = DAYS_KEPT * 86400
_NAME, _JID, _MESSAGE = 200, 100, 200  # characters
_ROW_BYTES, _COUNT_BYTES = 420, 80  # of a job, of a count: at most about so many


class EndedRow(NamedTuple):
    """A job that ended: when (Unix time), and of one that gave up with what error."""

    at: float
    jid: str
    name: str
    error_class: str = ""
    message: str = ""

    def stored(self) -> bytes:
        """As it stands in a list, bounded whatever its texts are."""
        texts = zip(self[1:], (_JID, _NAME, _NAME, _MESSAGE), strict=True)
        return msgspec.json.encode([round(self.at, 3), *(_clean(one)[:most] for one, most in texts)])


class DayEnds:
    """What ended on one day and is not written yet: counts by class and end, and the latest jobs."""

    __slots__ = ("counts", "dead", "done")

    def __init__(self) -> None:
        self.counts = Counter[tuple[str, str]]()
        self.dead = deque[EndedRow](maxlen=DEAD_MOST)
        self.done = deque[EndedRow](maxlen=DONE_MOST)

    def before(self, later: DayEnds) -> None:
        """Add what came ``later``."""
        self.counts.update(later.counts)
        self.dead.extend(later.dead)
        self.done.extend(later.done)


class ClassNames:
    """The classes that one process counts apart on its latest day: pushers may choose names without end."""

    def __init__(self) -> None:
        self._day, self._names = 0, set[str]()

    def bounded(self, day: int, ends: DayEnds) -> DayEnds:
        """``ends`` of a day (its number), what is of classes beyond ``NAMES_MOST`` under one name."""
        if day > self._day:
            self._day, self._names = day, set()
        counts, ends.counts = ends.counts, Counter()
        for (name, end), many in counts.items():
            short = name[:_NAME]
            if short not in self._names and len(self._names) >= NAMES_MOST:
                short = OTHERS
            self._names.add(short)
            ends.counts[short, end] += many
        return ends


def add(keys: Keys, days: Mapping[str, DayEnds]) -> Iterator[tuple[Arg, ...]]:
    """The commands that add what ended to its days (``2026-11-21``)."""
    for day, ends in days.items():
        sums = Counter[tuple[str, str]]()
        for (_, end), many in ends.counts.items():
            sums["", end] += many
        counted = [pair for pair in (*ends.counts.items(), *sums.items()) if pair[1]]
        for (name, end), many in counted:
            yield ("HINCRBY", keys.day(day), raw(f"{name}|{end}"), many)
        if counted:
            yield ("EXPIRE", keys.day(day), _LIFE)
        for which, rows, most in (("dead", ends.dead, DEAD_MOST), ("done", ends.done, DONE_MOST)):
            if rows:
                key = keys.day(day, which)
                yield ("LPUSH", key, *(one.stored() for one in rows))
                yield ("LTRIM", key, 0, most - 1)
                yield ("EXPIRE", key, _LIFE)


def day_counts(keys: Keys, days: Sequence[str]) -> Call[dict[str, dict[str, int]]]:
    """How many jobs ended on each of ``days`` (at least one), by end; days without any are left out."""

    def read(replies: list[Any]) -> dict[str, dict[str, int]]:
        found = {}
        for day, sums in zip(days, replies, strict=True):
            counts = {end: number for end, text in zip(ENDS, sums, strict=True) if (number := _number(text))}
            if counts:
                found[day] = counts
        return found

    return commands(*(("HMGET", keys.day(day), *(f"|{end}" for end in ENDS)) for day in days), decode=read)


def ends_of(keys: Keys, day: str) -> Call[DayEnds]:
    """What ended on ``day``: counts by class and end, and the jobs that are remembered, the latest first."""

    def read(replies: list[Any]) -> DayEnds:
        ends, flat = DayEnds(), replies[0]
        for place in range(0, len(flat), 2):
            name, _, end = flat[place].decode("utf-8", "surrogateescape").rpartition("|")
            if name and end in ENDS and (number := _number(flat[place + 1])):
                ends.counts[name, end] = number
        ends.dead.extend(_rows(replies[1]))
        ends.done.extend(_rows(replies[2]))
        return ends

    dead, done = keys.day(day, "dead"), keys.day(day, "done")
    lists = ("LRANGE", dead, 0, DEAD_MOST - 1), ("LRANGE", done, 0, DONE_MOST - 1)
    return commands(("HGETALL", keys.day(day)), *lists, decode=read)


class DaySizes(NamedTuple):
    """How much stands there of some days: days that have something, counts, jobs, and at most about how many bytes."""

    days: int
    counts: int
    jobs: int

    @property
    def most_bytes(self) -> int:
        """At most about so many bytes."""
        return self.counts * _COUNT_BYTES + self.jobs * _ROW_BYTES


def sizes(keys: Keys, days: Sequence[str]) -> Call[DaySizes]:
    """How much stands there of ``days``, at least one."""
    asked = [
        part
        for day in days
        for part in (("HLEN", keys.day(day)), ("LLEN", keys.day(day, "dead")), ("LLEN", keys.day(day, "done")))
    ]

    def read(replies: list[int]) -> DaySizes:
        counts, jobs = replies[::3], [*replies[1::3], *replies[2::3]]
        return DaySizes(sum(map(bool, counts)), sum(counts), sum(jobs))

    return commands(*asked, decode=read)


def _rows(stored: Sequence[bytes]) -> Iterator[EndedRow]:
    for one in stored:
        try:
            row = EndedRow(*msgspec.json.decode(one, type=tuple[float, str, str, str, str]))
        except msgspec.MsgspecError:  # somebody wrote something else there
            continue
        yield row


def _number(text: bytes | None) -> int:
    try:
        return int(text or 0)
    except ValueError:  # somebody wrote something else there
        return 0


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
