"""The figures of ordered queues in Lowkiq's shapes, for monitors that were made for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from henchman.inspector.ordered_id import OrderedStats

__all__ = ["dashboard", "lowkiq_stats"]


def lowkiq_stats(queues: Sequence[OrderedStats]) -> dict[str, Any]:
    """``/api/v1/stats``: length, morgue_length and lag (seconds) of each queue; in total the sums, and the longest lag.

    Where Lowkiq has the name of a worker stands that of its queue, which is the same there unless somebody said else.
    """
    return {
        "total": {
            "length": sum(one.length for one in queues),
            "morgue_length": sum(one.morgue_length for one in queues),
            "lag": max((one.lag for one in queues), default=0.0),
        },
        "by_worker": {
            one.name: {"length": one.length, "morgue_length": one.morgue_length, "lag": one.lag} for one in queues
        },
    }


def dashboard(queues: Sequence[OrderedStats]) -> dict[str, Any]:
    """The ``queues`` of ``/api/web/dashboard``."""
    return {
        "queues": [
            {
                "name": one.name,
                "lag": one.lag,
                "processed": one.processed,
                "failed": one.failed,
                "busy": one.busy,
                "enqueued": one.length,
                "fresh": one.fresh,
                "retries": one.retries,
                "dead": one.morgue_length,
            }
            for one in queues
        ]
    }
