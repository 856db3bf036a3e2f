"""``henchman metrics``: what ran, how often, for how long, class by class, and which deploys came between.
``henchman errors``: which kinds of failures there were, and which are new."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.console import Console, Group
from rich.text import Text

from henchman.cli.session import Session, as_json, command
from henchman.cli.show import Table, TableRow, ago, answer, cell, console, count, duration, facts, figure, listed
from henchman.errors import HenchmanError
from henchman.inspector.differs import Difference, look_at_error
from henchman.inspector.errors import LOOKED, ErrorGroup, Errors, Narrowed
from henchman.inspector.errors import errors as grouped
from henchman.inspector.metrics import ClassMetrics, Metrics, mark_deploy
from henchman.inspector.metrics import metrics as measured
from henchman.kernel.text import did_you_mean
from henchman.store.call import run
from henchman.store.metrics import HOURS_KEPT, LIMITS, MINUTES_KEPT, metric_name
from henchman.wire import times

__all__ = ["errors", "metrics"]

_FIGURES = 70  # columns of a terminal that the figures need; a sparkline has the rest
_SPARK = (10, 30)
_SHOWN = 50
_DEPLOYS = 10
_STATES = {"new": "red", "rising": "yellow", "steady": ""}
_BAR = 40
#: whether the terminal can show it → nothing, little … much, a deploy, a bar
_SIGNS = {True: ("·▁▂▃▄▅▆▇█", "▲", "█"), False: (".12345678", "^", "#")}


@command(name="metrics")
@click.argument("words", nargs=-1, metavar="[CLASS | mark [LABEL]]")
@click.option("--minutes", type=click.IntRange(1, MINUTES_KEPT), metavar="N", help=f"The last N, up to {MINUTES_KEPT}.")
@click.option("--hours", type=click.IntRange(1, HOURS_KEPT), metavar="N", help=f"The last N, up to {HOURS_KEPT}.")
@as_json
def metrics(session: Session, words: tuple[str, ...], minutes: int | None, hours: int | None, as_json: bool) -> None:
    """What ran in the last hour (or --minutes, --hours), by class; of one CLASS also how its times are spread.

    Mean and total are of the runs that did not fail; p50 and p95 say below what half and 95 % of those stayed. Counts
    are written down at each heartbeat: a run shows up some seconds later.

    `henchman metrics mark` marks a deploy: the LABEL, or else the commit that is checked out.
    """
    if words[:1] == ("mark",):
        if minutes is not None or hours is not None:
            raise click.UsageError("a deploy is marked now: --minutes and --hours say what to show")
        _mark(session, " ".join(words[1:]) or None, as_json=as_json)
        return
    if len(words) > 1:
        raise click.UsageError(f"one CLASS, or mark: got {' '.join(words)!r}")
    if minutes is not None and hours is not None:
        raise click.UsageError("--minutes or --hours, not both")
    span = count(minutes or 60, "minute") if hours is None else count(hours, "hour")
    found = run(session.runner, measured(session.keys, minutes, hours=hours))
    if words:
        found = _only(found, words[0], span)
    nothing = f"Nothing ran in the last {span}, or it has not been written down yet."
    view = _view(found, span, console(), one=bool(words)) if found.classes else nothing
    answer(_document(found), view, as_json=as_json)


def _mark(session: Session, label: str | None, *, as_json: bool) -> None:
    deploy = run(session.runner, mark_deploy(session.keys, label))
    at = times.iso(deploy.at)
    words = f"marked {deploy.label} at {at}"
    if not deploy.marked:
        words = f"{deploy.label} is not marked: it was a moment ago, or the minute {at} has another mark"
    answer({"at": at, "label": deploy.label, "marked": deploy.marked}, words, as_json=as_json)


def _only(found: Metrics, name: str, span: str) -> Metrics:
    wanted = metric_name(name)
    chosen = tuple(one for one in found.classes if one.name == wanted)
    if not chosen:
        near = did_you_mean(wanted, [one.name for one in found.classes])
        raise HenchmanError(f"{name!r} did not run in the last {span}{near}")
    return Metrics(found.step, found.buckets, chosen, found.deploys)


def _document(found: Metrics) -> dict[str, Any]:
    return {
        "step": found.step,
        "from": times.iso(found.buckets[0]),
        "until": times.iso(found.buckets[-1] + found.step),
        "classes": [_class(one, found.buckets) for one in found.classes],
        "deploys": [{"at": times.iso(one.at), "label": one.label} for one in found.deploys],
    }


def _class(one: ClassMetrics, buckets: Sequence[float]) -> dict[str, Any]:
    """A class as JSON; percentiles null without a histogram, and beyond its last limit."""
    below = {f"p{n}_below_ms": one.percentile_ms(n / 100) for n in (50, 95)}
    return {
        "name": one.name,
        "processed": one.processed,
        "failed": one.failed,
        "causes": dict(one.causes),
        "ms": one.ms,
        "mean_ms": one.mean_ms,
        **{name: None if ms == math.inf else ms for name, ms in below.items()},
        "histogram": one.histogram,
        "points": [
            {"at": times.iso(at), "processed": point.processed, "failed": point.failed, "ms": point.ms}
            for at, point in zip(buckets, one.points, strict=True)
            if point.processed or point.failed or point.ms
        ],
    }


def _view(found: Metrics, span: str, out: Console, *, one: bool) -> Group:
    levels, arrow, bar = _SIGNS[out.encoding.startswith("utf")]
    width = math.ceil(len(found.buckets) / min(max(out.width - _FIGURES, _SPARK[0]), _SPARK[1]))
    shown = found.classes[:_SHOWN]
    rows = [_row(each, width, levels) for each in shown]
    drawn = out.width >= _FIGURES + _SPARK[0]
    if found.deploys and drawn:
        rows.append(TableRow([cell("deploys", "dim"), *[""] * 6, Text(_arrows(found, width, arrow), "cyan")]))
    titles = ["class", "runs>", "failed>", "mean>", "p50>", "p95>", "total>", f"{span}!"]
    if not drawn:  # a narrow terminal: the names are worth more
        titles, rows = titles[:-1], [TableRow(row.cells[:-1]) for row in rows]
    parts: list[Any] = [Table(titles, rows, wide="class")]
    if len(found.classes) > len(shown):
        parts.append(Text(listed(len(shown), len(found.classes), "classes, those with the most time"), "dim"))
    for each in found.deploys[-_DEPLOYS:]:
        said = cell(f"deploy {ago(each.at)}: {each.label}", "cyan")
        said.truncate(out.width, overflow="ellipsis")
        parts.append(said)
    if one:
        parts += [*_causes(found.classes[0]), Text(), *_spread(found.classes[0], bar)]
    return Group(*parts)


def _causes(one: ClassMetrics) -> Iterator[Text]:
    """Why runs failed, where it was not always an error."""
    if one.causes:
        errors = one.failed - sum(one.causes.values())
        said = {**one.causes, **({"error": errors} if errors > 0 else {})}
        yield cell("failed of: " + ", ".join(f"{name} {figure(many)}" for name, many in said.items()), "red")


def _row(one: ClassMetrics, width: int, levels: str) -> TableRow:
    return TableRow(
        [
            one.name,
            figure(one.processed),
            cell(figure(one.failed), "red" if one.failed else ""),
            _time(one.mean_ms),
            _below(one.percentile_ms(0.5)),
            _below(one.percentile_ms(0.95)),
            _time(float(one.ms)),
            _spark([point.processed for point in one.points], width, levels),
        ]
    )


def _spark(values: Sequence[int], width: int, levels: str) -> str:
    """One sign for each ``width`` values, the first for none at all; the tallest stands for the most."""
    sums = [sum(values[start : start + width]) for start in range(0, len(values), width)]
    most = max(sums)
    return "".join(levels[math.ceil(one * (len(levels) - 1) / most) if one > 0 else 0] for one in sums)


def _arrows(found: Metrics, width: int, arrow: str) -> str:
    places = {int((one.at - found.buckets[0]) // (found.step * width)) for one in found.deploys}
    return "".join(arrow if place in places else " " for place in range(max(places) + 1))


def _time(ms: float | None) -> str:
    """``0.4 ms``, ``250 ms``, ``3.2 s``, ``12 min``, ``5 h``."""
    if ms is None:
        return "–"
    if ms < 1000:
        return f"{ms:.1f} ms" if 0 < ms < 10 else f"{ms:.0f} ms"
    seconds = ms / 1000
    for limit, size, unit in ((100, 1.0, "s"), (6000, 60.0, "min")):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 3600:,.1f} h"


def _below(ms: float | None) -> str:
    if ms == math.inf:
        return f">{_time(float(LIMITS[-1]))}"
    return "–" if ms is None else f"<{_time(ms)}"


def _spread(one: ClassMetrics, bar: str) -> Iterator[Text]:
    """The histogram, from its first counter that is not zero to its last."""
    if one.histogram is None or not any(one.histogram):
        yield Text("How its times are spread is not known: that is kept by the minute, see --minutes.", "dim")
        return
    used = [index for index, number in enumerate(one.histogram) if number]
    most = max(one.histogram)
    for index in range(used[0], used[-1] + 1):
        number = one.histogram[index]
        label = _below(float(LIMITS[index])) if index < len(LIMITS) else _below(math.inf)
        yield Text(f"{label:>9}  {number:>9,}  {bar * math.ceil(number * _BAR / most)}")


# ---- errors


@command(name="errors")
@click.argument("group", required=False)
@click.option("--job", default="", metavar="NAME", help="Of one job.")
@click.option("--queue", default="", metavar="NAME", help="Of one queue.")
@click.option("--host", default="", metavar="NAME", help="Met on one host.")
@click.option("--tag", default="", metavar="TAG", help="Met in one version: the tag of its processes.")
@click.option("-n", "--most", type=click.IntRange(1, LOOKED), default=_SHOWN, show_default=True, help="How many.")
@as_json
def errors(session: Session, group: str | None, most: int, as_json: bool, tag: str, **narrowed: str) -> None:
    """Failures by kind, those that are new or rise first; of one GROUP its traceback, and what its failures have in
    common that other runs have not. Exit status 1: nobody knows it.

    One kind is: one exception, with one message but for what varies in it, raised at one place of the application.
    Workers write them down at each heartbeat, and the last 500 kinds are kept for 14 days.
    """
    if group is not None:
        now = time.time()
        found, differs = run(session.runner, look_at_error(session.keys, group, now))
        if found is None:
            raise HenchmanError(f"no error is known as {group!r}: henchman errors lists them")
        document = {**found.to_json(now), "differs": [one.to_json() for one in differs]}
        answer(document, *_error_lines(found, differs, now), as_json=as_json)
        return
    seen = run(session.runner, grouped(session.keys, Narrowed(**narrowed, version=tag)))
    groups = [one.to_json(seen.at) for one in seen.groups[:most]]
    document = {"errors": groups, "total": seen.total, "forgotten": seen.forgotten}
    answer(document, *_error_table(seen, most, console()), as_json=as_json)


def _error_table(seen: Errors, most: int, out: Console) -> Iterator[Table | Text | str]:
    if not seen.groups:
        yield "No error fits." if seen.total else "No job has failed in the last 14 days."
        return
    levels = _SIGNS[out.encoding.startswith("utf")][0]
    rows = []
    for one in seen.groups[:most]:
        state = one.state(seen.at)
        name = next(iter(one.jobs), "–") + (f" +{len(one.jobs) - 1}" if len(one.jobs) > 1 else "")
        spark = _spark(one.trend(seen.at), 2, levels) if any(one.trend(seen.at)) else ""
        cells: list[Text | str] = [
            cell(state, _STATES.get(state, "dim")),
            one.id,
            one.error,
            name,
            figure(one.count),
            spark,
            ago(one.last),
        ]
        rows.append(TableRow(cells, cell(one.message, "red")))
    yield Table(["state", "group!", "error", "job", "times>", "24 hours!", "last"], rows, wide="job")
    if len(seen.groups) > most:
        yield Text(listed(most, len(seen.groups), "errors"), "dim")


def _error_lines(one: ErrorGroup, differs: Sequence[Difference], now: float) -> Iterator[Text | str]:
    yield cell(f"{one.error}: {one.message}", "red")
    told: list[tuple[str, object]] = [("state", one.state(now)), ("times", figure(one.count))]
    told += [("first", ago(one.first)), ("last", ago(one.last))]
    if one.after is not None:
        told.append(("deploy", f"{one.after.label}, {duration(one.first - one.after.at)} before it"))
    where = ("hosts", one.hosts), ("versions", one.versions), ("attempts", one.attempts)
    for title, counts in (("jobs", one.jobs), ("queues", one.queues), *where):
        if counts:
            told.append((title, ", ".join(f"{name} {many:,}" for name, many in counts.items())))
    told += [("differs" if number == 0 else "", each.text) for number, each in enumerate(differs)]
    yield from facts([*told, ("place", one.place), ("last job", one.jid)])
    yield from (cell(f"  {line}", "dim") for line in one.trace)
