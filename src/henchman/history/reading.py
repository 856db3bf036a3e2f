"""Reading history: a batch, its events page by page, what changed since, one job with its whole life, a search.

Pages go by position, not by number: they stay right while jobs go on. Nothing here is read whole that can be large.
Every method exists in an ``a…`` form that is awaited; it works in a thread. HistoryAway when the database is not
there, HistoryError when history is off or the tables are not those of this release.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, or_, select

from henchman.config import Config
from henchman.errors import ArgumentError, HistoryAway, HistoryError
from henchman.history import migrate
from henchman.history.database import Database
from henchman.history.entries import number_of
from henchman.history.loading import batch_of, change_of, counts_of, event_of, message_of, run_of
from henchman.history.records import FAILURES, MOST, STATUSES, Batch, Changes, Event, EventPage, Job, Search
from henchman.history.schema import batches, changes, events, messages, runs
from henchman.kernel.middleware import in_thread

__all__ = ["History"]

_STEP = 1000  # events that an iteration reads at once


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

    def batch(self, batch: str) -> Batch | None:
        """What is recorded of a batch; None when nothing is. Its events are counted only where it is not complete: half
        a million take their time, and the server has counted them."""
        count = select(events.c.status, func.count()).where(events.c.batch == batch).group_by(events.c.status)
        with self._connection() as connection:
            row = connection.execute(select(batches).where(batches.c.id == batch)).first()
            counts = counts_of(row)
            if not counts:
                counts = {status or "": many for status, many in connection.execute(count)}
        return None if row is None and not counts else batch_of(batch, row, counts)

    def events(
        self, batch: str, status: str | Sequence[str] | None = None, *, after: int | None = None, limit: int = 100
    ) -> EventPage:
        """Events of a batch in the order in which they were enqueued, of one or some statuses; ``after`` the page's."""
        limit = _limit(limit)
        wanted = None if status is None else _statuses(status)
        query = select(events).where(events.c.batch == batch).order_by(events.c.born).limit(limit + 1)
        if after is not None:
            query = query.where(events.c.born > after)
        with self._connection() as connection:
            found = _walk(connection, query, batch, wanted)
        return _page(sorted(found, key=_born), limit)

    def failures(self, batch: str) -> Iterator[Event]:
        """Every event of a batch that failed or ended with an error, read bit by bit."""
        after: int | None = 0
        while after is not None:
            page = self.events(batch, FAILURES, after=after, limit=_STEP)
            yield from page.events
            after = page.after

    def changed_since(self, batch: str, position: int, *, limit: int = 1000) -> Changes:
        """What changed behind ``position`` (0: everything), and the position to ask from next."""
        limit = _limit(limit)
        query = (
            select(events)
            .where(events.c.batch == batch, events.c.changed > position)
            .order_by(events.c.changed)
            .limit(limit + 1)
        )
        with self._connection() as connection:
            found = [event_of(row) for row in connection.execute(query)]
        shown = found[:limit]
        return Changes(events=shown, position=shown[-1].changed if shown else position, more=len(found) > limit)

    def latest(self, batch: str) -> int:
        """The position of the latest change of a batch's events, to ask ``changed_since`` from; 0: there are none."""
        query = select(func.max(events.c.changed)).where(events.c.batch == batch)
        with self._connection() as connection:
            return connection.execute(query).scalar() or 0

    def job(self, jid: str, *, most: int = MOST) -> Job | None:
        """One job and its life: at most ``most`` changes, runs and messages each; None when nothing is recorded."""
        most = _limit(most)
        with self._connection() as connection:
            event = connection.execute(select(events).where(events.c.jid == jid)).first()
            if event is None:
                return None
            lists = []
            for table, key in ((changes, changes.c.sid), (runs, runs.c.run), (messages, messages.c.sid)):
                lists.append(connection.execute(_of_job(table, key, jid, most)).all())
        return Job(
            event=event_of(event),
            changes=[change_of(row) for row in lists[0]],
            runs=[run_of(row) for row in lists[1]],
            messages=[message_of(row) for row in lists[2]],
        )

    def find(self, search: Search, *, after: int | None = None, limit: int = 100) -> EventPage:
        """The events that fit, the latest first; ``after`` the page's, for older ones."""
        limit = _limit(limit)
        query = select(events).where(*_conditions(search)).order_by(events.c.born.desc()).limit(limit + 1)
        if after is not None:
            query = query.where(events.c.born < after)
        with self._connection() as connection:
            if search.batch is None:
                return _page(connection.execute(query).all(), limit)
            wanted = None if search.status is None else _statuses(search.status)
            found = _walk(connection, query, search.batch, wanted)
        return _page(sorted(found, key=_born, reverse=True), limit)

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
            version = migrate.current(self.database)
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

    # --- awaited ------------------------------------------------------------------------------------------------

    async def abatch(self, batch: str) -> Batch | None:
        """``batch``, awaited."""
        found: Batch | None = await in_thread(self.batch, batch)
        return found

    async def aevents(
        self, batch: str, status: str | Sequence[str] | None = None, *, after: int | None = None, limit: int = 100
    ) -> EventPage:
        """``events``, awaited."""
        page: EventPage = await in_thread(self.events, batch, status, after=after, limit=limit)
        return page

    async def afailures(self, batch: str) -> AsyncIterator[Event]:
        """``failures``, awaited."""
        after: int | None = 0
        while after is not None:
            page = await self.aevents(batch, FAILURES, after=after, limit=_STEP)
            for event in page.events:
                yield event
            after = page.after

    async def achanged_since(self, batch: str, position: int, *, limit: int = 1000) -> Changes:
        """``changed_since``, awaited."""
        found: Changes = await in_thread(self.changed_since, batch, position, limit=limit)
        return found

    async def ajob(self, jid: str, *, most: int = MOST) -> Job | None:
        """``job``, awaited."""
        found: Job | None = await in_thread(self.job, jid, most=most)
        return found

    async def afind(self, search: Search, *, after: int | None = None, limit: int = 100) -> EventPage:
        """``find``, awaited."""
        page: EventPage = await in_thread(self.find, search, after=after, limit=limit)
        return page


