"""Fair queues as calls: their lines, a list for each tenant and level, and whose turn it is; see ``lua/lib/lines.lua``.

A line is read, cleared and searched as the queue that ``line_name`` names: ``imports@acme``, ``imports+high@acme``,
``imports+low`` of jobs without a tenant. No other queue is called so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from henchman.errors import DefinitionError
from henchman.store import queues
from henchman.store.call import Arg, Call, Procedure, ask, command, commands, load, script, side_by_side
from henchman.store.jobs import leased
from henchman.store.keys import Keys
from henchman.store.queues import raw

__all__ = [
    "LEVELS",
    "FairFetched",
    "TenantLine",
    "all_names",
    "declare",
    "fetch",
    "line_name",
    "line_names",
    "lines",
    "lines_everywhere",
    "names",
    "parts_of",
    "paused_and_fair",
    "queue_of",
    "set_weight",
    "take_in",
    "turn_of",
    "waiting",
    "weights",
]

_FETCH = load("fair_fetch")
_TAKE_IN = load("fair_take_in")
_DECLARE = load("fair_declare")
LEVELS: Final = ("high", "normal", "low")
_PAGE = 1000


class FairFetched(NamedTuple):
    """What a fetch brought; ``left``: jobs of the queue's list that have yet to be taken into lines."""

    cancels: int
    left: int
    payloads: list[bytes]


def _fetched(reply: Any) -> FairFetched:
    return FairFetched(*leased(reply))


def fetch(
    keys: Keys, identity: str, queue: str, flight: str, *, count: int, extra: int, lease_ms: int
) -> Call[FairFetched]:
    """Move up to ``count`` jobs of a fair queue by turns into flight, and ``extra`` more if they fill it. Raises
    LeaseLost or LeaseLapsed."""
    names = [keys.queues, keys.leases + identity, keys.tombs_of + identity, keys.cancels, flight]
    return script(_FETCH, names, [lease_ms, count, extra, queue], _fetched, again=False)


def take_in(keys: Keys, queue: str) -> Call[int]:
    """Take up to a thousand jobs of the queue's list into their lines; how many are left there."""
    return script(_TAKE_IN, [keys.queues], [queue], int, again=True)


def tidy(keys: Keys, queue: str) -> Procedure[None]:
    """After jobs left a fair queue or its lines otherwise than by a fetch: one that waits stands in its list, so that
    whoever waits for it is woken; where none waits, what is known of its turns goes. Nothing for any other queue."""
    if queue in (yield names(keys)):
        while (yield take_in(keys, queue)) and not getattr((yield from queues.look(keys, [queue]))[0], "size", 1):
            pass


def declare(keys: Keys, queue: str, places: Mapping[str, int]) -> Call[None]:
    """Make ``queue`` known as fair. ``places``: of jobs whose tenant is an argument, where that stands. DefinitionError
    when it is an ordered one."""

    def read(reply: int) -> None:
        if reply == 0:
            raise DefinitionError(
                f"queue {queue!r} is an ordered queue of another program, and cannot be fair: give one of them another "
                "queue="
            )

    args: list[Arg] = [queue]
    for name, place in places.items():
        args += (name, place)
    return script(_DECLARE, [keys.queues], args, read, again=True)


def names(keys: Keys) -> Call[frozenset[str]]:
    """Every fair queue that was served or pushed to."""
    return command("SMEMBERS", keys.fair_queues, decode=lambda reply: frozenset(map(_text, reply)))


def paused_and_fair(keys: Keys) -> Call[tuple[frozenset[str], frozenset[str]]]:
    """The names of the paused queues, and those of the fair ones."""

    def read(replies: list[Any]) -> tuple[frozenset[str], frozenset[str]]:
        paused, fair = (frozenset(map(_text, one)) for one in replies)
        return paused, fair

    return commands(("SMEMBERS", keys.paused), ("SMEMBERS", keys.fair_queues), decode=read)


def _text(raw_name: bytes) -> str:
    return raw_name.decode("utf-8", "surrogateescape")


def line_name(queue: str, level: str, tenant: str) -> str:
    """By what name the line of a tenant is read, as a queue."""
    if not tenant:
        return f"{queue}+{level}"
    return f"{queue}@{tenant}" if level == "normal" else f"{queue}+{level}@{tenant}"


def parts_of(name: str) -> tuple[str, str, str] | None:
    """Queue, level and tenant of a line's name; None of what is no such name."""
    head, at, tenant = name.partition("@")
    queue, plus, level = head.partition("+")
    if not (at or plus) or (plus and level not in LEVELS):
        return None
    return queue, level if plus else "normal", tenant


