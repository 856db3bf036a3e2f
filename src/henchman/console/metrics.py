"""Pages of what ran: every class, one class, out of the figures that workers write with each heartbeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from henchman.client.runtime import Runtime
from henchman.console.chart import Spark, chart, heat_map, lines, spark, summed
from henchman.console.narrowing import in_order
from henchman.console.pages import Query, Screen, View
from henchman.inspector.metrics import ClassMetrics, Metrics, Point, beside, percentile
from henchman.kernel.figures import span
from henchman.oncall.deeds import MINUTES_AGO, Deed
from henchman.store.call import run
from henchman.store.metrics import LIMITS, metric_name
from henchman.store.pauses import pauses

__all__ = ["MetricsPages"]

_ROWS: Final = 25
_COMPARED: Final = 5  # classes whose times are drawn beside each other
_DETAILED: Final = 16  # classes of which percentiles are read: those with the most time
_RANGES: Final = {"": "1 hour", "8": "8 hours", "24": "1 day", "72": "3 days"}
_EARLIER: Final = {"": "the hour", "8": "the 8 hours", "24": "the day"}  # before; beyond these nothing is kept
_POINTS: Final = 24  # bars of a small picture


class RunFigures(NamedTuple):
    """What ran in some time: runs, failures, the mean and below what 95 of 100 of those that did not fail stayed, in
    seconds (None: not known)."""

    processed: int
    failed: int
    mean: float | None
    most: float | None

    @property
    def share(self) -> float | None:
        """How many of a hundred failed; None: nothing ran."""
        return 100 * self.failed / self.processed if self.processed else None

    def is_worse_than(self, other: RunFigures) -> bool:
        """Whether more than twice the share failed, and a hundredth more."""
        if self.share is None or other.share is None:
            return False
        return self.share > 2 * other.share + 1

    def is_slower_than(self, other: RunFigures) -> bool:
        """Whether runs took half again as long, or 95 of 100 more than twice as long (limits are so far apart)."""
        if self.mean and other.mean and self.mean > 1.5 * other.mean:
            return True
        return bool(self.most and other.most and self.most > 2 * other.most)


class ClassRow(NamedTuple):
    """A class in the table; ``before``: in the span before, where that was asked for and it ran."""

    one: ClassMetrics
    bars: Sequence[Spark]
    p50: str
    p95: str
    ran: RunFigures
    before: RunFigures | None = None


class Slice(NamedTuple):
    """Runs between two deploys: since when, what was deployed then, and whether more failed, or runs took longer, than
    before."""

    at: float | None
    label: str
    ran: RunFigures
    worse: bool = False
    slower: bool = False


class HistogramStep(NamedTuple):
    """A counter of a histogram: below which time, how many, and how wide its bar is, in thousandths."""

    below: str
    many: int
    width: float


_COLUMNS: Final[Mapping[str, Callable[[ClassMetrics], Any]]] = {
    "name": lambda one: one.name,
    "done": lambda one: one.processed - one.failed,
    "failed": lambda one: one.failed,
    "share": lambda one: _stretch(one).share,
    "mean": lambda one: one.mean_ms,
}


class MetricsPages:
    """The pages; nothing is done here."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def views(self) -> Mapping[tuple[str, int], View]:
        """What makes a page, by the first word of its address and how many names follow."""
        return {("metrics", 0): self.classes, ("metrics", 1): self.one}

    @property
    def deeds(self) -> Mapping[tuple[str, str], Deed]:
        """None."""
        return {}

    def _read(self, query: Query, name: str | None = None) -> tuple[Metrics, Mapping[str, RunFigures], dict[str, Any]]:
        """The figures, those of the span before by class where they were asked for, and what the page says of both."""
        hours, against = query.word("by", *_RANGES), query.word("vs", "before")
        asked = beside(self._runtime.keys, against, hours=int(hours) if hours else None, name=name, detailed=_DETAILED)
        found, before = run(self._runtime.connections, asked)
        facts = {
            "ranges": _RANGES,
            "by": hours,
            "vs": against,
            "span": _RANGES[hours],
            "compares": before is not None,
            "earlier": _EARLIER.get(hours, ""),
        }
        return found, {one.name: _stretch(one) for one in before.classes} if before else {}, facts

    def classes(self, query: Query) -> Screen:
        """Every class, those with the most time first."""
        found, before, said = self._read(query)
        sort = query.sort(_COLUMNS)
        parts = [part.strip().lower() for part in query.search.split(",") if part.strip()] or [""]
        fits = (one for one in found.classes if any(part in one.name.lower() for part in parts))
        wanted = in_order(fits, _COLUMNS, sort)
        shown = wanted[query.page * _ROWS - _ROWS : query.page * _ROWS]
        facts = {
            "rows": None,
            "classes": [_row(one, before) for one in shown],
            "total": len(wanted),
            "chart": chart(found, wanted),
            "beside": lines(found, wanted) if 1 < len(wanted) <= _COMPARED else None,
            "slices": _slices(found, [_sum_of(points) for points in zip(*(one.points for one in wanted), strict=True)]),
            "minutes_ago": MINUTES_AGO,
            "below": _below,
            "sort": sort,
        }
        return Screen("metrics.html", facts | said)

    def one(self, name: str, query: Query) -> Screen:
        """One class: runs and failures over time, how long it took, before and after each deploy."""
        wanted = metric_name(name)
        found, before, said = self._read(query, name)
        known = next((one for one in found.classes if one.name == wanted), None)
        subject = f"class:{wanted}"
        [pause] = self._runtime.connections.run(pauses(self._runtime.keys, [subject]))
        facts = {
            "name": wanted,
            "subject": subject,
            "pause": pause,
            "one": None if known is None else _row(known, before),
            "chart": chart(found, found.classes),
            "steps": [] if known is None else _steps(known),
            "heat": None if known is None else heat_map(found, known),
            "below": _below,
            "slices": [] if known is None else _slices(found, known.points, known.spread),
        }
        return Screen("metric.html", facts | said)


