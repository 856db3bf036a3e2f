"""``henchman web``: the console in a browser."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import click

from henchman.cli.session import Session, command, settings_of
from henchman.cli.show import say
from henchman.errors import ConfigError, HenchmanError

__all__ = ["web"]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@command()
@click.argument("target", required=False, metavar="[pkg.mod:app]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=7080, show_default=True, help="The port; 0: a free one.")
@click.option("--read-only", is_flag=True, help="Nobody may act, whatever the password.")
@click.option("--label", default="", metavar="TEXT", help="The name of this deployment, shown on every page.")
@click.option("--tone", type=click.Choice(["production", "staging", "development"]), help="The colour of the label.")
@click.option("--root-path", default="", metavar="PATH", help="The path under which a proxy serves the console.")
def web(session: Session, target: str | None, host: str, port: int, root_path: str, **given: Any) -> None:
    """Serve the console until Ctrl-C: what the jobs do, in a browser.

    It needs no app; with one, what its jobs call secret is hidden. On this machine alone it asks for no password unless
    one is set; on any other address it needs console_password (whoever has it may act) or console_look_password (may
    only look).
    """
    if target is not None:
        settings_of(click.get_current_context())["app"] = target
    app = session.any_app
    if not _is_loopback(host) and not app.config.console_password and not app.config.console_look_password:
        raise ConfigError(
            f"--host {host} opens the console to others: set console_password (HENCHMAN_CONSOLE_PASSWORD) first, or "
            "serve it on 127.0.0.1"
        )
    made = app.console(read_only=given["read_only"], label=given["label"], tone=given["tone"] or "")
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
