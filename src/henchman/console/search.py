"""The page of the one search: what every place holds of a text, and how much of it was looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from henchman.client.runtime import Runtime
from henchman.console.pages import Jump, Query, Screen, View
from henchman.errors import ArgumentError
from henchman.oncall.deeds import Deed
from henchman.oncall.search import queued_jobs, search_everywhere
from henchman.store.call import run

__all__ = ["SearchPage"]

_STEP: Final = 5000  # jobs of queues that one step goes through
_PART: Final = 100  # of them looked at in one call
_ROWS: Final = 50  # found jobs, after which a step ends
_FURTHEST: Final = 12  # digits of the place where a step begins


class SearchPage:
    """One text, looked for everywhere; nothing is done there."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.views: Mapping[tuple[str, int], View] = {("search", 0): self.search}
        self.deeds: Mapping[tuple[str, str], Deed] = {}

    def search(self, query: Query) -> Screen | Jump:
        """The whole id of one thing leads to its page, unless ``show=all`` is said; ``look``: a step further through
        the queues."""
        text = query.search
        facts: dict[str, Any] = {"text": text, "places": [], "empty": [], "step": 0, "problem": ""}
        if not text:
            return Screen("search.html", facts)
        try:
            return self._found(text, query, facts)
        except ArgumentError as error:
            return Screen("search.html", facts | {"problem": str(error)})

    def _found(self, text: str, query: Query, facts: dict[str, Any]) -> Screen | Jump:
        look = query.word("look")
        if look.isascii() and look.isdigit() and len(look) < _FURTHEST:
            keys, mask = self._runtime.keys, self._runtime.registry.mask
            step = queued_jobs(keys, text, int(look), mask, most=_STEP, step=_PART, enough=_ROWS, told=_ROWS + _PART)
            place = run(self._runtime.connections, step)
            return Screen("search.html", facts | {"places": [place], "step": int(look)})
        found = search_everywhere(self._runtime, text)
        if found.exact and not query.word("show", "all"):
            return Jump(found.exact.place)
        empty = [one for one in found.places if not one.hits]
        return Screen("search.html", facts | {"places": found.found, "empty": empty})
