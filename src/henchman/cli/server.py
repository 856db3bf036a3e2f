"""``henchman server start|stop|status|url``: the embedded server by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from henchman.config import Config
from henchman.embedded.server import EmbeddedServer, ServerStatus
from henchman.errors import EmbeddedServerError
from henchman.kernel.text import visible

__all__ = ["server"]

NOT_RUNNING = 3  # the exit status that service managers use for it


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
    context.obj = EmbeddedServer(
        folder or Config.load().server_folder(), report=lambda line: click.echo(line, err=True)
    )


@server.command()
@click.pass_obj
def start(embedded: EmbeddedServer) -> None:
    """Start it, to stay up until `henchman server stop`."""
    try:
        url = embedded.start()
    except EmbeddedServerError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"running at {visible(url)}")


@server.command()
@click.option("--force", is_flag=True, help="Stop it although processes use it; they start it again when they need it.")
@click.pass_obj
def stop(embedded: EmbeddedServer, force: bool) -> None:
    """Stop it; its data stay. Refused while processes use it."""
    try:
        stopped = embedded.stop(force=force)
    except EmbeddedServerError as error:
        raise click.ClickException(str(error)) from error
    click.echo("stopped; its data stay" if stopped else "it was not running")


@server.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_obj
def status(embedded: EmbeddedServer, as_json: bool) -> None:
    """Say how it is. Exit status 0: running; 3: not running."""
    try:
        now = embedded.status()
    except EmbeddedServerError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({**now._asdict(), "running": now.running}))
    else:
        click.echo("\n".join(_lines(now)))
    if not now.running:
        sys.exit(NOT_RUNNING)


@server.command()
@click.pass_obj
def url(embedded: EmbeddedServer) -> None:
    """Print its URL and nothing else. Exit status 3: not running."""
    try:
        found = embedded.find()
    except EmbeddedServerError as error:
        raise click.ClickException(str(error)) from error
    if found is None:
        click.echo(f"no server is running in {visible(str(embedded.folder))}; henchman server start", err=True)
        sys.exit(NOT_RUNNING)
    click.echo(found)


def _lines(now: ServerStatus) -> list[str]:
    words = {
        "running": "running",
        "loading": "running, loading its data",
        "silent": "its process lives, but does not answer",
        "stopped": "not running",
    }
    facts = [
        ("state", words[now.state] + (" (stays up without users)" if now.kept and now.running else "")),
        ("folder", now.folder),
        ("url", now.url),
        ("pid", now.pid),
        ("server", now.server),
        ("uptime", None if now.uptime is None else f"{now.uptime} s"),
        ("users", now.users if now.running else None),
        ("data", f"{now.data_bytes:,} bytes"),
        ("log", now.log if now.state != "stopped" else None),
    ]
    return [f"{name:<8}{visible(str(value))}" for name, value in facts if value is not None]
