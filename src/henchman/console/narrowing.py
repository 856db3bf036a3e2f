"""What narrows and orders a list: facets counted of a set, the terms of the present search, each to take away, and the
column by which a table is sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from henchman.inspector.filters import FIELDS, EntryFilter, Facets
from henchman.kernel.terms import quoted

__all__ = ["LONGEST_SEARCH", "FacetLink", "FacetRow", "facet_rows", "in_order", "term_links"]

T = TypeVar("T")

LONGEST_SEARCH: Final = 200  # characters
_VALUES: Final = 6  # of a facet


class FacetLink(NamedTuple):
    """A value of a facet: how many have it, the search that has it as a filter (or has it no more, where it
    ``is_set``); ``term``: as it is written."""

    value: str
    many: int
    search: str
    is_set: bool
    term: str


class FacetRow(NamedTuple):
    """The values of one field, most first; ``more`` of them are not shown."""

    title: str
    values: Sequence[FacetLink]
    more: int


def term_links(wanted: EntryFilter) -> list[tuple[str, str]]:
    """Each term that no count of a facet stands for, and the search without it."""
    shown = [(field, wanted.value(field)) for field in FIELDS]
    return [
        (one.source, wanted.without(place))
        for place, one in enumerate(wanted.terms)
        if not one.only or (one.name, one.only) not in shown
    ]


def facet_rows(found: Facets, wanted: EntryFilter) -> list[FacetRow]:
    """The facets of a set, as the page links to them."""
    rows = []
    for field in FIELDS:
        counts, now = dict(found.counts[field]), wanted.value(field)
        shown = list(counts)[:_VALUES]
        shown = [*([now] if now and now not in shown else []), *shown]
        links = [
            FacetLink(
                value,
                counts.get(value, 0),
                wanted.having(field, "" if value == now else value),
                value == now,
                f"{field}:{quoted(value)}",
            )
            for value in shown
        ]
        values = [one for one in links if len(one.search) <= LONGEST_SEARCH]
        if values:
            rows.append(FacetRow(f"By {field}", values, len(counts) - sum(one.value in counts for one in values)))
    return rows


def in_order(rows: Iterable[T], columns: Mapping[str, Callable[[T], Any]], said: str) -> list[T]:
    """Rows by the column that is ``said``: numbers the largest first, texts by alphabet; behind a ``-`` turned round.
    Those without a value come last. As they are where no column is called so."""
    value = columns.get(said.removeprefix("-"))
    if value is None:
        return list(rows)
    every = [(value(row), row) for row in rows]
    known = [one for one in every if one[0] is not None]
    is_text = bool(known) and isinstance(known[0][0], str)
    known.sort(key=lambda one: one[0], reverse=is_text == said.startswith("-"))
    return [row for _, row in known] + [row for found, row in every if found is None]
