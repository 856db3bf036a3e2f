"""``HENCHMAN = {"outbox": "shop"}``: the outbox in a database of Django, by its alias in ``DATABASES``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.errors import ConfigError, DefinitionError, OutboxError
from henchman.outbox.relay import Relay
from support.django import django_databases
from support.outbox import Hands, made_anew, removed, tick_until
from support.worker import jobs_in

pytestmark = pytest.mark.frameworks("it relays the outbox of Django's databases, each kind of them")

Use = Callable[..., None]


@pytest.fixture
def use() -> Iterator[Use]:
    """``use(default=url, …)``: these are Django's databases."""
    with django_databases() as made:
        yield made


@contextmanager
def project(redis_url: str, outbox: str) -> Iterator[Any]:
    """The app of a project with these settings, and its job ``note``."""
    from django.test import override_settings

    from henchman.contrib.django.project import DjangoApp

    with override_settings(HENCHMAN={"outbox": outbox, "redis_url": redis_url}):
        app = DjangoApp()
    app.is_ready = True

    @app.job(name="note")
    def note(number: int) -> None: ...

    try:
        yield app
    finally:
        app.close()


@pytest.fixture
def app(use: Use, outbox_url: str, tmp_path: Path, redis_url: str) -> Iterator[Any]:
    """Its outbox is in the database ``shop``; there is another, ``default``."""
    made_anew(outbox_url)
    use(default=f"sqlite:///{tmp_path}/other.sqlite", shop=outbox_url)
    with project(redis_url, "shop") as made:
        yield made


@contextmanager
def relaying(app: App, clock: Hands) -> Iterator[Relay]:
    relay = Relay(app, app.open_outbox(), clock)
    relay._listen = lambda: 0.0  # type: ignore[method-assign]
    try:
        yield relay
    finally:
        relay.stop()


def written(alias: str = "shop") -> int:
    """How many rows stand in the outbox, as Django sees it."""
    from django.db import connections

    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM henchman_outbox")
        return int(cursor.fetchone()[0])


def numbers(redis: Redis) -> list[int]:
    return [job["args"][0] for job in jobs_in(redis, "queue:default")]


def test_a_push_in_its_database_is_a_row_that_the_relay_finds(app: Any, redis: Redis) -> None:
    from django.db import transaction

    note, clock = app.registry.get("note"), Hands()
    with transaction.atomic(using="shop"):
        handle = note.enqueue(1)
        assert written() == 1
    with suppress(KeyError), transaction.atomic(using="shop"):
        note.enqueue(2)
        raise KeyError
    assert (handle.admission, numbers(redis), written()) == ("deferred", [], 1)
    with relaying(app, clock) as relay:
        tick_until(relay, clock, lambda: not written())
    assert numbers(redis) == [1]


def test_a_push_in_another_database_waits_for_its_commit_and_is_no_row(app: Any, redis: Redis) -> None:
    from django.db import transaction

    note = app.registry.get("note")
    with transaction.atomic():
        handle = note.enqueue(1)
        assert (handle.admission, numbers(redis)) == ("deferred", [])
    assert (handle.admission, numbers(redis), written()) == ("created", [1], 0)
    with transaction.atomic(), pytest.raises(DefinitionError, match=r"in the database 'shop'.*open in 'default'"):
        note.using(outbox=True).enqueue(2)
    with transaction.atomic(), transaction.atomic(using="shop"):
        note.using(db="shop").enqueue(3)
        note.using(db="shop", outbox=False).enqueue(4)
    assert (numbers(redis), written()) == ([1, 4], 1)


