"""How one setting is declared: default, kind and help on one line of the class that holds it."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from henchman.config_sources import Kind

__all__ = ["key"]


def key(default: Any, kind: Kind, help: str) -> Any:
    """A dataclass field. A default that is a dict is made anew for each, and left out of the hash."""
    if isinstance(default, dict):
        return field(default_factory=dict, hash=False, metadata={"kind": kind, "help": help})
    return field(default=default, metadata={"kind": kind, "help": help})
