"""What the JSON API tells of what is wrong."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["FindingJson", "FindingsJson", "MendJson"]


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
