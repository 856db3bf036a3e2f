"""``henchman ordered revive|kill|delete|morgue-delete|run-now|pause|unpause|max-parallel|move``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import click

from henchman.cli.session import Session, confirmed, server_options
from henchman.cli.text import count, say
from henchman.errors import HenchmanError
from henchman.inspector.acts import Acted
from henchman.inspector.ordered import OrderedQueue, OrderedStats
from henchman.inspector.ordered_queues import OrderedQueues
from henchman.kernel.text import did_you_mean, visible

__all__ = ["ACTIONS"]

_REASONS = 10


class _Verb(NamedTuple):
    """An action on ids: its help, what ``--all`` means, what it says afterwards; how one and all are acted on; how many
    ids ``--all`` is about, where it asks before they are gone for good."""

    help: str
    all: str
    done: str
    some: Callable[..., Acted]
    every: Callable[[OrderedQueue], Acted]
    lost: Callable[[OrderedStats], int] | None = None
    flags: tuple[str, ...] = ("--all",)


_FAILED = ("--all-failed", "--all")
VERBS = {
    "revive": _Verb(
        "Let what lies in the morgue wait again, due now, its failures forgotten.",
        "The whole morgue.",
        "revived",
        OrderedQueue.revive,
        OrderedQueue.revive_all,
    ),
    "kill": _Verb(
        "Move what waits to the morgue.",
        "All that failed and wait for their next attempt.",
        "moved to the morgue",
        OrderedQueue.kill,
        OrderedQueue.kill_all_failed,
        flags=_FAILED,
    ),
    "delete": _Verb(
        "Remove what waits, for good; what is in flight runs on.",
        "All that failed and wait for their next attempt.",
        "deleted",
        OrderedQueue.delete,
        OrderedQueue.delete_all_failed,
        lambda stats: stats.retries,
        _FAILED,
    ),
    "morgue-delete": _Verb(
        "Remove what lies in the morgue, for good.",
        "The whole morgue.",
        "deleted from the morgue",
        OrderedQueue.morgue_delete,
        OrderedQueue.morgue_delete_all,
        lambda stats: stats.morgue_length,
    ),
    "run-now": _Verb(
        "Make what waits due now, in the order in which it was due.",
        "All that wait for their time.",
        "due now",
        OrderedQueue.run_now,
        OrderedQueue.run_all_now,
    ),
}


def _known(context: click.Context, name: str) -> OrderedQueue:
    session = Session(context)
    queues = OrderedQueues(session.runner, session.keys)
    queue = queues.get(name)
    if queue is None:
        raise HenchmanError(f"there is no ordered queue {name!r}{did_you_mean(name, queues.names())}")
    return queue


def _action(name: str, verb: _Verb) -> click.Command:
    @click.command(name, help=f"{verb.help} Name ids, or say {verb.flags[0]}.")
    @server_options
    @click.argument("name")
    @click.argument("id", nargs=-1)
    @click.option(*verb.flags, "everything", is_flag=True, help=verb.all)
    @click.option("-y", "--yes", is_flag=True, help="Do not ask before many are deleted.")
    @click.pass_context
    def act(context: click.Context, name: str, id: tuple[str, ...], everything: bool, yes: bool) -> None:
        if bool(id) == everything:
            raise click.UsageError(f"Say which: one or several ids, or {verb.flags[0]}.")
        queue = _known(context, name)
        if not everything:
            _tell(verb.done, verb.some(queue, *id), named=True)
            return
        many = verb.lost(queue.stats()) if verb.lost else None
        if many == 0:
            say("Nothing to delete.")
            return
        if many is not None:
            confirmed(f"Delete {count(many, 'id')} of {visible(name)}, for good?", yes=yes)
        _tell(verb.done, verb.every(queue))

    return act


def _tell(done: str, acted: Acted, *, named: bool = False) -> None:
    say(f"{count(acted.done, 'id')} {done}")
    if acted.gone and named:
        click.echo(f"Error: {count(acted.gone, 'id')} had nothing there", err=True)
    if acted.stayed:
        click.echo(f"Error: {count(acted.stayed, 'id')} stayed:", err=True)
        for reason in acted.reasons[:_REASONS]:
            click.echo(f"  {visible(reason)}", err=True)
    if acted.stayed or (acted.gone and named):
        sys.exit(1)


@click.command()
@server_options
@click.argument("name")
@click.pass_context
def pause(context: click.Context, name: str) -> None:
    """Start nothing from the ordered queue NAME any more, on any worker."""
    _known(context, name).pause()
    say(f"{name} is paused; what runs goes on. Undo: henchman ordered unpause {name}")


@click.command()
@server_options
@click.argument("name")
@click.pass_context
def unpause(context: click.Context, name: str) -> None:
    """Let work on the ordered queue NAME go on."""
    queue = _known(context, name)
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


@click.command("max-parallel")
@server_options
@click.argument("name")
@click.argument("most", callback=_limit)
@click.pass_context
def max_parallel(context: click.Context, name: str, most: int | None) -> None:
    """Let at most MOST claims of NAME run at a time, from the next one on; 0: no limit, none: as the code says."""
    queue = _known(context, name)
    queue.set_max_parallel(most)
    now = queue.stats().max_parallel
    told = f"at most {count(now, 'claim')} at a time" if now else "no limit of claims at a time"
    say(f"{name}: {told}" + (", as the code says" if most is None else ""))


@click.command()
@server_options
@click.argument("name")
@click.argument("other")
@click.argument("id", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that wait.")
@click.pass_context
def move(context: click.Context, name: str, other: str, id: tuple[str, ...], everything: bool) -> None:
    """Move what waits in NAME to the ordered queue OTHER: with scores, times and what failed. All, or the ids named."""
    if id and everything:
        raise click.UsageError("Say which: ids, or --all.")
    acted = _known(context, name).move_to(other, *id)
    _tell(f"moved to {other}", acted, named=bool(id))


ACTIONS = (*(_action(name, verb) for name, verb in VERBS.items()), pause, unpause, max_parallel, move)
