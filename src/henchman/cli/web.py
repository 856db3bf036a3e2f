"""``henchman web``: the console in a browser."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import Any, Final

import click

from henchman.app import App
from henchman.cli.session import Session, command, settings_of
from henchman.cli.show import say
from henchman.errors import ConfigError, HenchmanError
from henchman.kernel.text import visible
from henchman.supervisor.load import load_app

__all__ = ["web"]

_TONES: Final = ("production", "staging", "development")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _also(said: str, app: App) -> tuple[str, App]:
    """The name and the app of another console. One of a server alone takes the passwords of the first, and has no
    history: the database that settings name is that of the first."""
    name, equals, where = said.partition("=")
    if not (name and equals and where):
        raise click.UsageError(f"--also {visible(said)}: say NAME=pkg.mod:app, or NAME=redis://host:6379/0")
    if "://" not in where:
        return name, load_app(where)
    passwords = {one: getattr(app.config, one) for one in ("console_password", "console_look_password")}
    other = App(redis_url=where, history="off", **passwords)
    click.get_current_context().call_on_close(other.close)
    return name, other


def _tone(name: str) -> Any:
    """A console that is called like one of the tones has it."""
    return name if name in _TONES else ""


@command()
@click.argument("target", required=False, metavar="[pkg.mod:app]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=7080, show_default=True, help="The port; 0: a free one.")
@click.option("--read-only", is_flag=True, help="Nobody may act, whatever the password.")
@click.option("--label", default="", metavar="TEXT", help="The name of this deployment, shown on every page.")
@click.option("--tone", type=click.Choice(_TONES), help="The colour of the label.")
@click.option(
    "--also",
    multiple=True,
    metavar="NAME=WHERE",
    help="Another console beside it, below /@NAME/: of a pkg.mod:app, or of the server at an address. May be repeated.",
)
@click.option("--root-path", default="", metavar="PATH", help="The path under which a proxy serves the console.")
def web(
    session: Session, /, target: str | None, host: str, port: int, root_path: str, also: Sequence[str], **given: Any
) -> None:
    """Serve the console until Ctrl-C: what the jobs do, in a browser.

    It needs no app; with one, what its jobs call secret is hidden. On this machine alone it asks for no password unless
    one is set; on any other address it needs console_password (whoever has it may act) or console_look_password (may
    only look).
    """
    if target is not None:
        settings_of(click.get_current_context())["app"] = target
    app = session.any_app
    others = dict(_also(one, app) for one in also)
    if len(others) < len(also):
        raise click.UsageError("--also: each name once")
    for one in (app, *others.values()):
        if not _is_loopback(host) and not one.config.console_password and not one.config.console_look_password:
            raise ConfigError(
                f"--host {host} opens the console to others: set console_password (HENCHMAN_CONSOLE_PASSWORD) first, "
                "or serve it on 127.0.0.1"
            )
    read_only: bool = given["read_only"]
    beside: Any = {name: one.console(read_only=read_only, tone=_tone(name)) for name, one in others.items()}
    made = app.console(read_only=read_only, label=given["label"], tone=given["tone"] or "", beside=beside)
    listening = _bound(host, port)
    shown = listening.getsockname()
    where = f"[{shown[0]}]" if ":" in shown[0] else shown[0]
    say(f"The console of {session.shown_url}: http://{where}:{shown[1]}{root_path}/  (Ctrl-C ends it)")
    made.serve(listening, root_path)


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens there; HenchmanError when it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(1024)  # whoever reads the address may come at once
    except OSError as error:
        raise HenchmanError(f"cannot listen on {host}, port {port}: {error.strerror or error}; give --port") from error
    return made
