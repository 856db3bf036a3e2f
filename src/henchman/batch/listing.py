"""Batches for people: all that the server knows, the newest first, some of them by what is looked for; and one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from henchman.batch.batch import BatchStatus, status_of
from henchman.store import batches
from henchman.store.call import Procedure
from henchman.store.keys import Keys

__all__ = ["LOOKED", "BatchList", "BatchRow", "Show", "find_batches", "newest_batches", "one_batch"]

Show = Literal["", "open", "bad", "steps"]
LOOKED: Final = 1000  # of the newest batches, when some are looked for


class BatchRow(NamedTuple):
    """One batch; how many steps it has, 0: it is no workflow; whether it keeps what its jobs return."""

    status: BatchStatus
    steps: int = 0
    results: bool = False


class BatchList(NamedTuple):
    """Some batches, and how many fit in all. ``looked``: at how many of the newest, 0: at all of them."""

    rows: list[BatchRow]
    total: int
    looked: int = 0


def newest_batches(keys: Keys, first: int, most: int) -> Procedure[BatchList]:
    """The batches that the server knows, from place ``first`` on, the newest first: two calls."""
    ids, total = yield batches.newest_page(keys, first, most)
    return BatchList((yield from _rows(keys, ids)), total)


def find_batches(keys: Keys, text: str, show: Show, first: int, most: int) -> Procedure[BatchList]:
    """Those of the newest ``LOOKED`` batches that have ``text`` in their description, their tags or at the beginning of
    their id, in any case. ``show``: under way, with failures, or workflows alone. Three calls, whatever fits."""
    ids, known = yield batches.newest_page(keys, 0, LOOKED)
    seen: list[batches.Glimpse] = (yield batches.glimpses(keys, ids)) if ids else []
    fitting = [id for id, one in zip(ids, seen, strict=True) if _fits(id, one, text.lower(), show)]
    rows = yield from _rows(keys, fitting[first : first + most])
    return BatchList(rows, len(fitting), LOOKED if known > LOOKED else 0)


def _fits(id: str, one: batches.Glimpse, text: str, show: Show) -> bool:
    shown = {
        "": bool(one.state),
        "open": one.state in ("open", "closed"),
        "bad": bool(one.bad or one.why),
        "steps": one.steps > 0,
    }
    return shown[show] and (id.startswith(text) or text in one.description.lower() or text in one.tags.lower())


def one_batch(keys: Keys, batch: str) -> Procedure[BatchRow | None]:
    """The batch of this id; None when the server knows none (any more)."""
    found = yield from _rows(keys, [batch])
    return found[0] if found else None


def _rows(keys: Keys, ids: Sequence[str]) -> Procedure[list[BatchRow]]:
    found = (yield batches.several(keys, ids)) if ids else []
    return [
        BatchRow(status_of(id, facts), steps, facts.facts.get("results") == "1")
        for id, (facts, steps) in zip(ids, found, strict=True)
        if facts.facts  # it was forgotten meanwhile
    ]