def _born(row: Any) -> int:
    born: int = row.born
    return born


def _walk(connection: Connection, query: Select[Any], batch: str, statuses: Sequence[str] | None) -> list[Any]:
    """The rows of ``query`` for each status: each is a walk along the index of batch, status and birth."""
    wanted = [events.c.status == one for one in (_present(connection, batch) if statuses is None else statuses)]
    if statuses is None:
        wanted.append(events.c.status.is_(None))
    return [row for one in wanted for row in connection.execute(query.where(one))]


def _present(connection: Connection, batch: str) -> Iterator[str]:
    """The statuses that a batch's events have: one look at the index for each."""
    query = select(func.min(events.c.status)).where(events.c.batch == batch)
    found = connection.execute(query).scalar()
    while found is not None:
        yield found
        found = connection.execute(query.where(events.c.status > found)).scalar()


def _of_job(table: Any, key: Any, jid: str, most: int) -> Select[Any]:
    return select(table).where(table.c.jid == jid).order_by(key).limit(most)


def _page(rows: Sequence[Any], limit: int) -> EventPage:
    shown = [event_of(row) for row in rows[:limit]]
    return EventPage(events=shown, after=shown[-1].seq if len(rows) > limit else None)


def _limit(limit: int) -> int:
    if not 1 <= limit <= MOST:
        raise ArgumentError(f"limit = {limit!r}: from 1 to {MOST:,}")
    return limit


def _statuses(status: str | Sequence[str]) -> tuple[str, ...]:
    wanted = (status,) if isinstance(status, str) else tuple(status)
    for one in wanted:
        if one not in STATUSES:
            raise ArgumentError(f"there is no status {one!r}; there are {', '.join(STATUSES)}")
    return wanted


def _conditions(search: Search) -> Iterator[ColumnElement[bool]]:
    c = events.c
    for column, value in ((c["class"], search.class_), (c.batch, search.batch), (c.queue, search.queue)):
        if value is not None:
            yield column == value
    if search.status is not None:
        yield c.status.in_(_statuses(search.status))
    if search.since is not None:
        yield c.born >= _position(search.since)
    if search.until is not None:
        yield c.born < _position(search.until)
    if search.text:
        wanted = search.text.lower()
        columns = (c.message, c.error_class, c.args, c.kwargs)
        yield or_(*(func.lower(one).contains(wanted, autoescape=True) for one in columns))


def _position(at: float) -> int:
    return number_of(b"%d" % max(int(at * 1000), 0))[0]
