"""How a batch looks on a terminal: its progress, its counts, the reasons of its failures; and as one line."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from henchman.batch.batch import BatchStatus
from henchman.cli.history import COLOURS
from henchman.cli.table import Row, Table, cell
from henchman.cli.text import ago, count, duration, moment

__all__ = ["batch_line", "batch_table", "batch_view"]

_STATES = {"open": "cyan", "closed": "cyan", "complete": "green", "abandoned": "bold yellow"}
_REASONS = 20
_BAR = 80  # characters, at most


def batch_view(one: BatchStatus) -> Group:
    """The whole picture."""
    parts: list[RenderableType] = [_title(one)]
    if one.total:
        parts.append(_Bar(one))
    parts += [Text(_progress(one)), _counts(one), *_facts(one)]
    if one.reasons:
        rows = [
            Row([f"{two.count:,}", cell(two.status, COLOURS.get(two.status, "")), cell(two.reason or "–")])
            for two in one.reasons[:_REASONS]
        ]
        parts += [Text(), Table(["jobs>", "status!", "reason"], rows, wide="reason")]
    if len(one.reasons) > _REASONS:
        parts.append(Text(f"… and {count(len(one.reasons) - _REASONS, 'more reason')}", "dim"))
    return Group(*parts)


class _Bar:
    """How much is done, as a line of its own (rich's bar leaves the line open); full only when everything is."""

    def __init__(self, one: BatchStatus) -> None:
        self._one = one

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        width = min(options.max_width, _BAR)
        one = self._one
        bad = width * one.failed // one.total
        good = max(width * one.done // one.total - bad, 0)
        full, empty = ("#", "-") if options.ascii_only else ("━", "─")
        yield Text.assemble((full * good, "green"), (full * bad, "red"), (empty * (width - good - bad), "dim"))


def batch_line(one: BatchStatus) -> str:
    """The same in one line, for logs and pipes."""
    counts = ", ".join(f"{many:,} {status}" for status, many in one.counts.items() if many)
    return f"{one.id} {_state(one)}: {_progress(one)}" + (f" · {counts}" if counts else "")


def batch_table(found: Sequence[BatchStatus]) -> Table:
    """Several batches, a line each."""
    now = time.time()
    rows = [
        Row(
            [
                cell(one.id),
                cell(one.description or "–"),
                cell(_state(one), _STATES.get(one.state, "")),
                f"{one.done:,} of {one.total:,}",
                cell(f"{one.failed:,}", "red" if one.failed else ""),
                ago(one.created, now),
            ]
        )
        for one in found
    ]
    return Table(["batch!", "description", "state", "done>", "failed>", "made"], rows, wide="description")


def _title(one: BatchStatus) -> Text:
    style = "bold yellow" if one.why else _STATES.get(one.state, "")
    return Text.assemble(
        cell(one.description or "batch", "bold"), "  ", cell(one.id, "dim"), "  ", cell(_state(one), style)
    )


def _state(one: BatchStatus) -> str:
    return f"{one.state}, {one.why}" if one.why else one.state


def _progress(one: BatchStatus) -> str:
    parts = [f"{_percent(one)} %", f"{one.done:,} of {one.total:,}"]
    if one.rate:
        parts.append(f"{one.rate:,.1f} jobs/s")
    if one.eta is not None and one.done < one.total:
        parts.append(f"{duration(one.eta)} left")
    return " · ".join(parts)


def _percent(one: BatchStatus) -> str:
    """Never 100 while one is missing."""
    return f"{int(one.percent * 10) / 10:g}"


def _counts(one: BatchStatus) -> Text:
    line = Text()
    for status, many in one.counts.items():
        if many:
            line.append(" · " if line else "").append(f"{many:,} {status}", COLOURS.get(status, ""))
    return line


def _children(one: BatchStatus) -> str:
    bad = f", {one.bad_children:,} of them did not end well" if one.bad_children else ""
    return f"{one.children:,}{bad}" if one.children else ""


def _facts(one: BatchStatus) -> Iterator[Text]:
    now = time.time()
    facts = [
        ("made", moment(one.created, now) if one.created else ""),
        ("completed", moment(one.completed, now) if one.completed else ""),
        ("expires", moment(one.expires, now) if one.expires else ""),
        ("tags", ", ".join(one.tags)),
        ("parent", one.parent or ""),
        ("children", _children(one)),
        ("generation", f"{one.generation:,}" if one.generation > 1 else ""),
        ("called", ", ".join(f"on_{which}" for which in one.called)),
    ]
    for name, value in facts:
        if value:
            yield Text.assemble((f"{name:<11}", "dim"), cell(value))
    if one.state == "abandoned":
        yield Text("Whoever filled it is gone: henchman batch close ID closes it", "yellow")
