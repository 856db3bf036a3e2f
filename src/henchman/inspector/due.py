"""When retries and scheduled jobs come due: how many in each minute of the next hour, or each half hour of the next
day; and spreading those that come at once over some minutes."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple, TypedDict

from henchman.inspector.base import Entry
from henchman.store import queues
from henchman.store.call import Procedure, ask, side_by_side
from henchman.store.keys import Keys
from henchman.wire import times

__all__ = ["DUE_SPANS", "DueJson", "DueTimes", "Peak", "due_times", "peak_of", "ran_lately", "span_of", "spread_time"]

DueSpan = Literal["hour", "day"]
#: by name, how many bars there are and how many seconds each is long
DUE_SPANS: Final[dict[DueSpan, tuple[int, int]]] = {"hour": (60, 60), "day": (48, 1800)}
_PACE: Final = 600.0  # seconds of which it is known how many jobs ran
_MANY: Final = 2.0  # times as many as workers ran in as long: a peak
_LEAST: Final = 50  # jobs within a minute that are a peak


class DueJson(TypedDict):
    """As programs have it: ``counts`` from ``since`` on, each ``step`` seconds long; ``ran``: what workers ran in a
    minute lately; ``peak``: when most fall due at once, null where workers can keep up."""

    since: str
    step: int
    overdue: int
    counts: list[int]
    later: int
    ran: float | None
    peak: str | None


class Peak(NamedTuple):
    """The bar in which most jobs fall due, ``many`` from the Unix time ``at`` on, which is more than workers run."""

    at: float
    many: int


class DueTimes(NamedTuple):
    """How many jobs fall due in each of the ``counts``, from the Unix time ``since`` on, ``step`` seconds each; before
    that (``overdue``) and after it (``later``). ``ran``: jobs that workers ran in a minute lately, None where that has
    not been measured."""

    since: float
    step: int
    overdue: int
    counts: Sequence[int]
    later: int
    ran: float | None

    @property
    def peak(self) -> Peak | None:
        """The fullest bar, if it holds twice as many as workers ran in as long lately."""
        many = max(self.counts)
        if many < max(_LEAST, _MANY * (self.ran or 0.0) * self.step / 60):
            return None
        return Peak(self.since + self.step * list(self.counts).index(many), many)

    def to_json(self) -> DueJson:
        """As programs have it."""
        peak = self.peak
        return {
            **self._asdict(),  # type: ignore[typeddict-item]
            "since": times.iso(self.since),
            "counts": list(self.counts),
            "peak": times.iso(peak.at) if peak else None,
        }


def span_of(word: str) -> DueSpan:
    """The next day where a word says so; else the next hour."""
    return "day" if word == "day" else "hour"


def due_times(keys: Keys, key: str, now: float, span: DueSpan = "hour") -> Procedure[DueTimes]:
    """When the jobs of the set ``key`` come due, as of the Unix time ``now``: one round trip."""
    many, step = DUE_SPANS[span]
    since = now // step * step
    edges = [since + step * bar for bar in range(many + 1)]
    counted, past = yield from side_by_side(ask(queues.set_counts(key, edges)), ask(queues.levels(keys)))
    return DueTimes(since, step, counted[0], counted[1:-1], counted[-1], ran_lately(past, now))


def ran_lately(past: Sequence[queues.Level], now: float) -> float | None:
    """How many jobs a minute workers have ended in the last minutes, out of what was noted, the latest first; None: too
    little was."""
    older = [one for one in past if 60 <= now - one.at < _PACE]
    newest = past[0] if past else None
    if newest and older and newest.at > older[-1].at:
        return max(60 * (newest.processed - older[-1].processed) / (newest.at - older[-1].at), 0.0)
    return None


def peak_of(entries: Iterable[Entry], now: float, most: int) -> float:
    """The Unix time at which the fullest minute begins of those in which entries fall due (at most ``most`` are looked
    at); ``now`` where that is this minute, or has been."""
    minutes = Counter(max(one.score or 0.0, now) // 60 for one in islice(entries, most))
    fullest = max(minutes, key=lambda one: (minutes[one], -one), default=0.0)
    return max(60 * fullest, now)


def spread_time(entry: Entry, since: float, over: float) -> float:
    """The Unix time of a job when jobs are spread ``over`` so many seconds: always the same of one job."""
    part = zlib.crc32(entry.jid.encode("utf-8", "replace") or entry.payload) / 2**32
    return round(since + over * part, 3)
