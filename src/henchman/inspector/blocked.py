"""Jobs that wait for others: what each waits for and how that is; and letting it go, cancelling or deleting it by hand.

A blocked job lies in no queue and in no set. It waits for a business key that another job has, or for its needs: jobs
that have not succeeded yet. Jobs that an atomic batch holds until it is released belong to that batch, not here.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NamedTuple

from henchman.inspector.base import Entry, Inspector, Mask, checked_text, scoped
from henchman.inspector.pauses import called, go_on, who_paused
from henchman.inspector.sets import PAGE, Acted
from henchman.kernel.text import shorten, visible
from henchman.store import limits, locks, needs, pauses
from henchman.store.call import Items, Page, Pages, Procedure, ask, awaited, command, mapped, now, side_by_side
from henchman.store.keys import Keys
from henchman.store.limits import limit_line
from henchman.store.needs import Blocked
from henchman.store.pauses import PAUSED
from henchman.wire import times
from henchman.wire.payload import encode
from henchman.work.effects import EndingFacts, encoded
from henchman.work.limits import limits_of
from henchman.work.locks import ONCE_FOR, key_of, said_needs

__all__ = [
    "BlockedJob",
    "BlockedJobs",
    "BlockedSlice",
    "Blocker",
    "blocked_jobs",
    "blocked_rows",
    "blocked_slice",
    "find_blocked",
    "stuck_since",
    "waits_since",
]

BlockerState = Literal["alive", "dead", "failed", "over", "finished", "unknown", "free"]
_STATES: dict[str, BlockerState] = {
    "l": "alive",
    "d": "dead",
    "s": "finished",
    "f": "failed",
    "x": "over",
}
_STUCK = ("dead", "failed", "over")  # states out of which no job comes by itself
_MET = {"dead": "dead", "failed": "over", "over": "over", "finished": "finished"}  # as the job that is let go hears it
_TRIES = 3
_SLICE = 25  # jobs of a page
_SEARCHED = 500  # jobs that are looked at for those that are stuck
_SHOWN = 3  # of what one job waits for, in a sentence
_STEP = "batch:"


class Blocker(NamedTuple):
    """One thing that a job waits for: the job with the key ``key`` of ``scope``. Without a scope ``key`` is a job's id,
    and in a scope ``batch:<id>`` a step of that workflow.

    ``lock``: "running" or "until_success" where the key itself must be given back, "limit" for a place of one, "pause"
    of the batch ``key``, or of ``class:…`` or ``tag:…`` (``by``: by whom, and why); empty where its job must succeed.
    ``state``: how that job is; "unknown" was never pushed or is forgotten, "free" is a key that nobody has, or what
    goes on. ``jid`` and ``since`` (Unix seconds): that job, and since when it has the key, or is dead; empty and None
    where nobody knows. ``batch``: that keeps it, as one of its dead, as far as that was looked for. Of a limit
    ``scope`` is the name and ``key`` whose it is: ``taken`` of ``size`` places are, and the job is number ``place`` in
    line, ``since`` when.
    """

    scope: str
    key: str
    state: BlockerState = "unknown"
    jid: str = ""
    since: float | None = None
    lock: str = ""
    waiting: int = 0
    batch: str = ""
    place: int = 0
    taken: int = 0
    size: int = 0
    by: str = ""

    @property
    def name(self) -> str:
        """What people call it: ``orders.charge/17``, ``job 3f…``, ``step 'pay' of batch 9c…``."""
        if not self.scope:
            return f"job {_short(self.key)}"
        if self.lock == "pause":
            return called(self.key)
        if self.scope.startswith(_STEP):
            return f"step {_shown(self.key)} of batch {_short(self.scope.removeprefix(_STEP))}"
        return f"{_short(self.scope)}/{_short(self.key)}"

    @property
    def is_stuck(self) -> bool:
        """Whether it will not succeed unless somebody acts."""
        return not self.lock and self.state in _STUCK

    @property
    def is_nobody(self) -> bool:
        """Whether it is an id that the server knows nothing of."""
        return not self.scope and self.state == "unknown"

    @property
    def remedy(self) -> str:
        """What lets a dead one succeed after all."""
        if batch := self.scope.removeprefix(_STEP) if self.scope.startswith(_STEP) else self.batch:
            return f"retry it (henchman batch retry {batch})"
        return f"retry it (henchman dead retry {self.jid})" if self.jid else "retry it"

    def clause(self, error: str = "") -> str:
        """It and its state, as the end of a sentence; ``error``: why it is dead."""
        if self.lock == "limit":
            return self._limit_clause()
        if self.lock == "pause":
            since = f", which is paused since {times.iso(self.since)}" if self.since else ", which is paused"
            over = ", which goes on: this one should have gone with it"
            return f"its {self.name}" + (over if self.state == "free" else since + self.by)
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

    def _limit_clause(self) -> str:
        whose = f" for {_shown(self.key)}" if self.key else ""
        taken = f"{self.taken:,} of {self.size:,} places are taken" if self.size else "it is set to no places at all"
        line = f"number {self.place:,} of {self.waiting:,} in line" if self.place else "about to go"
        since = f", since {times.iso(self.since)}" if self.since else ""
        return f"the limit {_short(self.scope)}{whose}: {taken}, and it is {line}{since}"

    @property
    def set_command(self) -> str:
        """What makes room under a limit, or lets go on what is paused."""
        if self.lock == "pause":
            return go_on(self.key)
        return f"henchman limits set {shlex.quote(self.scope)} {max(self.size, self.taken) + 1}"

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

    @property
    def is_alive(self) -> bool:
        """Whether all that it waits for may succeed yet."""
        return all(one.state == "alive" for one in self.waits_for)

    def sentence(self, error: str = "") -> str:
        """Why it does not run, and what to do about it; ``error``: of the first that is dead."""
        return self.reason(error) + self._advice()

    def reason(self, error: str = "") -> str:
        """Why it does not run."""
        shown = [one.clause(error if one.state == "dead" else "") for one in self.waits_for[:_SHOWN]]
        more = len(self.waits_for) - len(shown)
        by = ", and by ".join(shown) + (f", and by {more:,} more" if more else "")
        since = f" since {times.iso(self.since)}" if self.since and self.lock is None else ""
        until = f"; it waits until {times.iso(self.until)} at most" if self.until else ""
        return f"blocked{since} by {by or 'nothing that its row tells'}{until}"

    @property
    def lock(self) -> Blocker | None:
        """The key that it waits for; None where it waits for jobs."""
        return next((one for one in self.waits_for if one.lock), None)

    @property
    def why_it_stays(self) -> str:
        """Why ``release`` leaves it where it is; empty when it may go."""
        if self.entry.problem or not self.queue:
            return f"{self.entry.problem or 'its row cannot be read'}; no worker can run it: delete it"
        if (one := self.lock) is None:
            return "" if self.waits_for else "its row does not tell what it waits for: delete it"
        if one.lock == "limit":
            return f"the end of a job that has a place of the limit {one.scope} lets it go; or: {one.set_command}"
        if one.lock == "pause":
            return (
                "" if one.state == "free" else f"its {one.name} is paused, and would hold it again: {one.set_command}"
            )
        if one.state == "free":
            return "nobody has its key: an audit lets the first in line go within a minute"
        name = f"{shlex.quote(one.scope)} {shlex.quote(one.key)}"
        return f"job {one.jid} has its key, and its end lets it go; to take the key away: henchman unlock {name}"

    def _advice(self) -> str:
        stuck = next((one for one in self.waits_for if one.is_stuck), None)
        go = f"let this one go all the same: henchman release {self.jid}"
        if stuck is None and any(one.is_nobody for one in self.waits_for):
            return f". If that id is wrong: {go.removeprefix('let this one go all the same: ')} lets this one go"
        if stuck is None:
            return "" if self.waits_for else "; see henchman job, and app.blocked.delete"
        if stuck.state == "dead":
            return f"; {stuck.remedy}, or {go}"
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

    @now
    def release(self, jobs: str | BlockedJob | Iterable[str | BlockedJob]) -> Procedure[Acted]:
        """Let jobs go as if what they wait for had succeeded. In ``current_job().needs`` a need that is dead or over is
        told so, another one as "released". Those that wait for a key stay: two would have it."""
        return self._each(jobs, self._release)

    @now
    def cancel(self, jobs: str | BlockedJob | Iterable[str | BlockedJob]) -> Procedure[Acted]:
        """End jobs as cancelled. What waits for them hears that they are over without success."""
        return self._each(jobs, lambda found: self._end(found, "cancelled"))

    @now
    def delete(self, jobs: str | BlockedJob | Iterable[str | BlockedJob]) -> Procedure[Acted]:
        """Remove jobs for good, also rows that nobody can read."""
        return self._each(jobs, lambda found: self._end(found, "deleted"))

    asize = awaited(size)
    afind = awaited(find)
    arelease = awaited(release)
    acancel = awaited(cancel)
    adelete = awaited(delete)

    def _each(
        self, jobs: str | BlockedJob | Iterable[str | BlockedJob], act: Callable[[BlockedJob], Procedure[int | str]]
    ) -> Procedure[Acted]:
        """``act`` on each as it stands now; its answer is a status of ``park_end``, or why the job stays."""
        total = Acted()
        for one in [jobs] if isinstance(jobs, str | BlockedJob) else jobs:
            jid = one.jid if isinstance(one, BlockedJob) else checked_text("a blocked job", one)
            status: int | str = 0
            for _ in range(_TRIES):  # its row may change between the look and the act
                [row] = yield needs.blocked(self._keys, [jid])
                if row is None:
                    break
                [found] = yield from blocked_jobs(self._keys, [row], self._mask)
                if status := (yield from act(found)):
                    break
            if isinstance(status, str):
                total = total.plus(Acted(stayed=1, reasons=(f"{jid}: {status}",)))
            else:
                total = total.plus(Acted(done=1) if status else Acted(gone=1))
        return total

    def _release(self, found: BlockedJob) -> Procedure[int | str]:
        row = found.row
        if row is None or found.why_it_stays:
            return found.why_it_stays
        job, said = dict(found.entry.job), _said_needs(found.entry)
        met = {
            said.get((one.scope, one.key), (0, one.key))[1]: _MET.get(one.state, "released") for one in found.waits_for
        }
        ours = dict(job["hm"])
        before = ours.get("met")
        ours["met"] = {**(before if isinstance(before, dict) else {}), **met}
        stored = encode({**job, "hm": ours})
        status = yield from self._park_end(found, row, "queue", stored, b"")
        if status == 1:
            self._runtime.events.emit("job_let_go", jid=found.jid, queue=row.queue, needs=met)
        return status

    def _end(self, found: BlockedJob, ending: str) -> Procedure[int | str]:
        row = found.row
        if row is None:
            return 0
        told = EndingFacts(detail={"reason": f"{ending} by hand while it waited for others"})
        text = encoded(self._keys, found.entry.job, ending, told) if found.entry.job else b""
        return (yield from self._park_end(found, row, "nowhere", row.payload, text))

    def _park_end(
        self, found: BlockedJob, row: Blocked, where: str, stored: bytes, effects: bytes
    ) -> Procedure[int | str]:
        lines = [needs.line(*one) for one in _said_needs(found.entry)]
        lines += [needs.line(one.scope, one.key) for one in found.waits_for]
        lock = _lock_of(row, found.entry)
        lines += [f"{lock[0]}{lock[1]}\n{lock[2]}"] if lock else []
        lines += [limit_line(one.scope, one.name) for one in _wanted_places(row, found.entry)]
        answer: int | str = yield needs.park_end(
            self._keys, found.jid, where, "", row.row, stored, effects, lines=sorted(set(lines))
        )
        return f"the server refused: {answer}" if isinstance(answer, str) else answer

    def _walk(self) -> Pages[BlockedJob]:
        return mapped(blocked_rows(self._keys), lambda rows: blocked_jobs(self._keys, rows, self._mask))

    def _line(self, scope: str, name: str) -> Pages[BlockedJob]:
        for phase in ("u", "r", "n"):
            after, waiting = 0.0, [("", 0.0)]
            while waiting:
                waiting = yield locks.waiting(self._keys, phase, scope, name, after, PAGE)
                rows = (yield needs.blocked(self._keys, [jid for jid, _ in waiting])) if waiting else []
                after = waiting[len(rows) - 1][1] if rows else after  # large ones come in smaller pages
                found = [one for one in rows if one is not None]
                yield Page((yield from blocked_jobs(self._keys, found, self._mask)))


# ---- what rows tell


def blocked_rows(keys: Keys) -> Pages[Blocked]:
    """The row of every blocked job, in no order."""
    cursor = -1
    while cursor:
        cursor, rows = yield needs.blocked_page(keys, max(cursor, 0), PAGE)
        yield Page(rows)


class BlockedSlice(NamedTuple):
    """Some blocked jobs, those that do not go by themselves first, then the oldest; ``cursor``: to go on with, 0: there
    are no more; ``looked``: at how many."""

    jobs: list[BlockedJob]
    cursor: int
    looked: int


def blocked_slice(keys: Keys, cursor: int, mask: Mask | None = None, *, stuck: bool = False) -> Procedure[BlockedSlice]:
    """About 25 blocked jobs from ``cursor`` (0: the beginning) on. ``stuck``: those alone that do not go by
    themselves, of about five hundred that are looked at. Two calls."""
    cursor, rows = yield needs.blocked_page(keys, cursor, _SEARCHED if stuck else _SLICE)
    jobs = [one for one in (yield from blocked_jobs(keys, rows, mask)) if one.is_stuck or not stuck]
    return BlockedSlice(sorted(jobs, key=lambda one: (not one.is_stuck, one.since or 0.0)), cursor, len(rows))


def find_blocked(keys: Keys, jid: str, mask: Mask | None = None) -> Procedure[BlockedJob | None]:
    """The blocked job of this id; None when it is not blocked."""
    [row] = (yield needs.blocked(keys, [jid])) if jid else [None]
    if row is None:
        return None
    [found] = yield from blocked_jobs(keys, [row], mask)
    return found


def blocked_jobs(keys: Keys, rows: Sequence[Blocked], mask: Mask | None = None) -> Procedure[list[BlockedJob]]:
    """What each of ``rows`` waits for and how that is, asked together, and until when it waits at most."""
    if not rows:
        return []
    entries = [Entry(row.payload, mask=mask) for row in rows]
    wanted = [_wanted(row, entry) for row, entry in zip(rows, entries, strict=True)]
    states = _states(keys, {one for some in wanted for one in some})
    known, ends = yield from side_by_side(states, ask(needs.waits_until(keys, [row.jid for row in rows])))
    found = []
    for row, entry, some, end in zip(rows, entries, wanted, ends, strict=True):
        waits, due = _in_their_lines([known[one] for one in some]), _time(row.due)
        found.append(BlockedJob(row.jid, row.queue, waits, due, entry.time("created_at"), end, entry, row))
    return found


def _in_their_lines(waits: Sequence[Blocker]) -> tuple[Blocker, ...]:
    """Of several limits the one that it stands in line for; all else as it is."""
    standing = [one for one in waits if one.lock != "limit" or one.place]
    return tuple(standing or waits[:1])


def stuck_since(row: Blocked) -> float | None:
    """Since when (Unix seconds) a job it waits for has been dead or over, as far as its row says so."""
    words = row.reason.split(" ", 3)
    return _time(words[2]) if len(words) > 2 and words[0] == "needs" and words[1] in ("dead", "over") else None


class _Wanted(NamedTuple):
    """What to ask of: ``phase`` of a lock, empty: a need; "s" a place of a limit, for which ``jid`` waits ``since``;
    "p" that what is called ``name`` goes on."""

    phase: str
    scope: str
    name: str
    once_for: int = 0
    jid: str = ""
    since: float = 0.0


def _wanted(row: Blocked, entry: Entry) -> list[_Wanted]:
    """What a row waits for."""
    if line := _lock_of(row, entry):
        return [_Wanted(*line)]
    if places := _wanted_places(row, entry):
        return places
    said = _said_needs(entry)
    missing = [(one[0], one[1]) for one in row.missing] or [*said][:1]
    if paused := [name for scope, name in missing if scope == PAUSED]:
        return [_Wanted("p", PAUSED, one) for one in paused]
    return [_Wanted("", *one, said[one][0] if one in said else ONCE_FOR) for one in missing]


def _wanted_places(row: Blocked, entry: Entry) -> list[_Wanted]:
    """The limits that a job waits for, if it does: it stands in the line of one of them."""
    if row.reason.partition(" ")[0] != "limit":
        return []
    places = [one for one in limits_of(entry.job) if one.kind == "c"]
    return [_Wanted("s", one.name, one.by, 0, row.jid, waits_since(row) or 0.0) for one in places]


def waits_since(row: Blocked) -> float | None:
    """Since when (Unix seconds) a job waits for a place of a limit; None where its row does not tell."""
    words = row.reason.split(" ", 2)
    return _time(words[1]) if words[0] == "limit" and len(words) > 1 else None


def _lock_of(row: Blocked, entry: Entry) -> tuple[str, str, str] | None:
    """Phase, scope and name of the lock that a job waits for; None where it waits for jobs."""
    key = key_of(entry.job) if row.reason == "running" or row.reason.startswith("key") else None
    return None if key is None else ("r" if row.reason == "running" else "u", key.scope, key.name)


def _said_needs(entry: Entry) -> dict[tuple[str, str], tuple[int, str]]:
    """What a payload says of its needs: scope and name → seconds for which a success is remembered, label."""
    return {one[:2]: (max(one.once_for or ONCE_FOR, 1), one.label) for one in said_needs(entry.job)}


def _states(keys: Keys, wanted: set[_Wanted]) -> Procedure[dict[_Wanted, Blocker]]:
    """How each is, in one round trip."""
    places = sorted(one for one in wanted if one.phase == "s")
    paused = sorted(one for one in wanted if one.phase == "p")
    held = sorted(one for one in wanted if one.phase not in ("", "s", "p"))
    needed = sorted(one for one in wanted if not one.phase)
    looks = [_held_states(keys, held[start : start + PAGE]) for start in range(0, len(held), PAGE)]
    looks += [_need_states(keys, needed[start : start + PAGE]) for start in range(0, len(needed), PAGE)]
    looks += [_place_states(keys, places[start : start + PAGE]) for start in range(0, len(places), PAGE)]
    looks += [_pause_states(keys, paused[start : start + PAGE]) for start in range(0, len(paused), PAGE)]
    found: list[list[Blocker]] = yield from side_by_side(*looks)
    return dict(zip([*held, *needed, *places, *paused], chain.from_iterable(found), strict=True))


def _held_states(keys: Keys, some: Sequence[_Wanted]) -> Procedure[list[Blocker]]:
    members = [f"{one.phase} {one.scope}\n{one.name}".encode() for one in some]
    _, doubts = yield locks.in_doubt(keys, members)
    found = []
    for one, doubt in zip(some, doubts, strict=True):
        state: BlockerState = "alive" if doubt.jid else "free"
        since, lock = doubt.since or None, locks.PHASES[one.phase]
        found.append(Blocker(one.scope, one.name, state, doubt.jid, since, lock, doubt.waiting))
    return found


def _place_states(keys: Keys, some: Sequence[_Wanted]) -> Procedure[list[Blocker]]:
    lines = yield limits.in_line(keys, [(one.scope, one.name, one.jid) for one in some])
    found = []
    for one, line in zip(some, lines, strict=True):
        numbers = {"waiting": line.waiting, "place": line.place, "taken": line.taken, "size": line.size}
        found.append(Blocker(one.scope, one.name, "alive", since=one.since or None, lock="limit", **numbers))
    return found


def _pause_states(keys: Keys, some: Sequence[_Wanted]) -> Procedure[list[Blocker]]:
    found = []
    for one, pause in zip(some, (yield pauses.pauses(keys, [one.name for one in some])), strict=True):
        state: BlockerState = "free" if pause is None else "alive"
        by = "" if pause is None else who_paused(pause)
        found.append(Blocker(PAUSED, one.name, state, since=pause and pause.at, lock="pause", by=by))
    return found


def _need_states(keys: Keys, some: Sequence[_Wanted]) -> Procedure[list[Blocker]]:
    told = yield needs.need_states(keys, [(one.scope, one.name, one.once_for) for one in some])
    found = []
    for one, (letter, jid, since) in zip(some, told, strict=True):
        begun = since if letter == "l" and since else None
        found.append(Blocker(one.scope, one.name, _STATES.get(letter, "unknown"), jid, begun))
    return found


def _time(due: object) -> float | None:
    try:
        return float(due) if due else None  # type: ignore[arg-type]
    except (TypeError, ValueError):  # written by somebody else
        return None
