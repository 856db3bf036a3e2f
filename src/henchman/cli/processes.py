"""``henchman processes``: who works, on what; quiet, stop, dump."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from henchman.cli.session import Session, as_json, server_options
from henchman.cli.table import Row, Table, cell
from henchman.cli.text import ago, console, duration, emit, say
from henchman.errors import HenchmanError
from henchman.inspector.processes import Processes, ProcessState, Work
from henchman.kernel.text import did_you_mean
from henchman.wire import times

__all__ = ["process_rows", "process_table", "processes", "work_rows", "work_table"]


@click.group(invoke_without_command=True)
@server_options
@as_json
@click.pass_context
def processes(context: click.Context, as_json: bool) -> None:
    """Every worker process and what it runs."""
    if context.invoked_subcommand is not None:
        return
    session = Session(context)
    crew = Processes(session.runner, session.keys, session.mask)
    states, work, now = crew.states(), crew.work(), time.time()
    if as_json:
        emit({"processes": process_rows(states), "work": work_rows(work)})
        return
    if not states:
        say("No worker processes. Start one: henchman work pkg.mod:app")
        return
    console().print(process_table(states, now))
    if work:
        console().print()
        console().print(work_table(work, now))


def _telling(verb: str, help: str, done: str) -> Callable[..., Any]:
    @processes.command(verb, help=help)
    @server_options
    @click.argument("identity", nargs=-1)
    @click.option("--all", "everyone", is_flag=True, help="Every process.")
    @click.pass_context
    def tell(context: click.Context, identity: tuple[str, ...], everyone: bool) -> None:
        if everyone == bool(identity):
            raise click.UsageError("Name processes (see henchman processes), or say --all.")
        session = Session(context)
        crew = Processes(session.runner, session.keys)
        known = {one.identity: one for one in crew.states()}
        unknown = [one for one in identity if one not in known]
        if unknown:
            raise HenchmanError(f"there is no process {unknown[0]!r}{did_you_mean(unknown[0], known)}")
        for state in known.values() if everyone else [known[one] for one in identity]:
            heard = crew.tell(state, verb)
            say(f"{state.identity} {done}" if heard else f"{state.identity} is told at its next heartbeat")
        if everyone and not known:
            say("No worker processes: nobody to tell.")

    return tell


quiet = _telling("quiet", "Take no new jobs; what runs goes on.", "takes no new jobs")
stop = _telling("stop", "Finish within the grace period, give back the rest, end.", "stops")
dump = _telling("dump", "Write the stack of every thread and task to its log.", "writes its stacks to its log")


def process_rows(states: Sequence[ProcessState]) -> list[dict[str, Any]]:
    """Processes as JSON; times as ISO 8601 in UTC."""
    return [
        one._asdict() | {"started_at": times.iso(one.started_at) or None, "beat": times.iso(one.beat) or None}
        for one in states
    ]


def process_table(states: Sequence[ProcessState], now: float) -> Table:
    """Processes as a table."""

    def row(one: ProcessState) -> Row:
        age = one.beat_age(now)
        late = age is not None and age > 30
        cells = [
            cell(one.identity),
            cell(one.tag),
            cell("quiet", "yellow") if one.quiet else cell("works"),
            cell(f"{one.busy}/{one.concurrency}"),
            cell(f"{one.rss_kb / 1024:,.0f} MB" if one.rss_kb else "–"),
            cell(duration(age), "red" if late else ""),
            cell(", ".join(one.queues)),
        ]
        return Row(cells)

    columns = ["process", "tag", "state", "busy>", "memory>", "beat>", "queues"]
    return Table(columns, map(row, states), wide="queues")


def work_rows(work: Sequence[Work]) -> list[dict[str, Any]]:
    """Running jobs as JSON, the longest running first."""
    return [
        {"process": one.identity, "slot": one.slot, "run_at": times.iso(one.run_at) or None}
        | one.entry.to_json()
        | {"queue": one.queue}
        for one in work
    ]


def work_table(work: Sequence[Work], now: float) -> Table:
    """Running jobs as a table, the longest running first."""
    rows = [
        Row([one.entry.jid or "–", one.queue, ago(one.run_at, now).removesuffix(" ago"), one.entry.call_text()])
        for one in work
    ]
    return Table(["running!", "queue", "for>", "job"], rows, wide="job")
