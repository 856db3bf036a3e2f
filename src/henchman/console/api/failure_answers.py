"""What the JSON API tells of failures: those of a job, and errors; and how it follows from what the inspector found."""

from __future__ import annotations

import time
from typing import Any, Final, TypedDict

from henchman.inspector.differs import DifferenceJson, look_at_error
from henchman.inspector.errors import Narrowed
from henchman.inspector.errors import errors as wanted_errors
from henchman.kernel.text import visible
from henchman.oncall.deeds import Missing

__all__ = ["NARROWED", "CauseJson", "ErrorJson", "ErrorsJson", "FailureJson", "OneErrorJson", "error", "errors"]

NARROWED: Final = ("job", "queue", "host", "version", "q")


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
    ``handled``: the last decision of a person: verb, at, until, more."""

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


class ErrorsJson(TypedDict):
    total: int
    next: str | None
    items: list[ErrorJson]


def errors(api: Any, ask: Any) -> dict[str, Any]:
    found = api._run(wanted_errors(api._keys, Narrowed(*map(ask.word, NARROWED))))
    some = found.groups[ask.first : ask.first + ask.limit]
    return ask.listed([one.to_json(found.at) for one in some], len(found.groups))  # type: ignore[no-any-return]


def error(api: Any, ask: Any, group: str) -> dict[str, Any]:
    now = time.time()
    one, differs = api._run(look_at_error(api._keys, group, now))
    if one is None:
        raise Missing(f"no error is known as {visible(group)[:40]}")
    return {**one.to_json(now), "differs": [each.to_json() for each in differs]}
