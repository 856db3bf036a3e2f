"""``henchman demo``: ten thousand real jobs, watched, and checked against the file they came from.

The proof asks the same pure functions what each row should have become: the way there, through queues, retries and
several processes, lost nothing, doubled nothing and mixed nothing up. Each ``wrong_…`` gives one line for each thing
that is wrong.

Exit status: 0 when every row is imported or refused as the file says and every product has its newest price, 1 when not
(it says which), 130 after Ctrl-C; with ``--serve`` Ctrl-C is how it ends, with 0.
"""

from __future__ import annotations

import csv
import json
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from henchman.batch.batch import BatchStatus
from henchman.demo.catalogue import Catalogue, HandledChange
from henchman.demo.products import (
    COUNT,
    PRODUCERS,
    PriceChange,
    Product,
    Row,
    meant,
    misbehaviour,
    planned,
    retail,
    rows,
)
from henchman.demo.serve import SHOP, serve, why_not_served
from henchman.demo.stage import DemoError, Stage, why_not
from henchman.errors import HenchmanError
from henchman.history.records import Event

__all__ = ["View", "demo", "summary_table", "wrong_batch", "wrong_failures", "wrong_prices", "wrong_rows"]


def wrong_rows(
    rows: Iterable[Row], events: Iterable[Event], products: Mapping[str, tuple[Product, int]]
) -> Iterator[str]:
    """Rows that are missing, doubled, or not what the file says, in history and in the catalogue."""
    known, left = defaultdict(list), dict(products)
    for one in events:
        if one.args and isinstance(one.args[0], dict):
            known[one.args[0]["number"]].append((one.status, one.message or ""))
    for row in rows:
        wanted = meant(row)
        found = known.pop(row.number, [])
        status = ("failed", wanted) if isinstance(wanted, str) else ("finished", "")
        if found != [status]:
            yield f"row {row.number} ({row.sku.strip()}): {found or 'missing'}; it should be {status}"
        elif isinstance(wanted, Product):
            stored = left.pop(wanted.sku, None)
            price = retail(wanted)
            if stored != (wanted, price):
                yield f"row {row.number} ({wanted.sku}): the catalogue has {stored}; it should have {(wanted, price)}"
    yield from (f"row {number}: in history, but not in the file" for number in known)
    yield from (f"{sku}: in the catalogue, but no row of the file asks for it" for sku in left)


def wrong_failures(path: Path, rows: Iterable[Row]) -> Iterator[str]:
    """Rows that the CSV of failures lacks, or has though the file does not refuse them, or with another reason."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    told = Counter((json.loads(one["arguments"])[0]["number"], one["message"]) for one in lines)
    wanted = Counter((row.number, reason) for row in rows if isinstance(reason := meant(row), str))
    for words, more in (("lacks it", wanted - told), ("has it too often", told - wanted)):
        yield from (f"row {number}: {path.name} {words}: {reason}" for number, reason in more)


def wrong_batch(status: BatchStatus, events: Iterable[Event], called: Sequence[str]) -> Iterator[str]:
    """Where the server's count of the batch, its history and its callback are not one and the same."""
    server = {name: many for name, many in status.counts.items() if many}
    recorded = Counter(one.status for one in events)
    if status.state != "complete":
        yield f"the batch is {status.state}; it should be complete"
    if server != recorded:
        yield f"the batch counts {server}, its history {dict(recorded)}"
    if status.called != {"complete": [1]}:
        yield f"callbacks were enqueued as {status.called}, and on_complete was to be, once"
    if set(called) != {status.id}:
        yield f"on_complete was run for {called}, not for {status.id}"


def wrong_prices(plan: Mapping[str, Sequence[PriceChange]], catalogue: Catalogue) -> Iterator[str]:
    """Products whose price is not their newest, or whose changes were not handled one after another."""
    now, handled = catalogue.prices(), defaultdict(list)
    for change in catalogue.changes():
        handled[change.sku].append(change)
    for sku, changes in plan.items():
        mine = handled.pop(sku, [])
        if missing := {one.version for one in changes} - {one.version for one in mine}:
            yield f"{sku}: price changes {sorted(missing)} were never handled"
        if now.get(sku) != changes[-1]:
            yield f"{sku}: the price is {now.get(sku)}; it should be {changes[-1]}"
        yield from (f"{sku}: {words}" for words in _wrong_turns(mine))
    yield from (f"{sku}: a price was changed that nobody asked to change" for sku in handled)


