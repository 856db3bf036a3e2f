"""How the answers of the JSON API follow from what the inspector found; their types stand in ``answer_types.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from henchman.batch.batch import BatchStatus
from henchman.batch.listing import BatchRow, WorkflowStep
from henchman.console.api.answer_types import Moment, ProcessJson, RecordJson, RunningJson
from henchman.cron.registry import CronState
from henchman.history.records import Event
from henchman.inspector.audit import AuditEntry
from henchman.inspector.base import Entry
from henchman.inspector.blocked import BlockedJob
from henchman.inspector.flow import Flow
from henchman.inspector.jobs import JobStatus
from henchman.inspector.metrics import ClassMetrics, Metrics, Overview, UsualTime
from henchman.inspector.obstacles import Explanation, Obstacle
from henchman.inspector.ordered_id import OrderedId
from henchman.inspector.pauses import pause_json
from henchman.inspector.processes import ProcessLook, ProcessState, Work
from henchman.inspector.queues import QueueState
from henchman.oncall.finding import Finding
from henchman.oncall.mutes import Mute
from henchman.oncall.views import SavedView
from henchman.wire import jsontext, times


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


def why(status: JobStatus, told: Explanation, found: Sequence[Obstacle]) -> dict[str, Any]:
    obstacles = [{"fine": one.fine, "text": one.text, "advice": one.advice} for one in found]
    facts = {"jid": status.jid, "state": status.state, "text": status.text, "explained": told.text}
    return facts | {"command": told.command, "act": _mends(told.act), "obstacles": obstacles}


def _mends(act: Sequence[str]) -> dict[str, Any] | None:
    """An act as it is wished for."""
    page, *names, verb = act or ("", "")
    return {"page": page, "act": verb, "names": names} if act else None


def finding(one: Finding, mute: Mute | None = None) -> dict[str, Any]:
    mends = _mends(one.act)
    until = moment(mute.until) if mute else None
    return {"id": one.id, **one._asdict(), "filters": dict(one.filters), "act": mends, "muted_until": until}


def overview(seen: Overview, found: Sequence[Finding]) -> dict[str, Any]:
    counts = seen.stats._asdict()
    del counts["default_latency"]
    slots = sum(one.concurrency for one in seen.processes)
    return {"at": moment(seen.at), "findings": [finding(one) for one in found], **counts, "slots": slots}


def queue(one: QueueState, processes: Sequence[ProcessState], flow: Flow) -> dict[str, Any]:
    serving = sum(one.name in process.queues and not process.quiet for process in processes)
    speed = {"in_per_second": flow.entered, "out_per_second": flow.left, "net_per_second": flow.net}
    return {**one.to_json(), "served_by": serving, **speed}


def process(one: ProcessState) -> dict[str, Any]:
    facts = one._asdict()
    del facts["embedded"]
    told = {"started_at": moment(one.started_at), "beat": moment(one.beat)}
    return {**facts, "queues": list(one.queues), "labels": list(one.labels), **told}


class InFlightJson(TypedDict):
    queue: str
    jobs: int


class ProcessLookJson(TypedDict):
    """One process. ``process``: what it says of itself, null when its record is gone; ``lease``: seconds that it lasts
    still, null: there is none; ``entombed``: it was declared dead; ``memory_kb``: by the minute, the latest last;
    ``stacks``: where its threads stood when it was asked last, null: nobody asked lately."""

    identity: str
    process: ProcessJson | None
    software: str
    lease: float | None
    entombed: bool
    running: list[RunningJson]
    in_flight: list[InFlightJson]
    memory_kb: list[int]
    stacks: str | None


def process_look(identity: str, one: ProcessLook, usual: Mapping[str, UsualTime], at: float) -> dict[str, Any]:
    return {
        "identity": identity,
        "process": None if one.state is None else process(one.state),
        "software": one.software,
        "lease": one.lease,
        "entombed": one.entombed,
        "running": [running(some, usual, at) for some in one.work],
        "in_flight": [{"queue": queue, "jobs": many} for queue, many in one.lists],
        "memory_kb": one.memory,
        "stacks": one.stacks or None,
    }


def view(one: SavedView) -> dict[str, Any]:
    return {"page": one.page, "name": one.name, "query": one.query, "by": one.by, "at": moment(one.at)}


def running(one: Work, usual: Mapping[str, UsualTime], at: float) -> dict[str, Any]:
    facts = {"identity": one.identity, "slot": one.slot, "queue": one.queue}
    known, taken = usual.get(one.entry.name), None if one.run_at is None else max(at - one.run_at, 0.0)
    told = None
    if known:
        most = None if known.most == math.inf else known.most
        told = {"half_s": None if known.half == math.inf else known.half, "most_s": most, "mean_s": known.mean}
        told["times"] = None if taken is None else round(known.beyond(taken), 2)
    return {**facts, "run_at": moment(one.run_at), "usual": told, "job": job(one.entry)}


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
    pause = one.paused and pause_json(one.paused)
    return {**facts, "paused": bool(pause), "pause": pause, "reasons": reasons, "steps": row.steps}


def step(one: WorkflowStep) -> dict[str, Any]:
    result = None if one.result is None else one.result.decode("utf-8", "replace")
    return {**one._asdict(), "after": list(one.after), "result": result}


def event(one: Event) -> dict[str, Any]:
    facts = _with_texts({name: value for name, value in one.to_json().items() if name in _OF_EVENT})
    return facts | {name: moment(facts[name]) for name in ("enqueued_at", "started_at", "ended_at")}


_OF_EVENT = frozenset(RecordJson.__annotations__)


def blocked(one: BlockedJob) -> dict[str, Any]:
    facts = one.to_json()
    names = ("jid", "queue", "text", "stuck", "due", "since", "until", "waits_for")
    return {**{name: facts[name] for name in names}, "job": job(one.entry)}


def cron(one: CronState) -> dict[str, Any]:
    names = ("name", "job", "queue", "expression", "every", "words", "tz", "state", "origin")
    past = [
        {
            "planned": moment(at.planned),
            "enqueued": moment(at.enqueued),
            "jid": at.jid,
            "ending": at.ending or None,
            "ended": moment(at.ended),
        }
        for at in one.last
    ]
    coming = [times.iso(at) for at in one.next]
    facts: dict[str, Any] = {name: getattr(one, name) for name in names}
    pause = one.pause and pause_json(one.pause)
    return {**facts, "next": coming, "last": past, "problem": one.problem or None, "pause": pause}


def class_metrics(one: ClassMetrics) -> dict[str, Any]:
    points = [{"processed": at.processed, "failed": at.failed, "ms": at.ms} for at in one.points]
    facts: dict[str, Any] = {name: getattr(one, name) for name in ("name", "processed", "failed", "ms", "mean_ms")}
    facts["causes"] = dict(one.causes)
    facts["spread"] = [None if each is None else list(each) for each in one.spread]
    return {**facts, "points": points, "histogram": None if one.histogram is None else list(one.histogram)}


def metrics(found: Metrics, before: Metrics | None, most: int) -> dict[str, Any]:
    deploys = [{"at": times.iso(one.at), "label": one.label} for one in found.deploys]
    buckets = [times.iso(at) for at in found.buckets]
    items = [class_metrics(one) for one in found.classes[:most]]
    earlier = None if before is None else [class_metrics(one) for one in before.classes[:most]]
    return {"step": found.step, "buckets": buckets, "items": items, "before": earlier, "deploys": deploys}


def audit(one: AuditEntry) -> dict[str, Any]:
    facts: dict[str, Any] = {name: getattr(one, name) for name in ("who", "act", "page", "names", "outcome", "said")}
    return {"at": moment(one.at), **facts, "operation": one.operation or None}
