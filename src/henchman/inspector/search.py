"""Where the payload of one job is: everything that may hold it, in the order in which jobs move, with a bound.

``everywhere`` searches page by page, in the sets side by side. ``near`` looks at what a few looks show, all at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

from henchman.inspector.base import Entry, Mask
from henchman.inspector.processes import list_work, running_in
from henchman.store import batches, fair, leases, needs, queues
from henchman.store.call import Procedure, ask, side_by_side, unless_refused
from henchman.store.keys import Keys
from henchman.store.needs import Blocked

__all__ = ["BATCHES", "Hint", "JobSearch", "JobState", "Located", "SearchStep"]

T = TypeVar("T")
JobState = Literal[
    "blocked",
    "deferred",
    "enqueued",
    "scheduled",
    "retrying",
    "working",
    "dead",
    "finished",
    "failed",
    "error",
    "cancelled",
    "expired",
    "unknown",
]
BATCHES = 1000  #: the newest, that are asked whether they hold a job back
_PAGE = 200  # entries of a list that the server looks at in one call
_STEP, _QUEUES_STEP, _BATCHES_STEP = 20_000, 2000, 20  # entries of sets, of queues, and batches, of one step
_SAME = 200  # entries of a set that may have the score of a hint
_IN_FLIGHT = 1000  # payloads read of one in-flight list
_PROCESSES = 2000  # that are asked who runs the job, where a few looks are to show it
_PLAIN = re.compile(r"[A-Za-z0-9_.:-]+")  # ids that JSON writes in one way
_AROUND = 4  # pages around the place in a queue that a hint names: jobs before it leave meanwhile


class Hint(NamedTuple):
    """Where a list showed the job: its score (``at``) in a set; its ``place`` in ``queue``, 1 being next to run."""

    at: float | None = None
    queue: str = ""
    place: int = 0


class Located(NamedTuple):
    state: JobState
    entry: Entry
    queue: str | None = None
    position: int | None = None
    process: str | None = None
    started_at: float | None = None
    batch: str = ""  # that keeps it, as one of its dead
    row: Blocked | None = None  # of one that waits for others


class SearchStep(NamedTuple):
    """A step of a search: what it ``found``; ``searched`` of ``total`` entries are behind it; ``after``: where the next
    step begins, "" when there is none."""

    found: Located | None
    searched: int
    total: int
    after: str


class JobSearch:
    """One search: what to look for, and how much may still be looked at."""

    def __init__(self, keys: Keys, jid: str, most: int, mask: Mask | None, *, thorough: bool = True) -> None:
        self.thorough = thorough  # whether all that the answer may tell is worth a search
        self.keys = keys
        self.jid = jid
        self.most = most
        self.left = most  # payloads that may still be read from queues
        self.mask = mask
        self.scanned = 0
        self.complete = True

    def running(self, only: Sequence[str] | None = None) -> Procedure[Located | None]:
        """In flight, or written down as running, in ``only`` these processes or in any. The in-flight lists are exact;
        what a process writes down is as old as its last heartbeat, and counts where there are no such lists (Ruby's) or
        they are too long to be read."""
        work, identities = yield from side_by_side(
            list_work(self.keys, self.mask, self.jid, only), ask(leases.joined(self.keys))
        )
        identities = [one for one in identities if only is None or one in only]
        written = [one for one in work if one.entry.jid == self.jid]
        lists: list[str] = (yield leases.lists_of(self.keys, identities)) if identities else []
        plain = {one: "list" for one in lists if not self.keys.is_held(one)}
        sizes: list[int] = (yield leases.sizes(plain)) if plain else []
        full = [one for one, size in zip(plain, sizes, strict=True) if size]
        entries = yield from side_by_side(*map(self._in_flight, full))
        for name, entry in zip(full, entries, strict=True):
            if entry is not None:
                heads = {one: self.keys.in_flight(one, 0, "").removesuffix("0:") for one in identities}
                owner = next((one for one, head in heads.items() if name.startswith(head)), None)
                queue = name.removeprefix(heads[owner]).partition(":")[2] if owner else entry.queue
                note = next((one for one in written if one.identity == owner), None)
                return Located("working", entry, queue, None, owner, note.run_at if note else None)
        exact = all(size < _IN_FLIGHT for size in sizes)
        note = next((one for one in written if not (exact and one.identity in identities)), None)
        return Located("working", note.entry, note.queue, None, note.identity, note.run_at) if note else None

    def running_soon(self) -> Procedure[Located | None]:
        """The same in one round trip, where the server itself looks who holds the text of the id: a thousand processes
        are not asked each. What it finds is compared here; an id that JSON may write in another way is asked of all."""
        if not _PLAIN.fullmatch(self.jid):
            return (yield from self.running())
        starts = range(0, _PROCESSES, leases.HOLDERS)
        looks = (ask(leases.holders(self.keys, self.jid, first)) for first in starts)
        pages: list[leases.Holders] = yield from side_by_side(*looks)
        self.complete = self.complete and not pages[-1].more and not any(page.cut for page in pages)
        found = [one for page in pages for one in page.found]
        shown = [leases.Record(one.identity, {}, {"": one.entry}) for one in found if not one.list]
        written = [one for one in running_in(shown, self.mask) if one.entry.jid == self.jid]
        for one in found:
            entry = Entry(one.entry, mask=self.mask)
            if one.list and entry.jid == self.jid:
                note = next((told for told in written if told.identity == one.identity), None)
                queue, began = self.keys.queue_of_flight(one.list), note.run_at if note else None
                return Located("working", entry, queue, None, one.identity, began)
        first = next(iter(written), None)
        return first and Located("working", first.entry, first.queue, None, first.identity, first.run_at)

    def _in_flight(self, name: str) -> Procedure[Entry | None]:
        """In one in-flight list, the last fetched first."""
        looked = 0
        while looked < _IN_FLIGHT:
            page: queues.ListPage = yield queues.list_page(name, looked, _IN_FLIGHT - looked, text=self.jid)
            found = self._pick(page)
            if found is not None or not page.looked:
                return found and found[1]
            looked += page.looked
        return None

    def parked(self) -> Procedure[Located | None]:
        """Among those that wait for others."""
        [row] = yield needs.blocked(self.keys, [self.jid])
        return row and Located("blocked", Entry(row.payload, mask=self.mask), row.queue, row=row)

    def in_queue(self, name: str) -> Procedure[Located | None]:
        """In one queue, from the next to run on. Jobs that leave meanwhile move the rest: pages overlap by half."""
        start = 0
        while True:
            if self.left <= 0:
                self.complete = False
                return None
            most = min(_PAGE, self.left)
            call = queues.list_page(self.keys.queue(name), -start - 1, most, leftwards=True, text=self.jid)
            page: queues.ListPage = yield call
            self.left -= page.looked
            self.scanned += page.looked
            found = self._pick(page)
            if found is not None:
                return self._waiting(found[1], name, page.size - found[0])
            if start + page.looked >= page.size:
                return None
            start += max(page.looked // 2, 1)

    def in_queues(self, names: Sequence[str]) -> Procedure[Located | None]:
        """In several queues: first among the next to run of each, all in one call, then in those that have more."""
        if len(names) * _PAGE <= self.left:
            heads = yield from side_by_side(*(unless_refused(self._head(name), None) for name in names))
            if found := next((one[0] for one in heads if one and one[0]), None):
                return found  # type: ignore[no-any-return]
            names = [name for name, one in zip(names, heads, strict=True) if one and one[1]]
        return (yield from self._first(*map(self.in_queue, names)))

    def _head(self, name: str) -> Procedure[tuple[Located | None, bool]]:
        """Among the next to run of a queue; and whether it has more."""
        page: queues.ListPage = yield queues.list_page(self.keys.queue(name), -1, _PAGE, leftwards=True, text=self.jid)
        more, at = page.looked < page.size, self._pick(page)
        if not more:  # else it is counted when it is looked through
            self.scanned, self.left = self.scanned + page.looked, self.left - page.looked
        return at and self._waiting(at[1], name, page.size - at[0]), more

    def just_pushed(self, name: str) -> Procedure[Located | None]:
        """Among the newest of a queue, where staged and retried jobs arrive."""
        found = self._pick((yield queues.list_page(self.keys.queue(name), 0, _PAGE, text=self.jid)))
        return None if found is None else self._waiting(found[1], name)

    def in_set(self, key: str, state: JobState) -> Procedure[Located | None]:
        """In one sorted set; the server compares the texts."""
        return self.in_sets((key, state))

    def in_sets(self, *sets: tuple[str, JobState]) -> Procedure[Located | None]:
        """In sorted sets side by side, a stretch of each in one write, until one of them holds it: whoever else asks
        the server waits for the whole write."""
        states, places = dict(sets), dict.fromkeys((key for key, _ in sets), 0)
        while places:
            looks = (unless_refused(self._stretch(key, states[key], at), (None, None)) for key, at in places.items())
            seen: list[tuple[Located | None, int | None]] = yield from side_by_side(*looks)
            there: Located | None = next((found for found, _ in seen if found is not None), None)
            if there is not None:
                return there
            places = {key: on for key, (_, on) in zip(places, seen, strict=True) if on is not None}
        return None

    def _stretch(self, key: str, state: JobState, place: int) -> Procedure[tuple[Located | None, int | None]]:
        """In one stretch of a sorted set; and where to go on, None at its end."""
        left = 10 * self.most - place
        call = queues.set_stretch(key, place, min(queues.SEARCHED, left), newest_first=True, text=self.jid)
        page: queues.Stretch = yield call
        self.scanned += page.looked
        if found := self._member(page, state):
            return found, None
        if page.more and page.looked >= left:
            self.complete = False
        return None, place + page.step() if page.more and page.looked < left else None

    def _member(self, page: queues.Stretch, state: JobState) -> Located | None:
        for member in page.holding(self.jid):
            entry = Entry(member.payload, member.score, self.mask)
            if entry.jid == self.jid:
                return Located(state, entry, entry.queue)
        return None

    def dead(self) -> Procedure[Located | None]:
        """In the dead set."""
        return self.in_set(self.keys.dead, "dead")

    def buried(self) -> Procedure[Located | None]:
        """Among the dead: in their set, or with those of one of the newest batches."""
        return (yield from self._first(self.dead(), self.in_batches()))

    def in_batches(self) -> Procedure[Located | None]:
        """Among the dead of the newest batches."""
        names: list[str] = yield batches.newest(self.keys, 0, BATCHES)
        for batch in (yield batches.having(self.keys, names, "dead")) if names else []:
            there = yield from self._first(self.in_set(self.keys.batch(batch) + ":dead", "dead"))
            if there is not None:
                return there._replace(batch=batch)
        return None

    def _pick(self, page: queues.ListPage) -> tuple[int, Entry] | None:
        """The job among what holds its id as text, with its place."""
        for place, one in page.found:
            entry = Entry(one, mask=self.mask)
            if entry.jid == self.jid:
                return place, entry
        return None

    def everywhere(self, queue: str | None) -> Procedure[Located | None]:
        """In the order in which jobs wander, and once more where it may have gone meanwhile."""
        known = [queue] if queue else []
        found = yield from self._first(
            self._any(self.running(), self.parked()),
            *(self.in_queue(name) for name in known),
            self.in_sets((self.keys.schedule, "scheduled"), (self.keys.retry, "retrying"), (self.keys.dead, "dead")),
        )
        if found is None:
            self.left = self.most
            others = yield from fair.all_names(self.keys)
            found = yield from self._first(self.in_queues([name for name in others if name not in known]))
        if found is None:  # staged, started or retried between two looks
            found = yield from self._first(
                self._any(*(self.just_pushed(name) for name in known), self.running(), self.parked()),
                self.in_sets((self.keys.retry, "retrying"), (self.keys.dead, "dead")),
                self.in_batches(),
            )
        return found

    def near(self, hint: Hint) -> Procedure[Located | None]:
        """Where a few looks show it, all at once: running, waiting for others, where ``hint`` says, at the beginning of
        each set, at both ends of each queue. ``complete``: whether that was everything."""
        sets: Sequence[tuple[str, JobState]] = (
            (self.keys.schedule, "scheduled"),
            (self.keys.retry, "retrying"),
            (self.keys.dead, "dead"),
        )
        places = [self.running_soon(), self.parked(), self._ends(), *(self._first_of(*one) for one in sets)]
        if hint.at is not None:
            places += [self._scored(*one, hint.at) for one in sets]
        if hint.queue and hint.place:
            places.append(self._around(hint.queue, hint.place))
        return (yield from self._any(*places))

    def _ends(self) -> Procedure[Located | None]:
        """At both ends of each queue; few entries of each where there are many queues."""
        look: queues.EndsLook = yield queues.ends(self.keys, self.jid)
        self.complete, self.scanned = self.complete and not look.more, self.scanned + look.looked
        return self._matching(look.found)

    def _matching(self, found: Sequence[queues.Matching]) -> Located | None:
        for one in found:
            entry = Entry(one.payload, mask=self.mask)
            if entry.jid == self.jid:
                return self._waiting(entry, one.queue, one.size - one.place)
        return None

    def _first_of(self, key: str, state: JobState) -> Procedure[Located | None]:
        """At the beginning of a sorted set."""
        found, more = yield from self._stretch(key, state, 0)
        self.complete = self.complete and more is None
        return found

    def _scored(self, key: str, state: JobState, score: float) -> Procedure[Located | None]:
        """Among those of a sorted set that have this score."""
        page: queues.Stretch = yield queues.set_stretch(key, 0, _SAME, newest_first=True, text=self.jid, score=score)
        return self._member(page, state)

    def _around(self, name: str, place: int) -> Procedure[Located | None]:
        """In a queue, from where it stood on towards the next to run."""
        starts = range(max(place - (_AROUND - 1) * _PAGE, 0), place + 1, _PAGE)
        key, text = self.keys.queue(name), self.jid
        pages = (ask(queues.list_page(key, -at - 1, _PAGE, leftwards=True, text=text)) for at in starts)
        for page in (yield from side_by_side(*pages)):
            if found := self._pick(page):
                return self._waiting(found[1], name, page.size - found[0])
        return None

    def _waiting(self, entry: Entry, name: str, position: int | None = None) -> Located:
        """In a queue, or in the line ``name`` of a fair one: its position is that among the jobs of its tenant."""
        return Located("enqueued", entry, fair.queue_of(name), position)

    def _any(self, *places: Procedure[Located | None]) -> Procedure[Located | None]:
        """The first find of several places that are searched side by side."""
        found: list[Located | None] = yield from side_by_side(*(unless_refused(one, None) for one in places))
        return next((one for one in found if one is not None), None)

    def _first(self, *places: Procedure[Located | None]) -> Procedure[Located | None]:
        """The first find; a place is searched when all before it held nothing."""
        for place in places:
            found: Located | None = yield from unless_refused(place, None)
            if found is not None:
                return found
        return None

    # ---- step by step

    def step(self, after: str) -> Procedure[SearchStep]:
        """The next stretch of everything, in the order retries, scheduled, dead, queues, dead of batches: one round
        trip, but for batches. ``after``: where the step before ended, "" at the beginning."""
        sets: Sequence[tuple[str, JobState, str]] = (
            ("retries", "retrying", self.keys.retry),
            ("scheduled", "scheduled", self.keys.schedule),
            ("dead", "dead", self.keys.dead),
        )
        place, _, at = after.partition(".")
        place, first = place or "retries", int(at) if at.isascii() and at.isdigit() and len(at) < 12 else 0
        asked = next(((state, key) for name, state, key in sets if name == place), None)
        looks = self._set_step(*asked[::-1], first) if asked else side_by_side()
        in_queues = ask(queues.queues_page(self.keys, self.jid, first, _QUEUES_STEP if place == "queues" else 0))
        sizes = (ask(queues.set_size(key)) for _, _, key in sets)
        done, listed, *many = yield from side_by_side(looks, in_queues, *sizes)
        names = [name for name, _, _ in sets] + ["queues", "batches"]
        many += [listed.total, 0]
        if place == "queues":
            done = self._matching(listed.found), listed.looked
        elif place == "batches":
            return (yield from self._batch_step(first, sum(many)))
        here = names.index(place) if place in names else 0
        found, looked = done or (None, 0)
        before, ends = sum(many[:here]), not looked or first + looked >= many[here]
        following = f"{names[here + 1]}.0" if ends else f"{place}.{first + looked}"
        return SearchStep(found, min(before + first + looked, sum(many)), sum(many), following)

    def _set_step(self, key: str, state: JobState, first: int) -> Procedure[tuple[Located | None, int]]:
        starts = range(first, first + _STEP, queues.SEARCHED)
        looks = (ask(queues.set_stretch(key, at, queues.SEARCHED, newest_first=True, text=self.jid)) for at in starts)
        pages: list[queues.Stretch] = yield from side_by_side(*looks)
        looked = 0
        for page in pages:
            looked += page.looked
            if found := self._member(page, state):
                return found, looked
            if page.looked < queues.SEARCHED:  # they are large, or it is the end
                break
        return None, looked

    def _batch_step(self, first: int, total: int) -> Procedure[SearchStep]:
        """The dead of some of the newest batches, as far as one look shows them."""
        names: list[str] = yield batches.newest(self.keys, 0, BATCHES)
        having: list[str] = (yield batches.having(self.keys, names, "dead")) if names else []
        some = having[first : first + _BATCHES_STEP]
        looks = (self._first_of(self.keys.batch(one) + ":dead", "dead") for one in some)
        found = yield from side_by_side(*looks)
        located = ((one, batch) for one, batch in zip(found, some, strict=True) if one)
        there = next((one._replace(batch=batch) for one, batch in located), None)
        more = first + len(some) < len(having)
        return SearchStep(there, total, total, f"batches.{first + len(some)}" if more else "")
