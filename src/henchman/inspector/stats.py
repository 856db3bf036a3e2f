"""The figures of the whole system, in a handful of calls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from henchman.inspector.entry import Mask
from henchman.inspector.ordered import all_ordered_stats
from henchman.inspector.ordered_id import OrderedStats
from henchman.inspector.processes import ProcessState, Work, list_processes, list_work
from henchman.inspector.queues import QueueState, list_queues
from henchman.store import metrics
from henchman.store.keys import Keys
from henchman.store.procedure import Procedure
from henchman.wire import times

__all__ = ["Overview", "Stats", "overview", "rates"]

ALIVE = 60.0  # seconds: a process that was not heard of for longer counts no more
LATE = 60.0  # seconds after its time at which a scheduled job or retry is overdue


class Stats(NamedTuple):
    """Counts. ``default_latency``: seconds that the next job of the queue ``default`` has waited, None when unknown.

    ``overdue``: scheduled jobs and retries that should have been put into their queues a minute ago. ``ordered``: ids
    that wait in ordered queues, ``ordered_busy``: that are in flight, ``morgue``: that lie in their morgues.
    """

    processed: int
    failed: int
    processed_today: int
    failed_today: int
    enqueued: int
    scheduled: int
    retries: int
    dead: int
    processes: int
    busy: int
    default_latency: float | None
    overdue: int
    ordered: int = 0
    ordered_busy: int = 0
    morgue: int = 0


class Overview(NamedTuple):
    """Everything at one moment (``at``, Unix seconds): counts, queues of both kinds, living processes, running jobs."""

    at: float
    stats: Stats
    queues: list[QueueState]
    processes: list[ProcessState]
    work: list[Work]
    ordered: list[OrderedStats]


def overview(keys: Keys, mask: Mask | None = None) -> Procedure[Overview]:
    """Everything as it is now."""
    at = time.time()
    figures: metrics.Figures = yield metrics.figures(keys, times.day(at), at - LATE)
    queues = (yield from list_queues(keys, at=at)).states
    processes = [one for one in (yield from list_processes(keys)) if (one.beat_age(at) or 0.0) <= ALIVE]
    work = yield from list_work(keys, mask)
    ordered = yield from all_ordered_stats(keys)
    counts = Stats(
        **figures._asdict(),
        enqueued=sum(one.size or 0 for one in queues),
        processes=len(processes),
        busy=sum(one.busy for one in processes),
        default_latency=next((one.latency for one in queues if one.name == "default"), 0.0),
        ordered=sum(one.length for one in ordered),
        ordered_busy=sum(one.busy for one in ordered),
        morgue=sum(one.morgue_length for one in ordered),
    )
    return Overview(at, counts, queues, processes, work, ordered)


def rates(before: Overview, now: Overview) -> Mapping[str, float]:
    """Jobs a second between two looks: processed and failed. Zero when a counter was set back, or no time passed."""
    seconds = now.at - before.at
    if seconds <= 0:
        return {"processed": 0.0, "failed": 0.0}
    return {
        name: max(getattr(now.stats, name) - getattr(before.stats, name), 0) / seconds
        for name in ("processed", "failed")
    }
