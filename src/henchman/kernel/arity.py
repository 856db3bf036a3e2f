"""How much a function of somebody else's wants to be told."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["takes"]


def takes(function: Any, most: int) -> int:
    """How many of ``most`` positional arguments ``function`` takes; 1 when that cannot be seen."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return most
    return min(most, sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters))
