"""A database user who lacks a right on the outbox reads which one, and the statement that gives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.orm import Session

from henchman.errors import OutboxError
from henchman.outbox.database import OutboxDatabase
from henchman.outbox.relay import Relay
from henchman.outbox.status import look
from support.databases import SERVERS
from support.outbox import CONFIRMED, Hands, Shop, made_anew
from support.sql_servers import Servers

USER = "clerk"
TABLES = ("henchman_outbox", "henchman_outbox_marker", "henchman_outbox_version", "henchman_outbox_line")


class Clerk:
    """A user of the shop's database who has no rights but those that a test gives."""

    def __init__(self, url: str, redis_url: str) -> None:
        self.owner = OutboxDatabase(url)
        self.admin = self.owner.engine.execution_options(isolation_level="AUTOCOMMIT")
        self.is_postgresql = self.admin.dialect.name == "postgresql"
        self.name = USER if self.is_postgresql else f"{USER}@'%'"
        self.drop()
        self.say(f"CREATE USER {self.name} {'PASSWORD' if self.is_postgresql else 'IDENTIFIED BY'} 'secret'")
        if self.is_postgresql:
            self.say(f"GRANT USAGE ON SCHEMA public TO {USER}")
            self.say(f"GRANT USAGE ON SEQUENCE henchman_outbox_id_seq TO {USER}")
        address = make_url(url).set(username=USER, password="secret")
        self.url = address.render_as_string(hide_password=False)
        self.shop = Shop(redis_url, self.url)

    def say(self, statement: str) -> None:
        with self.admin.connect() as connection:
            connection.execute(text(statement))

    def may(self, *rights: str, tables: tuple[str, ...] = TABLES) -> None:
        for table in tables:
            self.say(f"GRANT {', '.join(rights)} ON {table} TO {self.name}")

    def may_not(self, right: str, table: str) -> None:
        self.say(f"REVOKE {right} ON {table} FROM {self.name}")

    def drop(self) -> None:
        with self.admin.connect() as connection:
            if not self.is_postgresql:
                connection.execute(text(f"DROP USER IF EXISTS {self.name}"))
            elif connection.execute(text("SELECT 1 FROM pg_roles WHERE rolname = :name"), {"name": USER}).scalar():
                connection.execute(text(f"DROP OWNED BY {USER}"))
                connection.execute(text(f"DROP USER {USER}"))

    def close(self) -> None:
        self.shop.close()
        self.drop()
        self.owner.close()


@pytest.fixture(params=SERVERS)
def clerk(request: pytest.FixtureRequest, servers: Servers, redis_url: str) -> Iterator[Clerk]:
    url = servers.of(request.param).url
    made_anew(url)
    made = Clerk(url, redis_url)
    yield made
    made.close()


def lacks(right: str, table: str, grant: str = "") -> str:
    return f"the database user {USER} lacks {right} on {table}: GRANT {grant or right} ON {table} TO {USER}"


def sold(clerk: Clerk) -> None:
    """The clerk commits a job."""
    with Session(clerk.shop.engine) as session:
        clerk.shop.app.outbox.write(session, clerk.shop.ship, 1)
        session.commit()


def test_a_push_without_insert(clerk: Clerk) -> None:
    clerk.may("SELECT")
    with pytest.raises(OutboxError) as caught:
        sold(clerk)
    assert str(caught.value) == lacks("INSERT", "henchman_outbox")
    with clerk.shop.engine.connect() as connection, pytest.raises(OutboxError, match="lacks INSERT"):
        clerk.shop.app.outbox.write(connection, clerk.shop.ship, 1)
    clerk.may_not("SELECT", "henchman_outbox")
    clerk.may("INSERT", tables=("henchman_outbox",))
    for _ in range(2):
        sold(clerk)
    clerk.may("SELECT")
    assert clerk.shop.count() == 2, "who writes needs no other right"


@pytest.mark.parametrize("table", TABLES[:2])
def test_a_look_without_select(clerk: Clerk, table: str) -> None:
    clerk.may("SELECT")
    clerk.may_not("SELECT", table)
    database = OutboxDatabase(clerk.url)
    try:
        with pytest.raises(OutboxError) as caught:
            look(database, clerk.shop.app.connections, clerk.shop.app.keys)
    finally:
        database.close()
    assert str(caught.value) == f"{database.shown}: {lacks('SELECT', table)}"


def test_a_relay_without_delete_and_then_with_it(clerk: Clerk) -> None:
    clerk.may("SELECT", "INSERT", "UPDATE")
    sold(clerk)
    clock = Hands()
    relay = Relay(clerk.shop.app, OutboxDatabase(clerk.url), clock)
    relay._listen = lambda: 0.0  # type: ignore[method-assign]
    try:
        relay.tick()
        clock.now += CONFIRMED
        relay.tick()
        [(name, facts)] = clerk.shop.events
        told = lacks("DELETE", "henchman_outbox", "SELECT, DELETE")
        assert (name, str(facts["error"])) == ("outbox_away", f"{relay.database.shown}: {told}")
        assert clerk.shop.count() == 1
        clerk.may("DELETE")
        for _ in range(100):
            clock.now += CONFIRMED
            relay.tick()
            if not clerk.shop.count():
                break
        assert clerk.shop.count() == 0
        assert clerk.shop.app.queues["default"].size() == 1, "it was pushed once"
    finally:
        relay.stop()