class TenantLine(NamedTuple):
    """One line: how many jobs, and the next of them."""

    level: str
    tenant: str
    turn: float
    size: int = 0
    next: bytes | None = None


def waiting(keys: Keys, which: Sequence[str]) -> Call[list[int]]:
    """How many jobs the lines of each of the queues ``which`` hold, those of their lists not among them."""

    def read(replies: list[Any]) -> list[int]:
        return [max(int(one or 0), 0) for one in replies]

    return commands(*(("HGET", keys.fair_facts(one), "waiting") for one in which), decode=read)


def _turns(keys: Keys, queue: str, level: str, first: int, most: int) -> Call[list[TenantLine]]:
    def read(flat: list[bytes]) -> list[TenantLine]:
        return [TenantLine(level, _text(flat[i]), float(flat[i + 1])) for i in range(0, len(flat), 2)]

    return command("ZRANGE", keys.fair_turns(queue, level), first, first + most - 1, "WITHSCORES", decode=read)


def lines(keys: Keys, queue: str, most: int = 100) -> Procedure[tuple[list[TenantLine], int]]:
    """The lines of ``queue`` in the order of their turns, at most ``most``, with their sizes; and how many lines."""
    turns = (ask(_turns(keys, queue, level, 0, most)) for level in LEVELS)
    counts = (ask(command("ZCARD", keys.fair_turns(queue, level), decode=int)) for level in LEVELS)
    *found, high, normal, low = yield from side_by_side(*turns, *counts)
    chosen = [one for some in found for one in some][:most]
    return (yield from _sized(keys, queue, chosen)), high + normal + low


def _sized(keys: Keys, queue: str, chosen: Sequence[TenantLine]) -> Procedure[list[TenantLine]]:
    lists = [raw(keys.queue(line_name(queue, one.level, one.tenant))) for one in chosen]
    if not lists:
        return []
    sizes = yield commands(*(("LLEN", one) for one in lists), decode=lambda replies: replies)
    heads = yield commands(*(("LINDEX", one, -1) for one in lists), decode=lambda replies: replies)
    found = zip(chosen, sizes, heads, strict=True)
    return [one._replace(size=size, next=head) for one, size, head in found if size]


def line_names(keys: Keys, queue: str) -> Procedure[list[str]]:
    """The names of all lines of ``queue``, read in pages."""
    found: dict[str, None] = {}
    for level in LEVELS:
        first = 0
        while some := list((yield _turns(keys, queue, level, first, _PAGE))):
            found |= dict.fromkeys(line_name(queue, level, one.tenant) for one in some)
            first += len(some)
    return list(found)


def lines_everywhere(keys: Keys) -> Procedure[dict[str, str]]:
    """The names of the lines of all fair queues, each with the name of its queue."""
    found: dict[str, str] = {}
    for queue in sorted((yield names(keys))):
        found |= dict.fromkeys((yield from line_names(keys, queue)), queue)
    return found


def all_names(keys: Keys) -> Procedure[list[str]]:
    """The names of all queues, and of all lines of fair ones: of every list in which plain jobs wait."""
    known, lined = yield from side_by_side(ask(queues.names(keys)), lines_everywhere(keys))
    return [*known, *lined]


def turn_of(keys: Keys, queue: str, level: str, tenant: str) -> Call[tuple[int | None, int]]:
    """How many tenants of its level have their turn before this one, and how many there are; None: it has no line."""
    ring = keys.fair_turns(queue, level)
    return commands(("ZRANK", ring, tenant), ("ZCARD", ring), decode=tuple)


def set_weight(keys: Keys, queue: str, tenant: str, weight: int) -> Call[Any]:
    """From now on ``tenant`` has ``weight`` turns where others have one."""
    field = f"weight:{tenant}"
    if weight == 1:
        return command("HDEL", keys.fair_facts(queue), field)
    return command("HSET", keys.fair_facts(queue), field, weight)


def weights(keys: Keys, queue: str) -> Call[dict[str, int]]:
    """The tenants whose weight is not 1."""

    def read(flat: list[bytes]) -> dict[str, int]:
        pairs = ((_text(flat[i]), flat[i + 1]) for i in range(0, len(flat), 2))
        return {name[7:]: int(value) for name, value in pairs if name.startswith("weight:")}

    return command("HGETALL", keys.fair_facts(queue), decode=read)


def queue_of(name: str) -> str:
    """The queue that ``name`` is a line of, else ``name`` itself."""
    parts = parts_of(name)
    return parts[0] if parts else name
