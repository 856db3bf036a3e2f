"""``henchman db``: the tables of history, made and brought up to this release."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from henchman.app import open_door
from henchman.cli.session import Session, as_json, server_options
from henchman.cli.text import emit, say
from henchman.config import Config
from henchman.errors import HistoryError

__all__ = ["db", "desk_of"]


@click.group()
def db() -> None:
    """The database of history: make its tables, bring them up to this release."""


@db.command()
@server_options
@click.pass_context
def upgrade(context: click.Context) -> None:
    """Make the tables, or bring them to the schema of this release; nothing happens when they are there."""
    with desk_of(Session(context).config) as desk:
        before = desk.current()
        after = desk.upgrade()
    was = f"from schema {before.found} to {after.found}" if before.found else f"made, schema {after.found}"
    say(f"{desk.shown}: {'up to date, schema ' + after.found if before.fits else was}")


@db.command()
@server_options
@as_json
@click.pass_context
def current(context: click.Context, as_json: bool) -> None:
    """Show which schema the database has. Exit status 0: it fits this release; 1: it does not."""
    with desk_of(Session(context).config) as desk:
        version = desk.current()
    if as_json:
        emit({"database": desk.shown, "found": version.found or None, "needed": version.needed})
    else:
        found = f"schema {version.found}" if version.found else "no tables of Henchman"
        say(f"{desk.shown}: {found}" + ("" if version.fits else f", this release needs {version.needed}"))
    if not version.fits:
        sys.exit(1)


@contextmanager
def desk_of(config: Config) -> Iterator[Any]:
    """``history.admin:Admin`` of these settings; HistoryError says why there is none."""
    off = config.why_history_is_off()
    if off:
        raise HistoryError(off)
    desk = open_door("history")(config)
    try:
        yield desk
    finally:
        desk.close()
