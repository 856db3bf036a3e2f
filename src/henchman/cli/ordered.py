"""``henchman ordered``: ordered queues, their ids, one id in full; and what can be done about them."""

from __future__ import annotations

import sys
import time
from itertools import islice
from typing import Any

import click

from henchman.cli.group import ShowGroup
from henchman.cli.ordered_acts import ACTIONS
from henchman.cli.ordered_view import id_lines, id_table, ordered_rows, ordered_table, stats_lines
from henchman.cli.session import Session, as_json, server_options
from henchman.cli.text import console, emit, listed, say
from henchman.errors import HenchmanError
from henchman.inspector.ordered import OrderedId, OrderedQueue
from henchman.inspector.ordered_queues import OrderedQueues
from henchman.kernel.text import did_you_mean
from henchman.store.procedure import Items

__all__ = ["ordered"]

_SHOWN = 50


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
    """


for _one in ACTIONS:
    ordered.add_command(_one)


@ordered.command("show")
@server_options
@click.argument("name", required=False)
@click.argument("id", required=False)
@click.option("--dead", "kind", flag_value="dead", help="The ids in the morgue, the last dead first.")
@click.option("--failed", "kind", flag_value="failed", help="The ids that failed and wait for their next attempt.")
@click.option("--busy", "kind", flag_value="busy", help="The ids in flight, and who holds them.")
@click.option("--by", type=click.Choice(["time", "retry", "id"]), help="In which order; by id: in none, but all ids.")
@click.option("--prefix", default="", metavar="TEXT", help="By id: only those that begin so.")
@click.option("--min", "low", type=float, metavar="NUMBER", help="From this time (Unix seconds) or retry count on.")
@click.option("--max", "high", type=float, metavar="NUMBER", help="Up to this time or retry count.")
@click.option("--reverse", is_flag=True, help="From the other end.")
@click.option("--page", type=click.IntRange(1), default=1, metavar="N", help="Which page.")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=_SHOWN, show_default=True, help="Ids a page.")
@click.option("--lowkiq-stats", is_flag=True, help="The figures as Lowkiq's /api/v1/stats has them, as JSON.")
@as_json
@click.pass_context
def show(
    context: click.Context, /, name: str | None, id: str | None, lowkiq_stats: bool, as_json: bool, **which: Any
) -> None:
    """Every ordered queue; with NAME one of them; with ID one id in full. Exit status 1: it is not there."""
    session = Session(context)
    queues = OrderedQueues(session.runner, session.keys)
    if lowkiq_stats:
        emit(queues.lowkiq_stats())
    elif name is None:
        _show_all(queues, as_json=as_json)
    else:
        queue = queues.get(name)
        if queue is None:
            raise HenchmanError(f"there is no ordered queue {name!r}{did_you_mean(name, queues.names())}")
        if id is None:
            _show_queue(queue, as_json=as_json, **which)
        else:
            _show_id(queue.find(id), as_json=as_json)


def _show_all(queues: OrderedQueues, *, as_json: bool) -> None:
    stats = queues.stats()
    if as_json:
        emit({"ordered": ordered_rows(stats)})
    elif stats:
        console().print(ordered_table(stats))
    else:
        say("No ordered queues. One appears with the first push to it, or when a worker serves it.")


def _show_id(found: OrderedId, *, as_json: bool) -> None:
    if as_json:
        emit(found.to_json())
    else:
        for line in id_lines(found):
            console().print(line, soft_wrap=True)
    if found.state == "absent":
        sys.exit(1)


def _show_queue(queue: OrderedQueue, *, as_json: bool, kind: str | None, page: int, limit: int, **which: Any) -> None:
    stats = queue.stats()
    found = _page(queue, kind, (page - 1) * limit, limit, **which)
    if as_json:
        ids = [one.to_json() for one in found]
        emit({"queue": stats.to_json(), "list": kind or "waiting", "page": page, "limit": limit, "ids": ids})
        return
    for line in stats_lines(stats):
        say(line)
    if found:
        console().print()
        console().print(id_table(found, time.time(), kind=kind or ""))
    total = {"dead": stats.morgue_length, "failed": stats.retries, "busy": stats.busy}.get(kind or "", stats.length)
    narrowed = which["low"] is not None or which["high"] is not None or which["prefix"]
    if page > 1 or len(found) < total or narrowed:
        what = {"dead": "ids in the morgue", "failed": "ids that failed", "busy": "ids in flight"}.get(kind or "")
        say(f"{listed(len(found), total, what or 'ids')}, page {page}; more with --page {page + 1}")


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
    dead = kind == "dead"
    if by == "id" or prefix or kind == "busy":
        some = queue.morgue_by_id(prefix) if dead else queue.by_id(prefix)
        return _cut(queue.busy() if kind == "busy" else some, first, most)
    counts = kind == "failed" or by == "retry"
    if low is None and high is None and not (by == "retry" and kind is None):
        return queue.page(first, most, by="morgue" if dead else "retry" if counts else "time", reverse=reverse != dead)
    if dead:
        return _cut(queue.morgue(low, high, reverse=not reverse), first, most)
    if not counts:
        return _cut(queue.by_time(low, high, reverse=reverse), first, most)
    least = 0.0 if kind == "failed" else -1.0
    least = least if low is None else max(low, least)
    return _cut(queue.by_retry_count(int(least), None if high is None else int(high), reverse=reverse), first, most)


def _cut(found: Items[OrderedId], first: int, most: int) -> list[OrderedId]:
    return list(islice(found, first, first + most))
