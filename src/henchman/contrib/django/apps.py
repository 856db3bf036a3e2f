"""``henchman.contrib.django`` as an app of Django."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from henchman.contrib.django.project import project_app

__all__ = ["HenchmanConfig"]


class HenchmanConfig(AppConfig):  # type: ignore[misc]
    """It imports the module ``jobs`` of every app, where there is one; from then on jobs may be pushed."""

    name = "henchman.contrib.django"
    label = "henchman"
    verbose_name = "Henchman"

    def ready(self) -> None:
        """Called by Django when every model is loaded."""
        app = project_app()
        autodiscover_modules("jobs")
        app.is_ready = True
