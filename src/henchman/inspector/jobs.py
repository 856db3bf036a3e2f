"""Where one job is: a search through everything that may hold it, in the order in which jobs move, with a bound.

Nothing is kept of a job that is done, unless it keeps its result or is tracked: "unknown" may mean finished. A job that
is not in the first place of the search is searched page by page, in the sets side by side. ``most`` bounds the payloads
that are read: from the queue that was named, and from all others together; in each set the server compares ten times as
many. The answer says when a bound was met.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from henchman.client.runtime import Runtime
from henchman.errors import HistoryError
from henchman.inspector.base import Entry, Mask
from henchman.inspector.blocked import BlockedJob, blocked_jobs
from henchman.inspector.search import BATCHES, Hint, JobSearch, JobState, Located, SearchStep
from henchman.kernel.middleware import in_thread
from henchman.kernel.text import shorten, visible
from henchman.store import batches, locks, queues
from henchman.store.call import Procedure, ask, command, side_by_side
from henchman.store.keys import Keys
from henchman.store.locks import HeldKey
from henchman.wire import jsontext, times
from henchman.work.locks import ONCE_FOR, key_of

__all__ = ["MOST", "JobState", "JobStatus", "Searched", "arecorded", "find_job", "recorded", "search_on", "told_by"]

T = TypeVar("T")
MOST = 100_000
HELD = 20_000  # held keys that are looked at for a job that nothing else knows
_LAST = "keys"  # the step of a search behind all others
_KEYS = 3  # of them that are told
_NOT_KEPT = "nothing is kept of a job that is done, but its result and its record in history"
_ENDED = {
    "finished": "it has finished",
    "failed": "it has failed",
    "error": "it has ended with an error",
    "cancelled": "it was cancelled",
    "expired": "it has expired",
}
#: what is remembered of a followed job → its state, in words
_REMEMBERED: dict[str, tuple[JobState, str]] = {
    "s": ("finished", _ENDED["finished"]),
    "f": ("failed", _ENDED["failed"]),
}


@dataclass(frozen=True)
class JobStatus:
    """Where a job is. Times are Unix seconds; what does not apply is None or empty.

    ``state``: a ``blocked`` job waits until its atomic batch ends well, for a key that another job has, or for jobs
    that have not succeeded yet; a ``deferred`` one, which only its handle finds, until its transaction commits. Of one
    that is done its kept result or history tells ``finished``, ``failed``, ``error``, ``cancelled`` or ``expired``.
    ``position``: 1 is next to run. ``at``: when it is due, or died. ``cancelled``: ``cancel`` was asked for.
    ``kept_by``: the batch that keeps it, as one of its dead or until its release. ``scanned``: entries looked at;
    ``complete`` is False when the bound was met before the end. ``cause``: why its last run failed, of ``CAUSES``."""

    jid: str
    state: JobState
    text: str
    queue: str | None = None
    name: str | None = None
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    error: tuple[str, str] | None = None
    attempts: int = 0
    position: int | None = None
    at: float | None = None
    created_at: float | None = None
    enqueued_at: float | None = None
    failed_at: float | None = None
    started_at: float | None = None
    process: str | None = None
    cancelled: bool = False
    scanned: int = 0
    complete: bool = True
    kept_by: str = ""
    cause: str = ""
    entry: Entry | None = field(default=None, repr=False, compare=False)
    blocked: BlockedJob | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs; times as ISO 8601 in UTC or null."""
        moments = ("at", "created_at", "enqueued_at", "failed_at", "started_at")
        facts: dict[str, Any] = {
            "jid": self.jid,
            "state": self.state,
            "text": self.text,
            "queue": self.queue,
            "class": self.name,
            "args": list(self.args),
            "kwargs": self.kwargs,
            "error_class": self.error[0] if self.error else None,
            "error_message": self.error[1] if self.error else None,
            "cause": self.cause or None,
            "backtrace": self.entry.backtrace if self.entry else [],
            "causes": [one._asdict() for one in self.entry.causes] if self.entry else [],
            "failures": [
                one._asdict() | {"at": times.iso(one.at) or None} for one in (self.entry.failures if self.entry else ())
            ],
            "attempts": self.attempts,
            "position": self.position,
            "process": self.process,
            "cancelled": self.cancelled,
            "scanned": self.scanned,
            "complete": self.complete,
            "deadline": times.iso(self.entry.deadline if self.entry else None) or None,
        }
        return facts | {name: times.iso(getattr(self, name)) or None for name in moments}


