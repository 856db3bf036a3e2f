"""``henchman keys``, ``unlock``: business keys; ``henchman blocked``, ``release``: jobs that wait for others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any

import click

from henchman.cli.jobs import job_id, whole_id
from henchman.cli.session import Session, as_json, command
from henchman.cli.show import ago, answer, cell, count, listed, moment, say, table
from henchman.errors import HenchmanError
from henchman.inspector.blocked import BlockedJob
from henchman.inspector.keys import KeyState, ScopeState, held_in, scope_states
from henchman.kernel.text import shorten, visible
from henchman.store import call
from henchman.store.locks import PHASES

__all__ = ["blocked", "keys", "release", "unlock"]

_MOST = 100
_FOLLOWED = ("once", "followed")  # phases in which others may wait for the success of the job
_LONG_ID = 32
_BY_ID = '"" (by id)'
_COLOURS = {"dead": "red", "failed": "red", "over": "red", "unknown": "yellow", "free": "yellow"}


# ---- business keys


@command()
@click.argument("scope", required=False)
@click.option("-n", "--most", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many keys.")
@as_json
def keys(session: Session, scope: str | None, most: int, as_json: bool) -> None:
    """Business keys that jobs hold: how many in each scope, or those of SCOPE and who has them.

    \b
    once             from the push until the job has ended, and remembered then
    until_success    from the push until the job has ended or is dead
    queued           from the push until the job starts
    running          while it runs; the next one waits
    followed         others may wait for its end; keeps nobody out

    SCOPE is the name of a job, or its scope=; "": jobs that are followed by their ids.
    """
    if scope is None:
        found = call.run(session.runner, scope_states(session.keys))
        columns: dict[str, Callable[[ScopeState], Any]] = {"scope": lambda one: one.scope or _BY_ID}
        columns |= {f"{word}>": partial(_held, word) for word in PHASES.values()}
        shown = table(found, columns, "scope") if found else "No key was ever held."
        answer({"scopes": [asdict(one) for one in found]}, shown, as_json=as_json)
        return
    some = list(islice(call.iterate(session.runner, held_in(session.keys, scope)), most + 1))
    lines = [table(some[:most], _KEY_COLUMNS, "key") if some else f"No job holds a key of {visible(scope) or _BY_ID}."]
    lines += ["There are more: --most"] if len(some) > most else []
    document = {"scope": scope, "keys": [one.to_json() for one in some[:most]], "more": len(some) > most}
    answer(document, *lines, as_json=as_json)


def _held(phase: str, one: ScopeState) -> int:
    return one.held[phase]


_KEY_COLUMNS: dict[str, Callable[[KeyState], Any]] = {
    "key": lambda one: one.key,
    "held": lambda one: one.phase,
    "job id!": lambda one: one.jid,
    "since": lambda one: ago(one.since),
}


@command()
@click.argument("scope")
@click.argument("key")
@click.option("--force", is_flag=True, help="Although its job lives: see above what that breaks.")
@as_json
def unlock(session: Session, scope: str, key: str, force: bool, as_json: bool) -> None:
    """Take the business key KEY of SCOPE from its job; the next in line has it then. Exit status 1: nobody holds it.

    A job that lives keeps its key: its end gives it back. --force takes it all the same: another job may run beside it
    then. Who waits for the success of the job (once, followed; henchman blocked --on SCOPE KEY) hears that it is over
    without success, and does what its on_failed= says, also when the job succeeds later. SCOPE is "" for a job that is
    followed by its id, which is KEY then.
    """
    freed = session.any_app.keys.unlock(scope, key, force=force)
    lines = [_taken(one) for one in freed]
    lines = lines or [_free(session.any_app.keys.find(scope, key), scope, key)]
    answer({"freed": [one.to_json() for one in freed]}, *lines, as_json=as_json)
    if not freed:
        sys.exit(1)


def _free(found: KeyState | None, scope: str, key: str) -> str:
    """Why there is nothing to take."""
    name = f"the key {visible(key)!r} of {visible(scope) or _BY_ID}"
    if found is None:
        return f"Nobody holds {name}; see henchman keys for those that are held."
    until = f"remembered until {moment(found.remembered_until or 0.0)} at the latest"
    ended = f"Nobody holds {name}: its last job, {visible(found.jid)}, is {found.status}, which is {until}."
    return (
        f"{ended} Pushes are duplicates of it until then, but for JOB.using(again=True).enqueue(…)."
        if found.phase == "once"
        else ended
    )


def _taken(one: KeyState) -> str:
    told = f"; {count(one.waiting, 'job')} that waited for it: over without success" if one.phase in _FOLLOWED else ""
    return f"taken from job {visible(one.jid)} ({one.phase}), which was {one.status}{told if one.waiting else ''}"


# ---- jobs that wait for others


@command()
@click.option(
    "--on", type=(str, str), metavar="SCOPE KEY", help='Those that wait for this key or its job; "" JID: for a job.'
)
@click.option(
    "--stuck", is_flag=True, help="Those alone that wait for what is dead or over: they do not go by themselves."
)
@click.option("-n", "--most", type=click.IntRange(1), default=_MOST, show_default=True, help="How many.")
@as_json
def blocked(session: Session, on: tuple[str, str] | None, stuck: bool, most: int, as_json: bool) -> None:
    """Jobs that wait for others: for a business key, or for jobs that have not succeeded yet."""
    every = session.any_app.blocked
    total = every.size()
    wanted = (one for one in (every if on is None else every.on(*on)) if one.is_stuck or not stuck)
    found = list(islice(wanted, most + 1))
    shown, more = found[:most], len(found) > most
    if on is None:  # those that do not go by themselves come first, then the oldest
        shown.sort(key=lambda one: (not one.is_stuck, one.since or 0.0))
    if as_json:
        document = {"total": total, "blocked": [one.to_json() for one in shown], "more": more}
        return answer(document, as_json=True)
    if not shown:
        which = "No blocked jobs" + (" of this kind." if total else ".")
        return answer(None, f"{which} A job that waits for another one is kept here.", as_json=False)
    columns = {name: one for name, one in _BLOCKED_COLUMNS.items() if name != _UNTIL or any(job.until for job in shown)}
    lines = [table(shown, columns, "job")]
    plain = on is None and not stuck
    end = f"{listed(len(shown), total, 'blocked jobs')}; more with --most" if plain else "There are more: --most"
    return answer(None, *lines, *([end] if more else []), as_json=False)


def _first(one: BlockedJob) -> str:
    """What it waits for first, and how many others."""
    others = len(one.waits_for) - 1
    return f"{one.waits_for[0].name}{f' and {others:,} more' if others else ''}" if one.waits_for else "–"


def _which(one: BlockedJob) -> Any:
    """How that is: of several the worst."""
    worst = next((each for each in one.waits_for if each.is_stuck), next(iter(one.waits_for), None))
    if worst is None:
        return cell("unreadable", "red")
    word = {"running": "running", "pause": "paused"}.get(worst.lock) if worst.state == "alive" else None
    word = word or worst.state
    return cell(word, _COLOURS.get(worst.state, ""))


_UNTIL = "waits until"  # shown where one of them has a limit
_BLOCKED_COLUMNS: dict[str, Callable[[BlockedJob], Any]] = {
    "job id!": lambda one: shorten(visible(one.jid), _LONG_ID) or "–",
    "pushed": lambda one: ago(one.since),
    "waits for": _first,
    "which is": _which,
    _UNTIL: lambda one: moment(one.until) if one.until else "–",
    "queue": lambda one: one.queue,
    "job": lambda one: one.entry.call_text(),
}


@command()
@click.argument("jid", callback=job_id)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def release(session: Session, jid: str, dry_run: bool) -> None:
    """Let the blocked job JID go as if what it waits for had succeeded. Exit status 1: it is not blocked, or it stays.

    A job that waits for a business key stays: its end, or henchman unlock SCOPE KEY, lets the next in line go.
    """
    jid = whole_id(session, jid)
    every = session.any_app.blocked
    found = every.find(jid)
    if found is None:
        raise HenchmanError(f"{jid} is not blocked; see: henchman why {jid}")
    if dry_run and not found.why_it_stays:
        return say(f"{jid} would go into queue {found.queue}; nothing was done. It is {found.reason()}")
    acted = every.release(found)
    if not acted.done:
        raise HenchmanError(acted.reasons[0] if acted.reasons else f"{jid} is not blocked any more")
    due = f" at {moment(found.due)}" if found.due else ""
    return say(f"{jid} goes into queue {found.queue}{due}. It was {found.reason()}")
