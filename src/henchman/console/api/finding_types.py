"""What the JSON API tells of what is wrong, what is usual, and what people look for."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["FindingJson", "FindingsJson", "MendJson", "UsualJson", "ViewJson", "ViewsJson"]


class MendJson(TypedDict):
    """An act as ``POST acts`` takes it."""

    page: str
    act: str
    names: list[str]


class FindingJson(TypedDict):
    """``page``, ``name`` and ``filters`` say which page of the console shows it; ``act`` mends it, where one does.
    ``muted_until``: it is muted so long."""

    id: str
    severity: str
    kind: str
    text: str
    evidence: str
    page: str
    name: str
    advice: str
    filters: dict[str, str]
    act: MendJson | None
    muted_until: str | None


class FindingsJson(TypedDict):
    """What is wrong, the worst first; and what is wrong as well, and muted."""

    items: list[FindingJson]
    muted: list[FindingJson]


class ViewJson(TypedDict):
    """A saved view: what narrows the list of a page, who saved it, and when."""

    page: str
    name: str
    query: dict[str, str]
    by: str
    at: str | None


class ViewsJson(TypedDict):
    items: list[ViewJson]


class UsualJson(TypedDict):
    """How long runs of a class take that end well: half of them, and 95 of 100, stay below so many seconds (null:
    335 s is no limit of them), their mean, and how many ``times`` as long this one has taken."""

    half_s: float | None
    most_s: float | None
    mean_s: float
    times: float | None