def find_job(
    keys: Keys,
    jid: str,
    queue: str | None = None,
    most: int = MOST,
    mask: Mask | None = None,
    near: Hint | None = None,
) -> Procedure[JobStatus]:
    """Where a job is; ``queue`` is looked at first, and at most ``most`` entries in all. With ``near`` only where a few
    looks show it, see ``JobSearch.near``."""
    search = JobSearch(keys, jid, most, mask, thorough=near is None)
    if not jid:
        return _unknown(search, cancelled=False)
    found: Located | None
    if near is None:
        found = yield from search.everywhere(queue)
        known = yield from _known(keys, jid)
    else:
        found, known = yield from side_by_side(search.near(near), _known(keys, jid))
    return (yield from told_of(search, found, known))


class Searched(NamedTuple):
    """One step of the search for a job everywhere: its ``status`` as far as is known; what ``SearchStep`` tells."""

    status: JobStatus
    searched: int
    total: int
    after: str


def search_on(keys: Keys, jid: str, after: str, mask: Mask | None = None) -> Procedure[Searched]:
    """The next step of the search for a job that ``find_job`` with ``near`` did not find. Its last step asks keys."""
    search = JobSearch(keys, jid, MOST, mask, thorough=after == _LAST)
    if after == _LAST:
        known = yield from _known(keys, jid)
        return Searched((yield from _without_a_payload(search, known)), 0, 0, "")
    step: SearchStep
    step, known = yield from side_by_side(search.step(after), _known(keys, jid))
    search.complete, search.scanned = False, step.searched
    status = yield from told_of(search, step.found, known)
    return Searched(status, step.searched, step.total, "" if step.found else step.after or _LAST)


class Known(NamedTuple):
    """What the server knows of a job beside its payload: whether it was cancelled, its newest arguments, its kept
    result, and the batches that may hold it."""

    cancelled: bool
    newest: bytes | None
    result: bytes | None
    batches: list[str]


def _known(keys: Keys, jid: str) -> Procedure[Known]:
    cancelled, *rest = yield from side_by_side(
        ask(queues.set_score(keys.cancelled, queues.raw(jid))),
        ask(locks.latest(keys, jid)),
        ask(command("GET", queues.raw(keys.result(jid)))),
        ask(batches.newest(keys, 0, BATCHES)),
    )
    return Known(cancelled is not None, *rest)


def told_of(search: JobSearch, found: Located | None, known: Known) -> Procedure[JobStatus]:
    """The status of a job whose payload was ``found``, or was not."""
    if found is None:
        return (yield from _without_a_payload(search, known))
    return (yield from _of_payload(search, found, known))


