"""The three sorted sets (schedule, retry, dead) as calls for people: counts, pages, searches.

Nothing here loads a whole set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from henchman.store.call import Arg, Call, command, commands, script
from henchman.store.scripts import load

__all__ = ["Member", "Scanned", "Stretch", "below", "count", "page", "ranks", "reschedule", "scan", "score", "stretch"]

_PAGE = load("zset_page")
_GLOB = str.maketrans({char: "\\" + char for char in "*?[]\\"})


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


def count(key: str) -> Call[int]:
    """How many entries the set holds."""
    return command("ZCARD", key, decode=int)


def page(key: str, first: int, last: int, *, newest_first: bool = False) -> Call[list[Member]]:
    """The entries from rank ``first`` to ``last``, both included, counted from 0 at the lowest (or highest) score."""
    return command("ZREVRANGE" if newest_first else "ZRANGE", key, first, last, "WITHSCORES", decode=_members)


def stretch(key: str, first: int, most: int, *, newest_first: bool = False) -> Call[Stretch]:
    """Up to ``most`` entries from rank ``first`` on, as ``page`` counts it: fewer when they have more than 4 MB."""

    def read(reply: Any) -> Stretch:
        return Stretch(_members(reply[1:]), reply[0] == 1)

    return script(_PAGE, [key], [first, most, int(newest_first)], read, again=True)


def scan(key: str, cursor: int, text: str | None, step: int = 1000) -> Call[Scanned]:
    """Look at about ``step`` entries from ``cursor`` on; those whose text holds ``text``, taken literally."""

    def read(reply: Any) -> Scanned:
        return Scanned(int(reply[0]), _members(reply[1]))

    match: tuple[Arg, ...] = ()
    if text is not None:
        match = ("MATCH", f"*{text.translate(_GLOB)}*".encode("utf-8", "surrogateescape"))
    return command("ZSCAN", key, cursor, *match, "COUNT", step, decode=read)


def ranks(key: str, payloads: Sequence[bytes], *, newest_first: bool = False) -> Call[list[int | None]]:
    """The ranks of entries (at least two), from 0 at the lowest (or highest) score; None where one is not there."""
    verb = "ZREVRANK" if newest_first else "ZRANK"
    return commands(*((verb, key, one) for one in payloads), decode=lambda replies: [_number(one) for one in replies])


def below(key: str, limit: float, *, newest_first: bool = False) -> Call[int]:
    """How many entries stand before those with the score ``limit``, in the order asked for."""
    edge = f"({float(limit)!r}"
    return command("ZCOUNT", key, *((edge, "+inf") if newest_first else ("-inf", edge)), decode=int)


def score(key: str, payload: bytes | str) -> Call[float | None]:
    """The score of an entry; None when it is not there."""
    return command("ZSCORE", key, payload, decode=lambda reply: None if reply is None else float(reply))


def reschedule(key: str, payload: bytes, at: float) -> Call[bool]:
    """Give an entry, found by its bytes, another time; False when it is not there (any more): then nothing is added."""
    move, look = ("ZADD", key, "XX", repr(float(at)), payload), ("ZSCORE", key, payload)
    return commands(("MULTI",), move, look, ("EXEC",), decode=lambda replies: replies[-1][1] is not None)
