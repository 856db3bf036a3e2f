"""``henchman doctor``: every setting with where it came from, and what is wrong with the server."""

from __future__ import annotations

import sys

import click
from rich.text import Text

from henchman.app import open_door
from henchman.cli.session import NOTHING_RUNS, NothingRuns, Session, as_json, server_options
from henchman.cli.table import Row, Table, cell
from henchman.cli.text import console, emit
from henchman.errors import ServerError
from henchman.history import health
from henchman.inspector.doctor import Check, examine, unserved
from henchman.kernel.text import visible

__all__ = ["doctor"]

MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "bad": ("BAD", "bold red")}


@click.command()
@server_options
@as_json
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Show each setting and where it came from, check the server, and say what to do.

    Exit status 0: nothing is bad; 1: something is; 3: there is no server.
    """
    session = Session(context)
    nothing = False
    try:
        checks = [Check("server", "ok", session.shown_url), *examine(session.runner, session.keys)]
        if session.app is not None:
            checks.append(unserved(session.runner, session.keys, session.app.registry.ordered()))
    except NothingRuns as error:
        checks, nothing = [Check("server", "warn", error.message, "henchman server start, or configure one")], True
    except ServerError as error:
        checks = [_unreachable(session, error)]
    checks += _history(session, reachable=len(checks) > 1)
    if as_json:
        settings = [
            {"name": one.name, "value": one.value_text, "origin": one.origin} for one in session.config.describe()
        ]
        emit({"settings": settings, "checks": [one.to_json() for one in checks]})
    else:
        _show(session, checks)
    if nothing:
        sys.exit(NOTHING_RUNS)
    if any(one.verdict == "bad" for one in checks):
        sys.exit(1)


def _history(session: Session, *, reachable: bool) -> list[Check]:
    """The record in SQL, and how far behind it is."""
    found = [health.database(session.config, open_door)]
    if reachable:
        found.append(health.stream(session.config, session.runner, session.keys))
    return [Check(*one) for one in found]


def _unreachable(session: Session, error: ServerError) -> Check:
    text = str(error) if session.shown_url in str(error) else f"{session.shown_url}: {error}"
    if "uthentication required" in text or "refused the login" in text:
        return Check("server", "bad", text, "put user and password into the address: redis://USER:PASSWORD@HOST:PORT/0")
    return Check("server", "bad", text, "is the address right, and does the server run?")


def _show(session: Session, checks: list[Check]) -> None:
    out = console()
    rows = [
        Row(
            [
                one.name,
                cell(one.value_text, "bold" if one.origin != "default" else ""),
                cell(one.origin, "dim" if one.origin == "default" else ""),
            ]
        )
        for one in session.config.describe()
    ]
    out.print(Table(["setting", "value", "from"], rows, wide="value"))
    out.print()
    for check in checks:
        word, style = MARKS[check.verdict]
        line = Text.assemble((f"{word:<6}", style), (f"{check.name:<17}", "bold"), visible(check.text))
        out.print(line, soft_wrap=True)
        if check.advice and check.verdict != "ok":
            out.print(Text(f"{'':<6}{'':<17}→ {visible(check.advice)}"), soft_wrap=True)
