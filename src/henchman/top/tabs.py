"""What each tab shows: rows of one bounded look at the server, and what is said of a row beside them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from henchman.client.runtime import Runtime
from henchman.inspector.base import Entry
from henchman.inspector.flow import Flow, flow_of
from henchman.inspector.metrics import FAR, UsualTime, usual_times
from henchman.inspector.pauses import why_paused
from henchman.inspector.processes import Work
from henchman.inspector.queues import QueueState
from henchman.inspector.sets import JobSet, SetName
from henchman.kernel.figures import figure, since, size, span, utc
from henchman.oncall.findings import LOST, findings
from henchman.oncall.vitals import FindingsLook
from henchman.store.call import run

__all__ = ["TABS", "Tab", "TabRow"]

ROWS: Final = 200  # of a tab; a filter finds what lies behind them
_TRACE: Final = 60  # lines of a backtrace


class TabRow(NamedTuple):
    """``id``: of what it stands for, the same from look to look. ``detail``: lines beside it; ``jid``: of its job."""

    id: str
    cells: Sequence[str]
    detail: Sequence[str] = ()
    jid: str = ""
    page: str = ""  # the tab where one sees more of it
    group: str = ""  # of errors


class Tab(NamedTuple):
    """``rows(runtime, seen, text)``: what is there, ``text`` a filter. ``acts``: key → act of ``console.deeds``."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Callable[[Runtime, FindingsLook, str], list[TabRow]]
    empty: str
    acts: Mapping[str, str] = {}

    @property
    def letter(self) -> str:
        """What leads to it behind ``g``, as in the console."""
        return self.name[0]


def _filtered(rows: Iterable[TabRow], text: str) -> list[TabRow]:
    wanted = text.casefold()
    found = (one for one in rows if wanted in " ".join(one.cells).casefold())
    return list(islice(found, ROWS))


def _job(entry: Entry) -> list[str]:
    """Its call, then why it failed: the error first, for that is what people look for."""
    lines = [entry.call_text(2000), f"job {entry.jid}" + (f", queue {entry.queue}" if entry.queue else "")]
    if entry.error:
        failed = entry.time("failed_at")
        lines += ["", f"{entry.error[0]}: {entry.error[1]}", *entry.backtrace[:_TRACE]]
        lines += ["", f"runs that failed: {entry.attempts}" + (f", first {utc(failed)}" if failed else "")]
    if entry.problem:
        lines += ["", f"no worker can run it: {entry.problem}"]
    return lines


def _overview(runtime: Runtime, look: FindingsLook, text: str) -> list[TabRow]:
    marks = {"critical": "✕", "warning": "!"}
    rows = (
        TabRow(
            one.id,
            (marks[one.severity], one.kind, one.text),
            [one.text, "", one.evidence, *(["", f"What to do: {one.advice}"] if one.advice else []), one.command],
            one.name if one.page == "job" else "",
            _PAGES.get(one.page, one.page),
        )
        for one in findings(*look)
    )
    return _filtered(rows, text)


def _errors(runtime: Runtime, look: FindingsLook, text: str) -> list[TabRow]:
    at = look.failing.at
    rows = (
        TabRow(
            one.id,
            (one.state(at), one.error, next(iter(one.jobs), "–"), figure(one.count), since(one.last, at), one.message),
            [
                f"{one.error}: {one.message}",
                f"{figure(one.count)} times, first {utc(one.first)}, last {utc(one.last)}",
                *([f"after the deploy {one.after.label}"] if one.after else []),
                one.place,
                f"jobs: {', '.join(one.jobs)}",
                f"queues: {', '.join(one.queues)}",
                "",
                f"enter: its traceback; its jobs: henchman errors {one.id}",
            ],
            group=one.id,
        )
        for one in look.failing.groups
    )
    return _filtered(rows, text)


def _busy(runtime: Runtime, look: FindingsLook, text: str) -> list[TabRow]:
    seen = look.seen
    names = [one.entry.name for one in seen.work[:ROWS]]
    usual = run(runtime.connections, usual_times(runtime.keys, names))
    rows = (
        TabRow(
            f"{one.identity} {one.slot}",
            (
                "–" if one.run_at is None else span(max(seen.at - one.run_at, 0.0)),
                _usual(usual.get(one.entry.name), one, seen.at),
                one.entry.name,
                one.queue,
                one.identity,
                one.entry.call_text(120),
            ),
            [*_job(one.entry), "", f"on {one.identity}, slot {one.slot}, since {utc(one.run_at)}"],
            one.entry.jid,
        )
        for one in seen.work
    )
    return _filtered(rows, text)


def _usual(known: UsualTime | None, one: Work, at: float) -> str:
    """How long its class usually takes, or how far beyond that it is."""
    if known is None:
        return "–"
    times = known.beyond(None if one.run_at is None else at - one.run_at)
    if times >= FAR:
        return f"{times:,.0f} × usual"
    return span(known.mean) if known.most == math.inf else f"< {span(known.most)}"


