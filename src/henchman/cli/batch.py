"""``henchman batch`` and ``henchman batches``: how batches stand, what failed in them and why; pause, close, cancel,
retry.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from henchman.batch import results as batch_results
from henchman.batch.batch import BatchStatus, status_of
from henchman.batch.step_states import MOST as MOST_STEPS
from henchman.batch.step_states import StepState, step_states
from henchman.cli.history import COLOURS, after_option, history_of, limit_option, show_page
from henchman.cli.session import Session, ShowGroup, as_json, caller, command, confirmed, server_options, why, yes
from henchman.cli.show import Table, ago, answer, cell, count, duration, facts, moment, say, table, watch
from henchman.errors import HenchmanError, HistoryError, UnknownBatch
from henchman.history import as_csv
from henchman.history.records import FAILURES, STATUSES, batch_status
from henchman.inspector.operations import Operation, operation
from henchman.inspector.operator import carry_out
from henchman.inspector.pauses import who_paused
from henchman.kernel.spreadsheet import MARK
from henchman.kernel.text import shorten, visible
from henchman.oncall.batch_operations import CARRIERS, BatchAct, begin_on_batch, concerned
from henchman.store import batches as store
from henchman.store.call import iterate, run

__all__ = ["batch", "batches"]

NOT_ALL, NOT_YET = 4, 5
_SLICE = 500  # batches that are looked at in one round trip
_ROWS = 500  # rows of CSV that are written at once
_STATES = {"open": "cyan", "closed": "cyan", "complete": "green", "abandoned": "bold yellow"}
_REASONS = 20
_LONG_NAME = 60  # characters of the name of a step
_BAR = 80  # characters, at most


def _batch_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    text = value.strip()
    if not 0 < len(text) <= 100 or not text.isprintable() or not text.isascii():
        raise click.BadParameter("a batch id has 32 characters of 0-9 and a-f")
    return text


_id = click.argument("id", callback=_batch_id)


@click.group("batch", cls=ShowGroup)
@server_options
def batch() -> None:
    """Batches: how one stands, live; what failed in it and why; pause, close, cancel, retry.

    \b
    henchman batch ID                    how it stands; --watch: until it is complete
    henchman batch events ID             its jobs, as history has them; --status failed
    henchman batch failures ID           its failures as CSV, on standard output
    henchman batch results ID --csv F    what its jobs returned, as a file; --jsonl F
    henchman batch retry ID              the jobs that gave up, once more
    henchman batch pause|unpause ID      start none of its jobs; go on
    henchman batch close|cancel ID       no more jobs; no job starts any more
    """


@command(batch)
@_id
@click.option("--watch", "again", is_flag=True, help="Again and again until it is complete (or Ctrl-C).")
@click.option("--every", type=click.FloatRange(0.2, 3600), default=1.0, show_default=True, metavar="SECONDS")
@click.option(
    "--steps", "most", type=click.IntRange(0, MOST_STEPS), default=50, show_default=True, help="So many of them."
)
@as_json
def show(session: Session, id: str, again: bool, every: float, most: int, as_json: bool) -> None:
    """How the batch ID stands: progress, counts, the reasons of failures; of a workflow also its steps.

    Exit status 0: complete, and every job finished, also of the batches that are part of it; 4: complete, but not all
    did; 5: not complete yet; 1: there is no such batch, or an error; 3: there is no server.
    """

    def look() -> _Shown:
        return _Shown(_look(session, id), *run(session.runner, step_states(session.keys, id, most)))

    if again:
        found = _Shown(_look(session, id))  # an unknown one is refused at once
        document = _Shown.document if as_json else None
        found = watch(look, every, _Shown.view, _Shown.line, document, until=_Shown.is_complete) or found
    else:
        found = look()
        answer(found.document(), found.view(), as_json=as_json)
    sys.exit(_exit_status(found.batch))


def _exit_status(found: BatchStatus) -> int:
    return NOT_YET if found.state != "complete" else 0 if found.well else NOT_ALL


@command(batch)
@_id
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only with this status; repeatable.")
@limit_option
@after_option
@as_json
def events(session: Session, id: str, status: tuple[str, ...], limit: int, after: int | None, as_json: bool) -> None:
    """The jobs of the batch ID as history has them, in the order in which they were enqueued."""
    with history_of(session) as admin:
        page = admin.reading.events(id, status or None, after=after, limit=limit)
        if not page.events and admin.reading.batch(id) is None:
            _counted(session, id)  # UnknownBatch: nothing that is recorded of it is no answer then
    show_page(page, as_json=as_json)


@command(batch)
@_id
def failures(session: Session, id: str) -> None:
    """The failures of the batch ID as CSV for a spreadsheet: henchman batch failures ID > failures.csv."""
    with history_of(session) as admin:
        if admin.reading.batch(id) is None:
            raise UnknownBatch(f"nothing is recorded of a batch {id!r}")
        _write(as_csv.head())
        after: int | None = 0
        while after is not None:
            page = admin.reading.events(id, FAILURES, after=after, limit=_ROWS)
            _write(as_csv.lines(page.events))
            after = page.after


_file = click.Path(dir_okay=False, writable=True, allow_dash=True)


@command(batch)
@_id
@click.option("--csv", "csv", type=_file, metavar="FILE", help="For a spreadsheet: a column for each name in results.")
@click.option("--jsonl", "jsonl", type=_file, metavar="FILE", help="JSON Lines: one object a row, for programs.")
def results(session: Session, id: str, csv: str | None, jsonl: str | None) -> None:
    """Write what the jobs of the batch ID returned into a file, in the order in which they were pushed.

    FILE appears when it is whole; - is standard output. Jobs that failed, were cancelled or have not ended are rows,
    too, with that as their status. Exit status as henchman batch ID: 0 complete, and every job finished; 4 complete,
    but not all did; 5 not complete yet; 1 there is no such batch, it keeps no results, or an error; 3 no server.
    """
    if (csv is None) == (jsonl is None):
        raise click.UsageError("Say into which file: --csv FILE or --jsonl FILE; - is standard output.")
    found = _counted(session, id)  # before the rows are read: of a complete batch they are final
    name, form = (csv, batch_results.as_csv) if csv is not None else (jsonl, batch_results.as_json_lines)
    with _target(name or "") as write:
        for part in iterate(session.runner, form(session.any_app, id)):
            write(part)
    if name != "-":
        say(f"{name}: {_line(found)}")
    sys.exit(_exit_status(found))


@contextmanager
def _target(name: str) -> Iterator[Callable[[bytes], Any]]:
    """What writes into the file ``name``, under another name until everything is written; ``-``: standard output."""
    if name == "-":
        yield _write
        return
    file = Path(name).resolve()
    if file.exists() and not file.is_file():  # a pipe or a device
        with file.open("wb") as out:
            yield out.write
        return
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as out:
            if file.exists():
                part.chmod(file.stat().st_mode & 0o777)
            yield out.write
        part.replace(file)
    except OSError as error:
        if isinstance(error, HenchmanError):  # the server is away
            raise
        raise click.FileError(name, error.strerror or str(error)) from error
    finally:
        part.unlink(missing_ok=True)


def _write(part: bytes) -> None:
    """Into a file or a pipe as it is; onto a terminal so that it does nothing there."""
    if _at_terminal():
        for line in part.removeprefix(MARK).decode().splitlines():
            say(line)
    else:
        sys.stdout.buffer.write(part)


def _at_terminal() -> bool:
    return sys.stdout.isatty()


@command(batch)
@_id
def close(session: Session, id: str) -> None:
    """Let the batch ID take no more jobs: it is complete when all that it has are settled."""
    session.any_app.get_batch(id).close()
    say(_line(_counted(session, id)))


def _carried_out(session: Session, id: str, act: BatchAct) -> Operation:
    """An operation that others see, and may abort, carried out here."""
    number = begin_on_batch(session.any_app, caller(), id, act)
    while True:
        carry_out(session.any_app, number, CARRIERS)
        one: Operation | None = run(session.runner, operation(session.keys, number))
        if one is not None and one.state == "done":
            return one
        if one is None or not one.works:
            state = "gone" if one is None else f"{one.status}: {one.text}"
            raise HenchmanError(f"operation {number} is {state} (henchman operations show {number})")
        time.sleep(0.2)  # a console was quicker, and does it


@command(batch)
@_id
@why
def pause(session: Session, id: str, reason: str) -> None:
    """Start no job of the batch ID any more, on any worker; what runs goes on."""
    session.any_app.get_batch(id).pause(reason, by=caller())
    say(f"{id} is paused; what runs goes on. Undo: henchman batch unpause {id}")


@command(batch)
@_id
def unpause(session: Session, id: str) -> None:
    """Let the batch ID go on: its jobs that wait go to the ends of their queues."""
    was = _counted(session, id).paused
    session.any_app.get_batch(id).unpause()
    say(f"{id} goes on" if was else f"{id} was not paused")


@command(batch)
@_id
@yes
def cancel(session: Session, id: str, yes: bool) -> None:
    """Let no job of the batch ID start any more; those that run are told."""
    now = _counted(session, id)
    if now.state == "complete":
        say(f"{id} is complete: there is nothing left to cancel")
        return
    confirmed(f"Cancel {count(now.total - now.done, 'job')} of {visible(now.description) or id}?", yes=yes)
    _carried_out(session, id, "cancel")
    say(_line(_counted(session, id)))


@command(batch)
@_id
def retry(session: Session, id: str) -> None:
    """Push the jobs of the batch ID that gave up with an error once more; business failures are answers, and stay."""
    many = 0 if not concerned(session.any_app, id, "retry") else _carried_out(session, id, "retry").done
    say(f"{count(many, 'job')} pushed again" if many else "No job of it has given up: nothing to push again")


@command()
@click.option("--all", "everything", is_flag=True, help="Complete ones too, as long as the server keeps them.")
@click.option("-n", "--most", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
@as_json
def batches(session: Session, everything: bool, most: int, as_json: bool) -> None:
    """Batches that are not complete yet, the newest first."""
    found: list[BatchStatus] = []
    more = False
    for one in _ids(session, everything=everything):
        if len(found) == most:
            more = True
            break
        with suppress(UnknownBatch):  # forgotten since
            found.append(_counted(session, one))
    none = "No batches." if everything else "No batch is under way; complete ones: --all"
    lines = [_table(found) if found else none, *(["There are more: --most"] if more else [])]
    answer({"batches": [_document(one) for one in found], "more": more}, *lines, as_json=as_json)


def _ids(session: Session, *, everything: bool) -> Iterator[str]:
    first = 0
    while ids := session.runner.run(store.newest(session.keys, first, _SLICE)):
        states = session.runner.run(store.states(session.keys, ids))
        yield from (one for one, state in zip(ids, states, strict=True) if everything or state in ("open", "closed"))
        first += _SLICE


def _counted(session: Session, id: str) -> BatchStatus:
    return status_of(id, session.runner.run(store.facts(session.keys, id)))


def _look(session: Session, id: str) -> BatchStatus:
    """As the server counts it; as it is recorded, when the server has forgotten it."""
    try:
        return _counted(session, id)
    except UnknownBatch:
        if session.config.why_history_is_off():
            raise
        with suppress(HistoryError), history_of(session) as admin:
            found = admin.reading.batch(id)
            if found is not None:
                return msgspec.convert(batch_status(found) | {"created": found.created or 0.0}, BatchStatus)
        raise


# ---- views


def _document(found: BatchStatus) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain


class _Shown(NamedTuple):
    """What ``henchman batch ID`` shows: how the batch stands, and its first steps; ``more``: there are others."""

    batch: BatchStatus
    steps: Sequence[StepState] = ()
    more: bool = False

    def document(self) -> dict[str, Any]:
        """For programs."""
        steps = {"steps": msgspec.to_builtins(list(self.steps)), "more_steps": self.more}
        return _document(self.batch) | steps

    def view(self) -> RenderableType:
        """The whole picture."""
        parts: list[RenderableType] = [_view(self.batch)]
        if self.steps:
            parts += [Text(), table(self.steps, _STEP_COLUMNS, wide="waits for")]
        if self.steps and self.more:
            parts.append(Text("There are more steps: --steps", "dim"))
        return Group(*parts)

    def line(self) -> str:
        """The same in one line."""
        return _line(self.batch)

    def is_complete(self) -> bool:
        """Whether there is nothing more to come."""
        return self.batch.state == "complete"


def _waits(one: StepState) -> str:
    """What a step waits for, or why it gave no result."""
    return ", ".join(one.waits_for) or one.message or "–"


_STEP_COLUMNS: dict[str, Callable[[StepState], Any]] = {
    "step!": lambda one: shorten(visible(one.name), _LONG_NAME),
    "status!": lambda one: cell(one.status, COLOURS.get(one.status, "red" if one.status == "over" else "")),
    "result": lambda one: "yes" if one.result else "–",
    "waits for": _waits,
    "job id": lambda one: one.jid,
}


def _view(one: BatchStatus) -> Group:
    """The counts of a batch, and what failed in it."""
    style = "bold yellow" if one.why else _STATES.get(one.state, "")
    title = cell(one.description or "batch", "bold"), "  ", cell(one.id, "dim"), "  ", cell(_state(one), style)
    parts: list[RenderableType] = [Text.assemble(*title)]
    if one.total:
        parts.append(_Bar(one))
    parts += [Text(_progress(one)), _counts(one), *facts(_facts(one))]
    if one.state == "abandoned":
        parts.append(Text("Whoever filled it is gone: henchman batch close ID closes it", "yellow"))
    if one.reasons:
        columns = {
            "jobs>": lambda two: f"{two.count:,}",
            "status!": lambda two: cell(two.status, COLOURS.get(two.status, "")),
            "reason": lambda two: two.reason or "–",
        }
        parts += [Text(), table(one.reasons[:_REASONS], columns, wide="reason")]
    if len(one.reasons) > _REASONS:
        parts.append(Text(f"… and {count(len(one.reasons) - _REASONS, 'more reason')}", "dim"))
    return Group(*parts)


class _Bar:
    """How much is done, as a line of its own (rich's bar leaves the line open); full only when everything is."""

    def __init__(self, one: BatchStatus) -> None:
        self._one = one

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        width, one = min(options.max_width, _BAR), self._one
        bad = width * one.failed // one.total
        good = max(width * one.done // one.total - bad, 0)
        full, empty = ("#", "-") if options.ascii_only else ("━", "─")
        yield Text.assemble((full * good, "green"), (full * bad, "red"), (empty * (width - good - bad), "dim"))


def _line(one: BatchStatus) -> str:
    """The same in one line, for logs and pipes."""
    counts = _counts(one).plain.replace(" · ", ", ")
    return f"{one.id} {_state(one)}: {_progress(one)}" + (f" · {counts}" if counts else "")


def _table(found: Sequence[BatchStatus]) -> Table:
    columns = {
        "batch!": lambda one: one.id,
        "description": lambda one: one.description or "–",
        "state": lambda one: cell(_state(one), _STATES.get(one.state, "")),
        "done>": lambda one: f"{one.done:,} of {one.total:,}",
        "failed>": lambda one: cell(f"{one.failed:,}", "red" if one.failed else ""),
        "made": lambda one: ago(one.created),
    }
    return table(found, columns, wide="description")


def _state(one: BatchStatus) -> str:
    return ", ".join(filter(None, (one.state, one.why, "paused" if one.paused else "")))


def _progress(one: BatchStatus) -> str:
    percent = f"{int(one.percent * 10) / 10:g} %"  # never 100 while one is missing
    rate = [f"{one.rate:,.1f} jobs/s"] if one.rate else []
    left = [f"{duration(one.eta)} left"] if one.eta is not None and one.done < one.total else []
    return " · ".join([percent, f"{one.done:,} of {one.total:,}", *rate, *left])


def _counts(one: BatchStatus) -> Text:
    line = Text()
    for status, many in one.counts.items():
        if many:
            line.append(" · " if line else "").append(f"{many:,} {status}", COLOURS.get(status, ""))
    return line


def _facts(one: BatchStatus) -> list[tuple[str, object]]:
    bad = f", {one.bad_children:,} of them did not end well" if one.bad_children else ""
    return [
        *((name, moment(at)) for name, at in (("made", one.created), ("completed", one.completed)) if at),
        ("paused", one.paused and (moment(one.paused.at) if one.paused.at else "yes") + who_paused(one.paused)),
        ("expires", moment(one.expires) if one.expires else ""),
        ("tags", ", ".join(one.tags)),
        ("parent", one.parent),
        ("children", f"{one.children:,}{bad}" if one.children else ""),
        ("generation", f"{one.generation:,}" if one.generation > 1 else ""),
        ("called", ", ".join(f"on_{which}" for which in one.called)),
    ]
