"""Where one job is: a search through everything that may hold it, in the order in which jobs move, with a bound.

Nothing is kept of a job that is done, unless it keeps its result or is tracked: "unknown" may mean finished. A job that
is not in the first place of the search is searched page by page, in the sets side by side. ``most`` bounds the payloads
that are read: from the queue that was named, and from all others together; in each set the server compares ten times as
many. The answer says when a bound was met.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

from henchman.client.runtime import Runtime
from henchman.errors import HistoryError
from henchman.inspector.base import Entry, Mask
from henchman.inspector.blocked import find_blocked
from henchman.inspector.processes import list_work
from henchman.kernel.middleware import in_thread
from henchman.kernel.text import shorten
from henchman.store import batches, leases, locks, needs, queues
from henchman.store.call import Procedure, ask, command, side_by_side, unless_refused
from henchman.store.keys import Keys
from henchman.wire import jsontext, times
from henchman.work.locks import key_of

__all__ = ["MOST", "JobState", "JobStatus", "arecorded", "find_job", "recorded", "told_by"]

T = TypeVar("T")
JobState = Literal[
    "blocked",
    "deferred",
    "enqueued",
    "scheduled",
    "retrying",
    "working",
    "dead",
    "finished",
    "failed",
    "error",
    "cancelled",
    "expired",
    "unknown",
]
MOST = 100_000
_PAGE = 200  # entries of a list that the server looks at in one call
_IN_FLIGHT = 1000  # payloads read of one in-flight list
_BATCHES = 1000  # the newest, that are asked whether they hold a job back
_NOT_KEPT = "nothing is kept of a job that is done, but its result and its record in history"
_ENDED = {
    "finished": "it has finished",
    "failed": "it has failed",
    "error": "it has ended with an error",
    "cancelled": "it was cancelled",
    "expired": "it has expired",
}


@dataclass(frozen=True)
class JobStatus:
    """Where a job is. Times are Unix seconds; what does not apply is None or empty.

    ``state``: a ``blocked`` job waits until its atomic batch ends well, for a key that another job has, or for jobs
    that have not succeeded yet; a ``deferred`` one, which only its handle finds, until its transaction commits. Of one
    that is done its kept result or history tells ``finished``, ``failed``, ``error``, ``cancelled`` or ``expired``.
    ``position``: 1 is next to run. ``at``: when it is due, or died. ``cancelled``: ``cancel`` was asked for.
    ``scanned``: entries looked at; ``complete`` is False when the bound was met before the end.
    """

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
    entry: Entry | None = field(default=None, repr=False, compare=False)

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
            "backtrace": self.entry.backtrace if self.entry else [],
            "attempts": self.attempts,
            "position": self.position,
            "process": self.process,
            "cancelled": self.cancelled,
            "scanned": self.scanned,
            "complete": self.complete,
        }
        return facts | {name: times.iso(getattr(self, name)) or None for name in moments}


class _Found(NamedTuple):
    state: JobState
    entry: Entry
    queue: str | None = None
    position: int | None = None
    process: str | None = None
    started_at: float | None = None
    batch: str = ""  # that keeps it, as one of its dead


class _Search:
    """One search: what to look for, and how much may still be looked at."""

    def __init__(self, keys: Keys, jid: str, most: int, mask: Mask | None) -> None:
        self.keys = keys
        self.jid = jid
        self.most = most
        self.left = most  # payloads that may still be read from queues
        self.mask = mask
        self.scanned = 0
        self.complete = True

    def running(self) -> Procedure[_Found | None]:
        """In flight, or written down as running. The in-flight lists are exact; what a process writes down is as old
        as its last heartbeat, and counts where there are no such lists (Ruby's) or they are too long to be read."""
        work, identities = yield from side_by_side(
            list_work(self.keys, self.mask, self.jid), ask(leases.joined(self.keys))
        )
        written = [one for one in work if one.entry.jid == self.jid]
        lists: list[str] = (yield leases.lists_of(self.keys, identities)) if identities else []
        plain = {one: "list" for one in lists if not self.keys.is_held(one)}
        sizes: list[int] = (yield leases.sizes(plain)) if plain else []
        full = [one for one, size in zip(plain, sizes, strict=True) if size]
        entries = yield from side_by_side(*map(self._in_flight, full))
        for name, entry in zip(full, entries, strict=True):
            if entry is not None:
                heads = {one: self.keys.in_flight(one, 0, "").removesuffix("0:") for one in identities}
                owner = next((one for one, head in heads.items() if name.startswith(head)), None)
                queue = name.removeprefix(heads[owner]).partition(":")[2] if owner else entry.queue
                note = next((one for one in written if one.identity == owner), None)
                return _Found("working", entry, queue, None, owner, note.run_at if note else None)
        exact = all(size < _IN_FLIGHT for size in sizes)
        note = next((one for one in written if not (exact and one.identity in identities)), None)
        return _Found("working", note.entry, note.queue, None, note.identity, note.run_at) if note else None

    def _in_flight(self, name: str) -> Procedure[Entry | None]:
        """In one in-flight list, the last fetched first."""
        looked = 0
        while looked < _IN_FLIGHT:
            page: queues.ListPage = yield queues.list_page(name, looked, _IN_FLIGHT - looked, text=self.jid)
            found = self._pick(page)
            if found is not None or not page.looked:
                return found and found[1]
            looked += page.looked
        return None

    def parked(self) -> Procedure[_Found | None]:
        """Among those that wait for others."""
        [row] = yield needs.blocked(self.keys, [self.jid])
        return row and _Found("blocked", Entry(row.payload, mask=self.mask), row.queue)

    def in_queue(self, name: str) -> Procedure[_Found | None]:
        """In one queue, from the next to run on. Jobs that leave meanwhile move the rest: pages overlap by half."""
        start = 0
        while True:
            if self.left <= 0:
                self.complete = False
                return None
            most = min(_PAGE, self.left)
            call = queues.list_page(self.keys.queue(name), -start - 1, most, leftwards=True, text=self.jid)
            page: queues.ListPage = yield call
            self.left -= page.looked
            self.scanned += page.looked
            found = self._pick(page)
            if found is not None:
                return _Found("enqueued", found[1], name, page.size - found[0])
            if start + page.looked >= page.size:
                return None
            start += max(page.looked // 2, 1)

    def in_queues(self, names: Sequence[str]) -> Procedure[_Found | None]:
        """In several queues: first among the next to run of each, all in one call, then in those that have more."""
        if len(names) * _PAGE <= self.left:
            heads = yield from side_by_side(*(unless_refused(self._head(name), None) for name in names))
            if found := next((one[0] for one in heads if one and one[0]), None):
                return found  # type: ignore[no-any-return]
            names = [name for name, one in zip(names, heads, strict=True) if one and one[1]]
        return (yield from self._first(*map(self.in_queue, names)))

    def _head(self, name: str) -> Procedure[tuple[_Found | None, bool]]:
        """Among the next to run of a queue; and whether it has more."""
        page: queues.ListPage = yield queues.list_page(self.keys.queue(name), -1, _PAGE, leftwards=True, text=self.jid)
        more, at = page.looked < page.size, self._pick(page)
        if not more:  # else it is counted when it is looked through
            self.scanned, self.left = self.scanned + page.looked, self.left - page.looked
        return at and _Found("enqueued", at[1], name, page.size - at[0]), more

    def just_pushed(self, name: str) -> Procedure[_Found | None]:
        """Among the newest of a queue, where staged and retried jobs arrive."""
        found = self._pick((yield queues.list_page(self.keys.queue(name), 0, _PAGE, text=self.jid)))
        return None if found is None else _Found("enqueued", found[1], name)

    def in_set(self, key: str, state: JobState) -> Procedure[_Found | None]:
        """In one sorted set; the server compares the texts."""
        return self.in_sets((key, state))

    def in_sets(self, *sets: tuple[str, JobState]) -> Procedure[_Found | None]:
        """In sorted sets side by side, a stretch of each in one write, until one of them holds it: whoever else asks
        the server waits for the whole write."""
        states, places = dict(sets), dict.fromkeys((key for key, _ in sets), 0)
        while places:
            looks = (unless_refused(self._stretch(key, states[key], at), (None, None)) for key, at in places.items())
            seen: list[tuple[_Found | None, int | None]] = yield from side_by_side(*looks)
            there: _Found | None = next((found for found, _ in seen if found is not None), None)
            if there is not None:
                return there
            places = {key: on for key, (_, on) in zip(places, seen, strict=True) if on is not None}
        return None

    def _stretch(self, key: str, state: JobState, place: int) -> Procedure[tuple[_Found | None, int | None]]:
        """In one stretch of a sorted set; and where to go on, None at its end."""
        left = 10 * self.most - place
        call = queues.set_stretch(key, place, min(queues.SEARCHED, left), newest_first=True, text=self.jid)
        page: queues.Stretch = yield call
        self.scanned += page.looked
        for member in page.holding(self.jid):
            entry = Entry(member.payload, member.score, self.mask)
            if entry.jid == self.jid:
                return _Found(state, entry, entry.queue), None
        if page.more and page.looked >= left:
            self.complete = False
        return None, place + page.step() if page.more and page.looked < left else None

    def dead(self) -> Procedure[_Found | None]:
        """In the dead set."""
        return self.in_set(self.keys.dead, "dead")

    def buried(self) -> Procedure[_Found | None]:
        """Among the dead: in their set, or with those of one of the newest batches."""
        return (yield from self._first(self.dead(), self.in_batches()))

    def in_batches(self) -> Procedure[_Found | None]:
        """Among the dead of the newest batches."""
        names: list[str] = yield batches.newest(self.keys, 0, _BATCHES)
        for batch in (yield batches.with_dead(self.keys, names)) if names else []:
            there = yield from self._first(self.in_set(self.keys.batch(batch) + ":dead", "dead"))
            if there is not None:
                return there._replace(batch=batch)
        return None

    def _pick(self, page: queues.ListPage) -> tuple[int, Entry] | None:
        """The job among what holds its id as text, with its place."""
        for place, one in page.found:
            entry = Entry(one, mask=self.mask)
            if entry.jid == self.jid:
                return place, entry
        return None

    def everywhere(self, queue: str | None) -> Procedure[_Found | None]:
        """In the order in which jobs wander, and once more where it may have gone meanwhile."""
        known = [queue] if queue else []
        found = yield from self._first(
            self._any(self.running(), self.parked()),
            *(self.in_queue(name) for name in known),
            self.in_sets((self.keys.schedule, "scheduled"), (self.keys.retry, "retrying"), (self.keys.dead, "dead")),
        )
        if found is None:
            self.left = self.most
            others = yield queues.names(self.keys)
            found = yield from self._first(self.in_queues([name for name in others if name not in known]))
        if found is None:  # staged, started or retried between two looks
            found = yield from self._first(
                self._any(*(self.just_pushed(name) for name in known), self.running(), self.parked()),
                self.in_sets((self.keys.retry, "retrying"), (self.keys.dead, "dead")),
                self.in_batches(),
            )
        return found

    def _any(self, *places: Procedure[_Found | None]) -> Procedure[_Found | None]:
        """The first find of several places that are searched side by side."""
        found: list[_Found | None] = yield from side_by_side(*(unless_refused(one, None) for one in places))
        return next((one for one in found if one is not None), None)

    def _first(self, *places: Procedure[_Found | None]) -> Procedure[_Found | None]:
        """The first find; a place is searched when all before it held nothing."""
        for place in places:
            found: _Found | None = yield from unless_refused(place, None)
            if found is not None:
                return found
        return None


def find_job(
    keys: Keys, jid: str, queue: str | None = None, most: int = MOST, mask: Mask | None = None
) -> Procedure[JobStatus]:
    """Where a job is; ``queue`` is looked at first, and at most ``most`` entries in all."""
    search = _Search(keys, jid, most, mask)
    found: _Found | None = (yield from search.everywhere(queue)) if jid else None
    cancelled = (yield queues.set_score(keys.cancelled, queues.raw(jid))) is not None if jid else False
    if found is None:
        return (yield from _without_a_payload(search, cancelled=cancelled))
    entry = found.entry
    waits = ("blocked", "enqueued", "scheduled", "retrying")
    state = "cancelled" if cancelled and found.state in waits else found.state
    key = key_of(entry.job)
    blocked = (yield from _blocked(search, found)) if found.state == "blocked" else ""
    newest = (yield locks.latest(keys, jid)) if key and "w" in key.phases else None
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
        entry=entry,
    )


def _blocked(search: _Search, found: _Found) -> Procedure[str]:
    """What a parked job waits for, in words; of one that is dead also why."""
    told = yield from find_blocked(search.keys, search.jid, search.mask)
    if told is None:
        return f"waiting in queue {found.queue or 'default'}, since a moment"
    dead = next((one for one in told.waits_for if one.state == "dead" and one.jid), None)
    there = None if dead is None else (yield from _Search(search.keys, dead.jid, search.most, search.mask).buried())
    if dead is None or there is None:
        return told.sentence()
    dead_there = dead._replace(since=there.entry.score, batch=there.batch)
    known = tuple(dead_there if one is dead else one for one in told.waits_for)
    error = there.entry.error
    return replace(told, waits_for=known).sentence(shorten(": ".join(error), 200) if error else "")


def _text(found: _Found, now: float, blocked: str, *, cancelled: bool) -> str:
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


def _without_a_payload(search: _Search, *, cancelled: bool) -> Procedure[JobStatus]:
    """What is known of a job whose payload nothing holds that was searched: by its kept result, or by its batch."""
    unknown = _unknown(search, cancelled=cancelled)
    if not search.jid:
        return unknown
    kept: bytes | None = yield command("GET", queues.raw(search.keys.result(search.jid)))
    if kept is not None:
        told = jsontext.loads(kept)
        error = (told.get("error_class") or "", told.get("message") or "") if "error_class" in told else None
        return replace(unknown, state=told["status"], text=f"{_ENDED[told['status']]}; its result is kept", error=error)
    names: list[str] = yield batches.newest(search.keys, 0, _BATCHES)
    held: list[str] = (yield batches.statuses(search.keys, names, search.jid)) if names else []
    if "blocked" in held:
        where = f"waits until its atomic batch {names[held.index('blocked')]} is released"
        if cancelled:
            return replace(unknown, text=f"cancelled, it will not start ({where})")
        return replace(unknown, state="blocked", text=where)
    return unknown


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
    if status.state != "unknown" or event.status not in _ENDED:
        return status
    return replace(
        status,
        state=event.status,
        text=f"{_ENDED[event.status]} at {times.iso(event.ended_at)}, as history says",
        queue=event.queue,
        name=event.class_,
        args=event.args or (),
        kwargs=event.kwargs or {},
        error=(event.error_class, event.message or "") if event.error_class else None,
        attempts=event.attempts,
        at=event.ended_at,
        enqueued_at=event.enqueued_at,
        started_at=event.started_at,
        process=event.process,
    )


def _unknown(search: _Search, *, cancelled: bool) -> JobStatus:
    where = (
        "nothing holds it now"
        if search.complete
        else f"not found among the {search.scanned:,} entries that were looked at, and there are more"
    )
    meaning = f"{'' if search.complete else 'it waits among those, or '}it has finished, was deleted, or never existed"
    text = f"cancelled, but {where}: {meaning}" if cancelled else f"{where}: {meaning} ({_NOT_KEPT})"
    state: JobState = "cancelled" if cancelled else "unknown"
    return JobStatus(search.jid, state, text, cancelled=cancelled, scanned=search.scanned, complete=search.complete)
