"""The outbox: a job that is a row of the caller's transaction, and the relay that brings such rows to the server."""

from __future__ import annotations

from typing import Any, Literal

from henchman.errors import ConfigError

__all__ = ["load"]


def load(part: Literal["session", "relay", "status"]) -> Any:
    """The module of this room that is called ``part``, imported now: it needs SQLAlchemy, which a program with Django
    may not have. ConfigError says so."""
    try:
        if part == "session":
            from henchman.outbox import session

            return session
        if part == "relay":
            from henchman.outbox import relay

            return relay
        from henchman.outbox import status
    except ModuleNotFoundError as error:
        raise ConfigError(f"the outbox needs SQLAlchemy and Alembic: pip install 'henchman[sql]' ({error})") from error
    return status
