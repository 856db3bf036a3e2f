"""``henchman limits``: how many jobs may run at once, or start in a time; who has a place, who waits, another size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from henchman.cli.session import Session, as_json, command, group
from henchman.cli.show import ago, answer, cell, count, say, table
from henchman.errors import HenchmanError
from henchman.inspector.limits import LimitLook, LimitState
from henchman.kernel.text import shorten, visible
from henchman.store.limits import PartSize, PlaceHolder

__all__ = ["limits"]

_NOBODY = '"" (all)'


@group()
@as_json
def limits(session: Session, as_json: bool) -> None:
    """Limits: how large each is, how much of it is taken, how many jobs wait.

    A limit stands here from its first use on. What code says of it holds until it is changed by hand.
    """
    found = session.any_app.limits.all()
    shown = table(found, _COLUMNS, "limit") if found else "No limit was ever used: @app.job(limits=[Concurrent(…)])."
    answer({"limits": [one.to_json() for one in found]}, shown, as_json=as_json)


def _size(one: LimitState) -> Any:
    code = f"{one.code_n:,}" if one.has_places else f"{one.code_n:,} in {one.code_per:g} s"
    return cell(f"{one.size} (code: {code})", "yellow") if one.by_hand else one.size


_COLUMNS: dict[str, Callable[[LimitState], Any]] = {
    "limit": lambda one: one.name,
    "kind": lambda one: one.kind,
    "size": _size,
    "taken>": lambda one: f"{one.used:,}" if one.has_places else "–",
    "waiting>": lambda one: f"{one.waiting:,}" if one.has_places else "–",
    "values>": lambda one: f"{one.parts:,}{'+' if one.more else ''}" if one.has_places else "–",
}


@command(limits, "show")
@click.argument("name")
@click.option("--by", help="Whose places, where each value has a limit of its own; else whose most jobs wait.")
@as_json
def show(session: Session, name: str, by: str | None, as_json: bool) -> None:
    """The limit NAME: whose places are taken, who has them, and who waits. Exit status 1: there is none."""
    look = session.any_app.limits.look(name, by)
    if look is None:
        raise HenchmanError(f"there is no limit {visible(name)!r}; henchman limits lists those that were ever used")
    answer(_document(look), *_lines(look), as_json=as_json)


def _document(look: LimitLook) -> dict[str, Any]:
    return look.state.to_json() | {
        "values": [one._asdict() for one in look.parts],
        "by": look.by,
        "holders": [one.jid for one in look.holders],
        "line": [jid for jid, _ in look.line],
    }


def _lines(look: LimitLook) -> list[Any]:
    state = look.state
    lines: list[Any] = [f"{state.name}: {state.kind}, {state.size}{', changed by hand' if state.by_hand else ''}"]
    if not state.has_places:
        return [*lines, "Jobs over it wait in the schedule, each until the time that it was given."]
    if len(look.parts) > 1 or look.by:
        lines.append(table(look.parts[:100], _PARTS, "value"))
    whose = f" of {visible(shorten(look.by, 80))}" if look.by else ""
    lines += [table(look.holders, _HOLDERS, "has a place") if look.holders else f"No place{whose} is taken."]
    if look.line:
        lines.append(f"In line{whose}, the next first ({count(len(look.line), 'job')} shown):")
        lines += [f"  {visible(jid)}  {entry.call_text() if entry else ''}" for jid, entry in look.line]
    return lines


def _holder(one: PlaceHolder) -> str:
    waits = " waits, and has the next one" if one.waits else ""
    return f"program {visible(one.program)}{waits}" if one.program else visible(one.jid)


_PARTS: dict[str, Callable[[PartSize], Any]] = {
    "value": lambda one: visible(shorten(one.by, 80)) or _NOBODY,
    "taken>": lambda one: one.used,
    "waiting>": lambda one: one.waiting,
}
_HOLDERS: dict[str, Callable[[PlaceHolder], Any]] = {
    "has a place!": _holder,
    "since": lambda one: ago(one.since),
}


@command(limits, "set")
@click.argument("name")
@click.argument("n", type=click.IntRange(0))
@click.option("--per", type=click.FloatRange(0.001), help="In so many seconds, of a limit that is about a time.")
def resize(session: Session, name: str, n: int, per: float | None) -> None:
    """Let the limit NAME be N from now on, for every worker.

    A larger one lets jobs go that wait; of a smaller one those that run run to their ends. 0 places hold all jobs of a
    limit up. Workers that start with other code leave it so; with N as code says it follows the code again.
    """
    say(session.any_app.limits.set(name, n, per=per).text)