def _processes(runtime: Runtime, look: FindingsLook, text: str) -> list[TabRow]:
    seen = look.seen
    rows = (
        TabRow(
            one.identity,
            (
                ("lost " if (one.beat_age(seen.at) or 0.0) > LOST else "")
                + f"{one.hostname}:{one.pid or '?'}"
                + (" quiet" if one.quiet else ""),
                f"{one.busy}/{one.concurrency}",
                size(one.rss_kb * 1024),
                since(one.beat, seen.at),
                ", ".join(one.queues),
            ),
            [
                one.identity,
                (one.version or "unknown version") + (", embedded" if one.embedded else ""),
                f"since {utc(one.started_at)}",
                f"queues: {', '.join(one.queues) or 'none'}",
                f"round trip {span(one.rtt_us / 1e6)}, memory {size(one.rss_kb * 1024)}",
            ],
        )
        for one in (*seen.lost, *seen.processes)
    )
    return _filtered(rows, text)


def _state(one: QueueState, served: Container[str]) -> str:
    """In a word, what is wrong with a queue."""
    if one.paused or one.name not in served:
        return "paused" if one.paused else "nobody serves it"
    return f"over its {span(one.objective)}" if one.late else ""


def _queues(runtime: Runtime, look: FindingsLook, text: str) -> list[TabRow]:
    seen = look.seen
    served = Counter(name for one in seen.processes for name in one.queues)
    rows = (
        TabRow(
            one.name,
            (
                one.name,
                figure(one.size),
                span(one.latency) if one.size else "–",
                _state(one, served),
            ),
            [
                f"{one.name}: {figure(one.size)} waiting" + (", paused" if one.paused else ""),
                *([f"paused {why}"] if (why := why_paused(one.pause, seen.at)) else []),
                *([f"the next has waited for {span(one.latency)}"] if one.size else []),
                *([f"it may wait for {span(one.objective)}"] if one.objective else []),
                *([one.problem] if one.problem else []),
                _speed(flow_of(look.ground.levels, look.ground.ran, one, seen.at)),
                f"served by {served[one.name]} processes",
            ],
        )
        for one in sorted(seen.queues, key=lambda one: (-(one.latency or 0.0) if one.size else 0.0, one.name))
    )
    return _filtered(rows, text)


def _speed(flow: Flow) -> str:
    known = [("in", flow.entered), ("out", flow.left), ("net", flow.net)]
    told = ", ".join(f"{word} {many:.1f}" for word, many in known if many is not None)
    return f"jobs a second: {told or 'not measured yet'}"


def _of_set(which: SetName) -> Callable[[Runtime, FindingsLook, str], list[TabRow]]:
    def rows(runtime: Runtime, look: FindingsLook, text: str) -> list[TabRow]:
        seen = look.seen
        jobs = JobSet(runtime, which)
        entries = list(islice(jobs.matching(text), ROWS)) if text else jobs.page(0, ROWS)
        return [
            TabRow(
                one.jid or f"{one.score} {place}",
                (
                    since(one.score, seen.at),
                    one.name,
                    *(() if which == "scheduled" else (": ".join(one.error or ()),)),
                    one.call_text(120),
                ),
                _job(one),
                one.jid,
            )
            for place, one in enumerate(entries)
        ]

    return rows


_PAGES: Final = {
    "queue": "queues",
    "job": "busy",
    "busy": "processes",
    "error": "errors",
}  # page of the console → its tab

TABS: Final[Sequence[Tab]] = (
    Tab("overview", "Overview", ("", "what", "finding"), _overview, "All is well.", {"M": "findings mute"}),
    Tab(
        "errors",
        "Errors",
        ("state", "error", "job", "times", "last", "message"),
        _errors,
        "No job has failed in the last 14 days.",
        {"V": "errors resolve", "O": "errors reopen"},
    ),
    Tab(
        "busy",
        "Busy",
        ("for", "usual", "job", "queue", "process", "call"),
        _busy,
        "Nothing runs just now.",
        {"C": "jobs cancel"},
    ),
    Tab(
        "processes",
        "Processes",
        ("process", "slots", "memory", "heard of", "queues"),
        _processes,
        "No worker is alive. Start one: henchman work pkg.mod:app",
        {"Q": "busy quiet", "S": "busy stop"},
    ),
    Tab(
        "queues",
        "Queues",
        ("queue", "size", "waited", "state"),
        _queues,
        "Nothing was pushed yet.",
        {"P": "queues pause", "U": "queues resume"},
    ),
    Tab(
        "retries",
        "Retries",
        ("due", "job", "error", "call"),
        _of_set("retries"),
        "Nothing waits to be tried again.",
        {"R": "retries retry", "K": "retries kill", "D": "retries delete"},
    ),
    Tab(
        "scheduled",
        "Scheduled",
        ("due", "job", "call"),
        _of_set("scheduled"),
        "Nothing is scheduled.",
        {"R": "scheduled retry", "D": "scheduled delete"},
    ),
    Tab(
        "dead",
        "Dead",
        ("died", "job", "error", "call"),
        _of_set("dead"),
        "Nothing is dead.",
        {"R": "dead retry", "D": "dead delete"},
    ),
)
