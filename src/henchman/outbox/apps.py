"""The outbox as an app of Django: ``INSTALLED_APPS = [..., "henchman.outbox"]``, and ``migrate`` makes its tables."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["OutboxConfig"]


class OutboxConfig(AppConfig):  # type: ignore[misc]
    """It has no models: rows are written by ``app.outbox.write`` and read by the relay."""

    name = "henchman.outbox"
    label = "henchman_outbox"
    verbose_name = "Henchman: outbox"
