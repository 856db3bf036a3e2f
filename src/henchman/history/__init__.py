"""The record in SQL: what became of every tracked job, drained from the server's stream and read by people."""

from __future__ import annotations

from typing import Any

from henchman.config import Config

__all__ = ["load"]


def load(config: Config) -> Any:
    """The ``history.admin.Admin`` of these settings, imported now. HistoryError says why there is none."""
    from henchman.history.admin import Admin

    return Admin(config)
