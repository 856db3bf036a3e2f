"""``henchman operations``: bulk work that people began in a console; abort it, undo it, carry it out here."""

from __future__ import annotations

import click
from rich.console import RenderableType

from henchman.cli.session import Session, as_json, command, group
from henchman.cli.show import ago, answer, facts, listed, moment, table
from henchman.errors import ArgumentError, HenchmanError
from henchman.inspector import operations as asked
from henchman.inspector.operations import Operation
from henchman.inspector.operator import carry_out
from henchman.oncall.batch_operations import CARRIERS
from henchman.store.call import Procedure, run

__all__ = ["operations"]

_MOST = 200


@group()
@as_json
def operations(session: Session, as_json: bool) -> None:
    """Bulk work that people began: what, how far, what became of it; abort, undo, continue."""
    page = run(session.runner, asked.operations(session.keys, 0, _MOST))
    shown = table(
        page.operations,
        {
            "id": lambda one: one.number,
            "operation": lambda one: one.words,
            "status": lambda one: one.status,
            "result": lambda one: one.result,
            "by": lambda one: one.author,
            "begun": lambda one: ago(one.made, one.now),
        },
        "operation",
    )
    lines: list[RenderableType] = [shown, listed(len(page.operations), page.total, "operations")]
    none = "Nobody has run a bulk operation: acts of the console on all that a search finds are such."
    answer(
        {"operations": [one.to_json() for one in page.operations]},
        *(lines if page.operations else [none]),
        as_json=as_json,
    )


def _known(session: Session, number: str) -> Operation:
    one = run(session.runner, asked.operation(session.keys, number))
    if one is None:
        raise ArgumentError(f"no operation {number!r:.40} is known: henchman operations lists them")
    return one


def _say(session: Session, number: str, *, as_json: bool) -> None:
    one = _known(session, number)
    known = [
        ("operation", one.words),
        ("status", one.status),
        ("result", one.result),
        ("lasting", one.lasting),
        ("note", one.text),
        ("by", one.author),
        ("begun", moment(one.made, one.now)),
        ("last", moment(one.at, one.now)),
        ("undo until", moment(one.until, one.now) if one.may_undo else None),
    ]
    answer(one.to_json(), *facts(known), as_json=as_json)


@command(operations)
@click.argument("number")
@as_json
def show(session: Session, number: str, as_json: bool) -> None:
    """One operation, as it stands now."""
    _say(session, number, as_json=as_json)


def _turn(session: Session, number: str, turned: Procedure[bool], otherwise: str) -> None:
    _known(session, number)
    if not run(session.runner, turned):
        raise HenchmanError(f"operation {number} {otherwise}")


@command(operations)
@click.argument("number")
@as_json
def abort(session: Session, number: str, as_json: bool) -> None:
    """Let an operation do nothing more; what it did stays done, and can be undone."""
    _turn(session, number, asked.abort(session.keys, number), "is at its end already")
    _say(session, number, as_json=as_json)


@command(operations)
@click.argument("number")
@as_json
def undo(session: Session, number: str, as_json: bool) -> None:
    """Take back what an operation did, as far as it can be, within 15 minutes of its end."""
    _turn(session, number, asked.undo(session.keys, number), "cannot be undone: its trash is empty, or it still runs")
    carry_out(session.any_app, number, CARRIERS)
    _say(session, number, as_json=as_json)


@command(operations, "continue")
@click.argument("number")
@as_json
def go_on(session: Session, number: str, as_json: bool) -> None:
    """Carry out here an operation that was aborted, or whose doer has died."""
    if not _known(session, number).works:
        _turn(session, number, asked.resume(session.keys, number), "is at its end")
    carry_out(session.any_app, number, CARRIERS)
    _say(session, number, as_json=as_json)
