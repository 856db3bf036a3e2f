"""Numbers, sizes, lengths and moments as the console and ``henchman top`` show them."""

from __future__ import annotations

import datetime as dt

__all__ = ["figure", "since", "size", "span", "utc"]


def figure(number: float | None) -> str:
    """A number with its thousands apart; ``–`` for None. A whole one is exact, however large."""
    if number is None:
        return "–"
    return f"{number:,}" if isinstance(number, int) else f"{number:,.0f}"


def span(seconds: float | None) -> str:
    """``40 ms``, ``1.2 s``, ``3 min 12 s``, ``2 h 10 min``, ``5 d 3 h``."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for size, unit, less, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = int(seconds % size // less)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{seconds:.0f} s"


def size(bytes: int) -> str:
    """``512 bytes``, ``1.5 MB``."""
    for limit, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if bytes >= limit:
            return f"{bytes / limit:.1f} {unit}" if bytes < 10 * limit else f"{bytes / limit:,.0f} {unit}"
    return f"{bytes} bytes"


def since(at: float | None, now: float) -> str:
    """``4 min ago``, ``in 3 min``."""
    if at is None:
        return "–"
    away = at - now
    if abs(away) < 1:
        return "now"
    return f"in {span(away)}" if away > 0 else f"{span(-away)} ago"


def utc(at: float | None) -> str:
    """A time as people read it."""
    try:
        moment = None if at is None else dt.datetime.fromtimestamp(at, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{at!r}"
    return "–" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S UTC")
