"""``henchman cron``: the periodic jobs, their next and last times; run one now, pause, resume."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click
from rich.text import Text

from henchman.cli.session import Session, as_json, server_options
from henchman.cli.table import cell
from henchman.cli.text import ago, console, emit, say
from henchman.cron.registry import CronState, set_paused, states
from henchman.cron.timing import zone
from henchman.errors import UnknownCron
from henchman.kernel.text import did_you_mean, visible
from henchman.store import procedure
from henchman.wire import times

__all__ = ["cron"]

_COLOURS = {"active": "green", "paused": "yellow", "retired": "dim", "unreadable": "red"}


@click.group(invoke_without_command=True)
@server_options
@as_json
@click.pass_context
def cron(context: click.Context, as_json: bool) -> None:
    """Periodic jobs: when they come next, when they came last; run one now, pause, resume."""
    if context.invoked_subcommand is None:
        context.invoke(listing, name=(), as_json=as_json)


@cron.command("list")
@server_options
@click.argument("name", nargs=-1)
@as_json
@click.pass_context
def listing(context: click.Context, name: tuple[str, ...], as_json: bool) -> None:
    """Every periodic job, or those that are NAMEd, with the next and the last five times."""
    session = Session(context)
    found = procedure.run(session.runner, states(session.keys))
    shown = [one for one in found if not name or one.name in name]
    for missing in sorted(set(name) - {one.name for one in found}):
        raise UnknownCron(f"there is no cron {missing!r}{did_you_mean(missing, [one.name for one in found])}")
    if as_json:
        emit({"crons": [_document(one) for one in shown]})
    elif shown:
        for one in shown:
            _show(one)
    else:
        say("No periodic jobs. One from code (@app.cron) is there once a worker that declares it has started.")


@cron.command()
@server_options
@click.argument("name")
@as_json
@click.pass_context
def run(context: click.Context, name: str, as_json: bool) -> None:
    """Enqueue the job of NAME now, beside its planned times."""
    session = Session(context)
    app = session.any_app()
    try:
        handle = app.crons.run(name)
    finally:
        app.close()
    if as_json:
        emit({"jid": handle.jid, "queue": handle.queue, "admission": handle.admission})
    else:
        say(handle.jid if handle.admission == "created" else "stopped by a client middleware")


@cron.command()
@server_options
@click.argument("name")
@click.pass_context
def pause(context: click.Context, name: str) -> None:
    """Enqueue nothing for NAME any more."""
    session = Session(context)
    done = procedure.run(session.runner, set_paused(session.keys, name, "pause"))
    say(f"{name} is paused. Undo: henchman cron resume {name}" if done else f"{name} was paused already")


@cron.command()
@server_options
@click.argument("name")
@click.pass_context
def resume(context: click.Context, name: str) -> None:
    """Let NAME go on from now; what was planned meanwhile is left out."""
    session = Session(context)
    done = procedure.run(session.runner, set_paused(session.keys, name, "resume"))
    say(f"{name} goes on" if done else f"{name} was not paused")


def _document(one: CronState) -> dict[str, Any]:
    """A cron as JSON: times as ISO 8601 in UTC."""
    last = [
        {"planned": times.iso(past.planned), "enqueued": times.iso(past.enqueued), "jid": past.jid} for past in one.last
    ]
    running, skipped = one.running, one.skipped
    return one._asdict() | {
        "next": [times.iso(at) for at in one.next],
        "last": last,
        "problem": one.problem or None,
        "running": running and {"since": times.iso(running.since), "jid": running.jid},
        "skipped": skipped and skipped._asdict() | {"planned": times.iso(skipped.planned), "at": times.iso(skipped.at)},
    }


def _show(one: CronState) -> None:
    out, now = console(), time.time()
    when = one.expression if one.every is None else f"every {one.every:g} s"
    out.print(
        Text.assemble(
            cell(one.name, "bold"),
            *("  ", cell(when or ""), "  ", cell(one.tz or "UTC"), "  ", cell(one.state, _COLOURS[one.state])),
            *("  ", cell(one.problem or _words(one), "dim")),
        ),
        soft_wrap=True,
    )
    planned = _listed(one.next, one.tz) or "–"
    first = f" ({ago(one.next[0], now)})" if one.next else ""
    latest = f" ({ago(one.last[0].planned, now)})" if one.last else ""
    rows = [("next", planned + first), ("last", (_listed_past(one) or "–") + latest), *_overlaps(one, now)]
    for title, text in rows:
        out.print(Text.assemble((f"  {title}  ", "dim"), visible(text)), soft_wrap=True)


def _words(one: CronState) -> str:
    overlap = f", overlap: skip (at most {one.overlap_for:g} s)" if one.overlap == "skip" else ""
    return f"{one.job} on {one.queue}, missed: {one.missed}{overlap}"


def _overlaps(one: CronState, now: float) -> Iterable[tuple[str, str]]:
    """What a tick waits for, and what was passed over for its sake."""
    if one.running is not None:
        yield "not ended", f"{one.running.jid}, enqueued {ago(one.running.since, now)}: ticks are passed over"
    if one.skipped is not None:
        ticks = "1 tick" if one.skipped.ticks == 1 else f"{one.skipped.ticks:,} ticks"
        latest = _listed([one.skipped.planned], one.tz)
        yield (
            "skipped",
            f"{ticks}, the last {latest} ({ago(one.skipped.planned, now)}): {one.skipped.jid} had not ended",
        )


def _listed_past(one: CronState) -> str:
    return _listed([past.planned for past in one.last], one.tz)


def _listed(moments: Iterable[float], tz: str | None) -> str:
    """Times of day in the cron's zone; the date where it is another than before."""
    parts, day = [], ""
    for at in moments:
        moment = datetime.fromtimestamp(at, zone(tz or "UTC"))
        date, clock = f"{moment:%a %Y-%m-%d}", f"{moment:%H:%M:%S}" + (f".{moment:%f}"[:3] if at % 1 else "")
        parts.append(clock if date == day else f"{date} {clock}")
        day = date
    return " · ".join(parts)
