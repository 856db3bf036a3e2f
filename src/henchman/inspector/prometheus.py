"""Figures as Prometheus reads them: the text format 0.0.4, with names by its conventions.

Written by hand, not with ``prometheus_client``: of a thousand classes that takes 100 ms, and this 11.
Counters of classes are those of Henchman's workers, on the server: they outlive restarts, and every process that is
scraped tells the same. So a dashboard takes ``max by (…)``, not ``sum``, over the instances.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from henchman.inspector.base import server_facts
from henchman.inspector.limits import LimitState, some_limits
from henchman.inspector.metrics import LATE, living
from henchman.inspector.ordered import all_ordered_stats
from henchman.inspector.ordered_id import OrderedStats
from henchman.inspector.processes import ProcessState, list_processes
from henchman.inspector.queues import QueueState, list_queues
from henchman.inspector.scaling import WITHIN, SlotsWanted, pace, wanted_slots
from henchman.inspector.tenants import TenantList, tenants_of
from henchman.store import batches, history, outbox
from henchman.store import metrics as calls
from henchman.store.call import Procedure, ask, side_by_side
from henchman.store.keys import Keys
from henchman.wire import times

__all__ = ["CLASSES_MOST", "CONTENT_TYPE", "QUEUES_MOST", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CLASSES_MOST = 1000  #: of which figures are told, those that ran last; how many are left out is a figure too
QUEUES_MOST = 1000  #: the same, the longest
TENANTS_MOST = 10  #: of a fair queue, the longest of the next thousand lines
TENANTS_SEEN = 1000
LIMITS_MOST = 50  #: by name, and of each about two hundred values of ``by``
LIMIT_VALUES = 200
FAIR_MOST = 50  #: fair queues whose tenants are told of
_LIMITS = calls.LIMITS[::2]  # of the histogram: 13 of its 25
_LES = [f"{limit / 1000:g}" for limit in _LIMITS]


class _Readings(NamedTuple):
    """What one look found."""

    figures: calls.Totals
    queues: list[QueueState]
    processes: list[ProcessState]
    ordered: list[OrderedStats]
    wanted: SlotsWanted
    classes: list[tuple[str, calls.Counted]]
    hidden: int
    batches: int
    history: history.Backlog
    outboxes: list[tuple[outbox.OutboxFigures, float]]
    isolated: tuple[int, int]
    limits: tuple[list[LimitState], int]
    tenants: list[tuple[str, TenantList]]
    info: Mapping[str, str]
    took: float


def exposition(keys: Keys, within: float = WITHIN) -> Procedure[str]:
    """Every figure as of now, as text. ``within``: seconds in which what waits should start, for the slots wanted."""
    return "".join(_written((yield from _look(keys, within))))


def _look(keys: Keys, within: float) -> Procedure[_Readings]:
    now, began = time.time(), time.perf_counter()
    answers = yield from side_by_side(
        ask(calls.figures(keys, times.day(now), now - LATE)),
        list_queues(keys, at=now),
        list_processes(keys),
        all_ordered_stats(keys),
        pace(keys, now),
        _counted(keys),
        server_facts(),
        ask(batches.newest_page(keys, 0, 1)),
        ask(history.backlog(keys)),
        ask(outbox.noted(keys)),
        ask(calls.isolated_ended(keys)),
        some_limits(keys, most=LIMITS_MOST, each=LIMIT_VALUES),
    )
    figures, (queues, *_), every, ordered, speed, (classes, hidden), info, (_, known), *others = answers
    processes = living(every, now)
    wanted = wanted_slots(queues, ordered, sum(one.busy for one in processes), speed, within)
    took = time.perf_counter() - began
    lined = [one.name for one in sorted(queues, key=lambda one: -(one.size or 0)) if one.fair][:FAIR_MOST]
    waiting = yield from side_by_side(*(tenants_of(keys, name, TENANTS_SEEN) for name in lined))
    backlog, boxes, isolated, known_limits = others
    counts = classes, hidden, known, backlog, boxes, isolated, known_limits, list(zip(lined, waiting, strict=True))
    return _Readings(figures, queues, processes, ordered, wanted, *counts, info, took)


def _counted(keys: Keys) -> Procedure[tuple[list[tuple[str, calls.Counted]], int]]:
    """What ran so far of the classes that ran last, by name, and how many others there are."""
    names = yield calls.total_names(keys)
    shown = names[-CLASSES_MOST:]
    counted = (yield calls.totals(keys, shown)) if shown else []
    return sorted(zip(shown, counted, strict=True)), len(names) - len(shown)


def _written(seen: _Readings) -> Iterator[str]:
    yield from _totals(seen)
    yield from _queues(seen)
    yield from _tenants(seen)
    yield from _limits(seen)
    yield from _ordered(seen)
    yield from _workers(seen)
    yield from _classes(seen)
    yield from _outboxes(seen)
    yield from _server(seen)


def _totals(seen: _Readings) -> Iterator[str]:
    one = seen.figures
    yield from _family("jobs_processed_total", "counter", "Runs so far, those that raised included.", one.processed)
    yield from _family("jobs_failed_total", "counter", "Runs so far that raised.", one.failed)
    yield from _family("jobs_scheduled", "gauge", "Jobs that wait for their time.", one.scheduled)
    yield from _family("jobs_retrying", "gauge", "Jobs that wait for their next attempt.", one.retries)
    yield from _family("jobs_dead", "gauge", "Jobs that gave up, in the dead set.", one.dead)
    yield from _family("jobs_blocked", "gauge", "Jobs that wait for other jobs.", one.blocked)
    text = "Scheduled jobs and retries that are more than a minute late."
    yield from _family("jobs_overdue", "gauge", text, one.overdue)
    yield from _family(
        "batches", "gauge", "Batches that are known, finished ones until they are forgotten.", seen.batches
    )


def _queues(seen: _Readings) -> Iterator[str]:
    shown = sorted(seen.queues, key=lambda one: -(one.size or 0))[:QUEUES_MOST]
    serving: dict[str, int] = {}
    for process in seen.processes:
        for name in process.queues if not process.quiet else ():
            serving[name] = serving.get(name, 0) + process.concurrency
    names = [one.name for one in shown]

    def each(name: str, text: str, values: Iterable[float]) -> Iterator[str]:
        return _by_queue(name, text, zip(names, values, strict=True))

    yield from each("queue_size", "Jobs that wait in a queue.", (one.size or 0 for one in shown))
    text = "Seconds since the job that is next was pushed."
    yield from each("queue_latency_seconds", text, (one.latency or 0.0 for one in shown))
    bound = {one.name: one.objective for one in shown if one.objective}
    yield from _by_queue("queue_objective_seconds", "Seconds that its next job may wait.", bound.items())
    yield from each("queue_paused", "1 when nothing starts from it.", (float(one.paused) for one in shown))
    text = "Slots of living processes that serve it."
    yield from each("queue_slots", text, (serving.get(one.name, 0) for one in shown))
    text = "Slots that its backlog asks for."
    yield from each("queue_slots_desired", text, (seen.wanted.queues.get(one.name, 0) for one in shown))
    yield from _family("queues_hidden", "gauge", "Queues that are not told of.", len(seen.queues) - len(shown))


def _tenants(seen: _Readings) -> Iterator[str]:
    """The longest lines of fair queues, a few of each: tenants may be without end."""
    families = (
        ("tenant_size", "Jobs of a tenant that wait in the line of a fair queue, of the longest ten.", "size"),
        ("tenant_latency_seconds", "Seconds since the next of these was pushed.", "latency"),
    )
    for name, text, field in families if seen.tenants else ():
        yield _head(name, "gauge", text)
        for queue, found in seen.tenants:
            for one in sorted(found.lines, key=lambda one: -one.size)[:TENANTS_MOST]:
                labels = (("queue", queue), ("tenant", one.tenant), ("priority", one.level))
                said = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels)
                yield f"henchman_{name}{{{said}}} {getattr(one, field) or 0:.17g}\n"
    if seen.tenants:
        totals = ((queue, float(found.total)) for queue, found in seen.tenants)
        yield from _by_queue("queue_tenants", "Lines of a fair queue in which jobs wait.", totals)


def _limits(seen: _Readings) -> Iterator[str]:
    """Places of all values of ``by`` together: values may be without end."""
    found, total = seen.limits
    places = [one for one in found if one.has_places]
    families = (
        ("limit_size", "How large a limit is: places of each value, or starts or points in its time.", "n", found),
        ("limit_used", "Places of a limit that are taken.", "used", places),
        ("limit_waiting", "Jobs that wait for a place of a limit.", "waiting", places),
    )
    for name, text, field, some in families if found else ():
        yield _head(name, "gauge", text)
        for one in some:
            yield f'henchman_{name}{{limit="{_escaped(one.name)}",kind="{one.kind}"}} {getattr(one, field):.17g}\n'
    if found:
        yield from _family("limits_hidden", "gauge", "Limits that are not told of.", total - len(found))


def _ordered(seen: _Readings) -> Iterator[str]:
    shown = seen.ordered[:QUEUES_MOST]
    figures = (
        ("ordered_queue_ids", "Ids that wait in an ordered queue.", "length"),
        ("ordered_queue_busy", "Ids of it in flight.", "busy"),
        ("ordered_queue_retrying", "Ids of it that failed and wait.", "retries"),
        ("ordered_queue_morgue", "Dead ids of it.", "morgue_length"),
        ("ordered_queue_lag_seconds", "Seconds since its first id was due.", "lag"),
    )
    for name, text, field in figures:
        yield from _by_queue(name, text, ((one.name, getattr(one, field)) for one in shown))


def _workers(seen: _Readings) -> Iterator[str]:
    alive = seen.processes
    yield from _family("processes", "gauge", "Worker processes that live.", len(alive))
    yield from _family("slots", "gauge", "Slots of these.", sum(one.concurrency for one in alive))
    yield from _family("slots_busy", "gauge", "Slots in which a job runs.", sum(one.busy for one in alive))
    text = "Slots for what runs and for what waits: what an autoscaler follows."
    yield from _family("slots_desired", "gauge", text, seen.wanted.slots)
    memory = sum(one.rss_kb for one in alive) * 1024
    yield from _family("processes_memory_bytes", "gauge", "Memory of these processes.", memory)
    yield from _isolated(seen)


def _isolated(seen: _Readings) -> Iterator[str]:
    alive, (killed, crashed) = seen.processes, seen.isolated
    many, memory = sum(one.isolated for one in alive), sum(one.isolated_rss_kb for one in alive) * 1024
    yield from _family("isolated_processes", "gauge", "Processes that workers have for isolated runs.", many)
    yield from _family("isolated_processes_memory_bytes", "gauge", "Memory of these, beside the workers'.", memory)
    text = "Processes of isolated runs that were killed: they did not heed a time-out, a cancellation or a stop."
    yield from _family("isolated_killed_total", "counter", text, killed)
    text = "Processes of isolated runs that crashed."
    yield from _family("isolated_crashed_total", "counter", text, crashed)


def _classes(seen: _Readings) -> Iterator[str]:
    """One pass a class: there may be a thousand."""
    labels = [(f'{{job="{_escaped(name)}"', one) for name, one in seen.classes]
    yield _head("job_runs_total", "counter", "Runs of a job so far, those that raised included.")
    yield from (f"henchman_job_runs_total{label}}} {one.processed}\n" for label, one in labels)
    yield _head("job_failures_total", "counter", "Runs of a job so far that raised.")
    yield from (f"henchman_job_failures_total{label}}} {one.failed}\n" for label, one in labels)
    yield _head("job_failures_by_cause_total", "counter", "The same by what ended them, once that has happened.")
    for label, one in labels:
        errors = max(one.failed - sum(one.causes.values()), 0)
        for cause, many in {"error": errors, **one.causes}.items():
            if many:
                yield f'henchman_job_failures_by_cause_total{label},cause="{cause}"}} {many}\n'
    name = "henchman_job_duration_seconds"
    yield _head("job_duration_seconds", "histogram", "How long runs took that did not raise.")
    for label, one in labels:
        below = list(accumulate(one.histogram))
        for place, le in enumerate(_LES):
            yield f'{name}_bucket{label},le="{le}"}} {below[2 * place]}\n'
        yield f'{name}_bucket{label},le="+Inf"}} {below[-1]}\n'
        yield f"{name}_sum{label}}} {one.ms / 1000}\n{name}_count{label}}} {below[-1]}\n"
    yield from _family("job_classes_hidden", "gauge", "Jobs that are not told of.", seen.hidden)


def _outboxes(seen: _Readings) -> Iterator[str]:
    """As their relays saw them: a database that is away holds up no scrape, and the age of the report tells of it."""
    shown = [(f'{{database="{_escaped(one.database)}"}}', one, age) for one, age in seen.outboxes]
    figures = (
        ("outbox_rows", "gauge", "Rows of an outbox.", "rows"),
        ("outbox_waiting", "gauge", "Rows of it that are not pushed yet.", "waiting"),
        ("outbox_lag_seconds", "gauge", "Age of the oldest of these.", "lag"),
        ("outbox_refused", "gauge", "Rows that the server refuses.", "refused"),
        ("outbox_duplicates_total", "counter", "Rows whose key another job had.", "duplicates"),
    )
    for name, kind, text, field in figures if shown else ():
        yield _head(name, kind, text)
        yield from (f"henchman_{name}{label} {getattr(one, field):.17g}\n" for label, one, _ in shown)
    if shown:
        yield _head("outbox_report_age_seconds", "gauge", "Seconds since its relay told these.")
        yield from (f"henchman_outbox_report_age_seconds{label} {age:.17g}\n" for label, _, age in shown)


def _server(seen: _Readings) -> Iterator[str]:
    for name, field, text in (
        ("server_memory_bytes", "used_memory", "Memory of the Redis or Valkey server."),
        ("server_memory_limit_bytes", "maxmemory", "Its limit; 0: none."),
        ("server_clients", "connected_clients", "Connections that it has."),
    ):
        if seen.info.get(field, "").isdecimal():
            yield from _family(name, "gauge", text, int(seen.info[field]))
    yield from _family(
        "history_entries", "gauge", "Changes of tracked jobs that are not yet in SQL.", seen.history.entries
    )
    text = "Seconds since the oldest of these."
    yield from _family("history_lag_seconds", "gauge", text, seen.history.lag)
    yield from _family("scrape_seconds", "gauge", "How long these figures took.", seen.took)


def _family(name: str, kind: str, text: str, value: float) -> Iterator[str]:
    yield f"{_head(name, kind, text)}henchman_{name} {value:.17g}\n"


def _head(name: str, kind: str, text: str) -> str:
    return f"# HELP henchman_{name} {text}\n# TYPE henchman_{name} {kind}\n"


def _by_queue(name: str, text: str, values: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield _head(name, "gauge", text)
    yield from (f'henchman_{name}{{queue="{_escaped(queue)}"}} {value:.17g}\n' for queue, value in values)


def _escaped(text: str) -> str:
    clean = text if text.isascii() else text.encode("utf-8", "replace").decode()
    return clean.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
