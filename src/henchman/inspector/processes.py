"""Worker processes and running jobs for people, and commands to processes. Ruby's are read and commanded as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, overload

import msgspec

from henchman.errors import ArgumentError
from henchman.inspector.base import Entry, Inspector, Mask, json_object
from henchman.kernel.clock import ServerClock
from henchman.kernel.text import plain
from henchman.store import leases
from henchman.store.call import Page, Pages, Procedure, ask, awaited, now, side_by_side
from henchman.store.keys import Keys
from henchman.wire import jsontext, times

__all__ = [
    "ALIVE",
    "SIGNALS",
    "Fleet",
    "ProcessLook",
    "ProcessState",
    "Processes",
    "QueueService",
    "Running",
    "Work",
    "list_processes",
    "list_work",
    "living",
    "look_at_fleet",
    "look_at_process",
    "process_state",
    "running_in",
    "who_serves",
]

ALIVE = 60.0  # seconds: a process that was not heard of for longer counts no more
_LISTS = 200  # in-flight lists of one process that are measured
_COUNTED = 2000  # processes of which the server counts who serves a queue
_MINUTES = 60  # of memory that a process tells
_AT_ONCE = 50  # processes read in one call
_KEPT = 16_384  # bytes of what a process says at its start that are kept at most
#: a command → the signal that Sidekiq's processes understand
SIGNALS: Mapping[str, str] = {"quiet": "TSTP", "stop": "TERM", "dump": "TTIN"}


class ProcessState(NamedTuple):
    """What a worker process says of itself. Whatever it does not say is None, empty or 0; times are Unix seconds."""

    identity: str
    hostname: str
    pid: int | None
    tag: str
    version: str
    started_at: float | None
    queues: tuple[str, ...]
    labels: tuple[str, ...]
    concurrency: int
    busy: int
    beat: float | None
    rss_kb: int
    rtt_us: int
    quiet: bool
    embedded: bool
    skew: float | None = None  # seconds by which the clock of its host is ahead of the server's
    isolated: int = 0  # processes that it has for isolated runs
    isolated_rss_kb: int = 0  # the memory of these

    @property
    def ours(self) -> bool:
        """Whether it is one of Henchman's."""
        return self.version.startswith("henchman")

    def beat_age(self, now: float) -> float | None:
        """Seconds since it was last heard of."""
        return None if self.beat is None else max(now - self.beat, 0.0)


class Work(NamedTuple):
    """One running job: where, since when (Unix seconds), and its payload. ``pid``: of an isolated run, its process."""

    identity: str
    slot: str
    queue: str
    run_at: float | None
    entry: Entry
    pid: int | None = None


def _number(value: Any) -> float | None:
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    return times.read(value)


def _whole(value: Any) -> int:
    number = _number(value)
    return int(number) if number is not None and abs(number) < 1e15 else 0


class _Said(NamedTuple):
    """What a process says of itself once, at its start."""

    hostname: str
    pid: int | None
    tag: str
    version: str
    started_at: float | None
    queues: tuple[str, ...]
    labels: tuple[str, ...]
    concurrency: int
    embedded: bool


@lru_cache(maxsize=2048)
def _said(info: bytes) -> _Said:
    """Kept: it stays the same as long as a process lives, and is most of the work of a look at a large fleet."""
    told = json_object(info)
    capsules = told.get("capsules")
    groups = list(capsules.values()) if isinstance(capsules, dict) else []
    weights = [one.get("weights") for one in groups if isinstance(one, dict)]
    listed = told.get("queues") or {name: 0 for one in weights if isinstance(one, dict) for name in one}
    return _Said(
        plain(told.get("hostname")),
        _whole(told.get("pid")) or None,
        plain(told.get("tag")),
        plain(told.get("version")),
        _number(told.get("started_at")),
        _texts(listed),
        _texts(told.get("labels")),
        _whole(told.get("concurrency")),
        told.get("embedded") is True,
    )


