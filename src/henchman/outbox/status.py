"""How an outbox stands: how many rows wait, for how long, who relays, and which rows the server refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import func, select

from henchman.kernel.clock import ServerClock
from henchman.kernel.figures import span
from henchman.outbox.database import OutboxDatabase
from henchman.outbox.schema import outbox
from henchman.store import outbox as store
from henchman.store.call import Runner
from henchman.store.keys import Keys

__all__ = ["OutboxDatabase", "OutboxStatus", "RefusedRow", "look", "payloads", "why_not_pushed"]

_PAGE, _PAGES = 1000, 20  # of the oldest rows, of which most may be pushed already
_REFUSED = 50


class RefusedRow(NamedTuple):
    """A row that the server refuses, and that is stepped over; ``reason`` is the server's."""

    id: int
    jid: str
    queue: str
    created: float
    reason: str


class OutboxStatus(NamedTuple):
    """``rows``: all of the table; ``waiting``: those that are not pushed yet, at least so many; ``lag``: age of the
    oldest of these in seconds, by the server's clock. ``relay``: who relays, "": nobody. ``refused``: the first of
    ``refused_count`` rows that are stepped over; they count neither as waiting nor for the lag. ``duplicates``: rows
    that were relayed so far whose key another job had."""

    database: str
    rows: int
    waiting: int
    lag: float
    relay: str
    refused_count: int
    refused: list[RefusedRow]
    duplicates: int

    def figures(self, clock: ServerClock) -> store.OutboxFigures:
        """What others are told of it, as of now."""
        counts = self.rows, self.waiting, self.lag, self.refused_count, self.duplicates
        return store.OutboxFigures(clock.now(), self.database, *counts)


def look(database: OutboxDatabase, runner: Runner, keys: Keys) -> OutboxStatus:
    """How it stands now. OutboxError, OutboxAway of the database; ServerError of the server."""
    name = database.marker().name
    facts = runner.run(store.relay_facts(keys, name))
    is_refused = outbox.c.problem.is_not(None)
    columns = [outbox.c[name] for name in ("id", "jid", "queue", "created", "problem")]
    with database.reading() as connection:
        rows: int = connection.execute(select(func.count()).select_from(outbox)).scalar_one()
        count: int = connection.execute(select(func.count()).select_from(outbox).where(is_refused)).scalar_one()
        refused = connection.execute(select(*columns).where(is_refused).order_by(outbox.c.id).limit(_REFUSED)).all()
    oldest = _oldest_waiting(database, runner, keys, name) if rows > count else None
    waiting = 0 if oldest is None else max(rows - count - facts.sent, 1)
    lag = 0.0 if oldest is None else max(facts.now - oldest, 0.0)
    found = [RefusedRow(*row) for row in refused]
    return OutboxStatus(database.shown, rows, waiting, lag, facts.relay, count, found, facts.duplicates)


def payloads(database: OutboxDatabase) -> Iterator[tuple[str, bytes]]:
    """Queue and payload of each row, the oldest first, read in pages. OutboxError, OutboxAway of the database."""
    after: int | None = 0
    while after is not None:
        query = select(outbox.c.id, outbox.c.queue, outbox.c.payload).where(outbox.c.id > after).order_by(outbox.c.id)
        with database.reading() as connection:
            page = connection.execute(query.limit(_PAGE)).all()
        for row in page:
            yield row.queue, row.payload.encode("utf-8", "surrogateescape")
        after = page[-1].id if page else None


def _oldest_waiting(database: OutboxDatabase, runner: Runner, keys: Keys, name: str) -> float | None:
    """When the oldest row was written that is not pushed; None when the first 20,000 are."""
    after = 0
    columns = (outbox.c.id, outbox.c.jid, outbox.c.created)
    for _ in range(_PAGES):
        query = select(*columns).where(outbox.c.id > after, outbox.c.problem.is_(None)).order_by(outbox.c.id)
        with database.reading() as connection:
            page = connection.execute(query.limit(_PAGE)).all()
        if not page:
            return None
        sent = runner.run(store.which_sent(keys, name, [row.jid for row in page]))
        waiting = [float(row.created) for row, is_sent in zip(page, sent, strict=True) if not is_sent]
        if waiting:
            return min(waiting)
        after = page[-1].id
    return None


def why_not_pushed(database: OutboxDatabase, runner: Runner, keys: Keys, jid: str) -> tuple[str, str] | None:
    """Of a job that stands in the outbox and was not pushed: why, and the command that would change it; None of
    others."""
    columns = [outbox.c[name] for name in ("queue", "created", "problem")]
    with database.reading() as connection:
        row = connection.execute(select(*columns).where(outbox.c.jid == jid)).first()
    if row is None:
        return None
    name = database.marker().name
    facts = runner.run(store.relay_facts(keys, name))
    [is_sent] = runner.run(store.which_sent(keys, name, [jid]))
    where = f"in the outbox of {database.shown} for {span(max(facts.now - float(row.created), 0.0))}"
    if is_sent:
        return f"{where}, and pushed: the row goes in a moment", ""
    if row.problem is not None:
        return f"{where}, for the server refuses it: {row.problem}", "henchman outbox"
    if facts.relay:
        return f"{where}: {facts.relay} relays, and pushes it in its turn", "henchman outbox"
    return f"{where}, and nobody relays: a worker with this outbox does", f"henchman work -q {row.queue}"
