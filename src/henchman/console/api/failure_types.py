"""What the JSON API tells of the failures of a job."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["CauseJson", "FailureJson"]


class FailureJson(TypedDict):
    """A failed attempt of a job: its number, when, how many seconds it took, where, and its error; ``group``: its page
    among the errors; ``cause``: why it failed."""

    number: int
    at: str | None
    took: float | None
    process: str
    error: str
    group: str
    message: str
    cause: str


class CauseJson(TypedDict):
    """What caused an error."""

    error: str
    message: str
    backtrace: list[str]
