"""What each page shows: one bounded look at the server, as facts for its template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from henchman.client.runtime import Runtime
from henchman.console.chart import chart, rate, spark
from henchman.console.findings import findings
from henchman.console.render import Links, place_of
from henchman.cron.registry import states as cron_states
from henchman.errors import ArgumentError
from henchman.inspector import metrics as figures
from henchman.inspector.base import Entry, argument_text, checked_name
from henchman.inspector.doctor import examine
from henchman.inspector.errors import errors
from henchman.inspector.jobs import obstacles
from henchman.inspector.ordered import OrderedQueues
from henchman.inspector.processes import Processes
from henchman.inspector.queues import Queues, QueueState
from henchman.inspector.sets import JobSet, SetName
from henchman.store.call import run

__all__ = ["FILTERS", "ROWS", "Download", "EntryRows", "Missing", "Query", "Screen", "Screens", "View", "page_links"]

ROWS: Final = 50  # of a page
MOST_ROWS: Final = 100
LOOKED: Final = 20_000  # entries that one search looks at
_CALL: Final = 20_000  # characters of a call on the page of its job
_FIRST: Final = 1_000_000_000  # a page further behind is no page
FILTERS: Final = (
    "q",
    "n",
    "show",
    "status",
    "by",
    "after",
    "job",
    "queue",
)  # what links, acts and pages of a list keep


class Missing(Exception):
    """There is no such thing: what, and what to do."""


class Screen(NamedTuple):
    """A template and its facts; ``status`` of the answer."""

    template: str
    facts: Mapping[str, Any]
    status: int = 200


class Download(NamedTuple):
    """A file, part by part; ``media_type`` says what it is."""

    name: str
    media_type: str
    parts: Iterator[bytes]


#: what makes a page, or a file, of the names in its address and a ``Query``
View = Callable[..., Screen | Download]


class Query:
    """What stands behind the question mark; whatever makes no sense counts as not said."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self.search = given.get("q", "")[:200].strip()
        self.page = self._whole("p", 1, _FIRST // MOST_ROWS)
        self.rows = min(self._whole("n", ROWS, MOST_ROWS), MOST_ROWS)

    def _whole(self, name: str, default: int, most: int) -> int:
        text = self._given.get(name, "")
        return min(max(int(text), 1), most) if text.isascii() and text.isdigit() and len(text) < 12 else default

    @property
    def first(self) -> int:
        """The place of the first row."""
        return (self.page - 1) * self.rows

    def unless_said(self, rows: int) -> None:
        """So many rows a page, where the address does not say how many: of pages whose rows are large."""
        self.rows = self.rows if self.word("n") else rows

    def word(self, name: str, *known: str) -> str:
        """What a filter says, where that is one of ``known`` words; without these any text. Empty: it says nothing."""
        text = self._given.get(name, "")[:200].strip()
        return text if not known or text in known else ""

    @property
    def after(self) -> int | None:
        """The position in history behind which a page begins; None: it is the first."""
        text = self.word("after")
        return min(int(text), 2**63 - 1) if text.isascii() and text.isdigit() and len(text) < 20 else None

    @property
    def filters(self) -> dict[str, str]:
        """What narrows this list, and is to stay in the address of its other pages."""
        return {name: self.word(name) for name in FILTERS if self.word(name)}


class EntryRows(NamedTuple):
    """Some entries, how many there are in all, and whether a search looked at all of them."""

    entries: Sequence[Entry]
    total: int
    whole: bool = True
    searched: bool = False


_TITLES: Final = {
    "retries": ("Retries", "Nothing waits to be tried again."),
    "scheduled": ("Scheduled", "Nothing is scheduled."),
    "dead": ("Dead", "Nothing is dead."),
}
_VERBS: Final = {"retries": ("retry", "kill", "delete"), "scheduled": ("retry", "delete"), "dead": ("retry", "delete")}


class Screens:
    """The pages of one app. Each method is one page; it asks the server and never writes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._queues, self._processes = Queues(runtime), Processes(runtime)
        #: name of a page in addresses → what makes it
        self.by_name: Mapping[str, Callable[..., Screen]] = {
            "": self.overview,
            "busy": self.busy,
            "queues": self.queues,
            "retries": lambda query: self.set("retries", query),
            "scheduled": lambda query: self.set("scheduled", query),
            "dead": lambda query: self.set("dead", query),
            "ordered": self.ordered,
            "crons": self.crons,
            "system": self.system,
        }
        self.of_one: Mapping[str, Callable[..., Screen]] = {
            "queues": self.queue,
            "jobs": self.job,
        }

    @property
    def views(self) -> Mapping[tuple[str, int], View]:
        """What makes a page, by the first word of its address and how many names follow."""
        every: dict[tuple[str, int], View] = {(name, 0): view for name, view in self.by_name.items()}
        return every | {(name, 1): view for name, view in self.of_one.items()}

    def _everything(self) -> figures.Overview:
        return run(self._runtime.connections, figures.overview(self._runtime.keys, self._runtime.registry.mask))

    def overview(self, query: Query) -> Screen:
        """Is it well; if not, what broke."""
        keys, runner = self._runtime.keys, self._runtime.connections
        seen = self._everything()
        found = run(runner, figures.metrics(keys, 60, detailed=0))
        failing = run(runner, errors(keys, now=seen.at))
        return Screen(
            "overview.html",
            {
                "seen": seen,
                "findings": findings(seen, failing),
                "queues": sorted(seen.queues, key=_trouble)[:10],
                "classes": found.classes[:8],
                "chart": chart(found, found.classes),
                "errors": [(one, one.state(seen.at), spark(one.trend(seen.at))) for one in failing.groups[:6]],
                "waits": max((one.latency or 0.0 for one in seen.queues if one.size), default=None),
                "rate": rate(found, seen.at),
                "served": {name for one in seen.processes for name in one.queues},
            },
        )

    def busy(self, query: Query) -> Screen:
        """Who is alive, and what runs."""
        seen = self._everything()
        every = list(self._processes)
        lost = [one for one in every if one.identity not in {alive.identity for alive in seen.processes}]
        first = query.first
        return Screen(
            "busy.html",
            {
                "seen": seen,
                "processes": [*seen.processes, *lost][:MOST_ROWS],
                "lost": {one.identity for one in lost},
                "work": seen.work[first : first + query.rows],
                "total": len(seen.work),
            },
        )

    def queues(self, query: Query) -> Screen:
        """All queues, those in trouble first."""
        states = self._queues.states(match=query.search)
        served = {name for one in self._processes.alive() for name in one.queues}
        shown = sorted(states, key=_trouble)[query.first : query.first + query.rows]
        return Screen("queues.html", {"states": shown, "total": len(states), "served": served})

    def queue(self, name: str, query: Query) -> Screen:
        """One queue: how it stands, and what waits in it, the next to run first."""
        try:
            queue = self._queues[checked_name(name)]
        except ArgumentError as error:
            raise Missing(str(error)) from None
        states = self._queues.states(match=name)
        state = next((one for one in states if one.name == name), QueueState(name, 0, None, False))
        entries: Sequence[Entry] = []
        if state.size:
            last = max(state.size - query.first, 0)  # the next to run stands last
            begin = max(last - query.rows, 0)
            entries = queue.page(begin, last - begin)[::-1] if last else []
        served = [one for one in self._processes.alive() if name in one.queues]
        facts = {"state": state, "rows": EntryRows(entries, state.size or 0), "processes": served, "name": name}
        return Screen("queue.html", facts)

    def set(self, which: SetName, query: Query) -> Screen:
        """Retries, scheduled or dead jobs."""
        title, empty = _TITLES[which]
        jobs = JobSet(self._runtime, which)
        rows = self._found(jobs, query) if query.search else EntryRows(jobs.page(query.first, query.rows), jobs.size())
        return Screen(
            "set.html", {"which": which, "title": title, "empty": empty, "rows": rows, "verbs": _VERBS[which]}
        )

    def _found(self, jobs: JobSet, query: Query) -> EntryRows:
        """Entries that hold a text; one search looks at so many."""
        some = list(islice(jobs.matching(query.search), query.first, query.first + query.rows + 1))
        return EntryRows(some[: query.rows], query.first + len(some), len(some) <= query.rows, searched=True)

    def job(self, jid: str, query: Query) -> Screen:
        """One job: where it is, why, and what is known of it."""
        try:
            status = self._runtime.job_status(jid)
        except ArgumentError as error:
            raise Missing(str(error)) from None
        call = "" if status.name is None else f"{status.name}({argument_text(list(status.args), status.kwargs, _CALL)})"
        asked = obstacles(self._runtime.keys, status, self._runtime.registry.mask)
        found = [(one, place_of(one)) for one in run(self._runtime.connections, asked)]
        facts = {"status": status, "call": call, "obstacles": found}
        return Screen("job.html", facts, 200 if status.state != "unknown" else 404)

    def ordered(self, query: Query) -> Screen:
        """All ordered queues."""
        return Screen("ordered.html", {"queues": OrderedQueues(self._runtime).stats()})

    def crons(self, query: Query) -> Screen:
        """All periodic jobs."""
        return Screen("crons.html", {"crons": run(self._runtime.connections, cron_states(self._runtime.keys))})

    def system(self, query: Query) -> Screen:
        """The ground under the jobs."""
        return Screen("system.html", {"checks": examine(self._runtime.connections, self._runtime.keys)})


def _trouble(one: QueueState) -> tuple[bool, float, int, str]:
    """Queues in trouble first: those that are no queue, then by how long the next job has waited."""
    return (not one.problem, -(one.latency or 0.0), -(one.size or 0), one.name)


def page_links(
    links: Links, page: str, names: Sequence[str], query: Query, total: int, *, more: bool
) -> dict[str, Any]:
    """The addresses of the pages before and after this one; None where there is none."""
    last = query.first + query.rows
    return {
        "newer": links(page, *names, **query.filters, p=query.page - 1) if query.page > 1 else None,
        "older": links(page, *names, **query.filters, p=query.page + 1) if more or last < total else None,
        "from": min(query.first + 1, total),
        "to": min(last, total),
    }