def _row(one: ClassMetrics, before: Mapping[str, RunFigures]) -> ClassRow:
    each = math.ceil(len(one.points) / _POINTS)
    counts = [sum(point.processed for point in one.points[at : at + each]) for at in range(0, len(one.points), each)]
    half, most = _below(one.percentile_ms(0.5)), _below(one.percentile_ms(0.95))
    return ClassRow(one, spark(counts), half, most, _stretch(one), before.get(one.name))


def _stretch(one: ClassMetrics) -> RunFigures:
    mean, most = one.mean_ms, one.percentile_ms(0.95)
    return RunFigures(one.processed, one.failed, *(None if ms is None else ms / 1000 for ms in (mean, most)))


def _below(ms: float | None) -> str:
    """What a percentile says: below which limit of the histogram it lies."""
    if ms is None:
        return "–"
    return f"> {span(LIMITS[-1] / 1000)}" if ms == math.inf else f"< {span(ms / 1000)}"


def _steps(one: ClassMetrics) -> list[HistogramStep]:
    """The histogram, from its first counter that is not zero to its last."""
    if one.histogram is None or not any(one.histogram):
        return []
    used, most = [at for at, many in enumerate(one.histogram) if many], max(one.histogram)
    limits = [*LIMITS, math.inf]
    return [
        HistogramStep(_below(float(limits[at])), one.histogram[at], round(1000 * one.histogram[at] / most, 1))
        for at in range(used[0], used[-1] + 1)
    ]


def _sum_of(points: Sequence[Point]) -> Point:
    """Several in one."""
    return Point(*(sum(getattr(one, name) for one in points) for name in ("processed", "failed", "ms")))


def _slices(found: Metrics, ran: Sequence[Point], spread: Sequence[tuple[int, ...] | None] = ()) -> list[Slice]:
    """The runs before the first deploy, between each two, and since the last; none without a deploy. A bucket in which
    a deploy falls counts as after it. ``spread``: the histogram of each bucket."""
    if not found.deploys or not ran:
        return [Slice(one.at, one.label, RunFigures(0, 0, None, None)) for one in found.deploys]
    slices, first = list[Slice](), 0
    marks: list[tuple[float | None, str]] = [(None, ""), *((deploy.at, deploy.label) for deploy in found.deploys)]
    for (at, label), (until, _) in zip(marks, [*marks[1:], (math.inf, "")], strict=True):
        last = sum(start + found.step <= (until or 0) for start in found.buckets)
        one = _stretch_of(ran[first:last], spread[first:last])
        known = slices[-1].ran if slices else one
        slices.append(Slice(at, label, one, one.is_worse_than(known), one.is_slower_than(known)))
        first = last
    return slices


def _stretch_of(points: Sequence[Point], spread: Sequence[tuple[int, ...] | None]) -> RunFigures:
    total, counts = _sum_of(points), summed(spread)
    good, most = total.processed - total.failed, percentile(counts, 0.95)
    mean = total.ms / good / 1000 if good else None
    return RunFigures(total.processed, total.failed, mean, None if most is None else most / 1000)
