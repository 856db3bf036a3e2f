"""Ordered queues as calls for people: what they do to ids, and names, figures, pages of ids, everything about an id.

Every id is acted on on its own, see ``lua/ordered_act.lua``: an id that is in flight stays held, whatever is done.
Nothing loads a queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from henchman.store.call import Arg, Call, command, commands, load, script
from henchman.store.keys import Keys
from henchman.store.ordered import pairs, unpacked
from henchman.store.queues import unpause

_ACT = load("ordered_act")
_DROP = load("ordered_drop")

CHUNK = 100  # ids that one call acts on, at most: others wait as long as it takes
PART = 3  # the status of an id under which so much waits that a part was done; the rest is for another call
IN_FLIGHT = 2  # the status of an id that stays as it is because somebody holds it
_STATS = load("ordered_stats")
_LOOK = load("ordered_look")
_GLOB = str.maketrans({char: "\\" + char for char in "*?[]\\"})

_STEP = 1000  # entries that one step of a scan looks at

#: revive: from the morgue back into the queue · purge: out of the morgue, for good · kill: into the morgue · delete:
#: out of the queue, for good · run: due now
Act = Literal["revive", "purge", "kill", "delete", "run"]


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
    args: list[Arg] = [queue, what, int(only_failed), f"{floor:.6f}", *ids]
    again = what in ("revive", "run")
    return script(_ACT, [keys.queues], args, _acted, again=again, decode_again=_acted_again)


def _acted(reply: Any) -> ActResult:
    return ActResult(reply[0], float(reply[1]))


def _acted_again(reply: Any) -> ActResult:
    """Of an act that was sent before: it is carried out whole, so where nothing was there now, all was done then."""
    statuses, last = _acted(reply)
    return ActResult(statuses if 1 in statuses else [1 if one == 0 else one for one in statuses], last)


def drop(keys: Keys, queue: str, id: bytes, pile: str, score: float, payload: bytes) -> Call[int]:
    """Remove one payload: 1 done, 0 it is not there, ``IN_FLIGHT``. ``pile``: p what waits, n what arrived meanwhile, m
    the morgue. Never sent again: an equal one that came in meanwhile would be removed too."""
    return script(_DROP, [keys.queues], [queue, id, pile, f"{score:.17g}", payload], int, again=False)


def set_limit(keys: Keys, queue: str, limit: int | None) -> Call[Any]:
    """The ceiling of claims at a time, 0: none; None: as the code has it. Who slept because of it looks again."""
    meta = keys.ordered(queue) + "meta"
    change: tuple[Arg, ...] = ("HDEL", meta, "limit") if limit is None else ("HSET", meta, "limit", limit)
    return commands(change, ("ZADD", keys.wake(queue), 0, "0"))


def go_on(keys: Keys, queue: str) -> Call[Any]:
    """End a pause, and wake somebody: who looked while it lasted was told that there is nothing."""
    return commands(*unpause(keys, queue).parts, ("ZADD", keys.wake(queue), 0, "0"))


class Figures(NamedTuple):
    """``known``: ids with payloads, those in flight too; ``failed_busy``: how many of ``busy`` failed before.

    ``lag``: seconds since the first id that nobody holds was due, 0 when none is due; ``limit`` was set by hand,
    ``defined`` and ``group_limit`` by the code: None is not said, 0 no limit.
    """

    known: int
    busy: int
    failed: int
    failed_busy: int
    morgue: int
    lag: float
    processed: int
    failures: int
    paused: bool
    limit: int | None
    defined: int | None
    group_limit: int | None


def now() -> Call[float]:
    """The server's time, Unix seconds."""
    return command("TIME", decode=lambda reply: int(reply[0]) + int(reply[1]) / 1e6)


def names(keys: Keys) -> Call[list[str]]:
    """Every ordered queue that was ever pushed to or served, sorted."""

    def read(reply: Any) -> list[str]:
        return sorted(one.decode("utf-8", "backslashreplace") for one in reply)

    return command("SMEMBERS", keys.ordered_queues, decode=read)


def heads(keys: Keys, queues: Sequence[str]) -> Call[dict[str, float]]:
    """When the first id of each queue is due, or was (Unix time); infinite where there is none."""

    def read(rows: list[Any]) -> dict[str, float]:
        return {name: float(row[1]) if row else math.inf for name, row in zip(queues, rows, strict=True)}

    return commands(*(("ZRANGE", keys.ordered(name) + "due", 0, 0, "WITHSCORES") for name in queues), decode=read)


def figures(keys: Keys, queue: str) -> Call[Figures]:
    """The figures of a queue at one moment."""

    def read(reply: list[Any]) -> Figures:
        return Figures(
            known=reply[0],
            busy=reply[1],
            failed=reply[2],
            failed_busy=reply[3],
            morgue=reply[4],
            lag=float(reply[5] or 0),
            processed=int(reply[6]),
            failures=int(reply[7]),
            paused=bool(reply[8]),
            limit=_whole(reply[9]),
            defined=_whole(reply[10]),
            group_limit=_whole(reply[11]),
        )

    return script(_STATS, [keys.queues], [queue], read, again=True)


