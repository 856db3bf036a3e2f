"""``henchman history`` and ``henchman db``: find jobs in the record, see how far it is, remove what is old; tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from henchman.cli.outbox import outbox_of
from henchman.cli.session import Group, NothingRuns, Session, as_json, command
from henchman.cli.show import Table, ago, answer, cell, count, duration, say, table
from henchman.config.settings import ENDED
from henchman.errors import ArgumentError, HistoryError, ServerError
from henchman.history import load
from henchman.history.records import MOST, DayRecord, Event, EventPage
from henchman.history.search import parse_search
from henchman.inspector.days import EndedDay, ended_on, last_days
from henchman.kernel.clock import ServerClock
from henchman.store import history as store
from henchman.store.call import run
from henchman.store.leases import ask_time
from henchman.wire import times

__all__ = ["COLOURS", "after_option", "db", "history", "history_of", "limit_option", "show_page"]

COLOURS = {"finished": "green", "failed": "yellow", "error": "red", "working": "cyan"}

_FROM_SERVER = "There is no history: this is what the server keeps of what workers ended."

limit_option = click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, MOST), help="At most so many."
)
after_option = click.option(
    "--after", type=int, metavar="SEQ", help="Go on behind a page: the number that it ended with."
)


@contextmanager
def history_of(session: Session) -> Iterator[Any]:
    """``history.admin:Admin`` of these settings; HistoryError says why there is none."""
    off = session.config.why_history_is_off()
    if off:
        raise HistoryError(off)
    admin = load(session.config)
    try:
        yield admin
    finally:
        admin.close()


@click.group(cls=Group)
def history() -> None:
    """The record in SQL: find jobs, see how far behind it is, remove what is old."""


@command(history)
@click.argument("words", nargs=-1)
@limit_option
@after_option
@as_json
def find(session: Session, words: tuple[str, ...], limit: int, after: int | None, as_json: bool) -> None:
    """Find jobs, the latest first: class:NAME status:STATUS cause:timeout batch:ID queue:NAME args.shop:77 took:>30s
    since:2h WORDS.

    Terms as in `henchman find`. Whatever is no term is looked for in messages, errors and arguments.
    """
    try:
        search = parse_search(" ".join(words))
    except ArgumentError as error:
        raise click.UsageError(str(error)) from error
    with history_of(session) as admin:
        page = admin.reading.find(search, after=after, limit=limit)
    show_page(page, as_json=as_json)


@command(history)
@click.argument("day", required=False)
@click.option("--status", "wanted", multiple=True, metavar="STATUS", help="Only jobs that ended so: finished, error…")
@limit_option
@as_json
def day(session: Session, day: str | None, wanted: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Show what ended on DAY (2026-11-21, in UTC by the server's clock), by class, and the latest of it.

    Without DAY: how many jobs ended on each of the last 180 days. `dead` is the same as the status error. It is read
    from the record in SQL; where there is none, from what the server keeps of a day: `source` in JSON says which.
    """
    statuses = ["error" if one == "dead" else one for one in wanted] or None
    from_server = bool(session.config.why_history_is_off())
    try:
        if day is None:
            _show_days(
                _days_on_server(session) if from_server else _days_in_record(session), from_server, as_json=as_json
            )
        elif from_server:
            _show_day_on_server(run(session.runner, ended_on(session.keys, day, statuses, limit)), as_json=as_json)
        else:
            with history_of(session) as admin:
                _show_day_in_record(admin.reading.day(day, status=statuses, limit=limit), as_json=as_json)
    except ArgumentError as error:
        raise click.UsageError(str(error)) from error


def _days_in_record(session: Session) -> dict[str, dict[str, int]]:
    with history_of(session) as admin:
        found: dict[str, dict[str, int]] = admin.reading.days(times.day(session.runner.run(ask_time(ServerClock()))))
    return found


def _days_on_server(session: Session) -> dict[str, dict[str, int]]:
    return run(session.runner, last_days(session.keys))


def _show_days(found: Mapping[str, Mapping[str, int]], from_server: bool, *, as_json: bool) -> None:
    lines = [_counts_table("day", found)] if found else ["Nothing that is known has ended."]
    document = {"days": found, "source": "server" if from_server else "history"}
    answer(document, *([_FROM_SERVER] if from_server else []), *lines, as_json=as_json)


def _show_day_in_record(found: DayRecord, *, as_json: bool) -> None:
    nothing = f"Nothing that is recorded ended on {found.day}."
    lines = [_counts_table("class", found.counts) if found.counts else nothing]
    shown = [_events_table(found.events)] if found.events else []
    answer(found.to_json() | {"source": "history"}, *lines, *shown, as_json=as_json)


def _show_day_on_server(found: EndedDay, *, as_json: bool) -> None:
    nothing = f"Nothing that is known ended on {found.day}."
    lines: list[Any] = [_FROM_SERVER, _counts_table("class", found.counts) if found.counts else nothing]
    columns = {
        "jid!": lambda one: one.jid,
        "class": lambda one: one.name,
        "status!": lambda one: cell(one.status, COLOURS.get(one.status, "")),
        "ended": lambda one: ago(one.at),
        "message": lambda one: cell(" ".join(part for part in (one.error_class, one.message) if part), "dim"),
    }
    lines += [table(found.jobs, columns, wide="message")] if found.jobs else []
    answer(found.to_json(), *lines, as_json=as_json)


