"""Figures: of the whole system as it is now, and what ran, class by class, over minutes or hours.

The latter are Sidekiq's execution metrics, of whichever version wrote them. Their limits: a bucket holds what was
written down in it (a heartbeat after it ran); times of failed runs are not kept; histograms are there by the minute
only, so hours have no percentiles. Where both layouts hold a class in a bucket, the fuller one is believed: they are
copies of each other when everything writes both, and one is a part of the other when some programs write only one of
them.
"""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from henchman.errors import ArgumentError
from henchman.inspector.base import Mask
from henchman.inspector.ordered import all_ordered_stats
from henchman.inspector.ordered_id import OrderedStats
from henchman.inspector.processes import ALIVE, ProcessState, Work, living, look_at_fleet
from henchman.inspector.queues import QueueState, jobs_in, list_queues
from henchman.store import metrics as calls
from henchman.store.call import Procedure, ask, side_by_side
from henchman.store.keys import Keys
from henchman.store.metrics import Counted
from henchman.wire import times
from henchman.wire.times import seconds_of
from henchman.work.outcome import CAUSES

__all__ = [
    "ALIVE",
    "FAR",
    "ClassMetrics",
    "Deploy",
    "Metrics",
    "Overview",
    "Stats",
    "UsualTime",
    "beside",
    "by_minutes",
    "default_label",
    "deploy_marks",
    "living",
    "mark_deploy",
    "metrics",
    "overview",
    "percentile",
    "rates",
    "unmark_deploy",
    "usual_times",
]

HISTOGRAMS_MOST = 100_000  # read at most so many, of the classes with the most time first
_PAGE = 2000
_NOTHING = Counted(0, 0, 0)
_LABEL_MOST = 200
_GIT_LIMIT = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Point:
    """One class in one bucket; ``ms`` is the time of the runs that did not fail, in all."""

    processed: int
    failed: int
    ms: int


@dataclass(frozen=True, slots=True)
class ClassMetrics:
    """One class: totals, a point for each bucket, and the 26 counters of its histogram, None where there is none.
    ``causes``: how many of the failed ones for another cause than an error, "timeout": 3; ``spread``: the histogram of
    each bucket, where it was asked for."""

    name: str
    processed: int
    failed: int
    ms: int
    points: tuple[Point, ...]
    histogram: tuple[int, ...] | None
    causes: Mapping[str, int] = field(default_factory=dict)
    spread: tuple[tuple[int, ...] | None, ...] = ()

    @property
    def mean_ms(self) -> float | None:
        """The mean ms of the runs that did not fail; None when every one failed."""
        good = self.processed - self.failed
        return self.ms / good if good > 0 else None

    def percentile_ms(self, share: float) -> float | None:
        """The ms that ``share`` (0 to 1) of the runs stayed below, as exact as the histogram is: a limit of a counter.

        ``math.inf`` beyond the last limit (335 s); None without a histogram.
        """
        return None if self.histogram is None else percentile(self.histogram, share)


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """The limit of the counter, in ms, below which ``share`` of what a histogram counts stayed."""
    if not any(histogram):
        return None
    needed = share * sum(histogram)
    for limit, count in zip((*calls.LIMITS, math.inf), histogram, strict=True):
        needed -= count
        if needed <= 0:
            return float(limit)
    return math.inf


FAR = 3.0  # times as long as usual: far beyond it


class UsualTime(NamedTuple):
    """How long runs of a class take: below how many seconds half and 95 of 100 of those that ended well stayed,
    infinity beyond the last limit of a histogram (335 s); their ``mean``."""

    half: float
    most: float
    mean: float

    def beyond(self, taken: float | None) -> float:
        """How many times as long as 95 of 100 runs (as the mean, where that limit is not known) a run has taken so
        far."""
        limit = self.mean if self.most == math.inf else self.most
        return (taken or 0.0) / max(limit, 0.001)


_COMPARED = 500  # classes of running jobs whose usual times are read


def usual_times(keys: Keys, names: Iterable[str]) -> Procedure[Mapping[str, UsualTime]]:
    """How long runs usually take, by class as people know it, of all runs of which histograms were kept since at most
    90 days: one round trip. A class of which no run ended well is not there."""
    wanted = list(dict.fromkeys(names))[:_COMPARED]
    if not wanted:
        return {}
    totals: list[Counted] = yield calls.totals(keys, [calls.metric_name(one) for one in wanted])
    found = {}
    for name, one in zip(wanted, totals, strict=True):
        half, most = percentile(one.histogram, 0.5), percentile(one.histogram, 0.95)
        if half is not None and most is not None:
            found[name] = UsualTime(half / 1000, most / 1000, one.ms / max(one.processed - one.failed, 1) / 1000)
    return found


