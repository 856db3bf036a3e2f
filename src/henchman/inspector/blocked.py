"""Jobs that wait for others: what each waits for and how that is; and letting it go, cancelling or deleting it by hand.

A blocked job lies in no queue and in no set. It waits for a business key that another job has, or for its needs: jobs
that have not succeeded yet. Jobs that an atomic batch holds until it is released belong to that batch, not here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from henchman.inspector.base import Entry, Inspector, Mask, checked_text, scoped
from henchman.inspector.sets import PAGE
from henchman.kernel.text import shorten, visible
from henchman.store import locks, needs
from henchman.store.call import Items, Page, Pages, Procedure, awaited, command, mapped, now
from henchman.store.keys import Keys
from henchman.store.needs import Blocked
from henchman.wire import times
from henchman.work.locks import ONCE_FOR, JobKey, key_of

__all__ = ["BlockedJob", "BlockedJobs", "Blocker", "blocked_jobs", "blocked_rows", "find_blocked", "stuck_since"]

BlockerState = Literal["alive", "dead", "failed", "over", "finished", "unknown", "free"]
_STATES: dict[str, BlockerState] = {
    "l": "alive",
    "d": "dead",
    "s": "finished",
    "f": "failed",
    "x": "over",
}
_STUCK = ("dead", "failed", "over")  # states out of which no job comes by itself
_SHOWN = 3  # of what one job waits for, in a sentence
_STEP = "batch:"


class Blocker(NamedTuple):
    """One thing that a job waits for: the job with the key ``key`` of ``scope``. Without a scope ``key`` is a job's id,
    and in a scope ``batch:<id>`` a step of that workflow.

    ``lock``: "running" or "until_success" where the key itself must be given back; empty where its job must succeed.
    ``state``: how that job is; "unknown" was never pushed or is forgotten, "free" is a key that nobody has. ``jid`` and
    ``since`` (Unix seconds): that job, and how long it is so; empty and None where nobody knows.
    """

    scope: str
    key: str
    state: BlockerState = "unknown"
    jid: str = ""
    since: float | None = None
    lock: str = ""
    waiting: int = 0

    @property
    def name(self) -> str:
        """What people call it: ``orders.charge/17``, ``job 3f…``, ``step 'pay' of batch 9c…``."""
        if not self.scope:
            return f"job {_short(self.key)}"
        if self.scope.startswith(_STEP):
            return f"step {_shown(self.key)} of batch {_short(self.scope.removeprefix(_STEP))}"
        return f"{_short(self.scope)}/{_short(self.key)}"

    @property
    def is_stuck(self) -> bool:
        """Whether it will not succeed unless somebody acts."""
        return not self.lock and self.state in _STUCK

    def clause(self, error: str = "") -> str:
        """It and its state, as the end of a sentence; ``error``: why it is dead."""
        if self.lock:
            about = f"the key {_shown(self.key)} of {_shown(self.scope)}"
            if self.state == "free":
                return f"{about}, which nobody has: an audit will let it go"
            word = "runs" if self.lock == "running" else "has not succeeded yet"
            line = "" if self.waiting < 2 else f", {self.waiting:,} are in line"
            return f"job {self.jid}, which has {about} and {word}{line}"
        since = f" since {times.iso(self.since)}" if self.since else ""
        job = f" (job {self.jid})" if self.jid and self.scope else ""
        words: dict[BlockerState, str] = {
            "alive": f"which has not ended{job}",
            "dead": f"which is dead{since}{job}" + (f": {error}" if error else ""),
            "failed": f"which is over without success{job}",
            "over": f"which is over without success{job}",
            "finished": "which has finished: it goes in a moment",
            "unknown": "which is unknown: never pushed, or forgotten",
        }
        return f"{self.name}, {words.get(self.state, '')}"

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs; times as ISO 8601 in UTC or null."""
        since = times.iso(self.since) if self.since else None
        facts = {"scope": self.scope, "key": self.key, "lock": self.lock or None, "state": self.state}
        return facts | {"jid": self.jid or None, "since": since}


def _short(text: str) -> str:
    return visible(shorten(text, 80))


def _shown(text: str) -> str:
    return repr(_short(text))


