"""Rights that a database user lacks: which, on what, and the statement that gives them. Needs no SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from henchman.errors import HenchmanError

__all__ = ["missing_right", "naming_rights"]

_POSTGRESQL = "42501"  # SQLSTATE: insufficient privilege
_MYSQL = (1142, 1143)  # a table, a column
_THERE = re.compile(r"permission denied for (?:table|relation) (\S+)|for table `?(?:[^`\s]+`?\.`)?'?([^`'\s]+)")
_OTHER = re.compile(r"permission denied for (sequence|schema) (\S+)")
_NEEDED = {"UPDATE": "SELECT, UPDATE", "DELETE": "SELECT, DELETE"}  # both read what they change


def missing_right(error: BaseException, statement: str, user: str) -> str:
    """What ``user`` lacks for ``statement``, and how to give it; empty when ``error`` says something else."""
    cause: Any = getattr(error, "orig", None) or error.__cause__ or error
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    code = cause.args[0] if cause.args else None
    if state != _POSTGRESQL and code not in _MYSQL:
        return ""
    text, verb = str(cause), statement.split(None, 1)[0].upper() if statement.strip() else "SELECT"
    if other := _OTHER.search(text):
        right, place = f"USAGE ON {other[1].upper()} {other[2]}", f"{other[1]} {other[2]}"
        return f"the database user {user} may not use {place}: GRANT {right} TO {user}"
    found = _THERE.search(text)
    table = (found[1] or found[2]) if found else "henchman_outbox"
    rights = "INSERT, UPDATE, SELECT" if "ON DUPLICATE KEY" in statement.upper() else _NEEDED.get(verb, verb)
    return f"the database user {user} lacks {verb} on {table}: GRANT {rights} ON {table} TO {user}"


@contextmanager
def naming_rights(kind: type[HenchmanError], statement: str, user: str) -> Iterator[None]:
    """``kind``, which names the right, for an error that tells of one that is missing; another error stays itself."""
    try:
        yield
    except Exception as error:
        if text := missing_right(error, str(getattr(error, "statement", None) or statement), user):
            raise kind(text) from error
        raise
