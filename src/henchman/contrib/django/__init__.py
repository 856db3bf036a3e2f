"""Django: ``INSTALLED_APPS = [..., "henchman.contrib.django"]``, ``HENCHMAN = {…}`` in the settings, and ``app``.

``app`` is the project's one app. It is made from the settings when it is first imported, so modules of jobs and models
may import it while Django loads; settings.py may not. Pushes inside ``atomic`` wait for the commit, unless the settings
say ``"transactional": False``.
"""

from __future__ import annotations

from typing import Any

from henchman.contrib.atomic import AtomicBlock, open_transactions
from henchman.contrib.django.project import DjangoApp, project_app

__all__ = ["AtomicBlock", "DjangoApp", "app", "open_transactions"]

app: DjangoApp


def __getattr__(name: str) -> Any:
    if name == "app":
        return project_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
