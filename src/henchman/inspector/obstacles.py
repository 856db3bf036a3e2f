"""Why a job does not run: what it needs, what of that it has, and what it lacks; and all of it in one sentence."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import NamedTuple

from henchman.inspector.base import Mask
from henchman.inspector.blocked import Blocker, find_blocked
from henchman.inspector.jobs import JobStatus
from henchman.inspector.pauses import called, go_on, why_paused
from henchman.inspector.processes import ALIVE, QueueService, Work, process_state, who_serves
from henchman.kernel.figures import span
from henchman.kernel.text import count, shorten, visible
from henchman.store import fair, leases, ordered_people, pauses, queues
from henchman.store.call import Procedure, ask, side_by_side
from henchman.store.keys import Keys
from henchman.wire import times
from henchman.work.effects import subjects_of
from henchman.work.limits import has_time, limits_of

__all__ = ["Explanation", "Obstacle", "explained", "explained_with_obstacles", "obstacles"]

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


class SlotsLook(NamedTuple):
    """What a job that waits for a slot depends on, beside itself: the paused queues, and who serves its own; the
    ``pause`` of its batch, its class or a tag, the ``subject``; of a fair queue also the ``line`` it waits in, and its
    ``place`` there, in words."""

    paused: Mapping[str, queues.Pause]
    service: QueueService
    subject: str = ""
    pause: queues.Pause | None = None
    line: str = ""
    place: str = ""

    def stopped(self, queue: str) -> str:
        """What is paused of that which it waits in, the line or the queue; empty: nothing."""
        return next((name for name in (self.line, queue) if name in self.paused), "")


def _ground(keys: Keys, status: JobStatus, mask: Mask | None) -> Procedure[SlotsLook]:
    queue = status.queue or "default"
    subjects = subjects_of(status.entry.job if status.entry else {})
    asked = ask(queues.pauses(keys)), who_serves(keys, queue, mask), ask(fair.names(keys))
    paused, service, fair_ones, held = yield from side_by_side(*asked, ask(pauses.pauses(keys, subjects)))
    subject, pause = next(((one, why) for one, why in zip(subjects, held, strict=True) if why), ("", None))
    if status.state != "enqueued" or queue not in fair_ones:
        return SlotsLook(paused, service, subject, pause)
    return SlotsLook(paused, service, subject, pause, *(yield from _place_in_line(keys, queue, status)))


def _resumed_by(subject: str) -> tuple[str, ...]:
    """The act that lets it go on: page, names and verb."""
    return ("pauses" if ":" in subject else "batches", subject, "resume")


def explained_with_obstacles(
    keys: Keys, status: JobStatus, max_retries: int, mask: Mask | None = None
) -> Procedure[tuple[Explanation, list[Obstacle]]]:
    """``explained`` and ``obstacles`` of one look."""
    ground = (yield from _ground(keys, status, mask)) if status.state in _WAITS else None
    told, found = yield from side_by_side(
        explained(keys, status, max_retries, mask, ground), obstacles(keys, status, mask, ground)
    )
    return told, found


def obstacles(
    keys: Keys, status: JobStatus, mask: Mask | None = None, ground: SlotsLook | None = None
) -> Procedure[list[Obstacle]]:
    """Why a job does not run: everything that it needs, what it has and what it lacks. Nothing of a job that runs, or
    has ended."""
    if status.state == "blocked":
        told = status.blocked or (yield from find_blocked(keys, status.jid, mask))
        waits = told.waits_for if told else ()
        remedy = [one.remedy if one.is_stuck and one.state == "dead" else "" for one in waits]
        pairs = zip(waits, remedy, strict=True)
        return [Obstacle(False, f"It waits for {one.clause()}", advice=advice, blocker=one) for one, advice in pairs]
    if status.state not in _WAITS:
        return []
    queue, now = status.queue or "default", time.time()
    found = [] if status.at is None else [_time_comes(status.at, now)]
    ground = ground or (yield from _ground(keys, status, mask))
    service = ground.service
    if stopped := ground.stopped(queue):
        which = "Queue" if stopped == queue else "Line"
        text = f"{which} {stopped} is paused{_in_brackets(ground.paused[stopped], now)}"
        found.append(Obstacle(False, text, "queues", stopped, f"henchman queues unpause {shlex.quote(stopped)}"))
    else:
        found.append(Obstacle(True, f"Queue {queue} is not paused", "queues", queue))
    if ground.pause is not None:
        text = f"Its {called(ground.subject)} is paused{_in_brackets(ground.pause, now)}"
        page = _resumed_by(ground.subject)[0]
        found.append(Obstacle(False, text, page, "" if page == "pauses" else ground.subject, go_on(ground.subject)))
    found.append(_slots(queue, service))
    if status.position:
        before, whose = status.position - 1, " in the line of its tenant" if ground.line else ""
        text = f"{before:,} {'job is' if before == 1 else 'jobs are'} before it" if before else "It is the next one"
        text += whose
        found.append(Obstacle(not before, text, "queues", queue))
    return found


def _in_brackets(pause: queues.Pause, now: float) -> str:
    why = why_paused(pause, now)
    return f" ({why})" if why else ""


def _time_comes(at: float, now: float) -> Obstacle:
    if at > now:
        return Obstacle(False, f"It waits for its time, {times.iso(at)}")
    return Obstacle(at > now - 5, "Its time has come", "busy", advice="any worker that is alive moves it")


def _slots(queue: str, service: QueueService) -> Obstacle:
    """Whether somebody serves a queue, and has room."""
    slots, busy = service.slots, service.busy
    if not service.free:
        return Obstacle(False, f"No worker serves queue {queue}", "busy", advice=f"henchman work -q {queue}")
    if busy >= slots:
        return Obstacle(False, f"All {slots:,} slots that serve queue {queue} are busy", "busy")
    return Obstacle(True, f"{slots - busy:,} of {slots:,} slots that serve queue {queue} are free", "busy")


# ---- in one sentence


class Explanation(NamedTuple):
    """Why a job does not run, or what became of it, in a sentence; and the ``command`` that would change it, "" where
    none does: it ends by itself, or has ended. ``act``: what does the same by hand: page, names and verb."""

    text: str
    command: str = ""
    act: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """Both, once."""
        return f"{self.text}: {self.command}" if self.command and self.command not in self.text else self.text


def explained(
    keys: Keys, status: JobStatus, max_retries: int, mask: Mask | None = None, ground: SlotsLook | None = None
) -> Procedure[Explanation]:
    """The one thing that holds a job up: of several the first that has to go; and its deadline, if it has one."""
    now, deadline = time.time(), status.entry.deadline if status.entry else None
    found = yield from _explained(keys, status, max_retries, mask, ground, now)
    if deadline is None or status.state not in (*_WAITS, "blocked", "working"):
        return found
    if deadline > now:
        return found._replace(text=f"{found.text}; its deadline is {times.iso(deadline)}, in {span(deadline - now)}")
    return found._replace(text=f"{found.text}; its deadline passed at {times.iso(deadline)}: it is ended, and not run")


def _explained(
    keys: Keys, status: JobStatus, max_retries: int, mask: Mask | None, ground: SlotsLook | None, now: float
) -> Procedure[Explanation]:
    if status.state == "working":
        return (yield from _running(keys, status, now))
    if status.state == "blocked":
        return (yield from _blocked(keys, status, mask))
    if status.state == "dead":
        error = f": {_error(status)}" if status.error else ""
        way = f"henchman batch retry {status.kept_by}" if status.kept_by else f"henchman dead retry {status.jid}"
        act = ("batches", status.kept_by, "retry") if status.kept_by else ("dead", status.jid, "retry")
        return Explanation(f"dead since {times.iso(status.at)}, and not tried again by itself{error}", way, act)
    if status.state == "unknown" and status.queue:
        ordered: list[str] = yield ordered_people.names(keys)
        way = f"henchman ordered show {status.queue}" if status.queue in ordered else ""
        return Explanation(status.text, way)
    if status.state not in _WAITS:
        return Explanation(status.text)
    ground = ground or (yield from _ground(keys, status, mask))
    if status.at is not None and status.state != "enqueued":
        return _later(status, max_retries, now, ground.service)
    return _in_queue(status, now, ground)


def _error(status: JobStatus) -> str:
    return shorten(": ".join(part for part in status.error or () if part), 200)


def _in_queue(status: JobStatus, now: float, ground: SlotsLook) -> Explanation:
    queue, service = status.queue or "default", ground.service
    place = ground.place or (f", number {status.position:,}" if status.position else "")
    if stopped := ground.stopped(queue):
        what = f"queue {queue} is paused" if stopped == queue else f"its tenant is paused in queue {queue}"
        text = f"{what}{_in_brackets(ground.paused[stopped], now)}, and it waits there{place}"
        return Explanation(text, f"henchman queues unpause {shlex.quote(stopped)}", ("queues", stopped, "resume"))
    if ground.pause is not None:
        why = _in_brackets(ground.pause, now)
        text = f"its {called(ground.subject)} is paused{why}, and it waits in queue {queue}{place}"
        return Explanation(text, go_on(ground.subject), _resumed_by(ground.subject))
    more = f"henchman work -q {queue}"
    if not service.alive:
        heard = None if service.heard is None else max(now - service.heard, 0.0)
        last = "" if heard is None else f" (the last one was heard of {span(heard)} ago)"
        return Explanation(f"no worker serves queue {queue}, where it waits{place}{last}", more)
    if not service.free:
        text = f"all workers of queue {queue} were told to take no new jobs, and it waits there{place}"
        return Explanation(text, more)
    slots = service.slots
    if service.busy >= slots:
        with_what = _longest(service.longest, now)
        which = (
            "the one slot that serves queue {} is" if slots == 1 else f"all {slots:,} slots that serve queue {{}} are"
        )
        text = f"{which.format(queue)} busy{with_what}; it waits there{place}"
        return Explanation(text, more)
    if ground.line:
        return Explanation(f"waiting in queue {queue}{place}, and slots are free")
    if status.position is None or status.position > 1:
        before = f": {count(status.position - 1, 'job')} before it" if status.position else ""
        return Explanation(f"waiting in queue {queue}{place}{before}, and slots are free")
    return Explanation(f"next to run in queue {queue}, where a slot is free: it starts in a moment")


def _place_in_line(keys: Keys, queue: str, status: JobStatus) -> Procedure[tuple[str, str]]:
    """The line of a fair queue in which a job waits, and its place there: how many jobs of its tenant go before, and
    how many tenants have their turn before."""
    said = status.entry.job if status.entry else {}
    tenant, level = said.get("fair"), said.get("priority")
    tenant, level = tenant if isinstance(tenant, str) else "", level if level in fair.LEVELS else "normal"
    line = fair.line_name(queue, level, tenant)
    before, many = yield fair.turn_of(keys, queue, level, tenant)
    whose = f"of tenant {shorten(tenant, 60)}" if tenant else "of the jobs without a tenant"
    urgent = "" if level == "normal" else f" with {level} priority"
    if before is None or status.position is None:
        return line, f", next or about to be taken into the line {whose}{urgent}"
    turn = f", whose turn is number {before + 1:,} of {many:,}" if many > 1 else ""
    return line, f", number {status.position:,} {whose}{urgent}{turn}"


def _longest(one: Work | None, now: float) -> str:
    if one is None:
        return ""
    since = f" for {span(now - one.run_at)}" if one.run_at else ""
    return f", the longest with {shorten(one.entry.name, 80)} (job {one.entry.jid}){since}"


def _later(status: JobStatus, max_retries: int, now: float, service: QueueService) -> Explanation:
    """Of a job that waits for a time."""
    at = status.at or now
    which = "scheduled" if status.state == "scheduled" else "retries"
    retry = status.entry.job.get("retry") if status.entry else None
    most = retry if type(retry) is int else max_retries
    after = f", after {_error(status)}" if status.error else ""
    if status.entry and has_time(status.entry.job) and at > now:
        names = ", ".join(one.name for one in limits_of(status.entry.job) if one.kind != "c")
        text = f"its turn under the limit {visible(names)} comes at {times.iso(at)}, in {span(at - now)}"
        return Explanation(text, f"henchman scheduled retry {status.jid}", ("scheduled", status.jid, "retry"))
    what = "" if which == "scheduled" else f"retry {status.attempts:,} of {most:,}{after}, "
    if at > now:
        text = f"{what}{'scheduled' if not what else 'comes'} for {times.iso(at)}, in {span(at - now)}"
        text = text.replace("comes for", "comes at")
        return Explanation(text, f"henchman {which} retry {status.jid}", (which, status.jid, "retry"))
    due = f"{what}due since {times.iso(at)}"
    if service.ours:
        return Explanation(f"{due}: a worker moves it to queue {status.queue or 'default'} in a moment")
    return Explanation(f"{due}, and no worker is alive to move it", f"henchman work -q {status.queue or 'default'}")


def _running(keys: Keys, status: JobStatus, now: float) -> Procedure[Explanation]:
    """Of a job that a process has: it runs, or its process is gone."""
    identity = status.process or ""
    held, records, service = yield from side_by_side(
        ask(leases.holding(keys, identity)),
        leases.records(keys, [identity], jobs=False),
        who_serves(keys, ""),
    )
    state = process_state(records[0]) if held.listed and records else None
    cancel = ("jobs", status.jid, "cancel")
    if state is not None and not state.ours:
        return Explanation(status.text, f"henchman cancel {status.jid}", cancel)
    beat = None if state is None else state.beat_age(now)
    lives = state is not None and state.ours and (beat or 0.0) <= ALIVE
    others = service.ours - lives
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
            f"fetched by {identity}: it runs there, or starts in a moment", f"henchman cancel {status.jid}", cancel
        )
    told = ", and was told to stop" if status.cancelled else ""
    way = "" if status.cancelled else f"henchman cancel {status.jid}"
    text = f"running in {identity} for {span(now - status.started_at)}{told}"
    return Explanation(text, way, () if status.cancelled else cancel)


def _blocked(keys: Keys, status: JobStatus, mask: Mask | None) -> Procedure[Explanation]:
    """Its sentence has the way out where it is stuck; else this one does not wait for what others do."""
    found = status.blocked or (yield from find_blocked(keys, status.jid, mask))
    if found is None:  # it waits for the release of its batch
        if not status.kept_by:
            return Explanation(status.text)
        return Explanation(status.text, f"henchman batch close {status.kept_by}", ("batches", status.kept_by, "close"))
    if found.lock is not None and found.lock.lock == "limit":
        return Explanation(status.text, found.lock.set_command)
    if found.lock is not None and found.lock.lock == "pause" and found.lock.state != "free":
        return Explanation(status.text, found.lock.set_command, _resumed_by(found.lock.key))
    if found.lock is not None and found.lock.lock != "pause" and found.lock.state != "free":
        holder = found.lock.jid
        return Explanation(status.text, f"henchman cancel {holder}", ("jobs", holder, "cancel"))
    if found.waits_for and not found.why_it_stays:
        return Explanation(status.text, f"henchman release {status.jid}", ("blocked", status.jid, "release"))
    return Explanation(status.text)
