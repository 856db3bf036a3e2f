"""One search over every place: what waits, runs, failed or died, and whatever has a name. Each place looks at so much
of what it holds, and says so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from henchman.batch.listing import find_batches, one_batch
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, HistoryError, ServerAway, ServerError
from henchman.history.search import DAY_BACK, parse_search
from henchman.inspector.base import Entry, Mask
from henchman.inspector.errors import Narrowed, errors
from henchman.inspector.filters import EntryFilter, FoundAt, entry_filter
from henchman.inspector.jobs import find_job
from henchman.inspector.ordered_id import id_of
from henchman.inspector.processes import running_in
from henchman.inspector.queues import list_queues
from henchman.inspector.search import Hint
from henchman.inspector.sets import SetName, search_set
from henchman.kernel.text import count, shorten
from henchman.oncall.views import saved_views
from henchman.store import cron, leases, limits, locks, metrics, ordered_people, queues
from henchman.store.call import Procedure, ask, run, side_by_side
from henchman.store.keys import Keys
from henchman.store.locks import PHASES
from henchman.wire import times
from henchman.work.locks import ONCE_FOR

__all__ = ["LOOKED", "SHOWN", "Everywhere", "FoundIn", "Hit", "queued_jobs", "search_everywhere"]

SHOWN: Final = 8  #: finds of one place that are shown
LOOKED: Final = 3000  #: jobs of each set that one look goes through; of the queues together ``_QUEUED``
_QUEUED: Final = 2000
_SETS: Final[tuple[SetName, ...]] = ("retries", "scheduled", "dead")
_OPENED: Final = 100  # of them in one look, where there is no text that the server can look for
_PROCESSES: Final = 2000  # that are asked what they run
_SCOPES, _LIMITS, _ORDERED = 100, 50, 20  # in which a key, a value, an id is looked up
_CRONS: Final = 25  # on a page of theirs
_AN_ID: Final = re.compile(r"(?=\S*\d)[A-Za-z0-9_.:-]{8,200}|[0-9a-f]{24}")


class Hit(NamedTuple):
    """A find: its name, what is said of it, and the words of its page's address, with what that is
    narrowed to. ``exact``: the text is its whole id."""

    name: str
    text: str
    place: tuple[str, ...]
    narrowed: Mapping[str, Any] = {}
    exact: bool = False

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs."""
        return {"name": self.name, "text": self.text, "page": list(self.place), "query": dict(self.narrowed)}


