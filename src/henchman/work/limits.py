"""The limits of a job as its payload tells them, and which of them its end gives back.

A place belongs to the jid that stands in it; only the end of that job takes it out (``lua/lib/limit_ends.lua``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from henchman.errors import ArgumentError
from henchman.kernel.text import as_shown
from henchman.wire import payload as payloads
from henchman.wire.jsontext import encode

__all__ = [
    "SaidLimit",
    "check_spent",
    "has_places",
    "has_time",
    "limit_effects",
    "limits_asked",
    "limits_of",
    "limits_text",
    "max_wait",
    "places_end",
    "without_time",
]

MOST_SPENT: Final = 1_000_000_000
_KINDS: Final = frozenset("clwbp")
_NUMBERS: Final = (int, float)
TIME: Final = "reserved_at"  #: of a payload: since when it may start, as its rates told it
_TIME: Final = re.compile(rb',"reserved_at":[0-9.]+')


class SaidLimit(NamedTuple):
    """One limit: its kind (a letter), name, whose it is, how many, in how many seconds, what a start takes."""

    kind: str
    name: str
    by: str
    n: int
    per: float
    cost: int


def limits_of(job: Mapping[str, Any]) -> list[SaidLimit]:
    """The limits of a job, ``hm.limits``; none, where it says them in a way that nobody can read."""
    ours = job.get("hm")
    said = ours.get("limits") if isinstance(ours, dict) else None
    found = []
    for one in said if isinstance(said, list) else ():
        match one:
            case [str(kind), str(name), str(by), int(n), int() | float() as per, int(cost)] if kind in _KINDS:
                found.append(SaidLimit(kind, name, by, n, per, cost))
            case _:
                return []
    try:
        "".join(one.name + one.by for one in found).encode()
    except UnicodeEncodeError:  # half a surrogate pair: nothing on the server is called so
        return []
    fine = all(one.n >= (one.kind != "c") and one.per >= 0 and "\n" not in one.name and one.name for one in found)
    return found if fine and all(one.per > 0 for one in found if one.kind != "c") else []


def has_places(job: Mapping[str, Any]) -> bool:
    """Whether ``job`` has a place of a limit while it runs."""
    return any(one.kind == "c" for one in limits_of(job))


def has_time(job: Mapping[str, Any]) -> bool:
    """Whether the rates of ``job`` have told it when it may start."""
    return TIME in job


def max_wait(job: Mapping[str, Any]) -> float:
    """For how many seconds a job waits for its limits at most; 0: for ever."""
    ours = job.get("hm")
    return (payloads.seconds(ours.get("max_wait")) or 0.0) if isinstance(ours, dict) else 0.0


def limits_text(limits: list[SaidLimit], running: tuple[str, str] | None) -> str:
    """All that a job needs for its start, JSON: its limits, and its key, ``running``, that is held while it runs."""
    every: list[Any] = [*limits, *([("r", *running)] if running is not None else [])]
    return encode(every).decode()


def limits_asked(job: Mapping[str, Any], said: str, behind: int = 0, *, holds: bool = False) -> str:
    """What ``claim.lua`` is told of ``said``, the limits of a job as ``limits_text`` has them: ``behind``: how many may
    wait in flight for the places of others of their process; ``holds``: whether such have them now."""
    return f"{max_wait(job)!r} {int(has_time(job))} {behind} {int(holds)} {said}"


def places_end(limits: list[SaidLimit]) -> bytes:
    """How the plain end of a job with places alone begins, for ``lib/place_ends.lua``; empty where it cannot say so."""
    names = [part for one in limits for part in (one.name, one.by)]
    fine = all(one.kind == "c" for one in limits) and not any("\n" in part for part in names)
    return f"~{chr(10).join(names)}\n\n".encode() if fine else b""


def limit_effects(job: Mapping[str, Any], spent: int | None, heir: str = "") -> list[tuple[str, ...]]:
    """The effects of an ending of ``job`` on its limits: its places are free, or those of its ``heir``, and points are
    what its run said."""
    jid: str = job["jid"]
    found: list[tuple[str, ...]] = []
    for one in limits_of(job):
        if one.kind == "c":
            found.append(("unslot", one.name, one.by, jid, *([heir] if heir else [])))
        elif one.kind == "p" and spent is not None and spent != one.cost:
            found.append(("spent", one.name, one.by, str(one.n), repr(float(one.per)), str(spent - one.cost)))
    return found


def check_spent(job: Mapping[str, Any], points: int) -> int:
    """``points``, as a run says that it took them; ArgumentError where it has no limit of points."""
    if type(points) is not int or not 0 <= points <= MOST_SPENT:
        raise ArgumentError(f"spent({as_shown(points, 80)}): give points from 0 to {MOST_SPENT:,}")
    if not any(one.kind == "p" for one in limits_of(job)):
        raise ArgumentError(f"spent({points}): this job has no limit of points: limits=[Points(…)]")
    return points


def without_time(payload: bytes) -> bytes:
    """``payload`` of a job that starts: its next run asks its rates again."""
    at = payload.rfind(b',"reserved_at":')
    return payload if at < 0 else payload[:at] + _TIME.sub(b"", payload[at:], count=1)
