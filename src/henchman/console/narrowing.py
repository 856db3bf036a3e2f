"""What narrows the list of a set: the facets counted of it, and the terms of the present search, each to take away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from henchman.inspector.filters import FIELDS, EntryFilter, Facets
from henchman.kernel.terms import quoted

__all__ = ["LONGEST_SEARCH", "FacetLink", "FacetRow", "facet_rows", "term_links"]

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
