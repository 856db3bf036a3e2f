"""Pages that look back: what became of jobs, out of history; what people did, out of the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from henchman.client.runtime import Runtime
from henchman.console.pages import Query, Screen, View
from henchman.errors import ArgumentError, HistoryError
from henchman.history.records import EventPage, Search
from henchman.history.search import DAY_BACK, is_wide, parse_search
from henchman.inspector.audit import AuditEntry, audited
from henchman.oncall.deeds import Deed
from henchman.store import history as stream
from henchman.store.call import run

__all__ = ["RecordPages", "words_of_search"]

_LATE: Final = 60.0  # seconds that the record may be behind before the page says so
_HINTS: Final = (
    "status:error since:24h",
    "status:failed since:7d",
    "cause:timeout since:7d",
    "cause:crash since:7d",
    "status:working",
    "since:1h",
)
#: columns of the list of jobs beside the job itself, in their order, and those that are shown when nothing is said
_COLUMNS: Final = {
    "enqueued": "Enqueued",
    "state": "State",
    "queue": "Queue",
    "runs": "Runs",
    "waited": "Waited",
    "ran": "Ran for",
    "batch": "Batch",
    "ended": "Ended",
    "process": "Process",
    "tags": "Tags",
    "result": "Result",
}
_USUAL: Final = ("enqueued", "state", "queue", "runs", "waited", "ran", "batch")
_JOBS: Final = ("retries", "scheduled", "dead", "jobs", "blocked")


class RecordPages:
    """The pages of history and audit; nothing is done there."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.views: Mapping[tuple[str, int], View] = {("history", 0): self.history, ("audit", 0): self.audit}
        self.deeds: Mapping[tuple[str, str], Deed] = {}

    def history(self, query: Query) -> Screen:
        """The jobs that history knows, the latest first, and how far behind it is."""
        off = self._runtime.config.why_history_is_off()
        facts: dict[str, Any] = {"off": off, "problem": "", "found": None, "within": "", "hints": _HINTS, "late": None}
        if off:
            return Screen("history.html", facts)
        try:
            facts |= self._found(query)
        except (ArgumentError, HistoryError) as error:
            facts["problem"] = str(error)
        backlog = self._runtime.connections.run(stream.backlog(self._runtime.keys))
        facts["late"] = backlog if backlog.lag > _LATE or backlog.dropped else None
        return Screen("history.html", facts)

    def _found(self, query: Query) -> dict[str, Any]:
        search, within = words_of_search(query.search)
        said = query.word("columns").split(",")
        columns = [one for one in _COLUMNS if one in said] or list(_USUAL)
        found: EventPage = self._runtime.open_history().reading.find(search, after=query.after, limit=query.rows)
        return {
            "found": found,
            "within": within,
            "columns": columns,
            "choices": [(name, title, name in columns, _toggled(columns, name)) for name, title in _COLUMNS.items()],
            "kept": {"q": query.search, "columns": ",".join(columns) if tuple(columns) != _USUAL else ""},
        }

    def audit(self, query: Query) -> Screen:
        """What people did in the console, the newest first."""
        query.unless_said(25)
        asked = audited(self._runtime.keys, query.search, query.first, query.rows)
        page = run(self._runtime.connections, asked)
        rows = [(one, _place(one)) for one in page.entries]
        return Screen("audit.html", {"entries": rows, "total": page.total})


def words_of_search(said: str) -> tuple[Search, str]:
    """A search in history, and when, if that was not said: what every event is read for is looked for in the last
    day."""
    search = parse_search(said)
    return (parse_search(f"{said} {DAY_BACK}"), DAY_BACK) if is_wide(search) else (search, "")


def _toggled(columns: Sequence[str], name: str) -> str:
    """What an address says when a column is shown that was not, or the other way round; nothing for the usual ones."""
    shown = tuple(one for one in _COLUMNS if (one in columns) != (one == name))
    return "" if shown == _USUAL else ",".join(shown)


def _place(one: AuditEntry) -> tuple[str, ...]:
    """The page of what was acted on; of a file, the page that it was taken from."""
    if one.act == "export":
        return (one.page, *one.names[:1]) if one.page in ("batches", "days") else (one.page,)
    if one.page in _JOBS:
        return ("jobs", *one.names[:1])
    if one.page in ("queues", "ordered", "batches", "keys"):
        return (one.page, *one.names)
    if one.page == "views":
        return (*one.names[:1],)
    return (one.page,) if one.page in ("busy", "crons", "metrics") else ()