def _whole(reply: bytes) -> int | None:
    return int(reply) if reply else None


class Pile(NamedTuple):
    """Payloads of an id in one place: how many, and the first (score, payload), lowest score first."""

    many: int
    some: list[tuple[float, bytes]]


class Held(NamedTuple):
    """Who holds an id: the token of its claim, payloads delivered (0: the one that stood alone), since when it was due,
    identity; milliseconds that its lease has left (None: there is none), whether it was declared dead.
    """

    token: int
    delivered: int
    due: float
    identity: str
    lease_ms: int | None
    buried: bool


class IdLook(NamedTuple):
    """Everything about an id. ``due``: when somebody may take it (in flight: when its holder is looked at next), None:
    nothing waits; ``put_off``: when it was due, as its group had no room; ``retry_count`` -1: it did not fail;
    ``next_due``: when its ``arrivals`` are due; ``died_at``: when the last of its ``dead`` was buried.
    """

    id: bytes
    due: float | None
    put_off: float | None
    waiting: Pile
    held: Held | None
    arrivals: Pile
    next_due: float | None
    retry_count: int
    error: bytes | None
    crashes: int
    dead: Pile
    died_at: float | None
    dead_error: bytes | None


def look(keys: Keys, queue: str, ids: Sequence[bytes], most: int) -> Call[tuple[float, list[IdLook]]]:
    """The server's time, and everything about each of the ids, with at most ``most`` payloads in each place; about the
    first of them alone, when their payloads reach 4 MB."""

    def read(reply: Any) -> tuple[float, list[IdLook]]:
        return float(reply[0]), [_id_look(one, row) for one, row in zip(ids, reply[1], strict=False)]

    return script(_LOOK, [keys.queues], [queue, most, *ids], read, again=True)


def _id_look(name: bytes, row: Sequence[Any]) -> IdLook:
    (due, put_off), (single, waiting, some), holder, arrivals, failed, dead = row
    return IdLook(
        id=name,
        due=_number(due),
        put_off=_number(put_off),
        waiting=Pile(1, [unpacked(single)]) if single else Pile(waiting, pairs(some)),
        held=_held(*holder) if holder else None,
        arrivals=Pile(arrivals[0], pairs(arrivals[1])),
        next_due=_number(arrivals[2]),
        retry_count=-1 if failed[0] is None else int(float(failed[0])),
        error=failed[1],
        crashes=int(failed[2] or 0),
        dead=Pile(dead[0], pairs(dead[1])),
        died_at=_number(dead[2]),
        dead_error=dead[3],
    )


def _held(record: bytes, lease_ms: int, buried: int) -> Held:
    token, delivered, due, identity = record.rstrip().split(b"|", 3)
    left = lease_ms if lease_ms >= 0 else None
    return Held(int(token), int(delivered), float(due), identity.decode("utf-8", "replace"), left, bool(buried))


def _number(reply: Any) -> float | None:
    return None if reply is None else float(reply)


def count(keys: Keys, queue: str, part: str, low: float = float("-inf")) -> Call[int]:
    """How many ids stand in ``due``, ``retry`` or ``morgue`` with a score above ``low``."""
    return command("ZCOUNT", keys.ordered(queue) + part, f"({low!r}", "+inf", decode=int)


def span(keys: Keys, queue: str, part: str, low: float, first: int, most: int) -> Call[list[bytes]]:
    """``most`` ids of ``due``, ``retry`` or ``morgue`` with a score above ``low``, from place ``first`` on."""
    return command(
        "ZRANGE", keys.ordered(queue) + part, f"({low!r}", "+inf", "BYSCORE", "LIMIT", first, most, decode=list
    )


def collapse_of(keys: Keys, target: str, source: str) -> Call[str]:
    """How payloads that go from one queue to another have to be merged there, so that none is lost."""

    def read(replies: Any) -> str:
        (said, arrivals), [others] = replies
        return "none" if arrivals or others else "latest" if said == b"latest" else "min"

    asked = ("HMGET", keys.ordered(target) + "meta", "collapse", "arrivals")
    return commands(asked, ("HMGET", keys.ordered(source) + "meta", "arrivals"), decode=read)


def dues(keys: Keys, queue: str, ids: Sequence[bytes]) -> Call[list[float | None]]:
    """When each of the ids is due; None: nothing waits under it."""
    key = keys.ordered(queue) + "due"
    return command("ZMSCORE", key, *ids, decode=lambda reply: [_number(one) for one in reply])


def scan(keys: Keys, queue: str, part: str, cursor: int, prefix: str = "") -> Call[tuple[int, list[bytes]]]:
    """A step through the ids of ``due``, ``morgue`` or ``busy`` that begin with ``prefix``; its cursor, 0: done."""
    pattern = prefix.translate(_GLOB).encode() + b"*"
    return command(
        "HSCAN" if part == "busy" else "ZSCAN",
        keys.ordered(queue) + part,
        cursor,
        "MATCH",
        pattern,
        "COUNT",
        _STEP,
        decode=lambda reply: (int(reply[0]), reply[1][::2]),
    )
