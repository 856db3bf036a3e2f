"""``henchman status`` and ``henchman processes``: everything at a glance; who works, on what; quiet, stop, dump."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Any, NamedTuple

import click
from rich.console import Group, RenderableType
from rich.text import Text

from henchman.cli.ordered import ordered_table
from henchman.cli.queues import queue_rows, queue_table
from henchman.cli.session import NOTHING_RUNS, Session, as_json, command, group, the_one
from henchman.cli.show import Table, ago, answer, cell, count, duration, say, table, watch
from henchman.errors import HenchmanError, ServerAway
from henchman.inspector.metrics import Overview, rates
from henchman.inspector.processes import ProcessState, Work
from henchman.inspector.queues import QueueState
from henchman.inspector.scaling import WITHIN, SlotsWanted, pace, wanted_slots
from henchman.kernel.text import did_you_mean, visible
from henchman.oncall.finding import Finding
from henchman.oncall.findings import findings
from henchman.oncall.vitals import look as look_at_all
from henchman.store.call import run
from henchman.wire import times

__all__ = ["processes", "status"]

OVERDUE = 4
LATE = 30.0  # seconds without a heartbeat
_WORK_SHOWN = 10
_QUEUES_SHOWN = 50
_FOUND_SHOWN = 6
_NO_WORKERS = "No worker processes. Start one: henchman work pkg.mod:app"


class _Look(NamedTuple):
    """What one look found, and jobs a second since the look before; no ``rate`` after an outage. ``wanted``: how many
    slots the work asks for."""

    now: Overview
    rate: dict[str, float]
    wanted: SlotsWanted
    found: Sequence[Finding] = ()


@command()
@click.option("--watch", "again", is_flag=True, help="Again and again, with jobs a second, until Ctrl-C.")
@click.option("--every", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, metavar="SECONDS")
@click.option(
    "--within",
    type=click.FloatRange(1, 86_400),
    default=WITHIN,
    show_default=True,
    metavar="SECONDS",
    help="Of `slots_desired` in JSON: in how many seconds what waits should have started.",
)
@as_json
def status(session: Session, again: bool, every: float, within: float, as_json: bool) -> None:
    """What is wrong and what mends it; queues, processes, running jobs and counts.

    As a probe: exit status 0 when a worker process lives and nothing is overdue; 3 when there is no worker process (or
    no server at all); 4 when scheduled jobs or retries are more than a minute overdue.
    """
    url, before = session.shown_url, list[Overview]()

    def look() -> _Look:
        try:
            all_of_it = run(session.runner, look_at_all(session.keys, session.mask))
            now, found = all_of_it.seen, findings(*all_of_it)
            speed = run(session.runner, pace(session.keys, now.at))
        except ServerAway:
            before.clear()
            raise
        rate = rates(before[0], now) if before else {}
        before[:] = [now]
        return _Look(now, dict(rate), wanted_slots(now.queues, now.ordered, now.stats.busy, speed, within), found)

    if again:
        watch(look, every, lambda one: _view(url, one), _line, _document if as_json else None, screen=True)
        return
    found = look()
    answer(_document(found), _view(url, found), as_json=as_json)
    if not found.now.stats.processes:
        sys.exit(NOTHING_RUNS)
    if found.now.stats.overdue:
        sys.exit(OVERDUE)


def _document(look: _Look) -> dict[str, Any]:
    now = look.now
    return {
        "at": times.iso(now.at),
        "stats": now.stats._asdict(),
        "slots_desired": look.wanted.slots,
        "queue_slots_desired": look.wanted.queues,
        "rates": look.rate,
        "queues": queue_rows(now.queues),
        "ordered": [one.to_json() for one in now.ordered],
        **_crew(now.processes, now.work),
    }


def _view(url: str, look: _Look) -> Group:
    now = look.now
    parts: list[RenderableType] = [*_wrong(look.found), _headline(url, look), Text()]
    if now.queues:
        parts += [queue_table(_longest(now.queues)), Text()]
    if len(now.queues) > _QUEUES_SHOWN:
        parts[-1] = Text(f"… and {len(now.queues) - _QUEUES_SHOWN:,} shorter ones: henchman queues\n", "dim")
    if now.ordered:
        parts += [ordered_table(now.ordered), Text()]
    if not now.queues and not now.ordered:
        parts += [Text("No queues: nothing was pushed yet.", "dim"), Text()]
    parts.append(_process_table(now.processes, now.at) if now.processes else Text(_NO_WORKERS, "yellow"))
    if now.work:
        parts += [Text(), _work_table(now.work[:_WORK_SHOWN], now.at)]
    if len(now.work) > _WORK_SHOWN:
        parts.append(Text(f"… and {len(now.work) - _WORK_SHOWN:,} more", "dim"))
    return Group(*parts)


def _wrong(found: Sequence[Finding]) -> Iterator[RenderableType]:
    """The findings, each with the command that mends it: at most 13 lines."""
    for one in found[:_FOUND_SHOWN]:
        mark, style = ("✕", "red") if one.severity == "critical" else ("!", "yellow")
        yield Text(f"{mark} {visible(one.text)}", style, no_wrap=True, overflow="ellipsis")
        yield Text(f"    {visible(one.command)}", "dim", no_wrap=True, overflow="ellipsis")
    if len(found) > _FOUND_SHOWN:
        yield Text(f"… and {count(len(found) - _FOUND_SHOWN, 'finding')} more: henchman top", "dim")
    if found:
        yield Text()


def _longest(queues: list[QueueState]) -> list[QueueState]:
    """Those that fit on a screen, by name: the unreadable, the paused and the longest come first into the choice."""
    if len(queues) <= _QUEUES_SHOWN:
        return queues
    chosen = nlargest(_QUEUES_SHOWN, queues, key=lambda one: (bool(one.problem), one.paused, one.size or 0))
    return sorted(chosen, key=lambda one: one.name)


def _headline(url: str, look: _Look) -> Text:
    counts = look.now.stats
    waiting = [
        f"{counts.enqueued:,} enqueued",
        f"{counts.scheduled:,} scheduled",
        count(counts.retries, "retry", "retries"),
        f"{counts.dead:,} dead",
    ]
    done = [
        f"{counts.busy:,} busy",
        f"{counts.processed:,} processed",
        f"{counts.failed:,} failed",
        f"today {counts.processed_today:,} and {counts.failed_today:,}",
    ]
    if counts.blocked:
        waiting.append(f"{counts.blocked:,} blocked")
    if look.now.ordered:
        waiting.append(f"ordered: {counts.ordered:,}, {counts.morgue:,} in morgues")
    text = Text.assemble(cell(url, "dim"), "\n", " · ".join(waiting), "\n", " · ".join(done))
    if look.rate:
        text.append(f"\n{look.rate['processed']:,.1f} jobs/s, {look.rate['failed']:,.1f} failed/s", "green")
    if counts.overdue:
        text.append(f"\n{count(counts.overdue, 'job')} overdue: no worker puts them into their queues", "red")
    return text


def _line(look: _Look) -> str:
    now, counts = look.now, look.now.stats
    speed = f"{look.rate['processed']:,.1f} jobs/s, " if look.rate else ""
    ordered = f"ordered: {counts.ordered:,}, {counts.morgue:,} in morgues, " if now.ordered else ""
    blocked = f"{counts.blocked:,} blocked, " if counts.blocked else ""
    return (
        f"{times.iso(now.at)} {speed}{counts.enqueued:,} enqueued, {counts.busy:,} busy, {counts.retries:,} retries, "
        f"{counts.dead:,} dead, {blocked}{ordered}{count(counts.processes, 'process', 'processes')}, "
        f"latency {duration(counts.default_latency)}"
    )


# ---- processes


@group()
@as_json
def processes(session: Session, as_json: bool) -> None:
    """Every worker process and what it runs."""
    crew = session.any_app.processes
    states, work = crew.states(), crew.work()
    lines: list[RenderableType] = [_process_table(states) if states else _NO_WORKERS]
    if states and work:
        lines += ["", _work_table(work)]
    answer(_crew(states, work), *lines, as_json=as_json)


def _telling(verb: str, help: str, done: str) -> None:
    @command(processes, verb, help)
    @click.argument("identity", nargs=-1)
    @click.option("--all", "everyone", is_flag=True, help="Every process.")
    def tell(session: Session, identity: tuple[str, ...], everyone: bool) -> None:
        if everyone == bool(identity):
            raise click.UsageError("Name processes (see henchman processes), or say --all.")
        crew = session.any_app.processes
        known = {one.identity: one for one in crew.states()}
        identity = tuple(the_one(one, known) or one for one in identity)
        unknown = [one for one in identity if one not in known]
        if unknown:
            raise HenchmanError(f"there is no process {unknown[0]!r}{did_you_mean(unknown[0], known)}")
        for state in known.values() if everyone else [known[one] for one in identity]:
            heard = crew.tell(state, verb)
            say(f"{state.identity} {done}" if heard else f"{state.identity} is told at its next heartbeat")
        if everyone and not known:
            say("No worker processes: nobody to tell.")


_telling("quiet", "Take no new jobs; what runs goes on.", "takes no new jobs")
_telling("stop", "Finish within the grace period, give back the rest, end.", "stops")
_telling("dump", "Write the stack of every thread and task to its log.", "writes its stacks to its log")


def _crew(states: Sequence[ProcessState], work: Sequence[Work]) -> dict[str, Any]:
    """Processes and running jobs as JSON; times as ISO 8601 in UTC."""
    return {
        "processes": [
            one._asdict() | {"started_at": times.iso(one.started_at) or None, "beat": times.iso(one.beat) or None}
            for one in states
        ],
        "work": [
            {"process": one.identity, "slot": one.slot, "pid": one.pid, "run_at": times.iso(one.run_at) or None}
            | one.entry.to_json()
            | {"queue": one.queue}
            for one in work
        ],
    }


def _process_table(states: Sequence[ProcessState], now: float | None = None) -> Table:
    now = time.time() if now is None else now

    columns = {
        "process": lambda one: one.identity,
        "tag": lambda one: one.tag,
        "state": lambda one: cell("quiet", "yellow") if one.quiet else "works",
        "busy>": lambda one: f"{one.busy}/{one.concurrency}",
        "memory>": lambda one: f"{one.rss_kb / 1024:,.0f} MB" if one.rss_kb else "–",
        "beat>": lambda one: cell(duration(one.beat_age(now)), "red" if (one.beat_age(now) or 0) > LATE else ""),
        "queues": lambda one: ", ".join(one.queues),
    }
    return table(states, columns, wide="queues")


def _work_table(work: Sequence[Work], now: float | None = None) -> Table:
    """Running jobs, the longest running first."""
    columns = {
        "running!": lambda one: one.entry.jid or "–",
        "queue": lambda one: one.queue,
        "for>": lambda one: ago(one.run_at, now).removesuffix(" ago"),
        **({"pid>": lambda one: str(one.pid or "")} if any(one.pid for one in work) else {}),  # of isolated runs
        "job": lambda one: one.entry.call_text(),
    }
    return table(work, columns, wide="job")
