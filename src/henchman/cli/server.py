"""``henchman server``: the embedded server by hand; and ``henchman doctor``: every setting, and what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from henchman.cli.session import NOTHING_RUNS, NothingRuns, Session, as_json, command
from henchman.cli.show import answer, cell, complain, facts, say, table
from henchman.config import Config
from henchman.embedded.server import EmbeddedServer
from henchman.errors import ServerError
from henchman.history import health
from henchman.inspector.doctor import Check, examine, unserved
from henchman.kernel.text import visible

__all__ = ["doctor", "server"]

_STATES = {
    "running": "running",
    "loading": "running, loading its data",
    "silent": "its process lives, but does not answer",
    "stopped": "not running",
}
_MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "bad": ("BAD", "bold red")}


@click.group()
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where the server lives; else as configured (folder), else .henchman of the current project.",
)
@click.pass_context
def server(context: click.Context, folder: Path | None) -> None:
    """The embedded server: what serves a project that has no Redis of its own."""
    context.obj = EmbeddedServer(folder or Config.load().server_folder(), report=complain)


@server.command()
@click.pass_obj
def start(embedded: EmbeddedServer) -> None:
    """Start it, to stay up until `henchman server stop`."""
    say(f"running at {embedded.start()}")


@server.command()
@click.option("--force", is_flag=True, help="Stop it although processes use it; they start it again when they need it.")
@click.pass_obj
def stop(embedded: EmbeddedServer, force: bool) -> None:
    """Stop it; its data stay. Refused while processes use it."""
    say("stopped; its data stay" if embedded.stop(force=force) else "it was not running")


@server.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_obj
def status(embedded: EmbeddedServer, as_json: bool) -> None:
    """Say how it is. Exit status 0: running; 3: not running."""
    now = embedded.status()
    known = [
        ("state", _STATES[now.state] + (" (stays up without users)" if now.kept and now.running else "")),
        ("folder", now.folder),
        ("url", now.url),
        ("pid", now.pid),
        ("server", now.server),
        ("uptime", None if now.uptime is None else f"{now.uptime} s"),
        ("users", now.users if now.running else None),
        ("data", f"{now.data_bytes:,} bytes"),
        ("log", now.log if now.state != "stopped" else None),
    ]
    answer({**now._asdict(), "running": now.running}, *facts(known, 8), as_json=as_json)
    if not now.running:
        sys.exit(NOTHING_RUNS)


@server.command()
@click.pass_obj
def url(embedded: EmbeddedServer) -> None:
    """Print its URL and nothing else. Exit status 3: not running."""
    found = embedded.find()
    if found is None:
        complain(f"no server is running in {embedded.folder}; henchman server start")
        sys.exit(NOTHING_RUNS)
    click.echo(found)


# ---- doctor


@command()
@as_json
def doctor(session: Session, as_json: bool) -> None:
    """Show each setting and where it came from, check the server, and say what to do.

    Exit status 0: nothing is bad; 1: something is; 3: there is no server.
    """
    nothing, settings = False, session.config.describe()
    try:
        checks = [Check("server", "ok", session.shown_url), *examine(session.runner, session.keys)]
        if session.app is not None:
            checks.append(unserved(session.runner, session.keys, session.app.registry.ordered()))
    except NothingRuns as error:
        checks, nothing = [Check("server", "warn", error.message, "henchman server start, or configure one")], True
    except ServerError as error:
        checks = [_unreachable(session, error)]
    reachable = len(checks) > 1
    checks.append(Check(*health.database(session.config)))
    if reachable:
        checks.append(Check(*health.stream(session.config, session.runner, session.keys)))
    columns = {
        "setting": lambda one: one.name,
        "value": lambda one: cell(one.value_text, "bold" if one.origin != "default" else ""),
        "from": lambda one: cell(one.origin, "dim" if one.origin == "default" else ""),
    }
    shown: list[RenderableType] = [table(settings, columns, wide="value"), "", *_lines(checks)]
    document = {
        "settings": [{"name": one.name, "value": one.value_text, "origin": one.origin} for one in settings],
        "checks": [one.to_json() for one in checks],
    }
    answer(document, *shown, as_json=as_json)
    if nothing:
        sys.exit(NOTHING_RUNS)
    if any(one.verdict == "bad" for one in checks):
        sys.exit(1)


def _unreachable(session: Session, error: ServerError) -> Check:
    text = str(error) if session.shown_url in str(error) else f"{session.shown_url}: {error}"
    if "uthentication required" in text or "refused the login" in text:
        return Check("server", "bad", text, "put user and password into the address: redis://USER:PASSWORD@HOST:PORT/0")
    return Check("server", "bad", text, "is the address right, and does the server run?")


def _lines(checks: list[Check]) -> Iterator[Text]:
    for check in checks:
        word, style = _MARKS[check.verdict]
        yield Text.assemble((f"{word:<6}", style), (f"{check.name:<17}", "bold"), visible(check.text))
        if check.advice and check.verdict != "ok":
            yield Text(f"{'':<23}→ {visible(check.advice)}")
