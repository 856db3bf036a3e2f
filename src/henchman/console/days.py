"""Pages of what ended on each day: how many jobs, by status and by class, and which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from henchman.client.runtime import Runtime
from henchman.console.pages import Query, Screen, View
from henchman.console.snapshot import Snapshot
from henchman.errors import ArgumentError
from henchman.inspector.days import SOURCES, STATUSES, EndedDay, EndedDays, day_of, days_of
from henchman.kernel.text import visible
from henchman.oncall.deeds import Deed, Missing

__all__ = ["DayPages", "DayRow"]

_DAYS: Final = 30  # of a page
_JOBS: Final = 30
_CLASSES: Final = 20
_SHOWN: Final = 10_000  # jobs that can be paged through; a file has more
_OLD: Final = 30.0  # seconds that what ended may be old where it takes its time to be read: of all that ended on a day
_SHARE, _SAVED = 0.05, 0.1  # of the time that such looks may take, and seconds of them that come at once
_KNOWN: Final = 64  # pages of a day that are kept so


class DayRow(NamedTuple):
    """A day, or a class on it: how many jobs ended, by status, and its bar: status, place and width in thousandths."""

    name: str
    counts: Mapping[str, int]
    bar: list[tuple[str, float, float]]

    @property
    def total(self) -> int:
        """All that ended."""
        return sum(self.counts.values())


class DayPages:
    """The pages; nothing is done there."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._days = {one: _looked_up(partial(days_of, runtime, one)) for one in ("", *SOURCES)}
        self._day = lru_cache(_KNOWN)(lambda *what: _looked_up(partial(day_of, runtime, *what)))
        self.views: Mapping[tuple[str, int], View] = {("days", 0): self.all, ("days", 1): self.one}
        self.deeds: Mapping[tuple[str, str], Deed] = {}

    def all(self, query: Query) -> Screen:
        """The last 180 days, the latest first."""
        query.unless_said(_DAYS)
        found: EndedDays = self._days[query.word("source", *SOURCES)].get()
        rows = _rows(dict(list(found.days.items())[query.first : query.first + query.rows]))
        return Screen("days.html", self._facts(found, query) | {"days": rows, "total": len(found.days)})

    def one(self, day: str, query: Query) -> Screen:
        """One day: what ended by class, and the jobs that are known, the latest first."""
        query.unless_said(_JOBS)
        status, name = query.word("status", *STATUSES), query.word("job")
        source = query.word("source", *SOURCES)
        first = min(query.first, _SHOWN)
        try:
            wanted = (status,) if status else None
            found: EndedDay = self._day(day, wanted, name, first, query.rows, source).get()
        except ArgumentError as error:
            raise Missing(str(error)) from None
        classes = sorted(_rows(found.counts), key=lambda row: (-row.total, row.name))
        sums = Counter[str]()
        for row in classes:
            sums.update(row.counts)
        shown = {"status": status, "name": name, "classes": classes[:_CLASSES], "more": len(classes) - _CLASSES}
        facts = {
            "day": found,
            "sums": sums,
            "statuses": STATUSES,
            "jobs": found.jobs,
            "total": min(found.listed, _SHOWN),
        }
        return Screen("day.html", self._facts(found, query) | shown | facts)

    def _facts(self, found: Any, query: Query) -> dict[str, Any]:
        """Where it was read, and whether there is another place to read it."""
        return {
            "statuses": STATUSES,
            "source": found.source,
            "chosen": query.word("source", *SOURCES),
            "problem": visible(found.problem),
            "both": not self._runtime.config.why_history_is_off(),
        }


def _looked_up(read: Callable[[], Any]) -> Snapshot[Any]:
    return Snapshot(read, _SHARE, _OLD, _SAVED)


def _rows(found: Mapping[str, Mapping[str, int]]) -> list[DayRow]:
    """Bars to one scale: the fullest is as wide as the column."""
    most = max((sum(counts.values()) for counts in found.values()), default=1) or 1
    rows = []
    for name, counts in found.items():
        bar, at = [], 0.0
        for status in STATUSES:
            if many := counts.get(status, 0):
                width = max(round(1000 * many / most, 1), 3.0)
                bar.append((status, round(at, 1), width))
                at += width
        rows.append(DayRow(name, counts, bar))
    return rows
