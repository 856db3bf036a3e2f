"""``henchman demo``: ten thousand real jobs, watched, and checked against the file they came from.

Exit status: 0 when every row is imported or refused as the file says and every product has its newest price, 1 when
not (it says which), 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.text import Text

from henchman.demo.catalogue import Counts
from henchman.demo.check import differences
from henchman.demo.offers import Offers, planned, wrong
from henchman.demo.products import Row, read
from henchman.demo.record import sheet_differences, why_not
from henchman.demo.stage import DemoError, Size, Stage
from henchman.demo.view import Summary, View, summary_table, view_for
from henchman.errors import HenchmanError

__all__ = ["demo"]

LOOK = 0.1  # seconds between two looks at the ledger
PATIENCE = 120.0  # seconds without any row settled, after which something is wrong
SHOWN = 20  # differences that are listed


class Stopped(Exception):
    """A signal asked the demo to stop."""


class Signals:
    """Remembers the first signal that asks us to stop; more of them change nothing while we clear away."""

    def __init__(self) -> None:
        self.number = 0

    def check(self) -> None:
        """Stopped when a signal came."""
        if self.number:
            raise Stopped

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Catch SIGINT, SIGTERM and SIGHUP meanwhile."""
        which = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._remember) for number in which}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number


@click.command()
@click.option("--rows", type=click.IntRange(min=1), default=None, metavar="N", help="Import the first N rows only.")
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True, help="Worker processes.")
@click.option("--concurrency", type=click.IntRange(1, 500), default=10, show_default=True, help="Slots of each.")
@click.option("--keep", is_flag=True, help="Keep the demo's folder: catalogue, logs and the server's data.")
@click.option("--serve", is_flag=True, help="Keep the console running afterwards; comes with the console.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object.")
@click.option("--quiet", is_flag=True, help="Say nothing unless something is wrong.")
def demo(
    rows: int | None, processes: int, concurrency: int, keep: bool, serve: bool, as_json: bool, quiet: bool
) -> None:
    """Import 10,000 products as one batch of jobs, on a server of its own: a price service that fails now and then,
    price changes that arrive out of order, two worker processes, a live bar, and at the end a check of every row and
    every price, and a sheet of the rows that were refused."""
    if serve:
        raise click.UsageError("--serve comes with the console; leave it out")
    if missing := why_not():
        raise click.UsageError(missing)
    file = list(read(most=rows))
    if rows is not None and len(file) < rows:
        raise click.BadParameter(f"the file has {len(file):,} rows, not {rows:,}", param_hint="--rows")
    errors = Console(stderr=True, highlight=False)
    signals = Signals()
    with signals.watched():
        view = view_for(errors, len(file), quiet=quiet)
        stage = Stage(Size(len(file), processes, concurrency), keep=keep)
        try:
            summary = _play(file, stage, view, signals)
        except Stopped:
            view.close()
            errors.print(Text("Stopped: the workers and the server are down."))
            sys.exit(128 + signals.number)
        except (DemoError, HenchmanError, OSError, sqlite3.Error) as error:
            view.close()
            errors.print(Text(f"The demo failed: {error}", "red"), soft_wrap=True)
            sys.exit(1)
        finally:
            view.close()
            if keep and stage.url:
                errors.print(Text(f"Kept: {stage.folder}"), soft_wrap=True)
    _report(summary, errors, as_json=as_json, quiet=quiet)


def _play(file: list[Row], stage: Stage, view: View, signals: Signals) -> Summary:
    """The whole demo, from an empty folder to the summary."""
    view.say("Starting the embedded server, the price service and the workers …")
    with stage:
        signals.check()
        view.say(f"To look in from another terminal: HENCHMAN_REDIS_URL='{stage.url}' henchman status")
        stage.start_workers()
        _until_kept(stage, signals)
        started = time.monotonic()
        stage.start_pushing()
        _watch(stage, view, signals)
        seconds = time.monotonic() - started
        _drain(stage, view, signals)
        stage.stop()
        view.close()
        counts, offers = stage.catalogue.counts(), Offers(stage.catalogue)
        sheet = _sheet(stage)
        return Summary(
            rows=len(file),
            processes=stage.size.processes,
            concurrency=stage.size.concurrency,
            imported=counts.imported,
            refused=counts.refused,
            dead=counts.dead,
            reasons=stage.record.reasons(),
            healed=stage.catalogue.healed(),
            seconds=seconds,
            slowest=stage.catalogue.slowest(),
            ran_again=sum(result.runs - 1 for result in stage.catalogue.results()),
            differences=[
                *differences(file, stage.catalogue),
                *_of_batch(stage, counts),
                *sheet_differences(sheet, file),
                *wrong(planned(file), offers),
            ],
            prices=offers.figures(),
            batch=stage.record.batch,
            failures=str(sheet),
        )


