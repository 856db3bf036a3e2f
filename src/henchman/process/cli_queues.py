"""``henchman queues``: how long, how late; pause, unpause, clear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from henchman.errors import HenchmanError
from henchman.inspector.ordered import OrderedQueue
from henchman.inspector.ordered_queues import OrderedQueues
from henchman.inspector.queues import Queue, Queues, QueueState
from henchman.kernel.text import did_you_mean, shorten, visible
from henchman.process.cli_ordered_view import ordered_rows, ordered_table
from henchman.process.cli_session import Session, as_json, confirmed, server_options
from henchman.process.cli_table import Row, Table, cell
from henchman.process.cli_text import console, count, duration, emit, figure, say

__all__ = ["queue_rows", "queue_table", "queues"]


@click.group(invoke_without_command=True)
@server_options
@as_json
@click.pass_context
def queues(context: click.Context, as_json: bool) -> None:
    """Every queue: its size, how long its next job has waited, whether it is paused; then the ordered ones."""
    if context.invoked_subcommand is not None:
        return
    session = Session(context)
    states = Queues(session.runner, session.keys).states()
    ordered = OrderedQueues(session.runner, session.keys).stats()
    if as_json:
        emit({"queues": queue_rows(states), "ordered": ordered_rows(ordered)})
        return
    if states:
        console().print(queue_table(states))
    if states and ordered:
        console().print()
    if ordered:
        console().print(ordered_table(ordered))
    if not states and not ordered:
        say("No queues. A queue appears with the first job that is pushed to it.")


@queues.command()
@server_options
@click.argument("name")
@click.pass_context
def pause(context: click.Context, name: str) -> None:
    """Start nothing from the queue NAME any more, on any worker."""
    queue, states = _known(context, name)
    queue.pause()
    known = name in states or isinstance(queue, OrderedQueue)
    unknown = "" if known else f" (nothing was pushed to it yet{did_you_mean(name, states)})"
    say(f"{name} is paused{unknown}; what runs goes on. Undo: henchman queues unpause {name}")


@queues.command()
@server_options
@click.argument("name")
@click.pass_context
def unpause(context: click.Context, name: str) -> None:
    """Let work on the queue NAME go on."""
    queue, states = _known(context, name)
    if not queue.paused():
        say(f"{name} was not paused{did_you_mean(name, [one for one in states if states[one].paused])}")
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
    queue, states = _known(context, name)
    if isinstance(queue, OrderedQueue):
        raise HenchmanError(f"{name!r} is an ordered queue; what can be done about it: henchman ordered --help")
    if name not in states:
        raise HenchmanError(f"there is no queue {name!r}{did_you_mean(name, states)}")
    size = states[name].size
    confirmed(f"Delete {visible(name)} and {count(size or 0, 'job')} in it, for good?", yes=yes)
    deleted = queue.clear()
    say(f"{name} is gone, with {count(deleted, 'job')}")


def _known(context: click.Context, name: str) -> tuple[Queue | OrderedQueue, dict[str, QueueState]]:
    """The queue, of whichever kind, and all plain ones that are known."""
    session = Session(context)
    plain = Queues(session.runner, session.keys)
    states = {one.name: one for one in plain.states()}
    ordered = None if name in states else OrderedQueues(session.runner, session.keys).get(name)
    return ordered or plain.queue(name), states


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