def test_the_relay_is_woken_once_after_the_commit(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import connections, transaction

    note, rung = app.registry.get("note"), []
    monkeypatch.setattr(app.outbox._waker, "ring", lambda: rung.append(written()))
    with transaction.atomic(using="shop"):
        note.enqueue(1)
        note.enqueue(2)
        with suppress(KeyError), transaction.atomic(using="shop"):
            note.enqueue(3)
            raise KeyError
        assert (rung, written()) == ([], 2)
    assert rung == [2]
    with suppress(KeyError), transaction.atomic(using="shop"):
        note.enqueue(4)
        raise KeyError
    assert rung == [2]
    note.using(outbox=connections["shop"]).enqueue(5)  # in no block: committed at once
    assert rung == [2, 3]


def test_without_tables_the_push_and_the_relay_name_the_command(use: Use, outbox_url: str, redis_url: str) -> None:
    from django.db import transaction

    removed(outbox_url)
    use(default=outbox_url)
    command = "manage.py migrate henchman_outbox --database default"
    with project(redis_url, "default") as app:
        with pytest.raises(OutboxError, match=f"has no tables of the outbox.*{command}"), transaction.atomic():
            app.registry.get("note").enqueue(1)
        database = app.open_outbox()
        try:
            with pytest.raises(OutboxError, match=command):
                database.check_schema()
        finally:
            database.close()


def test_an_unknown_alias_is_refused_with_those_that_there_are(use: Use, redis_url: str) -> None:
    from django.core.exceptions import ImproperlyConfigured

    use(default="sqlite:////tmp/x", shop="sqlite:////tmp/y")
    said = r"HENCHMAN: outbox = 'shopp': DATABASES has no such alias, only 'default', 'shop'; did you mean 'shop'\?"
    with pytest.raises(ImproperlyConfigured, match=said), project(redis_url, "shopp"):
        pass


POSTGRESQL = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop"}
MYSQL = {"ENGINE": "django.db.backends.mysql", "NAME": "shop", "USER": "u"}
SQLITE = {"ENGINE": "django.db.backends.sqlite3"}


@pytest.mark.parametrize(
    ("entry", "due"),
    [
        (POSTGRESQL, {"dbname": "shop"}),
        (
            POSTGRESQL | {"USER": "a@b", "PASSWORD": "p/:?#@%", "HOST": "db.example", "PORT": 5433},
            {"dbname": "shop", "user": "a@b", "password": "p/:?#@%", "host": "db.example", "port": "5433"},
        ),
        (POSTGRESQL | {"HOST": "/var/run/pg"}, {"dbname": "shop", "host": "/var/run/pg"}),
        (
            POSTGRESQL
            | {
                "HOST": "::1",
                "OPTIONS": {"sslmode": "verify-full", "pool": True, "isolation_level": 4, "service": "s"},
            },
            {"dbname": "shop", "host": "::1", "sslmode": "verify-full", "service": "s"},
        ),
        (
            POSTGRESQL | {"OPTIONS": {"options": "-c search_path=shop", "assume_role": "owner"}},
            {"dbname": "shop", "options": "-c search_path=shop -c role=owner"},
        ),
        (MYSQL, {"host": "localhost", "user": "u", "database": "shop"}),
        (
            MYSQL | {"HOST": "::1", "PORT": "3307", "PASSWORD": "@", "OPTIONS": {"charset": "x", "ssl": {"ca": "/ca"}}},
            {"host": "::1", "port": 3307, "user": "u", "password": "@", "database": "shop", "ssl": {"ca": "/ca"}},
        ),
        (MYSQL | {"HOST": "/s"}, {"host": "localhost", "unix_socket": "/s", "user": "u", "database": "shop"}),
    ],
)
def test_the_relay_connects_as_django_does(use: Use, entry: dict[str, Any], due: dict[str, Any]) -> None:
    from django.db import connections

    from henchman.contrib.django.outbox import address_of
    from henchman.outbox.database import OutboxDatabase

    use(default="sqlite:////tmp/x")
    connections.settings.update(connections.configure_settings({"shop": dict(entry)} | dict(connections.settings)))
    database = OutboxDatabase(address_of("shop"))
    found = database.engine.dialect.create_connect_args(database.engine.url)[1]
    assert {name: found[name] for name in found if name not in ("charset", "client_flag", "context")} == due
    database.close()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"ENGINE": "django.db.backends.dummy"}, "lives in PostgreSQL, MySQL, MariaDB or SQLite, and ENGINE"),
        (SQLITE | {"NAME": ":memory:"}, "NAME of this database is ':memory:', and a worker is another process"),
        (
            MYSQL | {"OPTIONS": {"ssl_mode": "REQUIRED"}},
            "PyMySQL, has no like of ssl_mode in OPTIONS; give the address",
        ),
    ],
)
def test_what_can_have_no_outbox_says_why(use: Use, entry: dict[str, Any], said: str) -> None:
    from django.db import connections

    from henchman.contrib.django.outbox import address_of

    use(default="sqlite:////tmp/x")
    connections.settings.update(connections.configure_settings({"shop": dict(entry)} | dict(connections.settings)))
    with pytest.raises(ConfigError, match=said):
        address_of("shop")
