"""``henchman status``: everything at a glance, once or again and again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from heapq import nlargest
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from henchman.cli.ordered_view import ordered_rows, ordered_table
from henchman.cli.processes import process_rows, process_table, work_rows, work_table
from henchman.cli.queues import queue_rows, queue_table
from henchman.cli.session import NOTHING_RUNS, Session, as_json, server_options
from henchman.cli.table import cell
from henchman.cli.text import console, count, duration, emit, say
from henchman.errors import ServerAway
from henchman.inspector.queues import QueueState
from henchman.inspector.stats import Overview, overview, rates
from henchman.kernel.text import visible
from henchman.wire import times

__all__ = ["status"]

OVERDUE = 4
_WORK_SHOWN = 10
_QUEUES_SHOWN = 50


@click.command()
@server_options
@click.option("--watch", is_flag=True, help="Again and again, with jobs a second, until Ctrl-C.")
@click.option("--every", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, metavar="SECONDS")
@as_json
@click.pass_context
def status(context: click.Context, watch: bool, every: float, as_json: bool) -> None:
    """Queues, processes, running jobs and counts.

    As a probe: exit status 0 when a worker process lives and nothing is overdue; 3 when there is no worker process (or
    no server at all); 4 when scheduled jobs or retries are more than a minute overdue.
    """
    session = Session(context)
    if watch:
        _watch(session, every, as_json=as_json)
        return
    now = overview(session.runner, session.keys, session.mask)
    if as_json:
        emit(_document(now, {}))
    else:
        console().print(_view(session, now, {}))
    if not now.stats.processes:
        sys.exit(NOTHING_RUNS)
    if now.stats.overdue:
        sys.exit(OVERDUE)


def _document(now: Overview, rate: Mapping[str, float]) -> dict[str, Any]:
    return {
        "at": times.iso(now.at),
        "stats": now.stats._asdict(),
        "rates": dict(rate),
        "queues": queue_rows(now.queues),
        "ordered": ordered_rows(now.ordered),
        "processes": process_rows(now.processes),
        "work": work_rows(now.work),
    }


def _view(session: Session, now: Overview, rate: Mapping[str, float]) -> Group:
    parts: list[Any] = [_headline(session, now, rate), Text()]
    if now.queues:
        parts += [queue_table(_longest(now.queues)), Text()]
    if len(now.queues) > _QUEUES_SHOWN:
        rest = len(now.queues) - _QUEUES_SHOWN
        parts[-1] = Text(f"… and {rest:,} shorter ones: henchman queues\n", "dim")
    if now.ordered:
        parts += [ordered_table(now.ordered), Text()]
    if not now.queues and not now.ordered:
        parts += [Text("No queues: nothing was pushed yet.", "dim"), Text()]
    if now.processes:
        parts.append(process_table(now.processes, now.at))
    else:
        parts.append(Text("No worker processes. Start one: henchman work pkg.mod:app", "yellow"))
    if now.work:
        parts += [Text(), work_table(now.work[:_WORK_SHOWN], now.at)]
    if len(now.work) > _WORK_SHOWN:
        parts.append(Text(f"… and {len(now.work) - _WORK_SHOWN:,} more", "dim"))
    return Group(*parts)


def _longest(queues: list[QueueState]) -> list[QueueState]:
    """Those that fit on a screen, by name: the unreadable, the paused and the longest come first into the choice."""
    if len(queues) <= _QUEUES_SHOWN:
        return queues
    chosen = nlargest(_QUEUES_SHOWN, queues, key=lambda one: (bool(one.problem), one.paused, one.size or 0))
    return sorted(chosen, key=lambda one: one.name)


def _headline(session: Session, now: Overview, rate: Mapping[str, float]) -> Text:
    counts = now.stats
    waiting = [
        f"{counts.enqueued:,} enqueued",
        f"{counts.scheduled:,} scheduled",
        count(counts.retries, "retry", "retries"),
        f"{counts.dead:,} dead",
    ]
    done = [
        f"{counts.busy:,} busy",
        f"{counts.processed:,} processed",
        f"{counts.failed:,} failed",
        f"today {counts.processed_today:,} and {counts.failed_today:,}",
    ]
    if now.ordered:
        waiting.append(f"ordered: {counts.ordered:,}, {counts.morgue:,} in morgues")
    text = Text.assemble(cell(session.shown_url, "dim"), "\n", " · ".join(waiting), "\n", " · ".join(done))
    if rate:
        text.append(f"\n{rate['processed']:,.1f} jobs/s, {rate['failed']:,.1f} failed/s", "green")
    if counts.overdue:
        text.append(f"\n{count(counts.overdue, 'job')} overdue: no worker puts them into their queues", "red")
    return text


def _line(now: Overview, rate: Mapping[str, float]) -> str:
    counts = now.stats
    speed = f"{rate['processed']:,.1f} jobs/s, " if rate else ""
    ordered = f"ordered: {counts.ordered:,}, {counts.morgue:,} in morgues, " if now.ordered else ""
    return (
        f"{times.iso(now.at)} {speed}{counts.enqueued:,} enqueued, {counts.busy:,} busy, {counts.retries:,} retries, "
        f"{counts.dead:,} dead, {ordered}{count(counts.processes, 'process', 'processes')}, "
        f"latency {duration(counts.default_latency)}"
    )


def _watch(session: Session, every: float, *, as_json: bool) -> None:
    """Look until Ctrl-C: on a terminal one picture that changes, elsewhere a line (or a JSON document) a look."""
    before: Overview | None = None
    out = console()
    session.runner  # noqa: B018 - when there is no server at all, say so and end
    with Live(console=out, auto_refresh=False, screen=out.is_terminal and not as_json) as live:
        try:
            while True:
                try:
                    now = overview(session.runner, session.keys, session.mask)
                except ServerAway as error:
                    if out.is_terminal and not as_json:
                        live.update(
                            Text(f"The server is away, looking again: {visible(str(error))}", "red"), refresh=True
                        )
                    else:
                        click.echo(f"{visible(str(error))}", err=True)
                    before = None
                else:
                    rate = rates(before, now) if before is not None else {}
                    before = now
                    if as_json:
                        click.echo(json.dumps(_document(now, rate)))
                    elif out.is_terminal:
                        live.update(_view(session, now, rate), refresh=True)
                    else:
                        say(_line(now, rate))
                sys.stdout.flush()
                time.sleep(every)
        except KeyboardInterrupt:
            return
