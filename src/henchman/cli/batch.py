"""``henchman batch`` and ``henchman batches``: how batches stand, what failed in them and why; close, cancel, retry."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click
import msgspec
from rich.live import Live
from rich.text import Text

from henchman.batch.batch import BatchStatus, status_of
from henchman.cli.batch_view import batch_line, batch_table, batch_view
from henchman.cli.db import desk_of
from henchman.cli.group import ShowGroup
from henchman.cli.history import show_page
from henchman.cli.session import Session, as_json, confirmed, server_options
from henchman.cli.text import console, count, emit, say
from henchman.errors import HistoryError, ServerAway, UnknownBatch
from henchman.history import as_csv
from henchman.history.records import FAILURES, STATUSES, batch_status
from henchman.kernel.text import visible
from henchman.store import batches as store

__all__ = ["batch", "batches"]

NOT_ALL, NOT_YET = 4, 5
_SLICE = 500  # batches that are looked at in one round trip
_SHEET = 500  # rows that are written at once


def _batch_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    text = value.strip()
    if not 0 < len(text) <= 100 or not text.isprintable() or not text.isascii():
        raise click.BadParameter("a batch id has 32 characters of 0-9 and a-f")
    return text


_id = click.argument("id", callback=_batch_id)


@click.group("batch", cls=ShowGroup)
@server_options
def batch() -> None:
    """Batches: how one stands, live; what failed in it and why; close, cancel, retry.

    \b
    henchman batch ID                    how it stands; --watch: until it is complete
    henchman batch events ID             its jobs, as history has them; --status failed
    henchman batch failures ID           its failures as CSV, on standard output
    henchman batch retry ID              the jobs that gave up, once more
    henchman batch close|cancel ID       no more jobs; no job starts any more
    """


@batch.command("show")
@server_options
@_id
@click.option("--watch", is_flag=True, help="Again and again until it is complete (or Ctrl-C).")
@click.option("--every", type=click.FloatRange(0.2, 3600), default=1.0, show_default=True, metavar="SECONDS")
@as_json
@click.pass_context
def show(context: click.Context, id: str, watch: bool, every: float, as_json: bool) -> None:
    """How the batch ID stands: progress, counts, the reasons of failures.

    Exit status 0: complete, and every job finished, also of the batches that are part of it; 4: complete, but not all
    did; 5: not complete yet; 1: there is no such batch, or an error; 3: there is no server.
    """
    session = Session(context)
    if watch:
        found = _watch(session, id, every, as_json=as_json)
    else:
        found = _look(session, id)
        if as_json:
            emit(_document(found))
        else:
            console().print(batch_view(found))
    sys.exit(_verdict(found))


@batch.command()
@server_options
@_id
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only with this status; repeatable.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@click.option("--after", type=int, metavar="SEQ", help="Go on behind a page: the number that it ended with.")
@as_json
@click.pass_context
def events(
    context: click.Context, id: str, status: tuple[str, ...], limit: int, after: int | None, as_json: bool
) -> None:
    """The jobs of the batch ID as history has them, in the order in which they were enqueued."""
    with desk_of(Session(context).config) as desk:
        page = desk.reading.events(id, status or None, after=after, limit=limit)
    show_page(page, as_json=as_json)


@batch.command()
@server_options
@_id
@click.pass_context
def failures(context: click.Context, id: str) -> None:
    """The failures of the batch ID as CSV for a spreadsheet: henchman batch failures ID > failures.csv."""
    with desk_of(Session(context).config) as desk:
        if desk.reading.batch(id) is None:
            raise UnknownBatch(f"nothing is recorded of a batch {id!r}")
        _write(as_csv.head())
        after: int | None = 0
        while after is not None:
            page = desk.reading.events(id, FAILURES, after=after, limit=_SHEET)
            _write(as_csv.lines(page.events))
            after = page.after


@batch.command()
@server_options
@_id
@click.pass_context
def close(context: click.Context, id: str) -> None:
    """Let the batch ID take no more jobs: it is complete when all that it has are settled."""
    session = Session(context)
    session.any_app().get_batch(id).close()
    say(batch_line(_counted(session, id)))


@batch.command()
@server_options
@_id
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def cancel(context: click.Context, id: str, yes: bool) -> None:
    """Let no job of the batch ID start any more; those that run are told."""
    session = Session(context)
    now = _counted(session, id)
    if now.state == "complete":
        say(f"{id} is complete: there is nothing left to cancel")
        return
    confirmed(f"Cancel {count(now.total - now.done, 'job')} of {visible(now.description) or id}?", yes=yes)
    session.any_app().get_batch(id).cancel()
    say(batch_line(_counted(session, id)))


@batch.command()
@server_options
@_id
@click.pass_context
def retry(context: click.Context, id: str) -> None:
    """Push the jobs of the batch ID that gave up with an error once more; business failures are answers, and stay."""
    session = Session(context)
    many = session.any_app().get_batch(id).retry()
    say(f"{count(many, 'job')} pushed again" if many else "No job of it has given up: nothing to push again")


@click.command()
@server_options
@click.option("--all", "everything", is_flag=True, help="Complete ones too, as long as the server keeps them.")
@click.option("-n", "--most", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
@as_json
@click.pass_context
def batches(context: click.Context, everything: bool, most: int, as_json: bool) -> None:
    """Batches that are not complete yet, the newest first."""
    session = Session(context)
    found: list[BatchStatus] = []
    more = False
    for one in _ids(session, everything=everything):
        if len(found) == most:
            more = True
            break
        with suppress(UnknownBatch):  # forgotten since
            found.append(_counted(session, one))
    if as_json:
        emit({"batches": [_document(one) for one in found], "more": more})
    elif found:
        console().print(batch_table(found))
        if more:
            say("There are more: --most")
    else:
        say("No batches." if everything else "No batch is under way; complete ones: --all")


def _ids(session: Session, *, everything: bool) -> Iterator[str]:
    first = 0
    while ids := session.runner.run(store.newest(session.keys, first, _SLICE)):
        states = session.runner.run(store.states(session.keys, ids))
        yield from (one for one, state in zip(ids, states, strict=True) if everything or state in ("open", "closed"))
        first += _SLICE


def _counted(session: Session, id: str) -> BatchStatus:
    return status_of(id, session.runner.run(store.facts(session.keys, id)))


def _look(session: Session, id: str) -> BatchStatus:
    """As the server counts it; as it is recorded, when the server has forgotten it."""
    try:
        return _counted(session, id)
    except UnknownBatch:
        if session.config.why_history_is_off():
            raise
        with suppress(HistoryError), desk_of(session.config) as desk:
            found = desk.reading.batch(id)
            if found is not None:
                return msgspec.convert(batch_status(found) | {"created": found.created or 0.0}, BatchStatus)
        raise


def _verdict(found: BatchStatus) -> int:
    if found.state != "complete":
        return NOT_YET
    return 0 if found.well else NOT_ALL


def _document(found: BatchStatus) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain


def _watch(session: Session, id: str, every: float, *, as_json: bool) -> BatchStatus:
    """Look until it is complete: on a terminal one picture that changes, elsewhere a line (or a document) a look."""
    found = _look(session, id)
    out = console()
    drawn = out.is_terminal and not as_json
    with Live(console=out, auto_refresh=False) as live, suppress(KeyboardInterrupt):
        while True:
            if drawn:
                live.update(batch_view(found), refresh=True)
            elif as_json:
                click.echo(json.dumps(_document(found)))
            else:
                say(batch_line(found))
            sys.stdout.flush()
            if found.state == "complete":
                break
            found = _next(session, id, every, live if drawn else None)
    return found


def _next(session: Session, id: str, every: float, live: Live | None) -> BatchStatus:
    """How it stands after a while, and after the server is back."""
    while True:
        time.sleep(every)
        try:
            return _look(session, id)
        except ServerAway as error:
            text = visible(str(error))
            if live is None:
                click.echo(text, err=True)
            else:
                live.update(Text(f"The server is away, looking again: {text}", "red"), refresh=True)


def _write(part: bytes) -> None:
    """Into a file or a pipe as it is; onto a terminal so that it does nothing there."""
    if _at_terminal():
        for line in part.removeprefix(as_csv.MARK).decode().splitlines():
            say(line)
    else:
        sys.stdout.buffer.write(part)


def _at_terminal() -> bool:
    return sys.stdout.isatty()
