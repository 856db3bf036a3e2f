"""Saved views: filters of list pages under a name, on the server, for everybody who looks at a console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from henchman.errors import ArgumentError
from henchman.kernel.clock import ServerClock
from henchman.kernel.text import shorten
from henchman.store.call import Procedure, command
from henchman.store.keys import Keys
from henchman.store.leases import ask_time

__all__ = ["MOST", "VIEWED", "SavedView", "delete_view", "save_view", "saved_views"]

MOST: Final = 50  #: views that are kept
LONGEST: Final = 40  # characters of a name
_VALUE: Final = 200  # of what narrows a list
#: pages that have views → what may narrow their lists
VIEWED: Final[Mapping[str, tuple[str, ...]]] = {
    "errors": ("q", "job", "queue", "show", "cause", "sort"),
    "queues": ("q", "sort"),
    "batches": ("q", "show"),
    "retries": ("q",),
    "scheduled": ("q",),
    "dead": ("q",),
    "metrics": ("q", "by", "vs", "sort"),
    "history": ("q", "columns"),
    "audit": ("q",),
}


class SavedView(msgspec.Struct, frozen=True):
    """A view: the page, its name, what narrows the list; who saved it, and when (Unix seconds)."""

    page: str
    name: str
    query: dict[str, str]
    by: str = ""
    at: float = 0.0


def saved_views(keys: Keys) -> Procedure[list[SavedView]]:
    """All of them, by page and name."""
    flat: list[bytes] = yield command("HGETALL", keys.views, decode=list)
    found = []
    for stored in flat[1::2]:
        try:
            found.append(msgspec.json.decode(stored, type=SavedView))
        except msgspec.MsgspecError:  # somebody wrote something else there
            continue
    return sorted(found, key=lambda one: (one.page, one.name))


def save_view(keys: Keys, page: str, name: str, query: Mapping[str, str], by: str = "") -> Procedure[SavedView]:
    """Keep what narrows the list of ``page`` under a name; what had that name there goes. ArgumentError for what makes
    no sense, and for one view too many."""
    if page not in VIEWED:
        raise ArgumentError(f"{page[:40]!r} has no views: {', '.join(VIEWED)} have")
    kept = {one: query[one][:_VALUE] for one in VIEWED[page] if query.get(one)}
    if not kept:
        raise ArgumentError(f"nothing narrows the list: say {', '.join(VIEWED[page])}")
    name = " ".join(name.split())
    if not name or len(name) > LONGEST:
        raise ArgumentError(f"{name[:60]!r} is no name of a view: give 1 to {LONGEST} characters")
    known = yield from saved_views(keys)
    if len(known) >= MOST and not any((one.page, one.name) == (page, name) for one in known):
        raise ArgumentError(f"{MOST} views are kept: delete one first")
    at: float = yield ask_time(ServerClock())
    view = SavedView(page, name, kept, shorten(by, 200), at)
    yield command("HSET", keys.views, f"{page}/{name}", msgspec.json.encode(view), again=True)
    return view


def delete_view(keys: Keys, page: str, name: str) -> Procedure[bool]:
    """Forget a view. False: there is none of that name."""
    return bool((yield command("HDEL", keys.views, f"{page}/{name}")))
