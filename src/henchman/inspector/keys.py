"""Business keys for people: who holds one, since when, who waits for it; and taking it away by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from henchman.errors import ArgumentError
from henchman.inspector.base import Entry, Mask
from henchman.inspector.jobs import JobStatus, find_job
from henchman.kernel.text import visible
from henchman.store import locks, needs
from henchman.store.call import Page, Pages, Procedure
from henchman.store.keys import Keys
from henchman.store.locks import PHASES, HeldKey
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
_REMEMBERED = {"s": "finished", "f": "failed"}
_SETTLED = ("unknown", "dead")  # states of a holder whose key may be taken away without force


@dataclass(frozen=True)
class KeyState:
    """Who has a key. ``phase``: "once", "until_success", "queued" or "running"; ``since`` in Unix seconds; ``status``:
    of its job, as ``job_status`` tells; ``waiting``: how many jobs wait for it. ``remembered_until``: Unix seconds, of
    a ``once`` key whose job has finished or failed; None while it is held."""

    phase: str
    scope: str
    key: str
    jid: str
    since: float | None = None
    status: str = ""
    waiting: int = 0
    remembered_until: float | None = None

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
    """Who has the key, phase by phase; of a ``once`` key that nobody holds, how its job ended."""
    held: list[HeldKey]
    held, memory = yield locks.look(keys, scope, key, once_for)
    found = []
    for one in held:
        status: JobStatus = yield from find_job(keys, one.jid, mask=mask)
        found.append(KeyState(PHASES[one.phase], scope, key, one.jid, one.since, status.state, one.waiting))
    if memory is not None and not any(one.phase == "o" for one in held):
        found.append(KeyState("once", scope, key, memory.jid, None, _REMEMBERED[memory.letter], 0, memory.until))
    return found


def unlock(
    keys: Keys, scope: str, key: str, once_for: int, *, force: bool, mask: Mask | None = None
) -> Procedure[list[KeyState]]:
    """Take the key from who holds it; from whom. The next in line has it then. ArgumentError, and nothing is done, when
    a job holds it that is anywhere but with the dead, unless ``force``."""
    held = [one for one in (yield from states(keys, scope, key, once_for, mask)) if one.remembered_until is None]
    living = [one for one in held if one.status not in _SETTLED]
    if living and not force:
        one = living[0]
        raise ArgumentError(
            f"job {one.jid} has the key {visible(key)!r} of {visible(scope)!r} ({one.phase}) and is {one.status}: "
            "its end gives the key back. With force it is taken away now, and another job may run beside it"
        )
    freed = []
    for one in held:
        if (yield locks.unlock(keys, _LETTERS[one.phase], scope, key, one.jid)):
            freed.append(one)
    return freed


_LETTERS = {word: letter for letter, word in PHASES.items()}


def scope_states(keys: Keys, match: str = "", most: int | None = None) -> Procedure[list[ScopeState]]:
    """Every scope in which a key was ever held, with how many are; ``match``: those with it in their name, in any case,
    ``most``: the first of these by name."""
    names: list[str] = yield locks.scopes(keys)
    names = [one for one in names if match.lower() in one.lower()][:most]
    found: list[ScopeState] = []
    for start in range(0, len(names), 500):
        some = names[start : start + 500]
        counted: list[dict[str, int]] = yield locks.counts(keys, some)
        for scope, counts in zip(some, counted, strict=True):
            found.append(ScopeState(scope, {PHASES[one]: count for one, count in counts.items()}))
    return found


def held_in(keys: Keys, scope: str) -> Pages[KeyState]:
    """Every key of a scope that is held, page by page, in no order."""
    for phase, word in PHASES.items():
        cursor = -1
        while cursor:
            cursor, found = yield locks.page(keys, phase, scope, max(cursor, 0))
            yield Page(KeyState(word, scope, one.name, one.jid, one.since) for one in found)


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
    some."""
    [counted] = yield locks.counts(keys, [scope])
    counts = {PHASES[one]: many for one, many in counted.items()}
    phase = phase or next((word for word, many in counts.items() if many), "once")
    letter = _LETTERS[phase]
    cursor, found = yield locks.page(keys, letter, scope, cursor, step=_PAGE)
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
    remembered = None
    if memory is not None and not any(one.phase == "o" for one in held):
        remembered = KeyState("once", scope, key, memory.jid, None, _REMEMBERED[memory.letter], 0, memory.until)
    line = [WaitsForKey(*one, entry) for one, entry in zip(found, entries, strict=True)]
    return KeyLook(states, remembered, line, sum(one.many for one in lines))
