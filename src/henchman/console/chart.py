"""Pictures of counts over time, as places and heights for templates: bars of what was done and failed, with deploys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from henchman.inspector.metrics import ClassMetrics, Deploy, Metrics
from henchman.store.queues import Level

__all__ = ["Bar", "Chart", "Spark", "chart", "pace", "rate", "spark"]

_STEP: Final = 10  # units of a picture that a bar and its gap take
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
    each = math.ceil(len(found.buckets) / _MOST)
    starts = range(0, len(found.buckets), each)
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


def rate(found: Metrics, now: float, minutes: int = 5) -> tuple[float, float]:
    """How many runs a second were done, and failed, in the last whole minutes before ``now`` (Unix seconds)."""
    first = now // 60 * 60 - 60 * minutes
    places = [at for at, start in enumerate(found.buckets) if first <= start < first + 60 * minutes]
    points = [one.points[at] for one in found.classes for at in places]
    failed = sum(one.failed for one in points)
    return (sum(one.processed for one in points) - failed) / (60 * minutes), failed / (60 * minutes)


def pace(levels: Sequence[Level], name: str, size: int, at: float) -> float | None:
    """By how many jobs a second a queue has grown in the last ten minutes as of ``at`` (Unix seconds), less than zero
    where it drains; None where less than a minute of it is known."""
    past = [one for one in levels if 60 <= at - one.at < 600 and name in one.sizes]
    return (size - past[-1].sizes[name]) / (at - past[-1].at) if past else None


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
