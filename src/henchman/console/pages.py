"""What each page shows: one bounded look at the server, as facts for its template."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from henchman.client.runtime import Runtime
from henchman.console.chart import chart, due_chart, rate, spark
from henchman.console.narrowing import LONGEST_SEARCH, facet_rows, in_order, term_links
from henchman.console.render import Links
from henchman.console.snapshot import Snapshot
from henchman.cron.registry import missed_ticks
from henchman.cron.registry import one_state as one_cron
from henchman.cron.registry import some_states as some_crons
from henchman.cron.timing import in_zone
from henchman.errors import ArgumentError, HistoryError, UnknownCron
from henchman.history.records import Event
from henchman.inspector import metrics as figures
from henchman.inspector.audit import AuditEntry, audited
from henchman.inspector.base import FURTHEST, Entry, checked_name
from henchman.inspector.doctor import examine
from henchman.inspector.due import due_times, span_of
from henchman.inspector.filters import EntryFilter, Facets, entry_filter, facets
from henchman.inspector.flow import flow_of
from henchman.inspector.ordered import OrderedQueues
from henchman.inspector.processes import Fleet, Work, look_at_fleet
from henchman.inspector.queue_page import look_at_queue
from henchman.inspector.queues import Queues, QueueState, look_at_queues
from henchman.inspector.search import Hint
from henchman.inspector.sets import SetName, key_of_set, look_at_set, search_set
from henchman.oncall.deeds import Missing
from henchman.oncall.finding import Finding
from henchman.oncall.findings import LOST, weighed
from henchman.oncall.views import VIEWED
from henchman.oncall.vitals import MISSED, look
from henchman.store.call import Procedure, ask, run, side_by_side
from henchman.store.fair import line_name
from henchman.store.keys import Keys
from henchman.store.queues import levels, ran

__all__ = [
    "FILTERS",
    "ROWS",
    "Download",
    "EntryRows",
    "Jump",
    "Query",
    "RunningRow",
    "Screen",
    "Screens",
    "View",
    "page_links",
    "running_row",
]

ROWS: Final = 50  # of a page
_JOBS: Final = 30  # of a page with acts and an error in each row
_CRONS: Final = 25
_AHEAD: Final = 10  # times of a cron
MOST_ROWS: Final = 100
_PROCESSES: Final = 20  # on the page of what is busy; a search finds the others
_WORK: Final = 25  # running jobs there
_ORDERS: Final = {"": "longest first", "usual": "farthest beyond usual"}  # of running jobs
_QUEUE_COLUMNS: Final[Mapping[str, Callable[[QueueState], Any]]] = {
    "name": lambda one: one.name,
    "size": lambda one: one.size,
    "waited": lambda one: one.latency if one.size else None,
}
_RECENT: Final = 6  # acts and deploys on the first page
_BLOCKED: Final = 100  # of them looked into on the page of the server
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
    "cause",
    "host",
    "version",
    "source",
    "vs",
    "sort",
    "columns",
)  # what links, acts and pages of a list keep


class Screen(NamedTuple):
    """A template and its facts; ``status`` of the answer."""

    template: str
    facts: Mapping[str, Any]
    status: int = 200


class Jump(NamedTuple):
    """Another page shows it: the words of its address."""

    place: tuple[str, ...]


class Download(NamedTuple):
    """A file, part by part; ``media_type`` says what it is. ``kept``: the browser keeps it, and does not show it."""

    name: str
    media_type: str
    parts: Iterator[bytes]
    kept: bool = True


#: what makes a page, or a file, of the names in its address and a ``Query``
View = Callable[..., Screen | Download | Jump]


class Query:
    """What stands behind the question mark; whatever makes no sense counts as not said."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self.search = given.get("q", "")[:LONGEST_SEARCH].strip()
        self.page = self._whole("p", 1, _FIRST // MOST_ROWS)
        self.rows = min(self._whole("n", ROWS, MOST_ROWS), MOST_ROWS)

    def _whole(self, name: str, default: int, most: int) -> int:
        text = self.given.get(name, "")
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
        text = self.given.get(name, "")[:200].strip()
        return text if not known or text in known else ""

    def sort(self, known: Iterable[str]) -> str:
        """By which of the ``known`` columns a table is sorted, behind a ``-`` turned round; empty: as it is."""
        text = self.word("sort")
        return text if text.removeprefix("-") in known else ""

    @property
    def after(self) -> int | None:
        """The place, in history or in a set, behind which a page begins; None: it is the first."""
        text = self.word("after")
        return min(int(text), FURTHEST) if text.isascii() and text.isdigit() and len(text) < 20 else None

    @property
    def hint(self) -> Hint:
        """Where a list has shown the job that is asked for."""
        try:
            at = float(self.word("at") or "nan")
        except ValueError:
            at = math.nan
        return Hint(at if math.isfinite(at) else None, self.word("queue"), self._whole("place", 0, FURTHEST))

    def view(self, page: str) -> dict[str, str]:
        """What narrows the list of a page, as far as a saved view of it may keep that."""
        return {name: self.word(name) for name in VIEWED.get(page, ()) if self.word(name)}

    def having(self, **changed: str) -> dict[str, str]:
        """What narrows this list, with some of it changed; "" takes it away."""
        return self.filters | changed

    @property
    def filters(self) -> dict[str, str]:
        """What narrows this list, and is to stay in the address of its other pages."""
        return {name: self.word(name) for name in FILTERS if self.word(name)}


class EntryRows(NamedTuple):
    """Some entries, how many there are in all, and whether a search looked at all of them; at how many it looked, and
    behind which place the next page goes on; ``of``: how many there are for it to look at, those before it among them.
    """

    entries: Sequence[Entry]
    total: int
    whole: bool = True
    searched: bool = False
    looked: int = 0
    after: int | None = None
    of: int = 0


_TITLES: Final = {
    "retries": ("Retries", "Nothing waits to be tried again. A job that raised stands here until its next run."),
    "scheduled": (
        "Scheduled",
        "Nothing is scheduled. A job that was pushed with a delay stands here until it is due.",
    ),
    "dead": ("Dead", "Nothing is dead. A job that has used up its retries stands here, and can be tried again."),
}
SETS: Final[tuple[SetName, ...]] = ("retries", "scheduled", "dead")
_VERBS: Final = {"retries": ("retry", "kill", "delete"), "scheduled": ("retry", "delete"), "dead": ("retry", "delete")}


class MoreFound(Protocol):
    """What extensions add: findings, and themselves."""

    def findings(self) -> Sequence[Finding]: ...
    def added(self) -> Sequence[Any]: ...


class Screens:
    """The pages of one app. Each method is one page; it asks the server and never writes."""

    def __init__(self, runtime: Runtime, more: MoreFound) -> None:
        self._runtime = runtime
        self._more = more
        #: shared by all who watch the overview, or what is busy
        self.everything = Snapshot(self._everything)
        self.fleet = Snapshot(self._fleet)
        #: shared by all who look at a set, for longer: the server goes through ten thousand jobs for it
        self._facets = {which: Snapshot(partial(self._count, which), 0.01, 15.0) for which in SETS}
        #: name of a page in addresses → what makes it
        self.by_name: Mapping[str, Callable[..., Screen]] = {
            "": self.overview,
            "findings": self.overview,
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
            "crons": self.cron,
        }

    @property
    def views(self) -> Mapping[tuple[str, int], View]:
        """What makes a page, by the first word of its address and how many names follow."""
        every: dict[tuple[str, int], View] = {(name, 0): view for name, view in self.by_name.items()}
        return every | {(name, 1): view for name, view in self.of_one.items()}

    def forget(self) -> None:
        """Something was done: the next looks are fresh ones."""
        self.everything.forget()
        self.fleet.forget()
        for one in self._facets.values():
            one.forget()

    def _everything(self) -> Screen:
        """Everything as it is, what ran in the last hour, what failed, and the ground under it."""
        keys, mask = self._runtime.keys, self._runtime.registry.mask
        looks = look(keys, mask), figures.metrics(keys, 60, detailed=0), audited(keys, "", 0, _RECENT)
        (seen, failing, ground), found, acts = run(self._runtime.connections, side_by_side(*looks))
        shown = sorted(seen.queues, key=_trouble)[:10]
        opened = [one for one in failing.groups if one.state(seen.at) not in ("muted", "resolved")]
        return Screen(
            "overview.html",
            {
                "seen": seen,
                "weighed": (found_wrong := weighed(seen, failing, ground, self._more.findings())),
                "findings": found_wrong.shown,
                "queues": [(one, flow_of(ground.levels, ground.ran, one, seen.at)) for one in shown],
                "recent": _recent(acts.entries, found.deploys, seen.at),
                "classes": found.classes[:8],
                "chart": chart(found, found.classes),
                "errors": [(one, one.state(seen.at), spark(one.trend(seen.at))) for one in opened[:6]],
                "waits": max((one.latency or 0.0 for one in seen.queues if one.size), default=None),
                "rate": rate(found, seen.at),
                "served": {name for queues in {one.queues for one in seen.processes} for name in queues},
            },
        )

    def overview(self, query: Query) -> Screen:
        """Is it well; if not, what broke."""
        return self.everything.get()

    def _fleet(self) -> tuple[float, Fleet]:
        """Processes and what they run, as of when."""
        at = self._runtime.clock.now()
        return at, run(self._runtime.connections, look_at_fleet(self._runtime.keys, self._runtime.registry.mask))

    def busy(self, query: Query) -> Screen:
        """Who is alive, and what runs: the processes that were lost, then those with the most work."""
        query.unless_said(_WORK)
        (at, fleet), text, by = self.fleet.get(), query.search, query.word("by", *_ORDERS)
        work = [one for one in fleet.work if text in one.identity] if text else fleet.work
        every = [one for one in fleet.processes if text in one.identity]
        lost = {one.identity for one in every if (one.beat_age(at) or 0.0) > LOST}
        every.sort(key=lambda one: (one.identity not in lost, -one.busy, one.identity))
        runs = run(self._runtime.connections, _running(self._runtime.keys, work, at, query, by_usual=by == "usual"))
        alive = figures.living(fleet.processes, at)
        return Screen(
            "busy.html",
            {
                "slots": (sum(one.busy for one in alive), sum(one.concurrency for one in alive)),
                "processes": every[:_PROCESSES],
                "more": len(every) - _PROCESSES,
                "lost": lost,
                "work": runs,
                "far": how_far(self._runtime, [one.work.entry.jid for one in runs]),
                "total": len(work),
                "orders": _ORDERS,
                "by": by,
            },
        )

    def queues(self, query: Query) -> Screen:
        """All queues, those in trouble first."""
        keys, at = self._runtime.keys, self._runtime.clock.now()
        asked = look_at_queues(keys, query.search), ask(levels(keys)), ask(ran(keys))
        seen, past, left = run(self._runtime.connections, side_by_side(*asked))
        sort = query.sort(_QUEUE_COLUMNS)
        every = in_order(sorted(seen.states, key=_trouble), _QUEUE_COLUMNS, sort)
        states = [(one, flow_of(past, left, one, at)) for one in every[query.first : query.first + query.rows]]
        return Screen("queues.html", {"states": states, "total": len(every), "served": seen.served, "sort": sort})

    def queue(self, name: str, query: Query) -> Screen:
        """One queue: how it stands, and what waits in it, the next to run first."""
        try:
            checked_name(name)
        except ArgumentError as error:
            raise Missing(str(error)) from None
        keys, mask, most = self._runtime.keys, self._runtime.registry.mask, 1 if query.search else query.rows
        seen = run(self._runtime.connections, look_at_queue(keys, name, query.first, most, mask))
        size = seen.tenants.arriving if seen.state.fair else seen.state.size or 0
        rows, places = EntryRows(seen.entries, size), range(query.first + 1, query.first + 1 + len(seen.entries))
        facts = seen._asdict() | {
            "name": name,
            "looked": size,
            "problem": "",
            "lines": {one: line_name(name, one.level, one.tenant) for one in seen.tenants.lines},
        }
        if not query.search:
            return Screen("queue.html", facts | {"rows": rows, "places": places})
        try:
            found, looked = Queues(self._runtime)[name].next_holding(query.search, query.rows)
        except ArgumentError as error:
            return Screen("queue.html", facts | {"rows": EntryRows((), 0), "places": [], "problem": str(error)})
        rows = EntryRows([one for _, one in found], len(found), looked >= size, searched=True)
        return Screen("queue.html", facts | {"rows": rows, "places": [place for place, _ in found], "looked": looked})

    def set(self, which: SetName, query: Query) -> Screen:
        """Retries, scheduled or dead jobs."""
        query.unless_said(_JOBS)
        title, empty = _TITLES[which]
        keys, mask, config = self._runtime.keys, self._runtime.registry.mask, self._runtime.config
        due, span = None, span_of(query.word("by"))
        problem, wanted = "", EntryFilter((), "")
        if query.search:
            try:
                wanted = entry_filter(query.search)
                rows = self._found(which, query)
            except ArgumentError as error:
                rows, problem = EntryRows((), 0, searched=True), str(error)
        else:
            now = self._runtime.clock.now()
            page = look_at_set(keys, which, query.first, query.rows, mask)
            looks = (page,) if which == "dead" else (page, due_times(keys, key_of_set(keys, which), now, span))
            found, *more = run(self._runtime.connections, side_by_side(*looks))
            rows, due = EntryRows(*found), next(iter(more), None)
        counted = self._facets[which].get() if rows.total or query.search else None
        facts: dict[str, Any] = {"which": which, "title": title, "empty": empty, "rows": rows, "verbs": _VERBS[which]}
        facts |= {"due": due and due_chart(due), "by": span}
        facts |= {"counted": counted, "facets": facet_rows(counted, wanted) if counted else []}
        facts |= {"problem": problem, "terms": term_links(wanted)}
        return Screen("set.html", facts | {"kept": (config.dead_max, config.dead_timeout) if which == "dead" else None})

    def _count(self, which: SetName) -> Facets:
        key = key_of_set(self._runtime.keys, which)
        return run(self._runtime.connections, facets(key, newest_first=which == "dead"))

    def _found(self, which: SetName, query: Query) -> EntryRows:
        """Entries that hold a text; one look goes so far, and the next page further."""
        last, mask = query.first + query.rows, self._runtime.registry.mask
        asked = search_set(self._runtime.keys, which, query.search, query.after or 0, last + 1, mask)
        found = run(self._runtime.connections, asked)
        more = len(found.entries) > last
        some, whole = found.entries[query.first : last], not more and found.after is None
        return EntryRows(some, len(found.entries), whole, True, found.looked, None if more else found.after, found.size)

    def ordered(self, query: Query) -> Screen:
        """All ordered queues."""
        return Screen("ordered.html", {"queues": OrderedQueues(self._runtime).stats()})

    def crons(self, query: Query) -> Screen:
        """All periodic jobs."""
        query.unless_said(_CRONS)
        keys = self._runtime.keys
        looks = some_crons(keys, query.first, query.rows), missed_ticks(keys, MISSED)
        (found, total), late = run(self._runtime.connections, side_by_side(*looks))
        return Screen("crons.html", {"crons": found, "total": total, "late": dict(late)})

    def cron(self, name: str, query: Query) -> Screen:
        """One periodic job: its last runs, and its next times, also in its own zone."""
        keys = self._runtime.keys
        try:
            looks = one_cron(keys, name, _AHEAD), missed_ticks(keys, MISSED)
            one, missed = run(self._runtime.connections, side_by_side(*looks))
        except UnknownCron as error:
            raise Missing(str(error)) from None
        late = next((tick.planned for tick in missed if tick.name == name), None)
        coming = [(at, in_zone(at, one.tz)) for at in one.next]
        return Screen("cron.html", {"one": one, "coming": coming, "late": late})

    def system(self, query: Query) -> Screen:
        """The ground under the jobs."""
        checks = examine(self._runtime.connections, self._runtime.keys, pings=1, blocked=_BLOCKED)
        return Screen("system.html", {"checks": checks, "extensions": self._more.added()})


class RunningRow(NamedTuple):
    """A running job: for how many seconds, how long its class usually takes, and how many times as long it has taken:
    0 where that is not known."""

    work: Work
    taken: float | None
    usual: figures.UsualTime | None
    beyond: float


def _running(
    keys: Keys, work: Sequence[Work], at: float, query: Query, *, by_usual: bool
) -> Procedure[list[RunningRow]]:
    """The rows of a page: the longest running first, or those that are farthest beyond what is usual."""
    page = slice(query.first, query.first + query.rows)
    looked = work if by_usual else work[page]
    usual = yield from figures.usual_times(keys, (one.entry.name for one in looked))
    rows = [running_row(one, at, usual) for one in looked]
    return sorted(rows, key=lambda one: -one.beyond)[page] if by_usual else rows


def running_row(one: Work, at: float, usual: Mapping[str, figures.UsualTime]) -> RunningRow:
    """A row as of the Unix time ``at``."""
    known, taken = usual.get(one.entry.name), None if one.run_at is None else max(at - one.run_at, 0.0)
    return RunningRow(one, taken, known, known.beyond(taken) if known else 0.0)


def how_far(runtime: Runtime, jids: Sequence[str]) -> Mapping[str, Event]:
    """What running jobs tell of how far they are, by jid, as history knows it."""
    if not jids or runtime.config.why_history_is_off():
        return {}
    try:
        found: dict[str, Event] = runtime.open_history().reading.progress(jids)
    except HistoryError:
        return {}
    return found


class Recent(NamedTuple):
    """Something that people did lately, or a deploy, and when."""

    at: float
    text: str
    by: str
    place: tuple[str, ...]


def _recent(acts: Sequence[AuditEntry], deploys: Sequence[figures.Deploy], at: float) -> list[Recent]:
    """What people did and deployed in the last day, the newest first."""
    done = [
        Recent(one.at, one.said, one.who, ("operations", one.operation) if one.operation else ("audit",))
        for one in acts
        if one.outcome == "done" and at - one.at < 86_400
    ]
    marked = [Recent(one.at, f"deploy {one.label}", "", ("metrics",)) for one in deploys]
    return sorted([*done, *marked], key=lambda one: -one.at)[:_RECENT]


def _trouble(one: QueueState) -> tuple[bool, bool, float, int, str]:
    """Queues in trouble first: no queue, over its objective, then by how long the next job has waited."""
    return (not one.problem, not one.late, -(one.latency or 0.0), -(one.size or 0), one.name)


def page_links(
    links: Links, page: str, names: Sequence[str], query: Query, total: int, *, more: bool, after: int | None = None
) -> dict[str, Any]:
    """The addresses of the pages before and after this one; None where there is none. ``after``: where a search goes
    on."""
    last, filters = query.first + query.rows, query.filters
    further = {**filters, "after": after} if after else {**filters, "p": query.page + 1}
    return {
        "newer": links(page, *names, **filters, p=query.page - 1) if query.page > 1 else None,
        "older": links(page, *names, **further) if more or last < total else None,
        "from": min(query.first + 1, total),
        "to": min(last, total),
    }
