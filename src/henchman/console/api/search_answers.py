"""What the JSON API tells of the one search over every place."""

from __future__ import annotations

from typing import Any, TypedDict

from henchman.oncall.search import search_everywhere

__all__ = ["SearchJson", "search"]


class FurtherJson(TypedDict):
    """A page of the console, and what narrows it."""

    page: list[str]
    query: dict[str, str | int | float]


class HitJson(FurtherJson):
    """A find: its name, and what is said of it."""

    name: str
    text: str


class FoundInJson(TypedDict):
    """What one place holds: ``looked`` of ``of`` were looked at (0: that is not told); ``more``: the page that goes on
    there; ``problem``: why it was not searched."""

    title: str
    items: list[HitJson]
    looked: int
    of: int
    whole: bool
    more: FurtherJson | None
    problem: str | None


class SearchJson(TypedDict):
    """``exact``: the one thing whose whole id the text is."""

    items: list[FoundInJson]
    exact: HitJson | None


def search(api: Any, ask: Any) -> dict[str, Any]:
    text = ask.word("q").strip()
    if not text:
        return {"items": [], "exact": None}
    found = search_everywhere(api._runtime, text)
    exact = found.exact.to_json() if found.exact else None
    return {"items": [one.to_json() for one in found.places], "exact": exact}
