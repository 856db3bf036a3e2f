"""Pages of errors: all groups of failures, those that are new or rise first; one, with what its failures have in
common, its jobs and their retry."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from henchman.client.runtime import Runtime
from henchman.console.chart import Spark, spark
from henchman.console.narrowing import in_order
from henchman.console.pages import Query, Screen, View
from henchman.inspector import errors as asked
from henchman.inspector.differs import FEW, look_at_error
from henchman.inspector.errors import STANDS_IN, ErrorGroup
from henchman.kernel.text import visible
from henchman.oncall.deeds import Deed, Missing
from henchman.store import ordered_people
from henchman.store.call import ask, run, side_by_side
from henchman.work.outcome import CAUSES, cause_of_name

__all__ = ["ErrorPages"]

_ROWS: Final = 25  # groups of a page
_FACETS: Final = 6  # values of one
_JOBS: Final = 10  # of each set on the page of one
_STATES: Final = {"": "open"} | {one: one for one in ("new", "returned", "rising", "muted", "resolved")}
_MUTES: Final = {"1h": "1 hour", "1d": "1 day", "7d": "7 days", "100x": "100 more"}
_SETS: Final = {"retries": "will be tried again", "dead": "dead"}


class ErrorRow(NamedTuple):
    """A group and how it stands."""

    group: ErrorGroup
    state: str
    bars: Sequence[Spark]


_COLUMNS: Final[Mapping[str, Callable[[ErrorRow], Any]]] = {
    "error": lambda row: row.group.error,
    "times": lambda row: row.group.count,
    "first": lambda row: row.group.first,
    "last": lambda row: row.group.last,
}


def _facets(rows: Sequence[ErrorRow], narrowed: Mapping[str, str]) -> dict[str, list[tuple[str, int]]]:
    """How many of the groups that are shown were met on each host, and in each version, the most first; nothing where
    all were met in one."""
    groups, found = [row.group for row in rows], {}
    for name, counts in (("host", [one.hosts for one in groups]), ("version", [one.versions for one in groups])):
        every = Counter(value for one in counts for value in one if value)
        if len(every) > 1 and not narrowed[name]:
            found[name] = every.most_common(_FACETS)
    return found


def _in_order(attempts: Mapping[str, int]) -> dict[str, int]:
    """Attempts by their number."""
    return dict(sorted(attempts.items(), key=lambda one: (len(one[0]), one[0])))


class ErrorPages:
    """The pages."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def views(self) -> Mapping[tuple[str, int], View]:
        """What makes a page, by the first word of its address and how many names follow."""
        return {("errors", 0): self.groups, ("errors", 1): self.group}

    @property
    def deeds(self) -> Mapping[tuple[str, str], Deed]:
        """None: those on its jobs begin operations."""
        return {}

    def groups(self, query: Query) -> Screen:
        """All errors; a filter for job, queue, text, and for those that are new or rise."""
        narrowed = {name: query.word(name) for name in ("job", "queue", "host", "version")}
        show, cause = query.word("show", *_STATES), query.word("cause", *CAUSES)
        keys, runner = self._runtime.keys, self._runtime.connections
        found = run(runner, asked.errors(keys, asked.Narrowed(**narrowed, text=query.search)))
        rows = [ErrorRow(one, one.state(found.at), spark(one.trend(found.at))) for one in found.groups]
        rows = [row for row in rows if row.state == show or (not show and row.state not in ("muted", "resolved"))]
        here = {cause_of_name(row.group.error) for row in rows}
        rows = [row for row in rows if not cause or cause_of_name(row.group.error) == cause]
        rows = in_order(rows, _COLUMNS, sort := query.sort(_COLUMNS))
        facts = {
            "cause": cause,
            "met": [one for one in CAUSES if one in here | {cause}],
            "groups": rows[query.page * _ROWS - _ROWS : query.page * _ROWS],
            "total": len(rows),
            "kept": found.total,
            "looked": asked.LOOKED,
            "forgotten": found.forgotten,
            "shows": _STATES,
            "kept_words": (words := {"q": query.search, **narrowed, "show": show, "cause": cause, "sort": sort}),
            "kept_with": lambda **changed: words | changed,
            "narrowed": {name: value for name, value in narrowed.items() if value},
            "facets": _facets(rows, narrowed),
            "sort": sort,
        }
        return Screen("errors.html", facts)

    def group(self, name: str, query: Query) -> Screen:
        """One error: how often, where, the last traceback, and which jobs stand there because of it."""
        now, keys, runner = time.time(), self._runtime.keys, self._runtime.connections
        mask = self._runtime.registry.mask
        groups = (asked.some_jobs(keys, mask, which, name) for which in STANDS_IN)
        names = ask(ordered_people.names(keys))
        (one, differs), ordered, *jobs = run(runner, side_by_side(look_at_error(keys, name, now), names, *groups))
        if one is None:
            raise Missing(
                f"no error is known as {visible(name)[:40]}: groups are kept for 14 days after the last failure"
            )
        members = dict(zip(STANDS_IN, jobs, strict=True))
        facts = {
            "one": one,
            "state": one.state(now),
            "bars": spark(one.trend(now), 56.0),
            "differs": differs,
            "few": FEW,
            "where": {"Hosts": one.hosts, "Versions": one.versions, "Attempts": _in_order(one.attempts)},
            "mutes": _MUTES,
            "members": members,
            "words": _SETS,
            "shown": _JOBS,
            "until": int(now),
            "ordered": ordered,
            "jid": "" if set(ordered).issuperset(one.queues) else one.jid,  # else it is that of a claim of ids
            "any": any(found.entries for found in members.values()),
        }
        return Screen("error.html", facts)
