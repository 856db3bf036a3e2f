"""What the JSON API tells of what ended on each day."""

from __future__ import annotations

from typing import Any, TypedDict

from henchman.errors import ArgumentError
from henchman.inspector.days import day_of, days_of
from henchman.oncall.deeds import Missing

__all__ = ["DayJson", "DaysJson", "days", "one"]


_Class = TypedDict("_Class", {"class": str})


class DayCountsJson(TypedDict):
    day: str
    counts: dict[str, int]


class DaysJson(TypedDict):
    """``counts``: jobs by status. ``source``: ``history`` or ``server``; ``problem``: why history was not read, where
    it should have been."""

    source: str
    problem: str | None
    items: list[DayCountsJson]


class EndedJobJson(_Class):
    jid: str
    status: str
    ended_at: str
    error_class: str | None
    message: str | None


class DayJson(TypedDict):
    """``counts``: jobs by class and status. ``total``: how many can be listed; of what the server counts it remembers
    the latest alone."""

    day: str
    source: str
    problem: str | None
    counts: dict[str, dict[str, int]]
    total: int
    next: str | None
    items: list[EndedJobJson]


def days(api: Any, ask: Any) -> dict[str, Any]:
    found = days_of(api._runtime, ask.word("source"))
    items = [{"day": day, "counts": counts} for day, counts in found.days.items()]
    return {"source": found.source, "problem": found.problem or None, "items": items}


def one(api: Any, ask: Any, day: str) -> dict[str, Any]:
    status = [ask.word("ended")] if ask.word("ended") else None
    try:
        found = day_of(api._runtime, day, status, ask.word("job"), ask.first, ask.limit, ask.word("source"))
    except ArgumentError as error:
        raise Missing(str(error)) from None
    facts = {"day": found.day, "source": found.source, "problem": found.problem or None, "counts": found.counts}
    return facts | ask.listed([one.to_json() for one in found.jobs], found.listed)  # type: ignore[no-any-return]
