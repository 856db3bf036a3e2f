"""What people do to the ids of an ordered queue, as calls: revive, kill, delete, bury, run; ceilings, pauses.

Every id is acted on on its own, see ``lua/ordered_act.lua``: an id that is in flight stays held, whatever is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from henchman.store.call import Arg, Call, commands, script
from henchman.store.control import unpause
from henchman.store.effects import shared_keys
from henchman.store.keys import Keys
from henchman.store.scripts import load

__all__ = ["CHUNK", "IN_FLIGHT", "PART", "Act", "ActResult", "act", "go_on", "set_limit"]

_ACT = load("ordered_act")

CHUNK = 100  # ids that one call acts on, at most: others wait as long as it takes
PART = 3  # the status of an id under which so much waits that a part was done; the rest is for another call
IN_FLIGHT = 2  # the status of an id that stays as it is because somebody holds it

#: revive: from the morgue back into the queue · bury: out of the morgue, for good · kill: into the morgue · delete:
#: out of the queue, for good · run: due now
Act = Literal["revive", "bury", "kill", "delete", "run"]


class ActResult(NamedTuple):
    """One status an id (1 done, 0 nothing there, ``IN_FLIGHT``, ``PART``, bytes: the server refused), and the last time
    given."""

    statuses: list[int | bytes]
    last: float


def act(
    keys: Keys, queue: str, what: Act, ids: Sequence[bytes], *, only_failed: bool = False, floor: float = 0.0
) -> Call[ActResult]:
    """Act on up to ``CHUNK`` ids. ``only_failed``: pass over those that did not fail; ``floor``: what is made due is
    due after this Unix time, so that several calls keep one order. What removes is never sent again: what came in
    meanwhile would be removed too.
    """
    args: list[Arg] = [what, int(only_failed), f"{floor:.6f}", *ids]
    again = what in ("revive", "run")
    names = [keys.ordered(queue), *shared_keys(keys)]
    return script(_ACT, names, args, lambda reply: ActResult(reply[0], float(reply[1])), again=again)


def set_limit(keys: Keys, queue: str, limit: int | None) -> Call[Any]:
    """The ceiling of claims at a time, 0: none; None: as the code has it. Who slept because of it looks again."""
    meta = keys.ordered(queue) + "meta"
    change: tuple[Arg, ...] = ("HDEL", meta, "limit") if limit is None else ("HSET", meta, "limit", limit)
    return commands(change, ("ZADD", keys.wake(queue), 0, "0"))


def go_on(keys: Keys, queue: str) -> Call[Any]:
    """End a pause, and wake somebody: who looked while it lasted was told that there is nothing."""
    return commands(*unpause(keys, queue).parts, ("ZADD", keys.wake(queue), 0, "0"))
