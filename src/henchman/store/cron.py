"""Crons as calls: registered, changed, looked after, ticked. Bytes and times only; what they mean is in ``cron``.

What each script guarantees stands in the header of its file in ``lua/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from math import isfinite
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from henchman.store.call import Arg, Call, commands, load, script
from henchman.store.keys import Keys
from henchman.store.queues import Pause, read_pauses

T = TypeVar("T")

_PUT = load("cron_put")
_REMOVE = load("cron_remove")
_SWITCH = load("cron_switch")
_LOOK = load("cron_look")
_TICK = load("cron_tick")

FRESH = 60  # seconds for which a declaration counts
KEPT = 50  # runs of a cron that cron_tick.lua keeps


def put(keys: Keys, origin: Literal["code", "live"], crons: Sequence[tuple[str, bytes]]) -> Call[list[int]]:
    """Register (name, definition) pairs; for each: 1 new or changed, 0 as it was, -1 refused, it is from code."""
    args: list[Arg] = [origin, FRESH, keys.control_all]
    for cron in crons:
        args += cron
    return script(_PUT, [keys.queues], args, list, again=True)


def _done(reply: Any) -> int:
    """Of a change that was sent before: where there is nothing left to do, it was done then."""
    return int(reply) or 1


def remove(keys: Keys, name: str, *, fresh: int = FRESH) -> Call[int]:
    """Forget a cron: 1 done, 0 there was none, -1 refused, a worker declares it in code."""
    return script(_REMOVE, [keys.queues], [name, fresh, keys.control_all], int, again=True, decode_again=_done)


def pause_or_resume(keys: Keys, name: str, verb: Literal["pause", "resume"], why: Pause | None = None) -> Call[int]:
    """Pause a cron or let it go on: 1 done, 0 it was so already, -1 there is no such cron. ``why``: of a pause."""
    args: list[Arg] = [name, verb, keys.control_all, msgspec.json.encode(why or Pause())]
    return script(_SWITCH, [keys.queues], args, int, again=True, decode_again=_done)


class CronLook(NamedTuple):
    """What a look saw. ``mine``: this process ticks. ``seen``: until when every tick was dealt with, None: never.

    ``crons``: how many there are; ``lost``: how many of the names given the server does not know; ``retired``: those
    that nobody declares any more.
    """

    crons: int
    mine: bool
    now: float
    seen: float | None
    revision: bytes
    lost: int
    retired: frozenset[str]


def _look(reply: Any) -> CronLook:
    count, mine, now, seen, revision, lost, retired = reply
    return CronLook(count, mine == 1, float(now), _number(seen), revision, lost, frozenset(map(_text, retired)))


def look(keys: Keys, identity: str, lease_ms: int, handled: float | None, names: Sequence[str] = ()) -> Call[CronLook]:
    """See who ticks and whether anything changed; declare ``names`` again; lead, where nobody does.

    A lease of 0 ends the lead. ``handled``: the time until which the leader has dealt with every tick.
    """
    until = "" if handled is None else f"{handled:.6f}"
    return script(_LOOK, [keys.queues], [identity, lease_ms, FRESH, until, *names], _look, again=True)


class Tick(NamedTuple):
    """One planned time of one cron. Without a payload it is passed over, and everything before it; also while the job
    of an earlier one, not older than ``overlap_for`` seconds, has not ended (0: nobody looks). ``detail``: JSON for the
    history, of a job that is tracked; ``ask``: JSON of a job with a key, see ``client/keyed.py``.
    """

    name: str
    planned: float
    queue: str = "-"
    jid: str = ""
    payload: bytes = b""
    overlap_for: float = 0.0
    detail: bytes = b""
    ask: bytes = b""


class Ticked(NamedTuple):
    """The server's now, and one status a tick: 1 done, 0 it had been done, -1 not due, 2 passed over because an
    earlier job has not ended, 3 because its key is taken, bytes the server's refusal.

    ``statuses`` is None when a cron was changed meanwhile: nothing was done.
    """

    now: float
    statuses: list[int | bytes] | None


def tick(keys: Keys, revision: bytes, ticks: Sequence[Tick]) -> Call[Ticked]:
    """Enqueue one or more ticks, ascending for each cron; the same call again does nothing more."""
    args: list[Arg] = [revision]
    for one in ticks:
        args += (one.name, one.queue, f"{one.planned:.6f}", one.jid, one.payload, one.overlap_for, one.detail, one.ask)

    def decode(reply: Any) -> Ticked:
        return Ticked(float(reply[0]), reply[1:] if len(reply) > 1 else None)

    return script(_TICK, [keys.queues], args, decode, again=True)


def run(keys: Keys, one: Tick) -> Call[Any]:
    """Enqueue a cron's job now, beside its planned times."""
    pushed = ("SADD", keys.queues, one.queue), ("LPUSH", keys.queue(one.queue), one.payload)
    return commands(*pushed, *_noted(keys, one), again=False)


def note_run(keys: Keys, one: Tick) -> Call[Any]:
    """Write down that a cron's job was enqueued now: one that is tracked or has a key, which is pushed elsewhere."""
    return commands(*_noted(keys, one), again=False)


