"""The business key of a job as its payload tells it, and which locks each ending gives back.

A lock belongs to the jid that it names; the effects change it only as long as it does (``lua/lib/locks.lua``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from henchman.kernel.digests import sha1
from henchman.wire import payload as payloads
from henchman.work.limits import has_places

__all__ = [
    "LOCKED",
    "JobKey",
    "as_remembered",
    "freed",
    "is_exclusive",
    "key_of",
    "lock_effects",
    "needs_of",
    "said_needs",
]

ONCE_FOR: Final = 7 * 86400  # seconds
_ONCE_LONGEST: Final = 366 * 86400
_PHASES: Final = frozenset("ouwrf")

_STARTED = frozenset({"retry", "snoozed", "deferred", "released", "interrupted", "held"})
_DEAD = frozenset({"dead", "kept", "invalid", "poisoned"})
_OVER = frozenset({"done", "failed", "discarded", "gone", "expired", "cancelled", "deleted"})

#: ending → the phases whose locks it gives back: o once, u until it succeeded, w until it starts, r while it runs, f
#: followed: others wait for its end
LOCKED: Final[Mapping[str, str]] = {
    **dict.fromkeys(_OVER, "ouwrf"),
    **dict.fromkeys(_DEAD, "uwr"),  # keys of the others stay with the dead job
    **dict.fromkeys(_STARTED, "r"),  # nothing is taken again when the job comes back
    "trimmed": "of",
}
_REMEMBERED: Final = {"done": "s", "failed": "f"}
_JID: Final = re.compile("[0-9a-f]{24}")
_STORED_ANEW: Final = _DEAD | {"retry", "snoozed", "interrupted"}


class JobKey(NamedTuple):
    """What a job holds: ``name`` within ``scope``, in some ``phases``; ``once_for`` in seconds."""

    scope: str
    name: str
    phases: str
    once_for: int = ONCE_FOR


def key_of(job: Mapping[str, Any]) -> JobKey | None:
    """The key of a job, ``hm.key``; None when it has none, or says so in a way that nobody can read."""
    ours = job.get("hm")
    said = ours.get("key") if isinstance(ours, dict) else None
    if not isinstance(said, list) or len(said) != 3 or not isinstance(job.get("jid"), str):
        return None
    scope, name, phases = said
    if not (isinstance(scope, str) and isinstance(name, str) and isinstance(phases, str)):
        return None
    if "\n" in scope or not _are_phases(phases):
        return None
    together = f"{scope}{name}{job['jid']}"
    try:
        _ = together.isascii() or together.encode()
    except UnicodeEncodeError:  # half a surrogate pair: nothing on the server is called so
        return None
    once_for = payloads.seconds(ours["once_for"]) if isinstance(ours, dict) and "once_for" in ours else None
    if not once_for or not scope:  # "": followed by its jid
        return JobKey(scope, name, phases)
    return JobKey(scope, name, phases, min(max(int(once_for), 1), _ONCE_LONGEST))


@lru_cache(maxsize=256)
def _are_phases(phases: str) -> bool:
    return phases != "" and _PHASES.issuperset(phases)


def is_exclusive(unit: Any) -> bool:
    """Whether ``unit`` (a ``work.unit.Unit``) is not to be given back beside its handler: it holds ordered ids, a key
    that nobody else may have while it runs, or a place of a limit."""
    if unit.source is not None:
        return True
    key = key_of(unit.job)
    return (key is not None and ("r" in key.phases or "o" in key.phases)) or has_places(unit.job)


def freed(key: JobKey, ending: str) -> str:
    """The phases of ``key`` whose locks ``ending`` gives back, in the order of the effects."""
    return _freed(key.phases, ending)


@lru_cache(maxsize=256)
def _freed(phases: str, ending: str) -> str:
    return "".join(one for one in LOCKED.get(ending, "") if one in phases)


def as_remembered(key: JobKey, jid: str) -> bytes:
    """The place of a key whose success is remembered, and its job, packed as ``lua/lib/once.lua`` keeps them (12 bytes
    each): the server would take 2 µs for it. Empty for a jid that is kept as it stands."""
    if _JID.fullmatch(jid) is None:
        return b""
    place: bytes = sha1(f"{key.scope}\n{key.name}".encode()).digest()[:12]
    return place + bytes.fromhex(jid)


def _letter(key: JobKey, phase: str, ending: str) -> str:
    """What is remembered of the job of a key. A jid never comes again, so that its end is, whatever it was."""
    over = "x" if key.scope == "" else ""
    return _REMEMBERED.get(ending, over) if phase in "of" else ""


def lock_effects(job: Mapping[str, Any], ending: str, *, latest: bool) -> list[tuple[str, ...]]:
    """The effects of ``ending`` on the locks of ``job``. ``latest``: what is stored has the newest arguments."""
    key = key_of(job)
    if key is None:
        return []
    jid: str = job["jid"]
    found: list[tuple[str, ...]] = []
    for phase in freed(key, ending):
        if phase == "r":
            found.append(("unrun", key.scope, key.name, jid))
        else:
            letter = _letter(key, phase, ending)
            found.append(("unlock", phase, key.scope, key.name, jid, letter, str(key.once_for)))
    if ending in _DEAD:
        found += [("follow", one, key.scope, key.name, jid) for one in "of" if one in key.phases]
    if ending == "revived":
        found += [("relock", one, key.scope, key.name, jid, str(key.once_for)) for one in "ouf" if one in key.phases]
    if "w" in key.phases and (ending in _OVER or ending == "trimmed" or (latest and ending in _STORED_ANEW)):
        found.append(("unlatest", jid))
    return found


class SaidNeed(NamedTuple):
    """What a payload says of one need: ``label`` is what people call it; for ``once_for`` seconds its success is
    remembered, 0 where that is not told."""

    scope: str
    name: str
    once_for: int
    label: str


def said_needs(job: Mapping[str, Any]) -> list[SaidNeed]:
    """What ``job`` says that it waits for, as far as that can be read."""
    ours = job.get("hm")
    said = ours.get("needs") if isinstance(ours, dict) else None
    found = []
    for one in said if isinstance(said, list) else ():
        match one:
            case [str(scope), str(name), once_for, label]:
                found.append(SaidNeed(scope, name, once_for if type(once_for) is int else 0, str(label)))
    return found


def needs_of(job: Mapping[str, Any]) -> dict[str, str]:
    """What became of each job that ``job`` waited for, by its label: "finished", or "dead", "over", "time" where
    ``on_failed`` or ``on_dead`` let it run all the same. What nobody can read counts as not said."""
    ours = job.get("hm")
    met = ours.get("met") if isinstance(ours, dict) else None
    how = {name: one for name, one in met.items() if isinstance(one, str)} if isinstance(met, dict) else {}
    return {one.label: how.get(one.label, "finished") for one in said_needs(job)}
