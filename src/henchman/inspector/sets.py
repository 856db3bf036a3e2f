"""Scheduled jobs, retries and dead jobs: reading them page by page, and acting on them.

A set that changes while a caller goes through it is not a snapshot: entries that stay, with the score they have, are
given exactly once; new ones may or may not be met. When two callers act on one entry, one of them succeeds.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple, TypeVar

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, PayloadError
from henchman.inspector.base import (
    Entry,
    Inspector,
    Mask,
    checked_entries,
    checked_entry,
    checked_page,
    checked_text,
    seconds,
    text_of,
)
from henchman.inspector.filters import DEFAULT_QUEUE, EntryFilter, FoundAt, entry_filter
from henchman.kernel.clock import ServerClock
from henchman.kernel.text import described
from henchman.store import jobs, leases, queues
from henchman.store.call import Items, Page, Pages, Procedure, ask, awaited, first, now, side_by_side
from henchman.store.keys import Keys
from henchman.store.queues import Member, raw
from henchman.wire import payload, times
from henchman.wire.deadlines import forgive_deadline
from henchman.wire.payload import sanitise
from henchman.work.effects import batch_of, of_payload
from henchman.work.locks import said_needs
from henchman.work.waits import await_effect, need_names, states_of_needs, waits_again

__all__ = ["PAGE", "Acted", "Found", "JobSet", "SetName", "Verb", "key_of_set", "look_at_set", "pages_by_score"]
__all__ += ["search_set"]

SetName = Literal["scheduled", "retries", "dead"]
Verb = Literal["retry", "kill", "delete"]
Change = Callable[[Entry], jobs.Move]
T = TypeVar("T")

PAGE = 100
_SLICES = 20  # stretches of a thousand entries that one search of people looks at
_OPENED = 3  # of them, where each entry is sent and opened here: no text is asked for that the server can look for


class Acted(NamedTuple):
    """What became of an action: entries moved, entries that were gone already, entries that stayed, and why (the
    first hundred reasons). ``stopped``: the server refused, the rest was not tried. ``uncancelled``: so many dead
    jobs that were put into their queues had been cancelled; that is taken back. ``cancelled``: so many others are
    cancelled still, and end without running."""

    done: int = 0
    gone: int = 0
    stayed: int = 0
    reasons: tuple[str, ...] = ()
    stopped: bool = False
    uncancelled: int = 0
    cancelled: int = 0

    def plus(self, other: Acted) -> Acted:
        """Both together."""
        return Acted(
            self.done + other.done,
            self.gone + other.gone,
            self.stayed + other.stayed,
            (*self.reasons, *other.reasons)[:PAGE],
            self.stopped or other.stopped,
            self.uncancelled + other.uncancelled,
            self.cancelled + other.cancelled,
        )


class Found(NamedTuple):
    """Entries that hold a text, among how many that were ``looked`` at; ``after``: the place behind them, None: there
    are no more; ``size``: how many entries there are."""

    entries: list[Entry]
    looked: int
    after: int | None
    size: int


def key_of_set(keys: Keys, which: SetName) -> str:
    """Where a set lies."""
    return {"scheduled": keys.schedule, "retries": keys.retry, "dead": keys.dead}[which]


class JobSet(Inspector):
    """One of the three sets. ``newest_first`` is how it is read: the dead set from its latest entry on.

    Each method also exists awaited, with an ``a`` before its name; what can be iterated also by ``async for``. The
    actions take one entry or several, also ``matching(…)``, ``between(…)`` or the whole set.
    """

    def __init__(self, runtime: Runtime, which: SetName) -> None:
        super().__init__(runtime)
        self.which = which
        self.key = key_of_set(runtime.keys, which)
        self.newest_first = which == "dead"
        self._config = runtime.config
        self._clock = ServerClock()

    def __repr__(self) -> str:
        return f"<{self.which}>"

    @now
    def size(self) -> Procedure[int]:
        """How many entries it holds."""
        return ask(queues.set_size(self.key))

    @now
    def page(self, first: int = 0, most: int = 50) -> Procedure[list[Entry]]:
        """At most ``most`` entries from place ``first`` on, in the order of the set."""
        first, most = checked_page(first, most)
        found = yield from queues.set_page(self.key, first, most, newest_first=self.newest_first)
        return [self._entry(one) for one in found]

    def __iter__(self) -> Iterator[Entry]:
        """Every entry in order, read in pages."""
        return iter(self.between())

    def __aiter__(self) -> AsyncIterator[Entry]:
        """The same for ``async for``."""
        return aiter(self.between())

    def between(self, low: float | dt.datetime | None = None, high: float | dt.datetime | None = None) -> Items[Entry]:
        """The entries due (or dead since) between two times, both included, in the order of the set.

        A time is an aware datetime or Unix seconds; None: no bound. For ``for`` and ``async for``.
        """
        least = -math.inf if low is None else seconds(low)
        most = math.inf if high is None else seconds(high)
        return self._items(
            lambda: pages_by_score(self.key, self._entry, newest_first=self.newest_first, low=least, high=most)
        )

    def matching(self, text: str) -> Items[Entry]:
        """Every entry whose stored text holds ``text``, in the order of the set; the server compares. Terms in it such
        as ``class:shop.charge``, ``-queue:pay``, ``args.0:42`` or ``took:>30s`` ask for jobs that are just that. For
        both kinds of ``for``. ArgumentError for a term that makes no sense."""
        return self.fitting(entry_filter(checked_text("matching", text, "which the payload holds")))

    def fitting(self, wanted: EntryFilter) -> Items[Entry]:
        """``matching``, of a filter that was read before."""
        where = FoundAt(self.which)
        return self._items(lambda: self._search(wanted.needle, lambda one: wanted.fits(one, where)))

    @now
    def find(self, jid: str) -> Procedure[Entry | None]:
        """The entry of a job; None when it is not here. Looks through the whole set, on the server."""
        found = self._search(checked_text("find", jid))
        return (yield from first(found, lambda one: one.jid == jid)) if jid else None

    @now
    def retry(self, entries: Entry | Iterable[Entry]) -> Procedure[Acted]:
        """Put entries into their queues now. What has been retried so far stays counted."""
        return self._act(checked_entries(entries), self._to_queue)

    async def aretry(self, entries: Entry | Iterable[Entry] | AsyncIterable[Entry]) -> Acted:
        """``retry``, awaited."""
        return await self._aact(entries, self._to_queue)

    @now
    def kill(self, entries: Entry | Iterable[Entry]) -> Procedure[Acted]:
        """Move entries into the dead set; one that cannot be read goes there wrapped, with the reason."""
        return self._act(checked_entries(entries), self._may_kill())

    async def akill(self, entries: Entry | Iterable[Entry] | AsyncIterable[Entry]) -> Acted:
        """``kill``, awaited."""
        return await self._aact(entries, self._may_kill())

    @now
    def delete(self, entries: Entry | Iterable[Entry]) -> Procedure[Acted]:
        """Remove entries for good."""
        return self._act(checked_entries(entries), self._away)

    async def adelete(self, entries: Entry | Iterable[Entry] | AsyncIterable[Entry]) -> Acted:
        """``delete``, awaited."""
        return await self._aact(entries, self._away)

    @now
    def reschedule(self, entry: Entry, at: float | dt.datetime) -> Procedure[bool]:
        """Let an entry be due at another time, an aware datetime or Unix seconds; False when it is gone."""
        if self.which == "dead":
            raise ArgumentError("a dead job is due at no time: retry it, and reschedule it where it is then")
        return self._reschedule(checked_entry(entry).payload, seconds(at))

    @now
    def retry_all(self) -> Procedure[Acted]:
        """``retry`` for every entry that is here now."""
        return self._act_on_all(self._to_queue)

    @now
    def kill_all(self) -> Procedure[Acted]:
        """``kill`` for every entry that is here now."""
        return self._act_on_all(self._may_kill())

    @now
    def clear(self) -> Procedure[Acted]:
        """``delete`` for every entry that is here now: entry by entry, so that each takes its effects along."""
        return self._act_on_all(self._away)

    asize = awaited(size)
    apage = awaited(page)
    afind = awaited(find)
    areschedule = awaited(reschedule)
    aretry_all = awaited(retry_all)
    akill_all = awaited(kill_all)
    aclear = awaited(clear)

    def _entry(self, member: Member) -> Entry:
        return Entry(member.payload, member.score, self._mask)

    def _reschedule(self, stored: bytes, at: float) -> Procedure[bool]:
        """A delay becomes a time: it loses its note, or it would move along when the server's clock steps."""
        if self.which == "scheduled" and payload.delay_of(stored) is not None:
            plain = payload.with_delay(stored, None)
            config, move = self._config, jobs.Move(stored, plain, at=at)
            call = jobs.move(self._keys, self.key, [move], dead_max=config.dead_max, dead_timeout=config.dead_timeout)
            if 1 in (yield call):  # after a lost answer too: it has this time then, and is given it once more
                return True
            stored = plain  # as an earlier call left it
        moved: bool = yield queues.reschedule(self.key, stored, at)
        return moved

    def _search(self, text: str, fits: Callable[[Entry], bool] | None = None) -> Pages[Entry]:
        return pages_by_score(self.key, self._entry, newest_first=self.newest_first, text=text, fits=fits)

    def _act_on_all(self, change: Change) -> Procedure[Acted]:
        """Act on the first page again and again, lowest score first; what stays is stepped over."""
        left: int = yield queues.set_size(self.key)
        total = Acted()
        while left > 0 and not total.stopped:
            found: queues.Stretch = yield queues.set_stretch(self.key, total.stayed, min(PAGE, left))
            if not found.members:
                break
            left -= len(found.members)
            total = total.plus((yield from self._act(map(self._entry, found.members), change)))
        return total

    def prepare(self, entries: Iterable[Entry], verb: Verb) -> Procedure[tuple[list[jobs.Move], list[str]]]:
        """What an operation sends for these entries: their moves, and why others stay; dead jobs that are to go into
        their queues are cancelled no more."""
        yield leases.ask_time(self._clock)
        change: Change = {"retry": self._to_queue, "kill": self._to_dead, "delete": self._away}[verb]
        changes, stay = list[tuple[Entry, jobs.Move]](), list[str]()
        for entry in entries:
            try:
                changes.append((entry, change(entry)))
            except Exception as error:  # this entry stays where it is, with the reason; its neighbours go
                stay.append(_why_it_stays(entry, error))
        if verb == "retry" and self.which == "dead" and changes:
            yield jobs.uncancel(self._keys, [one.jid for one, _ in changes if one.jid])
            changes = yield from self._wait_again(changes)
        return [move for _, move in changes], stay

    def _act(self, entries: Iterable[Entry], change: Change) -> Procedure[Acted]:
        """Act on these entries, a page at a time: each page is one move."""
        yield leases.ask_time(self._clock)  # what is enqueued now expires by the server's clock
        total, moves, size = Acted(), list[tuple[Entry, jobs.Move]](), 0
        for entry in entries:
            try:
                moves.append((entry, change(entry)))
                size += len(entry.payload) + len(moves[-1][1].new)
            except Exception as error:  # this entry stays where it is, with the reason; its neighbours go
                total = total.plus(Acted(stayed=1, reasons=(_why_it_stays(entry, error),)))
            if len(moves) == PAGE or size >= jobs.MOST_BYTES:
                total, moves, size = total.plus((yield from self._move(moves))), [], 0
                if total.stopped:
                    return total
        return total.plus((yield from self._move(moves))) if moves else total

    async def _aact(self, entries: Entry | Iterable[Entry] | AsyncIterable[Entry], change: Change) -> Acted:
        if not isinstance(entries, AsyncIterable):
            return await self._arun(self._act(checked_entries(entries), change))
        total, some, size = Acted(), list[Entry](), 0
        async for one in entries:
            some.append(checked_entry(one))
            size += len(one.payload)
            if len(some) == PAGE or size >= jobs.MOST_BYTES:
                total, some, size = total.plus(await self._arun(self._act(some, change))), [], 0
                if total.stopped:
                    return total
        return total.plus(await self._arun(self._act(some, change)))

    def _move(self, changes: list[tuple[Entry, jobs.Move]]) -> Procedure[Acted]:
        jids = [entry.jid for entry, move in changes if move.queue is not None and entry.jid]
        dead = self.which == "dead"  # a dead job has ended, and its cancellation with it
        marks = jobs.uncancel if dead else jobs.cancelled
        marked: frozenset[str] = (yield marks(self._keys, jids)) if jids else frozenset()
        if dead and jids:
            changes = yield from self._wait_again(changes)
        statuses: list[int | bytes] = yield jobs.move(
            self._keys,
            self.key,
            [move for _, move in changes],
            dead_max=self._config.dead_max,
            dead_timeout=self._config.dead_timeout,
        )
        told = [(entry, one) for (entry, _), one in zip(changes, statuses, strict=True) if isinstance(one, bytes)]
        refused = [f"the server refused: {text_of(one)}" for _, one in told if not one.startswith(jobs.HELD)]
        held = [f"{entry.jid}: {_held(one)}" for entry, one in told if one.startswith(jobs.HELD)]
        moved = [entry.jid for (entry, _), status in zip(changes, statuses, strict=True) if status in (1, jobs.EARLIER)]
        many = sum(jid in marked for jid in moved)
        return Acted(
            len(moved),
            statuses.count(0),
            len(refused) + len(held),
            (*refused[:1], *held),
            bool(refused),
            uncancelled=many if dead else 0,
            cancelled=0 if dead else many,
        )

    def _wait_again(self, changes: list[tuple[Entry, jobs.Move]]) -> Procedure[list[tuple[Entry, jobs.Move]]]:
        """The same, where those that wait for others do so once more, as far as these live or come back with them."""
        back = [entry.job for entry, move in changes if move.queue is not None]
        if not any(map(said_needs, back)):
            return changes
        states = yield from states_of_needs(self._keys, back)
        coming, found = need_names(back), []
        for entry, plain in changes:
            move = plain
            if plain.queue is not None and said_needs(entry.job):
                job = payload.decode(plain.new)
                if waits := waits_again(job, states, coming):
                    job.pop("enqueued_at", None)
                    effects = [*msgspec.json.decode(plain.effects or b"[]"), await_effect(job, waits)]
                    move = plain._replace(effects=msgspec.json.encode(effects), waits=True)
                move = move._replace(new=payload.encode(job))
            found.append((entry, move))
        return found

    def _to_queue(self, entry: Entry) -> jobs.Move:
        """Into its queue, as of now."""
        if entry.problem:
            raise PayloadError(f"{entry.problem}; no worker can run it")
        job = dict(entry.job)
        sanitise(job)
        at = self._clock.now()
        in_ms = self._config.timestamps == "ms"
        if self.which == "dead":
            forgive_deadline(job, at)
        job["enqueued_at"] = round(at * 1000) if in_ms else float(times.write(at, "seconds"))
        effects = of_payload(self._keys, entry.payload, "revived" if self.which == "dead" else "staged")
        return jobs.Move(entry.payload, payload.encode(job), entry.queue or DEFAULT_QUEUE, effects=effects)

    def _may_kill(self) -> Change:
        if self.which == "dead":
            raise ArgumentError("jobs of the dead set are dead already")
        return self._to_dead

    def _to_dead(self, entry: Entry) -> jobs.Move:
        """Into the dead set; wrapped, when it cannot be read."""
        if entry.problem:
            stored = payload.invalid(entry.payload, entry.problem, entry.queue or DEFAULT_QUEUE, self._clock.now())
        else:
            job = dict(entry.job)
            stored = payload.encode(job) if sanitise(job) else entry.payload
        effects = of_payload(self._keys, entry.payload, "dead")
        return jobs.Move(entry.payload, stored, effects=effects, batch=batch_of(entry.job))

    def _away(self, entry: Entry) -> jobs.Move:
        return jobs.Move(entry.payload, delete=True, effects=of_payload(self._keys, entry.payload, "deleted"))