def _noted(keys: Keys, one: Tick) -> list[tuple[Arg, ...]]:
    past = keys.cron_past(one.name)
    return [("LPUSH", past, f"{one.planned:.6f} {one.planned:.6f} {one.jid}"), ("LTRIM", past, 0, KEPT - 1)]


class RunningTick(NamedTuple):
    """The job of a tick that has not ended, as far as is known, and when it was enqueued (Unix time)."""

    since: float
    jid: str


class Skipped(NamedTuple):
    """The last tick that was passed over: its planned time, when that was (Unix times), and for which job's sake;
    ``ticks``: how many were for this one."""

    planned: float
    at: float
    ticks: int
    jid: str


class Stored(NamedTuple):
    """Every cron as it is stored. ``last``: the planned time until which it was dealt with; ``declared``: when a
    worker last declared it in code, without an entry for those that were added live."""

    revision: bytes
    definitions: Mapping[str, bytes]
    last: Mapping[str, float]
    pauses: Mapping[str, Pause]
    declared: Mapping[str, float]
    now: float

    @property
    def paused(self) -> Set[str]:
        """The names of those that are paused."""
        return self.pauses.keys()


def _stored(reply: Any) -> Stored:
    revision, definitions, last, paused, notes, declared, (seconds, micros) = reply
    return Stored(
        revision or b"0",
        _read(definitions, lambda text: text),
        _scores(last),
        read_pauses(paused, notes, "replace"),
        _scores(declared),
        int(seconds) + int(micros) / 1e6,
    )


def read(keys: Keys) -> Call[Stored]:
    """Every cron; the revision is read first, so that a change in between shows."""
    return commands(
        ("GET", keys.cron_revision),
        ("HGETALL", keys.crons),
        ("ZRANGE", keys.cron_ticks, 0, -1, "WITHSCORES"),
        ("SMEMBERS", keys.cron_paused),
        ("HGETALL", keys.cron_pauses),
        ("ZRANGE", keys.cron_declared, 0, -1, "WITHSCORES"),
        ("TIME",),
        decode=_stored,
    )


def pauses(keys: Keys) -> Call[dict[str, Pause]]:
    """The paused crons by name, and what is known of each pause."""
    asked = ("SMEMBERS", keys.cron_paused), ("HGETALL", keys.cron_pauses)
    return commands(*asked, decode=lambda replies: read_pauses(replies[0], replies[1], "replace"))


def overlaps(keys: Keys) -> Call[tuple[dict[str, RunningTick], dict[str, Skipped]]]:
    """By cron: the job that holds its ticks up, and the last tick that was passed over; only those that have one."""
    return commands(
        ("HGETALL", keys.cron_running),
        ("HGETALL", keys.cron_skipped),
        decode=lambda replies: (_read(replies[0], _running), _read(replies[1], _skipped)),
    )


class Past(NamedTuple):
    """One job that a cron enqueued: for when (Unix time), when, and its id. ``ending``: how it ended, and when
    (``ended``), once it has and whoever ran it told: a worker of Sidekiq does not."""

    planned: float
    enqueued: float
    jid: str
    ending: str = ""
    ended: float | None = None


def past(keys: Keys, names: Sequence[str], most: int) -> Call[list[list[Past]]]:
    """The last ``most`` runs of each cron, newest first; ``names`` are one or more."""

    def decode(lists: Any) -> list[list[Past]]:
        return [[entry for text in texts if (entry := _past(text)) is not None] for texts in lists]

    return commands(*(("LRANGE", keys.cron_past(name), 0, most - 1) for name in names), decode=decode)


def _past(text: bytes) -> Past | None:
    planned, _, rest = _text(text).partition(" ")
    at, _, rest = rest.partition(" ")
    due, enqueued = _number(planned.encode()), _number(at.encode())
    if due is None or enqueued is None:
        return None
    jid, *told = rest.split(" ")
    ended = _number(told[1].encode()) if len(told) == 2 else None
    return Past(due, enqueued, rest) if ended is None else Past(due, enqueued, jid, told[0], ended)


def _running(text: bytes) -> RunningTick | None:
    since, _, jid = _text(text).partition(" ")
    moment = _number(since.encode())
    return None if moment is None or not isfinite(moment) else RunningTick(moment, jid)


def _skipped(text: bytes) -> Skipped | None:
    try:
        planned, at, ticks, jid = _text(text).split(" ", 3)
        found = Skipped(float(planned), float(at), int(ticks), jid)
        return found if isfinite(found.planned + found.at) else None
    except ValueError:  # somebody wrote something else there
        return None


def _read(flat: Sequence[bytes], read: Callable[[bytes], T | None]) -> dict[str, T]:
    """A hash by name, without what cannot be read."""
    found = {_text(name): read(text) for name, text in zip(flat[::2], flat[1::2], strict=True)}
    return {name: value for name, value in found.items() if value is not None}


def _scores(flat: Sequence[bytes]) -> dict[str, float]:
    return {_text(name): float(score) for name, score in zip(flat[::2], flat[1::2], strict=True)}


def _number(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:  # empty, or somebody wrote something else there
        return None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
