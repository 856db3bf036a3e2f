"""Pictures of counts over time, as places and heights for templates: bars of what was done and failed, with deploys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from henchman.inspector.due import DueTimes
from henchman.inspector.metrics import ClassMetrics, Deploy, Metrics, percentile
from henchman.store.metrics import LIMITS

__all__ = [
    "Bar",
    "Chart",
    "DueBar",
    "DueChart",
    "HeatMap",
    "Spark",
    "TimeLine",
    "TimeLines",
    "chart",
    "due_chart",
    "heat_map",
    "lines",
    "rate",
    "spark",
    "summed",
]

_STEP: Final = 10  # units of a picture that a bar and its gap take
_HEAT: Final = 3  # buckets of a column of a heat map
_CELL, _ROW = 40, 16  # units of a picture that a cell of it takes
_MOST: Final = 72  # bars of one picture


class Bar(NamedTuple):
    """One bar: place, and the heights of both parts, in units of the picture; how many were done, how many failed, and
    when it begins (Unix seconds)."""

    x: int
    done: float
    failed: float
    of: tuple[int, int]
    at: float


class Chart(NamedTuple):
    """A picture ``width`` units wide: a bar for each ``step`` seconds, and deploys, each with its place."""

    bars: Sequence[Bar]
    width: int
    step: int
    deploys: Sequence[tuple[float, Deploy]]
    done: int
    failed: int


def chart(found: Metrics, classes: Sequence[ClassMetrics], height: int = 72) -> Chart:
    """What ``classes`` did in the buckets of ``found``: several buckets are one bar where there are very many."""
    starts = _starts(found)
    each = starts.step
    sums = [sum(one.points[at].processed for one in classes) for at in range(len(found.buckets))]
    bad = [sum(one.points[at].failed for one in classes) for at in range(len(found.buckets))]
    failed = [sum(bad[at : at + each]) for at in starts]
    done = [sum(sums[at : at + each]) - many for at, many in zip(starts, failed, strict=True)]
    scale = height / max(1, *(a + b for a, b in zip(done, failed, strict=True)))
    bars = [
        Bar(_STEP * n, _tall(good, scale), _tall(many, scale), (good, many), found.buckets[at])
        for n, (at, good, many) in enumerate(zip(starts, done, failed, strict=True))
    ]
    width, span = _STEP * len(bars), found.step * each
    deploys = [(round((one.at - found.buckets[0]) / span * _STEP, 1), one) for one in found.deploys]
    return Chart(bars, width, span, deploys, sum(done), sum(failed))


def _starts(found: Metrics) -> range:
    """The first bucket of each bar; its step: how many buckets are one bar."""
    return range(0, len(found.buckets), math.ceil(len(found.buckets) / _MOST))


def rate(found: Metrics, now: float, minutes: int = 5) -> tuple[float, float]:
    """How many runs a second were done, and failed, in the last whole minutes before ``now`` (Unix seconds)."""
    first = now // 60 * 60 - 60 * minutes
    places = [at for at, start in enumerate(found.buckets) if first <= start < first + 60 * minutes]
    points = [one.points[at] for one in found.classes for at in places]
    failed = sum(one.failed for one in points)
    return (sum(one.processed for one in points) - failed) / (60 * minutes), failed / (60 * minutes)


class TimeLine(NamedTuple):
    """How long the runs of a class took: the path of its line, with a gap where none ended well, and the mean of all
    (seconds)."""

    name: str
    path: str
    mean: float


class TimeLines(NamedTuple):
    """What compares classes, on the ground of a ``Chart``; ``most``: the longest mean of a bar's time, in seconds."""

    lines: Sequence[TimeLine]
    most: float


def lines(found: Metrics, classes: Sequence[ClassMetrics], height: int = 72) -> TimeLines | None:
    """Mean times of ``classes`` over the buckets of ``found``, as ``chart`` groups them; None: nothing ended well."""
    starts = _starts(found)
    ended = [(one.name, one.mean_ms / 1000, one) for one in classes if one.mean_ms is not None]
    means = [[_mean(one, at, starts.step) for at in starts] for _, _, one in ended]
    known = [mean for some in means for mean in some if mean is not None]
    if not known:
        return None
    most = max(*known, 0.001)
    drawn = zip(ended, (_path(some, height / most, height) for some in means), strict=True)
    return TimeLines([TimeLine(name, path, mean) for (name, mean, _), path in drawn], most)


def _mean(one: ClassMetrics, first: int, many: int) -> float | None:
    """Seconds that runs which did not fail took in some buckets."""
    some = one.points[first : first + many]
    good = sum(point.processed - point.failed for point in some)
    return sum(point.ms for point in some) / good / 1000 if good else None


