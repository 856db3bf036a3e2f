"""What people see of the demo: a live bar on a terminal, a line every few seconds elsewhere, and the summary."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from henchman.demo.products import PRODUCERS

__all__ = ["View", "summary_table"]

TOP_REASONS = 6
#: status of jobs in the batch, what it means here, its colour
FIGURES = (
    ("finished", "imported", "green"),
    ("failed", "refused", "yellow"),
    ("retrying", "retrying", "magenta"),
    ("error", "dead", "bold red"),
)
LINE_EVERY = 3.0  # seconds between two lines where there is no terminal


class View:
    """How far the import of ``total`` rows is; nothing when ``quiet``."""

    def __init__(self, console: Console, total: int, *, quiet: bool) -> None:
        self._console, self._total, self._quiet = console, total, quiet
        self._looks: deque[tuple[float, int]] = deque(maxlen=20)
        self._next_line = time.monotonic() + LINE_EVERY
        columns = TextColumn("Importing"), BarColumn(bar_width=None), MofNCompleteColumn(), TaskProgressColumn()
        self._bar = Progress(*columns, TimeElapsedColumn(), console=console, expand=True)
        self._task = self._bar.add_task("", total=total)
        self._live: Live | None = None
        if console.is_terminal and not quiet:
            self._live = Live(self._bar, console=console, refresh_per_second=10)
            self._live.start()

    def say(self, text: str) -> None:
        """One line about what happens now."""
        if not self._quiet:
            self._console.print(Text(text, "dim"), soft_wrap=True)

    def show(self, counts: Mapping[str, int], changes: int) -> None:
        """The figures of this moment: the jobs of the batch by status, and the price changes beside it."""
        settled = counts["finished"] + counts["failed"] + counts["error"]
        self._looks.append((time.monotonic(), settled))
        (then, before), (now, _) = self._looks[0], self._looks[-1]
        figures = Text("  ")
        for name, words, style in FIGURES:
            figures.append(f"{counts[name]:,} {words}", style).append("   ")
        figures.append(f"{changes:,} price changes", "blue").append("   ")
        figures.append(f"{(settled - before) / (now - then) if now > then else 0:,.0f} jobs/s", "cyan")
        if self._live is not None:
            self._bar.update(self._task, completed=settled)
            self._live.update(Group(self._bar, figures))
        elif now >= self._next_line:
            self._next_line = now + LINE_EVERY
            self.say(f"{settled:,}/{self._total:,} {figures.plain}")

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._live is not None:
            self._live.stop()


def summary_table(told: Mapping[str, Any]) -> Table:
    """The demo's result for people: two columns and notes."""
    table = Table(title="Import of the product file", title_justify="left", show_header=False, box=box.SIMPLE)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")

    def add(name: str, figure: str, note: str = "") -> None:
        table.add_row(Text(name, "not bold" if name.startswith(" ") else ""), figure, Text(note, "dim"))

    add("imported", f"{told['imported']:,}", f"of {told['rows']:,} rows")
    add("refused", f"{told['refused']:,}", "said no for good; not retried")
    for reason, many in _top(told["reasons"]):
        add(f"  {reason}", f"{many:,}")
    if told["dead"]:
        add("dead", f"{told['dead']:,}", "errors that no retry healed")
    add("errors healed by retry", f"{told['healed']['total']:,}", "the row came through later")
    for error, many in _top(told["healed"]["by_error"]):
        add(f"  {error}", f"{many:,}")
    products, changes, late = (told["prices"][name] for name in ("products", "changes", "late"))
    add("price changes", f"{changes:,}", f"of {products:,} products, from {PRODUCERS} sides")
    add("  written", f"{changes - late:,}", "newer than what was there")
    add("  came too late", f"{late:,}", "a newer one was there")
    slots = f"{told['processes']} × {told['concurrency']} slots"
    add("jobs a second", f"{told['jobs_per_second']:,.0f}", f"{told['seconds']:.1f} s in all, {slots}")
    return table


def _top(counted: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most frequent reasons, and the rest as one."""
    found = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    if len(found) <= TOP_REASONS + 1:
        return found
    rest = found[TOP_REASONS:]
    return [*found[:TOP_REASONS], (f"{len(rest)} other reasons", sum(many for _, many in rest))]
