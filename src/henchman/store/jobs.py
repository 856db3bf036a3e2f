"""The moves of a job as calls: push, fetch, settle, give back, stage. Bytes only; nothing here does I/O.

What each script guarantees stands in the header of its file in ``lua/``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from henchman.errors import LeaseLost
from henchman.store.call import Arg, Call, commands, script
from henchman.store.effects import own_keys, shared_keys
from henchman.store.keys import Keys
from henchman.store.scripts import load

__all__ = [
    "CALLED_OFF",
    "EARLIER",
    "MOST_BYTES",
    "Delivery",
    "Due",
    "Fetched",
    "Move",
    "Settlement",
    "deliver",
    "due",
    "fetch",
    "give_back",
    "move",
    "push",
    "push_many",
    "rebase",
    "schedule",
    "settle",
]

_FETCH = load("fetch")
_SETTLE = load("settle")
_GIVE_BACK = load("give_back")
_DUE = load("due")
_MOVE = load("move")
_REBASE = load("rebase")
_SCHEDULE = load("schedule")
_DELIVER = load("deliver")
_ENDING, _EFFECTS = itemgetter(2), itemgetter(5)  # of a Settlement
_MARK_MS = 24 * 3600 * 1000

CALLED_OFF = -1  # a status: the cancellation that it was to end by stands no more; it is in flight as before
MOST_BYTES = 4 << 20  # of payloads in one call, as in ``lua/lib/bytes.lua``
EARLIER = 2  # a status: settled by an earlier sending of the same call, whose answer nobody read


def push(keys: Keys, queue: str, payload: bytes) -> Call[Any]:
    """Put one payload at the left end of its queue; the queue's name is made known in the same write."""
    return commands(("SADD", keys.queues, queue), ("LPUSH", keys.queue_prefix + queue, payload), again=False)


def push_many(keys: Keys, queue: str, payloads: Sequence[bytes]) -> Call[Any]:
    """Put payloads into a queue; the first of the sequence runs first."""
    return commands(("SADD", keys.queues, queue), ("LPUSH", keys.queue_prefix + queue, *payloads), again=False)


def schedule(keys: Keys, entries: Iterable[tuple[float | None, float, bytes]]) -> Call[Any]:
    """Put (at, delay, payload) into the schedule: due at the Unix time ``at``, or ``delay`` from the server's now."""
    args: list[Arg] = []
    for at, delay, payload in entries:
        args += ("" if at is None else repr(float(at)), repr(float(delay)), payload)
    return script(_SCHEDULE, [keys.schedule], args, again=False)


class Delivery(NamedTuple):
    """One push that a client had to keep. ``queue`` None is the schedule, with ``at`` or ``delay`` as above."""

    queue: str | None
    at: float | None
    delay: float
    payload: bytes


def deliver(keys: Keys, mark: str, entries: Sequence[Delivery]) -> Call[list[int | bytes]]:
    """Push ``entries`` in order, once for each ``mark``, which is remembered for a day: it may be sent again.

    One status an entry: 1 pushed, bytes the server's refusal; an empty list when it had been executed before.
    """
    queues = sorted({one.queue for one in entries if one.queue is not None})
    index = {name: place for place, name in enumerate(queues, 1)}
    args: list[Arg] = [_MARK_MS]
    for queue, at, delay, payload in entries:
        place = 0 if queue is None else index[queue]
        args += (place, queue or "", "" if at is None else repr(float(at)), repr(float(delay)), payload)
    names = [keys.delivered(mark), keys.queues, keys.schedule, *(keys.queue(name) for name in queues)]
    return script(_DELIVER, names, args, list, again=True)


class Fetched(NamedTuple):
    """What a fetch brought: payloads by queue, and the number of cancellations the server had seen by then."""

    cancels: int
    payloads: list[list[bytes]]


class LeaseLapsed(LeaseLost):
    """The lease ran out but nobody has buried the identity yet: renew, then go on."""


def _fetched(reply: Any) -> Fetched:
    if reply == b"LOST":
        raise LeaseLost("this process was declared dead by another one")
    if reply == b"LAPSED":
        raise LeaseLapsed("the lease of this process ran out")
    return Fetched(reply[0], reply[1:])


def fetch(
    keys: Keys, identity: str, epoch: int, queues: Sequence[tuple[str, int]], count: int, lease_ms: int
) -> Call[Fetched]:
    """Move up to ``count`` payloads from ``queues`` into flight.

    ``queues`` are (name, extra) in the order to look at: the one that fills the count may give ``extra`` more. No more
    than 4 MB come at once, or one payload.
    Raises LeaseLost or LeaseLapsed.
    """
    names = [keys.lease(identity), keys.tomb(identity), keys.paused, keys.cancels]
    args: list[Arg] = [lease_ms, count]
    for name, extra in queues:
        names += (keys.queue(name), keys.flight(identity, epoch, name))
        args += (name, extra)
    return script(_FETCH, names, args, _fetched, again=False)


class Settlement(NamedTuple):
    """One unit to end: where it lies, what becomes of it. ``stored`` is what the retry or dead set gets.

    In place of the delay stands the batch of a unit that is ``kept`` with it. One that is ``cancelled`` because the
    list of cancellations said so has ``?`` and its jid in place of ``stored``, and its batch in place of the delay.
    """

    pair: int
    payload: bytes
    ending: str
    stored: bytes = b""
    delay: float | str = 0.0
    effects: bytes = b""


