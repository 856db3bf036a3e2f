"""What the JSON API answers: a type for each answer, of which the OpenAPI document is made.

Times are texts, ISO 8601 in UTC, null where there is none; durations are seconds. Arguments are texts of JSON, so that
whole numbers beyond 2^53 survive every client.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from henchman.console.api.failure_answers import CauseJson, FailureJson
from henchman.console.api.finding_types import FindingJson, MendJson, UsualJson
from henchman.inspector.pauses import PauseJson
from henchman.inspector.queues import QueueStateJson
from henchman.inspector.tenants import TenantJson
from henchman.oncall.pauses import PausedJson

Moment = str | None

_Class = TypedDict("_Class", {"class": str})
_MaybeClass = TypedDict("_MaybeClass", {"class": str | None})


class _Paged(TypedDict):
    total: int
    next: str | None


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
    cause: str | None
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


class QueueJson(QueueStateJson):
    """A queue; ``served_by``: living processes that serve it; jobs a second of the last minutes that came in, that
    workers of Henchman took out, and by which it grew; null: not known yet."""

    served_by: int
    in_per_second: float | None
    out_per_second: float | None
    net_per_second: float | None


class QueuesJson(_Paged):
    items: list[QueueJson]


class TenantsJson(_Paged):
    items: list[TenantJson]


class ObstacleJson(TypedDict):
    """One thing that a job needs to run; ``fine``: it has it; ``advice``: what changes it."""

    fine: bool
    text: str
    advice: str


class WhyJson(TypedDict):
    """Why a job does not run. ``explained``: the one thing that holds it up, in a sentence; ``command``: what changes
    that, "" where nothing does; ``act``: the same as ``POST acts`` takes it."""

    jid: str
    state: str
    text: str
    explained: str
    command: str
    act: MendJson | None
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
    cause: str | None
    backtrace: list[str]
    causes: list[CauseJson]
    failures: list[FailureJson]
    attempts: int
    position: int | None
    process: str | None
    cancelled: bool
    scanned: int
    complete: bool
    deadline: Moment
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
    skew: float | None
    isolated: int
    isolated_rss_kb: int


class ProcessesJson(_Paged):
    items: list[ProcessJson]


class RunningJson(TypedDict):
    """A job that runs, as of the last heartbeat of its process; ``usual``: null where none of its class has ended well
    lately."""

    identity: str
    slot: str
    queue: str
    run_at: Moment
    usual: UsualJson | None
    job: JobJson


class RunningJobsJson(_Paged):
    items: list[RunningJson]


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


class OrderedQueuesJson(_Paged):
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
    """One id: the payloads that wait under it, its holder, the arrivals since, the dead. Of many payloads the first are
    told, and how many there are."""

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
    paused: bool
    pause: PauseJson | None
    reasons: list[dict[str, Any]]
    steps: int


class BatchesJson(_Paged):
    items: list[BatchJson]


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


class RecordJson(_Class):
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
    cause: str | None
    process: str | None
    host: str | None


class RecordsJson(TypedDict):
    items: list[RecordJson]
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
    words: str
    tz: str | None
    state: str
    origin: str
    next: list[str]
    last: list[dict[str, Any]]
    problem: str | None
    pause: PauseJson | None


class CronsJson(_Paged):
    items: list[CronJson]


class ClassJson(TypedDict):
    """Runs of one class: in all, by bucket, and how long those took that did not raise, in ms. ``histogram``: in all,
    ``spread``: by bucket, of one class alone; null where none is known."""

    name: str
    processed: int
    failed: int
    ms: int
    mean_ms: float | None
    causes: dict[str, int]
    points: list[dict[str, int]]
    histogram: list[int] | None
    spread: list[list[int] | None]


class MetricsJson(TypedDict):
    """``buckets``: when each begins, ``step`` seconds apart; ``before``: the same of the span before, where it
    was asked for and is kept."""

    step: int
    buckets: list[str]
    items: list[ClassJson]
    before: list[ClassJson] | None
    deploys: list[dict[str, str]]


class AuditJson(TypedDict):
    at: Moment
    who: str
    act: str
    page: str
    names: list[str]
    outcome: str
    said: str
    operation: str | None


class AuditsJson(_Paged):
    items: list[AuditJson]


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


class PausesJson(TypedDict):
    items: list[PausedJson]


class ActsJson(TypedDict):
    items: list[ActJson]


class WishJson(TypedDict):
    """What is to be done: ``act`` on ``page``, the names that stand in the address of the page's own form, and what its
    ``form`` says. ``reason``: why, of an act that keeps it: pauses of queues and batches."""

    page: str
    act: str
    names: list[str]
    reason: NotRequired[str]
    form: NotRequired[dict[str, str]]


class PlanJson(TypedDict):
    """What an act would do, counted where it is one on many."""

    page: str
    act: str
    names: list[str]
    question: str


class DoneJson(TypedDict):
    """What became of an act, in a sentence; the number of the operation that it began, None: it began none."""

    said: str
    operation: str | None


class ProblemJson(TypedDict):
    """Why there is no answer (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
