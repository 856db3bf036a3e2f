"""System checks: what would go wrong later, said by ``manage.py check`` and when a worker starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import DatabaseError, connections

from henchman.config.capsules import capsules_of
from henchman.contrib.django.outbox import address_of, migration
from henchman.contrib.django.project import project_app
from henchman.errors import ConfigError

__all__ = ["check_outbox_table", "check_settings"]

OUTBOX = "henchman.outbox"
POOL = 4  # connections of a pool of psycopg that says nothing of it


def check_settings(app_configs: Any, **kwargs: Any) -> list[checks.CheckMessage]:
    """Of settings alone: nothing is connected."""
    return [*_pools(), *_outbox()]


def _pools() -> Iterator[checks.CheckMessage]:
    app = project_app()
    slots = sum(one.concurrency for one in capsules_of(app.config, app.registry.queues()))
    for alias, database in settings.DATABASES.items():
        pool = (database.get("OPTIONS") or {}).get("pool")
        if not pool:
            continue
        said: dict[str, Any] = pool if isinstance(pool, dict) else {}
        most = said.get("max_size") or said.get("min_size", POOL)
        if database.get("CONN_MAX_AGE", 0) != 0:
            hint = "Set CONN_MAX_AGE to 0: the pool keeps the connections."
            text = f"Database {alias!r} has a pool and CONN_MAX_AGE: Django refuses its first connection."
            yield checks.Error(text, hint, id="henchman.E001")
        if most < slots:
            hint = f"Set max_size of the pool to {slots} or more, or concurrency in HENCHMAN to {most}."
            text = f"A worker has {slots} slots, and the pool of database {alias!r} {most} connections: jobs would "
            yield checks.Warning(text + "wait for one, and fail with PoolTimeout.", hint, id="henchman.W001")


def _outbox() -> Iterator[checks.CheckMessage]:
    app = project_app()
    if app.config.outbox is None:
        return
    if app.outbox_alias:
        try:
            address_of(app.outbox_alias)
        except ConfigError as error:
            yield checks.Error(f"The outbox has no database: {error}.", id="henchman.E002")
    if not apps.is_installed(OUTBOX):
        hint = f'Add "{OUTBOX}" to INSTALLED_APPS and run manage.py migrate, or see to the tables otherwise.'
        yield checks.Warning("outbox is set, and no migration makes its tables.", hint, id="henchman.W002")
    if len(settings.DATABASES) > 1 and not app.outbox_alias:
        text = (
            "There are several databases, and one outbox: a job that is pushed inside atomic(using=…) of another "
            "database becomes a row there, which no worker relays."
        )
        hint = (
            'Name the alias in place of the address, HENCHMAN = {"outbox": "default"}: others push after their commit.'
        )
        yield checks.Warning(text, hint, id="henchman.W003")


def check_outbox_table(app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any) -> list[Any]:
    """Of the databases that are named (``manage.py check --database default``): whether the outbox's table is there."""
    app = project_app()
    if app.config.outbox is None or not apps.is_installed(OUTBOX):
        return []
    found = []
    for alias in databases or ():
        if app.outbox_alias not in ("", alias):
            continue
        try:
            there = "henchman_outbox" in connections[alias].introspection.table_names()
        except DatabaseError:
            continue  # another check says so
        if not there:
            text = f"outbox is set, and database {alias!r} has no table henchman_outbox."
            hint = f"Run {migration(alias)}."
            found.append(checks.Warning(text, hint, id="henchman.W004"))
    return found