class FoundIn(NamedTuple):
    """What one place holds. ``looked`` of ``of`` were looked at, 0: that is not told. ``more``: others fit, or may;
    ``place`` and ``narrowed``: the page that goes on there."""

    title: str
    hits: Sequence[Hit]
    looked: int = 0
    of: int = 0
    more: bool = False
    place: tuple[str, ...] = ()
    narrowed: Mapping[str, Any] = {}
    problem: str = ""

    @property
    def said(self) -> str:
        """What was looked at, in words; empty: everything."""
        if self.problem:
            return self.problem
        return f"{self.looked:,} of {self.of:,} looked at" if self.looked < self.of else ""

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs."""
        more = {"page": list(self.place), "query": dict(self.narrowed)} if self.more and self.place else None
        whole = self.looked >= self.of and not self.problem
        looked = {"looked": self.looked, "of": self.of, "whole": whole, "more": more, "problem": self.problem or None}
        return {"title": self.title, "items": [one.to_json() for one in self.hits], **looked}


class Everywhere(NamedTuple):
    """What was found, place by place, those without a find last; ``exact``: where there is one thing whose whole id
    the text is, its page."""

    text: str
    places: Sequence[FoundIn]

    @property
    def found(self) -> list[FoundIn]:
        """The places that hold something."""
        return [one for one in self.places if one.hits]

    @property
    def exact(self) -> Hit | None:
        """The one thing whose whole id the text is."""
        every = {one.place: one for place in self.places for one in place.hits if one.exact}
        return next(iter(every.values())) if len(every) == 1 else None


def search_everywhere(runtime: Runtime, text: str, most: int = LOOKED) -> Everywhere:
    """Whatever has ``text``, or fits its filters (``class:shop.charge``). ``most``: jobs of each set, and of all
    queues, that are looked at. Three round trips beside the look into history."""
    keys, mask, slices = runtime.keys, runtime.registry.mask, max(-(-most // queues.SEARCHED), 2)
    wanted = entry_filter(text)
    looks = {which: _in_set(keys, which, text, slices, mask) for which in _SETS}
    queued = queued_jobs(keys, text, 0, mask, most=max(_QUEUED, most if most > LOOKED else 0))
    named = () if wanted.terms else (_queues, _batches, _ordered, _keys, _limits, _crons, _processes, _classes, _views)
    parts = [
        _alone("Job by its id", _job(keys, text, mask)),
        *([_alone("Running", _running(keys, wanted, mask))] if wanted.may_be_in("running") else []),
        *(_alone(which.capitalize(), look) for which, look in looks.items() if wanted.may_be_in(which)),
        *([_alone("Waiting in queues", queued)] if wanted.may_be_in("queued") else []),
        _alone("Errors", _errors(keys, wanted)),
        *(_alone(one.__name__[1:].capitalize(), one(keys, text)) for one in named),
    ]
    found = run(runtime.connections, side_by_side(*parts))
    return Everywhere(text, sorted([*found, _history(runtime, text)], key=lambda one: not one.hits))


def _alone(title: str, part: Procedure[FoundIn]) -> Procedure[FoundIn]:
    """A place that the server refuses fails alone."""
    try:
        return (yield from part)
    except ServerAway:
        raise
    except ServerError as error:
        return FoundIn(title, (), problem=f"not searched: {shorten(str(error), 200)}")


# ---- jobs


def _job(keys: Keys, text: str, mask: Mask | None) -> Procedure[FoundIn]:
    """The job of this id, where a few looks show it."""
    if not _AN_ID.fullmatch(text):
        return FoundIn("Job by its id", ())
    status = yield from find_job(keys, text, mask=mask, near=Hint())
    if status.state == "unknown":
        further = {"look": "all"}
        return FoundIn("Job by its id", (), more=not status.complete, place=("jobs", text), narrowed=further)
    return FoundIn("Job by its id", [Hit(status.name or text, status.text, ("jobs", text), exact=True)])


def _hit(entry: Entry, text: str, **hint: Any) -> Hit:
    return Hit(entry.call_text(120), text, ("jobs", entry.jid) if entry.jid else (), hint)


def _running(keys: Keys, wanted: EntryFilter, mask: Mask | None) -> Procedure[FoundIn]:
    """What processes have in flight, or say that they run."""
    starts = range(0, _PROCESSES, leases.HOLDERS)
    pages: list[leases.Holders] = yield from side_by_side(
        *(ask(leases.holders(keys, wanted.needle, one)) for one in starts)
    )
    found = dict[str, Hit]()
    for one in (one for page in pages for one in page.found):
        if one.list:
            entry, queue, taken = Entry(one.entry, mask=mask), keys.queue_of_flight(one.list), None
        else:
            [work] = running_in([leases.Record(one.identity, {}, {"": one.entry})], mask)
            entry, queue = work.entry, work.queue
            taken = None if work.run_at is None else wanted.now - work.run_at
        if wanted.fits(entry, FoundAt("running", one.identity, taken)):
            found.setdefault(entry.jid, _hit(entry, f"of queue {queue}, on {one.identity}"))
    cut = pages[-1].more or any(page.cut for page in pages)
    hits = list(found.values())
    return FoundIn("Running", hits[:SHOWN], more=cut or len(hits) > SHOWN, place=("busy",))


def _in_set(keys: Keys, which: SetName, text: str, slices: int, mask: Mask | None) -> Procedure[FoundIn]:
    found = yield from search_set(keys, which, text, 0, SHOWN + 1, mask, slices, SHOWN + 1)
    hits = [_hit(one, _in_words(which, one), at=one.score) for one in found.entries[:SHOWN]]
    more = len(found.entries) > SHOWN
    narrowed = {"q": text} if more or found.after is None else {"q": text, "after": found.after}
    looked = found.looked, found.size, more or found.after is not None
    return FoundIn(which.capitalize(), hits, *looked, (which,), narrowed)


def _in_words(which: SetName, one: Entry) -> str:
    when = f"{'dead since' if which == 'dead' else 'due'} {times.iso(one.score)}"
    return f"{shorten(': '.join(one.error), 160)}; {when}" if one.error else when


def queued_jobs(
    keys: Keys,
    text: str,
    first: int,
    mask: Mask | None,
    most: int = _QUEUED,
    *,
    step: int = _QUEUED,
    enough: int = SHOWN,
    told: int = 2 * SHOWN,
) -> Procedure[FoundIn]:
    """Jobs that wait in queues: of all queues, one behind the other, ``most`` from the place ``first`` on, ``step`` by
    step until ``enough`` fit; ``told`` of them are, and where there are others the next look begins there again."""
    wanted = entry_filter(text)
    if not wanted.needle:  # each is sent and opened here, a hundred a look at most
        step, most = min(step, _OPENED), min(most, 10 * _OPENED)
    starts = range(first, first + most, step)
    pages: list[queues.QueuesStretch] = yield from side_by_side(
        *(ask(queues.queues_page(keys, wanted.needle, one, step)) for one in starts)
    )
    hits, place = list[Hit](), first
    for page in pages:
        place += page.looked
        found = ((Entry(one.payload, mask=mask), one) for one in page.found)
        hits += [
            _hit(entry, f"in queue {one.queue}", queue=one.queue, place=one.size - one.place)
            for entry, one in found
            if wanted.fits(entry, FoundAt("queued"))
        ]
        if page.looked < step or len(hits) >= enough:  # they are large, or it is the end
            break
    total, cut = max(pages[0].total, place), len(hits) > told
    narrowed = {"q": text, "look": str(first if cut else place)}
    more = cut or place < total
    looked = place, total, more, ("search",) if more else ()
    return FoundIn("Waiting in queues", hits[:told], *looked, narrowed)


def _errors(keys: Keys, wanted: EntryFilter) -> Procedure[FoundIn]:
    text = wanted.value("error") or wanted.text
    found = yield from errors(keys, Narrowed(wanted.value("class"), wanted.value("queue"), text=text))
    fits = found.groups if text or wanted.value("class") or wanted.value("queue") else []
    hits = [
        Hit(
            shorten(f"{one.error}: {one.message}" if one.message else one.error, 160),
            f"{count(one.count, 'time')}, {one.state(found.at)}; in {', '.join(list(one.jobs)[:2])}",
            ("errors", one.id),
            exact=one.id == wanted.text,
        )
        for one in fits[:SHOWN]
    ]
    narrowed = {"q": text, "job": wanted.value("class"), "queue": wanted.value("queue")}
    return FoundIn("Errors", hits, more=len(fits) > SHOWN, place=("errors",), narrowed=narrowed)


def _history(runtime: Runtime, text: str) -> FoundIn:
    """What history knows of the last day; a whole id whenever it was."""
    if runtime.config.why_history_is_off():
        return FoundIn("History", ())
    try:
        reading = runtime.open_history().reading
        record = reading.job(text, most=1) if _AN_ID.fullmatch(text) else None
        within = text if record or parse_search(text).since is not None else f"{text} {DAY_BACK}"
        page = None if record else reading.find(parse_search(within), limit=SHOWN)
    except (ArgumentError, HistoryError) as error:
        return FoundIn("History", (), problem=f"not searched: {shorten(str(error), 200)}")
    events = [record.event] if record else page.events if page else []
    hits = [
        Hit(one.class_ or one.jid, f"{one.status}; {times.iso(one.ended_at or one.enqueued_at)}", ("jobs", one.jid))
        for one in events
    ]
    hits = [one._replace(exact=True) for one in hits] if record else hits
    return FoundIn("History", hits, more=bool(page and page.after), place=("history",), narrowed={"q": within})


# ---- whatever has a name


def _listed(title: str, hits: Sequence[Hit], place: tuple[str, ...], **narrowed: Any) -> FoundIn:
    exact_first = sorted(hits, key=lambda one: not one.exact)
    return FoundIn(title, exact_first[:SHOWN], more=len(hits) > SHOWN, place=place, narrowed=narrowed)


def _queues(keys: Keys, text: str) -> Procedure[FoundIn]:
    found = yield from list_queues(keys, text, 0, SHOWN)
    hits = [
        Hit(one.name, f"{count(one.size or 0, 'job')} {'wait, paused' if one.paused else 'wait'}", ("queues", one.name))
        for one in found.states
    ]
    hits.sort(key=lambda one: one.name != text)
    return FoundIn("Queues", hits, more=found.total > SHOWN, place=("queues",), narrowed={"q": text})


def _batches(keys: Keys, text: str) -> Procedure[FoundIn]:
    found, one = yield from side_by_side(find_batches(keys, text, "", 0, SHOWN), one_batch(keys, text))
    rows = {row.status.id: row.status for row in [*([one] if one else []), *found.rows]}
    hits = [
        Hit(
            status.description or id,
            f"{count(status.total, 'job')}, {status.state}; {id}",
            ("batches", id),
            {},
            id == text,
        )
        for id, status in rows.items()
    ]
    looked = found.looked or len(rows)
    of = looked + (1 if found.looked else 0)
    more = found.total > SHOWN
    return FoundIn("Batches", hits[:SHOWN], looked, of, more, ("batches",), {"q": text})


def _ordered(keys: Keys, text: str) -> Procedure[FoundIn]:
    """Ids that are, or begin with, the text, as far as one step of a scan goes; and queues by name."""
    names: list[str] = yield ordered_people.names(keys)
    hits = [Hit(one, "ordered queue", ("ordered", one)) for one in names if text.lower() in one.lower()]
    some = names[:_ORDERED]
    scans = (ask(ordered_people.scan(keys, one, part, 0, text)) for one in some for part in ("due", "morgue"))
    steps = yield from side_by_side(*scans)
    ids = [
        dict.fromkeys([queues.raw(text), *a[:SHOWN], *b[:SHOWN]])
        for (_, a), (_, b) in zip(steps[::2], steps[1::2], strict=True)
    ]
    looks = (ask(ordered_people.look(keys, name, list(some_ids), 1)) for name, some_ids in zip(some, ids, strict=True))
    for name, (at, rows) in zip(some, (yield from side_by_side(*looks)), strict=True):
        seen = [id_of(at, row) for row in rows]
        hits += [
            Hit(one.id, f"{one.state}, of {name}", ("ordered", name, one.id)) for one in seen if one.state != "absent"
        ]
    cut = any(cursor for cursor, _ in steps) or len(names) > _ORDERED
    listed = _listed("Ordered queues", hits, ("ordered",))
    return listed._replace(more=listed.more or cut)


def _keys(keys: Keys, text: str) -> Procedure[FoundIn]:
    """Scopes by name; and the key that is the text, in each of the first hundred."""
    scopes = [one for one in (yield locks.scopes(keys)) if one]
    hits = [Hit(one, "keys of this scope", ("keys", one)) for one in scopes if text.lower() in one.lower()]
    some = scopes[:_SCOPES]
    looks = yield from side_by_side(*(ask(locks.look(keys, one, text, ONCE_FOR)) for one in some))
    for scope, (held, memory) in zip(some, looks, strict=True):
        told = [f"{PHASES[one.phase]}: job {one.jid}" for one in held] or (
            [f"remembered of job {memory.jid}"] if memory else []
        )
        hits += [Hit(f"{text} of {scope}", "; ".join(told), ("keys", scope, text))] if told else []
    listed = _listed("Keys", hits, ("keys",), q=text)
    return listed._replace(looked=min(_SCOPES, len(scopes)), of=len(scopes))


def _limits(keys: Keys, text: str) -> Procedure[FoundIn]:
    """Limits by name; and the value of ``by`` that is the text, of those that are places."""
    every: list[limits.LimitSize] = yield limits.sizes(keys)
    hits = [Hit(one.name, "limit", ("limits", one.name)) for one in every if text.lower() in one.name.lower()]
    some = [one.name for one in every if one.kind == "c"][:_LIMITS]
    for name, [part] in zip(
        some, (yield from side_by_side(*(ask(limits.use(keys, one, [text])) for one in some))), strict=True
    ):
        if part.used or part.waiting:
            said = f"{part.used:,} taken, {count(part.waiting, 'job', does='wait')}"
            hits.append(Hit(f"{text} of {name}", said, ("limits", name, text)))
    return _listed("Limits", hits, ("limits",), q=text)


def _crons(keys: Keys, text: str) -> Procedure[FoundIn]:
    stored: cron.Stored = yield cron.read(keys)
    names = sorted(stored.definitions)
    fits = [(place, one) for place, one in enumerate(names) if text.lower() in one.lower()]
    hits = [
        Hit(one, "paused" if one in stored.paused else "periodic job", ("crons",), {"p": place // _CRONS + 1})
        for place, one in fits
    ]
    return _listed("Crons", hits, ("crons",))


def _processes(keys: Keys, text: str) -> Procedure[FoundIn]:
    known: list[str] = yield leases.identities(keys)
    hits = [
        Hit(one, "worker process", ("processes", one), {}, one == text)
        for one in sorted(known)
        if text.lower() in one.lower()
    ]
    return _listed("Processes", hits, ("busy",), q=text)


def _classes(keys: Keys, text: str) -> Procedure[FoundIn]:
    """Of which something ran in the last 90 days."""
    names: list[str] = yield metrics.total_names(keys)
    hits = [Hit(one, "what ran of it", ("metrics", one)) for one in sorted(names) if text.lower() in one.lower()]
    return _listed("Classes", hits, ("metrics",), q=text)


def _views(keys: Keys, text: str) -> Procedure[FoundIn]:
    found = yield from saved_views(keys)
    hits = [
        Hit(one.name, f"saved view of {one.page}", (one.page,), one.query)
        for one in found
        if text.lower() in f"{one.page} {one.name}".lower()
    ]
    return _listed("Views", hits, ())
