"""What people see of the demo: a live bar on a terminal, a line every few seconds elsewhere, and the summary."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from henchman.demo.catalogue import Counts, Slow
from henchman.demo.offers import PRODUCERS, Prices

__all__ = ["LineView", "LiveView", "Silence", "Summary", "View", "summary_table", "view_for"]

TOP_REASONS = 6
LINE_EVERY = 3.0  # seconds between two lines where there is no terminal


@dataclass(frozen=True, slots=True)
class Summary:
    """The demo's result. Times are seconds unless they say otherwise."""

    rows: int
    processes: int
    concurrency: int
    imported: int
    refused: int
    dead: int
    reasons: list[tuple[str, int]]
    healed: list[tuple[str, int]]
    seconds: float
    slowest: Slow | None
    ran_again: int
    differences: list[str]
    prices: Prices
    batch: str = ""
    failures: str = ""  # the sheet of refused rows

    @property
    def ok(self) -> bool:
        """Whether every row is where the file says it should be, and every price the newest."""
        return not self.differences

    @property
    def rate(self) -> float:
        """Jobs a second, from the first push to the last row settled."""
        return self.rows / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self) | {
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "jobs_per_second": round(self.rate, 1),
            "reasons": dict(self.reasons),
            "healed": {"total": sum(count for _, count in self.healed), "by_error": dict(self.healed)},
            "slowest": self.slowest._asdict() if self.slowest else None,
            "prices": self.prices._asdict(),
        }


class View(Protocol):
    """Shows how far the import is."""

    def say(self, text: str) -> None:
        """One line about what happens now."""
        ...

    def show(self, counts: Counts) -> None:
        """The figures of this moment."""
        ...

    def close(self) -> None:
        """No more figures come."""
        ...


class Silence:
    """Shows nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def show(self, counts: Counts) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Rate:
    """Rows a second over the last few looks."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, int]] = []

    def __call__(self, settled: int) -> float:
        self._looks = [*self._looks[-20:], (time.monotonic(), settled)]
        (then, before), (now, _) = self._looks[0], self._looks[-1]
        return (settled - before) / (now - then) if now > then else 0.0


def _figures(counts: Counts, rate: float) -> Text:
    line = Text("  ")
    line.append(f"{counts.imported:,} imported", "green").append("   ")
    line.append(f"{counts.refused:,} refused", "yellow").append("   ")
    line.append(f"{counts.retrying:,} retrying", "magenta").append("   ")
    if counts.dead:
        line.append(f"{counts.dead:,} dead", "bold red").append("   ")
    if counts.price_changes:
        line.append(f"{counts.price_changes:,} price changes", "blue").append("   ")
    return line.append(f"{rate:,.0f} jobs/s", "cyan")


class LiveView:
    """A bar that moves, on a terminal."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._rate = Rate()
        self._bar = Progress(
            TextColumn("Importing"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=console,
            expand=True,
        )
        self._task = self._bar.add_task("", total=total)
        self._live = Live(self._bar, console=console, refresh_per_second=10)
        self._live.start()

    def say(self, text: str) -> None:
        """One line above the bar."""
        self._console.print(Text(text, "dim"), soft_wrap=True)

    def show(self, counts: Counts) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=counts.settled)
        self._live.update(Group(self._bar, _figures(counts, self._rate(counts.settled))))

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._live.stop()


class LineView:
    """A line every few seconds, for logs and pipes."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._rate = Rate()
        self._next = time.monotonic() + LINE_EVERY

    def say(self, text: str) -> None:
        """One line."""
        self._console.print(Text(text), soft_wrap=True)

    def show(self, counts: Counts) -> None:
        """A line, when it is time for one."""
        rate = self._rate(counts.settled)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY
            self.say(f"{counts.settled:,}/{self._total:,} {_figures(counts, rate).plain}")

    def close(self) -> None:
        """Nothing to put away."""


def view_for(console: Console, total: int, *, quiet: bool) -> View:
    """The view that suits this console."""
    if quiet:
        return Silence()
    return LiveView(console, total) if console.is_terminal else LineView(console, total)


def summary_table(summary: Summary) -> Table:
    """The summary as a table of two columns and notes."""
    table = Table(title="Import of the product file", title_justify="left", show_header=False, box=box.SIMPLE)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_row("imported", f"{summary.imported:,}", f"of {summary.rows:,} rows")
    table.add_row("refused", f"{summary.refused:,}", "said no for good; not retried")
    for reason, count in _top(summary.reasons):
        table.add_row(Text(f"  {reason}", "not bold"), f"{count:,}", "")
    if summary.dead:
        table.add_row(Text("dead", "red"), f"{summary.dead:,}", "errors that no retry healed")
    table.add_row(
        "errors healed by retry", f"{sum(count for _, count in summary.healed):,}", "the row came through later"
    )
    for error, count in _top(summary.healed):
        table.add_row(Text(f"  {error}", "not bold"), f"{count:,}", "")
    if summary.prices.changes:
        _add_prices(table, summary.prices)
    slots = f"{summary.processes} × {summary.concurrency} slots"
    table.add_row("jobs a second", f"{summary.rate:,.0f}", f"{summary.seconds:.1f} s in all, {slots}")
    if summary.slowest:
        slow = summary.slowest
        runs = "1 attempt" if slow.attempts == 1 else f"{slow.attempts} attempts"
        table.add_row("slowest job", f"{slow.ms:,.0f} ms", Text(f"row {slow.row:,}, {slow.sku}, {runs}", "dim"))
    return table


def _add_prices(table: Table, prices: Prices) -> None:
    many = f"of {prices.products:,} products, from {PRODUCERS} sides"
    table.add_row("price changes", f"{prices.changes:,}", many)
    table.add_row(Text("  written", "not bold"), f"{prices.changes - prices.late:,}", "newer than what was there")
    table.add_row(Text("  came too late", "not bold"), f"{prices.late:,}", "a newer one was there")


def _top(counted: list[tuple[str, int]]) -> list[tuple[str, int]]:
    if len(counted) <= TOP_REASONS + 1:
        return counted
    rest = sum(count for _, count in counted[TOP_REASONS:])
    return [*counted[:TOP_REASONS], (f"{len(counted) - TOP_REASONS} other reasons", rest)]
