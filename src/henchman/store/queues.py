"""The queues, and the three sorted sets (schedule, retry, dead), as calls for people: names, sizes, pages, searches.

Nothing loads a whole list or set. A name that is not UTF-8 is read with surrogate escapes and sent back byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from henchman.store.call import Arg, Call, command, commands, load, script
from henchman.store.keys import Keys

_REMOVE = load("remove")
_CLEAR = load("clear")
_PAGE = load("zset_page")
CHUNK = 1000  # payloads that one call of ``clear`` takes, at most
_GLOB = str.maketrans({char: "\\" + char for char in "*?[]\\"})


class Look(NamedTuple):
    """How many payloads a queue holds, and the one that is next to run."""

    size: int
    next: bytes | None


def raw(text: str) -> bytes:
    """A name or key as the server has it."""
    return text.encode("utf-8", "surrogateescape")


def _names(reply: Any) -> list[str]:
    return sorted(one.decode("utf-8", "surrogateescape") for one in reply)


def names(keys: Keys) -> Call[list[str]]:
    """Every queue that was pushed to and not cleared since, sorted."""
    return command("SMEMBERS", keys.queues, decode=_names)


def paused(keys: Keys) -> Call[frozenset[str]]:
    """The names of the paused queues, whatever they hold."""
    return command("SMEMBERS", keys.paused, decode=lambda reply: frozenset(_names(reply)))


def look(keys: Keys, which: Sequence[str]) -> Call[list[Look]]:
    """Size and next payload of each of the queues ``which`` (at least one), in one write."""
    parts: list[tuple[Arg, ...]] = []
    for name in which:
        parts += (("LLEN", raw(keys.queue(name))), ("LINDEX", raw(keys.queue(name)), -1))

    def read(replies: list[Any]) -> list[Look]:
        return [Look(int(replies[i]), replies[i + 1]) for i in range(0, len(replies), 2)]

    return commands(*parts, decode=read)


def payloads(keys: Keys, name: str, first: int, last: int) -> Call[list[bytes]]:
    """The payloads from ``first`` to ``last``, both included; 0 is the newest, -1 the next to run."""
    return command("LRANGE", raw(keys.queue(name)), first, last, decode=list)


def next_payloads(keys: Keys, name: str, first: int, last: int) -> Call[tuple[int, list[bytes]]]:
    """The size, and what stands from ``first`` down to ``last`` + 1 places before the right end (1: next to run)."""
    key = raw(keys.queue(name))
    return commands(("LLEN", key), ("LRANGE", key, -first, -last - 1), decode=lambda replies: (replies[0], replies[1]))


def remove(keys: Keys, name: str, payload: bytes, effects: bytes = b"") -> Call[int]:
    """1 the payload is out of the queue, and its effects are carried out; 0 it was not there."""
    return script(_REMOVE, [keys.queues, raw(keys.queue(name))], [payload, effects], int, again=True)


class Cleared(NamedTuple):
    """How many payloads were taken, and those whose effects ``clear`` must be told before it goes on."""

    taken: int
    asked: list[bytes]


def clear(keys: Keys, name: str, most: int, effects: Mapping[bytes, bytes]) -> Call[Cleared]:
    """Take up to ``most`` payloads out of a queue, next to run first. ``effects`` by payload: those of the last answer.

    An empty queue is forgotten. Never sent again: what was pushed meanwhile would be taken too.
    """
    args: list[Arg] = [raw(name), most]
    for pair in effects.items():
        args += pair
    return script(
        _CLEAR, [keys.queues, raw(keys.queue(name))], args, lambda reply: Cleared(reply[0], reply[1:]), again=False
    )


def drop(keys: Keys, name: str) -> Call[Any]:
    """Remove what stands under the key of a queue and is none, in one transaction."""
    key = raw(keys.queue(name))
    return commands(("MULTI",), ("UNLINK", key), ("SREM", keys.queues, raw(name)), ("EXEC",))


def pause(keys: Keys, queue: str) -> Call[Any]:
    """Nothing starts from ``queue`` any more, on any worker."""
    return commands(("SADD", keys.paused, queue), ("PUBLISH", keys.control_all, f"pause {queue}"))


def unpause(keys: Keys, queue: str) -> Call[Any]:
    """Work on ``queue`` goes on."""
    return commands(("SREM", keys.paused, queue), ("PUBLISH", keys.control_all, f"unpause {queue}"))


# The sorted sets.


class Member(NamedTuple):
    """One entry: its bytes, and its score in Unix seconds."""

    payload: bytes
    score: float


class Stretch(NamedTuple):
    """Entries in a row. ``more``: others follow."""

    members: list[Member]
    more: bool


class Scanned(NamedTuple):
    """One step of a scan. ``cursor`` 0: the scan is at its end."""

    cursor: int
    members: list[Member]


def _members(flat: list[bytes]) -> list[Member]:
    return [Member(flat[i], float(flat[i + 1])) for i in range(0, len(flat), 2)]


def _number(reply: Any) -> int | None:
    return None if reply is None else int(reply)


def set_size(key: str) -> Call[int]:
    """How many entries the set holds."""
    return command("ZCARD", key, decode=int)


def set_page(key: str, first: int, last: int, *, newest_first: bool = False) -> Call[list[Member]]:
    """The entries from rank ``first`` to ``last``, both included, counted from 0 at the lowest (or highest) score."""
    return command("ZREVRANGE" if newest_first else "ZRANGE", key, first, last, "WITHSCORES", decode=_members)


def set_stretch(key: str, first: int, most: int, *, newest_first: bool = False) -> Call[Stretch]:
    """Up to ``most`` entries from rank ``first`` on, as ``set_page`` counts it: fewer when they have more than 4 MB."""

    def read(reply: Any) -> Stretch:
        return Stretch(_members(reply[1:]), reply[0] == 1)

    return script(_PAGE, [key], [first, most, int(newest_first)], read, again=True)


def set_scan(key: str, cursor: int, text: str | None, step: int = 1000) -> Call[Scanned]:
    """Look at about ``step`` entries from ``cursor`` on; those whose text holds ``text``, taken literally."""

    def read(reply: Any) -> Scanned:
        return Scanned(int(reply[0]), _members(reply[1]))

    match: tuple[Arg, ...] = ()
    if text is not None:
        match = ("MATCH", f"*{text.translate(_GLOB)}*".encode("utf-8", "surrogateescape"))
    return command("ZSCAN", key, cursor, *match, "COUNT", step, decode=read)


def set_ranks(key: str, payloads: Sequence[bytes], *, newest_first: bool = False) -> Call[list[int | None]]:
    """The ranks of entries (at least two), from 0 at the lowest (or highest) score; None where one is not there."""
    verb = "ZREVRANK" if newest_first else "ZRANK"
    return commands(*((verb, key, one) for one in payloads), decode=lambda replies: [_number(one) for one in replies])


def set_below(key: str, limit: float, *, newest_first: bool = False) -> Call[int]:
    """How many entries stand before those with the score ``limit``, in the order asked for."""
    edge = f"({float(limit)!r}"
    return command("ZCOUNT", key, *((edge, "+inf") if newest_first else ("-inf", edge)), decode=int)


def set_score(key: str, payload: bytes | str) -> Call[float | None]:
    """The score of an entry; None when it is not there."""
    return command("ZSCORE", key, payload, decode=lambda reply: None if reply is None else float(reply))


def reschedule(key: str, payload: bytes, at: float) -> Call[bool]:
    """Give an entry, found by its bytes, another time; False when it is not there (any more): then nothing is added."""
    move, look = ("ZADD", key, "XX", repr(float(at)), payload), ("ZSCORE", key, payload)
    return commands(("MULTI",), move, look, ("EXEC",), decode=lambda replies: replies[-1][1] is not None)
