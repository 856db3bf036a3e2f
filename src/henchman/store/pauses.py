"""Pauses of batches, classes and tags, as calls: who paused one and why; and jobs that were about to start then.

What is paused is a *subject*: the id of a batch, ``class:<name>`` or ``tag:<name>``. A job that is held waits as
blocked for a need that no payload tells: that its subject, in the scope ``PAUSED``, goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from henchman.errors import ArgumentError, BatchError
from henchman.kernel.clock import ServerClock
from henchman.kernel.text import shorten
from henchman.store.batches import unknown
from henchman.store.call import Arg, Call, Procedure, command, commands, load, script
from henchman.store.jobs import leased
from henchman.store.keys import Keys
from henchman.store.leases import ask_time
from henchman.store.queues import Pause, raw, read_pause, read_pauses

__all__ = [
    "NOT_PAUSED",
    "PAUSED",
    "PausedJob",
    "beginning",
    "hold",
    "kinds",
    "pause",
    "pauses",
    "some_batches",
    "unpause",
]

_PAUSE = load("pause")
_HOLD = load("hold")

PAUSED = "batch:"  # scope of that need; a step is in "batch:<id>", and no id of a batch has a colon
NOT_PAUSED = 2  # a status of ``hold``: it may start
_LONGEST = 200  # characters of the reason of a pause, and of who made it


def beginning(reason: str, by: str) -> Procedure[Pause]:
    """What is noted about a pause that begins now; ArgumentError when the reason is longer than 200 characters."""
    said, author = (" ".join(one.encode("utf-8", "replace").decode().split()) for one in (reason, by))
    if len(said) > _LONGEST:
        raise ArgumentError(f"the reason has {len(said):,} characters: say it in {_LONGEST}, or point to a page")
    at: float = yield ask_time(ServerClock())
    return Pause(at, shorten(author, _LONGEST), said)


def pause(keys: Keys, subject: str, why: Pause) -> Call[bool]:
    """None of its jobs starts any more, on any worker, until it goes on. False: it was paused already, and ``why`` is
    noted. Of a batch raises UnknownBatch; BatchError when none of its jobs is left."""
    args: list[Arg] = [raw(subject), msgspec.json.encode(why)]
    return script(_PAUSE, [keys.queues], args, partial(_changed, subject), again=True)


def unpause(keys: Keys, subject: str) -> Call[bool]:
    """It goes on; those of its jobs that were held go to the ends of their queues. False: it was not paused. Of a batch
    raises UnknownBatch."""
    return script(_PAUSE, [keys.queues], [raw(subject), ""], partial(_changed, subject), again=True)


def _changed(subject: str, reply: Any) -> bool:
    if reply == b"ABSENT":
        raise unknown(subject)
    if reply == b"COMPLETE":
        raise BatchError(f"batch {subject} is complete: there is nothing left to pause")
    return bool(reply)


def some_batches(keys: Keys, most: int) -> Call[list[str]]:
    """The ids of up to ``most`` paused batches."""
    return command(
        "SSCAN", keys.paused_batches, 0, "COUNT", most, decode=lambda reply: [one.decode() for one in reply[1][:most]]
    )


def kinds(keys: Keys) -> Call[dict[str, Pause]]:
    """The classes and tags that are paused, as subjects, sorted."""
    return command("HGETALL", keys.paused_kinds, decode=lambda reply: read_pauses(reply[::2], reply))


def pauses(keys: Keys, subjects: Sequence[str]) -> Call[list[Pause | None]]:
    """What is noted about the pause of each of these, at least one; None of one that is not paused."""
    asked = [
        ("HGET", keys.paused_kinds, raw(one)) if ":" in one else ("HGET", keys.batch(one), "paused") for one in subjects
    ]
    return commands(*asked, decode=lambda notes: [None if one is None else read_pause(one) for one in notes])


class PausedJob(NamedTuple):
    """A job of what is paused, that was about to start: the place of its in-flight list, from 1 on; its payload there,
    and as it waits; and the effects of that. ``member``: its batch, "-" when it is tracked and of none, "" when it is
    not tracked."""

    pair: int
    subject: str
    member: str
    jid: str
    payload: bytes
    waiting: bytes
    effects: bytes = b""


def hold(
    keys: Keys, identity: str, pairs: Sequence[tuple[str, str]], jobs: Sequence[PausedJob], lease_ms: int
) -> Call[list[int | str]]:
    """Let jobs wait until their subjects go on. ``pairs`` are (in-flight list, queue key). Of each job 1 it waits, 0 it
    is not ours any more, ``NOT_PAUSED``, or why the server refused: it is in flight. LeaseLost, LeaseLapsed."""

    def read(reply: Any) -> list[int | str]:
        return [one if isinstance(one, int) else one.decode("utf-8", "replace") for one in leased(reply)]

    names = [keys.queues, keys.lease(identity), keys.tomb(identity), *chain.from_iterable(pairs)]
    args: list[Arg] = [lease_ms]
    for one in jobs:
        args += (one.pair, raw(one.subject), one.member, raw(one.jid), one.payload, one.waiting, one.effects)
    return script(_HOLD, names, args, read, again=True)
