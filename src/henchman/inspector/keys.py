"""Business keys for people: who holds one, since when, who waits for it; and taking it away by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from henchman.errors import ArgumentError
from henchman.inspector.base import Entry, Mask
from henchman.inspector.jobs import MOST, JobStatus, find_job
from henchman.kernel.text import count, visible
from henchman.store import locks, needs
from henchman.store.call import Page, Pages, Procedure, next_page
from henchman.store.keys import Keys
from henchman.store.locks import PHASES, HeldKey, Memory
from henchman.wire import times

__all__ = [
    "KeyLook",
    "KeyPage",
    "KeyState",
    "ScopeState",
    "WaitsForKey",
    "held_in",
    "key_look",
    "keys_in",
    "scope_states",
    "states",
    "unlock",
]

_PAGE = 50
_STEP = 40  # keys that a scan is asked for: it gives some more
_BY_NAME = 1 << 62  # a cursor from there on is a place among the keys by name: the server has none as high
_REMEMBERED = {"s": "finished", "f": "failed", "x": "over"}
_LIVING = ("blocked", "deferred", "enqueued", "scheduled", "retrying", "working")
#: phase → what becomes of it when its key is taken from a job that lives
_BREAKS = {
    "followed": "who waits for it hears that it is over without success, and nobody hears of its success any more",
    "once": "another job may run beside it, who waits for it hears that it is over without success, and its success is "
    "not remembered",
}
_BESIDE = "another job may run beside it"


@dataclass(frozen=True)
class KeyState:
    """Who has a key.

    ``phase``: "once", "until_success", "queued", "running" or "followed" (others may wait for its end).
    ``since`` in Unix seconds; ``status``: of its job, as ``job_status`` tells; ``waiting``: how many jobs wait for the
    key, or for the success of its job. ``remembered_until``: Unix seconds, of a ``once`` or followed key whose job has
    ended, and None while it is held; then ``status`` is "finished", "failed" or, over without success, "over".
    ``searched`` is False where that job was not found before the search met its bound: it may live.
    """

    phase: str
    scope: str
    key: str
    jid: str
    since: float | None = None
    status: str = ""
    waiting: int = 0
    remembered_until: float | None = None
    searched: bool = field(default=True, repr=False, compare=False)

    @property
    def lives(self) -> bool:
        """Whether its job has not ended, or may not have: its end gives the key back."""
        return self.status in _LIVING or not self.searched

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs; times as ISO 8601 in UTC or null."""
        return {
            "phase": self.phase,
            "scope": self.scope,
            "key": self.key,
            "jid": self.jid,
            "since": times.iso(self.since) or None,
            "status": self.status or None,
            "waiting": self.waiting,
            "remembered_until": times.iso(self.remembered_until) or None,
        }


@dataclass(frozen=True)
class ScopeState:
    """How many keys of a scope are held, by phase."""

    scope: str
    held: dict[str, int]


def states(keys: Keys, scope: str, key: str, once_for: int, mask: Mask | None = None) -> Procedure[list[KeyState]]:
    """Who has the key, phase by phase; of a ``once`` or followed key that nobody
    holds, how its last job ended. The scope "" has the jobs that are followed by their ids."""
    held: list[HeldKey]
    held, memory = yield locks.look(keys, scope, key, once_for)
    found = []
    for one in held:
        status: JobStatus = yield from find_job(keys, one.jid, mask=mask, most=MOST)
        known = status.complete or status.state not in ("unknown", "cancelled")
        told = (status.state, one.waiting, None, known)
        found.append(KeyState(PHASES[one.phase], scope, key, one.jid, one.since, *told))
    remembered = _remembered(scope, key, held, memory)
    return found if remembered is None else [*found, remembered]


def _remembered(scope: str, key: str, held: Sequence[HeldKey], memory: Memory | None) -> KeyState | None:
    """How the last job of a key ended that nobody holds."""
    if memory is None or any(one.phase in "of" for one in held):
        return None
    ended = _REMEMBERED.get(memory.letter, "unknown")
    return KeyState("once" if scope else "followed", scope, key, memory.jid, None, ended, 0, memory.until)


def unlock(
    keys: Keys, scope: str, key: str, once_for: int, *, force: bool, mask: Mask | None = None
) -> Procedure[list[KeyState]]:
    """Take the key from who holds it; from whom. The next in line has it then. ArgumentError, and nothing is done, when
    a job holds it that is anywhere but with the dead, unless ``force``."""
    held = [one for one in (yield from states(keys, scope, key, once_for, mask)) if one.remembered_until is None]
    if not force:
        for one in held:
            if one.lives:
                raise ArgumentError(_why_it_stays(one))
    freed = []
    for one in held:
        if (yield locks.unlock(keys, _LETTERS[one.phase], scope, key, one.jid)):
            freed.append(one)
    return freed


