"""Reading history: a batch, its events page by page, what changed since, one job with its whole life, a search.

Pages go by position, not by number: they stay right while jobs go on. Nothing that can be large is read at once.
Every method exists in an ``a…`` form that is awaited; it works in a thread. HistoryAway when the database is away,
HistoryError when history is off or the tables are not those of this release.
"""

from __future__ import annotations

import json
from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Integer, Select, cast, func, select

from henchman.config import Config
from henchman.errors import ArgumentError, HistoryAway, HistoryError
from henchman.history.conditions import checked_statuses, conditions, fits, is_checked, statuses_of
from henchman.history.database import Database
from henchman.history.records import (
    FAILURES,
    MOST,
    OF_BATCH,
    BatchRecord,
    Change,
    Changes,
    DayRecord,
    Event,
    EventPage,
    JobRecord,
    LiveMessages,
    Message,
    RunRecord,
    Search,
)
from henchman.history.schema import batches, changes, events, messages, runs
from henchman.history.stream import host_of
from henchman.wire import jsontext, times

__all__ = ["History"]

_RUNNING = 100  # running jobs of which messages, or progress, are looked for
_LATELY = 5000  # jobs that ended last, of which those of one process are looked for
_STEP = 1000  # events that an iteration reads at once
_CHECKED = 200  # events that are read at once to be looked through
DAY, DAYS = 86400, 180  # seconds of a day, and days that are looked back
P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[History, P], T],
) -> Callable[Concatenate[History, P], Coroutine[Any, Any, T]]:
    """The awaited form of a method: it works in a thread."""

    @wraps(method)
    async def run(self: History, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await to_thread(method, self, *args, **kwargs)

    run.__name__, run.__doc__ = f"a{method.__name__}", f"``{method.__name__}``, awaited."
    run.__qualname__ = f"History.{run.__name__}"
    return run


class History:
    """The record in one database. ``close`` it after use."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._fits = False

    @classmethod
    def open(cls, config: Config) -> History:
        """The history of these settings; HistoryError says why there is none, and how to turn it on."""
        address = config.history_url()
        if address is None:
            raise HistoryError(config.why_history_is_off())
        return cls(Database(address))

    def close(self) -> None:
        """Close idle connections."""
        self.database.close()

    def batch(self, batch: str) -> BatchRecord | None:
        """The record of a batch; None when there is none. Its events are counted only where it is not complete: half
        a million take their time, and the server has counted them."""
        count = select(events.c.status, func.count()).where(events.c.batch == batch).group_by(events.c.status)
        with self._connection() as connection:
            row = connection.execute(select(batches).where(batches.c.id == batch)).first()
            counts = _counts(row)
            if not counts:
                counts = {status or "": many for status, many in connection.execute(count)}
        return None if row is None and not counts else _batch(batch, row, counts)

    def events(
        self, batch: str, status: str | Sequence[str] | None = None, *, after: int | None = None, limit: int = 100
    ) -> EventPage:
        """Events of a batch in the order in which they were enqueued, of one or some statuses; ``after`` the page's."""
        limit = _limit(limit)
        wanted = None if status is None else checked_statuses(status)
        query = select(events).where(events.c.batch == batch).order_by(events.c.born).limit(limit + 1)
        if after is not None:
            query = query.where(events.c.born > after)
        with self._connection() as connection:
            found = _walk(connection, query, batch, wanted)
        return _page(sorted(found, key=lambda row: row.born), limit)

    def running_messages(self, batch: str, *, limit: int = 30) -> LiveMessages:
        """What jobs of a batch that run now say: their latest messages, the newest first, and how far they are."""
        limit = _limit(limit)
        query = select(events).where(events.c.batch == batch).order_by(events.c.born).limit(_RUNNING)
        with self._connection() as connection:
            working = [_event(row) for row in _walk(connection, query, batch, ["working"])]
            said = select(messages).where(messages.c.jid.in_([one.jid for one in working]))
            found = connection.execute(said.order_by(messages.c.sid.desc()).limit(limit)) if working else ()
            told = [_message(row) for row in found]
        return LiveMessages(messages=told, progress=[one for one in working if one.progress_total])

    def job_messages(self, jid: str, *, limit: int = 30) -> LiveMessages:
        """What one job said: its latest messages, the newest first, and how far it is."""
        said = select(messages).where(messages.c.jid == jid).order_by(messages.c.sid.desc()).limit(_limit(limit))
        with self._connection() as connection:
            found = [_event(row) for row in connection.execute(select(events).where(events.c.jid == jid))]
            told = [_message(row) for row in connection.execute(said)] if found else []
        return LiveMessages(messages=told, progress=[one for one in found if one.progress_total])

    def progress(self, jids: Sequence[str]) -> dict[str, Event]:
        """How far these jobs are, by jid: those that tell it."""
        query = select(events).where(events.c.jid.in_(jids[:_RUNNING]), events.c.progress_total > 0)
        with self._connection() as connection:
            return {row.jid: _event(row) for row in connection.execute(query)} if jids else {}

    def failures(self, batch: str) -> Iterator[Event]:
        """Every event of a batch that failed or ended with an error, read bit by bit."""
        after: int | None = 0
        while after is not None:
            page = self.events(batch, FAILURES, after=after, limit=_STEP)
            yield from page.events
            after = page.after

    def changed_since(self, batch: str, position: int, *, limit: int = 1000) -> Changes:
        """The events that changed behind ``position`` (0: all), and the position to ask from next."""
        limit = _limit(limit)
        query = (
            select(events)
            .where(events.c.batch == batch, events.c.changed > position)
            .order_by(events.c.changed)
            .limit(limit + 1)
        )
        with self._connection() as connection:
            found = [_event(row) for row in connection.execute(query)]
        shown = found[:limit]
        return Changes(events=shown, position=shown[-1].changed if shown else position, more=len(found) > limit)

    def latest(self, batch: str) -> int:
        """The position of the latest change of a batch's events, to ask ``changed_since`` from; 0: there are none."""
        query = select(func.max(events.c.changed)).where(events.c.batch == batch)
        with self._connection() as connection:
            return connection.execute(query).scalar() or 0

    def job(self, jid: str, *, most: int = MOST) -> JobRecord | None:
        """One job and its life: at most ``most`` changes, runs and messages each; None when nothing is recorded."""
        most = _limit(most)
        with self._connection() as connection:
            event = connection.execute(select(events).where(events.c.jid == jid)).first()
            if event is None:
                return None
            found = [
                connection.execute(select(table).where(table.c.jid == jid).order_by(key).limit(most)).all()
                for table, key in ((changes, changes.c.sid), (runs, runs.c.run), (messages, messages.c.sid))
            ]
        return JobRecord(
            event=_event(event),
            changes=[_change(row) for row in found[0]],
            runs=[_run(row) for row in found[1]],
            messages=[_message(row) for row in found[2]],
        )

    def find(self, search: Search, *, after: int | None = None, limit: int = 100) -> EventPage:
        """The events that fit, the latest first; ``after`` the page's, for older ones. What the database cannot tell,
        such as an argument by its name, is looked for in ten thousand events a page: it may hold fewer than fit."""
        limit = _limit(limit)
        if not is_checked(search):
            return self._found(search, after, limit)
        fitting, looked = list[Event](), 0
        while len(fitting) <= limit and looked < MOST:
            page = self._found(search, after, _CHECKED)
            fitting += [one for one in page.events if fits(search, one)]
            looked, after = looked + len(page.events), page.after
            if after is None:
                break
        shown = fitting[:limit]
        return EventPage(events=shown, after=shown[-1].seq if len(fitting) > limit else after)

    def _found(self, search: Search, after: int | None, limit: int) -> EventPage:
        query = select(events).where(*conditions(search)).order_by(events.c.born.desc()).limit(limit + 1)
        if after is not None:
            query = query.where(events.c.born < after)
        wanted = statuses_of(search)
        with self._connection() as connection:
            if search.batch is None and search.class_ is not None:
                return _page(connection.execute(query).all(), limit)
            found = _walk(connection, query, search.batch, wanted)
        return _page(sorted(found, key=lambda row: row.born, reverse=True), limit)

    def day(
        self,
        day: str,
        *,
        status: str | Sequence[str] | None = None,
        name: str = "",
        first: int = 0,
        limit: int = 100,
    ) -> DayRecord:
        """What ended on ``day`` (``2026-11-21``, in UTC), and its jobs, the latest first, from place ``first`` on;
        ``status`` and ``name`` (a class): of these alone."""
        ended = _ended_on(day, status, name)
        counted = select(events.c["class"], events.c.status, func.count()).where(*ended)
        latest = select(events).where(*ended).order_by(events.c.ended_at.desc()).offset(first).limit(_limit(limit))
        counts: dict[str, dict[str, int]] = {}
        with self._connection() as connection:
            for known, state, many in connection.execute(counted.group_by(events.c["class"], events.c.status)):
                counts.setdefault(known or "", {})[state or ""] = many
            jobs = [_event(row) for row in connection.execute(latest)]
        return DayRecord(times.day(times.first_of_day(day)), counts, jobs)

    def ended_on(
        self, day: str, *, status: str | Sequence[str] | None = None, name: str = "", most: int = MOST
    ) -> Iterator[list[Event]]:
        """The jobs of ``day``, the latest first, at most ``most``, read bit by bit."""
        query = select(events).where(*_ended_on(day, status, name)).order_by(events.c.ended_at.desc())
        at, given = None, set[int]()  # the moment that the last part ended with, and those of it that were given
        while most > 0:
            part = query if at is None else query.where(events.c.ended_at <= at)
            with self._connection() as connection:
                found = [_event(row) for row in connection.execute(part.limit(min(most, _STEP) + len(given)))]
            fresh = [one for one in found if one.seq not in given]
            if not fresh:
                return
            yield fresh
            at, most = fresh[-1].ended_at, most - len(fresh)
            given = {one.seq for one in found if one.ended_at == at}

    def days(self, until: str, *, most: int = DAYS) -> dict[str, dict[str, int]]:
        """How many jobs ended on each of the last days up to ``until``, by status; days without any are left out."""
        end = times.first_of_day(until) + DAY
        number = cast(func.floor(events.c.ended_at / DAY), Integer)
        query = select(number, events.c.status, func.count()).where(
            events.c.ended_at >= end - min(most, DAYS) * DAY, events.c.ended_at < end
        )
        found: dict[str, dict[str, int]] = {}
        with self._connection() as connection:
            rows = connection.execute(query.group_by(number, events.c.status)).all()
        for day, status, many in sorted(rows, key=lambda row: row[0], reverse=True):
            found.setdefault(times.day(day * DAY), {})[status or ""] = many
        return found

    def longest_on(self, process: str, since: float, *, most: int = 80) -> list[Event]:
        """Of the jobs that ended last on a process, and after ``since`` (Unix seconds), those whose last runs took
        longest, the longest first. The last 5,000 jobs that ended anywhere are looked at."""
        ended = select(events).where(events.c.ended_at >= since).order_by(events.c.ended_at.desc()).limit(_LATELY)
        lately = ended.subquery()
        there = select(lately).where(lately.c.process == process, lately.c.started_at.is_not(None))
        longest = there.order_by((lately.c.ended_at - lately.c.started_at).desc()).limit(_limit(most))
        with self._connection() as connection:
            return [_event(row) for row in connection.execute(longest)]

    def sizes(self) -> dict[str, int]:
        """Rows of each table; on a large database this takes its time."""
        tables = {"batches": batches, "events": events, "runs": runs, "changes": changes, "messages": messages}
        with self._connection() as connection:
            return {
                name: connection.execute(select(func.count()).select_from(table)).scalar() or 0
                for name, table in tables.items()
            }

    def _connection(self) -> Any:
        if not self._fits:
            version = self.database.version()
            if version.found and not version.fits:
                raise HistoryError(
                    f"{self.database.shown} has schema {version.found}, this release reads {version.needed}: "
                    "henchman db upgrade, or install the same release everywhere"
                )
            if not version.found and self.database.file is None:
                raise HistoryError(f"{self.database.shown} has no tables of Henchman yet: henchman db upgrade")
            if not version.found:
                raise HistoryAway(f"there is no history yet: {self.database.shown} gets its tables from a worker")
            self._fits = True
        return self.database.reading()

    abatch, aevents, achanged_since = _awaited(batch), _awaited(events), _awaited(changed_since)
    ajob, afind, arunning_messages = _awaited(job), _awaited(find), _awaited(running_messages)
    ajob_messages, aprogress = _awaited(job_messages), _awaited(progress)
    aday, adays = _awaited(day), _awaited(days)

    async def afailures(self, batch: str) -> AsyncIterator[Event]:
        """``failures``, awaited."""
        after: int | None = 0
        while after is not None:
            page = await self.aevents(batch, FAILURES, after=after, limit=_STEP)
            for event in page.events:
                yield event
            after = page.after


def _walk(connection: Connection, query: Select[Any], batch: str | None, statuses: Sequence[str] | None) -> list[Any]:
    """The rows of ``query`` for each status: each is a walk along the index of (batch,) status and birth; all together
    would be read whole, to be sorted."""
    wanted = [events.c.status == one for one in (_present(connection, batch) if statuses is None else statuses)]
    if statuses is None:
        wanted.append(events.c.status.is_(None))
    return [row for one in wanted for row in connection.execute(query.where(one))]


def _present(connection: Connection, batch: str | None) -> Iterator[str]:
    """The statuses that there are, in a batch or in all: one look at the index for each."""
    query = select(func.min(events.c.status)).where(*([] if batch is None else [events.c.batch == batch]))
    found = connection.execute(query).scalar()
    while found is not None:
        yield found
        found = connection.execute(query.where(events.c.status > found)).scalar()


def _page(rows: Sequence[Any], limit: int) -> EventPage:
    shown = [_event(row) for row in rows[:limit]]
    return EventPage(events=shown, after=shown[-1].seq if len(rows) > limit else None)


def _limit(limit: int) -> int:
    if not 1 <= limit <= MOST:
        raise ArgumentError(f"limit = {limit!r}: from 1 to {MOST:,}")
    return limit


def _ended_on(day: str, status: str | Sequence[str] | None, name: str) -> list[ColumnElement[bool]]:
    first = times.first_of_day(day)
    ended = [events.c.ended_at >= first, events.c.ended_at < first + DAY]
    if status is not None:
        ended.append(events.c.status.in_(checked_statuses(status)))
    if name:
        ended.append(events.c["class"] == name)
    return ended


# --- rows as records: JSON decoded, values that were taken away shown as nothing --------------------------------------


def _json(text: str | None, kind: type) -> Any:
    """The value of JSON text; None when it is absent, unreadable or of another kind."""
    value = None
    try:
        value = jsontext.loads(text) if text else None  # type: ignore[arg-type]
    except (msgspec.MsgspecError, ValueError):
        with suppress(ValueError, RecursionError):
            value = json.loads(text or "")  # numbers that are too large for a quick reader
    return value if isinstance(value, kind) else None


def _event(row: Any) -> Event:
    values = dict(row._mapping)
    values["class_"], values["seq"] = values.pop("class") or "", values.pop("born")
    return Event(
        **values
        | {
            "queue": row.queue or "",
            "args": _json(row.args, list),
            "kwargs": _json(row.kwargs, dict),
            "tags": _json(row.tags, list) or [],
            "status": row.status or "",
            "attempts": row.attempts or 0,
            "ended_at": row.ended_at or None,
            "result": _json(row.result, object),
            "error_class": row.error_class or None,
            "cause": row.cause or None,
            "message": row.message or None,
            "traceback": [str(line) for line in _json(row.traceback, list) or ()],
        }
    )


def _change(row: Any) -> Change:
    facts = {"ending": row.ending, "started": row.started, "elapsed": row.elapsed}
    return Change(
        position=row.sid,
        jid=None if row.jid.startswith(OF_BATCH) else row.jid,
        batch=row.batch,
        status=row.status or "",
        attempt=row.attempt,
        process=row.process,
        at=row.at,
        detail={name: value for name, value in facts.items() if value is not None} | (_json(row.detail, dict) or {}),
    )


def _message(row: Any) -> Message:
    return Message(position=row.sid, jid=row.jid, at=row.at, text=row.text or "")


def _run(row: Any) -> RunRecord:
    values = dict(row._mapping)
    del values["run"]
    return RunRecord(host=None if row.process is None else host_of(row.process), **values)


def _counts(row: Any) -> dict[str, int]:
    """Jobs by status when the batch was complete; empty when it is not, or nothing of this was recorded."""
    if row is None or row.state != "complete":
        return {}
    counts = _json(row.counts, dict) or {}
    return {status: many for status, many in counts.items() if isinstance(many, int) and many > 0}


def _batch(batch: str, row: Any, counts: dict[str, int]) -> BatchRecord:
    """A batch out of its row, or out of its events when it has none."""
    values = dict.fromkeys(batches.columns.keys()) if row is None else dict(row._mapping)
    position = values.pop("changed") or 0
    return BatchRecord(
        **values
        | {
            "id": batch,
            "description": values["description"] or "",
            "tags": _json(values["tags"], list) or [],
            "state": values["state"] or "",
            "why": values["why"] or "",
            "completed": values["completed"] or None,
            "generation": values["generation"] or 1,
            "total": max(values["total"] or 0, sum(counts.values())),
            "counts": counts,
            "position": position,
        }
    )
