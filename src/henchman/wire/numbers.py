"""Numbers out of payloads, bounded where they are read: any client may have written anything.

JSON holds integers of thousands of digits and floats up to 1.8e308. Beyond these bounds our arithmetic overflows, the
C code that writes to the server ends the process, and SQL and Ruby's pages refuse the row.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["LONGEST", "MOST", "count", "seconds"]

LONGEST: Final = 9e9  #: seconds, 285 years; the longest wait that threads accept is a little more
MOST: Final = 10**9  #: of what is counted: it fits 32 bits


def count(value: Any) -> int | None:
    """``value`` as a count from -1 to 1,000,000,000, cut to that; None for what is no integer.

    -1 is a ``retry_count`` too: Sidekiq takes one off for a retry by hand, so that this run is free.
    """
    return min(max(value, -1), MOST) if type(value) is int else None


def seconds(value: Any) -> float | None:
    """``value`` as a duration in seconds from -9e9 to 9e9, cut to that; None for what is no number."""
    if type(value) not in (int, float) or value != value:
        return None
    return float(min(max(value, -LONGEST), LONGEST))
