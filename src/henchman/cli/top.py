"""``henchman top``: what the jobs do, in the terminal."""

from __future__ import annotations

import sys

import click

from henchman.cli.session import Session, caller, command, settings_of
from henchman.errors import HenchmanError
from henchman.top import load

__all__ = ["top"]


@command()
@click.argument("target", required=False, metavar="[pkg.mod:app]")
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds between looks."
)
@click.option("--write", is_flag=True, help="You may act: retry, kill, delete, cancel, pause, quiet, stop.")
@click.option("--label", default="", metavar="TEXT", help="The name of this deployment, in the head.")
def top(session: Session, target: str | None, every: float, write: bool, label: str) -> None:
    """Show what the jobs do, in the terminal, until q: findings, what runs, queues, retries, dead jobs.

    It needs the extra top. It only looks, unless --write is said; each act is asked for once more. ? shows the keys.
    """
    if target is not None:
        settings_of(click.get_current_context())["app"] = target
    made = load(session.any_app, label or session.shown_url, may_act=write, every=every, author=caller())
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise HenchmanError("henchman top needs a terminal; without one, henchman status --watch prints a line a look")
    made.run()
