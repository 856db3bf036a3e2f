"""JSON for programs that may be written in anything: ASCII, and no number that JSON does not have."""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["as_json"]


def as_json(value: Any) -> bytes:
    """Plain values as JSON in ASCII, all other characters escaped. NaN and infinities become null."""
    try:
        return _written(value)
    except ValueError:
        return _written(_finite(value))


def _written(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