def _why_it_stays(entry: Entry, error: Exception) -> str:
    said = error if isinstance(error, PayloadError | ArgumentError) else described(error)
    return f"{entry.jid or entry.name}: {said}"


def _held(status: bytes) -> str:
    holder = text_of(status.removeprefix(jobs.HELD))
    return f"it stays dead, because job {holder} has its key now: delete it, or wait for the end of that one"


def look_at_set(
    keys: Keys, which: SetName, first: int, most: int, mask: Mask | None = None
) -> Procedure[tuple[list[Entry], int]]:
    """At most ``most`` entries from place ``first`` on in the order of the set, and its size: one round trip."""
    key = key_of_set(keys, which)
    page = queues.set_page(key, first, most, newest_first=which == "dead")
    found, size = yield from side_by_side(page, ask(queues.set_size(key)))
    return [Entry(one.payload, one.score, mask) for one in found], size


def search_set(
    keys: Keys,
    which: SetName,
    text: str,
    after: int,
    enough: int,
    mask: Mask | None = None,
    slices: int = _SLICES,
    most: int | None = None,
) -> Procedure[Found]:
    """The entries that fit ``text``, as ``matching`` has it, among ``slices`` thousand from place ``after`` on, or
    among the first thousand of them when ``enough`` do: two round trips at most, however many there are. With ``most``
    no more than so many of them are opened and returned."""
    key, found, place, wanted = key_of_set(keys, which), list[Entry](), after, entry_filter(text)
    where, slices = FoundAt(which), slices if wanted.needle else min(slices, _OPENED)
    for many in (1, slices - 1):
        starts = range(place, place + many * queues.SEARCHED, queues.SEARCHED)
        calls = [
            queues.set_stretch(key, one, queues.SEARCHED, newest_first=which == "dead", text=wanted.needle)
            for one in starts
        ]
        size, *stretches = yield from side_by_side(ask(queues.set_size(key)), *map(ask, calls))
        for stretch in stretches:
            held = (Entry(one.payload, one.score, mask) for one in stretch.holding(wanted.needle))
            fits = (one for one in held if wanted.fits(one, where))
            found += fits if most is None else islice(fits, most - len(found))
            place += stretch.looked
            if not stretch.more:
                return Found(found, place - after, None, size)
            if stretch.looked < queues.SEARCHED:  # they are large: the next one begins behind what was not looked at
                return Found(found, place - after, place, size)
        if len(found) >= enough:
            break
    return Found(found, place - after, place, size)