def _of_payload(search: JobSearch, found: Located, known: Known) -> Procedure[JobStatus]:
    """What the payload that was found tells, and the place where it is."""
    jid, mask, entry, cancelled = search.jid, search.mask, found.entry, known.cancelled
    waits = ("blocked", "enqueued", "scheduled", "retrying")
    state = "cancelled" if cancelled and found.state in waits else found.state
    key = key_of(entry.job)
    rows = [found.row] if found.row else []
    told = next(iter((yield from blocked_jobs(search.keys, rows, mask))), None)
    blocked = (yield from _blocked(search, found, told)) if found.state == "blocked" else ""
    newest = known.newest if key and "w" in key.phases else None
    args, kwargs = entry.arguments if newest is None else Entry(newest, mask=mask).arguments
    return JobStatus(
        jid=jid,
        state=state,
        text=_text(found, time.time(), blocked, cancelled=cancelled)
        + ("" if newest is None else "; with newer arguments"),
        queue=found.queue,
        name=entry.name,
        args=args,
        kwargs=kwargs,
        error=entry.error,
        attempts=entry.attempts,
        position=found.position,
        at=entry.score,
        created_at=entry.time("created_at"),
        enqueued_at=entry.time("enqueued_at"),
        failed_at=entry.time("retried_at") or entry.time("failed_at"),
        started_at=found.started_at,
        process=found.process,
        cancelled=cancelled,
        scanned=search.scanned,
        complete=search.complete,
        kept_by=found.batch,
        cause=entry.cause,
        entry=entry,
        blocked=told,
    )


def _blocked(search: JobSearch, found: Located, told: BlockedJob | None) -> Procedure[str]:
    """What a parked job waits for, in words; of one that is dead also why."""
    if told is None:
        return f"waiting in queue {found.queue or 'default'}, since a moment"
    dead = next((one for one in told.waits_for if one.state == "dead" and one.jid), None)
    if dead is None or not search.thorough:
        return told.sentence()
    there = yield from JobSearch(search.keys, dead.jid, search.most, search.mask).buried()
    if there is None:
        return told.sentence()
    dead_there = dead._replace(since=there.entry.score, batch=there.batch)
    known = tuple(dead_there if one is dead else one for one in told.waits_for)
    error = there.entry.error
    return replace(told, waits_for=known).sentence(shorten(": ".join(error), 200) if error else "")


def _text(found: Located, now: float, blocked: str, *, cancelled: bool) -> str:
    queue = f"queue {found.queue or 'default'}"
    due = found.entry.score
    late = ", overdue: no worker stages it" if due is not None and due < now - 5 else ""
    kept = f"its batch keeps it (henchman batch retry {found.batch})" if found.batch else "it is kept"
    texts = {
        "blocked": blocked,
        "enqueued": f"waiting in {queue}, number {found.position}" if found.position else f"waiting in {queue}",
        "scheduled": f"scheduled for {times.iso(due)}{late}",
        "retrying": f"failed {found.entry.attempts} times, next attempt at {times.iso(due)}{late}",
        "working": f"running in {found.process}" if found.started_at else f"fetched by {found.process}",
        "dead": f"dead since {times.iso(due)}: {kept}, and not tried again by itself",
    }
    text = texts[found.state].replace("failed 1 times", "failed once")
    if not cancelled or found.state == "dead":
        return text
    return f"{text}; it was told to stop" if found.state == "working" else f"cancelled, it will not start ({text})"


def _without_a_payload(search: JobSearch, known: Known) -> Procedure[JobStatus]:
    """What is known of a job whose payload nothing holds that was searched: by its kept result, or by its batch."""
    cancelled = known.cancelled
    unknown = _unknown(search, cancelled=cancelled)
    if known.result is not None:
        told = jsontext.loads(known.result)
        error = (told.get("error_class") or "", told.get("message") or "") if "error_class" in told else None
        return replace(unknown, state=told["status"], text=f"{_ENDED[told['status']]}; its result is kept", error=error)
    names, held = known.batches, list[str]()
    if names:
        held = yield batches.statuses(search.keys, names, search.jid)
    if "blocked" in held:
        batch = names[held.index("blocked")]
        where = f"waits until its atomic batch {batch} is released"
        if cancelled:
            return replace(unknown, text=f"cancelled, it will not start ({where})")
        return replace(unknown, state="blocked", text=where, kept_by=batch)
    return (yield from _by_its_keys(search.keys, unknown)) if search.thorough else unknown


