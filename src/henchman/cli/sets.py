"""``henchman retries|scheduled|dead list|retry|delete|kill|clear``: one group for each of the three sets."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import click

from henchman.cli.session import Session, as_json, confirmed, server_options
from henchman.cli.table import Row, Table, cell
from henchman.cli.text import ago, console, count, emit, listed, say
from henchman.inspector.entry import Entry
from henchman.inspector.sets import Acted, JobSet, SetName
from henchman.kernel.text import visible

__all__ = ["dead", "retries", "scheduled"]

_SHOWN = 50
_REASONS = 10
#: the set → one of it, several, the title of its times, what an empty one means
WORDS: dict[SetName, tuple[str, str, str, str]] = {
    "retries": ("retry", "retries", "next", "A job that fails comes here until its next attempt."),
    "scheduled": ("scheduled job", "scheduled jobs", "due", "A job with delay= or at= waits here until it is due."),
    "dead": ("dead job", "dead jobs", "died", "A job that has used up its retries is kept here."),
}
HELPS: dict[SetName, tuple[str, str]] = {
    "retries": ("Jobs that failed and are tried again.", "Try jobs again now."),
    "scheduled": ("Jobs that are to start later.", "Start jobs now."),
    "dead": ("Jobs that have used up their retries.", "Give jobs another try, now."),
}
#: the verb → what it says afterwards
DONE = {"retry": "put into the queue", "delete": "deleted", "kill": "moved to the dead set"}


def _set(context: click.Context, which: SetName) -> JobSet:
    session = Session(context)
    return JobSet(session.runner, session.keys, session.config, which, session.mask)


def _group(which: SetName) -> click.Group:
    list_help, retry_help = HELPS[which]

    @click.group(which, invoke_without_command=True, help=list_help)
    @server_options
    @as_json
    @click.pass_context
    def group(context: click.Context, as_json: bool) -> None:
        if context.invoked_subcommand is None:
            _list(_set(context, which), _SHOWN, None, as_json=as_json)

    @group.command("list", help=list_help)
    @server_options
    @click.option("-n", "--most", type=click.IntRange(1), default=_SHOWN, show_default=True, help="How many.")
    @click.option("--match", metavar="TEXT", help="Only those whose stored text holds TEXT.")
    @as_json
    @click.pass_context
    def listing(context: click.Context, most: int, match: str | None, as_json: bool) -> None:
        _list(_set(context, which), most, match, as_json=as_json)

    _action(group, which, "retry", retry_help)
    _action(group, which, "delete", "Remove jobs for good.")
    if which != "dead":
        _action(group, which, "kill", "Move jobs to the dead set.")

    @group.command("clear", help=f"Remove all {WORDS[which][1]} for good.")
    @server_options
    @click.option("-y", "--yes", is_flag=True, help="Do not ask.")
    @click.pass_context
    def clear(context: click.Context, yes: bool) -> None:
        _remove_all(_set(context, which), yes=yes)

    return group


def _action(group: click.Group, which: SetName, verb: str, help: str) -> None:
    @group.command(verb, help=f"{help} Name them by id, or say --all or --match.")
    @server_options
    @click.argument("jid", nargs=-1)
    @click.option("--all", "everything", is_flag=True, help="All of them.")
    @click.option("--match", metavar="TEXT", help="Those whose stored text holds TEXT.")
    @click.option("-y", "--yes", is_flag=True, help="Do not ask before many are deleted.")
    @click.pass_context
    def act(context: click.Context, jid: tuple[str, ...], everything: bool, match: str | None, yes: bool) -> None:
        if (bool(jid), everything, match is not None).count(True) != 1:
            raise click.UsageError("Say which: one or several job ids, --all, or --match TEXT.")
        held = _set(context, which)
        if everything and verb == "delete":
            _remove_all(held, yes=yes)
        elif everything:
            _tell(held, verb, held.retry_all() if verb == "retry" else held.kill_all())
        elif match is not None:
            if verb == "delete":
                confirmed(f"Delete the {WORDS[which][1]} that hold {visible(match)!r}, for good?", yes=yes)
            _tell(held, verb, _act(held, verb)(held.matching(match)))
        else:
            _by_id(held, verb, jid)


def _act(held: JobSet, verb: str) -> Callable[[Iterable[Entry]], Acted]:
    return {"retry": held.retry, "delete": held.delete, "kill": held.kill}[verb]


def _by_id(held: JobSet, verb: str, jids: tuple[str, ...]) -> None:
    found = {jid: held.find(jid) for jid in jids}
    entries = iter([entry for entry in found.values() if entry is not None])
    acted = _act(held, verb)(entries)
    missing = [jid for jid, entry in found.items() if entry is None]
    if acted.done or not missing:
        _tell(held, verb, acted, leave=not missing)
    for jid in missing:
        click.echo(
            f"Error: no {WORDS[held.which][0]} has the id {visible(jid)}; see: henchman job {visible(jid)}", err=True
        )
    if missing:
        sys.exit(1)


def _remove_all(held: JobSet, *, yes: bool) -> None:
    one, many = WORDS[held.which][:2]
    size = held.size()
    if not size:
        say(f"No {many}: nothing to delete.")
        return
    confirmed(f"Delete {count(size, one, many)}, for good?", yes=yes)
    _tell(held, "delete", held.clear())


def _tell(held: JobSet, verb: str, acted: Acted, *, leave: bool = True) -> None:
    one, many = WORDS[held.which][:2]
    say(f"{count(acted.done, one, many)} {DONE[verb]}" + (f", {acted.gone:,} were gone already" if acted.gone else ""))
    if acted.uncancelled:
        say(f"{acted.uncancelled:,} of them had been cancelled; that is taken back")
    if acted.cancelled:
        say(f"{acted.cancelled:,} of them are cancelled and end without running (kill one and retry it: then it runs)")
    if not acted.stayed:
        return
    click.echo(f"Error: {count(acted.stayed, one, many)} stayed where they were:", err=True)
    for reason in acted.reasons[:_REASONS]:
        click.echo(f"  {visible(reason)}", err=True)
    if leave:
        sys.exit(1)


def _list(held: JobSet, most: int, match: str | None, *, as_json: bool) -> None:
    total = held.size()
    found = list(islice(held if match is None else held.matching(match), most))
    if as_json:
        emit({"set": held.which, "total": total, "jobs": [one.to_json() for one in found]})
        return
    _, many, _, meaning = WORDS[held.which]
    if not found:
        say(f"No {many} hold that text; there are {total:,}." if total and match else f"No {many}. {meaning}")
        return
    console().print(_table(held, found, time.time()))
    if match is not None:
        say(f"{len(found):,} shown; there are {total:,} {many}")
    elif len(found) < total:
        say(f"{listed(len(found), total, many)}; more with --most")


def _table(held: JobSet, found: list[Entry], now: float) -> Table:
    runs = held.which != "scheduled"
    columns = ["job id!", WORDS[held.which][2], *(["runs>"] if runs else []), "queue", "job"]
    rows = []
    for one in found:
        error = f"{one.error[0]}: {one.error[1]}" if one.error else one.problem
        cells = [one.jid or "–", ago(one.score, now), *([str(one.attempts)] if runs else []), one.queue or "–"]
        rows.append(Row([*cells, one.call_text()], cell(error, "red") if error else None))
    return Table(columns, rows, wide="job")


def _make() -> Iterator[Any]:
    for which in ("retries", "scheduled", "dead"):
        yield _group(which)


retries, scheduled, dead = _make()