def _wrong_turns(changes: Sequence[HandledChange]) -> Iterator[str]:
    """What is wrong with the order in which the changes of one product were handled, in the order of their writing."""
    if any(one.token == after.token and one.version > after.version for one, after in pairwise(changes)):
        yield "a turn did not get its changes by version"
    written = [one.version for one in changes if one.written]
    if written != sorted(written):
        yield f"the price went back: versions {written} were written in this order"
    ends: dict[tuple[float, int], float] = {}  # of each turn, by its beginning and its token
    for one in changes:
        ends[one.began, one.token] = one.ended
    for ((_, token), ended), ((began, later), _) in pairwise(sorted(ends.items())):
        if began < ended:
            yield f"two had it at once, with the tokens {token} and {later}"
        elif later <= token:
            yield f"the token {later} came after {token}"


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


JOBS = "henchman.demo.jobs:app"
GONE = "Stopped: the workers and the server are down."
GRACE = 5  # seconds that running jobs get at a stop
LOOK = 0.1  # seconds between two looks
PATIENCE = 120.0  # seconds without any progress, after which something is wrong
SHOWN = 20  # differences that are listed
TROUBLES = {
    "503": "price service answered 503",
    "drop": "price service broke off",
    "stall": "stopped by its time-out",
    "other": "another error",
}