class Deploy(NamedTuple):
    """A mark: the Unix time of its minute, and what was deployed. ``marked``: False when it, or its minute, had one."""

    at: float
    label: str
    marked: bool = True


@dataclass(frozen=True, slots=True)
class Metrics:
    """``buckets`` are the Unix times at which each begins, oldest first, ``step`` seconds apart; the classes with the
    most time come first."""

    step: int
    buckets: tuple[float, ...]
    classes: tuple[ClassMetrics, ...]
    deploys: tuple[Deploy, ...]


def metrics(
    keys: Keys,
    minutes: int | None = None,
    *,
    hours: int | None = None,
    name: str | None = None,
    now: float | None = None,
    detailed: int | None = None,
) -> Procedure[Metrics]:
    """The last ``minutes`` (1 to 480; 60 when nothing is said) or ``hours`` (1 to 72), of every class or of one, as of
    ``now`` (Unix seconds; None: the present). ``detailed``: histograms of so many classes alone, those with most time.

    ArgumentError when both are given, or a value is out of its range.
    """
    now = time.time() if now is None else now
    moments, step = _moments(now, minutes, hours)
    buckets = tuple(one.timestamp() for one in moments)
    counted = by_minutes(keys, moments) if step == 60 else _by_ten_minutes(keys, moments, now)
    found, deploys = yield from side_by_side(counted, deploy_marks(keys, buckets[0], buckets[-1] + step))
    wanted = None if name is None else calls.metric_name(name)
    names = {one for bucket in found for one in bucket if wanted is None or one == wanted}
    classes = sorted((_summed(one, found) for one in names), key=lambda one: (-one.ms, -one.processed, one.name))
    if step == 60:
        many = len(classes) if detailed is None else detailed
        each = name is not None
        classes = [*(yield from _with_histograms(keys, moments, classes[:many], each=each)), *classes[many:]]
    return Metrics(step, buckets, tuple(classes), tuple(deploys))


