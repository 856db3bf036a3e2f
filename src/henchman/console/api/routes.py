"""The JSON API of the console: the same looks and acts as the pages, for programs. One table of endpoints; the OpenAPI
document is made of it.

Who may come in is decided as for the pages, with the password as ``Authorization: Bearer`` beside the session of a
browser. What is asked wrongly is refused with a sentence that names it: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from henchman.batch.listing import find_batches, newest_batches, one_batch, workflow_steps
from henchman.client.runtime import Runtime
from henchman.console.api import (
    answer_types,
    answers,
    day_answers,
    due_answers,
    failure_answers,
    finding_types,
    limit_answers,
    search_answers,
)
from henchman.cron.registry import one_state as one_cron
from henchman.cron.registry import some_states as some_crons
from henchman.errors import ArgumentError, UnknownCron
from henchman.history.records import STATUSES, Search
from henchman.history.search import parse_search
from henchman.inspector import days
from henchman.inspector import metrics as figures
from henchman.inspector.audit import audited
from henchman.inspector.base import FURTHEST, checked_name, scoped
from henchman.inspector.blocked import blocked_slice
from henchman.inspector.doctor import examine
from henchman.inspector.due import DUE_SPANS, DueJson
from henchman.inspector.flow import flow_of
from henchman.inspector.keys import key_look, keys_in, scope_states
from henchman.inspector.obstacles import explained_with_obstacles
from henchman.inspector.operations import OperationJson, OperationsJson, operation, operations
from henchman.inspector.ordered import OrderedQueues, ids_with
from henchman.inspector.processes import Work, list_processes, list_work, look_at_process
from henchman.inspector.queues import QueueList, Queues, list_queues
from henchman.inspector.sets import SetName, key_of_set, look_at_set, search_set
from henchman.kernel.text import did_you_mean, visible
from henchman.oncall.deeds import Deeds, Missing, question_of
from henchman.oncall.findings import Weighed, weighed
from henchman.oncall.pauses import paused
from henchman.oncall.views import saved_views
from henchman.oncall.vitals import look
from henchman.store.call import Procedure, run, side_by_side
from henchman.store.call import ask as ask_one
from henchman.store.locks import PHASES
from henchman.store.queues import levels, ran, set_ranks

__all__ = ["ENDPOINTS", "LIMIT_MOST", "TEXTS", "WORDS", "Ask", "Endpoint", "JsonApi", "Wrong"]

LIMIT, LIMIT_MOST = 50, 100
_SCOPES = 1000
_STEPS = 100  # of a workflow that are told with their results
_LONGEST = 200  # characters of a parameter
_CURSOR = re.compile(r"c([0-9]{1,19})")
WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "show": ("open", "bad", "steps"),
    "stuck": ("true",),
    "by": ("time", "busy", "retry", "morgue"),
    "status": tuple(STATUSES),
    "ended": days.STATUSES,
    "source": days.SOURCES,
    "span": tuple(DUE_SPANS),
    "phase": tuple(PHASES.values()),
    "hours": tuple(map(str, range(1, 73))),
    "minutes": tuple(map(str, range(1, 481))),
    "vs": ("before",),
}
TEXTS: Final[Mapping[str, str]] = {
    "limit": f"How many, from 1 to {LIMIT_MOST}; {LIMIT} when nothing is said.",
    "cursor": "What `next` of the answer before said.",
    "q": f"Only those that hold this text, of {_LONGEST} characters at most. A page of a set looks at 20,000 jobs: go "
    "on as long as there is a `next`, also where nothing was found.",
    "job": "Only those of this job.",
    "queue": "Only those of this queue.",
    "host": "Only those that were met on this host.",
    "version": "Only those that were met in this version: the tag of a process.",
    "show": "Only batches that are under way, did not end well, or are workflows.",
    "stuck": "Only those that do not go by themselves.",
    "by": "Which ids, in which order.",
    "status": "Only those with this status.",
    "ended": "Only those that ended so; those that gave up are `error`.",
    "source": "Where it is read: out of history, where there is one, when nothing is said.",
    "span": "The next hour, by the minute, or the next day, by half an hour.",
    "phase": "Keys that are held for this time.",
    "hours": "The last so many hours, in buckets of ten minutes.",
    "minutes": "The last so many minutes; 60 when nothing is said.",
    "vs": "Also the same of as long a span before, as `before`.",
}


class Wrong(Exception):
    """A request that says something that makes no sense; the sentence names it."""


class Ask:
    """What stands behind the question mark; Wrong for what makes no sense there."""

    def __init__(self, given: Sequence[tuple[str, str]], known: Sequence[str]) -> None:
        self._given = dict(given)
        for name, value in given:
            if name not in known:
                near = did_you_mean(name, known)
                raise Wrong(f"{visible(name)[:80]} is no parameter here{near or _known(known)}")
            if len(value) > _LONGEST:
                raise Wrong(f"{name} has {len(value):,} characters: give {_LONGEST} at most")
            if name in WORDS and value not in WORDS[name]:
                raise Wrong(f"{name}={visible(value)!r}: it is one of {_listed(WORDS[name])}")
        if len(self._given) < len(given):
            raise Wrong("a parameter is there twice")
        self.limit = self._limit()
        self.first = self._first()

    def _limit(self) -> int:
        text = self._given.get("limit", str(LIMIT))
        if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= LIMIT_MOST):
            raise Wrong(f"limit={visible(text)!r}: give a whole number from 1 to {LIMIT_MOST}")
        return int(text)

    def _first(self) -> int:
        text = self._given.get("cursor", "c0")
        found = _CURSOR.fullmatch(text)
        if found is None or int(found[1]) > FURTHEST:
            raise Wrong(f"cursor={visible(text)!r}: give what `next` said, or leave it out")
        return int(found[1])

    def word(self, name: str) -> str:
        """What a parameter says; empty: nothing."""
        return self._given.get(name, "")

    def listed(self, items: Sequence[Any], total: int) -> dict[str, Any]:
        """A page of a list that has ``total`` entries."""
        last = self.first + self.limit
        return {"items": list(items), "total": total, "next": self.following(last if last < total else None)}

    def following(self, place: int | None) -> str | None:
        """``next`` for what begins at ``place``; None: there is no more."""
        return f"c{place}" if place else None


def _known(known: Sequence[str]) -> str:
    return f": there is {', '.join(known)}" if known else ": there is none"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words) if len(words) < 20 else f"{words[0]} to {words[-1]}"


class Endpoint(NamedTuple):
    """One address below ``/api/v1``: ``look`` is called with what was asked and the names in the address."""

    path: str
    summary: str
    look: Callable[..., dict[str, Any]]
    answer: type
    parameters: tuple[str, ...] = ()


_PAGED: Final = ("limit", "cursor")
_ERRORS: Final = (*failure_answers.NARROWED, *_PAGED)


class JsonApi:
    """The looks of one app. Each method is one endpoint; what it answers stands in ``answers``."""

    def __init__(self, runtime: Runtime, deeds: Deeds) -> None:
        self._runtime = runtime
        self._keys, self._mask = runtime.keys, runtime.registry.mask
        self._deeds = deeds
        self._queues, self._ordered = Queues(runtime), OrderedQueues(runtime)

    def _run(self, asked: Any) -> Any:
        return run(self._runtime.connections, asked)

    def answer(self, parts: Sequence[str], given: Sequence[tuple[str, str]]) -> dict[str, Any] | None:
        """The answer to a GET of the address whose ``parts`` these are; None: there is no such address."""
        for one in ENDPOINTS:
            pattern = one.path.split("/")
            if len(pattern) == len(parts) and all(
                known.startswith("{") or known == said for known, said in zip(pattern, parts, strict=True)
            ):
                names = [said for known, said in zip(pattern, parts, strict=True) if known.startswith("{")]
                return one.look(self, Ask(given, one.parameters), *names)
        return None

    # ---- now

    def _seen(self) -> tuple[figures.Overview, Weighed]:
        found = self._run(look(self._keys, self._mask))
        return found.seen, weighed(found.seen, found.failing, found.ground, self._deeds.others())

    def overview(self, ask: Ask) -> dict[str, Any]:
        seen, found = self._seen()
        return answers.overview(seen, found.shown)

    def findings(self, ask: Ask) -> dict[str, Any]:
        found = self._seen()[1]
        muted = [answers.finding(one, mute) for one, mute in found.muted]
        return {"items": [answers.finding(one) for one in found.shown], "muted": muted}

    def processes(self, ask: Ask) -> dict[str, Any]:
        every = self._run(list_processes(self._keys))
        return ask.listed([answers.process(one) for one in every[ask.first : ask.first + ask.limit]], len(every))

    def process(self, ask: Ask, identity: str) -> dict[str, Any]:
        found = self._run(look_at_process(self._keys, identity, self._mask))
        if found is None:
            raise Missing(f"no process {visible(identity)[:120]} is known (any more)")
        return answers.process_look(identity, found, self._usual(found.work), self._runtime.clock.now())

    def _usual(self, work: Sequence[Work]) -> Mapping[str, figures.UsualTime]:
        return self._run(figures.usual_times(self._keys, [one.entry.name for one in work]))  # type: ignore[no-any-return]

    def running(self, ask: Ask) -> dict[str, Any]:
        work = self._run(list_work(self._keys, self._mask))
        some = work[ask.first : ask.first + ask.limit]
        usual, at = self._usual(some), self._runtime.clock.now()
        return ask.listed([answers.running(one, usual, at) for one in some], len(work))

    # ---- work

    def queues(self, ask: Ask) -> dict[str, Any]:
        some = list_queues(self._keys, ask.word("q"), ask.first, ask.limit)
        found, told = self._queues_told(some)
        return ask.listed(told, found.total)

    def _queues_told(self, some: Procedure[QueueList]) -> tuple[QueueList, list[dict[str, Any]]]:
        """Queues, and what is told of each."""
        now, flow = self._runtime.clock.now(), (ask_one(levels(self._keys)), ask_one(ran(self._keys)))
        found, processes, past, left = self._run(side_by_side(some, list_processes(self._keys), *flow))
        return found, [answers.queue(one, processes, flow_of(past, left, one, now)) for one in found.states]

    def queue(self, ask: Ask, name: str) -> dict[str, Any]:
        try:
            checked_name(name)
        except ArgumentError as error:
            raise Missing(str(error)) from None
        _, told = self._queues_told(list_queues(self._keys, name))
        state = next((one for one in told if one["name"] == name), None)
        if state is None:
            raise Missing(f"nothing was ever pushed to a queue {visible(name)[:80]}")
        return state

    def queue_tenants(self, ask: Ask, name: str) -> dict[str, Any]:
        try:
            queue = self._queues[checked_name(name)]
        except ArgumentError as error:
            raise Missing(str(error)) from None
        found = queue.tenants(ask.first + ask.limit)
        return ask.listed([one.to_json() for one in found.lines[ask.first :]], found.total)

    def queue_jobs(self, ask: Ask, name: str) -> dict[str, Any]:
        try:
            queue = self._queues[checked_name(name)]
        except ArgumentError as error:
            raise Missing(str(error)) from None
        size = queue.size()
        last = max(size - ask.first, 0)  # the next to run stands last
        begin = max(last - ask.limit, 0)
        items = [answers.job(one) for one in queue.page(begin, last - begin)[::-1]] if last else []
        return {"items": items, "total": size, "next": ask.following(ask.first + ask.limit if begin else None)}

    def _set(self, which: SetName, ask: Ask) -> dict[str, Any]:
        text, key = ask.word("q"), key_of_set(self._keys, which)
        if not text:
            some, total = self._run(look_at_set(self._keys, which, ask.first, ask.limit, self._mask))
            return ask.listed([answers.job(one) for one in some], total)
        found = self._run(search_set(self._keys, which, text, ask.first, ask.limit, self._mask))
        some, after = found.entries[: ask.limit], found.after
        if len(found.entries) > ask.limit:  # the next page begins behind the last that is told
            [rank] = self._run(ask_one(set_ranks(key, [some[-1].payload], newest_first=which == "dead")))
            after = ask.first + found.looked if rank is None else rank + 1
        return {"items": [answers.job(one) for one in some], "total": None, "next": ask.following(after)}

    def retries(self, ask: Ask) -> dict[str, Any]:
        return self._set("retries", ask)

    def scheduled(self, ask: Ask) -> dict[str, Any]:
        return self._set("scheduled", ask)

    def dead(self, ask: Ask) -> dict[str, Any]:
        return self._set("dead", ask)

    def job(self, ask: Ask, jid: str) -> dict[str, Any]:
        return answers.job_status(self._status(jid))

    def why(self, ask: Ask, jid: str) -> dict[str, Any]:
        status = self._status(jid)
        most = self._runtime.config.max_retries
        told, found = self._run(explained_with_obstacles(self._keys, status, most, self._mask))
        return answers.why(status, told, found)

    def _status(self, jid: str) -> Any:
        try:
            status = self._runtime.job_status(jid)
        except ArgumentError as error:
            raise Missing(str(error)) from None
        if status.state == "unknown":
            raise Missing(status.text)
        return status

    def ordered(self, ask: Ask) -> dict[str, Any]:
        every = self._ordered.stats()
        return ask.listed([one.to_json() for one in every[ask.first : ask.first + ask.limit]], len(every))

    def ordered_queue(self, ask: Ask, name: str) -> dict[str, Any]:
        return self._ordered_of(name).stats().to_json()  # type: ignore[no-any-return]

    def _ordered_of(self, name: str) -> Any:
        try:
            return self._ordered[name]
        except ArgumentError as error:
            raise Missing(str(error)) from None

    def ordered_ids(self, ask: Ask, name: str) -> dict[str, Any]:
        queue, by, last = self._ordered_of(name), ask.word("by") or "time", ask.first + ask.limit
        if ask.word("q"):
            part: Any = "morgue" if by == "morgue" else "due"
            some, _ = self._run(ids_with(self._keys, name, part, ask.word("q"), ask.limit))
            more = False
        elif by == "busy":
            some = list(islice(queue.busy(), ask.first, last + 1))
            more = len(some) > ask.limit
        else:
            some = queue.page(ask.first, ask.limit, by=by)
            more = len(some) == ask.limit
        items = [answers.ordered_id(one) for one in some[: ask.limit]]
        return {"items": items, "next": ask.following(last if more else None)}

    def ordered_id(self, ask: Ask, name: str, id: str) -> dict[str, Any]:
        try:
            one = self._ordered_of(name).find(id)
        except ArgumentError as error:
            raise Missing(str(error)) from None
        if one.state == "absent":
            raise Missing(f"nothing is known of the id {visible(id)[:80]}")
        return answers.ordered_id(one)

    def batches(self, ask: Ask) -> dict[str, Any]:
        show: Any = ask.word("show")
        asked = newest_batches(self._keys, ask.first, ask.limit)
        if ask.word("q") or show:
            asked = find_batches(self._keys, ask.word("q"), show, ask.first, ask.limit)
        found = self._run(asked)
        return ask.listed([answers.batch(one) for one in found.rows], found.total)

    def batch(self, ask: Ask, id: str) -> dict[str, Any]:
        return answers.batch(self._batch(id))

    def _batch(self, id: str) -> Any:
        row = self._run(one_batch(self._keys, id)) if re.fullmatch(r"[0-9a-zA-Z_-]{1,100}", id) else None
        if row is None:
            raise Missing(f"the server knows no batch {visible(id)[:80]} (any more): see the history")
        return row

    def batch_steps(self, ask: Ask, id: str) -> dict[str, Any]:
        self._batch(id)
        return {"items": [answers.step(one) for one in self._run(workflow_steps(self._keys, id, _STEPS))]}

    def batch_jobs(self, ask: Ask, id: str) -> dict[str, Any]:
        self._batch(id)
        return self._recorded(Search(batch=id, status=ask.word("status") or None), ask)

    def scopes(self, ask: Ask) -> dict[str, Any]:
        found = self._run(scope_states(self._keys, ask.word("q"), _SCOPES))
        return {"items": [{"scope": one.scope, "held": one.held} for one in found if one.scope]}

    def scope(self, ask: Ask, scope: str) -> dict[str, Any]:
        page = self._run(keys_in(self._keys, scope, ask.word("phase"), ask.first))
        return {"items": [one.to_json() for one in page.keys], "next": ask.following(page.cursor)}

    def key(self, ask: Ask, scope: str, name: str) -> dict[str, Any]:
        try:
            look = self._run(key_look(self._keys, *scoped(scope, name), self._mask))
        except ArgumentError as error:
            raise Missing(str(error)) from None
        found = [*look.held, *([look.remembered] if look.remembered else [])]
        return {"items": [one.to_json() for one in found], "next": None}

    def blocked(self, ask: Ask) -> dict[str, Any]:
        found = self._run(blocked_slice(self._keys, ask.first, self._mask, stuck=bool(ask.word("stuck"))))
        items = [answers.blocked(one) for one in found.jobs]
        return {"items": items, "looked": found.looked, "next": ask.following(found.cursor)}

    # ---- plan, look back, ground

    def pauses(self, ask: Ask) -> dict[str, Any]:
        return {"items": [one.to_json() for one in self._run(paused(self._keys))]}

    def crons(self, ask: Ask) -> dict[str, Any]:
        found, total = self._run(some_crons(self._keys, ask.first, ask.limit))
        return ask.listed([answers.cron(one) for one in found], total)

    def cron(self, ask: Ask, name: str) -> dict[str, Any]:
        try:
            return answers.cron(self._run(one_cron(self._keys, name, 10)))
        except UnknownCron as error:
            raise Missing(str(error)) from None

    def metrics(self, ask: Ask) -> dict[str, Any]:
        return self._metrics(ask, None)

    def metrics_of(self, ask: Ask, name: str) -> dict[str, Any]:
        return self._metrics(ask, name)

    def _metrics(self, ask: Ask, name: str | None) -> dict[str, Any]:
        hours, minutes = (int(ask.word(one)) if ask.word(one) else None for one in ("hours", "minutes"))
        if hours and minutes:
            raise Wrong("hours and minutes: give one of them")
        asked = figures.beside(self._keys, ask.word("vs"), minutes, hours=hours, name=name, detailed=ask.limit)
        found, before = self._run(asked)
        return answers.metrics(found, before, ask.limit)

    def history(self, ask: Ask) -> dict[str, Any]:
        return self._recorded(parse_search(ask.word("q")), ask)

    def _recorded(self, search: Search, ask: Ask) -> dict[str, Any]:
        if off := self._runtime.config.why_history_is_off():
            raise Missing(off)
        found = self._runtime.open_history().reading.find(search, after=ask.first or None, limit=ask.limit)
        return {"items": [answers.event(one) for one in found.events], "next": ask.following(found.after)}

    def audit(self, ask: Ask) -> dict[str, Any]:
        page = self._run(audited(self._keys, ask.word("q"), ask.first, ask.limit))
        return ask.listed([answers.audit(one) for one in page.entries], page.total)

    def operations(self, ask: Ask) -> dict[str, Any]:
        page = self._run(operations(self._keys, ask.first, ask.limit))
        return ask.listed([one.to_json() for one in page.operations], page.total)

    def operation(self, ask: Ask, id: str) -> dict[str, Any]:
        one = self._run(operation(self._keys, id))
        if one is None:
            raise Missing(f"no operation {visible(id)[:40]} is known (any more)")
        return dict(one.to_json())

    def system(self, ask: Ask) -> dict[str, Any]:
        return {"items": [one.to_json() for one in examine(self._runtime.connections, self._keys)]}

    def views(self, ask: Ask) -> dict[str, Any]:
        return {"items": [answers.view(one) for one in self._run(saved_views(self._keys))]}

    def commands(self, ask: Ask) -> dict[str, Any]:
        known = sorted(self._deeds.known.items())
        rows = [
            {"page": page, "act": verb, "title": one.title, "question": one.question} for (page, verb), one in known
        ]
        return {"items": rows}

    def plan(self, page: str, act: str, names: Sequence[str]) -> dict[str, Any]:
        """What an act would do, as it is asked on the page."""
        found = self._deeds.find(page, act, names)
        return {"page": page, "act": act, "names": list(names), "question": question_of(found, names).text}


_API = JsonApi
ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint("overview", "Counts, and what is wrong", _API.overview, answer_types.OverviewJson),
    Endpoint("findings", "What is wrong, the worst first", _API.findings, finding_types.FindingsJson),
    Endpoint("errors", "Failures by kind", failure_answers.errors, failure_answers.ErrorsJson, _ERRORS),
    Endpoint("errors/{id}", "One kind, with a traceback", failure_answers.error, failure_answers.OneErrorJson),
    Endpoint("processes", "Worker processes", _API.processes, answer_types.ProcessesJson, _PAGED),
    Endpoint(
        "processes/{identity}", "One process: what it runs, holds and says", _API.process, answers.ProcessLookJson
    ),
    Endpoint("running", "Jobs that run, the longest first", _API.running, answer_types.RunningJobsJson, _PAGED),
    Endpoint("queues", "Queues, by name", _API.queues, answer_types.QueuesJson, ("q", *_PAGED)),
    Endpoint("queues/{name}", "One queue", _API.queue, answer_types.QueueJson),
    Endpoint("queues/{name}/tenants", "Who waits, by turns", _API.queue_tenants, answer_types.TenantsJson, _PAGED),
    Endpoint("queues/{name}/jobs", "What waits in it, the next first", _API.queue_jobs, answer_types.JobsJson, _PAGED),
    Endpoint("retries", "Jobs that are tried again", _API.retries, answer_types.JobsJson, ("q", *_PAGED)),
    Endpoint("scheduled", "Jobs that start later", _API.scheduled, answer_types.JobsJson, ("q", *_PAGED)),
    Endpoint("retries/due", "When they are due", due_answers.retries, DueJson, ("span",)),
    Endpoint("scheduled/due", "When they are due", due_answers.scheduled, DueJson, ("span",)),
    Endpoint("dead", "Jobs that gave up, the latest first", _API.dead, answer_types.JobsJson, ("q", *_PAGED)),
    Endpoint("jobs/{jid}", "Where a job is", _API.job, answer_types.JobStatusJson),
    Endpoint("jobs/{jid}/why", "Why a job does not run", _API.why, answer_types.WhyJson),
    Endpoint("ordered", "Ordered queues", _API.ordered, answer_types.OrderedQueuesJson, _PAGED),
    Endpoint("ordered/{name}", "One ordered queue", _API.ordered_queue, answer_types.OrderedQueueJson),
    Endpoint("ordered/{name}/ids", "Ids of it", _API.ordered_ids, answer_types.OrderedIdsJson, ("q", "by", *_PAGED)),
    Endpoint("ordered/{name}/ids/{id}", "One id", _API.ordered_id, answer_types.OrderedIdJson),
    Endpoint("batches", "Batches, the newest first", _API.batches, answer_types.BatchesJson, ("q", "show", *_PAGED)),
    Endpoint("batches/{id}", "One batch", _API.batch, answer_types.BatchJson),
    Endpoint(
        "batches/{id}/jobs", "Its jobs, by history", _API.batch_jobs, answer_types.RecordsJson, ("status", *_PAGED)
    ),
    Endpoint("batches/{id}/steps", "The steps of a workflow", _API.batch_steps, answer_types.StepsJson),
    Endpoint("keys", "Scopes of business keys", _API.scopes, answer_types.ScopesJson, ("q",)),
    Endpoint("keys/{scope}", "Keys that are held in a scope", _API.scope, answer_types.KeysJson, ("phase", "cursor")),
    Endpoint("keys/{scope}/{key}", "Who has a key", _API.key, answer_types.KeysJson),
    Endpoint("limits", "Limits, by name", limit_answers.limits, limit_answers.LimitsJson, ("q", *_PAGED)),
    Endpoint("limits/{name}", "One limit", limit_answers.one, limit_answers.LimitLookJson, ("cursor",)),
    Endpoint("limits/{name}/{by}", "Of one value of it", limit_answers.one, limit_answers.LimitLookJson, ("cursor",)),
    Endpoint("blocked", "Jobs that wait for others", _API.blocked, answer_types.BlockedJobsJson, ("stuck", "cursor")),
    Endpoint("pauses", "What is paused, by whom and why", _API.pauses, answer_types.PausesJson),
    Endpoint("crons", "Periodic jobs", _API.crons, answer_types.CronsJson, _PAGED),
    Endpoint("crons/{name}", "One of them", _API.cron, answer_types.CronJson),
    Endpoint(
        "metrics",
        "What ran, class by class",
        _API.metrics,
        answer_types.MetricsJson,
        ("hours", "minutes", "vs", "limit"),
    ),
    Endpoint(
        "metrics/{name}", "What ran of one class", _API.metrics_of, answer_types.MetricsJson, ("hours", "minutes", "vs")
    ),
    Endpoint("history", "What became of tracked jobs", _API.history, answer_types.RecordsJson, ("q", *_PAGED)),
    Endpoint("days", "How many jobs ended, by day", day_answers.days, day_answers.DaysJson, ("source",)),
    Endpoint(
        "days/{day}", "What ended on a day", day_answers.one, day_answers.DayJson, ("ended", "job", "source", *_PAGED)
    ),
    Endpoint("audit", "What people did", _API.audit, answer_types.AuditsJson, ("q", *_PAGED)),
    Endpoint("operations", "Bulk work, the newest first", _API.operations, OperationsJson, _PAGED),
    Endpoint("operations/{id}", "One operation", _API.operation, OperationJson),
    Endpoint("system", "The ground under the jobs", _API.system, answer_types.SystemJson),
    Endpoint("search", "One text, everywhere", search_answers.search, search_answers.SearchJson, ("q",)),
    Endpoint("views", "Saved views of list pages", _API.views, finding_types.ViewsJson),
    Endpoint("acts", "What can be done", _API.commands, answer_types.ActsJson),
)
