"""What people hand to the actions and looks, checked where they do: an error names the value and the way out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from henchman.errors import ArgumentError
from henchman.inspector.entry import Entry

__all__ = ["checked_entries", "checked_entry", "checked_page", "checked_text"]


def _shown(value: object) -> str:
    return f"{value!r:.100}"


def checked_text(call: str, text: object, meaning: str = "the id of a job, such as handle.jid") -> str:
    """``text`` if it is one; ``call`` is the name of the method, ``meaning`` what it wants."""
    if not isinstance(text, str):
        raise ArgumentError(f"{call}({_shown(text)}): give a text, {meaning}")
    return text


def checked_page(first: object, most: object) -> tuple[int, int]:
    """Where a page begins, and how long it is at most."""
    if not (_whole(first) and _whole(most)) or first < 0 or most < 1:  # type: ignore[operator]
        raise ArgumentError(
            f"page({_shown(first)}, {_shown(most)}): give two whole numbers, first is 0 or more, most is 1 or more"
        )
    return first, most  # type: ignore[return-value]


def _whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def checked_entry(entry: object) -> Entry:
    """One of those that ``find``, ``page``, ``between`` and ``matching`` give."""
    if not isinstance(entry, Entry):
        raise ArgumentError(f"{_shown(entry)} is no entry: find(jid), page() and matching(text) give entries")
    return entry


def checked_entries(entries: Entry | Iterable[Entry]) -> Iterable[Entry]:
    """One entry or several, each checked as it is reached."""
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        return [checked_entry(entries)]
    return _each(entries)


def _each(entries: Iterable[Entry]) -> Iterator[Entry]:
    for entry in entries:
        yield checked_entry(entry)
