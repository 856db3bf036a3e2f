"""Django in tests: its settings, which a process can be given once, and its databases, for the length of a block."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["configure", "django_database", "django_databases"]


def configure() -> None:
    """Settings with one database in memory, and the outbox as the only app."""
    import django
    from django.apps import apps
    from django.conf import settings

    if not settings.configured:
        base = {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:henchman?mode=memory&cache=shared"}
        settings.configure(DATABASES={"default": base}, INSTALLED_APPS=["henchman.outbox"], USE_TZ=True)
    if not apps.ready:
        django.setup()


def django_database(url: str) -> dict[str, Any]:
    """The entry of DATABASES for an address of our test servers."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": parts.path[1:] if parts.path[1:2] == "/" else ":memory:",
        }
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    name, user = parts.path.strip("/"), parts.username
    if parts.scheme == "postgresql":
        return {"ENGINE": "django.db.backends.postgresql", "NAME": name, "USER": user, "HOST": query["host"]}
    options = {"unix_socket": query["unix_socket"]}
    return {"ENGINE": "django.db.backends.mysql", "NAME": name, "USER": user, "HOST": "localhost", "OPTIONS": options}


@contextmanager
def django_databases() -> Iterator[Callable[..., None]]:
    """``use(default=url, other=url)``: these are Django's databases for the length of the block."""
    import pymysql
    from asgiref.sync import SyncToAsync
    from django.db import connections

    configure()
    had_mysql = "MySQLdb" in sys.modules
    pymysql.install_as_MySQLdb()
    before = dict(connections.settings)

    def forget_here() -> None:
        for alias in list(connections.settings):
            with suppress(AttributeError):
                connections[alias].close()
                del connections[alias]

    def forget() -> None:
        """Each thread keeps what it connected: also that of asgiref, on which coroutines of all tests meet the ORM."""
        forget_here()
        SyncToAsync.single_thread_executor.submit(forget_here).result(20)

    def use(**urls: str) -> None:
        forget()
        connections.settings.clear()
        entries = {alias: django_database(url) for alias, url in urls.items()}
        connections.settings.update(connections.configure_settings(entries))

    try:
        yield use
    finally:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block:
                connection.close()
        forget()
        connections.settings.clear()
        connections.settings.update(before)
        if not had_mysql:
            for name in [one for one in sys.modules if one == "MySQLdb" or one.startswith("MySQLdb.")]:
                del sys.modules[name]