def _until_kept(stage: Stage, signals: Signals) -> None:
    """Wait until the workers' recorder keeps history."""
    limit = time.monotonic() + PATIENCE
    while not stage.record.is_kept():
        signals.check()
        stage.check()
        if time.monotonic() > limit:
            raise DemoError(f"nobody keeps history, after {PATIENCE:g} s\n{stage.log_end()}")
        time.sleep(LOOK)


def _watch(stage: Stage, view: View, signals: Signals) -> None:
    """Show the figures until every row is settled; DemoError when nothing moves any more."""
    settled, moved = 0, time.monotonic()
    while settled < stage.size.rows or stage.pushing:
        signals.check()
        stage.check()
        counts = _counts(stage)
        if counts.settled > settled:
            settled, moved = counts.settled, time.monotonic()
        elif time.monotonic() - moved > PATIENCE:
            raise DemoError(
                f"no row was settled for {PATIENCE:g} s; {stage.size.rows - settled:,} are missing, and the server "
                f"holds {stage.left()}\n{stage.log_end()}"
            )
        view.show(counts)
        time.sleep(LOOK)


def _counts(stage: Stage) -> Counts:
    """How far the import is: what the server has counted in the batch, and the price changes beside it."""
    status, changes = stage.record.status(), stage.catalogue.price_changes()
    if status is None:
        return Counts(0, 0, 0, 0, changes)
    by = status.counts
    return Counts(by["finished"], by["failed"], by["error"], by["retrying"], changes)


def _sheet(stage: Stage) -> Path:
    """Write the sheet of refused rows where it stays when the demo has gone."""
    folder = stage.folder if stage.keep else Path(tempfile.mkdtemp(prefix="henchman-failures-"))
    path = folder / "failures.csv"
    try:
        stage.record.write_failures(path)
    except BaseException:
        if not stage.keep:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return path


def _of_batch(stage: Stage, counts: Counts) -> Iterator[str]:
    """What is not as it should be with the batch."""
    status = stage.record.status()
    if status is None or status.state != "complete":
        yield f"the batch is {status and status.state}; it should be complete"
    else:
        yield from stage.record.differences(status, counts)
    if set(stage.catalogue.called()) != {stage.record.batch}:
        yield f"on_complete was run for {stage.catalogue.called()}, not for {stage.record.batch}"


def _drain(stage: Stage, view: View, signals: Signals) -> None:
    """Wait until the server holds no job that still wants to run, the batch has called back, and all is recorded."""
    limit = time.monotonic() + PATIENCE
    while any((left := stage.left())[:-1]) or not stage.catalogue.called():
        signals.check()
        stage.check()
        if time.monotonic() > limit:
            raise DemoError(f"every row is settled, but the server still holds {left}\n{stage.log_end()}")
        time.sleep(LOOK)
    view.show(_counts(stage))
    if not stage.record.complete(PATIENCE):
        raise DemoError(f"history was not written within {PATIENCE:g} s\n{stage.log_end()}")


def _report(summary: Summary, errors: Console, *, as_json: bool, quiet: bool) -> None:
    """Print the summary; exit 1 when the result is not what the file says."""
    if as_json:
        click.echo(json.dumps(summary.to_json(), ensure_ascii=False, indent=2))
    elif not quiet:
        Console(highlight=False).print(summary_table(summary))
    if not summary.ok:
        many = len(summary.differences)
        errors.print(Text(f"{many:,} {'thing is' if many == 1 else 'things are'} not as they should be:", "red"))
        for line in summary.differences[:SHOWN]:
            errors.print(Text(f"  {line}"), soft_wrap=True)
        if many > SHOWN:
            errors.print(Text(f"  … and {many - SHOWN:,} more"))
        sys.exit(1)
    if not (as_json or quiet):
        click.echo(f"Refused rows, with their reasons: {summary.failures}")
        click.echo(f"Checked against the file: all {summary.rows:,} rows are right, none missing, none doubled.")
        click.echo(
            f"Checked in the ledger: each of {summary.prices.products:,} products has its newest price; none was in "
            "two hands at once, and no price went back."
        )
