"""A workflow as a picture: steps in layers from left to right, each behind all that it waits for; many that are alike
are one box. Nothing but numbers and texts: the template draws."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from henchman.batch.listing import WorkflowStep
from henchman.history.records import Event
from henchman.kernel.figures import span

__all__ = ["Box", "Drawing", "Edge", "Lane", "SlotRun", "Slots", "Waterfall", "draw", "slots", "waterfall"]

WIDTH, HEIGHT = 184, 46  # of a box, in pixels
_GAP, _ROOM, _EDGE = 64, 14, 12  # between layers, between boxes of a layer, around everything
_LANE: Final = 18  # height of the place at which a line passes a layer
_FOLD: Final = 4  # steps that look alike and stay boxes of their own
_MOST: Final = 60  # boxes; a larger workflow has a table alone
_SWEEPS: Final = 6
_WORST: Final = ("error", "failed", "expired", "cancelled", "over", "retrying", "working", "enqueued", "scheduled")


class Box(NamedTuple):
    """One step, or several that are alike: ``counts`` of their statuses, the worst in ``status``; where it is."""

    name: str
    jid: str
    steps: int
    status: str
    counts: Mapping[str, int]
    x: float
    y: float


class Edge(NamedTuple):
    """From a box to one that waits for it: the path; ``status`` of where it begins."""

    path: str
    status: str


class Drawing(NamedTuple):
    """The picture, in pixels."""

    width: float
    height: float
    boxes: list[Box]
    lines: list[Edge]


@dataclass(eq=False)
class _Node:
    """A box, or a place at which a line passes a layer."""

    layer: int
    steps: list[WorkflowStep] = field(default_factory=list)
    before: list[_Node] = field(default_factory=list)
    behind: list[_Node] = field(default_factory=list)
    y: float = 0.0

    @property
    def height(self) -> int:
        return HEIGHT if self.steps else _LANE

    @property
    def x(self) -> float:
        return _EDGE + self.layer * (WIDTH + _GAP)

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def draw(steps: Sequence[WorkflowStep]) -> Drawing | None:
    """The picture of steps in their order; None when they are too many for one."""
    nodes = _folded(steps)
    if len(nodes) > _MOST:
        return None
    layers = _with_lanes(nodes)
    _straighten(layers)
    height = _place(layers)
    boxes = [_box(one) for one in nodes]
    lines = [_line(one, first) for one in nodes for first in one.behind]
    width = 2 * _EDGE + len(layers) * WIDTH + (len(layers) - 1) * _GAP
    return Drawing(width, height, boxes, lines)


def _folded(steps: Sequence[WorkflowStep]) -> list[_Node]:
    """A node a step; one for many that run the same job, wait for the same and are waited for by the same."""
    behind = defaultdict[str, set[str]](set)
    for one in steps:
        for name in one.after:
            behind[name].add(one.name)
    alike = defaultdict[tuple[str, frozenset[str], frozenset[str]], list[WorkflowStep]](list)
    for one in steps:
        alike[one.job, frozenset(one.after), frozenset(behind[one.name])].append(one)
    groups: list[list[WorkflowStep]] = []
    for some in alike.values():
        groups += [some] if len(some) > _FOLD else [[one] for one in some]
    at = {one.name: _Node(0, group) for group in groups for one in group[:1]}
    node_of = {one.name: at[group[0].name] for group in groups for one in group}
    for one in steps:  # in their order: what comes before has its layer already
        node = node_of[one.name]
        node.layer = max([node.layer, *(node_of[name].layer + 1 for name in one.after)])
    for node in at.values():
        first = node.steps[0]
        node.before = [one for one in dict.fromkeys(node_of[name] for name in first.after) if one.layer < node.layer]
    return list(at.values())


def _with_lanes(nodes: Sequence[_Node]) -> list[list[_Node]]:
    """The nodes by layer, with a place wherever a line passes one; now each line goes to the next layer."""
    layers: list[list[_Node]] = [[] for _ in range(max((one.layer for one in nodes), default=0) + 1)]
    for one in nodes:
        layers[one.layer].append(one)
    for one in nodes:
        before, one.before = one.before, []
        for start in before:
            last = start
            for layer in range(start.layer + 1, one.layer):
                lane = _Node(layer, before=[last])
                last.behind.append(lane)
                layers[layer].append(lane)
                last = lane
            last.behind.append(one)
            one.before.append(last)
    return layers


def _straighten(layers: Sequence[list[_Node]]) -> None:
    """Order each layer by where its lines come from, and go to, so that few cross."""
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for layer in layers if forward else reversed(layers):
            place = {id(one): n for some in layers for n, one in enumerate(some)}
            middle = {}
            for n, one in enumerate(layer):
                others = one.before if forward else one.behind
                middle[id(one)] = sum(place[id(other)] for other in others) / len(others) if others else n
            layer.sort(key=lambda one: middle[id(one)])


def _place(layers: Sequence[list[_Node]]) -> float:
    """Put each layer in the middle; the height of all."""
    heights = [sum(one.height + _ROOM for one in layer) - _ROOM for layer in layers]
    most = max(heights)
    for layer, height in zip(layers, heights, strict=True):
        y = _EDGE + (most - height) / 2
        for one in layer:
            one.y = y
            y += one.height + _ROOM
    return most + 2 * _EDGE


def _box(node: _Node) -> Box:
    counts = Counter(one.status for one in node.steps)
    first = node.steps[0]
    status = next((one for one in _WORST if counts[one]), first.status)
    return Box(first.name, first.jid, len(node.steps), status, counts, node.x, round(node.y, 1))


def _line(start: _Node, first: _Node) -> Edge:
    at, x, y, one = f"M{start.x + WIDTH} {start.middle:g}", start.x + WIDTH, start.middle, first
    while True:
        bend = (one.x - x) / 2
        at += f"C{x + bend:g} {y:g} {one.x - bend:g} {one.middle:g} {one.x:g} {one.middle:g}"
        if one.steps:
            return Edge(at, start.steps[0].status if len(start.steps) == 1 else _box(start).status)
        x, y = one.x + WIDTH, one.middle
        at += f"H{x:g}"
        one = one.behind[0]


_LANES: Final = 50  # jobs of a waterfall
_BAR: Final = (240.0, 940.0)  # where the bars begin and end, in the units of the picture
_TICKS: Final = 4


class Lane(NamedTuple):
    """A job in a waterfall: where its wait and its latest run stand, and what both were, in words."""

    jid: str
    name: str
    status: str
    y: int
    waited: tuple[float, float] | None
    ran: tuple[float, float] | None
    text: str


class Waterfall(NamedTuple):
    """Jobs over time: a lane each, and the times at the ticks above."""

    lanes: list[Lane]
    ticks: list[tuple[float, str]]
    height: int
    seconds: float


def waterfall(found: Sequence[Event], now: float) -> Waterfall | None:
    """The first jobs as bars over time: how long each waited and how long its latest run took. None when nothing of
    them has a time."""
    some = [one for one in found[:_LANES] if one.enqueued_at is not None or one.started_at is not None]
    if not some:
        return None
    begins = min(at for one in some for at in (one.enqueued_at, one.started_at) if at is not None)
    last = max(_end_of(one, now) for one in some)
    seconds = max(last - begins, 0.001)

    def place(since: float, until: float) -> tuple[float, float]:
        left, right = ((max(at, begins) - begins) / seconds for at in (since, max(until, since)))
        wide = _BAR[1] - _BAR[0]
        return round(_BAR[0] + wide * left, 1), round(max(wide * (right - left), 2.0), 1)

    lanes = [_lane(one, 24 + 18 * at, now, place) for at, one in enumerate(some)]
    ticks = [
        (round(_BAR[0] + (_BAR[1] - _BAR[0]) * at / _TICKS, 1), span(seconds * at / _TICKS) if at else "0")
        for at in range(_TICKS + 1)
    ]
    return Waterfall(lanes, ticks, 24 + 18 * len(lanes) + 4, seconds)


def _end_of(one: Event, now: float) -> float:
    """When a job ended; of one that has not: now."""
    return one.ended_at if one.ended_at is not None else now


def _lane(one: Event, y: int, now: float, place: Callable[[float, float], tuple[float, float]]) -> Lane:
    end, parts, waited, ran = _end_of(one, now), list[str](), None, None
    if one.enqueued_at is not None:
        until = end if one.started_at is None else one.started_at
        waited = place(one.enqueued_at, until)
        parts.append(f"waited {span(max(until - one.enqueued_at, 0.0))}")
    if one.started_at is not None:
        ran = place(one.started_at, end)
        verb = "ran" if one.ended_at is not None else "runs for" if one.status == "working" else "since its start"
        parts.append(f"{verb} {span(max(end - one.started_at, 0.0))}")
    if one.attempts > 1:
        parts.append(f"{one.attempts} runs")
    return Lane(one.jid, one.class_, one.status or "enqueued", y, waited, ran, ", ".join(parts))


_SLOTS: Final = 25  # lanes of a picture of slots
_RUN_HEIGHT: Final = 14
_WIDTH: Final = 940.0  # of that picture


class SlotRun(NamedTuple):
    """A run of a job, for a picture of slots; ``ended``: None, it runs."""

    jid: str
    name: str
    status: str
    started: float
    ended: float | None


class SlotBar(NamedTuple):
    """A run as a bar: where it stands, and how long it took in words."""

    run: SlotRun
    x: float
    y: int
    width: float
    took: str


class Slots(NamedTuple):
    """Runs over time, side by side in as many lanes as there were at once; ``left``: runs for which there is none."""

    bars: list[SlotBar]
    width: float
    height: int
    left: int


def slots(runs: Sequence[SlotRun], since: float, now: float) -> Slots | None:
    """What a process ran from ``since`` to ``now``: which slot it was is nowhere written down, so that each run stands
    in the first lane that is free. None for nothing."""
    ends, bars, left, near = list[float](), list[SlotBar](), 0, (now - since) / _WIDTH
    for one in sorted(runs, key=lambda one: one.started):
        begin, end = max(one.started, since), now if one.ended is None else one.ended
        lane = next((at for at, until in enumerate(ends) if until <= begin + near), len(ends))
        if lane == _SLOTS:
            left += 1
            continue
        ends[lane:] = [end, *ends[lane + 1 :]]
        x, width = (_WIDTH * seconds / (now - since) for seconds in (begin - since, max(end - begin, 0.0)))
        took = f"{'runs for' if one.ended is None else 'took'} {span(max(end - one.started, 0.0))}"
        bars.append(SlotBar(one, round(x, 1), (_RUN_HEIGHT + 2) * lane, round(max(width, 2.0), 1), took))
    return Slots(bars, _WIDTH, (_RUN_HEIGHT + 2) * len(ends), left) if bars else None
