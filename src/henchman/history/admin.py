"""Administration: the schema's version and upgrade, and pruning, for the command line and the recorder.

A job's age counts from its last change. Pruning removes only jobs that have ended, and those of which only messages
are known, by age and ending; their changes and messages go with them. A batch goes when it is complete and has no
event left. It works in slices that hold no lock for long.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import Connection, Table, delete, exists, func, or_, select

from henchman.config import Config
from henchman.config.settings import ENDED
from henchman.history.database import Database, Version
from henchman.history.reading import History
from henchman.history.records import OF_BATCH
from henchman.history.schema import batches, changes, events, messages
from henchman.history.stream import position_at

__all__ = ["SLICE", "Admin", "Pruning"]

SLICE = 1000  # rows of a table that one transaction removes, at most
PAUSE = 0.05
_JOBS = 200  # events of a slice; their changes and messages count too


class Admin:
    """The history of these settings; HistoryError says why there is none. ``close`` it after use."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.reading = History.open(config)
        self.database: Database = self.reading.database
        self.shown = self.database.shown

    def close(self) -> None:
        """Close idle connections."""
        self.database.close()

    @property
    def makes_itself(self) -> bool:
        """Whether the recorder makes and upgrades the tables: those of SQLite."""
        return self.database.kind == "sqlite"

    def current(self) -> Version:
        """The schema's version."""
        return self.database.version()

    def upgrade(self) -> Version:
        """Bring the schema to this release's version."""
        return self.database.upgrade()

    def prune(self, now: float) -> Pruning:
        """Remove all that is too old at ``now``, the server's Unix time; how many jobs and batches went."""
        pruning = Pruning(self.database, self._config, now=now)
        while pruning.slice():
            time.sleep(PAUSE)
        return pruning


class Pruning:
    """One round over everything. ``now``: the server's Unix time. ``slice()`` is True as long as there may be more."""

    def __init__(self, database: Database, config: Config, *, now: float) -> None:
        self._database = database
        self.removed = 0
        self.batches = 0
        keep = {status: config.history_keep_status.get(status, config.history_keep) for status in ENDED}
        self._batches_before = position_at(now - max(keep.values()))
        self._ahead = [(status, position_at(now - age)) for status, age in keep.items()] + [("", self._batches_before)]

    def slice(self) -> bool:
        """Remove one slice, in a transaction of its own. HistoryAway, HistoryError."""
        while self._ahead:
            status, before = self._ahead[-1]
            with self._database.writing() as connection:
                count = _remove_jobs(connection, status, before)
            if count is not None:
                self.removed += count
                return True
            self._ahead.pop()
        with self._database.writing() as connection:
            count = _remove_batches(connection, self._batches_before)
        self.batches += count
        return count > 0


def _remove_jobs(connection: Connection, status: str, before: int) -> int | None:
    """How many jobs were removed; None when none is left."""
    known = events.c.status == status if status else events.c.status.is_(None)
    query = (
        select(events.c.jid)
        .where(known, events.c.born < before, events.c.changed < before)
        .order_by(events.c.born)
        .limit(_JOBS)
    )
    jids = connection.execute(query).scalars().all()
    if not jids:
        return None
    tables = (changes, messages)
    while len(jids) > 1 and any(_rows(connection, table, jids) > SLICE for table in tables):
        jids = jids[: len(jids) // 2]
    left = [table for table in tables if not _remove_all(connection, table, jids)]
    if left:  # a single job with more rows than a slice
        return 0
    connection.execute(delete(events).where(events.c.jid.in_(jids)))
    return len(jids)


def _rows(connection: Connection, table: Table, jids: Sequence[str]) -> int:
    return connection.execute(select(func.count()).select_from(table).where(table.c.jid.in_(jids))).scalar() or 0


def _remove_all(connection: Connection, table: Table, jids: Sequence[str]) -> bool:
    """Remove a slice of the rows of these jobs; whether none is left."""
    sid = table.c.sid
    sids = connection.execute(select(sid).where(table.c.jid.in_(jids)).order_by(sid).limit(SLICE)).scalars().all()
    if sids:
        connection.execute(delete(table).where(table.c.jid.in_(jids), sid.in_(sids)))
    return len(sids) < SLICE


def _remove_batches(connection: Connection, before: int) -> int:
    member = exists().where(events.c.batch == batches.c.id)
    ended = or_(batches.c.state == "complete", batches.c.state.is_(None))
    query = select(batches.c.id).where(ended, batches.c.changed < before, ~member).limit(_JOBS)
    ids = connection.execute(query).scalars().all()
    if ids:
        connection.execute(delete(batches).where(batches.c.id.in_(ids)))
        _remove_all(connection, changes, [OF_BATCH + one for one in ids])
    return len(ids)
