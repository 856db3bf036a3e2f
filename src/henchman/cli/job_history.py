"""What history tells of one job: how it stands there, its runs, its life and what it said, in order."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import click
from rich.text import Text

from henchman.cli.db import desk_of
from henchman.cli.history import COLOURS
from henchman.cli.session import Session
from henchman.cli.table import cell
from henchman.cli.text import console, count, duration, moment
from henchman.errors import HistoryError
from henchman.history.records import Event, Job
from henchman.kernel.text import shorten, visible
from henchman.wire import times

__all__ = ["recorded_job", "show_recorded"]

_LIFE = 1000  # changes, runs and messages, each
_LONG = 1000  # characters of one value


def recorded_job(session: Session, jid: str) -> Job | None:
    """The job as history has it; None when it has nothing, or there is none. What is wrong is said beside."""
    if session.config.why_history_is_off():
        return None
    try:
        with desk_of(session.config) as desk:
            found: Job | None = desk.reading.job(jid, most=_LIFE)
    except HistoryError as error:
        click.echo(f"Note: {visible(str(error))}", err=True)
        return None
    return found


def show_recorded(found: Job) -> None:
    """What happened to it, line by line."""
    out = console()
    one = found.event
    title = cell(one.status or "known", COLOURS.get(one.status, "bold"))
    out.print(Text.assemble(title, "  in history"), soft_wrap=True)
    for name, value in _facts(one):
        out.print(Text.assemble((f"{name:<11}", "dim"), visible(shorten(value, _LONG))), soft_wrap=True)
    for line in one.traceback:
        out.print(Text(f"  {visible(line)}", "dim"), soft_wrap=True)
    for _, at, words in sorted(_life(found)):
        out.print(
            Text.assemble((f"  {times.iso(at) or '–':<26}", "dim"), visible(shorten(words, _LONG))), soft_wrap=True
        )
    if max(len(found.changes), len(found.messages)) == _LIFE:
        out.print(Text(f"  … only the first {_LIFE:,} of each kind are shown", "dim"))


def _facts(one: Event) -> Iterator[tuple[str, str]]:
    now = time.time()
    ran = one.ended_at - one.started_at if one.ended_at and one.started_at else None
    error = ": ".join(part for part in (one.error_class, one.message) if part)
    progress = f"{one.progress_done:g} of {one.progress_total or 0:g}" if one.progress_done is not None else ""
    arguments = {"args": one.args, **({"kwargs": one.kwargs} if one.kwargs else {})}
    facts = [
        ("job id", one.jid),
        ("class", one.class_),
        ("queue", one.queue),
        ("batch", one.batch or ""),
        ("arguments", "" if one.args is None else ", ".join(map(_json, arguments.values()))),
        ("tags", ", ".join(map(str, one.tags))),
        ("runs", count(one.attempts, "run") if one.attempts else ""),
        ("enqueued", moment(one.enqueued_at, now) if one.enqueued_at else ""),
        ("started", moment(one.started_at, now) if one.started_at else ""),
        ("ended", moment(one.ended_at, now) if one.ended_at else ""),
        ("ran for", duration(ran) if ran is not None else ""),
        ("process", one.process or ""),
        ("progress", progress),
        ("result", "" if one.result is None else _json(one.result)),
        ("error", error),
    ]
    return ((name, value) for name, value in facts if value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _life(found: Job) -> Iterator[tuple[int, float, str]]:
    """(position, time, words) of every change and message."""
    for change in found.changes:
        run = f", run {change.attempt}" if change.attempt else ""
        where = f" on {change.process}" if change.process else ""
        ending = change.detail.get("ending")
        how = f" ({ending})" if isinstance(ending, str) and ending != change.status else ""
        yield change.position, change.at, f"{change.status}{how}{run}{where}"
    for message in found.messages:
        yield message.position, message.at, f"said: {message.text}"
