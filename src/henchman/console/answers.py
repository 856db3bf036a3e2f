"""What the JSON API answers: a type for each answer, of which the OpenAPI document is made, and how it follows from
what the inspector found.

Times are texts, ISO 8601 in UTC, null where there is none; durations are seconds. Arguments are texts of JSON, so that
whole numbers beyond 2^53 survive every client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from henchman.batch.batch import BatchStatus
from henchman.batch.listing import BatchRow, WorkflowStep
from henchman.console.findings import Finding
from henchman.cron.registry import CronState
from henchman.history.records import Event
from henchman.inspector.audit import AuditEntry
from henchman.inspector.base import Entry
from henchman.inspector.blocked import BlockedJob
from henchman.inspector.doctor import Check
from henchman.inspector.errors import ErrorGroup
from henchman.inspector.jobs import JobStatus, Obstacle
from henchman.inspector.keys import KeyState
from henchman.inspector.metrics import ClassMetrics, Metrics, Overview
from henchman.inspector.ordered_id import OrderedId, OrderedStats
from henchman.inspector.processes import ProcessState, Work
from henchman.inspector.queues import QueueState
from henchman.wire import jsontext, times

Moment = str | None


_Class = TypedDict("_Class", {"class": str})
_MaybeClass = TypedDict("_MaybeClass", {"class": str | None})


class JobJson(_Class):
    """A job as it stands in a queue, a set or in flight. ``payload``: the stored text of one that cannot be read."""

    jid: str | None
    queue: str | None
    args: str
    kwargs: str
    tags: list[str]
    attempts: int
    error_class: str | None
    error_message: str | None
    at: Moment
    created_at: Moment
    enqueued_at: Moment
    failed_at: Moment
    retried_at: Moment
    problem: str | None
    payload: str | None


class JobsJson(TypedDict):
    """Some jobs. ``total`` is null where a search was made; ``next`` continues, null at the end."""

    items: list[JobJson]
    total: int | None
    next: str | None


class FindingJson(TypedDict):
    severity: str
    kind: str
    text: str
    evidence: str
    page: str
    name: str
    advice: str


class FindingsJson(TypedDict):
    """What is wrong, the worst first."""

    items: list[FindingJson]


class OverviewJson(TypedDict):
    at: Moment
    findings: list[FindingJson]
    processed: int
    failed: int
    processed_today: int
    failed_today: int
    enqueued: int
    scheduled: int
    retries: int
    dead: int
    blocked: int
    overdue: int
    processes: int
    slots: int
    busy: int
    ordered: int
    ordered_busy: int
    morgue: int


class ErrorJson(TypedDict):
    """Failures of one kind. ``last_24_hours``: by the hour, this one last; ``trace``: of one of them, where asked."""

    id: str
    error: str
    message: str
    place: str
    state: str
    count: int
    last_24_hours: list[int]
    first: Moment
    last: Moment
    jobs: dict[str, int]
    queues: dict[str, int]
    jid: str
    deploy: dict[str, str] | None
    trace: list[str]


class ErrorsJson(TypedDict):
    items: list[ErrorJson]
    total: int


class QueueJson(TypedDict):
    """``latency``: seconds that the next job has waited. ``served_by``: living processes that serve it; ``problem``:
    its key holds something else, and size is null."""

    name: str
    size: int | None
    latency: float | None
    paused: bool
    served_by: int
    problem: str | None


class QueuesJson(TypedDict):
    items: list[QueueJson]
    total: int
    next: str | None


class ObstacleJson(TypedDict):
    """One thing that a job needs to run; ``fine``: it has it; ``advice``: what changes it."""

    fine: bool
    text: str
    advice: str


class WhyJson(TypedDict):
    jid: str
    state: str
    text: str
    obstacles: list[ObstacleJson]


class JobStatusJson(_MaybeClass):
    """Where a job is, and what is known of it. ``position``: 1 is next to run."""

    jid: str
    state: str
    text: str
    queue: str | None
    args: str
    kwargs: str
    error_class: str | None
    error_message: str | None
    backtrace: list[str]
    attempts: int
    position: int | None
    process: str | None
    cancelled: bool
    scanned: int
    complete: bool
    at: Moment
    created_at: Moment
    enqueued_at: Moment
    failed_at: Moment
    started_at: Moment


class ProcessJson(TypedDict):
    identity: str
    hostname: str
    pid: int | None
    tag: str
    version: str
    started_at: Moment
    queues: list[str]
    labels: list[str]
    concurrency: int
    busy: int
    beat: Moment
    rss_kb: int
    rtt_us: int
    quiet: bool


class ProcessesJson(TypedDict):
    items: list[ProcessJson]


class RunningJson(TypedDict):
    """A job that runs, as of the last heartbeat of its process."""

    identity: str
    slot: str
    queue: str
    run_at: Moment
    job: JobJson


class RunningJobsJson(TypedDict):
    items: list[RunningJson]
    total: int
    next: str | None


class OrderedQueueJson(TypedDict):
    name: str
    length: int
    morgue_length: int
    lag: float
    busy: int
    fresh: int
    retries: int
    processed: int
    failed: int
    paused: bool
    max_parallel: int | None
    max_parallel_from: str
    max_per_group: int | None


class OrderedQueuesJson(TypedDict):
    items: list[OrderedQueueJson]


class PayloadJson(TypedDict):
    score: float
    payload: str


class HolderJson(TypedDict):
    identity: str
    token: str
    since: Moment
    delivered: int
    lease_left: float | None
    alive: bool


class OrderedIdJson(TypedDict):
    """One id: what waits under it, who has it, what came meanwhile, what died; the first of many, with counts."""

    id: str
    at: Moment
    state: str
    due: Moment
    put_off: bool
    retry_count: int
    error: str | None
    crashes: int
    payloads: list[PayloadJson]
    payload_count: int
    holder: HolderJson | None
    arrivals: list[PayloadJson]
    arrival_count: int
    arrivals_due: Moment
    dead: list[PayloadJson]
    dead_count: int
    died_at: Moment
    dead_error: str | None


class OrderedIdsJson(TypedDict):
    items: list[OrderedIdJson]
    next: str | None


class BatchJson(TypedDict):
    """A batch. ``steps``: how many it has as a workflow; durations in seconds."""

    id: str
    description: str
    tags: list[str]
    state: str
    why: str
    total: int
    counts: dict[str, int]
    done: int
    rate: float
    eta: float | None
    generation: int
    children: int
    bad_children: int
    parent: str | None
    created: Moment
    closed: Moment
    completed: Moment
    expires: Moment
    reasons: list[dict[str, Any]]
    steps: int


class BatchesJson(TypedDict):
    items: list[BatchJson]
    total: int
    next: str | None


class StepJson(TypedDict):
    """A step of a workflow; ``result``: JSON text."""

    name: str
    jid: str
    job: str
    after: list[str]
    status: str
    result: str | None
    message: str


class StepsJson(TypedDict):
    items: list[StepJson]


class EventJson(_Class):
    """A job as history has it."""

    jid: str
    batch: str | None
    queue: str
    args: str | None
    kwargs: str | None
    status: str
    attempts: int
    enqueued_at: Moment
    started_at: Moment
    ended_at: Moment
    error_class: str | None
    message: str | None
    process: str | None
    host: str | None


class EventsJson(TypedDict):
    items: list[EventJson]
    next: str | None


class ScopeJson(TypedDict):
    """How many keys of a scope are held, by the time for which they are."""

    scope: str
    held: dict[str, int]


class ScopesJson(TypedDict):
    items: list[ScopeJson]


class KeyJson(TypedDict):
    phase: str
    scope: str
    key: str
    jid: str
    since: Moment
    status: str | None
    waiting: int
    remembered_until: Moment


class KeysJson(TypedDict):
    items: list[KeyJson]
    next: str | None


class BlockedJson(TypedDict):
    """A job that waits for others; ``stuck``: it does not go by itself."""

    jid: str
    queue: str
    text: str
    stuck: bool
    due: Moment
    since: Moment
    until: Moment
    waits_for: list[dict[str, Any]]
    job: JobJson


class BlockedJobsJson(TypedDict):
    items: list[BlockedJson]
    looked: int
    next: str | None


class CronJson(TypedDict):
    name: str
    job: str
    queue: str
    expression: str | None
    every: float | None
    tz: str | None
    state: str
    origin: str
    next: list[str]
    last: list[dict[str, Any]]
    problem: str | None


class CronsJson(TypedDict):
    items: list[CronJson]


class ClassJson(TypedDict):
    """Runs of one class: in all, by bucket, and how long those took that did not raise, in ms."""

    name: str
    processed: int
    failed: int
    ms: int
    mean_ms: float | None
    points: list[dict[str, int]]
    histogram: list[int] | None


class MetricsJson(TypedDict):
    """``buckets``: when each begins, ``step`` seconds apart."""

    step: int
    buckets: list[str]
    items: list[ClassJson]
    deploys: list[dict[str, str]]


class AuditJson(TypedDict):
    at: Moment
    who: str
    act: str
    page: str
    names: list[str]
    outcome: str
    said: str


class AuditsJson(TypedDict):
    items: list[AuditJson]
    total: int
    next: str | None


class CheckJson(TypedDict):
    name: str
    verdict: str
    text: str
    advice: str | None


class SystemJson(TypedDict):
    items: list[CheckJson]


class ActJson(TypedDict):
    """What can be done: ``act`` on ``page``, with so many ``names``; ``question``: what is asked before."""

    page: str
    act: str
    title: str
    question: str


class ActsJson(TypedDict):
    items: list[ActJson]


class WishJson(TypedDict):
    """What is to be done: ``act`` on ``page``, and the names that stand in the address of the page's own form."""

    page: str
    act: str
    names: list[str]


