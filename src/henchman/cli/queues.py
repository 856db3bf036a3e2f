"""``henchman queues``: how long, how late; pause, unpause, clear."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

from henchman.cli.ordered_view import ordered_rows, ordered_table
from henchman.cli.session import Session, as_json, confirmed, server_options
from henchman.cli.table import Row, Table, cell
from henchman.cli.text import console, count, duration, emit, figure, say
from henchman.errors import HenchmanError
from henchman.inspector.ordered import OrderedQueue
from henchman.inspector.ordered_queues import OrderedQueues
from henchman.inspector.queues import Queue, Queues, QueueState
from henchman.kernel.text import did_you_mean, shorten, visible

__all__ = ["queue_rows", "queue_table", "queues"]

SHOWN = 100


@click.group(invoke_without_command=True)
@server_options
@click.option("-n", "--most", type=click.IntRange(1), help=f"How many.  [default: {SHOWN}, all as JSON]")
@click.option("--first", type=click.IntRange(0), default=0, help="How many to leave out before, by name.")
@click.option("--match", metavar="TEXT", default="", help="Only those whose name holds TEXT.")
@as_json
@click.pass_context
def queues(context: click.Context, most: int | None, first: int, match: str, as_json: bool) -> None:
    """Every queue: its size, how long its next job has waited, whether it is paused; then the ordered ones."""
    if context.invoked_subcommand is not None:
        return
    session = Session(context)
    plain = Queues(session.runner, session.keys)
    states = plain.states(match=match, first=first, most=most or (None if as_json else SHOWN))
    ordered = [one for one in OrderedQueues(session.runner, session.keys).stats() if match in one.name]
    if as_json:
        emit({"queues": queue_rows(states), "ordered": ordered_rows(ordered)})
        return
    if states:
        console().print(queue_table(states))
    found, shown = len(plain.known(match)), first + len(states)
    if found > shown:
        also = f" --match {shlex.quote(match)}" if match else ""
        say(f"… and {found - shown:,} more: henchman queues --first {shown}{also}")
    if states and ordered:
        console().print()
    if ordered:
        console().print(ordered_table(ordered))
    if not states and found:
        say(f"No more: {count(found, 'queue')} in all.")
    elif not states and not ordered and match:
        say(f"No queue has {visible(match)!r} in its name.")
    elif not states and not ordered:
        say("No queues. A queue appears with the first job that is pushed to it.")


@queues.command()
@server_options
@click.argument("name")
@click.pass_context
def pause(context: click.Context, name: str) -> None:
    """Start nothing from the queue NAME any more, on any worker."""
    queue, plain = _known(context, name)
    queue.pause()
    names = plain.names()
    known = name in names or isinstance(queue, OrderedQueue)
    unknown = "" if known else f" (nothing was pushed to it yet{did_you_mean(name, names)})"
    say(f"{name} is paused{unknown}; what runs goes on. Undo: henchman queues unpause {name}")


@queues.command()
@server_options
@click.argument("name")
@click.pass_context
def unpause(context: click.Context, name: str) -> None:
    """Let work on the queue NAME go on."""
    queue, plain = _known(context, name)
    if not queue.paused():
        say(f"{name} was not paused{did_you_mean(name, plain.paused())}")
        return
    queue.unpause()
    say(f"{name} goes on")


@queues.command()
@server_options
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def clear(context: click.Context, name: str, yes: bool) -> None:
    """Delete the queue NAME and every job in it."""
    queue, plain = _known(context, name)
    if isinstance(queue, OrderedQueue):
        raise HenchmanError(f"{name!r} is an ordered queue; what can be done about it: henchman ordered --help")
    state = next((one for one in plain.states(match=name) if one.name == name), None)
    if state is None:
        raise HenchmanError(f"there is no queue {name!r}{did_you_mean(name, plain.known())}")
    confirmed(f"Delete {visible(name)} and {count(state.size or 0, 'job')} in it, for good?", yes=yes)
    deleted = queue.clear()
    say(f"{name} is gone, with {count(deleted, 'job')}")


def _known(context: click.Context, name: str) -> tuple[Queue | OrderedQueue, Queues]:
    """The queue, of whichever kind, and all plain ones."""
    session = Session(context)
    plain = Queues(session.runner, session.keys)
    ordered = None if name in plain.known(name) else OrderedQueues(session.runner, session.keys).get(name)
    return ordered or plain.queue(name), plain


def queue_rows(states: Sequence[QueueState]) -> list[dict[str, Any]]:
    """Queues as JSON: name, size, latency (seconds), paused, problem."""
    return [one._asdict() | {"problem": one.problem or None} for one in states]


def queue_table(states: Sequence[QueueState]) -> Table:
    """Queues as a table."""

    def row(one: QueueState) -> Row:
        note = (
            cell(shorten(one.problem, 24), "red")
            if one.problem
            else cell("paused", "yellow")
            if one.paused
            else cell("")
        )
        return Row([one.name, figure(one.size), duration(one.latency) if one.size else "–", note])

    return Table(["queue", "size>", "latency>", "state"], map(row, states), wide="queue")
