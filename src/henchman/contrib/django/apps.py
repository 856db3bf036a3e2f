"""``henchman.contrib.django`` as an app of Django."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.utils.module_loading import autodiscover_modules

from henchman.contrib.django.checks import check_outbox_table, check_settings
from henchman.contrib.django.project import project_app

__all__ = ["HenchmanConfig"]


def load() -> Any:
    """The backend of Django's tasks, which Django 5 has only as a package of its own."""
    from henchman.contrib.django import tasks

    return tasks


class HenchmanConfig(AppConfig):  # type: ignore[misc]
    """It imports the module ``jobs`` of every app, where there is one; from then on jobs may be pushed."""

    name = "henchman.contrib.django"
    label = "henchman"
    verbose_name = "Henchman"

    def ready(self) -> None:
        """Called by Django when every model is loaded."""
        app = project_app()
        checks.register(check_settings, "henchman")
        checks.register(check_outbox_table, "henchman", checks.Tags.database)
        autodiscover_modules("jobs")
        if any("henchman." in str(one.get("BACKEND")) for one in getattr(settings, "TASKS", {}).values()):
            load().serve_queues()
        app.is_ready = True
