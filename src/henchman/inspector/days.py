"""What ended on each day: out of history, or as the server keeps it without SQL, by the statuses of history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, HistoryError
from henchman.store import days as calls
from henchman.store.call import Procedure, run
from henchman.store.keys import Keys
from henchman.store.ordered_people import now
from henchman.wire import times

__all__ = ["SOURCES", "STATUSES", "EndedDay", "EndedDays", "EndedJob", "day_of", "days_of", "ended_on", "last_days"]
__all__ += ["sizes_of_days"]

SOURCES: Final = ("history", "server")

_AS_THEY_ARE: Final = ("cancelled", "expired")
_STATUS: Final = {"done": "finished", "failed": "failed", "dead": "error"} | dict(
    zip(_AS_THEY_ARE, _AS_THEY_ARE, strict=True)
)
STATUSES: Final = tuple(_STATUS.values())


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that ended on a day; of one that gave up its error."""

    at: float
    jid: str
    name: str
    status: str
    error_class: str
    message: str

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs."""
        known = {"jid": self.jid, "class": self.name, "status": self.status, "ended_at": times.iso(self.at)}
        return known | {"error_class": self.error_class or None, "message": self.message or None}


@dataclass(frozen=True, slots=True)
class EndedDay:
    """What ended on one day: how many jobs by class and status, and some of those that can be ``listed``, the latest
    first. ``source``: ``history`` or ``server``; ``problem``: why the other one was not read, where it was meant."""

    day: str
    counts: dict[str, dict[str, int]]
    jobs: list[EndedJob]
    listed: int
    source: str = "server"
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs."""
        jobs = [one.to_json() for one in self.jobs]
        return {"day": self.day, "source": self.source, "counts": self.counts, "jobs": jobs}


@dataclass(frozen=True, slots=True)
class EndedDays:
    """How many jobs ended on each of the last days, by status, the latest first. See ``EndedDay``."""

    days: dict[str, dict[str, int]]
    source: str
    problem: str = ""


def days_of(runtime: Runtime, source: str = "") -> EndedDays:
    """The last 180 days: out of history, where there is one that answers, else from the server; ``source`` names one
    of the two."""
    off = runtime.config.why_history_is_off()
    problem = off if source == "history" else ""
    if not off and source != "server":
        try:
            return EndedDays(runtime.open_history().reading.days(times.day(runtime.clock.now())), "history")
        except HistoryError as error:
            problem = str(error)
    return EndedDays(run(runtime.connections, last_days(runtime.keys)), "server", problem)


def day_of(
    runtime: Runtime,
    day: str,
    status: Sequence[str] | None = None,
    name: str = "",
    first: int = 0,
    limit: int = 100,
    source: str = "",
) -> EndedDay:
    """One day, as ``days_of`` has it, with its jobs from place ``first`` on; ``status``, ``name``: of these alone."""
    checked_statuses(status)
    off = runtime.config.why_history_is_off()
    problem = off if source == "history" else ""
    if not off and source != "server":
        try:
            record = runtime.open_history().reading.day(day, status=status, name=name, first=first, limit=limit)
        except HistoryError as error:
            problem = str(error)
        else:
            many = sum(sum(counts.values()) for counts in record.counts.values())
            return EndedDay(record.day, record.counts, [_job_of(one) for one in record.events], many, "history")
    found: EndedDay = run(runtime.connections, ended_on(runtime.keys, day, status, limit, name, first))
    return replace(found, problem=problem)


def _job_of(event: Any) -> EndedJob:
    texts = event.class_, event.status, event.error_class or "", event.message or ""
    return EndedJob(event.ended_at or 0.0, event.jid, *texts)


def checked_statuses(status: Sequence[str] | None) -> None:
    """ArgumentError for what is no status of jobs that ended."""
    for one in status or ():
        if one not in STATUSES:
            raise ArgumentError(f"there is no status {one!r} of jobs that ended; there are {', '.join(STATUSES)}")


def ended_on(
    keys: Keys, day: str, status: Sequence[str] | None = None, limit: int = 100, name: str = "", first: int = 0
) -> Procedure[EndedDay]:
    """What the server keeps of ``day`` (``2026-11-21``, in UTC), and the jobs that it remembers from place ``first``
    on; ``status`` and ``name``: of these alone. ArgumentError for what is no day, or no status of jobs that ended. One
    round trip."""
    checked_statuses(status)
    day = times.day(times.first_of_day(day))
    ends: calls.DayEnds = yield calls.ends_of(keys, day)
    counts: dict[str, dict[str, int]] = {}
    for (known, end), many in sorted(ends.counts.items()):
        if (status is None or _STATUS[end] in status) and name in ("", known):
            counts.setdefault(known, {})[_STATUS[end]] = many
    rows = [(one, _STATUS[end]) for end, some in (("dead", ends.dead), ("done", ends.done)) for one in some]
    jobs = [
        EndedJob(one.at, one.jid, one.name, known, one.error_class, one.message)
        for one, known in rows
        if (status is None or known in status) and name in ("", one.name)
    ]
    jobs.sort(key=lambda one: -one.at)
    return EndedDay(day, counts, jobs[first : first + limit], len(jobs))


def last_days(keys: Keys) -> Procedure[dict[str, dict[str, int]]]:
    """How many jobs ended on each of the last 180 days, by status, the latest first; days without any are left out. Two
    round trips."""
    found: dict[str, dict[str, int]] = yield calls.day_counts(keys, (yield from _days()))
    return {day: {_STATUS[end]: many for end, many in counts.items()} for day, counts in found.items()}


def sizes_of_days(keys: Keys) -> Procedure[calls.DaySizes]:
    """How much the server keeps of the last days. Two round trips."""
    found: calls.DaySizes = yield calls.sizes(keys, (yield from _days()))
    return found


def _days() -> Procedure[list[str]]:
    """The days that are kept, the latest first."""
    today: float = yield now()
    return [times.day(today - back * 86400) for back in range(calls.DAYS_KEPT)]