class Stopped(Exception):
    """A signal asked the demo to stop."""


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT, SIGTERM and SIGHUP: the first stops the demo; while it clears away, more change nothing."""
    caught: list[int] = []
    which = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _: caught.append(number)) for number in which}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command()
@click.option("--rows", "most", type=click.IntRange(min=1), metavar="N", help="Import the first N rows only.")
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True, help="Worker processes.")
@click.option("--concurrency", type=click.IntRange(1, 500), default=10, show_default=True, help="Slots of each.")
@click.option("--serve", "serving", is_flag=True, help="Then go on, beside a console in the browser, until Ctrl-C.")
@click.option("--keep", is_flag=True, help="Keep the demo's folder: catalogue, logs and the server's data.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object.")
@click.option("--quiet", is_flag=True, help="Say nothing unless something is wrong.")
def demo(most: int | None, serving: bool, keep: bool, as_json: bool, quiet: bool, **size: int) -> None:
    """Import 10,000 products as one batch of jobs, on a server of its own: a price service that fails now and then,
    price changes that arrive out of order, two worker processes, a live bar, and at the end a check of every row and
    every price, and a sheet of the rows that were refused.

    With --serve the shop goes on selling, and a console shows it: the import with its refused rows, errors that were
    healed, a workflow, an ordered queue, crons, keys, jobs that are blocked, retried and dead. It says where.
    """
    if missing := why_not() or (why_not_served() if serving else ""):
        raise click.UsageError(missing)
    if most is not None and most > COUNT:
        raise click.BadParameter(f"the file has {COUNT:,} rows, not {most:,}", param_hint="--rows")
    errors = Console(stderr=True, highlight=False)
    with stop_signals() as caught:
        file = rows(most or COUNT)
        view, stage = View(errors, len(file), quiet=quiet), Stage(keep=keep)
        view.say("Starting the embedded server and the workers …")
        try:
            with stage:
                summary = Play(stage, view, file, caught).run(serving, **size)
                report(summary, errors, as_json=as_json, quiet=quiet)
                if serving:
                    serve(stage, summary["batch"], caught, errors)
            if serving:
                errors.print(Text(GONE))
        except Stopped:
            view.close()
            errors.print(Text(GONE))
            sys.exit(128 + caught[0])
        except (DemoError, HenchmanError, OSError, sqlite3.Error) as error:
            view.close()
            errors.print(Text(f"The demo failed: {error}", "red"), soft_wrap=True)
            sys.exit(1)
        finally:
            view.close()
            if keep and stage.url:
                errors.print(Text(f"Kept: {stage.folder}"), soft_wrap=True)


class Play:
    """One demo on its stage."""

    def __init__(self, stage: Stage, view: View, file: list[Row], caught: list[int]) -> None:
        self._stage, self._view, self._file, self._caught = stage, view, file, caught

    def run(self, serving: bool, processes: int, concurrency: int) -> dict[str, Any]:
        """The whole import, from the empty stage to the summary; the workers go on when
        ``serving``."""
        stage, many = self._stage, len(self._file)
        self._view.say(f"To look in from another terminal: HENCHMAN_REDIS_URL='{stage.url}' henchman status")
        size = ("-p", processes, "-c", concurrency, "-t", GRACE)
        stage.start("workers", "henchman", "work", SHOP if serving else JOBS, *size)
        self._until(stage.is_kept, lambda: "nobody keeps history")
        started = time.monotonic()
        stage.start("push", "henchman.demo.push", many)
        self._until(lambda: self._settled() == many, lambda: f"{many - self._settled():,} rows are not settled")
        seconds = time.monotonic() - started
        self._until(lambda: not any(stage.left().values()), lambda: f"every row is settled, but not {stage.left()}")
        if not serving:
            stage.stop()
        self._view.close()
        return {
            "rows": many,
            "processes": processes,
            "concurrency": concurrency,
            "seconds": round(seconds, 3),
            "jobs_per_second": round(many / seconds, 1),
            **self._result(),
        }

    def _until(self, fact: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        """Wait for ``fact``; DemoError when it has not come true and no row was settled for a long time."""
        seen, moved = self._settled(), time.monotonic()
        while not fact():
            if self._caught:
                raise Stopped
            self._stage.check()
            settled = self._settled()
            if settled > seen:
                seen, moved = settled, time.monotonic()
            elif time.monotonic() - moved > PATIENCE:
                raise DemoError(f"{otherwise()}, after {PATIENCE:g} s\n{self._stage.log_end()}")
            time.sleep(LOOK)

    def _settled(self) -> int:
        """How many rows are settled; the view shows it."""
        status = self._stage.status()
        if status is None:
            return 0
        self._view.show(status.counts, self._stage.catalogue.read("SELECT count(*) FROM changes")[0][0])
        return status.done

    def _result(self) -> dict[str, Any]:
        """What became of the rows and prices, and what of it is wrong."""
        stage, catalogue = self._stage, self._stage.catalogue
        events, status = stage.events(), stage.status()
        if status is None:
            raise DemoError("the server has forgotten the batch")
        failures = stage.folder / "failures.csv"
        stage.write_failures(failures)
        if not stage.keep:
            failures = Path(shutil.move(failures, tempfile.mkdtemp(prefix="henchman-failures-")))
        changes, healed = catalogue.changes(), _healed(events)
        differences = [
            *wrong_rows(self._file, events, catalogue.products()),
            *wrong_batch(status, events, catalogue.called()),
            *wrong_failures(failures, self._file),
            *wrong_prices(planned(self._file), catalogue),
        ]
        return {
            "imported": status.counts["finished"],
            "refused": status.counts["failed"],
            "dead": status.counts["error"],
            "reasons": Counter(one.message for one in events if one.status == "failed"),
            "healed": {"total": healed.total(), "by_error": healed},
            "ran_again": sum(more for (more,) in catalogue.read("SELECT writes - 1 FROM products")),
            "prices": {
                "products": len({one.sku for one in changes}),
                "changes": len(changes),
                "turns": len({(one.sku, one.began, one.token) for one in changes}),
                "late": sum(not one.written for one in changes),
            },
            "ok": not differences,
            "differences": differences,
            "batch": status.id,
            "failures": str(failures),
        }


def _healed(events: Iterable[Event]) -> Counter[str]:
    """The errors after which a later attempt imported the row."""
    found: Counter[str] = Counter()
    for one in events:
        if one.status == "finished" and one.args:
            acts = misbehaviour(one.args[0]["sku"].strip())
            found.update(TROUBLES[act] for act in (*acts, *["other"] * one.attempts)[: one.attempts - 1])
    return found


def report(summary: dict[str, Any], errors: Console, *, as_json: bool, quiet: bool) -> None:
    """Print the summary; exit 1 when the result is not what the file says."""
    if as_json:
        click.echo(json.dumps(summary, ensure_ascii=False, indent=2))
    elif not quiet:
        Console(highlight=False).print(summary_table(summary))
    if differences := summary["differences"]:
        many = len(differences)
        errors.print(Text(f"{many:,} {'thing is' if many == 1 else 'things are'} not as they should be:", "red"))
        for line in differences[:SHOWN]:
            errors.print(Text(f"  {line}"), soft_wrap=True)
        if many > SHOWN:
            errors.print(Text(f"  … and {many - SHOWN:,} more"))
        sys.exit(1)
    if not (as_json or quiet):
        click.echo(f"Refused rows, with their reasons: {summary['failures']}")
        click.echo(f"Checked against the file: all {summary['rows']:,} rows are right, none missing, none doubled.")
        click.echo(
            f"Checked in the ledger: each of {summary['prices']['products']:,} products has its newest price; none was "
            "in two hands at once, and no price went back."
        )
