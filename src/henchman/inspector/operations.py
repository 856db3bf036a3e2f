"""Operations: bulk work of people on all that a search finds. Each has a number, is kept on the server, survives who
does it, can be aborted, and, for 15 minutes after its end, be undone as far as the jobs allow it.

An operation concerns what was there at its moment (``frozen``); what comes later is left alone. Each slice of it is one
script: of every job, either nothing has happened, or all of it, and it is counted. So it needs no cursor: who goes on
begins anew, and does not meet again what was done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypedDict

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError
from henchman.inspector.base import Entry, checked_name
from henchman.inspector.due import peak_of, spread_time
from henchman.inspector.errors import STANDS_IN, jobs_of
from henchman.inspector.filters import EntryFilter, entry_filter
from henchman.inspector.queues import Queue
from henchman.inspector.sets import JobSet
from henchman.kernel.figures import span
from henchman.kernel.text import count, shorten
from henchman.store import fair
from henchman.store import operations as store
from henchman.store.call import Procedure, run
from henchman.store.keys import Keys
from henchman.store.leases import ask_time
from henchman.wire import times
from henchman.wire.payload import check_queue
from henchman.work.effects import batch_of

__all__ = [
    "COUNTED",
    "Act",
    "Matches",
    "Operation",
    "OperationJson",
    "OperationPage",
    "OperationsJson",
    "Place",
    "Wish",
]
__all__ += ["abort", "begin", "operation", "operations", "resume", "sources", "to_spread", "undo", "write_down"]

COUNTED: Final = 20_000  # jobs that a plan counts
_LONGEST: Final = 500
Act = Literal["retry", "kill", "delete", "reschedule", "spread", "cancel", "move"]
Place = Literal["retries", "scheduled", "dead", "queues", "errors", "batches"]
State = Literal["running", "aborted", "done", "failed", "undoing", "undone"]
_ALLOWED: Final[dict[Place, tuple[Act, ...]]] = {
    "retries": ("retry", "kill", "delete", "reschedule", "spread"),
    "scheduled": ("retry", "delete", "reschedule", "spread"),
    "dead": ("retry", "delete"),
    "queues": ("delete", "move"),
    "errors": ("retry", "delete"),
    "batches": ("retry", "cancel"),
}
_SINCE: Final = {"retries": ("retried_at", "failed_at"), "scheduled": ("created_at",), "dead": ()}
_ENDED: Final = ("done", "aborted", "failed")


class Wish(msgspec.Struct, frozen=True):
    """What is to be done: ``act`` on the jobs of ``place`` that hold ``text`` ("": all of them), that were there at the
    Unix time ``frozen``. ``name``: the queue, the error group, or the batch. ``to``: the Unix time of a reschedule, or
    from which on jobs are spread ``over`` so many seconds. ``rate``: jobs a second at most; 0: as fast as possible.
    ``planned``: how many were counted; ``more``: there may be more. ``into``: the queue to which jobs of a queue move,
    before what waits there, in their order."""

    act: Act
    place: Place
    text: str
    frozen: float
    name: str = ""
    to: float | None = None
    rate: float = 0.0
    planned: int = 0
    more: bool = False
    over: float = 0.0
    into: str = ""

    @property
    def filter(self) -> str:
        """What it is about, in words."""
        named = {"queues": "queue", "errors": "error", "batches": "batch"}
        where = f"{named[self.place]} {self.name}" if self.place in named else self.place
        if self.text:
            return f"{where} {self.asked}"
        return f"all of {where}" if not self.name else where

    @property
    def asked(self) -> str:
        """What the text asks for, in words; of a batch every word is text."""
        return f"with {self.text!r}" if self.place == "batches" else entry_filter(self.text).words


class OperationJson(TypedDict):
    """An operation as programs have it; times are ISO texts."""

    id: str
    act: str
    place: str
    text: str
    name: str
    frozen: str | None
    to: str | None
    rate: float
    planned: int
    more: bool
    status: str
    author: str
    made: str | None
    at: str | None
    done: int
    gone: int
    stayed: int
    looked: int
    kept: int
    final: int
    full: int
    back: int
    ran: int
    reason: str
    note: str
    undo_until: str | None
    result: str


class OperationsJson(TypedDict):
    """Operations as programs have them, the newest first."""

    items: list[OperationJson]
    total: int
    next: str | None


class Operation(NamedTuple):
    """One operation as it stands ``now`` (Unix seconds). ``done`` jobs were moved or deleted, ``gone`` were away when
    their turn came, ``stayed``: ``reason`` says why the first did; ``looked``: jobs that were looked at.

    Of those that were done ``kept`` lie in the trash; ``final``: others hang on them (a batch, a key), and ``full``:
    the trash had no room; both cannot be undone. ``back`` were put back, ``ran`` could not be: they had run or gone on.
    ``until``: when the trash is emptied; None: it is empty.
    """

    number: str
    wish: Wish
    state: State
    author: str
    made: float
    at: float
    now: float
    doer: bool
    text: str = ""
    reason: str = ""
    done: int = 0
    gone: int = 0
    stayed: int = 0
    looked: int = 0
    kept: int = 0
    final: int = 0
    full: int = 0
    back: int = 0
    ran: int = 0
    until: float | None = None

    @property
    def works(self) -> bool:
        """Whether it is not at its end."""
        return self.state in ("running", "undoing")

    @property
    def stopped(self) -> bool:
        """Whether somebody should work on it and nobody does."""
        return self.works and not self.doer and self.now - max(self.made, self.at) > store.DOER_MS / 1000

    @property
    def status(self) -> str:
        """How it stands, in a word."""
        return "stopped" if self.stopped else self.state

    @property
    def may_undo(self) -> bool:
        """Whether something can be put back still."""
        left = self.kept - self.back - self.ran
        return self.state in _ENDED and left > 0 and self.until is not None and self.until > self.now

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        if self.state == "undoing":
            return min((self.back + self.ran) / max(self.kept, 1), 1.0)
        if not self.works and self.state != "aborted":
            return 1.0
        return min((self.done + self.gone + self.stayed) / max(self.wish.planned, 1), 1.0)

    @property
    def rate(self) -> float | None:
        """Jobs a second so far; None: it has not begun."""
        took = self.at - self.made
        return self.done / took if self.done and took > 0 else None

    @property
    def words(self) -> str:
        """Act and filter: ``delete 12: dead with 'Noise'``."""
        many = f"{self.wish.planned:,}{' or more' if self.wish.more else ''}"
        return f"{self.wish.act} {many}: {self.wish.filter}"

    @property
    def result(self) -> str:
        """What became of it, as a sentence."""
        done = {"retry": "put into their queues", "kill": "killed", "delete": "deleted", "reschedule": "rescheduled"}
        done["spread"] = f"spread over {span(self.wish.over)}"
        done["move"] = f"moved to {self.wish.into}, before what waited there"
        done["cancel"] = "taken out of their set; what waits in queues ends when it is fetched"
        parts = [f"{count(self.done, 'job')} {done[self.wish.act]}"]
        parts += [f"{self.gone:,} had gone already"] if self.gone else []
        parts += [f"{self.stayed:,} stayed ({self.reason})" if self.reason else f"{self.stayed:,} stayed"] * (
            self.stayed > 0
        )
        parts += [f"{self.back:,} put back"] if self.back else []
        parts += [f"{self.ran:,} could not be put back: they had run or gone on"] if self.ran else []
        return "; ".join(parts)

    @property
    def lasting(self) -> str:
        """What cannot be undone, as a sentence; "": nothing."""
        parts = [f"{count(self.final, 'job')} on which a batch or a key hangs"] if self.final else []
        parts += [f"{count(self.full, 'job')} for which the trash had no room"] if self.full else []
        return f"Not to be undone: {' and '.join(parts)}." if parts else ""

    def to_json(self) -> OperationJson:
        """As the command line and programs have it."""
        wish = self.wish
        return {
            "id": self.number,
            "act": wish.act,
            "place": wish.place,
            "text": wish.text,
            "name": wish.name,
            "frozen": times.iso(wish.frozen),
            "to": None if wish.to is None else times.iso(wish.to),
            "rate": wish.rate,
            "planned": wish.planned,
            "more": wish.more,
            "status": self.status,
            "author": self.author,
            "made": times.iso(self.made),
            "at": times.iso(self.at),
            "done": self.done,
            "gone": self.gone,
            "stayed": self.stayed,
            "looked": self.looked,
            "kept": self.kept,
            "final": self.final,
            "full": self.full,
            "back": self.back,
            "ran": self.ran,
            "reason": self.reason,
            "note": self.text,
            "undo_until": times.iso(self.until) if self.may_undo and self.until is not None else None,
            "result": self.result,
        }


class OperationPage(NamedTuple):
    """Some operations, the newest first, and how many are kept."""

    operations: list[Operation]
    total: int


class Matches(NamedTuple):
    """Jobs of one set or queue that an operation concerns."""

    jobs: JobSet | Queue
    entries: Iterator[Entry]


def sources(runtime: Runtime, wish: Wish) -> Iterable[Matches]:
    """What an operation concerns that is there now. ArgumentError for what makes no sense."""
    if wish.act not in _ALLOWED.get(wish.place, ()):
        raise ArgumentError(f"{wish.act} of {wish.place} is no operation: {', '.join(_ALLOWED.get(wish.place, ()))}")
    if wish.act in ("reschedule", "spread") and wish.to is None:
        raise ArgumentError(f"{wish.act} needs a time: to, in Unix seconds")
    if wish.place == "queues":
        return _of_queue(runtime, checked_name(wish.name), entry_filter(wish.text, wish.frozen), wish.frozen)
    if wish.place == "errors":
        found = ((which, jobs_of(runtime, which, wish.name, wish.frozen)) for which in STANDS_IN)
        return [Matches(JobSet(runtime, which), entries) for which, entries in found]
    if wish.place == "batches":  # what waits for its time or a retry; the rest of it is not in sets
        both = JobSet(runtime, "scheduled"), JobSet(runtime, "retries")
        return [Matches(one, _of_batch(one.matching(wish.name), wish.name)) for one in both]
    return [Matches(jobs := JobSet(runtime, wish.place), _of_set(jobs, wish))]


def _of_queue(runtime: Runtime, name: str, wanted: EntryFilter, frozen: float) -> Iterator[Matches]:
    """The list of a queue, then its lines, where it is a fair one, as they are when the list was gone through: from
    there jobs go into them."""
    yield Matches(queue := Queue(runtime, name), queue.fitting(wanted, _pushed_before(frozen)))
    for line in run(runtime.connections, fair.line_names(runtime.keys, name)):
        yield Matches(queue := Queue(runtime, line), queue.fitting(wanted, _pushed_before(frozen)))


def _of_batch(entries: Iterable[Entry], batch: str) -> Iterator[Entry]:
    return (one for one in entries if not one.problem and batch_of(dict(one.job)) == batch)


def _of_set(jobs: JobSet, wish: Wish) -> Iterator[Entry]:
    for one in jobs.fitting(entry_filter(wish.text, wish.frozen)) if wish.text else jobs.between():
        times_of = [at for name in _SINCE[jobs.which] if (at := one.time(name)) is not None]
        since = times_of[0] if times_of else (one.score or 0.0) if jobs.which == "dead" else 0.0
        if since <= wish.frozen and _has_to_move(one, wish):
            yield one


def _has_to_move(one: Entry, wish: Wish) -> bool:
    """Whether the time of an entry is one that the operation changes: not one that it gave. What is spread never runs
    before its time, and what is due before the others is left alone."""
    if wish.act == "spread":
        first = wish.to if wish.to is not None and wish.to > wish.frozen else -math.inf
        return first <= (one.score or 0.0) < spread_time(one, wish.to or 0.0, wish.over)
    return not (wish.act == "reschedule" and one.score == wish.to)


def _pushed_before(moment: float) -> Callable[[Entry], bool]:
    def fits(one: Entry) -> bool:
        at = one.time("enqueued_at") or one.time("created_at")
        return at is None or at <= moment

    return fits


def to_spread(runtime: Runtime, place: Place, text: str, frozen: float, over: float) -> Wish:
    """The wish to spread the jobs of a set that hold ``text`` over so many seconds, from the fullest minute on."""
    if place != "retries" and place != "scheduled":
        raise ArgumentError(f"jobs of {place} have no time: nothing is to be spread")
    jobs = JobSet(runtime, place)
    since = peak_of(jobs.fitting(entry_filter(text, frozen)) if text else jobs.between(), frozen, COUNTED)
    return Wish("spread", place, text, frozen, "", since, over=over)


def begin(runtime: Runtime, author: str, wish: Wish) -> str:
    """Plan an operation and write it down: its number. Who looks for open operations carries it out. ArgumentError for
    what makes no sense, or finds nothing."""
    if wish.act == "move" and check_queue(wish.into) == wish.name:
        raise ArgumentError(f"into={wish.into!r}: that is where they are, give another queue")
    some = sum(1 for source in sources(runtime, wish) for _ in islice(source.entries, COUNTED))
    if not some:
        raise ArgumentError(f"nothing to {wish.act} any more: {wish.filter}")
    return write_down(runtime, author, msgspec.structs.replace(wish, planned=some, more=some >= COUNTED))


def write_down(runtime: Runtime, author: str, wish: Wish) -> str:
    """Begin an operation whose jobs were counted: its number."""
    made = runtime.connections.run(ask_time(runtime.clock))
    number = runtime.connections.run(store.next_number(runtime.keys))
    facts: dict[str, Any] = {"wish": msgspec.json.encode(wish), "author": shorten(author, 200), "made": repr(made)}
    runtime.connections.run(store.made(runtime.keys, number, facts))
    return number


def _read(number: str, stored: store.StoredOperation, now: float) -> Operation | None:
    facts = {name: value.decode("utf-8", "replace") for name, value in stored.facts.items()}
    try:
        wish = msgspec.json.decode(facts.pop("wish", ""), type=Wish)
        made, at = float(facts["made"]), float(facts.get("at") or facts["made"])
        until = float(facts["until"]) if facts.get("until") else None
        counts = {name: int(facts.get(name, 0)) for name in _COUNTS}
    except (msgspec.MsgspecError, ValueError, KeyError):
        return None
    state: Any = facts.get("state", "failed")
    author, text, reason = facts.get("author", "?"), facts.get("text", ""), facts.get("reason", "")
    return Operation(
        number,
        wish,
        state,
        author,
        made,
        at,
        now,
        stored.doer,
        text=text,
        reason=reason,
        until=until,
        **counts,
    )


_COUNTS: Final = ("done", "gone", "stayed", "looked", "kept", "final", "full", "back", "ran")


def operations(keys: Keys, first: int = 0, most: int = 50) -> Procedure[OperationPage]:
    """Operations from place ``first`` on, the newest first."""
    numbers, total = yield store.listed(keys, first, most)
    return OperationPage((yield from _several(keys, numbers)), total)


def _several(keys: Keys, numbers: Sequence[str]) -> Procedure[list[Operation]]:
    now, found = yield store.some(keys, numbers)
    read = [_read(number, one, now) for number, one in zip(numbers, found, strict=True)]
    return [one for one in read if one is not None]


def operation(keys: Keys, number: str) -> Procedure[Operation | None]:
    """One operation; None: nobody knows it (any more)."""
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        return None
    return next(iter((yield from _several(keys, [number]))), None)


def abort(keys: Keys, number: str) -> Procedure[bool]:
    """Let it do nothing more: what was done stays done, and can be undone. False: it is at its end."""
    answer: int = yield store.turn(keys, number, "aborted", ("running", "undoing"), "aborted")
    return answer == 1


def undo(keys: Keys, number: str) -> Procedure[bool]:
    """Let what it did be taken back; who looks for open operations carries that out. False: nothing can be."""
    answer: int = yield store.turn(keys, number, "undoing", _ENDED)
    return answer == 1


def resume(keys: Keys, number: str) -> Procedure[bool]:
    """Let an aborted operation go on. False: it is none."""
    answer: int = yield store.turn(keys, number, "running", ("aborted", "failed"))
    return answer == 1
