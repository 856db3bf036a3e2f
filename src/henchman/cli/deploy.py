"""``henchman check`` and ``replay``: what waits against this code, and one job run in the terminal."""

from __future__ import annotations

import pdb
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from henchman.app import App
from henchman.cli.jobs import job_id, recorded_in, whole_id
from henchman.cli.session import Session, as_json, command, settings_of
from henchman.cli.show import Table, TableRow, answer, cell, complain, count, duration, figure, listed, say
from henchman.deploy.check import Checked
from henchman.deploy.check import check as check_now
from henchman.deploy.fit import Fault
from henchman.deploy.replay import prepared, recorded_job
from henchman.errors import ConfigError, HenchmanError
from henchman.inspector.base import argument_text
from henchman.inspector.jobs import JobStatus, find_job
from henchman.kernel.text import SECONDS_OF, visible
from henchman.outbox import load
from henchman.store import call
from henchman.supervisor.load import their_traceback
from henchman.wire.payload import decode

__all__ = ["check", "replay"]

_UNITS = {"min": 60, **SECONDS_OF}
_PLACES = 3  # places of a finding that are shown
_LONG = 1000  # characters of a call
_LIVES = ("enqueued", "scheduled", "retrying", "working", "blocked")
_CLASSES = 5  # classes of a queue that is another application's


def _since(context: click.Context, parameter: click.Parameter, value: str | None) -> float:
    """A time as Unix seconds: how long ago, or a time with its zone."""
    if value is None:
        return 0.0
    if found := re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|min|h|d|w)", value.strip()):
        return time.time() - float(found[1]) * _UNITS[found[2]]
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise click.BadParameter(f"{visible(value)[:40]}: give 90min, 12h or 7d, or 2026-11-22T09:00:00+01:00")
    return moment.timestamp()


@command()
@click.argument("target", required=False, metavar="[pkg.mod:app]")
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="NAME", help="A queue that this code will serve; repeatable."
)
@click.option(
    "--since", callback=_since, metavar="TIME", help="Only jobs pushed since: 12h, 7d, or a time with its zone."
)
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Look at N jobs of each place, spread over it.")
@click.option(
    "--refused-only", is_flag=True, help="Leave out plain values of another type, which the job gets as they are."
)
@as_json
def check(session: Session, target: str | None, as_json: bool, **given: Any) -> None:
    """Whether the jobs that wait fit this code: run it with the new code, before its workers start.

    It loads the app and reads queues, schedule, retries, the dead, blocked jobs, batches, live crons, what is in flight
    and the rows of the outbox. Each job whose
    class no job here has, or whose arguments do not bind any more, is counted, with an example. It changes nothing.

    A class that nobody here knows is a fault in the queues that this app's jobs name (or -q says), and in those that
    processes with this deployment's tag serve; jobs in other queues are another application's, and named apart.

    Exit status: 0 all fit; 1 some do not, or the app does not import.
    """
    if target is not None:
        settings_of(click.get_current_context())["app"] = target
    app = session.known_app
    if session.app is None:
        raise ConfigError('which app? Give it as pkg.mod:app, or set app = "pkg.mod:app" in henchman.toml')
    found = check_now(
        app,
        serves=given["queues"],
        since=given["since"],
        sample=given["sample"],
        refused_only=given["refused_only"],
        rows=_rows(app),
    )
    answer(found.to_json(), *([] if as_json else _lines(found)), as_json=as_json)
    if not found.is_clean:
        sys.exit(1)


def _rows(app: App) -> Iterator[tuple[str, bytes]]:
    """Queue and payload of each row of the outbox, where the app has one."""
    if app.config.outbox is not None:
        with closing(app.open_outbox()) as database:
            yield from load("status").payloads(database)


def _lines(found: Checked) -> Iterator[RenderableType]:
    fits = found.fits
    if fits.findings:
        columns = ["class", "what does not fit", "jobs>", "where"]
        yield Table(columns, map(_row, fits.findings), "what does not fit")
        for advice in dict.fromkeys(one.advice for one in fits.findings if one.advice):
            yield f"→ {advice}"
    wrong = sum(one.count for one in fits.findings)
    looked = listed(fits.looked, max(found.total, fits.looked), "jobs looked at" if fits.looked else "jobs wait")
    verdict = f"{wrong:,} of them would not run as pushed" if wrong else "all fit this code"
    yield Text.assemble(f"{looked} in {duration(found.took)}: ", (verdict, "red" if wrong else "green"))
    yield from _remarks(found)


