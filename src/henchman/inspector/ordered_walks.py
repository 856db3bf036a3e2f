"""Going through the ids of an ordered queue, page by page, while it changes.

Ids that stay, with the time or count they have, are given once; others may or may not be met. Ids are found first and
looked at then, a page in one call: one that was taken in between is left out where only waiting ones are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from henchman.inspector.ordered_id import OrderedId, id_of
from henchman.inspector.set_walk import PAGE, walk
from henchman.store import ordered_people, queues
from henchman.store.keys import Keys
from henchman.store.procedure import Page, Pages, Procedure, mapped

__all__ = ["FIRST", "Keep", "OrderedWalks", "died", "held", "waits"]

FIRST = 20  # payloads of an id that a list shows
_MEMORY = 50_000  # ids that a search remembers, so as not to give them twice

Keep = Callable[[OrderedId], bool]


def waits(one: OrderedId) -> bool:
    """It waits, fresh or to be tried again."""
    return one.state in ("waiting", "retrying")


def held(one: OrderedId) -> bool:
    """It is in flight."""
    return one.holder is not None


def died(one: OrderedId) -> bool:
    """It has payloads in the morgue."""
    return one.dead_count > 0


def _fresh(one: OrderedId) -> bool:
    return one.state == "waiting"


class OrderedWalks:
    """The looks at one ordered queue, as plans and walks."""

    def __init__(self, keys: Keys, name: str) -> None:
        self._keys = keys
        self._name = name

    def look(self, ids: Sequence[bytes], most: int = FIRST) -> Procedure[list[OrderedId]]:
        """Each of up to a hundred ids, with at most ``most`` payloads in each place."""
        at, found = yield ordered_people.look(self._keys, self._name, ids, most)
        return [id_of(at, one) for one in found]

    def page(self, part: str, first: int, most: int, keep: Keep, *, reverse: bool) -> Procedure[list[OrderedId]]:
        """What stands in ``due``, ``retry`` or ``morgue`` from rank ``first`` on; at most ``most``."""
        key, seen = self._keys.ordered(self._name) + part, list[OrderedId]()
        for place in range(first, first + most, PAGE):
            last = min(place + PAGE, first + most) - 1
            found: list[queues.Member] = yield queues.set_page(key, place, last, newest_first=reverse)
            if not found:
                break
            seen += [one for one in (yield from self.look([one.payload for one in found])) if keep(one)]
        return seen

    def by_score(
        self, part: str, keep: Keep, low: float = -math.inf, high: float = math.inf, *, reverse: bool = False
    ) -> Pages[OrderedId]:
        """The ids in ``due``, ``retry`` or ``morgue`` with ``low`` ≤ score ≤ ``high``, in order."""
        key = self._keys.ordered(self._name) + part
        found: Pages[bytes] = walk(key, lambda one: one.payload, newest_first=reverse, low=low, high=high)
        return self._seen(found, keep)

    def by_retry_count(self, low: int, high: float, *, reverse: bool) -> Pages[OrderedId]:
        """Fresh ones, of which no list is kept, come from the times."""
        fresh = [self.by_score("due", _fresh, reverse=reverse)] if low < 0 <= high + 1 else []
        failed = [self.by_score("retry", waits, low, high, reverse=reverse)] if high >= 0 else []
        for one in [*failed, *fresh] if reverse else [*fresh, *failed]:
            yield from one

    def by_id(self, part: str, keep: Keep, prefix: str = "") -> Pages[OrderedId]:
        """The ids in ``due``, ``morgue`` or ``busy`` that begin with ``prefix``, in no order."""
        return self._seen(self._scan(part, prefix), keep)

    def _scan(self, part: str, prefix: str) -> Pages[bytes]:
        """Each once, of the first 50,000 found."""
        cursor, met = -1, set[bytes]()
        while cursor:
            cursor, found = yield ordered_people.scan(self._keys, self._name, part, max(cursor, 0), prefix)
            fresh = [one for one in dict.fromkeys(found) if one not in met]
            met.update(fresh[: _MEMORY - len(met)])
            for first in range(0, len(fresh), PAGE):
                yield Page(fresh[first : first + PAGE])

    def _seen(self, ids: Pages[bytes], keep: Keep) -> Pages[OrderedId]:
        def look(some: Page[bytes]) -> Procedure[Iterable[OrderedId]]:
            return filter(keep, (yield from self.look(some))) if some else []

        return mapped(ids, look)
