"""Delays as pure functions of a count."""

from __future__ import annotations

import random

__all__ = ["capped_backoff", "retry_delay"]

_MOST = 300  # failures: the next try is 257 years away, and a count may come from anybody


def retry_delay(count: int) -> float:
    """Seconds until retry number ``count + 1``: ``count**4 + 15`` plus jitter in [0, 10*(count+1)) (Sidekiq 8).

    It grows no more after 300 failures.
    """
    count = min(count, _MOST)
    return count**4 + 15 + random.randrange(10 * (count + 1))  # noqa: S311 - spreads load, hides nothing


def capped_backoff(failures: int, *, first: float = 0.1, most: float = 30.0) -> float:
    """Seconds to wait after ``failures`` failures in a row: doubles from ``first`` to ``most``, plus up to 20 %."""
    base: float = min(most, first * 2.0 ** min(failures, 30))
    return base * (1 + random.random() / 5)  # noqa: S311
