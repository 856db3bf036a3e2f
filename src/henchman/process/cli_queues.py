"""``henchman queues``: how long, how late; pause, unpause, clear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from henchman.errors import HenchmanError
from henchman.inspector.queues import Queues, QueueState
from henchman.kernel.text import did_you_mean, shorten, visible
from henchman.process.cli_session import Session, as_json, confirmed, server_options
from henchman.process.cli_table import Row, Table, cell
from henchman.process.cli_text import console, count, duration, emit, figure, say

__all__ = ["queue_rows", "queue_table", "queues"]


@click.group(invoke_without_command=True)
@server_options
@as_json
@click.pass_context
def queues(context: click.Context, as_json: bool) -> None:
    """Every queue: its size, how long its next job has waited, whether it is paused."""
    if context.invoked_subcommand is not None:
        return
    session = Session(context)
    states = Queues(session.runner, session.keys).states()
    if as_json:
        emit({"queues": queue_rows(states)})
    elif states:
        console().print(queue_table(states))
    else:
        say("No queues. A queue appears with the first job that is pushed to it.")


@queues.command()
@server_options
@click.argument("name")
@click.pass_context
def pause(context: click.Context, name: str) -> None:
    """Start nothing from the queue NAME any more, on any worker."""
    session, states = _known(context, name, must=False)
    Queues(session.runner, session.keys).queue(name).pause()
    unknown = "" if name in states else f" (nothing was pushed to it yet{did_you_mean(name, states)})"
    say(f"{name} is paused{unknown}; what runs goes on. Undo: henchman queues unpause {name}")


@queues.command()
@server_options
@click.argument("name")
@click.pass_context
def unpause(context: click.Context, name: str) -> None:
    """Let work on the queue NAME go on."""
    session, states = _known(context, name, must=False)
    if name not in states or not states[name].paused:
        say(f"{name} was not paused{did_you_mean(name, [one for one in states if states[one].paused])}")
        return
    Queues(session.runner, session.keys).queue(name).unpause()
    say(f"{name} goes on")


@queues.command()
@server_options
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def clear(context: click.Context, name: str, yes: bool) -> None:
    """Delete the queue NAME and every job in it."""
    session, states = _known(context, name, must=True)
    size = states[name].size
    confirmed(f"Delete {visible(name)} and {count(size or 0, 'job')} in it, for good?", yes=yes)
    deleted = Queues(session.runner, session.keys).queue(name).clear()
    say(f"{name} is gone, with {count(deleted, 'job')}")


def _known(context: click.Context, name: str, *, must: bool) -> tuple[Session, dict[str, QueueState]]:
    session = Session(context)
    states = {one.name: one for one in Queues(session.runner, session.keys).states()}
    if must and name not in states:
        raise HenchmanError(f"there is no queue {name!r}{did_you_mean(name, states)}")
    return session, states


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