def _why_it_stays(one: KeyState) -> str:
    """Why the key stays with its job, and what taking it would break."""
    has = f"has the key {visible(one.key)!r} of {visible(one.scope)!r} ({one.phase})" if one.scope else "is followed"
    how = f"is {one.status}" if one.searched else "was not found before the search met its bound: it may live"
    waiting = f"; {count(one.waiting, 'job')} {'waits' if one.waiting == 1 else 'wait'} for it" if one.waiting else ""
    return (
        f"job {one.jid} {has} and {how}{waiting}: its end gives the key back. With force it is taken away now: "
        f"{_BREAKS.get(one.phase, _BESIDE)}"
    )


_LETTERS = {word: letter for letter, word in PHASES.items()}


def scope_states(keys: Keys, match: str = "", most: int | None = None) -> Procedure[list[ScopeState]]:
    """Every scope in which a key was ever held, with how many are; first "", when jobs are followed by their ids.
    ``match``: those with it in their name, in any case, ``most``: the first of these by name."""
    [by_id] = yield locks.counts(keys, [""])
    named: list[str] = yield locks.scopes(keys)
    names = [""] * any(by_id.values()) + [one for one in named if one]
    names = [one for one in names if match.lower() in one.lower()][:most]
    found: list[ScopeState] = []
    for start in range(0, len(names), 500):
        some = names[start : start + 500]
        counted: list[dict[str, int]] = yield locks.counts(keys, some)
        for scope, counts in zip(some, counted, strict=True):
            found.append(ScopeState(scope, {PHASES[one]: many for one, many in counts.items()}))
    return found


def held_in(keys: Keys, scope: str) -> Pages[KeyState]:
    """Every key of a scope that is held, page by page, in no order."""
    pages = locks.held(keys, scope)
    while (page := (yield from next_page(pages))) is not None:
        yield Page(KeyState(PHASES[one.phase], scope, one.name, one.jid, one.since) for one in page)


# ---- as pages: a bounded number of calls


class KeyPage(NamedTuple):
    """Some keys of a scope that are held in ``phase``, with how many wait for each; how many are held in each phase;
    ``cursor``: to go on with, 0: these were the last."""

    phase: str
    counts: dict[str, int]
    keys: list[KeyState]
    cursor: int


def keys_in(keys: Keys, scope: str, phase: str, cursor: int) -> Procedure[KeyPage]:
    """About fifty keys of a scope that are held, in no order: three calls. Without a ``phase``: of the first that has
    some. The server gives the keys of a small scope all at once: these have pages by name."""
    [counted] = yield locks.counts(keys, [scope])
    counts = {PHASES[one]: many for one, many in counted.items()}
    phase = phase or next((word for word, many in counts.items() if many), "once")
    letter = _LETTERS[phase]
    first = max(cursor - _BY_NAME, 0)
    cursor, found = yield locks.page(keys, letter, scope, 0 if first else cursor, step=_STEP)
    if first or (not cursor and len(found) > 2 * _PAGE):
        cursor = _BY_NAME + first + _PAGE if len(found) > first + _PAGE else 0
        found = sorted(found)[first : first + _PAGE]
    waiting: list[int] = []
    if found:
        _, doubts = yield locks.in_doubt(keys, [f"{letter} {scope}\n{one.name}".encode() for one in found])
        waiting = [one.waiting for one in doubts]
    held = [
        KeyState(phase, scope, one.name, one.jid, one.since, waiting=many)
        for one, many in zip(found, waiting, strict=True)
    ]
    return KeyPage(phase, counts, held, cursor)


class WaitsForKey(NamedTuple):
    """A job in the line of a key: ``for_key``: it needs the key itself, else the success of its job; ``entry``: the
    job, None when it left the line meanwhile."""

    jid: str
    for_key: bool
    entry: Entry | None


class KeyLook(NamedTuple):
    """Who has a key, phase by phase, without how these jobs are; how the job of a ``once`` key ended, if nobody has it;
    the first who wait, in their order, and how many do."""

    held: list[KeyState]
    remembered: KeyState | None
    line: list[WaitsForKey]
    waiting: int


def key_look(keys: Keys, scope: str, key: str, once_for: int, mask: Mask | None = None) -> Procedure[KeyLook]:
    """A key, who has it and who waits for it: three calls, however long the line is."""
    held, memory = yield locks.look(keys, scope, key, once_for)
    lines: list[locks.Queued] = yield locks.lines(keys, scope, key, _PAGE)
    found = [(jid, one.phase != "n") for one in lines for jid in one.jids]
    rows = (yield needs.blocked(keys, [jid for jid, _ in found])) if found else []
    entries = [None if row is None else Entry(row.payload, mask=mask) for row in rows]
    entries += [None] * (len(found) - len(entries))  # large ones: 4 MB were reached
    states = [KeyState(PHASES[one.phase], scope, key, one.jid, one.since, "", one.waiting) for one in held]
    remembered = _remembered(scope, key, held, memory)
    line = [WaitsForKey(*one, entry) for one, entry in zip(found, entries, strict=True)]
    return KeyLook(states, remembered, line, sum(one.many for one in lines))
