"""The migration leads to the tables that the code works with, in the application's own database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, text

from henchman.errors import OutboxError
from henchman.history.database import Database
from henchman.outbox import database as module
from henchman.outbox.database import OutboxDatabase
from support.databases import emptied
from support.outbox import Shop, schema_differences


def test_the_migration_makes_what_the_code_expects(outbox_url: str) -> None:
    database = OutboxDatabase(outbox_url)
    try:
        assert database.version().fits
        assert schema_differences(database) == []
        marker = database.marker()
        assert (len(marker.name), marker.namespace) == (32, None)
    finally:
        database.close()


def test_history_and_the_outbox_live_in_one_database(outbox_url: str) -> None:
    emptied(outbox_url)
    history, database = Database(outbox_url), OutboxDatabase(outbox_url)
    try:
        assert history.upgrade().fits
        assert database.upgrade().fits
        assert history.version().fits
    finally:
        history.close()
        database.close()
        emptied(outbox_url)


def test_an_id_is_never_given_out_twice(shop: Shop) -> None:
    shop.sell(1)
    [row] = shop.rows()
    with shop.database.writing() as connection:
        connection.execute(text("DELETE FROM henchman_outbox"))
    shop.sell(2)
    assert shop.rows()[0].id > row.id


def test_a_file_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._file_system(tmp_path / "x.sqlite")
    monkeypatch.setattr(module, "_file_system", lambda file: "nfs4")
    with pytest.raises(OutboxError, match="network file system"):
        OutboxDatabase(f"sqlite:///{tmp_path}/x.sqlite")


def test_postgresql_writes_its_commits_even_where_it_was_told_not_to(servers: Any) -> None:
    url = servers.of("postgresql").url
    database = OutboxDatabase(f"{url}&options=-csynchronous_commit%3Doff")
    try:
        with database.reading() as connection:
            assert connection.execute(text("SHOW synchronous_commit")).scalar() == "on"
            assert inspect(connection).dialect.name == "postgresql"
    finally:
        database.close()