def _statuses(reply: Any) -> list[int | bytes]:
    if reply == b"LOST":
        raise LeaseLost("this process was declared dead by another one")
    return list(reply)


def _statuses_again(reply: Any) -> list[int | bytes]:
    """Of a settling that was sent before: it is executed whole, so either it was (nothing is left to settle now) or
    it was not."""
    statuses = _statuses(reply)
    return statuses if 1 in statuses else [EARLIER if one == 0 else one for one in statuses]


def settle(
    keys: Keys,
    identity: str,
    pairs: Sequence[tuple[str, str]],
    units: Sequence[Settlement],
    *,
    lease_ms: int,
    day: str,
    dead_max: int,
    dead_timeout: float,
) -> Call[list[int | bytes]]:
    """End units. ``pairs`` are (in-flight list, queue key); a unit names its pair by index from 1.

    One status a unit: 1 settled, 0 it was not ours any more, ``EARLIER``, ``CALLED_OFF``, bytes the server's refusal.
    Raises LeaseLost.
    Never sent again when it gives something back: the same bytes may have been fetched anew by then, and be running.
    """
    names = [
        keys.lease(identity),
        keys.tomb(identity),
        keys.stat_processed,
        keys.stat_day("processed", day),
        keys.stat_failed,
        keys.stat_day("failed", day),
        keys.retry,
        keys.schedule,
        keys.dead,
        *shared_keys(keys),
    ]
    for pair in pairs:
        names += pair
    args: list[Arg] = [lease_ms, dead_max, dead_timeout, len(units), len(pairs)]
    args += chain.from_iterable(units)
    names += own_keys(filter(None, map(_EFFECTS, units)))
    again = "released" not in map(_ENDING, units)
    return script(_SETTLE, names, args, _statuses, again=again, decode_again=_statuses_again)


def give_back(keys: Keys, flight: str, queue: str, most: int) -> Call[int]:
    """Move up to ``most`` payloads, or 4 MB, of an in-flight list back to the right end of ``queue`` (its name)."""
    return script(_GIVE_BACK, [flight, keys.queue(queue), keys.queues], [most, queue], int, again=True)


class Due(NamedTuple):
    """A look at the retry and schedule sets. ``mine`` is False when another process stages just now; ``now`` is the
    server's time in any case. ``more``: not all that is due had room. ``back``: seconds that the
    server's clock has gone back by since the last look of any process.
    """

    mine: bool
    now: float
    retries: Sequence[bytes] = ()
    scheduled: Sequence[bytes] = ()
    next_at: float | None = None
    more: bool = False
    back: float = 0.0


def _due(reply: Any) -> Due:
    if reply[0] == 0:
        return Due(False, float(reply[1]))
    _, now, retries, scheduled, next_at, more, back = reply
    return Due(True, float(now), retries, scheduled, float(next_at) if next_at else None, more == 1, float(back))


def due(keys: Keys, identity: str, staging_ms: int, most: int) -> Call[Due]:
    """What is due by the server's clock, at most ``most`` of each set, and about 4 MB; removes nothing."""
    return script(
        _DUE, [keys.staging, keys.retry, keys.schedule, keys.clock], [identity, staging_ms, most], _due, again=True
    )


def rebase(source: str, start: str, by: float, most: int) -> Call[tuple[int, str]]:
    """Make times of the set ``source`` (a key), from the score ``start`` on, earlier by ``by`` seconds; how many those
    were, and where the next page begins."""
    return script(_REBASE, [source], [start, by, most], lambda reply: (reply[0], reply[1].decode()), again=False)


class Move(NamedTuple):
    """One entry to take out of a sorted set. ``queue`` None means the dead set; ``delete`` means nowhere; with
    ``later`` it stays where it is, due as many seconds from the server's now.

    ``effects``: those of its job, when it ends here or is enqueued. ``batch``: with the dead of that batch, where there
    is one, in place of the dead set.
    """

    old: bytes
    new: bytes = b""
    queue: str | None = None
    delete: bool = False
    effects: bytes = b""
    batch: str = ""
    later: float | None = None

    def target(self, queues: Mapping[str, int]) -> tuple[int, str]:
        """Where it goes, as ``move.lua`` reads it: index and name."""
        if self.later is not None:
            return -3, repr(self.later)
        if self.delete:
            return -1, ""
        if self.queue is not None:
            return queues[self.queue], self.queue
        return -2 if self.batch else 0, self.batch


def move(
    keys: Keys, source: str, moves: Sequence[Move], *, dead_max: int, dead_timeout: float
) -> Call[list[int | bytes]]:
    """Take entries out of the set ``source`` (a key) and put each where it goes; one status an entry."""
    queues = sorted({one.queue for one in moves if one.queue is not None})
    index = {name: place for place, name in enumerate(queues, 1)}
    args: list[Arg] = [dead_max, dead_timeout, len(queues)]
    for one in moves:
        args += (*one.target(index), one.old, one.new, one.effects)
    names = [source, keys.dead, *shared_keys(keys), *(keys.queue(name) for name in queues)]
    names += own_keys(one.effects for one in moves)
    return script(_MOVE, names, args, _statuses, again=True)