def beside(
    keys: Keys,
    other: str,
    minutes: int | None = None,
    *,
    hours: int | None = None,
    name: str | None = None,
    detailed: int | None = None,
) -> Procedure[tuple[Metrics, Metrics | None]]:
    """``metrics``, and where ``other`` is "before" the same of as long a span before; None: not asked for, or not kept
    any more."""
    now, length = time.time(), ((minutes or 60) if hours is None else 60 * hours) * 60
    kept = calls.MINUTES_KEPT * 60 if hours is None else calls.HOURS_KEPT * 3600
    spans = [
        metrics(keys, minutes, hours=hours, name=name, now=end, detailed=detailed)
        for end in ((now, now - length)[: kept // length] if other else (now,))
    ]
    found = yield from side_by_side(*spans)
    return found[0], found[1] if found[1:] else None


def _moments(now: float, minutes: int | None, hours: int | None) -> tuple[list[dt.datetime], int]:
    """When each bucket begins, oldest first, and how many seconds it is long."""
    if minutes is not None and hours is not None:
        raise ArgumentError(f"minutes={minutes!r} and hours={hours!r}: give one of them")
    what, asked, most = ("minutes", 60 if minutes is None else minutes, calls.MINUTES_KEPT)
    if hours is not None:
        what, asked, most = "hours", hours, calls.HOURS_KEPT
    if not isinstance(asked, int) or isinstance(asked, bool) or not 1 <= asked <= most:
        raise ArgumentError(f"{what}={asked!r}: from 1 to {most} are kept")
    count, step = (asked, 60) if hours is None else (asked * 6, 600)
    last = math.floor(now / step) * step
    return [dt.datetime.fromtimestamp(last - step * back, dt.UTC) for back in reversed(range(count))], step


def by_minutes(keys: Keys, moments: Sequence[dt.datetime]) -> Procedure[list[dict[str, Counted]]]:
    """What ran in the minutes that begin then (UTC), by class, without histograms."""
    both = [key for one in moments for key in (keys.minute(one), keys.minute7(one))]
    found = yield calls.read(both)
    return [_fuller(found[i], found[i + 1]) for i in range(0, len(found), 2)]


def _by_ten_minutes(keys: Keys, moments: Sequence[dt.datetime], now: float) -> Procedure[list[dict[str, Counted]]]:
    """Sidekiq 7 has no such buckets: its minutes are added up, as long as they live."""
    young = [one for one in moments if one.timestamp() + 600 > now - calls.MINUTES_KEPT * 60]
    tens, minutes = yield from side_by_side(
        ask(calls.read([keys.ten_minutes(one) for one in moments])),
        ask(calls.read([keys.minute7(one + dt.timedelta(minutes=n)) for one in young for n in range(10)])),
    )
    old = len(moments) - len(young)
    added = [_added(minutes[i : i + 10]) for i in range(0, len(minutes), 10)]
    return [*tens[:old], *(_fuller(ten, seven) for ten, seven in zip(tens[old:], added, strict=True))]


def _fuller(one: dict[str, Counted], other: dict[str, Counted]) -> dict[str, Counted]:
    fuller = one | other
    for name, counted in one.items():
        if counted.processed >= fuller[name].processed:
            fuller[name] = counted
    return fuller


def _added(parts: Sequence[dict[str, Counted]]) -> dict[str, Counted]:
    total: dict[str, Counted] = {}
    for part in parts:
        for name, more in part.items():
            old = total.get(name, _NOTHING)
            figures = old.processed + more.processed, old.failed + more.failed, old.ms + more.ms
            total[name] = Counted(*figures, (), Counter(old.causes) + Counter(more.causes))
    return total


def _summed(name: str, found: Sequence[dict[str, Counted]]) -> ClassMetrics:
    held = [bucket.get(name, _NOTHING) for bucket in found]
    points = tuple(Point(one.processed, one.failed, one.ms) for one in held)
    processed, failed, ms = sum(p.processed for p in points), sum(p.failed for p in points), sum(p.ms for p in points)
    causes = Counter[str]()
    for one in held:
        if one.causes:
            causes.update(one.causes)
    return ClassMetrics(name, processed, failed, ms, points, None, {one: causes[one] for one in CAUSES if causes[one]})


def _with_histograms(
    keys: Keys, moments: Sequence[dt.datetime], classes: Sequence[ClassMetrics], *, each: bool
) -> Procedure[list[ClassMetrics]]:
    """The classes with their histograms, read only for minutes in which something succeeded; ``each``: those of the
    minutes too."""
    wanted = [
        ((index, place), form(one.name, moment))
        for index, one in enumerate(classes)
        for place, (moment, point) in enumerate(zip(moments, one.points, strict=True))
        if point.processed > point.failed
        for form in (keys.histogram, keys.histogram7)
    ][: HISTOGRAMS_MOST // 2 * 2]
    sums: dict[int, list[int]] = {}
    spread: dict[tuple[int, int], tuple[int, ...]] = {}
    pages = [[key for _, key in wanted[start : start + _PAGE]] for start in range(0, len(wanted), _PAGE)]
    read = [one for page in (yield from side_by_side(*map(ask, map(calls.histograms, pages)))) for one in page]
    for i in range(0, len(wanted), 2):
        better = max((one for one in read[i : i + 2] if one is not None), key=sum, default=None)
        if better is not None:
            index, place = wanted[i][0]
            old = sums.get(index, [0] * len(better))
            sums[index] = [a + b for a, b in zip(old, better, strict=True)]
            spread[index, place] = tuple(better)
    found = [replace(one, histogram=tuple(sums[i]) if i in sums else None) for i, one in enumerate(classes)]
    if not each:
        return found
    return [replace(one, spread=tuple(spread.get((i, n)) for n in range(len(moments)))) for i, one in enumerate(found)]


def mark_deploy(
    keys: Keys, label: str | None = None, at: dt.datetime | None = None, now: float | None = None
) -> Procedure[Deploy]:
    """Mark a deploy of ``now`` (Unix seconds; None: the present), or of the aware time ``at``; without ``label`` it is
    ``default_label()``. One mark a minute: the first stays. A label that was marked in the last minute is not marked
    again, so that every machine of a fleet may mark the same deploy (wire format, section 15).

    ArgumentError for an empty label and a naive time.
    """
    moment = seconds_of(at) if at is not None else time.time() if now is None else now
    label = default_label(moment) if label is None else label
    if not isinstance(label, str) or not label.strip():
        raise ArgumentError(f"{label!r} is no label of a deploy: say what was deployed, such as a version")
    short = label.strip()[:_LABEL_MOST].encode("utf-8", "replace").decode()
    try:
        minute = dt.datetime.fromtimestamp(moment // 60 * 60, dt.UTC)
    except (ValueError, OverflowError, OSError):
        raise ArgumentError(f"{moment!r} is no time of a deploy") from None
    first: bool = yield calls.mark_lock(keys, minute, short)
    marked = (yield calls.mark(keys, minute, short)) if first else False
    return Deploy(minute.timestamp(), short, marked)


def unmark_deploy(keys: Keys, at: float) -> Procedure[bool]:
    """Take the mark of a minute (Unix seconds) away, whoever set it; False when it has none."""
    try:
        minute = dt.datetime.fromtimestamp(at // 60 * 60, dt.UTC)
    except (ValueError, OverflowError, OSError):
        raise ArgumentError(f"{at!r} is no time of a deploy") from None
    return (yield calls.unmark(keys, minute))  # type: ignore[no-any-return]


def deploy_marks(keys: Keys, since: float, until: float) -> Procedure[list[Deploy]]:
    """The marks from ``since`` up to ``until`` (Unix seconds), oldest first."""
    first = dt.datetime.fromtimestamp(since, dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [first]
    while days[-1].timestamp() + 86400 < until:
        days.append(days[-1] + dt.timedelta(days=1))
    found = yield calls.marks(keys, days)
    return [Deploy(at, label) for at, label in sorted(found.items()) if since <= at < until]


def default_label(now: float) -> str:
    """The short hash and subject of the commit that is checked out here; elsewhere the minute of ``now``, in UTC."""
    command = ["git", "log", "-1", "--format=%h %s"]
    try:
        done = subprocess.run(  # noqa: S603 - nothing in it comes from outside
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_GIT_LIMIT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y-%m-%d %H:%M")
    return done.stdout.decode("utf-8", "replace").strip()[:_LABEL_MOST]


LATE = 60.0  # seconds after its time at which a scheduled job or retry is overdue


class Stats(NamedTuple):
    """Counts. ``default_latency``: seconds that the next job of the queue ``default`` has waited, None when unknown.

    ``overdue``: scheduled jobs and retries that should have been put into their queues a minute ago. ``ordered``: ids
    that wait in ordered queues, ``ordered_busy``: that are in flight, ``morgue``: that lie in their morgues.
    ``blocked``: jobs that wait for others.
    """

    processed: int
    failed: int
    processed_today: int
    failed_today: int
    enqueued: int
    scheduled: int
    retries: int
    dead: int
    processes: int
    busy: int
    default_latency: float | None
    overdue: int
    ordered: int = 0
    ordered_busy: int = 0
    morgue: int = 0
    blocked: int = 0


class Overview(NamedTuple):
    """Everything at one moment (``at``, Unix seconds): counts, queues of both kinds, living processes, running jobs,
    the processes that were not heard of for a minute, and how many seconds the next job of a queue may wait."""

    at: float
    stats: Stats
    queues: list[QueueState]
    processes: list[ProcessState]
    work: Sequence[Work]
    ordered: list[OrderedStats]
    lost: Sequence[ProcessState] = ()
    objectives: Mapping[str, float] = {}


def overview(keys: Keys, mask: Mask | None = None) -> Procedure[Overview]:
    """Everything as it is now, in two round trips."""
    at = time.time()
    figures, (queues, _, objectives), fleet, ordered = yield from side_by_side(
        ask(calls.figures(keys, times.day(at), at - LATE)),
        list_queues(keys, at=at),
        look_at_fleet(keys, mask),
        all_ordered_stats(keys),
    )
    processes = living(fleet.processes, at)
    counts = Stats(
        **figures._asdict(),
        enqueued=jobs_in(queues),
        processes=len(processes),
        busy=sum(one.busy for one in processes),
        default_latency=next((one.latency for one in queues if one.name == "default"), 0.0),
        ordered=sum(one.length for one in ordered),
        ordered_busy=sum(one.busy for one in ordered),
        morgue=sum(one.morgue_length for one in ordered),
    )
    lost = [one for one in fleet.processes if (one.beat_age(at) or 0.0) > ALIVE]
    return Overview(at, counts, queues, processes, fleet.work, ordered, lost, objectives)


def rates(before: Overview, now: Overview) -> Mapping[str, float]:
    """Jobs a second between two looks: processed and failed. Zero when a counter was set back, or no time passed."""
    seconds = now.at - before.at
    if seconds <= 0:
        return {"processed": 0.0, "failed": 0.0}
    return {
        name: max(getattr(now.stats, name) - getattr(before.stats, name), 0) / seconds
        for name in ("processed", "failed")
    }