def _row(one: Fault) -> TableRow:
    places = [f"{place} {figure(many)}" for place, many in one.places.most_common(_PLACES)]
    more = len(one.places) - _PLACES
    where = ", ".join(places) + (f" and {more} more" if more > 0 else "")
    detail = f": {one.detail}" if one.detail != one.text else ""
    note = f"{one.jid or 'without an id'}  {one.example}{detail}" if one.example else ""
    cells = [cell(one.name, "bold"), cell(one.text, "red"), cell(figure(one.count)), cell(where)]
    return TableRow(cells, cell(note, "dim") if note else None)


def _remarks(found: Checked) -> Iterator[str]:
    fits = found.fits
    for (old, new), many in fits.aliased.most_common():
        yield f"By an alias: {count(many, 'job')} of {old} will run as {new}"
    for name, many in fits.sealed.most_common():
        yield f"Not looked into: encrypted arguments of {count(many, 'job')} of {name}; no encryption_keys are set here"
    if found.unread:
        yield f"Not looked into: rows of the outbox: {visible(found.unread)}"
    if fits.older:
        yield f"Left out as older than --since: {count(fits.older, 'job')}"
    if fits.unreadable:
        yield f"Not readable, by any code: {count(fits.unreadable, 'payload')} (henchman dead list)"
    for queue, many in fits.unnamed.most_common():
        held = f"{count(many, 'job')} of its classes"
        yield f"Queue {queue}: no job of this code names it, and it has {held}: henchman work -q {queue}"
    for queue, one in sorted(fits.elsewhere.items()):
        classes = ", ".join(f"{name} {figure(many)}" for name, many in one.classes.most_common(_CLASSES))
        served = found.served.get(queue)
        who = f"served by {', '.join(served[:_PLACES])}" if served else "no living worker serves it"
        yield f"Not this app's, queue {queue}: {count(one.count, 'job')} ({classes}); {who}"
    for name in found.ordered:
        yield f"Not this app's, ordered queue {name}: it has work, and no definition here handles it"


@command()
@click.argument("jid", callback=job_id)
@click.option("--pdb", "debug", is_flag=True, help="Open the debugger where it raises.")
@click.option("--anyway", is_flag=True, help="Also a job that waits or runs: then it may run twice.")
def replay(session: Session, jid: str, debug: bool, anyway: bool) -> None:
    """Run a dead job, or one that history knows, here and now, with its arguments; its record stays as it is.

    What it does is real: it writes where it writes, and what it pushes is pushed. The server middleware runs around it,
    startup and shutdown hooks before and after; no time-out, retry, handler, metric or history takes part.

    Exit status: 0 it returned; 1 it raised, or cannot be replayed.
    """
    app = session.known_app
    if session.app is None:
        raise ConfigError('which app? Say -A pkg.mod:app, or set app = "pkg.mod:app" in henchman.toml')
    jid = whole_id(session, jid)
    status = call.run(session.runner, find_job(session.keys, jid, mask=session.mask))
    if status.state in _LIVES and not anyway:
        raise HenchmanError(f"{jid} is {status.text}: beside a replay it may run twice (--anyway)")
    stored, job = _stored(session, app, status)
    shown = argument_text(*app.registry.mask(job["class"], job["args"], job.get("kwargs") or {}), _LONG)
    rerun = prepared(app, stored, job, lambda message: say(f"[log] {message}"))
    say(f"{jid}: {job['class']}({shown}), {status.text if status.entry else 'from history'}")

    def look(error: BaseException) -> None:
        for line in rerun.run.secrets.hide(their_traceback(error)).splitlines():
            complain(line)
        if debug:
            pdb.post_mortem(error.__traceback__)

    ended = rerun.start(look)
    kind = "returned" if ended.error is None else f"raised {type(ended.error).__name__}"
    say(f"{kind} after {duration(ended.seconds)}; on a worker: {ended.meaning}. Nothing of this run was recorded")
    if ended.error is not None:
        sys.exit(1)


def _stored(session: Session, app: App, status: JobStatus) -> tuple[bytes, dict[str, Any]]:
    """The job as it is stored, else as history knows it."""
    if status.entry is not None:
        return status.entry.payload, decode(status.entry.payload)
    found = recorded_in(session, status.jid)
    if found is None:
        off = session.config.why_history_is_off()
        raise HenchmanError(
            f"{status.jid}: no payload is kept on the server ({status.text}), and "
            + (f"there is no history: {off}" if off else "history does not know it")
        )
    one = found.event
    return recorded_job(app.registry, one.jid, one.class_, one.queue, one.args, one.kwargs)