def _by_its_keys(keys: Keys, unknown: JobStatus) -> Procedure[JobStatus]:
    """What keys tell of a job that nothing holds: how a followed one ended, and which it never gave back."""
    if not unknown.jid.isalnum() or not unknown.jid.isascii():  # it holds nothing of ours
        return unknown
    held: list[HeldKey]
    held, memory = yield locks.look(keys, "", unknown.jid, ONCE_FOR)
    if memory is not None and memory.letter in _REMEMBERED:
        state, text = _REMEMBERED[memory.letter]
        unknown = replace(
            unknown, state=state, text=f"{text}: that is remembered until {times.iso(memory.until)} at most"
        )
    held = [one for one in held if one.jid == unknown.jid] + (yield from _held_by(keys, unknown.jid))
    for one in held[:_KEYS]:
        way = f"henchman unlock {shlex.quote(one.scope)} {shlex.quote(visible(one.name))}"
        has = f"has the key {visible(one.name)!r} of {visible(one.scope)!r}" if one.scope else "is followed"
        unknown = replace(unknown, text=f"{unknown.text}; it still {has} ({locks.PHASES[one.phase]}): {way}")
    return unknown


def _held_by(keys: Keys, jid: str) -> Procedure[list[HeldKey]]:
    """The keys that ``jid`` holds among the first ``HELD``: the server knows who has a key, and not which one has."""
    names: list[str] = yield locks.scopes(keys)
    counted: list[dict[str, int]] = (yield locks.counts(keys, names[:HELD])) if names else []
    found, left = list[HeldKey](), HELD
    for scope, counts in zip(names, counted, strict=False):
        for phase, many in counts.items():
            cursor = -1
            while many and cursor and left > 0:
                cursor, some = yield locks.page(keys, phase, scope, max(cursor, 0))
                left -= max(len(some), 1)
                found += [one for one in some if one.jid == jid]
    return found


def recorded(runtime: Runtime, status: JobStatus) -> JobStatus:
    """``status``; of a job that the server has nothing of, what history says, where there is one."""
    if status.state != "unknown" or runtime.config.why_history_is_off():
        return status
    try:
        found = runtime.open_history().reading.job(status.jid, most=1)
    except HistoryError:  # it is away, or not ready: the server's word stands
        return status
    return status if found is None else told_by(status, found.event)


async def arecorded(runtime: Runtime, status: JobStatus) -> JobStatus:
    """``recorded``, awaited."""
    told: JobStatus = await in_thread(recorded, runtime, status) if status.state == "unknown" else status
    return told


def told_by(status: JobStatus, event: Any) -> JobStatus:
    """``status``; of a job that the server has nothing of, how it ended (``event`` of ``history.records``)."""
    if status.state != "unknown":
        return status
    if event.status not in _ENDED:  # a payload of an ordered queue, most often
        said = f"history saw it last as {event.status or 'known'}, in queue {event.queue}; on the server {status.text}"
        return replace(status, text=said, queue=event.queue, name=event.class_)
    return replace(
        status,
        state=event.status,
        text=f"{_ENDED[event.status]} at {times.iso(event.ended_at)}, as history says",
        queue=event.queue,
        name=event.class_,
        args=event.args or (),
        kwargs=event.kwargs or {},
        error=(event.error_class, event.message or "") if event.error_class else None,
        cause=event.cause or "",
        attempts=event.attempts,
        at=event.ended_at,
        enqueued_at=event.enqueued_at,
        started_at=event.started_at,
        process=event.process,
    )


def _unknown(search: JobSearch, *, cancelled: bool) -> JobStatus:
    where = (
        "nothing holds it now"
        if search.complete
        else f"not found among the {search.scanned:,} entries that were looked at, and there are more"
    )
    meaning = f"{'' if search.complete else 'it waits among those, or '}it has finished, was deleted, or never existed"
    text = f"cancelled, but {where}: {meaning}" if cancelled else f"{where}: {meaning} ({_NOT_KEPT})"
    state: JobState = "cancelled" if cancelled else "unknown"
    return JobStatus(search.jid, state, text, cancelled=cancelled, scanned=search.scanned, complete=search.complete)
