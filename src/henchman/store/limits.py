"""Limits as calls; what they promise stands in ``lua/lib/limits.lua`` and ``lua/lib/limit_ends.lua``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from henchman.store.call import Arg, Call, command, commands, load, script
from henchman.store.keys import Keys

__all__ = [
    "KINDS",
    "Entered",
    "InLine",
    "LimitSize",
    "PartSize",
    "PlaceHolder",
    "declare",
    "enter",
    "hand",
    "holders",
    "in_line",
    "leave",
    "leave_lapsed",
    "limit_line",
    "line",
    "parts",
    "resize",
    "sizes",
    "some_holders",
    "use",
    "value_count",
    "waiting_lines",
    "waiting_parts",
]

_SET = load("limit_set")
_HAND = load("limit_hand")
_DECLARE = load("limit_declare")
_ENTER = load("limit_enter")
_LEAVE = load("limit_leave")

#: letter → what people call a kind of limit
KINDS: Final = {"c": "concurrent", "l": "leaky", "w": "window", "b": "bucket", "p": "points"}


def limit_line(name: str, by: str) -> str:
    """The line of who waits for a place of a limit."""
    return f"s{name}\n{by}"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


class LimitSize(NamedTuple):
    """A limit as Redis has it: how many in how many seconds; and as the code says it."""

    name: str
    kind: str
    n: int
    per: float
    code_n: int
    code_per: float


def _size(name: str, value: bytes) -> LimitSize | None:
    """None for what somebody else wrote."""
    parts = _text(value).split(" ")
    try:
        kind, n, per, code_n, code_per = parts
        return LimitSize(name, kind, int(n), float(per), int(code_n), float(code_per)) if kind in KINDS else None
    except ValueError:
        return None


def sizes(keys: Keys) -> Call[list[LimitSize]]:
    """Every limit that was ever used, by name."""

    def read(reply: Any) -> list[LimitSize]:
        pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
        found = [_size(_text(name), value) for name, value in pairs]
        return sorted(one for one in found if one is not None)

    return command("HGETALL", keys.limits, decode=read)


def declare(keys: Keys, limits: Sequence[tuple[str, str, int, float]]) -> Call[list[str]]:
    """What the code of a worker says of limits (at least one): kind, name, how many, in how many seconds. It holds
    where nobody has changed them by hand; the names of those that have another size now."""
    args = [part for kind, name, n, per in limits for part in (kind, name, n, repr(float(per)))]
    return script(_DECLARE, [keys.queues], args, lambda reply: [_text(one) for one in reply], again=True)


def resize(keys: Keys, name: str, n: int, per: float | None) -> Call[LimitSize | None]:
    """How large a limit is from now on; how it was, None: there is none of this name. ``hand`` lets those go for whom
    there is room then."""

    def read(reply: Any) -> LimitSize | None:
        return _size(name, reply) if reply else None

    return script(_SET, [keys.queues], [name, n, "" if per is None else repr(float(per))], read, again=True)


def hand(keys: Keys, name: str, by: str) -> Call[int]:
    """Let those go who wait for a place, as far as there are some; how many went: there may be more."""
    return script(_HAND, [keys.queues], [name, by], int, again=True)


class PartSize(NamedTuple):
    """Those of one value of ``by``: how many places are taken, and how many wait."""

    by: str
    used: int
    waiting: int


def waiting_parts(keys: Keys, name: str, cursor: int, step: int = 1000) -> Call[tuple[int, list[str]]]:
    """A step of a scan over whose places somebody waits for: the next cursor, 0 at the end, and what was found."""
    return command(
        "ZSCAN",
        keys.doubt,
        cursor,
        "COUNT",
        step,
        decode=lambda reply: (int(reply[0]), [by for limit, by in _lines(reply[1]) if limit == name]),
    )


def waiting_lines(keys: Keys, step: int = 1000) -> Call[list[tuple[str, str]]]:
    """The first step of a scan over the lines of all limits in which somebody waits: limit, and whose places."""
    return command("ZSCAN", keys.doubt, 0, "COUNT", step, decode=lambda reply: _lines(reply[1]))


def _lines(reply: Any) -> list[tuple[str, str]]:
    members = list(reply) if isinstance(reply, dict) else [one[0] for one in _pairs(reply)]
    split = (_text(one[2:]).partition("\n") for one in members if one.startswith(b"s "))
    return [(name, by) for name, _, by in split]


def _pairs(reply: Any) -> list[Any]:
    return reply if reply and isinstance(reply[0], (list, tuple)) else list(zip(reply[::2], reply[1::2], strict=True))


def parts(keys: Keys, name: str, cursor: int, step: int = 500) -> Call[tuple[int, list[str]]]:
    """A step of a scan over whose places are taken: the next cursor, 0 at the end, and what was found."""
    return command(
        "SSCAN",
        keys.taken(name),
        cursor,
        "COUNT",
        step,
        decode=lambda reply: (int(reply[0]), [_text(one) for one in reply[1]]),
    )


def value_count(keys: Keys, name: str) -> Call[int]:
    """Of how many values of ``by`` places are taken."""
    return command("SCARD", keys.taken(name), decode=int)


def use(keys: Keys, name: str, whose: Sequence[str]) -> Call[list[PartSize]]:
    """How many places of each of these are taken, and how many wait."""
    asked: list[tuple[Arg, ...]] = []
    for by in whose:
        asked += [("HLEN", keys.places(name, by)), ("ZCARD", keys.awaits(limit_line(name, by)))]

    def read(replies: Any) -> list[PartSize]:
        return [
            PartSize(by, int(used), int(waiting))
            for by, used, waiting in zip(whose, replies[::2], replies[1::2], strict=True)
        ]

    return commands(*asked, decode=read)


class InLine(NamedTuple):
    """A job in the line of a limit: its place, from 1 (0: it stands there no longer), of how many; how many places are
    taken, of how many."""

    place: int
    waiting: int
    taken: int
    size: int


def in_line(keys: Keys, asked: Sequence[tuple[str, str, str]]) -> Call[list[InLine]]:
    """How each (limit, whose, jid) of at least one stands."""
    parts: list[tuple[Arg, ...]] = []
    for name, by, jid in asked:
        waiting = keys.awaits(limit_line(name, by))
        parts += [("ZRANK", waiting, jid), ("ZCARD", waiting), ("HLEN", keys.places(name, by))]
        parts += [("HGET", keys.limits, name)]

    def read(replies: Any) -> list[InLine]:
        rows = [replies[at : at + 4] for at in range(0, len(replies), 4)]
        found = []
        for (name, *_), (rank, waiting, taken, value) in zip(asked, rows, strict=True):
            size = _size(name, value or b"")
            found.append(InLine(0 if rank is None else rank + 1, int(waiting), int(taken), size.n if size else 0))
        return found

    return commands(*parts, decode=read)


class PlaceHolder(NamedTuple):
    """Who has a place: a job, or with "~" the lease of a program; since when (Unix seconds)."""

    jid: str
    token: int
    since: float

    @property
    def program(self) -> str:
        """Of a program ``<host>:<pid>``; empty of a job."""
        return self.jid[1:].rpartition(":")[0] if self.jid.startswith("~") else ""

    @property
    def waits(self) -> bool:
        """Whether it is a program that has no place yet, and is given the next."""
        return self.token < 0


def holders(keys: Keys, name: str, by: str) -> Call[list[PlaceHolder]]:
    """Who has a place of a limit, the longest first; at most so many as there are places."""

    def read(reply: Any) -> list[PlaceHolder]:
        pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
        return sorted((_holder(_text(jid), _text(value)) for jid, value in pairs), key=lambda one: one.since)

    return command("HGETALL", keys.places(name, by), decode=read)


def some_holders(keys: Keys, name: str, by: str, most: int) -> Call[list[PlaceHolder]]:
    """About ``most`` of them, the longest first, however many there are."""

    def read(reply: Any) -> list[PlaceHolder]:
        pairs = reply[1].items() if isinstance(reply[1], dict) else _pairs(reply[1])
        found = [_holder(_text(jid), _text(value)) for jid, value in pairs]
        return sorted(found, key=lambda one: one.since)[:most]

    return command("HSCAN", keys.places(name, by), 0, "COUNT", most, decode=read)


def _holder(jid: str, value: str) -> PlaceHolder:
    token, _, since = value.partition(" ")
    try:
        return PlaceHolder(jid, int(token), float(since))
    except ValueError:  # written by somebody else
        return PlaceHolder(jid, 0, 0.0)


def line(keys: Keys, name: str, by: str, most: int) -> Call[list[str]]:
    """Who waits for a place, in their order: at most so many."""
    return command(
        "ZRANGE", keys.awaits(limit_line(name, by)), 0, most - 1, decode=lambda reply: [_text(one) for one in reply]
    )


class Entered(NamedTuple):
    """How a program stands that asked for a place: "has", "waits", "lost" (it had one); "c" to "p": the limit is of
    this kind, "": there is no such limit. ``number``: what to ask with from then on."""

    state: str
    number: int


def enter(
    keys: Keys, lease: str, name: str, by: str, n: int | None, number: int, lease_ms: int, *, has: bool = False
) -> Call[Entered]:
    """A program with this ``lease`` asks for a place, or renews its lease. ``n``: of how many, where Redis does not
    know the limit; ``number``: 0 at first; ``has``: it was told that it has its place."""

    def read(reply: Any) -> Entered:
        status, more = reply
        return Entered(_text(more), 0) if status == 2 else Entered(("waits", "has", "", "lost")[status], int(more))

    args: list[Arg] = [lease, name, by, -1 if n is None else n, number, lease_ms, int(has)]
    return script(_ENTER, [keys.queues], args, read, again=True)


def leave(keys: Keys, lease: str, name: str, by: str) -> Call[bool]:
    """A program gives its place back, or waits no longer: the next in line has it."""
    return script(_LEAVE, [keys.queues], [f"{lease}\n{name}\n{by}", ""], bool, again=True)


def unrenewed(keys: Keys, until: float, most: int = 100) -> Call[list[tuple[bytes, bytes]]]:
    """Programs whose leases end at ``until`` (the server's time) or before, and when they do, the first first."""

    def read(flat: Any) -> list[tuple[bytes, bytes]]:
        return list(zip(flat[::2], flat[1::2], strict=True))

    return command("ZRANGEBYSCORE", keys.programs, "-inf", until, "WITHSCORES", "LIMIT", 0, most, decode=read)


def leave_lapsed(keys: Keys, lapsed: Sequence[tuple[bytes, bytes]]) -> Call[list[PlaceHolder]]:
    """Those of ``unrenewed`` give their places back whose leases are over, and that have not renewed them since; which
    did."""

    def read(reply: Any) -> list[PlaceHolder]:
        return [PlaceHolder(_text(one).partition("\n")[0], 0, 0.0) for one in reply]

    return script(_LEAVE, [keys.queues], [part for pair in lapsed for part in pair], read, again=True)
