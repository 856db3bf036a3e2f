"""What the tests of the API read."""

from __future__ import annotations

from typing import NamedTuple

from henchman import App

__all__ = ["HOSTILE", "SECRET", "Import"]

#: a message that would be a formula, with what breaks lines, quotes and columns
HOSTILE = '=cmd|"/c calc"!A1;\n"two",\rlines\t\u202e\0 é'

SECRET = "the-card-of-nobody"


class Import(NamedTuple):
    """The app and the id of its finished batch."""

    app: App
    batch: str
