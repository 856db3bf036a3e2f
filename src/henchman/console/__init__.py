"""The console: what the jobs do, in a browser. ``app.console()`` is the application, ``henchman web`` serves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from henchman.client.runtime import Runtime
from henchman.errors import ConfigError

__all__ = ["consoles", "load"]


def consoles(named: Mapping[str, Any]) -> Any:
    """Several consoles as one ASGI application: ``consoles({"eu": eu.console(), "us": us.console()})``. Each is below
    ``/@name/``, with a server, passwords and rights of its own, and shows the names of the others; any other address
    leads to the first. ConfigError for a name that cannot stand in an address."""
    from henchman.console.several import Consoles

    return Consoles(named)


def load(runtime: Runtime, label: str, tone: str, *, authorize: Any, secret: str | None, read_only: bool) -> Any:
    """The ``console.site.Console`` of these settings, imported now. ConfigError when the extra is missing, or for a
    value that makes no sense."""
    try:
        from henchman.console.guard import Access
        from henchman.console.site import Console
    except ModuleNotFoundError as error:
        text = f"the console needs the extra web ({error.name} is missing): pip install 'henchman[web]'"
        raise ConfigError(text) from error
    config = runtime.config
    passwords = (None, None) if authorize else (config.console_password, config.console_look_password)
    return Console(runtime, Access(*passwords, authorize, secret, read_only=read_only), label, tone)
