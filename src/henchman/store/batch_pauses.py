"""Pauses of batches, as calls: who paused one and why; and jobs of a paused batch that were about to start.

A job that is held waits as blocked for a need that no payload tells: that its batch, ``PAUSED`` and its id, goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from henchman.errors import BatchError
from henchman.store.batches import unknown
from henchman.store.call import Arg, Call, command, commands, load, script
from henchman.store.jobs import leased
from henchman.store.keys import Keys
from henchman.store.queues import Pause, raw, read_pause

__all__ = ["NOT_PAUSED", "PAUSED", "PausedJob", "hold", "pause", "pauses", "some_paused", "unpause"]

_PAUSE = load("batch_pause")
_HOLD = load("batch_hold")

PAUSED = "batch:"  # scope of that need, its name is the batch; a step is in "batch:<id>"
NOT_PAUSED = 2  # a status of ``hold``: it may start


def pause(keys: Keys, batch: str, why: Pause) -> Call[bool]:
    """None of its jobs starts any more, on any worker, until it goes on. False: it was paused already, and ``why`` is
    noted. Raises UnknownBatch; BatchError when none of its jobs is left."""
    return script(_PAUSE, [keys.queues], [batch, msgspec.json.encode(why)], partial(_changed, batch), again=True)


def unpause(keys: Keys, batch: str) -> Call[bool]:
    """A batch goes on; those of its jobs that were held go to the ends of their queues. False: it was not paused.
    Raises UnknownBatch."""
    return script(_PAUSE, [keys.queues], [batch, ""], partial(_changed, batch), again=True)


def _changed(batch: str, reply: Any) -> bool:
    if reply == b"ABSENT":
        raise unknown(batch)
    if reply == b"COMPLETE":
        raise BatchError(f"batch {batch} is complete: there is nothing left to pause")
    return bool(reply)


def some_paused(keys: Keys, most: int) -> Call[list[str]]:
    """The ids of up to ``most`` paused batches."""
    return command(
        "SSCAN", keys.paused_batches, 0, "COUNT", most, decode=lambda reply: [one.decode() for one in reply[1][:most]]
    )


def pauses(keys: Keys, batches: Sequence[str]) -> Call[list[Pause | None]]:
    """What is noted about the pause of each of these batches, at least one; None of one that is not paused."""

    def read(replies: list[Any]) -> list[Pause | None]:
        return [None if one is None else read_pause(one) for one in replies]

    return commands(*(("HGET", keys.batch(one), "paused") for one in batches), decode=read)


class PausedJob(NamedTuple):
    """A job of a paused batch that was about to start: the place of its in-flight list, from 1 on; its payload there,
    and as it waits; and the effects of that."""

    pair: int
    batch: str
    jid: str
    payload: bytes
    waiting: bytes
    effects: bytes = b""


def hold(
    keys: Keys, identity: str, pairs: Sequence[tuple[str, str]], jobs: Sequence[PausedJob], lease_ms: int
) -> Call[list[int | str]]:
    """Let jobs wait until their batches go on. ``pairs`` are (in-flight list, queue key). Of each job 1 it waits, 0 it
    is not ours any more, ``NOT_PAUSED``, or why the server refused: it is in flight. LeaseLost, LeaseLapsed."""

    def read(reply: Any) -> list[int | str]:
        return [one if isinstance(one, int) else one.decode("utf-8", "replace") for one in leased(reply)]

    names = [keys.queues, keys.lease(identity), keys.tomb(identity), *chain.from_iterable(pairs)]
    args: list[Arg] = [lease_ms]
    for one in jobs:
        args += (one.pair, one.batch, raw(one.jid), one.payload, one.waiting, one.effects)
    return script(_HOLD, names, args, read, again=True)
