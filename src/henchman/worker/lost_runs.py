"""Runs of a host that is gone: what ran there, and since when, by the last record of its process; and the time-outs
that nobody was left to enforce.

A run whose time was over before its lease ran out is ended as one that timed out: an attempt is spent, or a job that
always hangs its host would run for ever. All others go back to their queues.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from henchman.client.runtime import Runtime
from henchman.config.defaults import timeouts_of
from henchman.errors import JobDeadline, JobTimeout, PayloadError
from henchman.store import jobs, leases
from henchman.store.queues import list_page
from henchman.wire import payload, times
from henchman.wire.deadlines import deadline_of
from henchman.work.effects import batch_of, encoded, facts_of
from henchman.work.unit import InFlightList, Row, Unit
from henchman.worker.retry import RetryPolicy

__all__ = ["Count", "LostRun", "LostRuns", "uncounted"]

PAGE: Final = 500


class LostRun(NamedTuple):
    """Where a job ran, and since when, by the server's clock."""

    process: str
    thread: str
    started: float

    def facts(self) -> dict[str, Any]:
        """For the history of its job."""
        host, _, pid = self.process.rpartition(":")[0].rpartition(":")
        return {"host": host, "pid": pid, "thread": self.thread, "ran_since": round(self.started, 3)}


class _Row(msgspec.Struct):
    payload: str
    run_at: float


Count = Callable[[Sequence[Row]], object]


def uncounted(rows: Sequence[Row]) -> None:
    """Nobody counts them."""


class LostRuns:
    """What the process ``identity`` ran when it was heard of last: ``by_jid``. It lived until ``alive`` at least.
    ``count`` adds what is ended here to the figures of this process."""

    def __init__(self, runtime: Runtime, identity: str, count: Count = uncounted) -> None:
        self._runtime = runtime
        self._count = count
        facts, work = runtime.connections.run(leases.record(runtime.keys, identity))
        ahead, beat = (_number(facts.get(name)) for name in ("skew", "beat"))
        self.alive = beat + runtime.config.lease if beat else 0.0
        self.by_jid: dict[str, LostRun] = {}
        for thread, row in work.items():
            with contextlib.suppress(msgspec.MsgspecError, PayloadError):  # written by somebody else
                told = msgspec.json.decode(row, type=_Row)
                jid = payload.decode(told.payload.encode()).get("jid")
                self.by_jid[str(jid)] = LostRun(identity, thread, told.run_at - ahead)

    def facts_of(self, stored: bytes) -> Mapping[str, Any]:
        """Where the job of a payload ran; nothing is known of one that had not started."""
        if not self.by_jid:
            return {}
        try:
            run = self.by_jid.get(str(payload.decode(stored).get("jid")))
        except PayloadError:
            return {}
        return {} if run is None else run.facts()

    def time_out(self, flight: str) -> int:
        """End those runs of an in-flight list whose time was over before its process was lost; how many."""
        runtime, ended, place = self._runtime, 0, 0
        if not self.by_jid or runtime.keys.is_held(flight):
            return 0
        while (page := runtime.connections.run(list_page(flight, place, PAGE))).looked:
            place += page.looked
            for stored in page.payloads:
                with contextlib.suppress(PayloadError):
                    gone = self._end(flight, stored)
                    ended, place = ended + gone, place - gone  # what stood behind it has moved up
        return ended

    def _end(self, flight: str, stored: bytes) -> int:
        runtime, job = self._runtime, payload.decode(stored)
        queue, run = runtime.keys.queue_of_flight(flight), self.by_jid.get(str(job.get("jid")))
        error = None if run is None else self._over(job, queue, run)
        if run is None or error is None:
            return 0
        known = runtime.registry.find(job["class"])
        unit = Unit(stored, InFlightList(queue, runtime.keys.queue(queue), flight, run.process, 0), 0.0)
        unit.job = job
        outcome = RetryPolicy(runtime).failed(unit, job, error, None if known is None else known.options)
        batch, facts = batch_of(job) if outcome.ending == "dead" else "", facts_of(unit, outcome, job)
        told = facts._replace(detail={**facts.detail, **run.facts()})
        effects = encoded(runtime.keys, job, "kept" if batch else outcome.ending, told)
        call = jobs.end_lost(
            runtime.keys,
            flight,
            stored,
            outcome,
            batch,
            effects,
            day=times.day(runtime.clock.now()),
            dead_max=runtime.config.dead_max,
            dead_timeout=runtime.config.dead_timeout,
        )
        done = runtime.connections.run(call) == 1
        if done:
            unit.elapsed = max(self.alive - run.started, 0.0)
            self._count([(unit, outcome.ending, outcome.stored, outcome.delay, effects)])
            what = {"jid": job.get("jid"), "class": job["class"], "queue": queue, "cause": outcome.cause}
            runtime.events.emit("charged", text="a job had run out of time on a host that is gone", **what)
        return int(done)

    def _over(self, job: Mapping[str, Any], queue: str, run: LostRun) -> JobTimeout | None:
        """Why its time was over before the process was lost."""
        ours = job.get("hm")
        timeout = payload.seconds(ours.get("timeout")) if isinstance(ours, dict) else None
        if timeout is None:
            known = self._runtime.registry.find(job["class"])
            usual, by_queue = timeouts_of(self._runtime.config, None if known is None else known.options.timeout)
            timeout = by_queue.get(queue, usual)
        ends = run.started + timeout if timeout and timeout > 0 else math.inf
        deadline = deadline_of(job) or math.inf
        if min(ends, deadline) > self.alive:
            return None
        where = f"in {run.process}, which was lost"
        if deadline < ends:
            return JobDeadline(f"its deadline passed while it ran {where}")
        return JobTimeout(f"the job ran longer than its timeout of {timeout:g} s {where}")


def _number(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):  # there was no record, or somebody else's
        return 0.0
