"""The app of a Django project: its settings are those of Django, and it pushes nothing before Django has loaded."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from henchman.app import App
from henchman.client.connector import AsyncConnector, Connector
from henchman.contrib.django.connections import ConnectionCare
from henchman.contrib.django.outbox import address_of, check_alias, migration
from henchman.contrib.project import checked_settings
from henchman.errors import ConfigError
from henchman.outbox import load as load_outbox

__all__ = ["TARGET", "DjangoApp", "project_app", "project_settings"]

NAME = "henchman.contrib.django"
TARGET = f"{NAME}:app"  # as the command line names an app


def project_settings() -> dict[str, Any]:
    """``HENCHMAN`` of the settings, with what holds where it says nothing.

    ImproperlyConfigured when it is no dict, or names what is no setting.
    """
    try:
        return {"transactional": True, **checked_settings(getattr(settings, "HENCHMAN", {}))}
    except ConfigError as error:
        raise ImproperlyConfigured(str(error)) from None


class DjangoApp(App):
    """The project's app. It takes definitions from the start; pushes are refused until Django has loaded."""

    def __init__(self) -> None:
        try:
            super().__init__(**project_settings())
            if alias := self.outbox_alias:
                check_alias(alias, settings.DATABASES)
        except ConfigError as error:
            raise ImproperlyConfigured(f"HENCHMAN: {error}") from error
        self.is_ready = False
        self.server_middleware.prepend(ConnectionCare(self.events))

    @property
    def outbox_alias(self) -> str:
        """Which of ``DATABASES`` has the outbox; empty when none is named."""
        named = self.config.outbox or ""
        return "" if "://" in named else named

    def open_outbox(self) -> Any:
        """As ``App.open_outbox``, with the address of the alias in ``DATABASES``."""
        if not self.outbox_alias:
            return super().open_outbox()
        address = address_of(self.outbox_alias)
        return load_outbox("status").OutboxDatabase(address, migration(self.outbox_alias))

    def load_imports(self) -> None:
        """Set Django up where nobody has, which imports the module ``jobs`` of each of its apps; then ``imports``."""
        if not apps.ready:
            django.setup()
        super().load_imports()

    @property
    def connections(self) -> Connector:
        """As ``App.connections``; ConfigError while Django loads."""
        self._check_ready()
        return super().connections

    @property
    def aconnections(self) -> AsyncConnector:
        """As ``App.aconnections``; ConfigError while Django loads."""
        self._check_ready()
        return super().aconnections

    def _check_ready(self) -> None:
        if self.is_ready or self.stand_ins:
            return
        if apps.ready:
            raise ConfigError(f'add "{NAME}" to INSTALLED_APPS: its app pushes nothing without that')
        raise ConfigError(
            "Django is still loading, and a job that is pushed now would be pushed by every process that imports this "
            "module: push from a view, a command, a job, or the ready() of an app that stands behind "
            f'"{NAME}" in INSTALLED_APPS'
        )


_lock = threading.Lock()
_made: list[DjangoApp] = []


def project_app() -> DjangoApp:
    """The app, made at the first call. ImproperlyConfigured when the settings of Django are not read yet."""
    with _lock:
        if not _made:
            spec = getattr(sys.modules.get(os.environ.get("DJANGO_SETTINGS_MODULE", "")), "__spec__", None)
            if getattr(spec, "_initializing", False):
                raise ImproperlyConfigured(
                    f"{NAME}.app is made from the settings, so they cannot import it: set HENCHMAN = {{…}} there, and "
                    "import the app where jobs are defined"
                )
            _made.append(DjangoApp())
        return _made[0]
