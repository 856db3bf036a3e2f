"""Errors by group: which kinds of failures there were, which of them are new or rise, which jobs are to be tried again
or dead because of one.

Its limits first: the groups are those that workers of Henchman wrote down, at their last heartbeat, and the 200 that
failed last are looked at. A job that was retried and succeeded is none of the group's jobs any more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError
from henchman.inspector.base import Entry, Mask
from henchman.inspector.metrics import Deploy
from henchman.inspector.sets import JobSet
from henchman.kernel.clock import ServerClock
from henchman.store import failures as calls
from henchman.store.call import Procedure
from henchman.store.keys import Keys
from henchman.store.leases import ask_time
from henchman.store.queues import SEARCHED, Stretch, set_stretch
from henchman.wire import times

__all__ = [
    "LOOKED",
    "STANDS_IN",
    "ErrorGroup",
    "Errors",
    "Members",
    "Narrowed",
    "StandsIn",
    "error_group",
    "errors",
]
__all__ += ["Handled", "jobs_of", "mute_error", "reopen_error", "resolve_error", "some_jobs"]

LOOKED: Final = 200  # groups
HOURS: Final = 24  # of a trend
NEW: Final = 3600.0  # seconds after its first failure for which an error is new
_ID: Final = 40  # characters of a group's id, at most
_RISE: Final = 3.0  # times as many failures in an hour as usual
_FEW: Final = 5  # failures in an hour that are no rise
_BLAMED: Final = 6 * 3600.0  # seconds after a deploy within which a first failure may be its fault

Trend = Literal["new", "returned", "rising", "steady", "quiet", "muted", "resolved"]
_MUTED = re.compile(r"([1-9][0-9]{0,5})([mhdx])")
_SECONDS: Final = {"m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST: Final = 14 * 86_400.0  # seconds, so long is a group kept
StandsIn = Literal["dead", "retries"]
STANDS_IN: Final[tuple[StandsIn, ...]] = ("dead", "retries")


class Handled(msgspec.Struct, frozen=True):
    """What somebody decided about a group ``at`` a time, when it had ``count`` failures: ``verb`` "resolve", or "mute"
    ``until`` a time (0: whenever), or until ``most`` failures more (0: however many)."""

    verb: Literal["resolve", "mute"]
    at: float
    count: int
    until: float = 0.0
    most: int = 0


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failures of one kind: the exception's name, the ``message`` of the last, ``place`` where the application raised
    it (``module:function``, innermost first), how often, first and last time (Unix seconds), the last job's ``jid``.

    ``jobs``, ``queues``, ``hosts``, ``versions`` (the tags of processes), ``attempts``: counts by name, of at most 20;
    ``hours``: by hour (Unix time // 3600), of the last 48;
    ``after``: the last deploy before it was first seen; ``trace``: the traceback of one, newest frame first;
    ``handled``: the last decision of a person about it.
    """

    id: str
    error: str
    message: str
    place: str
    count: int
    first: float
    last: float
    jid: str
    jobs: Mapping[str, int]
    queues: Mapping[str, int]
    hours: Mapping[int, int]
    after: Deploy | None = None
    trace: tuple[str, ...] = ()
    handled: Handled | None = None
    hosts: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)

    def trend(self, now: float) -> tuple[int, ...]:
        """Failures in each of the last 24 hours, this one last."""
        hour = int(now // 3600)
        return tuple(self.hours.get(hour - back, 0) for back in reversed(range(HOURS)))

    def recent(self, now: float) -> float:
        """Failures in the last hour, about: those of this hour, and its share of those of the hour before."""
        hour = int(now // 3600)
        return self.hours.get(hour, 0) + self.hours.get(hour - 1, 0) * (1 - now % 3600 / 3600)

    def state(self, now: float) -> Trend:
        """Whether somebody resolved it, and it came back since, or muted it until later; whether it is new (first seen
        within an hour), rises (three times as many as usual in this hour), is quiet
        (none in this hour and the one before), or goes on as it did."""
        known = self.handled
        if known is not None and known.verb == "resolve":
            return "returned" if self.last > known.at else "resolved"
        if known is not None and now < (known.until or now + 1) and self.since < (known.most or self.since + 1):
            return "muted"
        if now - self.first < NEW:
            return "new"
        *before, last, present = self.trend(now)
        recent = self.recent(now)
        if recent >= _FEW and recent > _RISE * sum(before) / len(before):
            return "rising"
        return "steady" if last or present else "quiet"

    @property
    def since(self) -> int:
        """Failures since somebody decided something about it; of all time where nobody did."""
        return self.count - self.handled.count if self.handled else self.count

    def to_json(self, now: float) -> dict[str, Any]:
        """As the command line and programs have it."""
        return {
            "id": self.id,
            "error": self.error,
            "message": self.message,
            "place": self.place,
            "state": self.state(now),
            "count": self.count,
            "last_24_hours": list(self.trend(now)),
            "first": times.iso(self.first),
            "last": times.iso(self.last),
            "jobs": dict(self.jobs),
            "queues": dict(self.queues),
            "hosts": dict(self.hosts),
            "versions": dict(self.versions),
            "attempts": dict(self.attempts),
            "jid": self.jid,
            "deploy": None if self.after is None else {"at": times.iso(self.after.at), "label": self.after.label},
            "trace": list(self.trace),
            "handled": None if self.handled is None else _handled_json(self.handled),
        }


def _handled_json(one: Handled) -> dict[str, Any]:
    until = times.iso(one.until) if one.until else None
    return {"verb": one.verb, "at": times.iso(one.at), "until": until, "more": one.most or None}


class Errors(NamedTuple):
    """Groups as of ``at`` (Unix seconds), those that are new or rise first; ``total``: how many are kept, of which the
    200 that failed last were looked at; ``forgotten``: how many went because there were more than 500."""

    at: float
    groups: Sequence[ErrorGroup]
    total: int
    forgotten: int


_ORDER: Final[Mapping[Trend, int]] = {
    "new": 0,
    "returned": 0,
    "rising": 1,
    "steady": 2,
    "quiet": 3,
    "muted": 4,
    "resolved": 5,
}


class Narrowed(NamedTuple):
    """Which errors are wanted: of one job, queue, host or version, and with ``text`` in the exception, message, place
    or job; all of them where nothing is said."""

    job: str = ""
    queue: str = ""
    host: str = ""
    version: str = ""
    text: str = ""

    def fits(self, one: ErrorGroup) -> bool:
        """Whether an error is wanted."""
        asked = zip(self[:4], (one.jobs, one.queues, one.hosts, one.versions), strict=True)
        said = "\n".join((one.error, one.message, one.place, one.id, *one.jobs)).lower()
        return all(not name or name in counts for name, counts in asked) and self.text.lower() in said


_EVERY: Final = Narrowed()


def errors(keys: Keys, wanted: Narrowed = _EVERY, *, now: float | None = None) -> Procedure[Errors]:
    """Errors that are wanted, those that are new or rise first."""
    now = time.time() if now is None else now
    names: list[str] = yield calls.groups(keys, 0, LOOKED)
    if not names:
        return Errors(now, [], 0, 0)
    found: calls.StoredGroups = yield calls.some_groups(keys, names, now)
    stored = zip(names, found.facts, found.handled, strict=True)
    every = [_read(name, facts, None, found.marks, handled) for name, facts, handled in stored]
    shown = [one for one in every if one is not None and wanted.fits(one)]
    shown.sort(key=lambda one: (_ORDER[one.state(now)], -one.recent(now), -one.last, one.id))
    return Errors(now, shown, found.total, found.forgotten)


def error_group(keys: Keys, name: str, now: float | None = None) -> Procedure[ErrorGroup | None]:
    """One group with its traceback; None when nobody knows it (any more)."""
    if not _is_id(name):
        return None
    now = time.time() if now is None else now
    found: calls.StoredGroups = yield calls.some_groups(keys, [name], now, traces=True)
    return _read(name, found.facts[0], found.traces[0], found.marks, found.handled[0])


def _is_id(name: str) -> bool:
    return 0 < len(name) <= _ID and name.isalnum()


def resolve_error(keys: Keys, name: str) -> Procedure[bool]:
    """Somebody mended it: the group is quiet until it comes back, and says so then. False: there is no such group."""
    return (yield from _handle(keys, name, "resolve"))


def mute_error(keys: Keys, name: str, how_long: str) -> Procedure[bool]:
    """Make the group quiet for a time (``30m``, ``2h``, ``7d``) or until it failed so many times more (``100x``).
    False: there is no such group; ArgumentError when ``how_long`` says neither."""
    found = _MUTED.fullmatch(how_long)
    seconds = int(found[1]) * _SECONDS.get(found[2], 0.0) if found else 0.0
    if found is None or seconds > _LONGEST:
        raise ArgumentError(
            f"{how_long[:40]!r} is no time to mute an error for: say 30m, 2h or 7d (14d at most), "
            "or 100x: until it happened a hundred times more"
        )
    return (yield from _handle(keys, name, "mute", seconds, 0 if seconds else int(found[1])))


def reopen_error(keys: Keys, name: str) -> Procedure[bool]:
    """Neither resolved nor muted any more. False: there is no such group."""
    return (yield from _handle(keys, name, None))


def _handle(
    keys: Keys, name: str, verb: Literal["resolve", "mute"] | None, seconds: float = 0.0, most: int = 0
) -> Procedure[bool]:
    one = yield from error_group(keys, name)
    if one is None:
        return False
    at: float = yield ask_time(ServerClock())
    decided = Handled(verb, at, one.count, at + seconds if seconds else 0.0, most) if verb else None
    yield from calls.handle_group(keys, name, msgspec.json.encode(decided) if decided else b"")
    return True


def _read(name: str, stored: Any, trace: Any, marks: Mapping[float, str], handled: Any) -> ErrorGroup | None:
    """None for what is no group, whoever wrote it."""
    try:
        facts = msgspec.json.decode(stored or b"", type=_Facts)
        lines = msgspec.json.decode(trace, type=list[str]) if trace else []
        decided = msgspec.json.decode(handled, type=Handled) if handled else None
    except (msgspec.DecodeError, ValueError):
        return None
    hours = {int(hour): int(many) for hour, many in facts.hours.items() if hour.isascii() and hour.isdigit()}
    before = [at for at in marks if facts.first - _BLAMED < at <= facts.first]
    after = Deploy(max(before), marks[max(before)]) if before else None
    known = facts.error, facts.message, facts.place, int(facts.count), facts.first, facts.last, facts.jid
    jobs, queues, *where = map(_most_first, (facts.jobs, facts.queues, facts.hosts, facts.versions, facts.attempts))
    return ErrorGroup(name, *known, jobs, queues, hours, after, tuple(lines), decided, *where)


class _Facts(msgspec.Struct):
    """A group as ``lua/group_errors.lua`` writes it."""

    error: str
    message: str
    place: str
    count: float
    first: float
    last: float
    jid: str
    jobs: dict[str, float]
    queues: dict[str, float]
    hours: dict[str, float]
    hosts: dict[str, float] = {}
    versions: dict[str, float] = {}
    attempts: dict[str, float] = {}


def _most_first(counts: Mapping[str, float]) -> dict[str, int]:
    return {name: int(many) for name, many in sorted(counts.items(), key=lambda one: (-one[1], one[0]))}


# ---- the jobs that stand there


class Members(NamedTuple):
    """A group's jobs among the first ``looked`` entries of a set; ``more``: whether it has more entries."""

    entries: Sequence[Entry]
    looked: int
    more: bool


def some_jobs(keys: Keys, mask: Mask, which: StandsIn, group: str) -> Procedure[Members]:
    """A group's jobs among the first thousand entries of a set, as it is read: dead jobs from the latest on."""
    text, key = _text(group), {"retries": keys.retry, "dead": keys.dead}[which]
    found: Stretch = yield set_stretch(key, 0, SEARCHED, newest_first=which == "dead", text=text)
    entries = [Entry(one.payload, one.score, mask) for one in found.holding(text)]
    return Members(entries, found.looked, found.more)


def jobs_of(runtime: Runtime, which: StandsIn, group: str, until: float) -> Iterator[Entry]:
    """The jobs of a set that stand there because of this error, since before the Unix time ``until``."""
    if not _is_id(group):
        raise ArgumentError(f"{group!r} is no group of errors: its id has letters and digits")
    for one in JobSet(runtime, which).matching(_text(group)):
        failed = one.time("retried_at") or one.time("failed_at") or 0.0
        if one.job.get("error_group") == group and failed <= until:
            yield one


def _text(group: str) -> str:
    return f'"error_group":"{group}"'
