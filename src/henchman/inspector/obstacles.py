"""Why a job does not run: what it needs, what of that it has, and what it lacks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from henchman.inspector.base import Mask
from henchman.inspector.blocked import Blocker, find_blocked
from henchman.inspector.jobs import JobStatus
from henchman.inspector.processes import ALIVE, ProcessState, list_processes
from henchman.inspector.queues import why_paused
from henchman.store import queues
from henchman.store.call import Procedure, ask, side_by_side
from henchman.store.keys import Keys
from henchman.wire import times

__all__ = ["Obstacle", "obstacles"]


class Obstacle(NamedTuple):
    """One thing that a job needs to run: ``fine``: it has it. ``about``: the page it leads to, as "queues", "busy", and
    ``name``; or the ``blocker``. ``advice``: what changes it."""

    fine: bool
    text: str
    about: str = ""
    name: str = ""
    advice: str = ""
    blocker: Blocker | None = None

    @property
    def is_pause(self) -> bool:
        """Whether somebody paused its queue."""
        return self.about == "queues" and bool(self.advice)


_WAITS = ("enqueued", "scheduled", "retrying")


def obstacles(keys: Keys, status: JobStatus, mask: Mask | None = None) -> Procedure[list[Obstacle]]:
    """Why a job does not run: everything that it needs, what it has and what it lacks. Nothing of a job that runs, or
    has ended."""
    if status.state == "blocked":
        told = yield from find_blocked(keys, status.jid, mask)
        waits = told.waits_for if told else ()
        remedy = [one.remedy if one.is_stuck and one.state == "dead" else "" for one in waits]
        pairs = zip(waits, remedy, strict=True)
        return [Obstacle(False, f"It waits for {one.clause()}", advice=advice, blocker=one) for one, advice in pairs]
    if status.state not in _WAITS:
        return []
    queue, now = status.queue or "default", time.time()
    found = [] if status.at is None else [_time_comes(status.at, now)]
    paused, processes = yield from side_by_side(ask(queues.pauses(keys)), list_processes(keys))
    if queue in paused:
        why = why_paused(paused[queue], now)
        text = f"Queue {queue} is paused{f' ({why})' if why else ''}"
        found.append(Obstacle(False, text, "queues", queue, f"henchman queues unpause {queue}"))
    else:
        found.append(Obstacle(True, f"Queue {queue} is not paused", "queues", queue))
    found.append(_slots(queue, processes, now))
    if status.position:
        before = status.position - 1
        text = f"{before:,} {'job is' if before == 1 else 'jobs are'} before it" if before else "It is the next one"
        found.append(Obstacle(not before, text, "queues", queue))
    return found


def _time_comes(at: float, now: float) -> Obstacle:
    if at > now:
        return Obstacle(False, f"It waits for its time, {times.iso(at)}")
    return Obstacle(at > now - 5, "Its time has come", "busy", advice="any worker that is alive moves it")


def _slots(queue: str, processes: Sequence[ProcessState], now: float) -> Obstacle:
    """Whether somebody serves a queue, and has room."""
    serving = [one for one in processes if queue in one.queues and not one.quiet]
    serving = [one for one in serving if (one.beat_age(now) or 0.0) <= ALIVE]
    slots, busy = sum(one.concurrency for one in serving), sum(one.busy for one in serving)
    if not serving:
        return Obstacle(False, f"No worker serves queue {queue}", "busy", advice=f"henchman work -q {queue}")
    if busy >= slots:
        return Obstacle(False, f"All {slots:,} slots that serve queue {queue} are busy", "busy")
    return Obstacle(True, f"{slots - busy:,} of {slots:,} slots that serve queue {queue} are free", "busy")
