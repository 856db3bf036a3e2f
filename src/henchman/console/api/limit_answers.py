"""What the JSON API tells of limits, and how it follows from what the inspector found."""

from __future__ import annotations

from typing import Any, TypedDict

from henchman.inspector.limits import LimitPage, LimitState, limit_page, some_limits
from henchman.kernel.text import visible
from henchman.oncall.deeds import Missing
from henchman.wire import times

__all__ = ["LimitJson", "LimitLookJson", "LimitsJson", "limits", "one"]


class LimitJson(TypedDict):
    """A limit: ``n`` places, or ``n`` in ``per`` seconds; ``code_n`` and ``code_per`` as code says. Of places: how many
    are taken and how many jobs wait, of so many values of ``by``; ``more``: there are others, not counted here."""

    name: str
    kind: str
    n: int
    per: float | None
    code_n: int
    code_per: float | None
    by_hand: bool
    used: int
    waiting: int
    values: int
    more: bool


class LimitsJson(TypedDict):
    total: int
    next: str | None
    items: list[LimitJson]


class LimitValueJson(TypedDict):
    by: str
    used: int
    waiting: int


class PlaceJson(TypedDict):
    """Who has a place: ``jid`` is null for one that is held outside of jobs."""

    jid: str | None
    since: str | None


class InLineJson(TypedDict):
    jid: str
    since: str | None


class LimitLookJson(LimitJson):
    """``parts``: whose places are taken or waited for, a thousand at a time, or the value alone that the address names.
    ``of``: how it stands with this value, ``holders`` and ``line``: the first fifty who have or want its places."""

    parts: list[LimitValueJson]
    next: str | None
    of: LimitValueJson
    holders: list[PlaceJson]
    line: list[InLineJson]


def limit(state: LimitState) -> dict[str, Any]:
    facts = state.to_json()
    return facts | {"values": facts.pop("parts")}


def limits(api: Any, ask: Any) -> dict[str, Any]:
    found, total = api._run(some_limits(api._keys, ask.word("q"), ask.first, ask.limit))
    return ask.listed([limit(one) for one in found], total)  # type: ignore[no-any-return]


def one(api: Any, ask: Any, name: str, by: str = "") -> dict[str, Any]:
    found: LimitPage | None = api._run(limit_page(api._keys, name, by, ask.first))
    if found is None:
        raise Missing(f"there is no limit {visible(name)[:80]}: GET limits lists those that were ever used")
    return limit(found.state) | {
        "values": max(found.values, len(found.parts)),
        "parts": [part._asdict() for part in found.parts],
        "next": ask.following(found.cursor),
        "of": found.of._asdict(),
        "holders": [
            {"jid": None if one.jid.startswith("~") else one.jid, "since": _iso(one.since)} for one in found.holders
        ],
        "line": [{"jid": jid, "since": _iso(since)} for jid, _, since in found.line],
    }


def _iso(at: float | None) -> str | None:
    return times.iso(at) if at else None
