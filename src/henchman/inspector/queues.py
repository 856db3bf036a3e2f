"""Queues for people: how long, how late, what is in them; delete, clear, pause. A queue need not exist.

A queue that changes while a caller goes through it is not a snapshot. A payload that stays is given at least once (a
second time only when thousands were fetched between two pages); what is pushed after the loop began is not met.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypedDict

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, ServerAway, ServerError
from henchman.inspector.base import Entry, Inspector, Mask, checked_name, checked_page, checked_text
from henchman.inspector.processes import ProcessState, list_processes, living
from henchman.kernel.clock import ServerClock
from henchman.kernel.figures import span
from henchman.kernel.text import shorten, visible
from henchman.store import leases, ordered_people, queues
from henchman.store.call import Page, Pages, Procedure, ask, awaited, first, now, side_by_side
from henchman.store.keys import Keys
from henchman.wire import times
from henchman.work.effects import of_payload

__all__ = [
    "LONGEST_REASON",
    "PAGE",
    "Composition",
    "PauseJson",
    "Queue",
    "QueueList",
    "QueueLook",
    "QueueSearch",
    "QueueState",
    "QueueStateJson",
    "Queues",
    "QueuesLook",
    "latency_of",
    "list_queues",
    "look_at_queue",
    "look_at_queues",
    "pause_queue",
    "why_paused",
]

PAGE = 100
_NEXT, _PAGE = 10_000, 500  # payloads that a search among the next ones looks at, and those of one of its looks
_AT_ONCE = 500  # queues looked at in one call
_OVERLAP = 10  # payloads read again with each page, to see that nothing was skipped; fewer of large ones
_SAMPLE: Final = 100  # payloads of each end that tell what waits in a queue
LONGEST_REASON: Final = 200  # characters of why a queue is paused
_MEMORY = 10_000  # payloads that a loop remembers, so as not to give them twice


class PauseJson(TypedDict):
    """``since``: an ISO text; ``by`` and ``reason`` are empty where nobody said them, as of a pause by Ruby."""

    since: str | None
    by: str
    reason: str


class QueueStateJson(TypedDict):
    """``latency``: seconds that the next job has waited; ``problem``: its key holds something else, no size then."""

    name: str
    size: int | None
    latency: float | None
    paused: bool
    pause: PauseJson | None
    problem: str | None


class QueueState(NamedTuple):
    """How a queue is now. ``latency``: seconds since its next payload was pushed; None when that is not known.

    ``problem`` is set, and ``size`` is None, when the key of this queue holds something else than a list. ``pause``:
    since when, by whom and why it is paused, where that is known.
    """

    name: str
    size: int | None
    latency: float | None
    paused: bool
    problem: str = ""
    pause: queues.Pause | None = None

    def to_json(self) -> QueueStateJson:
        """As the command line and programs have it."""
        pause = self.pause or queues.Pause()
        told: PauseJson = {
            "since": None if pause.at is None else times.iso(pause.at),
            "by": pause.by,
            "reason": pause.reason,
        }
        return {
            "name": self.name,
            "size": self.size,
            "latency": self.latency,
            "paused": self.paused,
            "pause": told if self.paused else None,
            "problem": self.problem or None,
        }


class QueueList(NamedTuple):
    """Some of the queues that match, in order, and how many match in all."""

    states: list[QueueState]
    total: int


class QueueSearch(NamedTuple):
    """Payloads of a queue that hold a text, with their places in the line, from 1 on; among the next ``looked``."""

    found: list[tuple[int, Entry]]
    looked: int


def pause_queue(keys: Keys, name: str, reason: str, by: str) -> Procedure[None]:
    """Pause a queue of either kind, and note why. ArgumentError when the reason is longer than 200 characters."""
    said, author = (" ".join(one.encode("utf-8", "replace").decode().split()) for one in (reason, by))
    if len(said) > LONGEST_REASON:
        raise ArgumentError(f"the reason has {len(said):,} characters: say it in {LONGEST_REASON}, or point to a page")
    at: float = yield leases.ask_time(ServerClock())
    yield queues.pause(keys, name, queues.Pause(at, shorten(author, LONGEST_REASON), said))


def why_paused(pause: queues.Pause | None, now: float) -> str:
    """Who paused a queue, how long ago and why: ``by ana, 2 h ago: provider outage``; empty when nothing is known."""
    if pause is None or (pause.at is None and not pause.by and not pause.reason):
        return ""
    by = f"by {pause.by}" if pause.by else ""
    when = "" if pause.at is None else f"{span(max(now - pause.at, 0.0))} ago"
    return visible(": ".join(filter(None, (", ".join(filter(None, (by, when))), pause.reason))))


def latency_of(payload: bytes | None, now: float) -> float | None:
    """Seconds since ``payload`` was pushed: 0 for none, None when it does not say."""
    if payload is None:
        return 0.0
    entry = Entry(payload)
    pushed = entry.time("enqueued_at")
    if pushed is None:
        pushed = entry.time("created_at")
    return None if pushed is None else max(now - pushed, 0.0)


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
        """At most ``most`` payloads from place ``first`` on; 0 is the newest."""
        first, most = checked_page(first, most)
        found: list[Entry] = []
        while len(found) < most:
            some = yield from self._page(first + len(found), most - len(found))
            found += (Entry(one, mask=self._mask) for one in some.payloads)
            if first + len(found) >= some.size or not some.looked:
                break
        return found

    def __iter__(self) -> Iterator[Entry]:
        """Every payload that is there now, the newest first, read in pages."""
        return iter(self._items(self._payloads))

    def __aiter__(self) -> AsyncIterator[Entry]:
        """The same for ``async for``."""
        return aiter(self._items(self._payloads))

    def matching(self, text: str = "", fits: Callable[[Entry], bool] = bool) -> Iterator[Entry]:
        """Every payload that is there now, holds ``text`` and ``fits``, the newest first, read in pages."""
        return filter(fits, iter(self._items(lambda: self._payloads(queues.raw(text)))))

    @now
    def next_holding(self, text: str, most: int) -> Procedure[QueueSearch]:
        """At most ``most`` of the next ten thousand payloads that hold ``text``, the next to run first. The server
        compares."""
        key = self._keys.queue(self.name)
        asked = (
            queues.list_page(key, -1 - first, _PAGE, leftwards=True, text=text) for first in range(0, _NEXT, _PAGE)
        )
        pages: list[queues.ListPage] = yield from side_by_side(*map(ask, asked))
        found = [
            (page.size - place, Entry(one, mask=self._mask))
            for page in pages
            if page.looked
            for place, one in page.found
        ]
        return QueueSearch(found[:most], sum(page.looked for page in pages))

    @now
    def find(self, jid: str) -> Procedure[Entry | None]:
        """The payload of a job; None when it is not here. Reads the queue page by page."""
        return self._find(checked_text("find", jid))

    @now
    def delete(self, job: str | Entry) -> Procedure[bool]:
        """Remove a job, by its id or as it was found here; False when it is not here (any more)."""
        if isinstance(job, Entry):
            entry: Entry | None = job
        else:
            jid = checked_text("delete", job, "the id of a job, or an entry that was found here")
            entry = yield from self._find(jid)
        if entry is None:
            return False
        effects = of_payload(self._keys, entry.payload, "deleted")
        return bool((yield queues.remove(self._keys, self.name, entry.payload, effects)))

    @now
    def clear(self) -> Procedure[int]:
        """Remove everything that is in the queue, a thousand payloads a call; how many that were.

        While workers fetch from it, as many as they took of what is pushed meanwhile may go too: pause it first.
        """
        look = (yield from queues.look(self._keys, [self.name]))[0]
        if isinstance(look, str):
            yield queues.drop(self._keys, self.name)
            return 0
        total, effects = 0, dict[bytes, bytes]()
        while True:
            most = min(look.size - total, queues.CHUNK)
            some: queues.Cleared = yield queues.clear(self._keys, self.name, most, effects)
            total += some.taken
            if total >= look.size or not (some.taken or some.asked):
                return total
            effects = {one: of_payload(self._keys, one, "deleted") for one in some.asked}

    @now
    def pause(self, reason: str = "", *, by: str = "") -> Procedure[None]:
        """Nothing starts from it any more, on any worker; pages and findings show the ``reason`` and who paused it.
        ArgumentError for a name that is not UTF-8, or a reason of more than 200 characters."""
        if any("\ud800" <= char <= "\udfff" for char in self.name):
            raise ArgumentError(
                f"{self.name!a} is no name of a queue: no worker can serve it, so it need not be paused"
            )
        yield from pause_queue(self._keys, self.name, reason, by)

    @now
    def unpause(self) -> Procedure[None]:
        """Work on it goes on."""
        yield queues.unpause(self._keys, self.name)

    asize = awaited(size)
    alatency = awaited(latency)
    apaused = awaited(paused)
    apage = awaited(page)
    anext_holding = awaited(next_holding)
    afind = awaited(find)
    adelete = awaited(delete)
    aclear = awaited(clear)
    apause = awaited(pause)
    aunpause = awaited(unpause)

    def _look(self) -> Procedure[queues.Look]:
        [found] = yield from queues.look(self._keys, [self.name])
        if isinstance(found, str):
            raise ServerError(f"queue {self.name!r}: {found}")
        return found

    def _page(self, first: int, most: int) -> Procedure[queues.ListPage]:
        page: queues.ListPage = yield queues.list_page(self._keys.queue(self.name), first, most)
        return page

    def _find(self, jid: str) -> Procedure[Entry | None]:
        found = self._payloads(queues.raw(jid))  # few are decoded
        return (yield from first(found, lambda one: one.jid == jid)) if jid else None

    def _payloads(self, needle: bytes = b"") -> Pages[Entry]:
        """Every payload that is there now and holds ``needle``, the newest first.

        Places are counted from the right end: what is pushed meanwhile changes none of them, and what is fetched or
        deleted can only bring payloads back that were given already. Only payloads that come in at the right end (work
        that was given back) could make the loop skip some: the overlap shows it.
        """
        place: int = (yield from self._look()).size
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


def _names(keys: Keys, match: str) -> Procedure[tuple[list[str], dict[str, queues.Pause]]]:
    """Every plain queue that was pushed to or is paused and has ``match`` in its name, sorted; the pauses of all."""
    pushed, paused, ordered = yield from side_by_side(
        ask(queues.names(keys)),
        ask(queues.pauses(keys)),
        ask(ordered_people.names(keys)),  # they have figures of another kind
    )
    return sorted(name for name in {*pushed, *(paused.keys() - {*ordered})} if match in name), paused


def list_queues(
    keys: Keys, match: str = "", first: int = 0, most: int | None = None, *, at: float | None = None
) -> Procedure[QueueList]:
    """The plain queues that were pushed to or are paused and have ``match`` in their name, by name: at most ``most``
    from place ``first`` on, with their figures; None: all of them. ``at`` is the present, in Unix seconds."""
    at = time.time() if at is None else at
    names, paused = yield from _names(keys, match)
    chosen = names[first : None if most is None else first + most]
    pages = [chosen[start : start + _AT_ONCE] for start in range(0, len(chosen), _AT_ONCE)]
    looks = yield from side_by_side(*(queues.look(keys, some) for some in pages))
    found = zip(chosen, (look for some in looks for look in some), strict=True)
    return QueueList([_state(name, look, at, paused) for name, look in found], len(names))


def _state(name: str, look: queues.Look | str, at: float, paused: Mapping[str, queues.Pause]) -> QueueState:
    if isinstance(look, str):
        return QueueState(name, None, None, name in paused, look, paused.get(name))
    return QueueState(name, look.size, latency_of(look.next, at), name in paused, pause=paused.get(name))


class QueuesLook(NamedTuple):
    """Queues, and the names of those that a living process serves."""

    states: list[QueueState]
    served: set[str]


def look_at_queues(keys: Keys, match: str = "") -> Procedure[QueuesLook]:
    """The queues that have ``match`` in their name, and who serves them: two round trips."""
    at = time.time()
    found, processes = yield from side_by_side(list_queues(keys, match, at=at), list_processes(keys))
    return QueuesLook(found.states, {name for one in living(processes, at) for name in one.queues})


class Composition(NamedTuple):
    """What waits in a queue, out of a sample of both ends: how many of the ``looked`` jobs are of each class, the most
    first; ``whole``: these are all that there are; ``oldest``: of those that were looked at the one pushed first."""

    classes: list[tuple[str, int]]
    looked: int
    whole: bool
    oldest: Entry | None


class QueueLook(NamedTuple):
    """A queue, some of its payloads, the next to run first, the living processes that serve it, and what waits."""

    state: QueueState
    entries: list[Entry]
    processes: list[ProcessState]
    made_of: Composition


def look_at_queue(keys: Keys, name: str, first: int, most: int, mask: Mask | None = None) -> Procedure[QueueLook]:
    """One queue whether it exists or not, with at most ``most`` payloads from place ``first`` (0: the next to run) on;
    fewer of large ones. Two round trips."""
    key, at = keys.queue(name), time.time()
    [look], paused, page, processes, head, tail = yield from side_by_side(
        queues.look(keys, [name]),
        ask(queues.pauses(keys)),
        _next_first(key, first, most),
        list_processes(keys),
        _end(key, -1, _SAMPLE, leftwards=True),
        _end(key, 0, _SAMPLE),
    )
    serving = [one for one in living(processes, at) if name in one.queues]
    made_of = _made_of(head, tail, mask)
    return QueueLook(_state(name, look, at, paused), [Entry(one, mask=mask) for one in page], serving, made_of)


def _next_first(key: str, first: int, most: int) -> Procedure[list[bytes]]:
    return (yield from _end(key, -1 - first, most, leftwards=True)).payloads


def _end(key: str, first: int, most: int, *, leftwards: bool = False) -> Procedure[queues.ListPage]:
    try:
        page: queues.ListPage = yield queues.list_page(key, first, most, leftwards=leftwards)
    except ServerAway:
        raise
    except ServerError:  # it is no list, as its state says
        return queues.ListPage(0, 0, [])
    return page


def _made_of(next_ones: queues.ListPage, newest: queues.ListPage, mask: Mask | None) -> Composition:
    """The classes of a sample; where the ends overlap each job counts once."""
    size = max(next_ones.size, newest.size)
    places = {place: payload for page in (newest, next_ones) for place, payload in page.found}
    entries = [Entry(payload, mask=mask) for payload in places.values()]
    classes = Counter(one.name for one in entries)
    dated = [(at, one) for one in entries if (at := one.time("enqueued_at")) is not None]
    oldest = min(dated, key=lambda pair: pair[0])[1] if dated else None
    return Composition(classes.most_common(), len(entries), len(entries) >= size, oldest)


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
