"""An application with a database of its own: a transaction writes an order, and the job that ships it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from redis import Redis
from sqlalchemy import Column, Integer, MetaData, Table, func, insert, select, text
from sqlalchemy.orm import Session

from henchman import App
from henchman.outbox import relay as relay_module
from henchman.outbox.database import OutboxDatabase
from henchman.outbox.relay import Relay
from henchman.outbox.schema import METADATA, VERSION_TABLE, outbox
from support.keys import locks
from support.worker import jobs_in

__all__ = ["Hands", "Shop", "made_anew", "relaying", "schema_differences", "tick_until"]

ORDERS = MetaData()
orders = Table("orders", ORDERS, Column("id", Integer, primary_key=True, autoincrement=False))


def removed(url: str) -> None:
    """No table of the outbox, and none of the orders."""
    database = OutboxDatabase(url)
    try:
        METADATA.drop_all(database.engine)
        ORDERS.drop_all(database.engine)
        with database.writing() as connection:
            for table in (VERSION_TABLE, "orders"):
                connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
    finally:
        database.close()


def made_anew(url: str) -> None:
    """The tables of the outbox and of the orders, empty."""
    removed(url)
    database = OutboxDatabase(url)
    try:
        database.upgrade()
        ORDERS.create_all(database.engine)
    finally:
        database.close()


def schema_differences(database: OutboxDatabase) -> list[Any]:
    """Where the tables of ``database`` differ from those that the code works with."""

    def is_ours(_: Any, name: str | None, kind: str, *__: object) -> bool:
        return kind != "table" or (name or "").startswith("henchman_outbox")

    with database.reading() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True, "include_object": is_ours}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), METADATA))


class Hands:
    """A clock that goes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Shop:
    """The application: ``sell`` commits orders with their jobs. ``events``: what its relay announced.

    ``charges``: three orders are charged together, so each of them also pushes a job with the key of the three."""

    def __init__(self, redis_url: str, url: str, *, charges: bool = False, **settings: Any) -> None:
        self.url = url
        self.charges = charges
        self.app = App(redis_url=redis_url, outbox=url, **settings)
        self.database = OutboxDatabase(url)
        self.engine = self.database.engine.execution_options(henchman_writes=True)
        self.events: list[tuple[str, dict[str, Any]]] = []
        for name in ("outbox_away", "outbox_back", "outbox_refused", "outbox_duplicate"):
            self.app.events.on(name, self._listener(name))

        @self.app.job(name="ship")
        def ship(order: int) -> None: ...

        @self.app.job(name="tracked", track=True, queue="tracked")
        def tracked(order: int) -> None: ...

        @self.app.job(name="charge", queue="charges", key="trio", once=True)
        def charge(trio: int, order: int) -> None: ...

        self.ship, self.tracked, self.charge = ship, tracked, charge

    def _listener(self, name: str) -> Callable[..., None]:
        return lambda **facts: self.events.append((name, facts))

    def session(self) -> Session:
        return Session(self.engine)

    def sell(self, *numbers: int, **options: Any) -> None:
        """Commit these orders in one transaction."""
        with self.session() as session, session.begin():
            self.order(session, *numbers, **options)

    def order(self, session: Session, *numbers: int, **options: Any) -> None:
        """Within a transaction."""
        for number in numbers:
            session.execute(insert(orders).values(id=number))
            self.app.outbox.write(session, self.ship.using(**options), number)
            if self.charges:
                self.app.outbox.write(session, self.charge, number // 3, number)

    def rows(self) -> list[Any]:
        """What stands in the outbox."""
        with self.database.reading() as connection:
            return list(connection.execute(select(outbox).order_by(outbox.c.id)))

    def sold(self) -> list[int]:
        """The orders that were committed."""
        with self.database.reading() as connection:
            return list(connection.execute(select(orders.c.id).order_by(orders.c.id)).scalars())

    def count(self) -> int:
        """How many rows stand in the outbox."""
        with self.database.reading() as connection:
            many: int = connection.execute(select(func.count()).select_from(outbox)).scalar_one()
        return many

    def sent(self) -> str:
        """The key of the set of what was pushed."""
        return self.app.keys.outbox_sent(self.database.marker().name)

    def lease(self) -> str:
        """The key of the relay's lease."""
        return self.app.keys.outbox_relay(self.database.marker().name)

    def judge(self, redis: Redis, queue: str = "default") -> None:
        """Exactly one job for each committed order; nothing is left in the outbox and on the server."""
        assert self.wrong(redis, queue) == {}
        assert self.count() == 0
        assert not redis.exists(self.sent())

    def wrong(self, redis: Redis, queue: str = "default") -> dict[Any, int]:
        """By order the jobs that there are too many of, or (below 0) too few; of charges by their key, which has to be
        their first job's."""
        sold = self.sold()
        found = Counter(job["args"][0] for job in jobs_in(redis, f"queue:{queue}"))
        found.subtract(sold)
        if self.charges:
            charged = jobs_in(redis, "queue:charges")
            found.update(("charge", job["args"][0]) for job in charged)
            trios = {number // 3 for number in sold}
            found.subtract(("charge", trio) for trio in trios)
            found["duplicates"] = int(redis.get(self.duplicates()) or 0) - (len(sold) - len(trios))
            held = {str(job["args"][0]): job["jid"] for job in charged}
            found["locks"] = sum(held.get(key) != jid for key, jid in locks(redis, "o", "charge").items())
        return {what: many for what, many in found.items() if many}

    def duplicates(self) -> str:
        """The key of the counter of rows whose key another job had."""
        return self.app.keys.outbox_duplicates(self.database.marker().name)

    def close(self) -> None:
        self.app.close()
        self.database.close()


@contextmanager
def relaying(shop: Shop, clock: Callable[[], float] | None = None) -> Iterator[Relay]:
    """A relay without its thread: tests call ``tick`` or go through ``steps``."""
    database = OutboxDatabase(shop.url)
    relay = Relay(shop.app, database) if clock is None else Relay(shop.app, database, clock)
    relay._listen = lambda: 0.0  # type: ignore[method-assign]  # nobody is to be waited for
    try:
        yield relay
    finally:
        relay.stop()


def tick_until(relay: Relay, clock: Hands, fact: Callable[[], object], most: int = 400) -> None:
    """Rounds of ``relay``, a quarter of a second each, until ``fact()``."""
    for _ in range(most):
        relay.tick()
        if fact():
            return
        clock.now += 0.25
    raise AssertionError(f"not within {most} rounds")


CONFIRMED = relay_module.CONFIRM_AFTER + relay_module.TOGETHER + 0.1  # seconds after which a pushed row is deleted
