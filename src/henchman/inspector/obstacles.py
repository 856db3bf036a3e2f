"""Why a job does not run: what it needs, what of that it has, and what it lacks; and all of it in one sentence."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from henchman.inspector.base import Mask
from henchman.inspector.blocked import Blocker, find_blocked
from henchman.inspector.jobs import JobStatus
from henchman.inspector.processes import ALIVE, ProcessState, Work, list_processes, living, look_at_fleet
from henchman.inspector.queues import why_paused
from henchman.kernel.figures import span
from henchman.kernel.text import count, shorten
from henchman.store import leases, ordered_people, queues
from henchman.store.call import Procedure, ask, side_by_side
from henchman.store.keys import Keys
from henchman.wire import times

__all__ = ["Explanation", "Obstacle", "explained", "obstacles"]

SILENT = 12.0  # seconds without a heartbeat, which comes each 5 s, after which a process may be dead
RESCUE = 15.0  # seconds for which another process watches a lease that ran out before it believes it


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


# ---- in one sentence


class Explanation(NamedTuple):
    """Why a job does not run, or what became of it, in a sentence; and the ``command`` that would change it, "" where
    none does: it ends by itself, or has ended."""

    text: str
    command: str = ""

    @property
    def whole(self) -> str:
        """Both, once."""
        return f"{self.text}: {self.command}" if self.command and self.command not in self.text else self.text


def explained(keys: Keys, status: JobStatus, max_retries: int, mask: Mask | None = None) -> Procedure[Explanation]:
    """The one thing that holds a job up: of several the first that has to go."""
    now = time.time()
    if status.state == "working":
        return (yield from _running(keys, status, now))
    if status.state == "blocked":
        return (yield from _blocked(keys, status, mask))
    if status.state == "dead":
        error = f": {_error(status)}" if status.error else ""
        way = f"henchman batch retry {status.kept_by}" if status.kept_by else f"henchman dead retry {status.jid}"
        return Explanation(f"dead since {times.iso(status.at)}, and not tried again by itself{error}", way)
    if status.state == "unknown" and status.queue:
        ordered: list[str] = yield ordered_people.names(keys)
        way = f"henchman ordered show {status.queue}" if status.queue in ordered else ""
        return Explanation(status.text, way)
    if status.state not in _WAITS:
        return Explanation(status.text)
    if status.at is not None and status.state != "enqueued":
        return (yield from _later(keys, status, max_retries, now))
    return (yield from _in_queue(keys, status, now, mask))


def _error(status: JobStatus) -> str:
    return shorten(": ".join(part for part in status.error or () if part), 200)


def _in_queue(keys: Keys, status: JobStatus, now: float, mask: Mask | None) -> Procedure[Explanation]:
    queue = status.queue or "default"
    place = f", number {status.position:,}" if status.position else ""
    paused, fleet = yield from side_by_side(ask(queues.pauses(keys)), look_at_fleet(keys, mask))
    if queue in paused:
        said = why_paused(paused[queue], now)
        text = f"queue {queue} is paused{f' ({said})' if said else ''}, and it waits there{place}"
        return Explanation(text, f"henchman queues unpause {queue}")
    more, serving = f"henchman work -q {queue}", [one for one in fleet.processes if queue in one.queues]
    alive = living(serving, now)
    free = [one for one in alive if not one.quiet]
    if not alive:
        heard = min((one.beat_age(now) or 0.0 for one in serving), default=None)
        last = "" if heard is None else f" (the last one was heard of {span(heard)} ago)"
        return Explanation(f"no worker serves queue {queue}, where it waits{place}{last}", more)
    if not free:
        text = f"all workers of queue {queue} were told to take no new jobs, and it waits there{place}"
        return Explanation(text, more)
    slots, busy = sum(one.concurrency for one in free), sum(one.busy for one in free)
    if busy >= slots:
        theirs = {one.identity for one in free}
        longest = next((one for one in fleet.work if one.identity in theirs), None)
        with_what = _longest(longest, now)
        which = (
            "the one slot that serves queue {} is" if slots == 1 else f"all {slots:,} slots that serve queue {{}} are"
        )
        text = f"{which.format(queue)} busy{with_what}; it waits there{place}"
        return Explanation(text, more)
    if status.position is None or status.position > 1:
        before = f": {count(status.position - 1, 'job')} before it" if status.position else ""
        return Explanation(f"waiting in queue {queue}{place}{before}, and slots are free")
    return Explanation(f"next to run in queue {queue}, where a slot is free: it starts in a moment")


def _longest(one: Work | None, now: float) -> str:
    if one is None:
        return ""
    since = f" for {span(now - one.run_at)}" if one.run_at else ""
    return f", the longest with {shorten(one.entry.name, 80)} (job {one.entry.jid}){since}"


def _later(keys: Keys, status: JobStatus, max_retries: int, now: float) -> Procedure[Explanation]:
    """Of a job that waits for a time."""
    at = status.at or now
    which = "scheduled" if status.state == "scheduled" else "retries"
    retry = status.entry.job.get("retry") if status.entry else None
    most = retry if type(retry) is int else max_retries
    after = f", after {_error(status)}" if status.error else ""
    what = "" if which == "scheduled" else f"retry {status.attempts:,} of {most:,}{after}, "
    if at > now:
        text = f"{what}{'scheduled' if not what else 'comes'} for {times.iso(at)}, in {span(at - now)}"
        text = text.replace("comes for", "comes at")
        return Explanation(text, f"henchman {which} retry {status.jid}")
    alive = [one for one in living((yield from list_processes(keys)), now) if one.ours]
    due = f"{what}due since {times.iso(at)}"
    if alive:
        return Explanation(f"{due}: a worker moves it to queue {status.queue or 'default'} in a moment")
    return Explanation(f"{due}, and no worker is alive to move it", f"henchman work -q {status.queue or 'default'}")


def _running(keys: Keys, status: JobStatus, now: float) -> Procedure[Explanation]:
    """Of a job that a process has: it runs, or its process is gone."""
    identity = status.process or ""
    held, processes = yield from side_by_side(ask(leases.holding(keys, identity)), list_processes(keys))
    state = next((one for one in processes if one.identity == identity), None)
    if state is not None and not state.ours:
        return Explanation(status.text, f"henchman cancel {status.jid}")
    beat = None if state is None else state.beat_age(now)
    others = [one for one in living(processes, now) if one.ours and one.identity != identity]
    rescue = "another process gives it back" if others else "no other worker is alive to give it back"
    way = "" if others else f"henchman work -q {status.queue or 'default'}"
    if held.entombed or held.lease is None:
        soon = f" within {span(RESCUE)}" if others else ""
        return Explanation(f"in flight of {identity}, which is dead: {rescue}{soon}", way)
    if beat is None or beat > SILENT:
        heard = "has no record" if beat is None else f"was last heard of {span(beat)} ago"
        soon = f" within {span(held.lease + RESCUE)}" if others else ""
        return Explanation(f"in flight of {identity}, which {heard}: {rescue}{soon} unless it is back", way)
    if status.started_at is None:
        return Explanation(
            f"fetched by {identity}: it runs there, or starts in a moment", f"henchman cancel {status.jid}"
        )
    told = ", and was told to stop" if status.cancelled else ""
    way = "" if status.cancelled else f"henchman cancel {status.jid}"
    return Explanation(f"running in {identity} for {span(now - status.started_at)}{told}", way)


def _blocked(keys: Keys, status: JobStatus, mask: Mask | None) -> Procedure[Explanation]:
    """Its sentence has the way out where it is stuck; else this one does not wait for what others do."""
    found = yield from find_blocked(keys, status.jid, mask)
    if found is None:  # it waits for the release of its batch
        return Explanation(status.text, f"henchman batch close {status.kept_by}" if status.kept_by else "")
    if found.lock is not None and found.lock.state != "free":
        return Explanation(status.text, f"henchman cancel {found.lock.jid}")
    return Explanation(status.text, f"henchman release {status.jid}" if found.waits_for and not found.lock else "")
