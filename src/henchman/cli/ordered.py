"""``henchman ordered``: ordered queues, their ids, one id in full; and what can be done about them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from henchman.cli.session import (
    Session,
    ShowGroup,
    as_json,
    caller,
    command,
    confirmed,
    for_so_long,
    how_long,
    server_options,
    why,
)
from henchman.cli.show import (
    Table,
    ago,
    answer,
    cell,
    complain,
    count,
    duration,
    facts,
    figure,
    listed,
    moment,
    say,
    table,
)
from henchman.errors import HenchmanError
from henchman.inspector.ordered import OrderedQueue, PileName
from henchman.inspector.ordered_id import OrderedId, OrderedPayload, OrderedStats
from henchman.inspector.sets import Acted
from henchman.inspector.verbs import KINDS, JobKind, Verb
from henchman.kernel.text import did_you_mean, shorten, visible
from henchman.store.call import Items

__all__ = ["ordered", "ordered_table", "tell"]

_SHOWN = 50
_REASONS = 10
_SHOWN_TEXT = 2000  # characters of one payload
_KIND = KINDS["ordered"]
_ORIGIN = {"set": "set by hand", "code": "as the code says"}
#: what a list shows → its flag's help, what its ids are called, how many there are
_LISTS: dict[str, tuple[str, str, Callable[[OrderedStats], int]]] = {
    "dead": ("The ids in the morgue, the last dead first.", "ids in the morgue", lambda stats: stats.morgue_length),
    "failed": ("The ids that failed and wait for their next attempt.", "ids that failed", lambda stats: stats.retries),
    "busy": ("The ids in flight, and who holds them.", "ids in flight", lambda stats: stats.busy),
    "waiting": ("", "ids", lambda stats: stats.length),
}


@click.group("ordered", cls=ShowGroup)
@server_options
def ordered() -> None:
    """Ordered queues: figures, ids, morgues; revive, kill, delete, run, move.

    \b
    henchman ordered                     every ordered queue
    henchman ordered NAME                its figures and its first ids
    henchman ordered NAME ID             everything about one id
    henchman ordered NAME --dead         the morgue; also --failed, --busy
    henchman ordered revive NAME ID…     an action; for all of them --all
    henchman ordered drop NAME ID SCORE  one payload of an id
    """


@command(ordered)
@click.argument("name", required=False)
@click.argument("id", required=False)
@click.option("--dead", "kind", flag_value="dead", help=_LISTS["dead"][0])
@click.option("--failed", "kind", flag_value="failed", help=_LISTS["failed"][0])
@click.option("--busy", "kind", flag_value="busy", help=_LISTS["busy"][0])
@click.option("--by", type=click.Choice(["time", "retry", "id"]), help="In which order; by id: in none, but all ids.")
@click.option("--prefix", default="", metavar="TEXT", help="By id: only those that begin so.")
@click.option("--min", "low", type=float, metavar="NUMBER", help="From this time (Unix seconds) or retry count on.")
@click.option("--max", "high", type=float, metavar="NUMBER", help="Up to this time or retry count.")
@click.option("--reverse", is_flag=True, help="From the other end.")
@click.option("--page", type=click.IntRange(1), default=1, metavar="N", help="Which page.")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=_SHOWN, show_default=True, help="Ids a page.")
@click.option("--lowkiq-stats", is_flag=True, help="The figures as Lowkiq's /api/v1/stats has them, as JSON.")
@as_json
def show(
    session: Session, /, name: str | None, id: str | None, lowkiq_stats: bool, as_json: bool, **which: Any
) -> None:
    """Every ordered queue; with NAME one of them; with ID one id in full. Exit status 1: it is not there."""
    queues = session.any_app.ordered_queues
    if lowkiq_stats:
        answer(queues.lowkiq_stats(), as_json=True)
    elif name is None:
        stats = queues.stats()
        shown = ordered_table(stats) if stats else _KIND.empty
        answer({"ordered": [one.to_json() for one in stats]}, shown, as_json=as_json)
    elif id is None:
        _show_queue(_known(session, name), as_json=as_json, **which)
    else:
        found = _known(session, name).find(id)
        answer(found.to_json(), *_id_lines(found), as_json=as_json)
        if found.state == "absent":
            sys.exit(1)


def _known(session: Session, name: str) -> OrderedQueue:
    queues = session.any_app.ordered_queues
    queue = queues.get(name)
    if queue is None:
        raise HenchmanError(f"there is no ordered queue {name!r}{did_you_mean(name, queues.names())}")
    return queue


def _show_queue(queue: OrderedQueue, *, as_json: bool, kind: str | None, page: int, limit: int, **which: Any) -> None:
    stats, shows = queue.stats(), kind or "waiting"
    found = _page(queue, kind, (page - 1) * limit, limit, **which)
    ids = [one.to_json() for one in found]
    lines: list[RenderableType] = [*_stats_lines(stats)]
    if found:
        lines += ["", _id_table(found, shows)]
    _, what, number_of = _LISTS[shows]
    narrowed = which["low"] is not None or which["high"] is not None or which["prefix"]
    if page > 1 or len(found) < number_of(stats) or narrowed:
        lines.append(f"{listed(len(found), number_of(stats), what)}, page {page}; more with --page {page + 1}")
    document = {"queue": stats.to_json(), "list": shows, "page": page, "limit": limit, "ids": ids}
    answer(document, *lines, as_json=as_json)


def _page(
    queue: OrderedQueue,
    kind: str | None,
    first: int,
    most: int,
    *,
    by: str | None,
    prefix: str,
    low: float | None,
    high: float | None,
    reverse: bool,
) -> list[OrderedId]:
    """A page by its place where a list is kept; else what comes after so many."""

    def cut(found: Items[OrderedId]) -> list[OrderedId]:
        return list(islice(found, first, first + most))

    dead = kind == "dead"
    if kind == "busy":
        return cut(queue.busy())
    if by == "id" or prefix:
        return cut(queue.morgue_by_id(prefix) if dead else queue.by_id(prefix))
    counts = kind == "failed" or by == "retry"
    if low is None and high is None and not (by == "retry" and kind is None):
        return queue.page(first, most, by="morgue" if dead else "retry" if counts else "time", reverse=reverse != dead)
    if dead:
        return cut(queue.morgue(low, high, reverse=not reverse))
    if not counts:
        return cut(queue.by_time(low, high, reverse=reverse))
    least = 0.0 if kind == "failed" else -1.0
    least = least if low is None else max(low, least)
    return cut(queue.by_retry_count(int(least), None if high is None else int(high), reverse=reverse))


# ---- actions


def _action(name: str, verb: Verb) -> None:
    flags = ("--all-failed", "--all") if verb.all.startswith("All that failed") else ("--all",)

    @command(ordered, name, f"{verb.help} Name ids, or say {flags[0]}.")
    @click.argument("name")
    @click.argument("id", nargs=-1)
    @click.option(*flags, "everything", is_flag=True, help=verb.all)
    @click.option("-y", "--yes", is_flag=True, help="Do not ask before many are deleted.")
    def act(session: Session, name: str, id: tuple[str, ...], everything: bool, yes: bool) -> None:
        if bool(id) == everything:
            raise click.UsageError(f"Say which: one or several ids, or {flags[0]}.")
        queue = _known(session, name)
        if verb.some and not everything:
            tell(_KIND, verb.done, verb.some(queue, *id), named=True)
            return
        if verb.lost:
            many = verb.lost(queue)
            if not many:
                say("Nothing to delete.")
                return
            confirmed(f"Delete {count(many, 'id')} of {visible(name)}, for good?", yes=yes)
        tell(_KIND, verb.done, verb.every(queue))


for _name, _verb in _KIND.verbs.items():
    if _verb.some:
        _action(_name, _verb)


def tell(kind: JobKind, done: str, acted: Acted, *, named: bool = False, leave: bool = True) -> None:
    """Say what became of an action; exit status 1 when something stayed, or of what was ``named`` was not there."""
    gone = f", {acted.gone:,} were gone already" if acted.gone and kind is not _KIND else ""
    say(f"{count(acted.done, kind.one, kind.many)} {done}{gone}")
    if acted.uncancelled:
        say(f"{acted.uncancelled:,} of them had been cancelled; that is taken back")
    if acted.cancelled:
        say(f"{acted.cancelled:,} of them are cancelled and end without running (kill one and retry it: then it runs)")
    missing = acted.gone if named else 0
    if missing:
        complain(f"Error: {count(missing, kind.one, kind.many)} had nothing there")
    if acted.stayed:
        where = "" if kind is _KIND else " where they were"
        complain(f"Error: {count(acted.stayed, kind.one, kind.many)} stayed{where}:")
        for reason in acted.reasons[:_REASONS]:
            complain(f"  {reason}")
    if leave and (acted.stayed or missing):
        sys.exit(1)


@command(ordered, help=_KIND.verbs["pause"].help)
@click.argument("name")
@why
@how_long
def pause(session: Session, name: str, reason: str, lasts: float | None) -> None:
    _known(session, name).pause(reason, by=caller(), lasts=lasts)
    say(f"{name} is paused{for_so_long(lasts)}; what runs goes on. Undo: henchman ordered unpause {name}")


@command(ordered, help=_KIND.verbs["unpause"].help)
@click.argument("name")
def unpause(session: Session, name: str) -> None:
    queue = _known(session, name)
    if not queue.paused():
        say(f"{name} was not paused")
        return
    queue.unpause()
    say(f"{name} goes on")


def _limit(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    if value.lower() == "none":
        return None
    if not value.isdecimal() or not value.isascii() or len(value) > 9:
        raise click.BadParameter(f"{visible(value)!r}: a whole number, 0 for no limit, or none for what the code says")
    return int(value)


@command(ordered, "max-parallel")
@click.argument("name")
@click.argument("most", callback=_limit)
def max_parallel(session: Session, name: str, most: int | None) -> None:
    """Let at most MOST claims of NAME run at a time, from the next one on; 0: no limit, none: as the code says."""
    queue = _known(session, name)
    queue.set_max_parallel(most)
    say(f"{name}: {_claims(queue.stats())}" + (", as the code says" if most is None else ""))


@command(ordered)
@click.argument("name")
@click.argument("other")
@click.argument("id", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that wait.")
def move(session: Session, name: str, other: str, id: tuple[str, ...], everything: bool) -> None:
    """Move what waits in NAME to the ordered queue OTHER: with scores, times and what failed. All, or the ids named."""
    if id and everything:
        raise click.UsageError("Say which: ids, or --all.")
    acted = _known(session, name).move_to(other, *id)
    tell(_KIND, f"moved to {other}", acted, named=bool(id))


@command(ordered)
@click.argument("name")
@click.argument("id")
@click.argument("score", type=float)
@click.option("--arrived", "of", flag_value="arrivals", help="Of those that came while the id was in flight.")
@click.option("--dead", "of", flag_value="dead", help="Of those in the morgue.")
@click.option("--text", help="The payload with this text, where several have this score.")
def drop(session: Session, name: str, id: str, score: float, of: PileName | None, text: str | None) -> None:
    """Delete the one payload of ID that has SCORE, for good; the others stay as they are."""
    queue, pile = _known(session, name), of or "payloads"
    some: list[OrderedPayload] = [one for one in getattr(queue.find(id), pile) if one.score == score]
    found = some if text is None else [one for one in some if one.text == text]
    if len({one.text for one in found}) > 1:
        texts = "".join(f"\n  {visible(shorten(one.text, _SHOWN_TEXT))}" for one in found)
        raise click.UsageError(f"{count(len(found), 'payload', does='have')} this score; say which with --text:{texts}")
    if not found:
        raise HenchmanError(f"{id} has no such payload of score {score:.17g}: see henchman ordered {name} {id}")
    acted = queue.drop_payload(id, found[0], of=pile)
    tell(_KIND, f"without the payload {shorten(found[0].text, 100)}", acted, named=True)


# ---- views


def ordered_table(stats: Sequence[OrderedStats]) -> Table:
    """Ordered queues as a table."""
    columns = {
        "ordered queue": lambda one: one.name,
        "ids>": lambda one: figure(one.length),
        "lag>": lambda one: duration(one.lag) if one.lag else "–",
        "busy>": lambda one: figure(one.busy),
        "retries>": lambda one: figure(one.retries),
        "morgue>": lambda one: figure(one.morgue_length),
        "state": lambda one: cell("paused" if one.paused else "", "yellow"),
    }
    return table(stats, columns, wide="ordered queue")


def _claims(one: OrderedStats) -> str:
    return (
        f"at most {count(one.max_parallel, 'claim')} at a time" if one.max_parallel else "no limit of claims at a time"
    )


def _stats_lines(one: OrderedStats) -> list[str]:
    """The figures of one queue."""
    waits = f"{count(one.length, 'id', does='wait')}: {one.fresh:,} fresh, {count(one.retries, 'retry', 'retries')}"
    limit = _claims(one)
    if one.max_parallel_from:
        limit += f" ({_ORIGIN[one.max_parallel_from]})"
    if one.max_per_group:
        limit += f", {count(one.max_per_group, 'id')} of a group"
    return [
        f"{one.name}{' (paused)' if one.paused else ''}: {waits}; {one.busy:,} in flight; "
        f"{one.morgue_length:,} in the morgue; lag {duration(one.lag)}",
        f"{one.processed:,} processed, {one.failed:,} failed; {limit}",
    ]


def _id_table(found: Sequence[OrderedId], shows: str) -> Table:
    """Ids in a list, those that wait unless ``shows`` is dead or busy."""
    if shows == "dead":
        columns = {
            "id": lambda one: one.id,
            "died": lambda one: ago(one.died_at),
            "payloads>": lambda one: figure(one.dead_count),
            "first payload": lambda one: _first(one.dead),
        }
        return table(found, columns, "first payload", lambda one: one.dead_error)
    if shows == "busy":
        columns = {
            "id": lambda one: one.id,
            "held by": lambda one: one.holder.identity if one.holder else "–",
            "since": lambda one: ago(one.holder.since) if one.holder else "–",
            "lease": _lease,
            "payloads>": lambda one: figure(one.payload_count) if one.holder else "–",
            "arrived>": lambda one: figure(one.arrival_count) if one.holder else "–",
            "first payload": lambda one: _first(one.payloads) if one.holder else "–",
        }
        return table(found, columns, "first payload")
    columns = {
        "id": lambda one: one.id,
        "state": lambda one: "put off" if one.put_off else one.state,
        "due": lambda one: ago(one.due),
        "runs>": lambda one: str(one.retry_count + 1),
        "payloads>": lambda one: figure(one.payload_count),
        "first payload": lambda one: _first(one.payloads),
    }
    return table(found, columns, "first payload", lambda one: one.error)


def _first(some: Sequence[OrderedPayload]) -> str:
    return some[0].text if some else "–"


def _lease(one: OrderedId) -> Text | str:
    if one.holder is None:
        return "–"
    return cell(duration(one.holder.lease_left)) if one.holder.alive else cell("gone", "red")


def _id_lines(one: OrderedId) -> Iterator[Text]:
    """Everything about one id, a line at a time."""
    yield Text.assemble(cell(one.id, "bold"), f": {_state(one)}")
    yield from facts(_id_facts(one), 12)
    for title, some, many in (
        ("in flight" if one.holder else "waiting", one.payloads, one.payload_count),
        ("arrived meanwhile", one.arrivals, one.arrival_count),
        ("in the morgue", one.dead, one.dead_count),
    ):
        if many:
            yield Text()
            yield Text(f"{count(many, 'payload')} {title}, by score:", "bold")
        for payload in some:
            text = visible(shorten(payload.text, _SHOWN_TEXT))
            yield Text.assemble((f"{payload.score:>20.17g}  ", "dim"), text)
        if many > len(some):
            yield Text(f"… and {many - len(some):,} more", "dim")


def _state(one: OrderedId) -> str:
    if one.put_off:
        return "waiting; put off until its group has fewer in flight"
    if one.state == "waiting" and one.due is not None and one.due > one.at:
        return "waiting for its time"
    if one.state == "retrying":
        return f"retrying; {count(one.retry_count + 1, 'run')} failed"
    return {"dead": "dead: in the morgue", "absent": "nothing waits under this id"}.get(one.state, one.state)


def _id_facts(one: OrderedId) -> Iterator[tuple[str, object]]:
    if one.due is not None:
        yield "due", moment(one.due, one.at)
    if (held := one.holder) is not None:
        lease = f"its lease lives for {duration(held.lease_left)} more" if held.alive else "its lease is gone"
        yield "held by", f"{held.identity}, {lease}"
        yield "since", moment(held.since, one.at)
        yield "token", held.token
        yield "failed", count(one.retry_count + 1, "run") if one.retry_count >= 0 else ""
    if one.crashes:
        yield "deaths", f"{count(one.crashes, 'process', 'processes')} died with it, in a row"
    yield "last error", one.error
    if one.arrivals_due is not None:
        yield "next due", moment(one.arrivals_due, one.at)
    if one.died_at is not None:
        yield "died", moment(one.died_at, one.at)
        yield "of", one.dead_error or "–"
