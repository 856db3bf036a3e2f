"""``henchman job``, ``why``, ``enqueue``, ``cancel``: one job at a time. ``henchman cron``: periodic jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import click
from rich.text import Text

from henchman.cli.history import COLOURS, history_of
from henchman.cli.outbox import outbox_of
from henchman.cli.session import JID, PREFIX, SEVERAL, Session, as_json, caller, command, group, the_one
from henchman.cli.session import why as reason_option
from henchman.cli.show import ago, answer, cell, complain, count, duration, facts, moment, say
from henchman.cron.registry import CronState, set_paused, states
from henchman.cron.timing import zone
from henchman.errors import HistoryError, UnknownCron
from henchman.history.records import Event, JobRecord
from henchman.inspector.base import Entry, argument_text
from henchman.inspector.blocked import blocked_rows
from henchman.inspector.jobs import MOST, JobStatus, find_job, told_by
from henchman.inspector.obstacles import Explanation, explained, obstacles
from henchman.inspector.pauses import pause_json
from henchman.kernel.text import did_you_mean, seconds_text, shorten, visible
from henchman.outbox import load
from henchman.store import call
from henchman.store import jobs as store
from henchman.store.fair import all_names
from henchman.store.queues import list_page
from henchman.wire import times

__all__ = ["cancel", "cron", "enqueue", "job", "job_id", "recorded_in", "whole_id", "why"]

_LIFE = 1000  # changes, runs and messages of a job, each
_QUEUES, _WAITING = 100, 1000  # how many queues, and jobs of each, are looked through for the beginning of an id
_LONG = 1000  # characters of one line
_STATES = {"dead": "red", "retrying": "yellow", "working": "green", "finished": "green", "error": "red"}
_CRON_STATES = {"active": "green", "paused": "yellow", "retired": "dim", "unreadable": "red"}


def job_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A job's id: text that can be stored as such."""
    text = value.strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{text!a} is no job id: it is not UTF-8") from None
    if not 0 < len(text) <= 1000 or not text.isprintable():
        raise click.BadParameter("a job id has 1 to 1000 printable characters, most often 24")
    return text


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    """A time with its zone."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{visible(value)[:40]} is no time; give 2026-11-22T09:00:00+01:00, or …Z") from None
    if found.tzinfo is None:
        raise click.BadParameter(f"{visible(value)[:40]} says no zone; give {value}+01:00, or {value}Z for UTC")
    return found


def whole_id(session: Session, text: str) -> str:
    """The id of the one job whose id begins with ``text``: it runs, failed, died, is scheduled, is blocked, or is among
    the next of a queue; else ``text`` itself."""
    if not PREFIX <= len(text) < JID:
        return text
    app, found, text_of_it = session.any_app, set[str](), f'"jid":"{text}'
    for held in (app.retries, app.scheduled, app.dead):
        found.update(one.jid for one in islice(held.matching(text_of_it), SEVERAL))
    found.update(one.entry.jid for one in app.work)
    parked = islice(call.iterate(session.runner, blocked_rows(session.keys)), _WAITING)
    found.update(one.jid for one in parked if one.jid.startswith(text))
    for name in call.run(session.runner, all_names(session.keys))[:_QUEUES]:
        page = session.runner.run(list_page(session.keys.queue(name), -1, _WAITING, leftwards=True, text=text_of_it))
        found.update(Entry(one).jid for one in page.payloads)
    return the_one(text, found) or text


# ---- one job


@command()
@click.argument("jid", callback=job_id)
@click.option("--queue", metavar="NAME", help="Where to look first.")
@click.option("--most", type=click.IntRange(1), default=MOST, show_default=True, help="Entries to look at, at most.")
@as_json
def job(session: Session, jid: str, queue: str | None, most: int, as_json: bool) -> None:
    """Where the job JID is, and what is known of it, also in history. Exit status 1: nobody knows it.

    Of an id that no other job's begins with, the first characters are enough.
    """
    jid = whole_id(session, jid)
    status = call.run(session.runner, find_job(session.keys, jid, queue, most, session.mask))
    found = recorded_in(session, jid)
    lines: list[Text | str] = []
    if found is None or status.state != "unknown":
        lines += _status_lines(status, session)
    if found is not None:
        lines += _recorded_lines(found)
        status = told_by(status, found.event)
    elif not status.complete:
        lines.append("To look further: --queue NAME, or a greater --most")
    history = None if found is None else found.to_json()
    answer(status.to_json() | {"history": history}, *lines, as_json=as_json)
    if status.state == "unknown" and found is None:
        sys.exit(1)


@command()
@click.argument("jid", callback=job_id)
@as_json
def why(session: Session, jid: str, as_json: bool) -> None:
    """Why the job JID does not run, in a sentence: where it waits, and for what; and the command that would change it.

    Exit status 1: nobody knows it.

    Of an id that no other job's begins with, the first characters are enough.
    """
    jid = whole_id(session, jid)
    status = session.any_app.job_status(jid)
    found = _unpushed(session, status) or call.run(
        session.runner, explained(session.keys, status, session.config.max_retries, session.mask)
    )
    lacks = [one for one in call.run(session.runner, obstacles(session.keys, status)) if one.is_pause]
    told = {"jid": jid, "state": status.state, "text": found.text, "command": found.command or None}
    told["paused"] = lacks[0].text if lacks else None
    lines = [f"→ {found.command}"] if found.command and found.command not in found.text else []
    lines += [f"{one.text}. It goes on with: {one.advice}" for one in lacks if status.state != "enqueued"]
    answer(told, f"{jid}: {found.text}", *lines, as_json=as_json)
    if status.state == "unknown" and not found.command:
        sys.exit(1)


def _unpushed(session: Session, status: JobStatus) -> Explanation | None:
    """Of a job that the server has nothing of, and that stands in the outbox."""
    if status.state != "unknown" or not session.config.outbox:
        return None
    with outbox_of(session) as database:
        found = load("status").why_not_pushed(database, session.runner, session.keys, status.jid)
    return None if found is None else Explanation(*found)


def _status_lines(status: JobStatus, session: Session) -> Iterator[Text]:
    yield Text.assemble(cell(status.state, _STATES.get(status.state, "bold")), "  ", cell(status.text))
    entry = status.entry
    if entry is None:
        return
    moments = {
        "due": status.at if status.state in ("scheduled", "retrying") else None,
        "died": status.at if status.state == "dead" else None,
        "created": status.created_at,
        "enqueued": status.enqueued_at,
        "started": status.started_at,
        "failed": status.failed_at,
        "deadline": entry.deadline,
    }
    known = [
        ("job id", status.jid),
        ("class", _class(session, status.name)),
        ("queue", status.queue),
        ("arguments", argument_text(list(status.args), status.kwargs, _LONG) or "none"),
        ("tags", ", ".join(entry.tags)),
        ("process", status.process),
        ("failures", status.attempts or None),
        *((name, moment(at)) for name, at in moments.items() if at is not None),
        ("error", ": ".join(status.error) if status.error else None),
        ("cause", entry.cause if entry.cause != "error" else None),
        ("unusable", entry.problem),
    ]
    yield from facts(known)
    yield from (Text(f"  {visible(line)}", "dim") for line in entry.backtrace)


def _class(session: Session, name: str | None) -> str:
    """A class as people see it: of a job that bears an alias also the job that it runs as."""
    known = None if session.app is None or name is None else session.app.registry.find(name)
    return f"{name}, runs as {known.name}" if known is not None and known.name != name else name or ""


def recorded_in(session: Session, jid: str) -> JobRecord | None:
    """The job as history has it; None when it has nothing, or there is none. What is wrong goes to standard error."""
    if session.config.why_history_is_off():
        return None
    try:
        with history_of(session) as admin:
            found: JobRecord | None = admin.reading.job(jid, most=_LIFE)
    except HistoryError as error:
        complain(f"Note: {error}")
        return None
    return found


def _recorded_lines(found: JobRecord) -> Iterator[Text]:
    """How the job stands in history, then its life."""
    one = found.event
    yield Text.assemble(cell(one.status or "known", COLOURS.get(one.status, "bold")), "  in history")
    yield from facts(_event_facts(one))
    yield from (Text(f"  {visible(line)}", "dim") for line in one.traceback)
    for _, at, words in sorted(_life(found)):
        yield Text.assemble((f"  {times.iso(at) or '–':<26}", "dim"), visible(shorten(words, _LONG)))
    if max(len(found.changes), len(found.messages)) == _LIFE:
        yield Text(f"  … only the first {_LIFE:,} of each kind are shown", "dim")


def _event_facts(one: Event) -> list[tuple[str, object]]:
    arguments = [] if one.args is None else [one.args, *([one.kwargs] if one.kwargs else [])]
    return [
        ("job id", one.jid),
        ("class", one.class_),
        ("queue", one.queue),
        ("batch", one.batch),
        ("arguments", ", ".join(map(_json, arguments))),
        ("tags", ", ".join(map(str, one.tags))),
        ("runs", count(one.attempts, "run") if one.attempts else ""),
        ("enqueued", moment(one.enqueued_at) if one.enqueued_at else ""),
        ("started", moment(one.started_at) if one.started_at else ""),
        ("ended", moment(one.ended_at) if one.ended_at else ""),
        ("ran for", duration(one.ended_at - one.started_at) if one.ended_at and one.started_at else ""),
        ("process", one.process),
        ("progress", "" if one.progress_done is None else f"{one.progress_done:g} of {one.progress_total or 0:g}"),
        ("result", "" if one.result is None else _json(one.result)),
        ("error", ": ".join(part for part in (one.error_class, one.message) if part)),
        ("cause", one.cause if one.cause != "error" else None),
    ]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _life(found: JobRecord) -> Iterator[tuple[int, float, str]]:
    """(position, time, words) of every change and message."""
    for change in found.changes:
        run = f", run {change.attempt}" if change.attempt else ""
        where = f" on {change.process}" if change.process else ""
        ending = change.detail.get("ending")
        how = f" ({ending})" if isinstance(ending, str) and ending != change.status else ""
        how += f", {change.detail['cause']}" if change.detail.get("cause") not in (None, "error") else ""
        yield change.position, change.at, f"{change.status}{how}{run}{where}"
    for message in found.messages:
        yield message.position, message.at, f"said: {message.text}"


@command()
@click.argument("name")
@click.argument("arguments", metavar="[JSON-ARGS]", default="[]")
@click.option("-q", "--queue", metavar="NAME", help="Another queue than its own (or default).")
@click.option("--kwargs", metavar="JSON", default="{}", help='Keyword arguments, a JSON object: \'{"lang": "de"}\'.')
@click.option("--delay", type=click.FloatRange(0), metavar="SECONDS", help="Start it so much later.")
@click.option("--at", callback=_moment, metavar="TIME", help="Start it then: 2026-11-22T09:00:00+01:00, or …Z.")
@as_json
def enqueue(session: Session, name: str, arguments: str, kwargs: str, as_json: bool, **given: Any) -> None:
    """Push the job NAME with the arguments JSON-ARGS, a JSON list: henchman enqueue mail.send '[42, "de"]'."""
    if given["delay"] is not None and given["at"] is not None:
        raise click.UsageError("Say --delay or --at, not both.")
    args: tuple[Any, ...] = tuple(_arguments(arguments, list, "a list, such as '[42, \"de\"]'"))
    named = _arguments(kwargs, dict, 'an object, such as \'{"lang": "de"}\'')
    registry = session.known_app.registry
    known = registry.find(name)
    if known is not None:
        args, rest = known.signature.binding.bind(args, named)
        named = rest or {}
        known.signature.decode(list(args), named)  # says what does not fit, here and not in the worker
    elif session.app is not None:
        names = [one.name for one in registry]
        same = [one for one in names if one.endswith(f".{name}")]
        near = f"; did you mean {same[0]!r}?" if same else did_you_mean(name, names)
        complain(f"Note: {name} is not one of this app's jobs, and pushed all the same{near}")
    handle = session.known_app.client.by_name(name, args, given, named)
    shown = handle.jid if handle.admission == "created" else f"{handle.jid} ({handle.admission})"
    answer(_pushed(handle), shown, as_json=as_json)


def _arguments(text: str, kind: type, due: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"this is not JSON ({error}); give {due}") from None
    if not isinstance(found, kind):
        raise click.BadParameter(f"{visible(text)[:40]}: give {due}")
    return found


def _pushed(handle: Any) -> dict[str, Any]:
    return {"jid": handle.jid, "queue": handle.queue, "admission": handle.admission}


@command()
@click.argument("jid", callback=job_id)
def cancel(session: Session, jid: str) -> None:
    """Cancel the job JID: if it waits it never starts; if it runs it is told."""
    jid = whole_id(session, jid)
    session.runner.run(store.cancel(session.keys, jid))
    status = call.run(session.runner, find_job(session.keys, jid, mask=session.mask))
    if status.state == "dead":
        say(f"{jid} is {status.text}; henchman dead delete {jid}")
    else:
        say(f"{jid}: {status.text}")


# ---- periodic jobs


@group()
@as_json
def cron(session: Session, as_json: bool) -> None:
    """Periodic jobs: when they come next, when they came last; run one now, pause, resume."""
    _list_crons(session, (), as_json=as_json)


@command(cron, "list")
@click.argument("name", nargs=-1)
@as_json
def listing(session: Session, name: tuple[str, ...], as_json: bool) -> None:
    """Every periodic job, or those that are NAMEd, with the next and the last five times."""
    _list_crons(session, name, as_json=as_json)


def _list_crons(session: Session, names: tuple[str, ...], *, as_json: bool) -> None:
    found = call.run(session.runner, states(session.keys))
    shown = [one for one in found if not names or one.name in names]
    for missing in sorted(set(names) - {one.name for one in found}):
        raise UnknownCron(f"there is no cron {missing!r}{did_you_mean(missing, [one.name for one in found])}")
    lines: list[Text | str] = [line for one in shown for line in _cron_lines(one)]
    none = "No periodic jobs. One from code (@app.cron) is there once a worker that declares it has started."
    answer({"crons": [_cron_document(one) for one in shown]}, *(lines or [none]), as_json=as_json)


@command(cron)
@click.argument("name")
@as_json
def run(session: Session, name: str, as_json: bool) -> None:
    """Enqueue the job of NAME now, beside its planned times."""
    handle = session.known_app.crons.run(name)
    shown = handle.jid if handle.admission == "created" else "stopped by a client middleware"
    answer(_pushed(handle), shown, as_json=as_json)


@command(cron)
@click.argument("name")
@reason_option
def pause(session: Session, name: str, reason: str) -> None:
    """Enqueue nothing for NAME any more."""
    done = call.run(session.runner, set_paused(session.keys, name, "pause", reason, caller()))
    say(f"{name} is paused. Undo: henchman cron resume {name}" if done else f"{name} was paused already")


@command(cron)
@click.argument("name")
def resume(session: Session, name: str) -> None:
    """Let NAME go on from now; what was planned meanwhile is left out."""
    done = call.run(session.runner, set_paused(session.keys, name, "resume"))
    say(f"{name} goes on" if done else f"{name} was not paused")


def _cron_document(one: CronState) -> dict[str, Any]:
    """A cron as JSON: times as ISO 8601 in UTC."""
    last = [
        past._asdict()
        | {
            "planned": times.iso(past.planned),
            "enqueued": times.iso(past.enqueued),
            "ending": past.ending or None,
            "ended": None if past.ended is None else times.iso(past.ended),
        }
        for past in one.last
    ]
    running, skipped = one.running, one.skipped
    return one._asdict() | {
        "words": one.words or None,
        "pause": one.pause and pause_json(one.pause),
        "next": [times.iso(at) for at in one.next],
        "last": last,
        "problem": one.problem or None,
        "running": running and {"since": times.iso(running.since), "jid": running.jid},
        "skipped": skipped and skipped._asdict() | {"planned": times.iso(skipped.planned), "at": times.iso(skipped.at)},
    }


def _cron_lines(one: CronState) -> Iterator[Text]:
    when = one.expression if one.every is None else f"every {seconds_text(one.every)}"
    overlap = f", overlap: skip (at most {seconds_text(one.overlap_for or 0)})" if one.overlap == "skip" else ""
    words = f"{one.job} on {one.queue}, missed: {one.missed}{overlap}"
    yield Text.assemble(
        cell(one.name, "bold"),
        *("  ", cell(when or ""), "  ", cell(one.tz or "UTC"), "  ", cell(one.state, _CRON_STATES[one.state])),
        *("  ", cell(one.problem or words, "dim")),
    )
    for title, text in _cron_facts(one):
        yield Text.assemble((f"  {title}  ", "dim"), visible(text))


def _cron_facts(one: CronState) -> Iterator[tuple[str, str]]:
    if one.every is None and one.words:
        yield "when", one.words
    yield "next", _dated(one.next, one.tz) + (f" ({ago(one.next[0])})" if one.next else "–")
    past = [tick.planned for tick in one.last]
    yield "last", _dated(past, one.tz) + (f" ({ago(past[0])})" if past else "–")
    if any(tick.ending for tick in one.last):
        yield "ended", ", ".join(f"{many} {how or 'without an end'}" for how, many in one.endings().items())
    if one.running is not None:
        yield "not ended", f"{one.running.jid}, enqueued {ago(one.running.since)}: ticks are passed over"
    if (tick := one.skipped) is not None:
        latest = f"{_dated([tick.planned], one.tz)} ({ago(tick.planned)})"
        yield "skipped", f"{count(tick.ticks, 'tick')}, the last {latest}: {tick.jid} had not ended"


def _dated(moments: Iterable[float], tz: str | None) -> str:
    """Times of day in the cron's zone; the date where it is another than before."""
    parts, day = [], ""
    for at in moments:
        when = datetime.fromtimestamp(at, zone(tz or "UTC"))
        date, clock = f"{when:%a %Y-%m-%d}", f"{when:%H:%M:%S}" + (f".{when:%f}"[:3] if at % 1 else "")
        parts.append(clock if date == day else f"{date} {clock}")
        day = date
    return " · ".join(parts)
