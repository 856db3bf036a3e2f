"""Queues for people: how long, how late, what is in them; delete, clear, pause. A queue need not exist.

A queue that changes while a caller goes through it is not a snapshot. A payload that stays is given at least once (a
second time only when thousands were fetched between two pages); what is pushed after the loop began is not met.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypedDict

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, ServerError
from henchman.inspector.base import Entry, Inspector, checked_name, checked_page, checked_text, latency_of
from henchman.inspector.filters import EntryFilter, FoundAt, entry_filter
from henchman.inspector.pauses import PauseJson, pause_json, pause_queue
from henchman.inspector.processes import list_processes, living
from henchman.inspector.tenants import TenantList, set_weight, tenants_of
from henchman.store import fair, ordered_people, queues
from henchman.store.call import Call, Page, Pages, Procedure, ask, awaited, first, now, side_by_side
from henchman.store.keys import Keys
from henchman.work.effects import of_payload

__all__ = [
    "PAGE",
    "Queue",
    "QueueList",
    "QueueSearch",
    "QueueState",
    "QueueStateJson",
    "Queues",
    "QueuesLook",
    "jobs_in",
    "list_queues",
    "look_at_queues",
    "state_of",
]

PAGE = 100
_NEXT, _PAGE = 10_000, 500  # payloads that a search among the next ones looks at, and those of one of its looks
_OPENED = 2000  # that it looks at where each is sent and opened here
_QUEUED = FoundAt("queued")
_AT_ONCE = 500  # queues looked at in one call
_OVERLAP = 10  # payloads read again with each page, to see that nothing was skipped; fewer of large ones
_MEMORY = 10_000  # payloads that a loop remembers, so as not to give them twice


class QueueStateJson(TypedDict):
    """``latency``: seconds that the next job has waited, and ``objective``: may wait; ``problem``: its key holds
    something else, no size then."""

    name: str
    size: int | None
    latency: float | None
    paused: bool
    pause: PauseJson | None
    problem: str | None
    fair: bool
    objective: float | None


class QueueState(NamedTuple):
    """How a queue is now. ``latency``: seconds since its next payload was pushed; None when that is not known.

    ``problem`` is set, and ``size`` is None, when the key of this queue holds something else than a list. ``pause``:
    since when, by whom and why it is paused, where that is known. ``fair``: tenants and levels have lines of their own.
    ``objective``: how many seconds its next job may wait, where the settings of its workers say.
    """

    name: str
    size: int | None
    latency: float | None
    paused: bool
    problem: str = ""
    pause: queues.Pause | None = None
    fair: bool = False
    objective: float | None = None

    @property
    def late(self) -> bool:
        """Whether the next job has waited longer than it may."""
        return bool(self.size and self.objective and (self.latency or 0.0) > self.objective)

    def to_json(self) -> QueueStateJson:
        """As the command line and programs have it."""
        told = pause_json(self.pause or queues.Pause())
        return {
            "name": self.name,
            "size": self.size,
            "latency": self.latency,
            "paused": self.paused,
            "pause": told if self.paused else None,
            "problem": self.problem or None,
            "fair": self.fair,
            "objective": self.objective,
        }


class QueueList(NamedTuple):
    """Some of the queues that match, in order, and how many match in all; the objectives of every queue."""

    states: list[QueueState]
    total: int
    objectives: Mapping[str, float] = {}


class QueueSearch(NamedTuple):
    """Payloads of a queue that hold a text, with their places in the line, from 1 on; among the next ``looked``."""

    found: list[tuple[int, Entry]]
    looked: int


class Queue(Inspector):
    """One queue. Each method also exists awaited, with an ``a`` before its name; ``async for`` goes through it too."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        super().__init__(runtime)
        self.name = name

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    @now
    def size(self) -> Procedure[int]:
        """How many payloads wait in it."""
        return (yield from self._look()).size

    @now
    def latency(self) -> Procedure[float | None]:
        """Seconds since its next payload was pushed: 0 when it is empty, None when that payload does not say."""
        return latency_of((yield from self._look()).next, time.time())

    @now
    def paused(self) -> Procedure[bool]:
        """Whether nothing starts from it."""
        return self.name in (yield queues.paused(self._keys))

    @now
    def page(self, first: int = 0, most: int = 50) -> Procedure[list[Entry]]:
        """At most ``most`` payloads from place ``first`` on; 0 is the newest. Of a fair queue those that have yet to be
        taken into lines come first, then its lines by turns, the newest of each first."""
        first, most = checked_page(first, most)
        found = yield from self._own_page(first, most)
        if len(found) == most or not (lines := (yield from self._lines())):
            return found
        left = first + len(found) - (yield from self._length())
        for line in lines:
            length = yield from line._length()
            if left < length:
                found += yield from line._own_page(max(left, 0), most - len(found))
            if len(found) == most:
                break
            left = max(left - length, 0)
        return found

    @now
    def fair(self) -> Procedure[bool]:
        """Whether its tenants are served in turn, and its levels one before the other."""
        return (yield from self._look()).fair

    @now
    def tenants(self, most: int = 100) -> Procedure[TenantList]:
        """Who waits in a fair queue, at most ``most`` lines in the order of their turns; none, of any other queue."""
        return tenants_of(self._keys, self.name, most)

    def line(self, tenant: str, level: Literal["high", "normal", "low"] = "normal") -> Queue:
        """The line of one tenant of this queue, as a queue: to look at, to clear, to pause."""
        return Queue(self._runtime, fair.line_name(self.name, level, tenant))

    @now
    def set_weight(self, tenant: str, weight: int) -> Procedure[None]:
        """Give ``tenant`` so many turns where others have one, from now on; 1 is what all have."""
        return set_weight(self._keys, self.name, tenant, weight)

    def __iter__(self) -> Iterator[Entry]:
        """Every payload that is there now, the newest first, read in pages."""
        return iter(self._items(self._everything))

    def __aiter__(self) -> AsyncIterator[Entry]:
        """The same for ``async for``."""
        return aiter(self._items(self._everything))

    def fitting(self, wanted: EntryFilter, fits: Callable[[Entry], bool] = bool) -> Iterator[Entry]:
        """Every payload that is there now, not in a line, and fits the filter and ``fits``; the newest first."""
        found = iter(self._items(lambda: self._payloads(queues.raw(wanted.needle))))
        return (one for one in found if wanted.fits(one, _QUEUED) and fits(one))

    @now
    def next_holding(self, text: str, most: int) -> Procedure[QueueSearch]:
        """At most ``most`` of the next ten thousand payloads that hold ``text``, as ``matching`` of a set has it, the
        next to run first. The server compares; of the next two thousand, where it has no text to look for."""
        key, wanted = self._keys.queue(self.name), entry_filter(checked_text("next_holding", text))
        starts = range(0, _NEXT if wanted.needle else _OPENED, _PAGE)
        asked = (queues.list_page(key, -1 - first, _PAGE, leftwards=True, text=wanted.needle) for first in starts)
        pages: list[queues.ListPage] = yield from side_by_side(*map(ask, asked))
        found = [
            (page.size - place, Entry(one, mask=self._mask))
            for page in pages
            if page.looked
            for place, one in page.found
        ]
        fitting = [one for one in found if wanted.fits(one[1], _QUEUED)]
        return QueueSearch(fitting[:most], sum(page.looked for page in pages))

    @now
    def find(self, jid: str) -> Procedure[Entry | None]:
        """The payload of a job; None when it is not here. Reads the queue page by page."""
        return self._find(checked_text("find", jid))

    @now
    def delete(self, job: str | Entry) -> Procedure[bool]:
        """Remove a job, by its id or as it was found here; False when it is not here (any more)."""
        return self._wherever("delete", job, self._removal)

    @now
    def run_next(self, job: str | Entry) -> Procedure[bool]:
        """Let a job be the next one that is fetched from here (of a fair queue: from its line), by its id or as it was
        found here; False when it is not here (any more)."""
        return self._wherever("run_next", job, lambda name, payload: queues.bring_forward(self._keys, name, payload))

    def _removal(self, name: str, payload: bytes) -> Call[int]:
        return queues.remove(self._keys, name, payload, of_payload(self._keys, payload, "deleted"))

    def _wherever(self, act: str, job: str | Entry, does: Callable[[str, bytes], Call[int]]) -> Procedure[bool]:
        """Whether the queue itself, or a line of it, had the job that the act is for, and did it."""
        due = "the id of a job, or an entry that was found here"
        entry = job if isinstance(job, Entry) else (yield from self._find(checked_text(act, job, due)))
        if entry is None:
            return False
        if (yield does(self.name, entry.payload)):
            return True
        for line in (yield from self._lines()):
            if (yield does(line.name, entry.payload)):
                return True
        return False

    @now
    def clear(self) -> Procedure[int]:
        """Remove everything that is in the queue, a thousand payloads a call; how many that were.

        While workers fetch from it, as many as they took of what is pushed meanwhile may go too: pause it first.
        """
        total = yield from self._clear()
        for line in (yield from self._lines()):
            total += yield from line._clear()
        yield from fair.tidy(self._keys, self.name)
        return total

    def _clear(self) -> Procedure[int]:
        """Clear the list of this name."""
        look = (yield from queues.look(self._keys, [self.name]))[0]
        if isinstance(look, str):
            yield queues.drop(self._keys, self.name)
            return 0
        total, effects, length = 0, dict[bytes, bytes](), look.size - look.lines
        while length:
            most = min(length - total, queues.CHUNK)
            some: queues.Cleared = yield queues.clear(self._keys, self.name, most, effects)
            total += some.taken
            if total >= length or not (some.taken or some.asked):
                break
            effects = {one: of_payload(self._keys, one, "deleted") for one in some.asked}
        return total

    @now
    def pause(self, reason: str = "", *, by: str = "", lasts: float | dt.timedelta | None = None) -> Procedure[None]:
        """Nothing starts from it any more, on any worker; pages and findings show the ``reason`` and who paused it. It
        ``lasts`` so many seconds, from 5 to 30 days, and ends by itself then; None: until ``unpause``.

        ArgumentError for a name that is not UTF-8, or a reason of more than 200 characters."""
        if any("\ud800" <= char <= "\udfff" for char in self.name):
            raise ArgumentError(f"{self.name!a} is no name of a queue: no worker can serve it: it need not be paused")
        yield from pause_queue(self._keys, self.name, reason, by, lasts)

    @now
    def unpause(self) -> Procedure[None]:
        """Work on it goes on."""
        yield queues.unpause(self._keys, self.name)

    asize = awaited(size)
    alatency = awaited(latency)
    apaused = awaited(paused)
    apage = awaited(page)
    afair = awaited(fair)
    atenants = awaited(tenants)
    aset_weight = awaited(set_weight)
    anext_holding = awaited(next_holding)
    afind = awaited(find)
    adelete = awaited(delete)
    arun_next = awaited(run_next)
    aclear = awaited(clear)
    apause = awaited(pause)
    aunpause = awaited(unpause)

    def _look(self) -> Procedure[queues.Look]:
        [found] = yield from queues.look(self._keys, [self.name])
        if isinstance(found, str):
            raise ServerError(f"queue {self.name!r}: {found}")
        return found

    def _length(self) -> Procedure[int]:
        """How many payloads the list of this name holds."""
        look = yield from self._look()
        return look.size - look.lines

    def _lines(self) -> Procedure[list[Queue]]:
        """The lines of a fair queue; none of any other."""
        if self.name not in (yield fair.names(self._keys)):
            return []
        return [Queue(self._runtime, one) for one in (yield from fair.line_names(self._keys, self.name))]

    def _own_page(self, first: int, most: int) -> Procedure[list[Entry]]:
        """A page of the list of this name."""
        found: list[Entry] = []
        while len(found) < most:
            some = yield from self._page(first + len(found), most - len(found))
            found += (Entry(one, mask=self._mask) for one in some.payloads)
            if first + len(found) >= some.size or not some.looked:
                break
        return found

    def _everything(self, needle: bytes = b"") -> Pages[Entry]:
        """Every payload that is there now and holds ``needle``, those of lines too."""
        yield from self._payloads(needle)
        for line in (yield from self._lines()):
            yield from line._payloads(needle)

    def _page(self, first: int, most: int) -> Procedure[queues.ListPage]:
        return ask(queues.list_page(self._keys.queue(self.name), first, most))

    def _find(self, jid: str) -> Procedure[Entry | None]:
        found = self._everything(queues.raw(jid))  # few are decoded
        return (yield from first(found, lambda one: one.jid == jid)) if jid else None

    def _payloads(self, needle: bytes = b"") -> Pages[Entry]:
        """Every payload that is there now and holds ``needle``, the newest first.

        Places are counted from the right end: what is pushed meanwhile changes none of them, and what is fetched or
        deleted can only bring payloads back that were given already. Only payloads that come in at the right end (work
        that was given back) could make the loop skip some: the overlap shows it.
        """
        place: int = yield from self._length()
        given: dict[int, None] = {}
        overlap = 0
        while place > 0:
            page = yield from self._page(-place - overlap, overlap + min(place, PAGE))
            size, found = page.size, page.payloads
            if place > size:  # so much was fetched that the place is before the first payload
                place = size
                continue
            known = not found or not overlap or hash(found[0]) in given or place + overlap > size
            if not known and overlap < PAGE * _OVERLAP:
                overlap *= _OVERLAP
                continue
            reached = min(place + overlap, size) - page.looked
            if 0 < overlap <= _OVERLAP and reached >= place:  # what is read again left no room for else
                overlap = 0
                continue
            fresh = [one for one in found if hash(one) not in given]
            given.update(dict.fromkeys(map(hash, fresh)))
            yield Page(Entry(one, mask=self._mask) for one in fresh if needle in one)
            if len(given) > 2 * _MEMORY:
                given = dict.fromkeys(list(given)[-_MEMORY:])
            place, overlap = reached, min(_OVERLAP, page.looked // 2)


def _names(
    keys: Keys, match: str
) -> Procedure[tuple[list[str], tuple[Mapping[str, queues.Pause], Mapping[str, float]]]]:
    """Every plain queue that was pushed to or is paused and has ``match`` in its name, sorted; the pauses and the
    objectives of all."""
    pushed, paused, objectives, ordered = yield from side_by_side(
        ask(queues.names(keys)),
        ask(queues.pauses(keys)),
        ask(queues.objectives(keys)),
        ask(ordered_people.names(keys)),  # they have figures of another kind
    )
    names = sorted(name for name in {*pushed, *(paused.keys() - {*ordered})} if match in name)
    return names, (paused, objectives)


def list_queues(
    keys: Keys, match: str = "", first: int = 0, most: int | None = None, *, at: float | None = None
) -> Procedure[QueueList]:
    """The plain queues that were pushed to or are paused and have ``match`` in their name, by name: at most ``most``
    from place ``first`` on, with their figures; None: all of them. ``at`` is the present, in Unix seconds."""
    at = time.time() if at is None else at
    names, said = yield from _names(keys, match)
    chosen = names[first : None if most is None else first + most]
    pages = [chosen[start : start + _AT_ONCE] for start in range(0, len(chosen), _AT_ONCE)]
    looks = yield from side_by_side(*(queues.look(keys, some) for some in pages))
    found = zip(chosen, (look for some in looks for look in some), strict=True)
    return QueueList([state_of(name, look, at, *said) for name, look in found], len(names), said[1])


def state_of(
    name: str,
    look: queues.Look | str,
    at: float,
    paused: Mapping[str, queues.Pause],
    objectives: Mapping[str, float],
) -> QueueState:
    objective = objectives.get(name) or objectives.get(fair.queue_of(name))
    if isinstance(look, str):
        return QueueState(name, None, None, name in paused, look, paused.get(name), objective=objective)
    latency, is_paused = latency_of(look.next, at), name in paused
    return QueueState(name, look.size, latency, is_paused, pause=paused.get(name), fair=look.fair, objective=objective)


def jobs_in(states: Sequence[QueueState]) -> int:
    """How many jobs wait in these queues. A line that is paused stands beside its queue, and is a part of it."""
    lined = {one.name for one in states if one.fair}
    return sum(one.size or 0 for one in states if one.name in lined or fair.queue_of(one.name) not in lined)


class QueuesLook(NamedTuple):
    """Queues, and the names of those that a living process serves."""

    states: list[QueueState]
    served: set[str]


def look_at_queues(keys: Keys, match: str = "") -> Procedure[QueuesLook]:
    """The queues that have ``match`` in their name, and who serves them: two round trips."""
    at = time.time()
    found, processes = yield from side_by_side(list_queues(keys, match, at=at), list_processes(keys))
    return QueuesLook(found.states, {name for one in living(processes, at) for name in one.queues})


class Queues(Inspector):
    """All queues: ``queues["mail"]`` is one of them, whether it exists or not; ``for queue in queues`` goes through
    those that were pushed to, by name. Each method also exists awaited, with an ``a`` before its name."""

    def __repr__(self) -> str:
        return "<the queues: for queue in app.queues, app.queues['mail'], app.queues.names()>"

    def __getitem__(self, name: str) -> Queue:
        """The queue of this name."""
        return Queue(self._runtime, checked_name(name))

    def __contains__(self, name: object) -> bool:
        """Whether the queue of this name was pushed to (and not cleared since)."""
        return name in self.names()

    def __iter__(self) -> Iterator[Queue]:
        """Every queue that was pushed to, by name."""
        return iter(self._items(self._each))

    def __aiter__(self) -> AsyncIterator[Queue]:
        """The same for ``async for``."""
        return aiter(self._items(self._each))

    @now
    def names(self) -> Procedure[list[str]]:
        """The names of the queues that were pushed to and not cleared since, sorted."""
        return ask(queues.names(self._keys))

    @now
    def known(self, match: str = "") -> Procedure[list[str]]:
        """The names of the queues that were pushed to or are paused and have ``match`` in their name, sorted."""
        return (yield from _names(self._keys, match))[0]

    @now
    def paused(self) -> Procedure[list[str]]:
        """The names of the paused queues, of either kind, sorted."""
        return sorted((yield queues.paused(self._keys)))

    @now
    def states(self, *, match: str = "", first: int = 0, most: int | None = None) -> Procedure[list[QueueState]]:
        """Every queue that was pushed to or is paused, by name, with its figures; or a page of them: at most ``most``
        from place ``first`` on, of those that have ``match`` in their name."""
        return (yield from list_queues(self._keys, match, first, most)).states

    def queue(self, name: str) -> Queue:
        """The queue of this name."""
        return self[name]

    anames = awaited(names)
    aknown = awaited(known)
    apaused = awaited(paused)
    astates = awaited(states)

    def _each(self) -> Pages[Queue]:
        names = yield queues.names(self._keys)
        yield Page(self[name] for name in names if name)