def pages_by_score(
    key: str,
    show: Callable[[Member], T],
    *,
    newest_first: bool = False,
    low: float = -math.inf,
    high: float = math.inf,
    text: str = "",
    fits: Callable[[T], bool] | None = None,
) -> Pages[T]:
    """Every entry of a sorted set with ``low`` ≤ score ≤ ``high`` that holds ``text`` and ``fits``, as far as the set
    goes now: what is moved behind its present end is not met again.

    Each page begins with an entry that was passed already: when it does not, entries before it have gone, and the
    place is looked for again.
    """
    end = yield from queues.set_page(key, 0, 1, newest_first=not newest_first)
    if not end:
        return
    low, high, start = (max(low, end[0].score), high, high) if newest_first else (low, min(high, end[0].score), low)
    place, last, passed = 0, None, list[Member]()
    if not math.isinf(start):
        last = Member(b"", math.nextafter(start, math.inf if newest_first else -math.inf))
        place = max((yield queues.set_below(key, start, newest_first=newest_first)) - 1, 0)
    while True:
        most = queues.SEARCHED if text else PAGE + 1
        page: queues.Stretch = yield queues.set_stretch(key, place, most, newest_first=newest_first, text=text)
        found = page.members
        if place and last is not None and (not found or _is_after(found[0], last, newest_first)):
            place = yield from _lower_place(key, last, passed, place, newest_first)
            continue
        fresh = found if last is None else [one for one in found if _is_after(one, last, newest_first)]
        inside = [one for one in fresh if low <= one.score <= high]
        held = (show(one) for one in inside if raw(text) in one.payload)
        yield Page(held if fits is None else filter(fits, held))
        if not page.more or len(inside) < len(fresh):
            return
        if fresh:  # who acts on what is found takes away what holds the text
            last, passed = fresh[-1], [one for one in fresh if raw(text) not in one.payload] or fresh
        place += page.looked - 1


def _is_after(one: Member, other: Member, newest_first: bool) -> bool:
    """Whether ``one`` comes later in our order; the server orders equal scores by their bytes."""
    here, there = (one.score, one.payload), (other.score, other.payload)
    return here < there if newest_first else here > there


def _lower_place(key: str, last: Member, passed: Sequence[Member], place: int, newest_first: bool) -> Procedure[int]:
    """A lower place than ``place`` to read on from: that of an entry that was given lately, or, when all of them have
    gone, the one before the first with the score of ``last``."""
    if passed:
        some = [passed[-1].payload, passed[len(passed) // 2].payload, passed[0].payload]
        ranks: list[int | None] = yield queues.set_ranks(key, some, newest_first=newest_first)
        known = [one for one in ranks if one is not None and one < place]
        if known:
            return max(known)
    before: int = yield queues.set_below(key, last.score, newest_first=newest_first)
    return max(min(before, place) - 1, 0)
