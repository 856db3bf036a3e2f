"""``henchman history``: find jobs in the record, see how far it is, remove what is old."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import click
from rich.text import Text

from henchman.cli.db import desk_of
from henchman.cli.session import NothingRuns, Session, as_json, server_options
from henchman.cli.table import Row, Table, cell
from henchman.cli.text import ago, console, count, duration, emit, say
from henchman.errors import ArgumentError, ServerError
from henchman.history.records import MOST, Event, EventPage, parse_search
from henchman.kernel.clock import ServerClock
from henchman.store import history as store
from henchman.store.leases import ask_time

__all__ = ["COLOURS", "history", "show_page"]

COLOURS = {"finished": "green", "failed": "yellow", "error": "red", "working": "cyan"}


@click.group()
def history() -> None:
    """The record in SQL: find jobs, see how far behind it is, remove what is old."""


@history.command()
@server_options
@click.argument("words", nargs=-1)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, MOST), help="At most so many.")
@click.option("--after", type=int, metavar="SEQ", help="Go on behind a page: the number that it ended with.")
@as_json
@click.pass_context
def find(context: click.Context, words: tuple[str, ...], limit: int, after: int | None, as_json: bool) -> None:
    """Find jobs, the latest first: class:NAME status:STATUS batch:ID queue:NAME since:2h until:2026-11-21 WORDS.

    Whatever has no such field before it is looked for in messages, errors and arguments.
    """
    try:
        search = parse_search(words)
    except ArgumentError as error:
        raise click.UsageError(str(error)) from error
    with desk_of(Session(context).config) as desk:
        page = desk.reading.find(search, after=after, limit=limit)
    show_page(page, as_json=as_json)


@history.command()
@server_options
@click.option("--rows", is_flag=True, help="Count the rows of each table, too; on a large database this takes a while.")
@as_json
@click.pass_context
def status(context: click.Context, rows: bool, as_json: bool) -> None:
    """Show how far behind the record is, what waits, what was dropped, and who records."""
    session = Session(context)
    document: dict[str, Any] = {"database": None, "off": session.config.why_history_is_off() or None}
    document |= _waiting(session)
    if not document["off"]:
        with desk_of(session.config) as desk:
            document["database"] = desk.shown
            document["rows"] = desk.reading.sizes() if rows else None
    if as_json:
        emit(document)
        return
    say(document["off"] or f"recorded in {document['database']}")
    if document["server"] is not None:
        say(f"server: {document['server']}")
        return
    who = document["recorder"] or "nobody (a worker with history on does)"
    say(f"waiting: {count(document['entries'], 'entry', 'entries')}, {document['bytes'] / 1024 / 1024:,.1f} MB")
    say(f"lag: {duration(document['lag'])} · recorder: {who} · dropped: {document['dropped']:,}")
    for name, many in (document.get("rows") or {}).items():
        say(f"{name}: {many:,}")


def _waiting(session: Session) -> dict[str, Any]:
    try:
        found = session.runner.run(store.backlog(session.keys))
    except (NothingRuns, ServerError) as error:
        text = error.message if isinstance(error, NothingRuns) else str(error)
        return {"server": text} | dict.fromkeys(("entries", "bytes", "lag", "dropped", "recorder"))
    return {"server": None} | found._asdict() | {"recorder": found.recorder or None}


@history.command()
@server_options
@as_json
@click.pass_context
def prune(context: click.Context, as_json: bool) -> None:
    """Remove what is older than history_keep and history_keep_status say; the recorder does it once a day."""
    session = Session(context)
    with desk_of(session.config) as desk:
        done = desk.prune(session.runner.run(ask_time(ServerClock())))
    if as_json:
        emit({"jobs": done.removed, "batches": done.batches})
    else:
        say(f"{count(done.removed, 'job')} and {count(done.batches, 'batch', 'batches')} removed")


@history.command()
@server_options
@click.pass_context
def off(context: click.Context) -> None:
    """Write nothing into the stream any more, until a worker with history on starts again. What waits stays."""
    session = Session(context)
    session.runner.run(store.turn_off(session.keys))
    say('Nothing is written down any more. For good: history = "off" in the settings of every worker.')


def show_page(page: EventPage, *, as_json: bool) -> None:
    """One page of events, and how to go on behind it."""
    if as_json:
        emit(page.to_json())
        return
    if not page.events:
        say("Nothing that fits is recorded.")
        return
    console().print(event_table(page.events))
    if page.after is not None:
        say(f"There are more: --after {page.after}")


def event_table(events: Iterable[Event]) -> Table:
    """Jobs as history knows them, a line each."""
    now = time.time()
    columns = ["jid!", "class", "status!", "tries>", "enqueued", "message"]
    return Table(columns, [_row(one, now) for one in events], wide="message")


def _row(one: Event, now: float) -> Row:
    message = " ".join(part for part in (one.error_class, one.message) if part)
    cells: list[Text | str] = [
        cell(one.jid),
        cell(one.class_),
        cell(one.status, COLOURS.get(one.status, "")),
        str(one.attempts),
        ago(one.enqueued_at, now),
        cell(message, "dim"),
    ]
    return Row(cells)
