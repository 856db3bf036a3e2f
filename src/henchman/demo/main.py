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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from henchman.demo.check import wrong_batch, wrong_failures, wrong_prices, wrong_rows
from henchman.demo.products import misbehaviour, planned
from henchman.demo.rows import COUNT, Row, rows
from henchman.demo.stage import DemoError, Stage, why_not
from henchman.demo.view import View, summary_table
from henchman.errors import HenchmanError
from henchman.history.records import Event

__all__ = ["demo"]

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
@click.option("--keep", is_flag=True, help="Keep the demo's folder: catalogue, logs and the server's data.")
@click.option("--serve", is_flag=True, help="Keep the console running afterwards; comes with the console.")
@click.option("--json", "as_json", is_flag=True, help="The summary as one JSON object.")
@click.option("--quiet", is_flag=True, help="Say nothing unless something is wrong.")
def demo(
    most: int | None, processes: int, concurrency: int, keep: bool, serve: bool, as_json: bool, quiet: bool
) -> None:
    """Import 10,000 products as one batch of jobs, on a server of its own: a price service that fails now and then,
    price changes that arrive out of order, two worker processes, a live bar, and at the end a check of every row and
    every price, and a sheet of the rows that were refused."""
    if serve:
        raise click.UsageError("--serve comes with the console; leave it out")
    if missing := why_not():
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
                summary = Play(stage, view, file, caught).run(processes, concurrency)
        except Stopped:
            view.close()
            errors.print(Text("Stopped: the workers and the server are down."))
            sys.exit(128 + caught[0])
        except (DemoError, HenchmanError, OSError, sqlite3.Error) as error:
            view.close()
            errors.print(Text(f"The demo failed: {error}", "red"), soft_wrap=True)
            sys.exit(1)
        finally:
            view.close()
            if keep and stage.url:
                errors.print(Text(f"Kept: {stage.folder}"), soft_wrap=True)
    report(summary, errors, as_json=as_json, quiet=quiet)


class Play:
    """One demo on its stage."""

    def __init__(self, stage: Stage, view: View, file: list[Row], caught: list[int]) -> None:
        self._stage, self._view, self._file, self._caught = stage, view, file, caught

    def run(self, processes: int, concurrency: int) -> dict[str, Any]:
        """The whole demo, from the empty stage to the summary."""
        stage, many = self._stage, len(self._file)
        self._view.say(f"To look in from another terminal: HENCHMAN_REDIS_URL='{stage.url}' henchman status")
        size = ("-p", processes, "-c", concurrency, "-t", GRACE)
        stage.start("workers", "henchman", "work", "henchman.demo.jobs:app", *size)
        self._until(stage.is_kept, lambda: "nobody keeps history")
        started = time.monotonic()
        stage.start("push", "henchman.demo.push", many)
        self._until(lambda: self._settled() == many, lambda: f"{many - self._settled():,} rows are not settled")
        seconds = time.monotonic() - started
        self._until(lambda: not any(stage.left().values()), lambda: f"every row is settled, but not {stage.left()}")
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