def _path(means: Sequence[float | None], scale: float, height: int) -> str:
    """From one known value to the next; one that stands alone is a stroke."""
    parts, before = list[str](), False
    for place, mean in enumerate(means):
        if mean is None:
            before = False
            continue
        x, y = _STEP * place + _STEP // 2, round(height - mean * scale + 2, 1)
        alone = not before and (place + 1 == len(means) or means[place + 1] is None)
        parts.append(f"M{x - 3} {y}h6" if alone else f"{'L' if before else 'M'}{x} {y}")
        before = True
    return "".join(parts)


class HeatCell(NamedTuple):
    """A cell: place in units of the picture, its share of the runs of its column, and how many runs it stands for."""

    x: int
    y: int
    share: float
    many: int


class HeatColumn(NamedTuple):
    """A column: when it begins (Unix seconds), runs that ended well; below how many ms half and 95 of 100 stayed."""

    at: float
    many: int
    half: float | None
    most: float | None


class HeatMap(NamedTuple):
    """How long runs took over time: a column for each ``step`` seconds, a row for each counter of a histogram, the
    longest on top; ``limits``: the ms below which the runs of each row stayed, with the place of its name."""

    cells: Sequence[HeatCell]
    columns: Sequence[HeatColumn]
    limits: Sequence[tuple[int, float]]
    deploys: Sequence[tuple[float, Deploy]]
    width: int
    height: int
    step: int


def heat_map(found: Metrics, one: ClassMetrics) -> HeatMap | None:
    """The picture of a class whose histograms are known bucket by bucket; None where no run ended well."""
    sums = [summed(one.spread[at : at + _HEAT]) for at in range(0, len(one.spread), _HEAT)]
    used = [row for counts in sums for row, many in enumerate(counts) if many]
    if not used:
        return None
    low, high, cells = min(used), max(used), list[HeatCell]()
    for column, counts in enumerate(sums):
        whole = max(sum(counts), 1)
        for row, many in enumerate(counts):
            if many:
                cells.append(HeatCell(_CELL * column, _ROW * (high - row), round(many / whole, 2), many))
    starts = found.buckets[::_HEAT]
    columns = [
        HeatColumn(at, sum(counts), percentile(counts, 0.5), percentile(counts, 0.95))
        for at, counts in zip(starts, sums, strict=True)
    ]
    limits = [*map(float, LIMITS), math.inf]
    names = [(_ROW * (high - row), limits[row]) for row in range(low, high + 1)]
    step = found.step * _HEAT
    deploys = [(round((mark.at - found.buckets[0]) / step * _CELL, 1), mark) for mark in found.deploys]
    return HeatMap(cells, columns, names, deploys, _CELL * len(sums), _ROW * (high - low + 1), step)


def summed(some: Sequence[tuple[int, ...] | None]) -> list[int]:
    """Histograms added up; None: nothing was counted."""
    known = [one for one in some if one is not None]
    return [sum(column) for column in zip(*known, strict=True)] or [0] * (len(LIMITS) + 1)


class DueBar(NamedTuple):
    """A bar of what falls due: place and height in units of the picture, how many, from when on (Unix seconds)."""

    x: int
    height: float
    many: int
    at: float
    is_peak: bool


class DueChart(NamedTuple):
    """When jobs fall due: a picture ``width`` units wide, and what it is of."""

    bars: Sequence[DueBar]
    width: int
    of: DueTimes

    @property
    def total(self) -> int:
        """How many jobs are in the picture."""
        return sum(self.of.counts)


def due_chart(found: DueTimes, height: int = 56) -> DueChart | None:
    """The picture; None where nothing is due, now or later."""
    if not (found.overdue or found.later or any(found.counts)):
        return None
    scale, peak = height / max(1, *found.counts), found.peak
    starts = [found.since + found.step * number for number in range(len(found.counts))]
    bars = [
        DueBar(_STEP * number, _tall(many, scale), many, at, peak is not None and at == peak.at)
        for number, (many, at) in enumerate(zip(found.counts, starts, strict=True))
    ]
    return DueChart(bars, _STEP * len(bars), found)


def _tall(many: int, scale: float) -> float:
    return max(round(many * scale, 1), 1.0) if many else 0.0


class Spark(NamedTuple):
    """A bar of a small picture: place and height, and how many it stands for."""

    x: int
    y: float
    height: float
    many: int


def spark(counts: Sequence[int], height: float = 20.0) -> list[Spark]:
    """The bars, four units wide each with one between; one that stands for something is never invisible."""
    most = max(*counts, 1)
    heights = [max(height * many / most, 1.5) if many else 0.0 for many in counts]
    return [Spark(5 * at, round(height - tall, 1), round(tall, 1), counts[at]) for at, tall in enumerate(heights)]