def _counts_table(first: str, counts: Mapping[str, Mapping[str, int]]) -> Table:
    """A row for each name, a column for each status that is there."""
    there = [one for one in ENDED if any(one in row for row in counts.values())]
    columns: dict[str, Any] = {first: lambda one: one[0]}
    columns |= {f"{status}>": lambda one, status=status: f"{one[1].get(status, 0):,}" for status in there}
    return table(list(counts.items()), columns, wide=first)


@command(history)
@click.option("--rows", is_flag=True, help="Count the rows of each table, too; on a large database this takes a while.")
@as_json
def status(session: Session, rows: bool, as_json: bool) -> None:
    """Show how far behind the record is, what waits, what was dropped, and who records."""
    document: dict[str, Any] = {"database": None, "off": session.config.why_history_is_off() or None}
    document |= _waiting(session)
    if not document["off"]:
        with history_of(session) as admin:
            document["database"] = admin.shown
            document["rows"] = admin.reading.sizes() if rows else None
    lines = [document["off"] or f"recorded in {document['database']}"]
    if document["server"] is not None:
        lines.append(f"server: {document['server']}")
    else:
        who = document["recorder"] or "nobody (a worker with history on does)"
        lines += [
            f"waiting: {count(document['entries'], 'entry', 'entries')}, {document['bytes'] / 1024 / 1024:,.1f} MB",
            f"lag: {duration(document['lag'])} · recorder: {who} · dropped: {document['dropped']:,}",
            *(f"{name}: {many:,}" for name, many in (document.get("rows") or {}).items()),
        ]
    answer(document, *lines, as_json=as_json)


def _waiting(session: Session) -> dict[str, Any]:
    try:
        found = session.runner.run(store.backlog(session.keys))
    except (NothingRuns, ServerError) as error:
        text = error.message if isinstance(error, NothingRuns) else str(error)
        return {"server": text} | dict.fromkeys(("entries", "bytes", "lag", "dropped", "recorder"))
    return {"server": None} | found._asdict() | {"recorder": found.recorder or None}


@command(history)
@as_json
def prune(session: Session, as_json: bool) -> None:
    """Remove what is older than history_keep and history_keep_status say; the recorder does it once a day."""
    with history_of(session) as admin:
        done = admin.prune(session.runner.run(ask_time(ServerClock())))
    words = f"{count(done.removed, 'job')} and {count(done.batches, 'batch', 'batches')} removed"
    answer({"jobs": done.removed, "batches": done.batches}, words, as_json=as_json)


@command(history)
def off(session: Session) -> None:
    """Write nothing into the stream any more, until a worker with history on starts again. What waits stays."""
    session.runner.run(store.turn_off(session.keys))
    say('Nothing is written down any more. For good: history = "off" in the settings of every worker.')


def show_page(page: EventPage, *, as_json: bool) -> None:
    """One page of events, and how to go on behind it."""
    shown = _events_table(page.events) if page.events else "Nothing that fits is recorded."
    more = [f"There are more: --after {page.after}"] if page.events and page.after is not None else []
    answer(page.to_json(), shown, *more, as_json=as_json)


def _events_table(events: Sequence[Event]) -> Table:
    columns = {
        "jid!": lambda one: one.jid,
        "class": lambda one: one.class_,
        "status!": lambda one: cell(one.status, COLOURS.get(one.status, "")),
        "tries>": lambda one: str(one.attempts),
        "enqueued": lambda one: ago(one.enqueued_at),
        "message": lambda one: cell(" ".join(part for part in (one.error_class, one.message) if part), "dim"),
    }
    return table(events, columns, wide="message")


# ---- its tables


of_outbox = click.option(
    "--outbox",
    is_flag=False,
    flag_value="",
    metavar="[URL]",
    help="Of the outbox, in this database or the one that is configured, in place of history.",
)


@click.group(cls=Group)
def db() -> None:
    """The database of history, or of the outbox: make its tables, bring them up to this release."""


@contextmanager
def _database(session: Session, outbox: str | None) -> Iterator[Any]:
    """The ``sql.database.SqlDatabase`` that a command is about."""
    if outbox is not None:
        with outbox_of(session, outbox) as database:
            yield database
    else:
        with history_of(session) as admin:
            yield admin.database


@command(db)
@of_outbox
def upgrade(session: Session, outbox: str | None) -> None:
    """Make the tables, or bring them to the schema of this release; nothing happens when they are there."""
    with _database(session, outbox) as database:
        before = database.version()
        after = database.upgrade()
    was = f"from schema {before.found} to {after.found}" if before.found else f"made, schema {after.found}"
    say(f"{database.shown}: {'up to date, schema ' + after.found if before.fits else was}")


@command(db)
@of_outbox
@as_json
def current(session: Session, outbox: str | None, as_json: bool) -> None:
    """Show which schema the database has. Exit status 0: it fits this release; 1: it does not."""
    with _database(session, outbox) as database:
        version = database.version()
    found = f"schema {version.found}" if version.found else "no tables of Henchman"
    words = f"{database.shown}: {found}" + ("" if version.fits else f", this release needs {version.needed}")
    document = {"database": database.shown, "found": version.found or None, "needed": version.needed}
    answer(document, words, as_json=as_json)
    if not version.fits:
        sys.exit(1)
