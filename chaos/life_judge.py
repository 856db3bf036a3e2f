"""The lives of tracked jobs as SQL tells them: each change once. One that is missing, or was written twice, breaks the
chain: what follows what is known."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

__all__ = ["broken", "lives"]

_ENDS = {"finished", "failed", "error", "cancelled", "expired"}
#: what may come after each status; "" is before the first. An error goes on when its batch is retried.
_AFTER: Mapping[str, set[str]] = {
    "": {"enqueued", "scheduled", "blocked"},
    "blocked": {"enqueued", "scheduled", "cancelled", "expired", "error"},  # as what it waited for has ended
    "scheduled": {"enqueued", "cancelled", "expired"},
    "enqueued": {
        "enqueued",
        "blocked",
        "working",
        "retrying",
        "scheduled",
        *_ENDS,
    },  # by its limit; given back, it is enqueued once more
    "working": {"enqueued", "retrying", "scheduled", *_ENDS},
    "retrying": {"enqueued", "cancelled", "expired"},
    "error": {"enqueued"},
}
_NONE: Mapping[str, set[str]] = {}


def lives(record: Path) -> dict[str, list[str]]:
    """The statuses of each job in their order, by jid."""
    found: dict[str, list[str]] = defaultdict(list)
    with sqlite3.connect(f"file:{record}?mode=ro", uri=True) as db:
        query = (
            "SELECT jid, status FROM henchman_changes WHERE jid IN (SELECT jid FROM henchman_events) ORDER BY jid, sid"
        )
        for jid, status in db.execute(query):
            found[jid].append(status)
    return found


def broken(
    life: Sequence[str], retried: int | None, revived: bool, more: Mapping[str, set[str]] = _NONE
) -> Iterator[str]:
    """What is wrong with a life. ``retried``: how often it was to be retried, where that is known; ``revived``: whether
    an error of it may go on; ``more``: what else may come after a status."""
    for one, after in pairwise(("", *life)):
        fine = after in _AFTER.get(one, set()) or after in more.get(one, set())
        if not fine or (one == "error" and not revived):
            yield f"{after} after {one or 'nothing'}"
    if life and life[-1] not in _ENDS:
        yield f"it ends as {life[-1]}"
    if retried is not None and life.count("retrying") != retried:
        yield f"retried {life.count('retrying')} times, by the ledger {retried}"