class PlanJson(TypedDict):
    """What an act would do, counted where it is one on many."""

    page: str
    act: str
    names: list[str]
    question: str


class DoneJson(TypedDict):
    """What became of an act, in a sentence."""

    said: str


class ProblemJson(TypedDict):
    """Why there is no answer (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


def text_of_json(value: Any) -> str:
    """A value as JSON text; what cannot be written is shown as Python shows it."""
    try:
        return jsontext.encode(value).decode("utf-8", "replace")
    except Exception:
        return jsontext.encode(repr(value)).decode("utf-8", "replace")


def moment(at: float | None) -> Moment:
    """A time as text."""
    return times.iso(at) or None if at else None


def _with_texts(facts: dict[str, Any]) -> dict[str, Any]:
    """``facts`` with arguments as texts of JSON."""
    told = dict(facts)
    for name in ("args", "kwargs"):
        if name in told and told[name] is not None:
            told[name] = text_of_json(told[name])
    return told


def job(entry: Entry) -> dict[str, Any]:
    return _with_texts({"payload": None, **entry.to_json()})


def job_status(status: JobStatus) -> dict[str, Any]:
    return _with_texts(status.to_json())


def why(status: JobStatus, found: Sequence[Obstacle]) -> dict[str, Any]:
    obstacles = [{"fine": one.fine, "text": one.text, "advice": one.advice} for one in found]
    return {"jid": status.jid, "state": status.state, "text": status.text, "obstacles": obstacles}


def finding(one: Finding) -> dict[str, Any]:
    return one._asdict()


def overview(seen: Overview, found: Sequence[Finding]) -> dict[str, Any]:
    counts = seen.stats._asdict()
    del counts["default_latency"]
    slots = sum(one.concurrency for one in seen.processes)
    return {"at": moment(seen.at), "findings": [finding(one) for one in found], **counts, "slots": slots}


def error(one: ErrorGroup, now: float) -> dict[str, Any]:
    return one.to_json(now)


def queue(one: QueueState, processes: Sequence[ProcessState]) -> dict[str, Any]:
    serving = sum(one.name in process.queues and not process.quiet for process in processes)
    return {**one._asdict(), "served_by": serving, "problem": one.problem or None}


def process(one: ProcessState) -> dict[str, Any]:
    facts = one._asdict()
    del facts["embedded"]
    told = {"started_at": moment(one.started_at), "beat": moment(one.beat)}
    return {**facts, "queues": list(one.queues), "labels": list(one.labels), **told}


def running(one: Work) -> dict[str, Any]:
    facts = {"identity": one.identity, "slot": one.slot, "queue": one.queue}
    return {**facts, "run_at": moment(one.run_at), "job": job(one.entry)}


def ordered_queue(one: OrderedStats) -> dict[str, Any]:
    return one.to_json()


def ordered_id(one: OrderedId) -> dict[str, Any]:
    facts = one.to_json()
    for name, found in (("payloads", one.payloads), ("arrivals", one.arrivals), ("dead", one.dead)):
        facts[name] = [{"score": each.score, "payload": each.text} for each in found]
    return facts


def batch(row: BatchRow) -> dict[str, Any]:
    one: BatchStatus = row.status
    names = ("id", "description", "tags", "state", "why", "total", "counts", "done", "rate", "eta", "generation")
    facts: dict[str, Any] = {name: getattr(one, name) for name in (*names, "children", "bad_children", "parent")}
    facts |= {name: moment(getattr(one, name)) for name in ("created", "closed", "completed", "expires")}
    reasons = [{"status": each.status, "reason": each.reason, "count": each.count} for each in one.reasons]
    return {**facts, "reasons": reasons, "steps": row.steps}


def step(one: WorkflowStep) -> dict[str, Any]:
    result = None if one.result is None else one.result.decode("utf-8", "replace")
    return {**one._asdict(), "after": list(one.after), "result": result}


def event(one: Event) -> dict[str, Any]:
    facts = _with_texts({name: value for name, value in one.to_json().items() if name in _OF_EVENT})
    return facts | {name: moment(facts[name]) for name in ("enqueued_at", "started_at", "ended_at")}


_OF_EVENT = frozenset(EventJson.__annotations__)


def key(one: KeyState) -> dict[str, Any]:
    return one.to_json()


def blocked(one: BlockedJob) -> dict[str, Any]:
    facts = one.to_json()
    names = ("jid", "queue", "text", "stuck", "due", "since", "until", "waits_for")
    return {**{name: facts[name] for name in names}, "job": job(one.entry)}


def cron(one: CronState) -> dict[str, Any]:
    names = ("name", "job", "queue", "expression", "every", "tz", "state", "origin")
    past = [{"planned": moment(at.planned), "enqueued": moment(at.enqueued), "jid": at.jid} for at in one.last]
    coming = [times.iso(at) for at in one.next]
    facts: dict[str, Any] = {name: getattr(one, name) for name in names}
    return {**facts, "next": coming, "last": past, "problem": one.problem or None}


def class_metrics(one: ClassMetrics) -> dict[str, Any]:
    points = [{"processed": at.processed, "failed": at.failed, "ms": at.ms} for at in one.points]
    facts: dict[str, Any] = {name: getattr(one, name) for name in ("name", "processed", "failed", "ms", "mean_ms")}
    return {**facts, "points": points, "histogram": None if one.histogram is None else list(one.histogram)}


def metrics(found: Metrics, shown: Sequence[ClassMetrics]) -> dict[str, Any]:
    deploys = [{"at": times.iso(one.at), "label": one.label} for one in found.deploys]
    buckets = [times.iso(at) for at in found.buckets]
    items = [class_metrics(one) for one in shown]
    return {"step": found.step, "buckets": buckets, "items": items, "deploys": deploys}


def audit(one: AuditEntry) -> dict[str, Any]:
    facts: dict[str, Any] = {name: getattr(one, name) for name in ("who", "act", "page", "names", "outcome", "said")}
    return {"at": moment(one.at), **facts}


def check(one: Check) -> dict[str, Any]:
    return one.to_json()
