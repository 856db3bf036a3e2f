"""``henchman job``, ``enqueue``, ``cancel``: one job at a time."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click
from rich.text import Text

from henchman.cli.job_history import recorded_job, show_recorded
from henchman.cli.session import Session, as_json, server_options
from henchman.cli.table import cell
from henchman.cli.text import console, emit, moment, say
from henchman.inspector.entry import argument_text
from henchman.inspector.jobs import MOST, JobStatus, find_job
from henchman.kernel.text import did_you_mean, shorten, visible
from henchman.store import jobs

__all__ = ["cancel", "enqueue", "job"]


def _job_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A job's id: text that can be stored as such."""
    text = value.strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{text!a} is no job id: it is not UTF-8") from None
    if not 0 < len(text) <= 1000 or not text.isprintable():
        raise click.BadParameter("a job id has 1 to 1000 printable characters, most often 24")
    return text


@click.command()
@server_options
@click.argument("jid", callback=_job_id)
@click.option("--queue", metavar="NAME", help="Where to look first.")
@click.option("--most", type=click.IntRange(1), default=MOST, show_default=True, help="Entries to look at, at most.")
@as_json
@click.pass_context
def job(context: click.Context, jid: str, queue: str | None, most: int, as_json: bool) -> None:
    """Where the job JID is, and what is known of it, also in history. Exit status 1: nobody knows it."""
    session = Session(context)
    status = find_job(session.runner, session.keys, jid, queue, most, session.mask)
    recorded = recorded_job(session, jid)
    if as_json:
        emit(status.to_json() | {"history": None if recorded is None else recorded.to_json()})
    else:
        if recorded is None or status.state != "unknown":
            _show(status)
        if recorded is not None:
            show_recorded(recorded)
        elif not status.complete:
            say("To look further: --queue NAME, or a greater --most")
    if status.state == "unknown" and recorded is None:
        sys.exit(1)


def _show(status: JobStatus) -> None:
    now = time.time()
    out = console()
    colours = {"dead": "red", "retrying": "yellow", "working": "green", "unknown": "bold"}
    out.print(
        Text.assemble(cell(status.state, colours.get(status.state, "bold")), "  ", cell(status.text)), soft_wrap=True
    )
    if status.entry is None:
        return
    entry = status.entry
    moments = {
        "due": status.at if status.state in ("scheduled", "retrying") else None,
        "died": status.at if status.state == "dead" else None,
        "created": status.created_at,
        "enqueued": status.enqueued_at,
        "started": status.started_at,
        "failed": status.failed_at,
    }
    facts = [
        ("job id", status.jid),
        ("class", status.name),
        ("queue", status.queue),
        ("arguments", argument_text(list(status.args), status.kwargs, 1000) or "none"),
        ("tags", ", ".join(entry.tags)),
        ("process", status.process),
        ("failures", status.attempts or None),
        *((name, moment(at, now)) for name, at in moments.items() if at is not None),
        ("error", f"{status.error[0]}: {status.error[1]}" if status.error else None),
        ("unusable", entry.problem),
    ]
    for name, value in facts:
        if value not in (None, ""):
            out.print(Text.assemble((f"{name:<11}", "dim"), visible(shorten(str(value), 1000))), soft_wrap=True)
    for line in entry.backtrace:
        out.print(Text(f"  {visible(line)}", "dim"), soft_wrap=True)


@click.command()
@server_options
@click.argument("name")
@click.argument("arguments", metavar="[JSON-ARGS]", default="[]")
@click.option("-q", "--queue", metavar="NAME", help="Another queue than its own (or default).")
@click.option("--delay", type=click.FloatRange(0), metavar="SECONDS", help="Start it so much later.")
@as_json
@click.pass_context
def enqueue(
    context: click.Context, name: str, arguments: str, queue: str | None, delay: float | None, as_json: bool
) -> None:
    """Push the job NAME with the arguments JSON-ARGS, a JSON list: henchman enqueue mail.send '[42, "de"]'."""
    args = _arguments(arguments)
    session = Session(context)
    app = session.any_app()
    known = app.registry.find(name)
    if known is not None:
        known.signature.decode(args, {})  # says what does not fit, here and not in the worker
    elif session.app is not None:
        names = [one.name for one in app.registry]
        same = [one for one in names if one.endswith(f".{name}")]
        near = f"; did you mean {same[0]!r}?" if same else did_you_mean(name, names)
        click.echo(visible(f"Note: {name} is not one of this app's jobs, and pushed all the same{near}"), err=True)
    options = {key: value for key, value in (("queue", queue), ("delay", delay)) if value is not None}
    handle = app.enqueue(name, *args, **options)
    if as_json:
        emit({"jid": handle.jid, "queue": handle.queue, "admission": handle.admission})
    else:
        say(handle.jid if handle.admission == "created" else f"{handle.jid} ({handle.admission})")


def _arguments(text: str) -> list[Any]:
    try:
        args = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"this is not JSON ({error}); give a list, such as '[42, \"de\"]'") from None
    if not isinstance(args, list):
        raise click.BadParameter(f"give a JSON list, such as '[{visible(text)[:40]}]'")
    return args


@click.command()
@server_options
@click.argument("jid", callback=_job_id)
@click.pass_context
def cancel(context: click.Context, jid: str) -> None:
    """Cancel the job JID: if it waits it never starts; if it runs it is told."""
    session = Session(context)
    session.runner.run(jobs.cancel(session.keys, jid))
    status = find_job(session.runner, session.keys, jid, mask=session.mask)
    if status.state == "dead":
        say(f"{jid} is {status.text}; henchman dead delete {jid}")
    elif status.entry is None:
        say(f"{jid} is cancelled, but nothing holds it now: it has finished, was deleted, or never existed")
    else:
        say(f"{jid}: {status.text}")
