"""Pages of one job: where it is and why, its life, its failures side by side, its call; and its arguments changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from henchman.client.runtime import Runtime
from henchman.console.again import REMOVABLE, Again, NewCall
from henchman.console.pages import Download, Query, Screen, View
from henchman.console.render import place_of
from henchman.errors import ArgumentError, HistoryError, OutboxError
from henchman.history.records import LiveMessages
from henchman.inspector.base import Entry, argument_text
from henchman.inspector.errors import ErrorGroup, error_group
from henchman.inspector.jobs import JobStatus, Searched, find_job, recorded, search_on
from henchman.inspector.metrics import metrics
from henchman.inspector.obstacles import Explanation, explained_with_obstacles
from henchman.kernel.text import visible
from henchman.oncall.deeds import Deed, Missing, Order
from henchman.store import operations
from henchman.store.call import Procedure, ask, run, side_by_side
from henchman.work.effects import batch_of

__all__ = ["JobPages", "LifeMoment", "life"]

_CALL: Final = 4000  # characters of a call
_LINES: Final = 200  # of a backtrace
_SILENT: Final = ("unknown", "enqueued", "scheduled", "blocked")  # states of jobs that have said nothing yet
_FIRST: Final = "all"  # the first step of the search everywhere
_USUAL: Final = 15  # minutes of which the usual run time is made


class LifeMoment(NamedTuple):
    """A moment in the life of a job: what happened, when (Unix seconds), and how long after what came before it."""

    what: str
    at: float
    after: float | None


def _as_entry(status: JobStatus) -> Entry:
    """A job of which history alone knows; secret arguments are masked there."""
    job = {"class": status.name, "jid": status.jid, "queue": status.queue}
    return Entry(json.dumps({**job, "args": list(status.args), "kwargs": status.kwargs}, default=str).encode())


class JobPages:
    """The pages and the acts."""

    def __init__(self, runtime: Runtime, facts: Callable[[Entry], Sequence[Any]]) -> None:
        self._runtime = runtime
        self._again = Again(runtime)
        self._facts = facts

    @property
    def views(self) -> Mapping[tuple[str, int], View]:
        """What makes a page, by the first word of its address and how many names follow."""
        return {("jobs", 1): self.job, ("jobs", 2): self.job_file}

    @property
    def deeds(self) -> Mapping[tuple[str, str], Deed]:
        """Run a job again, with other arguments."""
        act = Deed("Change and run again…", "", None, "one", begin=self._run_again, form=self._form)
        return {("jobs", "again"): act}

    def job(self, jid: str, query: Query) -> Screen:
        """One job: where it is, why, and what is known of it."""
        searched = self._search(jid, query)
        status = searched.status
        call = "" if status.name is None else f"{status.name}({argument_text(list(status.args), status.kwargs, _CALL)})"
        keys, mask, most = self._runtime.keys, self._runtime.registry.mask, self._runtime.config.max_retries
        asked = explained_with_obstacles(keys, status, most, mask), self._usual(status)
        group = status.entry.error_group if status.entry else ""
        looks = side_by_side(*asked, ask(operations.links_again(keys, jid)), error_group(keys, group))
        (why, lacks), usual, (old, new), kind = run(self._runtime.connections, looks)
        found = [(one, place_of(one)) for one in lacks]
        facts = {"status": status, "call": call, "obstacles": found, "life": life(status), "usual": usual}
        facts |= _failures(status, kind) | {"cause": status.cause}
        facts |= {"told": self._words(status), "batch": batch_of(status.entry.job or {}) if status.entry else None}
        facts |= {"why": self._unpushed(status) or why}
        facts |= {"more_facts": self._facts(status.entry or _as_entry(status)) if status.name else []}
        facts |= {"why_not_again": self._again.why_not(status), "old": old, "new": new}
        hints = {name: query.word(name) for name in ("at", "queue", "place", "look") if query.word(name)}
        facts |= {"hints": hints, "searched": searched if _looks_on(query) else None}
        return Screen("job.html", facts, 200 if status.state != "unknown" else 404)

    def job_file(self, jid: str, name: str, query: Query) -> Download:
        """``call.txt``: the whole call, in Python; ``arguments.json``: its arguments. As text, secret values masked."""
        if name not in ("call.txt", "arguments.json"):
            raise Missing("there is no such file: call.txt, arguments.json")
        status = self._status(jid, query)
        if status.name is None:
            raise Missing(f"nothing is known of the call of {visible(jid)}")
        if name == "call.txt":
            given = [*map(repr, status.args), *(f"{name}={value!r}" for name, value in status.kwargs.items())]
            text = f"{visible(status.name)}({', '.join(given)})"
        else:
            text = json.dumps({"args": list(status.args), "kwargs": status.kwargs}, indent=2, default=str)
        return Download(name, "text/plain; charset=utf-8", iter([text.encode("utf-8", "replace")]), kept=False)

    def _search(self, jid: str, query: Query) -> Searched:
        """Where the job is, as far as a few looks show it; ``look`` names a step of the search everywhere."""
        runtime = self._runtime
        keys, mask = runtime.keys, runtime.registry.mask
        try:
            if _looks_on(query):
                step = "" if query.word("look") == _FIRST else query.word("look")
                found: Searched = run(runtime.connections, search_on(keys, jid, step, mask))
            else:
                status = run(runtime.connections, find_job(keys, jid, mask=mask, near=query.hint))
                found = Searched(status, status.scanned, 0, _FIRST)
        except ArgumentError as error:
            raise Missing(str(error)) from None
        return found._replace(status=recorded(runtime, found.status))

    def _unpushed(self, status: JobStatus) -> Explanation | None:
        try:
            return self._runtime.why_not_pushed(status)  # type: ignore[no-any-return]
        except OutboxError:  # it is away: what the server says stands
            return None

    def _status(self, jid: str, query: Query) -> JobStatus:
        return self._search(jid, query).status

    def _words(self, status: JobStatus) -> LiveMessages | None:
        """What a job that has run says, the newest first, and how far it is; None when history knows nothing of it."""
        if status.state in _SILENT or self._runtime.config.why_history_is_off():
            return None
        try:
            found = self._runtime.open_history().reading.job_messages(status.jid)
        except HistoryError:
            return None
        return found if found.messages or found.progress else None

    def _usual(self, status: JobStatus) -> Procedure[float | None]:
        """The seconds that 95 of 100 runs of a running job's class stayed below lately; None: nothing is known."""
        if status.state != "working" or not status.name:
            return None
        found = yield from metrics(self._runtime.keys, _USUAL, name=status.name)
        counted = next(iter(found.classes), None)
        taken = None if counted is None else counted.percentile_ms(0.95)
        return None if taken is None or taken == float("inf") else taken / 1000

    def _found(self, jid: str) -> JobStatus:
        """The job, as far as a few looks show it; else wherever it is."""
        status = self._status(jid, Query({}))
        return status if status.entry else self._runtime.job_status(jid)

    def _form(self, jid: str, form: Mapping[str, str], problem: str) -> Screen:
        """The form of other arguments; ``form``: what somebody has written into it, and ``problem`` what is wrong."""
        status = self._found(jid)
        why = self._again.why_not(status)
        said = NewCall("", "{}") if why else NewCall.said(form) if form else NewCall.of(status)
        facts = {"status": status, "why": why, "problem": problem, "new": said}
        return Screen("again.html", facts | {"removable": status.state in REMOVABLE}, 409 if why else 200)

    def _run_again(self, order: Order, jid: str) -> tuple[str, str]:
        return "", self._again.begin(self._found(jid), order)


