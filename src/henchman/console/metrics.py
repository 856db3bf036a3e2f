"""Pages of what ran: every class, one class, out of the figures that workers write with each heartbeat."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from henchman.client.runtime import Runtime
from henchman.console.chart import Spark, chart, heat_map, spark
from henchman.console.pages import Query, Screen, View
from henchman.inspector.metrics import ClassMetrics, Metrics, Point, metrics
from henchman.kernel.figures import span
from henchman.oncall.deeds import MINUTES_AGO, Deed
from henchman.store.call import run
from henchman.store.metrics import LIMITS, metric_name

__all__ = ["MetricsPages"]

_ROWS: Final = 25
_DETAILED: Final = 16  # classes of which percentiles are read: those with the most time
_RANGES: Final = {"": "1 hour", "8": "8 hours", "24": "1 day", "72": "3 days"}
_POINTS: Final = 24  # bars of a small picture


class ClassRow(NamedTuple):
    """A class in the table."""

    one: ClassMetrics
    bars: Sequence[Spark]
    p50: str
    p95: str


class Slice(NamedTuple):
    """Runs between two deploys: since when, what was deployed then, runs, failures, the mean in seconds."""

    at: float | None
    label: str
    processed: int
    failed: int
    mean: float | None


class HistogramStep(NamedTuple):
    """A counter of a histogram: below which time, how many, and how wide its bar is, in thousandths."""

    below: str
    many: int
    width: float


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

    def _read(self, hours: str, name: str | None = None) -> Metrics:
        range_ = {"hours": int(hours)} if hours else {"minutes": 60}
        asked = metrics(self._runtime.keys, **range_, name=name, detailed=_DETAILED)
        return run(self._runtime.connections, asked)

    def classes(self, query: Query) -> Screen:
        """Every class, those with the most time first."""
        hours = query.word("by", *_RANGES)
        found = self._read(hours)
        wanted = [one for one in found.classes if query.search.lower() in one.name.lower()]
        shown = wanted[query.page * _ROWS - _ROWS : query.page * _ROWS]
        facts = {
            "rows": None,
            "classes": [_row(one) for one in shown],
            "total": len(wanted),
            "chart": chart(found, wanted),
            "slices": _slices(found, [_sum_of(points) for points in zip(*(one.points for one in wanted), strict=True)]),
            "minutes_ago": MINUTES_AGO,
            "ranges": _RANGES,
            "by": hours,
            "span": _RANGES[hours],
        }
        return Screen("metrics.html", facts)

    def one(self, name: str, query: Query) -> Screen:
        """One class: runs and failures over time, how long it took, before and after each deploy."""
        hours, wanted = query.word("by", *_RANGES), metric_name(name)
        found = self._read(hours, name)
        known = next((one for one in found.classes if one.name == wanted), None)
        facts = {
            "name": wanted,
            "one": None if known is None else _row(known),
            "chart": chart(found, found.classes),
            "steps": [] if known is None else _steps(known),
            "heat": None if known is None else heat_map(found, known),
            "below": _below,
            "slices": [] if known is None else _slices(found, known.points),
            "ranges": _RANGES,
            "by": hours,
            "span": _RANGES[hours],
        }
        return Screen("metric.html", facts)


def _row(one: ClassMetrics) -> ClassRow:
    each = math.ceil(len(one.points) / _POINTS)
    counts = [sum(point.processed for point in one.points[at : at + each]) for at in range(0, len(one.points), each)]
    return ClassRow(one, spark(counts), _below(one.percentile_ms(0.5)), _below(one.percentile_ms(0.95)))


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
    """Several classes in one bucket."""
    return Point(
        *(sum(column) for column in zip(*((one.processed, one.failed, one.ms) for one in points), strict=True))
    )


def _slices(found: Metrics, ran: Sequence[Point]) -> list[Slice]:
    """The runs before the first deploy, between each two, and since the last; none without a deploy. A bucket in which
    a deploy falls counts as after it."""
    if not found.deploys or not ran:
        return [Slice(one.at, one.label, 0, 0, None) for one in found.deploys]
    marks = [(None, ""), *((deploy.at, deploy.label) for deploy in found.deploys)]
    slices = []
    for place, (at, label) in enumerate(marks):
        until = marks[place + 1][0] if place + 1 < len(marks) else None
        points = [
            point
            for start, point in zip(found.buckets, ran, strict=True)
            if (at is None or start + found.step > at) and (until is None or start + found.step <= until)
        ]
        processed, failed = sum(point.processed for point in points), sum(point.failed for point in points)
        good, ms = processed - failed, sum(point.ms for point in points)
        slices.append(Slice(at, label, processed, failed, ms / good / 1000 if good else None))
    return slices