@lru_cache(maxsize=64)
def _distinct(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Most processes of a fleet serve the same queues, and share the text of their names."""
    return tuple(dict.fromkeys(texts))


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, dict | list):
        return _distinct(tuple(map(plain, value)))
    return (value,) if isinstance(value, str) and value else ()


def process_state(record: leases.Record) -> ProcessState | None:
    """What a record says; None when there is none behind the identity. Reads every version's, and broken ones."""
    facts = record.facts
    if not facts:
        return None
    info = facts.get("info", b"")
    said = _said(info) if len(info) <= _KEPT else _said.__wrapped__(info)
    host, _, rest = record.identity.partition(":")
    isolated = facts.get("isolated", b"").split()
    return ProcessState(
        identity=record.identity,
        hostname=said.hostname or host,
        pid=said.pid or _whole(rest.partition(":")[0]) or None,
        tag=said.tag,
        version=said.version,
        started_at=said.started_at,
        queues=said.queues,
        labels=said.labels,
        concurrency=_whole(facts.get("concurrency")) or said.concurrency,
        busy=_whole(facts.get("busy")),
        beat=_number(facts.get("beat")),
        rss_kb=_whole(facts.get("rss")),
        rtt_us=_whole(facts.get("rtt_us")),
        quiet=facts.get("quiet") == b"true",
        embedded=said.embedded,
        skew=_number(facts.get("skew")),
        isolated=_whole(isolated[0]) if isolated else 0,
        isolated_rss_kb=_whole(isolated[1]) if len(isolated) > 1 else 0,
    )


class _Slot(msgspec.Struct):
    """What one slot says that it runs, as all versions since Sidekiq 6.0 write it."""

    payload: str
    queue: str
    run_at: int | float
    pid: int = 0


_slot = msgspec.json.Decoder(_Slot).decode


def _work(identity: str, slot: str, value: bytes, mask: Mask | None) -> Work:
    try:
        said = _slot(value)
        stored = said.payload.encode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _unusual_work(identity, slot, value, mask)
    entry = Entry(stored, mask=mask)
    return Work(identity, slot, said.queue or entry.queue or "", times.read(said.run_at), entry, said.pid or None)


def _unusual_work(identity: str, slot: str, value: bytes, mask: Mask | None) -> Work:
    record = json_object(value)
    payload = record.get("payload")
    if isinstance(payload, str):
        stored = payload.encode("utf-8", "replace")
    elif isinstance(payload, dict):  # Sidekiq before 6.0
        stored = jsontext.encode(payload)
    else:
        stored = value if payload is None else jsontext.encode(payload)
    entry = Entry(stored, mask=mask)
    queue = record.get("queue")
    pid = _whole(record.get("pid")) or None
    return Work(identity, slot, plain(queue) or entry.queue or "", times.read(record.get("run_at")), entry, pid)


def _records(keys: Keys, *, jobs: bool = True, only: Sequence[str] | None = None) -> Procedure[list[leases.Record]]:
    every = (yield leases.identities(keys)) if only is None else only
    pages = [every[start : start + _AT_ONCE] for start in range(0, len(every), _AT_ONCE)]
    found = yield from side_by_side(*(leases.records(keys, page, jobs=jobs) for page in pages))
    return [record for page in found for record in page]


class Fleet(NamedTuple):
    """Every process that has a record, by identity, and every running job as of the last heartbeats, the longest
    running first."""

    processes: list[ProcessState]
    work: Sequence[Work]


class _Started(msgspec.Struct):
    """When a job was started, of all that a slot says."""

    run_at: int | float


_started = msgspec.json.Decoder(_Started).decode


class _WorkList(Sequence[Work]):
    """Running jobs, the longest running first; each is decoded when somebody looks at it: of ten thousand few are."""

    def __init__(self, records: Iterable[leases.Record], mask: Mask | None) -> None:
        self._mask = mask
        slots = ((one.identity, slot, value) for one in records for slot, value in one.work.items() if value)
        self._sorted = sorted(slots, key=self._begun)

    def _begun(self, slot: tuple[str, str, bytes]) -> float:
        try:
            begun = times.read(_started(slot[2]).run_at)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            begun = _work(*slot, self._mask).run_at
        return float("inf") if begun is None else begun

    def __len__(self) -> int:
        return len(self._sorted)

    @overload
    def __getitem__(self, place: int) -> Work: ...
    @overload
    def __getitem__(self, place: slice) -> list[Work]: ...
    def __getitem__(self, place: int | slice) -> Work | list[Work]:
        if isinstance(place, slice):
            return [_work(*slot, self._mask) for slot in self._sorted[place]]
        return _work(*self._sorted[place], self._mask)


def living(processes: Iterable[ProcessState], now: float) -> list[ProcessState]:
    """Those that were heard of lately."""
    return [one for one in processes if (one.beat_age(now) or 0.0) <= ALIVE]


def look_at_fleet(keys: Keys, mask: Mask | None = None) -> Procedure[Fleet]:
    """All processes and what they run, in two round trips."""
    records = yield from _records(keys)
    return Fleet([state for state in map(process_state, records) if state is not None], _WorkList(records, mask))


def list_processes(keys: Keys) -> Procedure[list[ProcessState]]:
    """Every process that has a record, by identity."""
    records = yield from _records(keys, jobs=False)
    return [state for state in map(process_state, records) if state is not None]


def list_work(
    keys: Keys, mask: Mask | None = None, jid: str = "", only: Sequence[str] | None = None
) -> Procedure[list[Work]]:
    """Every running job as of the last heartbeats, the longest running first. ``jid``: those may be left out whose text
    shows that they have another; ``only``: those of these processes."""
    text = jid.encode() if jid.isascii() and jid.isalnum() else b""  # what JSON may write in another way is not sought
    return running_in((yield from _records(keys, only=only)), mask, text)


def running_in(records: Sequence[leases.Record], mask: Mask | None, text: bytes = b"") -> list[Work]:
    """What processes say that they run, the longest running first; of that what holds ``text``."""
    some = (
        (one.identity, slot, value) for one in records for slot, value in one.work.items() if value and text in value
    )
    found = [_work(identity, slot, value, mask) for identity, slot, value in some]
    return sorted(found, key=lambda one: one.run_at if one.run_at is not None else float("inf"))


class QueueService(NamedTuple):
    """Who serves a queue. ``ours``: Henchman's processes that are alive, whatever they serve. Of those that name the
    queue (``serving``) so many are ``alive``, and so many of these take new jobs (``free``): they have ``slots``, of
    which ``busy`` are. ``heard``: when one that names the queue was heard of last. ``longest``: where all slots are
    busy, what has run for the longest time."""

    ours: int
    serving: int
    alive: int
    free: int
    slots: int
    busy: int
    heard: float | None
    longest: Work | None


def who_serves(keys: Keys, queue: str, mask: Mask | None = None) -> Procedure[QueueService]:
    """Who serves ``queue``, in one round trip; the server counts, and no record of a process comes here."""
    starts = range(0, _COUNTED, leases.HOLDERS)
    looks = (ask(leases.serving(keys, queue, ALIVE, first)) for first in starts)
    pages: list[leases.Serving] = yield from side_by_side(*looks)
    ours, serving, alive, free, slots, busy = map(sum, zip(*(page[1:7] for page in pages), strict=True))
    heard = max((page.heard for page in pages if page.heard is not None), default=None)
    shown = [leases.Record(page.identity, {}, {"": page.running}) for page in pages if page.identity]
    longest = next(iter(running_in(shown, mask)), None) if busy >= slots else None
    return QueueService(ours, serving, alive, free, slots, busy, heard, longest)


class ProcessLook(NamedTuple):
    """One process. ``state``: what it says of itself, None when its record is gone; ``work``: what it runs, the longest
    running first; ``lease``, ``entombed`` and ``stacks`` as the server has them; ``lists``: how many payloads of each
    queue are in flight; ``memory``: KB, minute by minute, the latest last; ``software``: its versions."""

    state: ProcessState | None
    work: list[Work]
    lease: float | None
    entombed: bool
    lists: list[tuple[str, int]]
    stacks: str
    memory: list[int]
    software: str


def look_at_process(keys: Keys, identity: str, mask: Mask | None = None) -> Procedure[ProcessLook | None]:
    """One process, in two round trips; None when the server knows nothing of it."""
    held: leases.Holding
    held, records = yield from side_by_side(ask(leases.holding(keys, identity)), leases.records(keys, [identity]))
    record = records[0] if held.listed and records else leases.Record(identity, {}, {})
    state = process_state(record)
    some = held.lists[:_LISTS]
    lengths: list[int] = (yield leases.lengths(some)) if some else []
    if state is None and not held.lists and held.lease is None and not held.entombed:
        return None
    begin = keys.in_flight(identity, 0, "").removesuffix("0:")
    lists = Counter[str]()
    for key, length in zip(some, lengths, strict=True):
        lists[key.removeprefix(begin).partition(":")[2]] += length
    memory = record.facts.get("rss_past", b"").decode("ascii", "replace").split()
    software = plain(json_object(record.facts.get("info", b"")).get("software"))
    return ProcessLook(
        state,
        running_in([record], mask),
        held.lease,
        held.entombed,
        sorted(lists.items()),
        held.stacks,
        [int(one) for one in memory if one.isdigit()][-_MINUTES:],
        software,
    )


class Processes(Inspector):
    """All worker processes, by identity: ``for`` and ``async for``. Each method also exists awaited, with an ``a``
    before its name."""

    def __iter__(self) -> Iterator[ProcessState]:
        """Every process that has a record, by identity."""
        return iter(self._items(self._each))

    def __aiter__(self) -> AsyncIterator[ProcessState]:
        """The same for ``async for``."""
        return aiter(self._items(self._each))

    @now
    def size(self) -> Procedure[int]:
        """How many have a record."""
        return len((yield from list_processes(self._keys)))

    @now
    def states(self) -> Procedure[list[ProcessState]]:
        """Every process that has a record, by identity."""
        return list_processes(self._keys)

    @now
    def work(self) -> Procedure[list[Work]]:
        """Every running job as of the last heartbeats, the longest running first."""
        return list_work(self._keys, self._mask)

    @now
    def find(self, identity: str) -> Procedure[ProcessState | None]:
        """The process of this identity; None when there is no record of it."""
        return self._find(identity)

    @now
    def quiet(self, process: ProcessState | str) -> Procedure[bool]:
        """Tell a process (or an identity) to take no new jobs; whether it heard it at once.

        False: the command waits for its next heartbeat, as all commands to Ruby's processes do. ArgumentError for an
        identity that no process has, and for a Ruby process that is embedded in another program: a signal would end it.
        """
        return self._tell(process, "quiet")

    @now
    def stop(self, process: ProcessState | str) -> Procedure[bool]:
        """Tell a process to finish within its grace period, give back the rest and end; as ``quiet``."""
        return self._tell(process, "stop")

    @now
    def dump(self, process: ProcessState | str) -> Procedure[bool]:
        """Tell a process to write its stacks to its log; as ``quiet``."""
        return self._tell(process, "dump")

    @now
    def tell(self, process: ProcessState | str, verb: str) -> Procedure[bool]:
        """``quiet``, ``stop`` or ``dump``, by name."""
        return self._tell(process, verb)

    @now
    def alive(self, within: float = 60.0) -> Procedure[list[ProcessState]]:
        """The processes that were heard of in the last ``within`` seconds (or do not say when)."""
        at: float = yield leases.ask_time(ServerClock())
        return [one for one in (yield from list_processes(self._keys)) if (one.beat_age(at) or 0.0) <= within]

    asize = awaited(size)
    astates = awaited(states)
    afind = awaited(find)
    aquiet = awaited(quiet)
    astop = awaited(stop)
    adump = awaited(dump)

    def _each(self) -> Pages[ProcessState]:
        yield Page((yield from list_processes(self._keys)))

    def _find(self, identity: str) -> Procedure[ProcessState | None]:
        """Only what stands on the list is a process: another key may look like one."""
        known = identity in (yield leases.identities(self._keys))
        records = (yield from leases.records(self._keys, [identity])) if known else []
        return process_state(records[0]) if records else None

    def _tell(self, which: ProcessState | str, verb: str) -> Procedure[bool]:
        """Whether it heard it at once; else the command waits for its next heartbeat."""
        if verb not in SIGNALS:
            raise ArgumentError(f"{verb!r} is nothing that a process is told; say {', '.join(SIGNALS)}")
        process = (yield from self._find(which)) if isinstance(which, str) else which
        if process is None:
            raise ArgumentError(f"there is no process {which!a}; the identities are those of app.processes")
        if process.embedded and not process.ours and verb != "dump":
            raise ArgumentError(
                f"{process.identity} runs embedded in a Ruby program, which a signal would end: {verb} it from there"
            )
        if process.ours and (yield leases.tell(self._keys, process.identity, verb)):
            return True
        yield leases.signal(self._keys, process.identity, SIGNALS[verb])
        return False


class Running(Inspector):
    """The running jobs as of the last heartbeats, the longest running first: ``for`` and ``async for``."""

    def __iter__(self) -> Iterator[Work]:
        """Every running job. All slots of all processes are read, to sort them."""
        return iter(self._items(self._each))

    def __aiter__(self) -> AsyncIterator[Work]:
        """The same for ``async for``."""
        return aiter(self._items(self._each))

    @now
    def size(self) -> Procedure[int]:
        """How many run."""
        return len((yield from list_work(self._keys)))

    asize = awaited(size)

    @now
    def find(self, jid: str) -> Procedure[Work | None]:
        """The run of a job; None when it does not run (or no heartbeat has reported it yet)."""
        work = yield from list_work(self._keys, self._mask)
        return next((one for one in work if jid and one.entry.jid == jid), None)

    afind = awaited(find)

    def _each(self) -> Pages[Work]:
        yield Page((yield from list_work(self._keys, self._mask)))
