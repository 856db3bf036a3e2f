"""What the JSON API tells of failures: those of a job, and errors."""

from __future__ import annotations

from typing import TypedDict

from henchman.inspector.differs import DifferenceJson

__all__ = ["CauseJson", "ErrorJson", "FailureJson", "OneErrorJson"]


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


class ErrorJson(TypedDict):
    """Failures of one kind. ``last_24_hours``: by the hour, this one last; ``trace``: of one of them, where asked;
    ``handled``: what somebody decided: verb, at, until, more."""

    id: str
    error: str
    message: str
    place: str
    state: str
    count: int
    last_24_hours: list[int]
    first: str | None
    last: str | None
    jobs: dict[str, int]
    queues: dict[str, int]
    hosts: dict[str, int]
    versions: dict[str, int]
    attempts: dict[str, int]
    jid: str
    deploy: dict[str, str] | None
    trace: list[str]
    handled: dict[str, str | int | None] | None


class OneErrorJson(ErrorJson):
    """An error, and what its failures have in common that other runs have not."""

    differs: list[DifferenceJson]
