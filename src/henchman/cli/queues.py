"""``henchman queues`` and ``henchman retries|scheduled|dead``: what waits and what died; pause, retry, kill, delete."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import click
from rich.console import RenderableType

from henchman.cli.ordered import ordered_table, tell
from henchman.cli.session import (
    JID,
    PREFIX,
    SEVERAL,
    Session,
    as_json,
    caller,
    command,
    confirmed,
    for_so_long,
    group,
    how_long,
    the_one,
    why,
    yes,
)
from henchman.cli.show import Table, ago, answer, cell, complain, count, duration, figure, listed, say, table
from henchman.errors import HenchmanError
from henchman.inspector.base import Entry
from henchman.inspector.ordered import OrderedQueue, all_ordered_stats
from henchman.inspector.ordered_id import OrderedStats
from henchman.inspector.pauses import why_paused
from henchman.inspector.queues import Queue, QueueList, Queues, QueueState, list_queues
from henchman.inspector.sets import JobSet, SetName
from henchman.inspector.tenants import TenantList
from henchman.inspector.verbs import KINDS, Verb
from henchman.kernel.text import did_you_mean, shorten, visible
from henchman.store.call import run
from henchman.store.fair import line_name

__all__ = ["dead", "queue_rows", "queue_table", "queues", "retries", "scheduled"]

SHOWN, JOBS_SHOWN = 100, 50
_TERMS = "terms such as class:shop.*, -queue:low, args.0:42 or since:2h, and text of the payload."


# ---- queues


@group(help=KINDS["queues"].help)
@click.option("-n", "--most", type=click.IntRange(1), help=f"How many.  [default: {SHOWN}, all as JSON]")
@click.option("--first", type=click.IntRange(0), default=0, help="How many to leave out before, by name.")
@click.option("--match", metavar="TEXT", default="", help="Only those whose name holds TEXT.")
@as_json
def queues(session: Session, most: int | None, first: int, match: str, as_json: bool) -> None:
    plain = run(session.runner, list_queues(session.keys, match, first, most or (None if as_json else SHOWN)))
    ordered = [one for one in run(session.runner, all_ordered_stats(session.keys)) if match in one.name]
    defaults = {"": {"timeout": session.config.job_timeout, "deadline": session.config.job_deadline}}
    defaults |= {name: {**table} for name, table in session.config.queue_defaults.items()}
    document = {"queues": queue_rows(plain.states), "ordered": [one.to_json() for one in ordered], "defaults": defaults}
    lines = [] if as_json else [*_lines(plain, ordered, first, match), *_defaults(defaults)]
    answer(document, *lines, as_json=as_json)


def _defaults(defaults: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """What holds for jobs that say nothing themselves, as far as anything does; that of the app last."""
    for name, limits in sorted(defaults.items(), key=lambda one: (not one[0], one[0])):
        said = [
            f"{what} {duration(limit) if limit else 'none'}"
            for what, limit in limits.items()
            if what != "objective" and (limit or name)
        ]
        if said:
            where = f"in queue {visible(name)}" if name else "elsewhere"
            yield f"Jobs {where} that do not say themselves: {', '.join(said)}"


def _lines(plain: QueueList, ordered: list[OrderedStats], first: int, match: str) -> list[RenderableType]:
    states, found, _ = plain
    lines: list[RenderableType] = [queue_table(states)] if states else []
    shown = first + len(states)
    if found > shown:
        also = f" --match {shlex.quote(match)}" if match else ""
        lines.append(f"… and {found - shown:,} more: henchman queues --first {shown}{also}")
    if ordered:
        lines += [*([""] if states else []), ordered_table(ordered)]
    if found and not states:
        lines.append(f"No more: {count(found, 'queue')} in all.")
    elif not lines:
        lines.append(f"No queue has {visible(match)!r} in its name." if match else KINDS["queues"].empty)
    return lines


@command(queues, help=KINDS["queues"].verbs["pause"].help)
@click.argument("name")
@why
@how_long
def pause(session: Session, name: str, reason: str, lasts: float | None) -> None:
    queue, plain = _known(session, name)
    queue.pause(reason, by=caller(), lasts=lasts)
    names = plain.names()
    known = name in names or isinstance(queue, OrderedQueue)
    unknown = "" if known else f" (nothing was pushed to it yet{did_you_mean(name, names)})"
    say(f"{name} is paused{for_so_long(lasts)}{unknown}; what runs goes on. Undo: henchman queues unpause {name}")


@command(queues, help=KINDS["queues"].verbs["unpause"].help)
@click.argument("name")
def unpause(session: Session, name: str) -> None:
    queue, plain = _known(session, name)
    if not queue.paused():
        say(f"{name} was not paused{did_you_mean(name, plain.paused())}")
        return
    queue.unpause()
    say(f"{name} goes on")


@command(queues, help=KINDS["queues"].verbs["clear"].help)
@click.argument("name")
@yes
def clear(session: Session, name: str, yes: bool) -> None:
    queue, plain = _known(session, name)
    if isinstance(queue, OrderedQueue):
        raise HenchmanError(f"{name!r} is an ordered queue; what can be done about it: henchman ordered --help")
    state = next((one for one in plain.states(match=name) if one.name == name), None)
    if state is None and (size := queue.size()):  # a line of a fair queue
        state = QueueState(name, size, None, False)
    if state is None:
        raise HenchmanError(f"there is no queue {name!r}{did_you_mean(name, plain.known())}")
    confirmed(f"Delete {visible(name)} and {count(state.size or 0, 'job')} in it, for good?", yes=yes)
    deleted = queue.clear()
    say(f"{name} is gone, with {count(deleted, 'job')}")


@command(queues, help="Who waits in the fair queue NAME, by turns: size, share, weight, how long the next has waited.")
@click.argument("name")
@click.option("-n", "--most", type=click.IntRange(1, 10_000), default=SHOWN, show_default=True, help="How many.")
@as_json
def tenants(session: Session, name: str, most: int, as_json: bool) -> None:
    queue = session.any_app.queues.queue(name)
    if not queue.fair():
        raise HenchmanError(f"queue {name!r} is not fair: no job of it says fair_by= or priority=")
    found = queue.tenants(most)
    rows = [one.to_json() for one in found.lines]
    document = {"queue": name, "lines": rows, "total": found.total, "arriving": found.arriving}
    rest = f"{count(found.arriving, 'job')} next, or about to be taken into lines"
    more = [f"{listed(len(found.lines), found.total, 'lines')}; more with --most"] * (len(found.lines) < found.total)
    whole = max(sum(one.size for one in found.lines), 1)
    answer(document, *([_tenant_table(name, found, whole)] if found.lines else []), *more, rest, as_json=as_json)


def _tenant_table(name: str, found: TenantList, whole: int) -> Table:
    columns = {
        "tenant": lambda one: one.tenant or "–",
        "priority": lambda one: one.level,
        "size>": lambda one: figure(one.size),
        "share>": lambda one: f"{100 * one.size / whole:.0f} %",
        "weight>": lambda one: str(one.weight),
        "waited>": lambda one: duration(one.latency),
        "state": lambda one: cell("paused" if one.paused else "", "yellow"),
        "as a queue": lambda one: line_name(name, one.level, one.tenant),
    }
    return table(found.lines, columns, wide="tenant")


@command(queues, help="Give TENANT of the fair queue NAME so many turns where others have one; 1 is what all have.")
@click.argument("name")
@click.argument("tenant")
@click.argument("turns", type=click.IntRange(1, 100))
def weigh(session: Session, name: str, tenant: str, turns: int) -> None:
    session.any_app.queues.queue(name).set_weight(tenant, turns)
    say(f"{visible(tenant)} has {count(turns, 'turn')} in {name} where others have one")


def _known(session: Session, name: str) -> tuple[Queue | OrderedQueue, Queues]:
    """The queue, of whichever kind, and all plain ones."""
    plain = session.any_app.queues
    ordered = None if name in plain.known(name) else session.any_app.ordered_queues.get(name)
    return ordered or plain.queue(name), plain


def queue_rows(states: Sequence[QueueState]) -> list[dict[str, Any]]:
    """Queues as JSON: name, size, latency (seconds), paused, pause (since, by, reason), problem."""
    return [{**one.to_json()} for one in states]


def _paused(one: QueueState) -> str:
    """``paused: provider outage (ana, 2 h ago)``, as far as it is known."""
    why = why_paused(one.pause, time.time())
    return shorten(f"paused {why}", 60) if why else "paused"


def _said(one: QueueState) -> str:
    late = [f"over its {duration(one.objective)}"] * one.late
    return ", ".join(["fair"] * one.fair + [_paused(one)] * one.paused + late)


def queue_table(states: Sequence[QueueState]) -> Table:
    """Queues as a table."""
    columns = {
        "queue": lambda one: one.name,
        "size>": lambda one: figure(one.size),
        "latency>": lambda one: duration(one.latency) if one.size else "–",
        "state": lambda one: (
            cell(shorten(one.problem, 24), "red")
            if one.problem
            else cell(_said(one), "yellow" if one.paused or one.late else "")
        ),
    }
    return table(states, columns, wide="queue")


# ---- retries, scheduled, dead


def _set_group(which: SetName) -> click.Group:
    kind = KINDS[which]

    @group(which, kind.help)
    @as_json
    def made(session: Session, as_json: bool) -> None:
        _list(_set(session, which), JOBS_SHOWN, None, as_json=as_json)

    @command(made, "list", kind.help)
    @click.option("-n", "--most", type=click.IntRange(1), default=JOBS_SHOWN, show_default=True, help="How many.")
    @click.option(
        "--match",
        metavar="TEXT",
        help=f"Only those that fit: {_TERMS}",
    )
    @as_json
    def listing(session: Session, most: int, match: str | None, as_json: bool) -> None:
        _list(_set(session, which), most, match, as_json=as_json)

    for name, verb in kind.verbs.items():
        if verb.some is not None:
            _set_verb(made, which, name, verb, verb.some)

    @command(made, "clear", f"Remove all {kind.many} for good.")
    @yes
    def clear(session: Session, yes: bool) -> None:
        _every(_set(session, which), kind.verbs["delete"], yes=yes)

    return made


def _set(session: Session, which: SetName) -> JobSet:
    return JobSet(session.any_app, which)


def _set_verb(parent: click.Group, which: SetName, name: str, verb: Verb, some: Callable[..., Any]) -> None:
    @command(parent, name, f"{verb.help} Name them by id, or say --all or --match.")
    @click.argument("jid", nargs=-1)
    @click.option("--all", "everything", is_flag=True, help=verb.all)
    @click.option("--match", metavar="TEXT", help=f"Those that fit: {_TERMS}")
    @click.option("-y", "--yes", is_flag=True, help="Do not ask before many are deleted.")
    def act(session: Session, jid: tuple[str, ...], everything: bool, match: str | None, yes: bool) -> None:
        if (bool(jid), everything, match is not None).count(True) != 1:
            raise click.UsageError("Say which: one or several job ids, --all, or --match TEXT.")
        held = _set(session, which)
        if everything:
            _every(held, verb, yes=yes)
        elif match is None:
            _named(held, verb, some, jid)
        else:
            if verb.lost:
                confirmed(f"Delete the {KINDS[which].many} that fit {visible(match)!r}, for good?", yes=yes)
            tell(KINDS[which], verb.done, some(held, held.matching(match)))


def _every(held: JobSet, verb: Verb, *, yes: bool) -> None:
    kind = KINDS[held.which]
    if verb.lost:
        size = verb.lost(held)
        if not size:
            say(f"No {kind.many}: nothing to delete.")
            return
        confirmed(f"Delete {count(size, kind.one, kind.many)}, for good?", yes=yes)
    tell(kind, verb.done, verb.every(held))


def _named(held: JobSet, verb: Verb, some: Callable[..., Any], jids: tuple[str, ...]) -> None:
    kind, found = KINDS[held.which], {jid: _entry(held, jid) for jid in jids}
    missing = [jid for jid, entry in found.items() if entry is None]
    acted = some(held, [entry for entry in found.values() if entry is not None])
    if acted.done or not missing:
        tell(kind, verb.done, acted, leave=not missing)
    for jid in missing:
        complain(f"Error: no {kind.one} has the id {jid}; see: henchman job {jid}")
    if missing:
        sys.exit(1)


def _entry(held: JobSet, jid: str) -> Entry | None:
    """The job of this id, or the one whose id begins so."""
    exact = held.find(jid)
    if exact is not None or not PREFIX <= len(jid) < JID:
        return exact
    near = {one.jid: one for one in islice(held.matching(f'"jid":"{jid}'), SEVERAL)}
    return near.get(the_one(jid, near) or "")


def _list(held: JobSet, most: int, match: str | None, *, as_json: bool) -> None:
    kind, total = KINDS[held.which], held.size()
    found = islice(held if match is None else held.matching(match), most)
    if as_json:
        jobs = [one.to_json() for one in found]
        return answer({"set": held.which, "total": total, "jobs": jobs}, as_json=True)
    shown = _jobs(held, found)
    lines: list[RenderableType] = [shown]
    if not len(shown):
        lines = [f"No {kind.many}. {kind.empty}"]
        if total and match:
            lines = [f"No {kind.many} fit that; there are {total:,}."]
    elif match is not None:
        lines.append(f"{len(shown):,} shown; there are {total:,} {kind.many}")
    elif len(shown) < total:
        lines.append(f"{listed(len(shown), total, kind.many)}; more with --most")
    answer(None, *lines, as_json=False)
    return None


def _jobs(held: JobSet, found: Iterable[Entry]) -> Table:
    """A line for each; none is kept when its line is made."""
    columns = {
        "job id!": lambda one: one.jid or "–",
        KINDS[held.which].time: lambda one: ago(one.score),
        "runs>": lambda one: str(one.attempts),
        "queue": lambda one: one.queue or "–",
        "job": lambda one: one.call_text(),
    }
    if held.which == "scheduled":
        del columns["runs>"]
    return table(found, columns, "job", lambda one: ": ".join(one.error) if one.error else one.problem)


retries, scheduled, dead = _set_group("retries"), _set_group("scheduled"), _set_group("dead")
