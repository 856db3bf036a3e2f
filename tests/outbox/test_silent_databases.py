"""Databases that say nothing, or have nothing of ours: whoever asks is told within seconds, and told the way out."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from henchman.errors import HistoryAway, OutboxAway, OutboxError
from henchman.history.database import Database
from henchman.outbox.database import OutboxDatabase
from henchman.outbox.status import look
from henchman.sql.database import SqlDatabase
from support.outbox import Shop, removed


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A greeting is waited for no longer than a test needs."""
    monkeypatch.setattr("henchman.sql.database._CONNECT", 2)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes every connection, and on which nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
@pytest.mark.parametrize(("kind", "away"), [(OutboxDatabase, OutboxAway), (Database, HistoryAway)])
def test_a_server_that_accepts_and_is_silent_is_away(
    scheme: str, kind: type[SqlDatabase], away: type[Exception], silent: int
) -> None:
    database = kind(f"{scheme}://us:secret@127.0.0.1:{silent}/shop")
    began = time.monotonic()
    with pytest.raises(away) as caught:
        database.version()
    assert time.monotonic() - began < 10, "one greeting is waited for, for 2 s"
    assert "secret" not in str(caught.value)
    database.close()


def test_an_answer_may_take_longer_than_a_greeting(servers: object) -> None:
    database = OutboxDatabase(servers.of("mariadb").url)  # type: ignore[attr-defined]
    with database.reading() as connection:
        assert connection.execute(text("SELECT SLEEP(2.5)")).scalar() == 0
    database.close()


def test_an_outbox_without_tables_names_the_command(shop: Shop) -> None:
    removed(shop.database.address)
    with pytest.raises(OutboxError, match="henchman db upgrade --outbox"):
        look(shop.database, shop.app.connections, shop.app.keys)
