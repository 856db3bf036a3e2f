"""``henchman bench``: how fast this machine and this server are with Henchman, in about a minute."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from henchman.bench.measures import MEASURES, Ground, run_measures
from henchman.bench.report import Report
from henchman.bench.server import server
from henchman.bench.stamps import Stamps
from henchman.cli.session import Session, as_json, command, confirmed, yes
from henchman.cli.show import complain

__all__ = ["bench"]

_NAMES = [measure.name for measure in MEASURES]


@command()
@click.option("--own", is_flag=True, help="Measure with a server of the bench's own, whatever is configured.")
@click.option("--only", multiple=True, type=click.Choice(_NAMES), help="Take this measure; repeatable.")
@click.option("--runs", type=click.IntRange(1, 100), default=3, show_default=True, help="Runs of each measure.")
@click.option("--scale", type=click.FloatRange(0.001, 100), default=1.0, show_default=True, help="Times as many jobs.")
@yes
@as_json
def bench(
    session: Session, own: bool, only: tuple[str, ...], runs: int, scale: float, yes: bool, as_json: bool
) -> None:
    """Measure this machine and this server: drain, limits, push, push to start, scheduled jobs, start and memory.

    It takes a minute or two, and prints a page of Markdown: for each figure the median of its runs, and their spread. A
    bare loop is measured beside the worker: what a single thread does with the same server and nothing around it.

    Where a server is configured, that one is measured: in a namespace of its own, which is deleted at the end, but with
    a load that everybody else feels. Without one, or with --own, a server is started for it and stopped again.
    """
    url = "" if own else session.config.redis_url or ""
    if url:
        question = f"This puts {int(600_000 * scale):,} jobs a run on {session.shown_url}, and loads it."
        confirmed(f"{question} Go on?", yes=yes)
    with server(url) as made:
        raw = made.connect()
        report = Report("Henchman on this machine", raw, made.shown_url, live=False)
        ground = Ground(made, raw, report, Stamps(Path(os.environ["BENCH_STAMPS"])), scale)
        chosen = [measure for measure in MEASURES if not only or measure.name in only]
        run_measures(ground, chosen, runs, complain)
    sys.stdout.write(json.dumps(report.document(), indent=2) + "\n" if as_json else report.markdown())
