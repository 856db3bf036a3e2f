"""The console: what the jobs do, in a browser. ``app.console()`` is the application, ``henchman web`` serves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from henchman.client.runtime import Runtime
from henchman.errors import ConfigError

__all__ = ["load"]


def load(
    runtime: Runtime,
    label: str,
    tone: str,
    *,
    authorize: Any,
    secret: str | None,
    read_only: bool,
    beside: Mapping[str, Any] | None,
) -> Any:
    """The ``console.site.Console`` of these settings, imported now; ``console.several.Consoles`` with others ``beside``
    it. ConfigError when the extra is missing, or for a value that makes no sense."""
    try:
        from henchman.console.guard import Access
        from henchman.console.several import Consoles
        from henchman.console.site import Console
    except ModuleNotFoundError as error:
        text = f"the console needs the extra web ({error.name} is missing): pip install 'henchman[web]'"
        raise ConfigError(text) from error
    config = runtime.config
    passwords = (None, None) if authorize else (config.console_password, config.console_look_password)
    made = Console(runtime, Access(*passwords, authorize, secret, read_only=read_only), label, tone)
    return Consoles(made, beside) if beside else made
