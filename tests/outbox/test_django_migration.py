"""Django's migration makes the tables that Alembic's makes, to the last option: the relay works on either."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import text

from henchman.errors import OutboxError
from henchman.outbox import migrations
from henchman.outbox.database import OutboxDatabase
from henchman.outbox.schema import METADATA, VERSION_TABLE
from support.django import django_databases
from support.outbox import Hands, Shop, relaying, schema_differences, tick_until
from support.worker import jobs_in

pytestmark = pytest.mark.frameworks("it migrates Django's databases, each kind of them")

TABLES = (VERSION_TABLE, *(table.name for table in METADATA.sorted_tables))


@pytest.fixture
def manage(outbox_url: str) -> Iterator[Callable[..., str]]:
    """``manage("migrate", …)``: a command of Django, on the database of the outbox, in which nothing is made yet."""
    from django.core.management import call_command
    from django.db import connection

    without_tables(outbox_url)
    with django_databases() as use:
        use(default=outbox_url)

        def run(*args: str, **options: Any) -> str:
            said = io.StringIO()
            call_command(*args, stdout=said, **options)
            return said.getvalue()

        yield run
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS django_migrations")


def without_tables(url: str) -> None:
    database = OutboxDatabase(url)
    try:
        with database.writing() as connection:
            for name in TABLES:
                connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
    finally:
        database.close()


def described(url: str) -> dict[str, Any]:
    """Everything that the product says of the tables."""
    database = OutboxDatabase(url)
    try:
        with database.reading() as connection:

            def ask(question: str) -> Any:
                return [tuple(row) for row in connection.execute(text(question)).all()]

            if database.kind == "sqlite":
                made = ask("SELECT name, sql FROM sqlite_master WHERE tbl_name LIKE 'henchman%' ORDER BY name")
                assert len(made) >= len(TABLES)
                facts: dict[str, Any] = {
                    name: [ask(f"PRAGMA {what}({name})") for what in ("table_xinfo", "index_list")] for name in TABLES
                }
                return facts | {"given out once": "AUTOINCREMENT" in dict(made)["henchman_outbox"]}
            if database.kind == "mysql":
                return {name: by_line(ask(f"SHOW CREATE TABLE {name}")[0][1]) for name in TABLES}
            return {
                "columns": ask(
                    "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default, "
                    "collation_name, is_identity FROM information_schema.columns WHERE table_name LIKE 'henchman%' "
                    "ORDER BY table_name, ordinal_position"
                ),
                "indexes": ask("SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'henchman%' ORDER BY indexname"),
                "constraints": ask(
                    "SELECT conrelid::regclass::text, conname, contype, pg_get_constraintdef(oid) FROM pg_constraint "
                    "WHERE conrelid::regclass::text LIKE 'henchman%' ORDER BY 1, 2"
                ),
                "options": ask("SELECT relname, reloptions FROM pg_class WHERE relname LIKE 'henchman%' ORDER BY 1"),
            }
    finally:
        database.close()


def by_line(statement: str) -> list[str]:
    return sorted(re.sub(r" AUTO_INCREMENT=\d+", "", line).strip(" ,") for line in statement.splitlines())


def test_both_migrations_make_the_same_tables(outbox_url: str, manage: Callable[..., str]) -> None:
    database = OutboxDatabase(outbox_url)
    try:
        database.upgrade()
        by_alembic = described(outbox_url)
        without_tables(outbox_url)
        manage("migrate", "henchman_outbox", verbosity=0)
        assert described(outbox_url) == by_alembic
        assert database.version().fits
        assert (len(database.marker().name), database.marker().namespace) == (32, None)
        assert schema_differences(database) == []
        name = database.marker().name
        database.upgrade()  # by either, in any order, once
        assert database.marker().name == name
    finally:
        database.close()


def test_each_script_of_alembic_has_its_like_in_django() -> None:
    made = Path(migrations.__path__[0])
    scripts = [{one.stem for one in folder.glob("hm_*.py")} for folder in (made, made.parent / "versions")]
    assert scripts[0] == scripts[1] != set()


def test_tables_that_are_there_already_are_left_alone(outbox_url: str, manage: Callable[..., str]) -> None:
    database = OutboxDatabase(outbox_url)
    try:
        database.upgrade()
        name = database.marker().name
        manage("migrate", "henchman_outbox", verbosity=0)
        assert database.marker().name == name
        assert "[X] hm_outbox_0001" in manage("showmigrations", "henchman_outbox")
    finally:
        database.close()


def test_django_has_nothing_to_add_and_takes_it_back(outbox_url: str, manage: Callable[..., str]) -> None:
    manage("migrate", "henchman_outbox", verbosity=0)
    assert "No changes detected" in manage("makemigrations", "--check", "--dry-run")
    assert "no issues" in manage("check")
    manage("migrate", "henchman_outbox", "zero", verbosity=0)
    database = OutboxDatabase(outbox_url)
    try:
        assert database.version().found == ""
    finally:
        database.close()


def test_a_row_of_an_atomic_block_becomes_a_job(
    outbox_url: str, manage: Callable[..., str], redis_url: str, redis: Redis, clock: Hands
) -> None:
    from django.db import connection, transaction

    manage("migrate", verbosity=0)
    shop = Shop(redis_url, outbox_url, transactional=True)
    try:
        with transaction.atomic():
            handle = shop.ship.enqueue(1)
            shop.charge.enqueue(17, 1)
            shop.app.outbox.write(connection, shop.ship.using(line="a"), 2)
            assert handle.admission == "deferred"
        try:
            with transaction.atomic():
                shop.ship.enqueue(3)
                raise KeyError
        except KeyError:
            pass
        with relaying(shop, clock) as relay:
            relay.tick()
            assert [job["args"] for job in jobs_in(redis, "queue:default")] == [[1], [2]]
            assert [job["args"] for job in jobs_in(redis, "queue:charges")] == [[17, 1]]
            tick_until(relay, clock, lambda: not shop.count())
    finally:
        shop.close()


def test_another_product_is_refused() -> None:
    class Editor:
        class connection:  # noqa: N801
            vendor = "oracle"

    with pytest.raises(OutboxError, match="not in oracle"):
        migrations_make()(None, Editor())


def migrations_make() -> Any:
    from henchman.outbox.migrations.hm_outbox_0001 import make

    return make
