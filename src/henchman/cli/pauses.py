"""``henchman pauses``: everything that is paused, by whom and why; pause a class or a tag, and let it go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from henchman.cli.session import Session, as_json, caller, command, group, why
from henchman.cli.show import ago, answer, cell, say, table
from henchman.oncall.pauses import Paused, paused
from henchman.store.call import run

__all__ = ["pauses"]


@group()
@as_json
def pauses(session: Session, as_json: bool) -> None:
    """What is paused: queues, batches, crons, classes of jobs and tags; since when, by whom and why.

    Queues are paused with henchman queues pause (or ordered), batches and crons with theirs, the rest here.
    """
    found = run(session.runner, paused(session.keys))
    shown = table(found, _COLUMNS, "what") if found else "Nothing is paused."
    answer({"pauses": [one.to_json() for one in found]}, shown, as_json=as_json)


_COLUMNS: dict[str, Callable[[Paused], Any]] = {
    "kind": lambda one: one.kind,
    "what": lambda one: one.name,
    "since": lambda one: ago(one.pause.at),
    "by": lambda one: one.pause.by or "–",
    "why": lambda one: cell(one.pause.reason or "–"),
}


@command(pauses)
@click.argument("what")
@why
def pause(session: Session, what: str, reason: str) -> None:
    """Start no job of WHAT any more, class:NAME or tag:NAME, on any worker; what runs goes on, as do ordered queues."""
    session.any_app.pauses.pause(what, reason, by=caller())
    say(f"{what} is paused; what runs goes on. Undo: henchman pauses unpause {what}")


@command(pauses)
@click.argument("what")
def unpause(session: Session, what: str) -> None:
    """Let WHAT go on, class:NAME or tag:NAME: its jobs that wait go to the ends of their queues."""
    ended = session.any_app.pauses.unpause(what)
    say(f"{what} goes on" if ended else f"{what} was not paused")