@dataclass(frozen=True)
class BlockedJob:
    """A job that waits for others. ``waits_for``: what is missing; nothing when its row tells nothing that can be read.

    Unix seconds: ``due``, for which it waits, too; ``since``, when it was pushed; ``until``, when it waits no longer.
    """

    jid: str
    queue: str
    waits_for: tuple[Blocker, ...] = ()
    due: float | None = None
    since: float | None = None
    until: float | None = None
    entry: Entry = field(default_factory=lambda: Entry(b""), repr=False, compare=False)
    row: Blocked | None = field(default=None, repr=False, compare=False)

    @property
    def is_stuck(self) -> bool:
        """Whether it waits for something that will not succeed unless somebody acts."""
        return any(one.is_stuck for one in self.waits_for)

    def sentence(self, error: str = "") -> str:
        """Why it does not run, and what to do about it; ``error``: of the first that is dead."""
        shown = [one.clause(error if one.state == "dead" else "") for one in self.waits_for[:_SHOWN]]
        more = len(self.waits_for) - len(shown)
        by = ", and by ".join(shown) + (f", and by {more:,} more" if more else "")
        since = f" since {times.iso(self.since)}" if self.since and not self._is_of_lock else ""
        until = f"; it waits until {times.iso(self.until)} at most" if self.until else ""
        return f"blocked{since} by {by or 'nothing that its row tells'}{until}{self._advice()}"

    @property
    def _is_of_lock(self) -> bool:
        return any(one.lock for one in self.waits_for)

    def _advice(self) -> str:
        stuck = next((one for one in self.waits_for if one.is_stuck), None)
        go = f"let this one go all the same: henchman release {self.jid}"
        if stuck is None:
            return "" if self.waits_for else f"; {go}"
        if stuck.state == "dead":
            return f"; retry it{f' (henchman dead retry {stuck.jid})' if stuck.jid else ''}, or {go}"
        return f". It will not go by itself: push that once more, or {go}"

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs; times as ISO 8601 in UTC or null."""
        told = {"jid": self.jid, "queue": self.queue, "text": self.sentence(), "stuck": self.is_stuck}
        moments = {name: times.iso(getattr(self, name)) or None for name in ("due", "since", "until")}
        return self.entry.to_json() | told | moments | {"waits_for": [one.to_json() for one in self.waits_for]}


class BlockedJobs(Inspector):
    """Every job that waits for others, in no order. One that comes or goes meanwhile may or may not be met, or twice.

    Each method also exists awaited, with an ``a`` before its name; what can be iterated also by ``async for``.
    """

    def __repr__(self) -> str:
        return "<blocked>"

    @now
    def size(self) -> Procedure[int]:
        """How many there are."""
        many: int = yield command("HLEN", self._keys.parked, decode=int)
        return many

    def __iter__(self) -> Iterator[BlockedJob]:
        """Every one, read in pages."""
        return iter(self._items(self._walk))

    def __aiter__(self) -> AsyncIterator[BlockedJob]:
        """The same for ``async for``."""
        return aiter(self._items(self._walk))

    def on(self, job: Any, key: str | int) -> Items[BlockedJob]:
        """Those that wait for a key, then those that wait for its job, each in their order, for both kinds of ``for``.

        ``job``: a job, the text of a scope, or "" with a job's id as ``key``. ArgumentError for what is no key.
        """
        scope, name, _ = scoped(job, key)
        return self._items(lambda: self._line(scope, name))

    @now
    def find(self, jid: str) -> Procedure[BlockedJob | None]:
        """The blocked job of this id; None when it is not blocked."""
        return (yield from find_blocked(self._keys, checked_text("find", jid), self._mask))

    asize = awaited(size)
    afind = awaited(find)

    def _walk(self) -> Pages[BlockedJob]:
        return mapped(blocked_rows(self._keys), lambda rows: blocked_jobs(self._keys, rows, self._mask))

    def _line(self, scope: str, name: str) -> Pages[BlockedJob]:
        for phase in (*locks.PHASES, "n"):
            after = 0.0
            while True:
                waiting = yield locks.waiting(self._keys, phase, scope, name, after, PAGE)
                if not waiting:
                    break
                after = waiting[-1][1]
                rows = yield needs.blocked(self._keys, [jid for jid, _ in waiting])
                found = [one for one in rows if one is not None]
                yield Page((yield from blocked_jobs(self._keys, found, self._mask)))


# ---- what rows tell


def blocked_rows(keys: Keys) -> Pages[Blocked]:
    """The row of every blocked job, in no order."""
    cursor = -1
    while cursor:
        cursor, rows = yield needs.blocked_page(keys, max(cursor, 0), PAGE)
        yield Page(rows)


def find_blocked(keys: Keys, jid: str, mask: Mask | None = None) -> Procedure[BlockedJob | None]:
    """The blocked job of this id, with the time until which it waits at most; None when it is not blocked."""
    [row] = (yield needs.blocked(keys, [jid])) if jid else [None]
    if row is None:
        return None
    [found] = yield from blocked_jobs(keys, [row], mask)
    return found


def blocked_jobs(keys: Keys, rows: Sequence[Blocked], mask: Mask | None = None) -> Procedure[list[BlockedJob]]:
    """What each of ``rows`` waits for and how that is, asked together."""
    entries = [Entry(row.payload, mask=mask) for row in rows]
    wanted = [_wanted(row, entry) for row, entry in zip(rows, entries, strict=True)]
    known = yield from _states(keys, {one for some in wanted for one in some})
    found = []
    for row, entry, some in zip(rows, entries, wanted, strict=True):
        waits = tuple(known[one] for one in some)
        found.append(BlockedJob(row.jid, row.queue, waits, _time(row.due), entry.time("created_at"), None, entry, row))
    return found


def stuck_since(row: Blocked) -> float | None:
    """Since when (Unix seconds) a job it waits for has been dead or over, as far as its row says so."""
    words = row.reason.split(" ", 3)
    return _time(words[2]) if len(words) > 2 and words[0] == "needs" and words[1] in ("dead", "over") else None


class _Wanted(NamedTuple):
    """What to ask of: ``phase`` of a lock, empty: a need."""

    phase: str
    scope: str
    name: str
    once_for: int = 0


def _wanted(row: Blocked, entry: Entry) -> list[_Wanted]:
    """What a row waits for."""
    if row.reason == "running" or row.reason.startswith("key"):
        key: JobKey | None = key_of(entry.job)
        phase = (
            "r" if row.reason == "running" else next((one for one in (key.phases if key else "") if one != "r"), "u")
        )
        return [] if key is None else [_Wanted(phase, key.scope, key.name)]
    ours = entry.job.get("hm")
    said = ours.get("needs") if isinstance(ours, dict) else None
    once_for = {
        (one[0], one[1]): one[2]
        for one in (said if isinstance(said, list) else ())
        if isinstance(one, list) and len(one) > 2 and all(isinstance(part, str) for part in one[:2])
    }
    lengths = {name: length for name, length in once_for.items() if isinstance(length, int) and length >= 0}
    return [_Wanted("", *name, lengths.get(name, ONCE_FOR)) for name in row.missing]


def _states(keys: Keys, wanted: set[_Wanted]) -> Procedure[dict[_Wanted, Blocker]]:
    found: dict[_Wanted, Blocker] = {}
    held = sorted(one for one in wanted if one.phase)
    for start in range(0, len(held), PAGE):
        some = held[start : start + PAGE]
        members = [f"{one.phase} {one.scope}\n{one.name}".encode() for one in some]
        _, doubts = yield locks.in_doubt(keys, members)
        for one, doubt in zip(some, doubts, strict=True):
            state: BlockerState = "alive" if doubt.jid else "free"
            since, lock = doubt.since or None, locks.PHASES[one.phase]
            found[one] = Blocker(one.scope, one.name, state, doubt.jid, since, lock, doubt.waiting)
    needed = sorted(one for one in wanted if not one.phase)
    for start in range(0, len(needed), PAGE):
        some = needed[start : start + PAGE]
        for one in some:
            found[one] = Blocker(one.scope, one.name)
    return found


def _time(due: object) -> float | None:
    try:
        return float(due) if due else None  # type: ignore[arg-type]
    except (TypeError, ValueError):  # written by somebody else
        return None
