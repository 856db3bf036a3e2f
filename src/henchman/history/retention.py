"""What is old is forgotten: by age and by how it ended, in slices that hold no lock for long.

A job's age counts from its last change. Only what has ended is forgotten; so is what only messages are known of. With
the event go its changes and messages; a batch goes when it is complete and has no event left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, Table, delete, exists, func, or_, select

from henchman.config import Config
from henchman.config_history import ENDED
from henchman.history.database import Database
from henchman.history.entries import number_of
from henchman.history.records import OF_BATCH
from henchman.history.schema import batches, changes, events, messages

__all__ = ["SLICE", "Pruning", "keep_of", "prune"]

SLICE = 1000  # rows of a table that one transaction removes, at most
PAUSE = 0.05
_JOBS = 200  # events of a slice: what hangs on them counts too


def keep_of(config: Config) -> dict[str, float]:
    """Seconds by status that an ended job is kept."""
    return {status: config.history_keep_status.get(status, config.history_keep) for status in ENDED}


class Pruning:
    """One round over everything. ``now``: the server's Unix time. ``slice()`` is True as long as there may be more."""

    def __init__(self, database: Database, config: Config, *, now: float) -> None:
        self._database = database
        self.removed = 0
        self.batches = 0
        keep = keep_of(config)
        self._ahead: list[tuple[str, int]] = [(status, _position(now - age)) for status, age in keep.items()]
        self._ahead.append(("", _position(now - max(keep.values()))))
        self._batches_before = _position(now - max(keep.values()))

    def slice(self) -> bool:
        """Remove one slice, in a transaction of its own. HistoryAway, HistoryError."""
        while self._ahead:
            status, before = self._ahead[-1]
            with self._database.writing() as connection:
                count = _forget(connection, status, before)
            if count is not None:
                self.removed += count
                return True
            self._ahead.pop()
        with self._database.writing() as connection:
            count = _forget_batches(connection, self._batches_before)
        self.batches += count
        return count > 0


def prune(database: Database, config: Config, *, now: float, sleep: Callable[[float], None] = time.sleep) -> Pruning:
    """A whole round at ``now``, the server's Unix time; how many jobs and batches it removed."""
    pruning = Pruning(database, config, now=now)
    while pruning.slice():
        sleep(PAUSE)
    return pruning


def _position(at: float) -> int:
    return number_of(b"%d" % max(int(at * 1000), 0))[0]


def _forget(connection: Connection, status: str, before: int) -> int | None:
    """How many jobs are gone; None when nothing is left to do."""
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
    left = [table for table in tables if not _remove(connection, table, jids)]
    if left:  # one job that said very much
        return 0
    connection.execute(delete(events).where(events.c.jid.in_(jids)))
    return len(jids)


def _rows(connection: Connection, table: Table, jids: Sequence[str]) -> int:
    return connection.execute(select(func.count()).select_from(table).where(table.c.jid.in_(jids))).scalar() or 0


def _remove(connection: Connection, table: Table, jids: Sequence[str]) -> bool:
    """Whether nothing of these jobs is left in ``table``."""
    sid = table.c.sid
    sids = connection.execute(select(sid).where(table.c.jid.in_(jids)).order_by(sid).limit(SLICE)).scalars().all()
    if sids:
        connection.execute(delete(table).where(table.c.jid.in_(jids), sid.in_(sids)))
    return len(sids) < SLICE


def _forget_batches(connection: Connection, before: int) -> int:
    member = exists().where(events.c.batch == batches.c.id)
    ended = or_(batches.c.state == "complete", batches.c.state.is_(None))
    query = select(batches.c.id).where(ended, batches.c.changed < before, ~member).limit(_JOBS)
    ids = connection.execute(query).scalars().all()
    if ids:
        connection.execute(delete(batches).where(batches.c.id.in_(ids)))
        _remove(connection, changes, [OF_BATCH + one for one in ids])
    return len(ids)
