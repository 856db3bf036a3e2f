"""Ordered queues for people: their figures, everything about an id, ids by time, count and name, the morgue; actions.

A queue that changes while a caller goes through it is not a snapshot: ids that stay, with the time or count they have,
are given once; others may or may not be met. Ids are found first and looked at then, a page in one call. Nothing loads
a whole queue.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError
from henchman.inspector.base import Inspector, checked_id, checked_name, seconds
from henchman.inspector.ordered_id import OrderedCommands, OrderedId, OrderedPayload, OrderedStats, id_of, stats_of
from henchman.inspector.pauses import pause_queue
from henchman.inspector.sets import PAGE, Acted, pages_by_score
from henchman.store import ordered_people, queues
from henchman.store.call import Items, Page, Pages, Procedure, ask, awaited, mapped, now, side_by_side
from henchman.store.keys import Keys
from henchman.store.queues import raw

__all__ = ["Order", "OrderedQueue", "OrderedQueues", "PileName", "all_ordered_stats", "ids_with"]

Order = Literal["time", "retry", "morgue"]
PileName = Literal["payloads", "arrivals", "dead"]
Time = float | dt.datetime
Keep = Callable[[OrderedId], bool]

_PARTS = {"time": "due", "retry": "retry", "morgue": "morgue"}
#: a figure of Lowkiq's dashboard → ours
_DASHBOARD = {
    **{name: name for name in ("name", "lag", "processed", "failed", "busy")},
    "enqueued": "length",
    "fresh": "fresh",
    "retries": "retries",
    "dead": "morgue_length",
}
#: a list of payloads of an id → its pile on the server
_PILES: dict[PileName, str] = {"payloads": "p", "arrivals": "n", "dead": "m"}
_MOST = 1000  # payloads that a look at one id shows
_FIRST = 20  # payloads of an id that a list shows
_SEARCHED = 20  # steps of a thousand ids that a search for people takes
_MEMORY = 50_000  # ids that a search remembers, so as not to give them twice


class OrderedQueue(Inspector):
    """One ordered queue, whether anything was ever pushed to it or not.

    Each method also exists awaited, with an ``a`` before its name; what can be iterated also by ``async for``.

    The actions answer how many ids they were done to, how many had nothing there (``gone``), and how many stayed, and
    why: an id that is in flight is never taken from its holder. The forms for all work off a hundred ids a call and
    can be broken off between two; what was done stays done.
    """

    def __init__(self, runtime: Runtime, name: str) -> None:
        super().__init__(runtime)
        self.name = name
        self._commands = OrderedCommands(runtime.keys, name)

    def __repr__(self) -> str:
        return f"OrderedQueue({self.name!r})"

    @now
    def length(self) -> Procedure[int]:
        """How many ids wait in it, whenever they are due; those in flight are not counted."""
        return (yield from _stats(self._keys, self.name)).length

    @now
    def stats(self) -> Procedure[OrderedStats]:
        """Its figures at one moment."""
        return _stats(self._keys, self.name)

    @now
    def paused(self) -> Procedure[bool]:
        """Whether nothing starts from it."""
        return self.name in (yield queues.paused(self._keys))

    @now
    def find(self, id: str, most: int = _MOST) -> Procedure[OrderedId]:
        """Everything about an id, at once, with at most ``most`` payloads in each place; also of one that is absent."""
        if most < 1:
            raise ArgumentError(f"find(…, {most!r}): at least one payload")
        return (yield from self._look([checked_id(id)], most))[0]

    @now
    def page(
        self, first: int = 0, most: int = 50, *, by: Order = "time", reverse: bool = False
    ) -> Procedure[list[OrderedId]]:
        """The ids from place ``first`` on, at most ``most``: by the time at which they are due, those that failed by
        how often (``by="retry"``), or the morgue by its last burials (``by="morgue"``). A page may be shorter: ids in
        flight have places in the first two, too, and are left out.
        """
        if first < 0 or most < 1 or by not in _PARTS:
            raise ArgumentError(
                f"page({first!r}, {most!r}, by={by!r}): a place from 0, at least 1, by one of {[*_PARTS]}"
            )
        keep = _is_dead if by == "morgue" else _waits
        seen = list[OrderedId]()
        for place in range(first, first + most, PAGE):
            many = min(PAGE, first + most - place)
            found = yield from queues.set_page(self._key(_PARTS[by]), place, many, newest_first=reverse)
            if not found:
                break
            seen += filter(keep, (yield from self._look([one.payload for one in found])))
        return seen

    def by_time(self, min: Time | None = None, max: Time | None = None, *, reverse: bool = False) -> Items[OrderedId]:
        """The waiting ids that are due between two times, both included: aware datetimes or Unix seconds; None: no
        bound. In order of time; for ``for`` and ``async for``, as everything that follows."""
        low, high = _bounds(min, max)
        return self._items(lambda: self._by_score("due", _waits, low, high, reverse=reverse))

    def by_retry_count(
        self, min: int | None = None, max: int | None = None, *, reverse: bool = False
    ) -> Items[OrderedId]:
        """The waiting ids by how often they failed: -1 never, 0 once. Between two counts, both included."""
        low, high = -1 if min is None else min, math.inf if max is None else max
        return self._items(lambda: self._by_retry_count(low, high, reverse=reverse))

    def by_id(self, prefix: str = "") -> Items[OrderedId]:
        """The waiting ids that begin with ``prefix``, in no order: the server looks through all of them."""
        return self._items(lambda: self._by_id("due", _waits, prefix))

    def busy(self) -> Items[OrderedId]:
        """The ids in flight, in no order."""
        return self._items(lambda: self._by_id("busy", lambda one: one.holder is not None))

    def morgue(self, min: Time | None = None, max: Time | None = None, *, reverse: bool = True) -> Items[OrderedId]:
        """The ids in the morgue by the time of their last burial, the latest first."""
        low, high = _bounds(min, max)
        return self._items(lambda: self._by_score("morgue", _is_dead, low, high, reverse=reverse))

    def morgue_by_id(self, prefix: str = "") -> Items[OrderedId]:
        """The ids in the morgue that begin with ``prefix``, in no order."""
        return self._items(lambda: self._by_id("morgue", _is_dead, prefix))

    @now
    def revive(self, *ids: str) -> Procedure[Acted]:
        """Out of the morgue: what lies there waits again, due now, its failures forgotten, with what waits already. Of
        an id in flight it waits until the run has ended."""
        return self._commands.on("revive", _checked(ids))

    @now
    def revive_all(self) -> Procedure[Acted]:
        """``revive`` for every id of the morgue."""
        return self._commands.on_all("revive", "morgue")

    @now
    def kill(self, *ids: str) -> Procedure[Acted]:
        """Move all that waits under these ids to the morgue."""
        return self._commands.on("kill", _checked(ids))

    @now
    def kill_all_failed(self) -> Procedure[Acted]:
        """``kill`` for every id that failed and waits for its next attempt."""
        return self._commands.on_all("kill", "retry", only_failed=True)

    @now
    def delete(self, *ids: str) -> Procedure[Acted]:
        """Remove all that waits under these ids, for good. Of an id in flight, what arrived meanwhile; the morgue is
        left alone."""
        return self._commands.on("delete", _checked(ids))

    @now
    def delete_all_failed(self) -> Procedure[Acted]:
        """``delete`` for every id that failed and waits for its next attempt; those in flight are left alone."""
        return self._commands.on_all("delete", "retry", only_failed=True)

    @now
    def morgue_delete(self, *ids: str) -> Procedure[Acted]:
        """Remove what lies in the morgue under these ids, for good."""
        return self._commands.on("purge", _checked(ids))

    @now
    def morgue_delete_all(self) -> Procedure[Acted]:
        """Empty the morgue, for good."""
        return self._commands.on_all("purge", "morgue")

    @now
    def drop_payload(self, id: str, payload: OrderedPayload, *, of: PileName = "payloads") -> Procedure[Acted]:
        """Remove one payload of an id, as ``find`` shows it in one of its lists, for good; the others stay as they are.
        With the last of them the id is out of the queue, or of the morgue. What a run has in hand stays."""
        if of not in _PILES:
            raise ArgumentError(f"drop_payload(…, of={of!r}): it is one of {[*_PILES]}")
        return self._commands.drop(checked_id(id), _PILES[of], payload)

    @now
    def run_now(self, *ids: str) -> Procedure[Acted]:
        """Make these ids due now, in the order in which they were due; what failed stays counted."""
        return self._commands.on("run", _checked(ids))

    @now
    def run_all_now(self) -> Procedure[Acted]:
        """``run_now`` for every id whose time is still to come, behind those that are due already."""
        return self._commands.on_all("run", "due")

    @now
    def pause(self, reason: str = "", *, by: str = "", lasts: float | dt.timedelta | None = None) -> Procedure[None]:
        """Nothing starts from it any more, on any worker; what runs goes on. Pages show the ``reason`` and who paused
        it. It ``lasts`` so many seconds, from 5 to 30 days; None: until ``unpause``. ArgumentError for a reason of more
        than 200 characters."""
        yield from pause_queue(self._keys, self.name, reason, by, lasts)

    @now
    def unpause(self) -> Procedure[None]:
        """Work on it goes on."""
        yield ordered_people.go_on(self._keys, self.name)

    @now
    def set_max_parallel(self, most: int | None) -> Procedure[None]:
        """At most so many claims at a time over all processes, from the next claim on; 0: no limit, None: as the code
        says. Claims that began while there was no limit are not counted. ArgumentError when it is no whole number."""
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 0 <= most < 10**9):
            raise ArgumentError(f"{most!r} is no limit: give a whole number, 0 for none, None for what the code says")
        yield ordered_people.set_limit(self._keys, self.name, most)

    @now
    def move_to(self, other: str | OrderedQueue, *ids: str) -> Procedure[Acted]:
        """Move these ids, or all that wait, to another ordered queue: with payloads, scores, times and what failed.
        Those that are in flight, here or there, stay. ArgumentError when it is this queue."""
        return self._commands.move(
            checked_name(other.name if isinstance(other, OrderedQueue) else other), _checked(ids)
        )

    alength = awaited(length)
    astats = awaited(stats)
    apaused = awaited(paused)
    afind = awaited(find)
    apage = awaited(page)
    arevive = awaited(revive)
    arevive_all = awaited(revive_all)
    akill = awaited(kill)
    akill_all_failed = awaited(kill_all_failed)
    adelete = awaited(delete)
    adelete_all_failed = awaited(delete_all_failed)
    amorgue_delete = awaited(morgue_delete)
    amorgue_delete_all = awaited(morgue_delete_all)
    adrop_payload = awaited(drop_payload)
    arun_now = awaited(run_now)
    arun_all_now = awaited(run_all_now)
    apause = awaited(pause)
    aunpause = awaited(unpause)
    aset_max_parallel = awaited(set_max_parallel)
    amove_to = awaited(move_to)

    def _key(self, part: str) -> str:
        return self._keys.ordered(self.name) + part

    def _look(self, ids: Sequence[bytes], most: int = _FIRST) -> Procedure[list[OrderedId]]:
        """Each of up to a hundred ids, with at most ``most`` payloads in each place, or 4 MB of them."""
        seen: list[OrderedId] = []
        while len(seen) < len(ids):
            at, found = yield ordered_people.look(self._keys, self.name, ids[len(seen) :], most)
            seen += [id_of(at, one) for one in found]
        return seen

    def _by_score(
        self, part: str, keep: Keep, low: float = -math.inf, high: float = math.inf, *, reverse: bool = False
    ) -> Pages[OrderedId]:
        """The ids in ``due``, ``retry`` or ``morgue`` with ``low`` ≤ score ≤ ``high``, in order."""
        found: Pages[bytes] = pages_by_score(
            self._key(part), lambda one: one.payload, newest_first=reverse, low=low, high=high
        )
        return self._seen(found, keep)

    def _by_retry_count(self, low: int, high: float, *, reverse: bool) -> Pages[OrderedId]:
        """Fresh ids, which are in no list of their own, come from the times."""
        fresh = [self._by_score("due", _is_fresh, reverse=reverse)] if low < 0 <= high + 1 else []
        failed = [self._by_score("retry", _waits, low, high, reverse=reverse)] if high >= 0 else []
        for one in [*failed, *fresh] if reverse else [*fresh, *failed]:
            yield from one

    def _by_id(self, part: str, keep: Keep, prefix: str = "") -> Pages[OrderedId]:
        """The ids in ``due``, ``morgue`` or ``busy`` that begin with ``prefix``, in no order."""
        return self._seen(self._scan(part, prefix), keep)

    def _scan(self, part: str, prefix: str) -> Pages[bytes]:
        """Each once, of the first 50,000 found."""
        cursor, met = -1, set[bytes]()
        while cursor:
            cursor, found = yield ordered_people.scan(self._keys, self.name, part, max(cursor, 0), prefix)
            fresh = [one for one in dict.fromkeys(found) if one not in met]
            met.update(fresh[: _MEMORY - len(met)])
            for first in range(0, len(fresh), PAGE):
                yield Page(fresh[first : first + PAGE])

    def _seen(self, ids: Pages[bytes], keep: Keep) -> Pages[OrderedId]:
        """An id that was taken since it was found is left out where only waiting ones are asked for."""

        def look(some: Page[bytes]) -> Procedure[Iterable[OrderedId]]:
            return filter(keep, (yield from self._look(some))) if some else []

        return mapped(ids, look)


def _checked(ids: Iterable[str]) -> list[bytes]:
    return [checked_id(one) for one in ids]


def _waits(one: OrderedId) -> bool:
    return one.state in ("waiting", "retrying")


def _is_fresh(one: OrderedId) -> bool:
    return one.state == "waiting"


def _is_dead(one: OrderedId) -> bool:
    return one.dead_count > 0


def _bounds(low: Time | None, high: Time | None) -> tuple[float, float]:
    return -math.inf if low is None else seconds(low), math.inf if high is None else seconds(high)


def _stats(keys: Keys, name: str) -> Procedure[OrderedStats]:
    found: ordered_people.Figures = yield ordered_people.figures(keys, name)
    return stats_of(name, found)


def all_ordered_stats(keys: Keys) -> Procedure[list[OrderedStats]]:
    """The figures of every ordered queue that was pushed to or served, by name."""
    names: list[str] = yield ordered_people.names(keys)
    return (yield from side_by_side(*(_stats(keys, name) for name in names)))


def ids_with(
    keys: Keys, name: str, part: Literal["due", "morgue"], prefix: str, most: int
) -> Procedure[tuple[list[OrderedId], bool]]:
    """At most ``most`` ids of a queue that wait (``due``) or lie in its morgue and begin with ``prefix``, by id, the id
    that is ``prefix`` itself first; and whether they are all of these. The server looks at 20,000 ids or so."""
    cursor, steps, found = -1, 0, {raw(prefix): None}
    while cursor and steps < _SEARCHED and len(found) <= most:
        cursor, some = yield ordered_people.scan(keys, name, part, max(cursor, 0), prefix)
        found |= dict.fromkeys(some)
        steps += 1
    ids = [*found][:1] + sorted([*found][1:])
    seen: list[OrderedId] = []
    while len(seen) < len(ids[:most]):
        at, looked = yield ordered_people.look(keys, name, ids[len(seen) : most], _FIRST)
        seen += [id_of(at, one) for one in looked]
    keep = _is_dead if part == "morgue" else lambda one: one.state not in ("absent", "dead")
    return [one for one in seen if keep(one)], not cursor and len(ids) <= most


class OrderedQueues(Inspector):
    """All ordered queues: ``ordered_queues["products"]`` is one of them, whether it exists or not; ``for`` goes through
    those that were pushed to or served, by name. Each method also exists awaited, with an ``a`` before its name."""

    def __repr__(self) -> str:
        return "<the ordered queues: for queue in app.ordered_queues, app.ordered_queues['products']>"

    def __getitem__(self, name: str) -> OrderedQueue:
        """The ordered queue of this name."""
        return OrderedQueue(self._runtime, checked_name(name))

    def __contains__(self, name: object) -> bool:
        """Whether the ordered queue of this name was pushed to or served."""
        return name in self.names()

    def __iter__(self) -> Iterator[OrderedQueue]:
        """Every ordered queue that was pushed to or served, by name."""
        return iter(self._items(self._each))

    def __aiter__(self) -> AsyncIterator[OrderedQueue]:
        """The same for ``async for``."""
        return aiter(self._items(self._each))

    @now
    def get(self, name: str) -> Procedure[OrderedQueue | None]:
        """The ordered queue of this name; None when nothing was ever pushed to it and no worker served it."""
        return self[name] if name in (yield ordered_people.names(self._keys)) else None

    @now
    def names(self) -> Procedure[list[str]]:
        """The names of the ordered queues that were pushed to or served, sorted."""
        return ask(ordered_people.names(self._keys))

    @now
    def stats(self) -> Procedure[list[OrderedStats]]:
        """The figures of each, by name."""
        return all_ordered_stats(self._keys)

    @now
    def lowkiq_stats(self) -> Procedure[dict[str, Any]]:
        """The figures as Lowkiq's ``/api/v1/stats`` has them, for its monitors: length, morgue_length and lag (seconds)
        of each queue; in total the sums, and the longest lag. The name of a queue stands where Lowkiq has the name of
        a worker, which is the same there unless the worker's class says otherwise."""
        stats = yield from all_ordered_stats(self._keys)
        return {
            "total": {
                "length": sum(one.length for one in stats),
                "morgue_length": sum(one.morgue_length for one in stats),
                "lag": max((one.lag for one in stats), default=0.0),
            },
            "by_worker": {
                one.name: {"length": one.length, "morgue_length": one.morgue_length, "lag": one.lag} for one in stats
            },
        }

    @now
    def lowkiq_dashboard(self) -> Procedure[dict[str, Any]]:
        """The figures as Lowkiq's ``/api/web/dashboard`` has them, without what it says of its server."""
        stats = yield from all_ordered_stats(self._keys)
        return {"queues": [{their: getattr(one, our) for their, our in _DASHBOARD.items()} for one in stats]}

    aget = awaited(get)
    anames = awaited(names)
    astats = awaited(stats)
    alowkiq_stats = awaited(lowkiq_stats)
    alowkiq_dashboard = awaited(lowkiq_dashboard)

    def _each(self) -> Pages[OrderedQueue]:
        names = yield ordered_people.names(self._keys)
        yield Page(self[name] for name in names if name)
