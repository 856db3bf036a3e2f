"""The app's way into this room, and the figures of the whole system in a handful of calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from henchman.client.runtime import Runtime
from henchman.inspector.base import Inspector
from henchman.inspector.entry import Mask
from henchman.inspector.jobs import JobStatus, find_job
from henchman.inspector.ordered import OrderedQueues, all_ordered_stats
from henchman.inspector.ordered_id import OrderedStats
from henchman.inspector.processes import Processes, ProcessState, Running, Work, list_processes, list_work
from henchman.inspector.queues import Queues, QueueState, list_queues
from henchman.inspector.sets import JobSet, SetName
from henchman.store import metrics
from henchman.store.call import Call
from henchman.store.keys import Keys
from henchman.store.procedure import Procedure, awaited, now
from henchman.wire import times

__all__ = ["Inspection", "Overview", "Stats", "overview", "rates"]

T = TypeVar("T")

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


class _Late:
    """A runner that asks the app for its connections with each call: the app may have been closed meanwhile."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    def run(self, call: Call[T]) -> Any:
        """As the app's own."""
        return self._connect().run(call)


class Inspection(Inspector):
    """Everything of one app that people look at and change. What a registered job declares as secret is masked."""

    def __init__(self, runtime: Runtime) -> None:
        self._access = (
            _Late(lambda: runtime.connections),
            runtime.keys,
            runtime.registry.mask,
            _Late(lambda: runtime.aconnections),
        )
        super().__init__(*self._access)
        self._config = runtime.config

    @property
    def queues(self) -> Queues:
        """All queues."""
        return Queues(*self._access)

    @property
    def ordered_queues(self) -> OrderedQueues:
        """All ordered queues."""
        return OrderedQueues(*self._access)

    @property
    def processes(self) -> Processes:
        """All worker processes."""
        return Processes(*self._access)

    @property
    def work(self) -> Running:
        """The running jobs."""
        return Running(*self._access)

    def job_set(self, which: SetName) -> JobSet:
        """One of the three sets."""
        return JobSet(self._runner, self._keys, self._config, which, self._mask, self._arunner)

    @now
    def stats(self) -> Procedure[Stats]:
        """The counts as they are now."""
        return (yield from overview(self._keys)).stats

    @now
    def job_status(self, jid: str, queue: str | None = None) -> Procedure[JobStatus]:
        """Where a job is; ``queue`` is looked at first."""
        return find_job(self._keys, jid, queue, mask=self._mask)

    astats = awaited(stats)
    ajob_status = awaited(job_status)
