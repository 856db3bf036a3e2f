"""``henchman top``: what the jobs do, in a terminal. The same facts, words and acts as the console."""

from __future__ import annotations

from typing import Any

from henchman.client.runtime import Runtime
from henchman.errors import ConfigError

__all__ = ["load"]


def load(runtime: Runtime, label: str, *, may_act: bool, every: float, author: str = "") -> Any:
    """The ``top.screen.Top`` of these settings, imported now; its ``run()`` shows it until ``q``. ``author``: who acts.
    ConfigError when the extra is missing."""
    try:
        from henchman.top.screen import Top
    except ModuleNotFoundError as error:
        text = f"henchman top needs the extra top ({error.name} is missing): pip install 'henchman[top]'"
        raise ConfigError(text) from error
    return Top(runtime, label, may_act=may_act, every=every, author=author)
