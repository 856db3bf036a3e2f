"""Business keys for people: who holds one, since when, who waits for it; and taking it away by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from henchman.errors import ArgumentError
from henchman.inspector.base import Mask
from henchman.inspector.jobs import JobStatus, find_job
from henchman.kernel.text import visible
from henchman.store import locks
from henchman.store.call import Page, Pages, Procedure
from henchman.store.keys import Keys
from henchman.store.locks import PHASES, HeldKey
from henchman.wire import times

__all__ = ["KeyState", "ScopeState", "held_in", "scope_states", "states", "unlock"]

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


def scope_states(keys: Keys) -> Procedure[list[ScopeState]]:
    """Every scope in which a key was ever held, with how many are."""
    names: list[str] = yield locks.scopes(keys)
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