def _looks_on(query: Query) -> bool:
    """Whether a page is a step of the search everywhere."""
    return bool(query.word("look"))


def _failures(status: JobStatus, kind: ErrorGroup | None) -> dict[str, Any]:
    """What is known of a job's failures: its attempts, the last first, each with what differs from the one before; the
    backtrace with those of the causes, or else that of another failure of this kind."""
    entry = status.entry
    attempts, causes = (entry.failures, entry.causes) if entry else ([], [])
    known = [None, *attempts]
    rows = [
        (one, {name for name in one._fields if was is None or getattr(was, name) != getattr(one, name)})
        for was, one in zip(known, attempts, strict=False)
    ]
    trace = entry.backtrace[:_LINES] if entry else []
    of_kind = not trace and kind is not None and bool(kind.trace)
    if trace:
        for one in causes:
            trace += [f"caused by {one.error}", *one.backtrace] if one.backtrace else []
    elif kind is not None:
        trace = list(kind.trace)
    group = kind.id if kind is not None else ""
    return {"failures": rows[::-1], "causes": causes, "trace": trace, "of_kind": of_kind, "group": group}


def life(status: JobStatus) -> list[LifeMoment]:
    """What is known of a job's life, the earliest first."""
    last = "died" if status.state == "dead" else "next run" if status.state == "retrying" else "due"
    known = (
        ("created", status.created_at),
        ("enqueued", status.enqueued_at),
        ("started", status.started_at),
        ("failed", status.failed_at),
        (last, status.at),
    )
    moments = sorted(((at, what) for what, at in known if at is not None), key=lambda one: one[0])
    before = [None, *(at for at, _ in moments)]
    return [
        LifeMoment(what, at, None if was is None else at - was)
        for (at, what), was in zip(moments, before, strict=False)
    ]
