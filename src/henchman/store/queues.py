"""The queues, and the three sorted sets (schedule, retry, dead), as calls for people: names, sizes, pages, searches.

Nothing loads a whole list or set: a page, and a step of a scan, ends at a number of entries or at 4 MB of them. A name
that is not UTF-8 is read with surrogate escapes and sent back byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Literal, NamedTuple

import msgspec

from henchman.store.call import Arg, Call, Procedure, ask, command, commands, load, script, side_by_side
from henchman.store.keys import Keys

_REMOVE = load("remove")
_BRING_FORWARD = load("bring_forward")
_CLEAR = load("clear")
_LIST_PAGE = load("list_page")
_SET_PAGE = load("zset_page")
_SET_FACETS = load("zset_facets")
_READ_EACH = load("read_each")
_ENDS, _QUEUES_PAGE = load("queue_ends"), load("queues_page")
CHUNK = 1000  # payloads that one call of ``clear`` takes, at most
SEARCHED = 1000  # entries of a set that one call searches for a text, at most
_MOST = 500  # entries of a page: deep within a million each look takes the server its time
_ENDS_MOST, _END = 8000, 200  # entries at the ends of all queues that are searched, and at each end of one
_OVERLAP = 10  # entries of a set that the next page of a search begins with
_LEVELS, _LEVELS_LIFE = 12, 900  # lines that are kept of how long queues were, and for how many seconds
_MOST_MEASURED, _MOST_LEVELS = 500, 100  # queues that are measured, and the longest of them that are written down


class Look(NamedTuple):
    """How many payloads a queue holds, and the one that is next to run. ``lines``: how many of them wait in lines,
    where it is ``fair``."""

    size: int
    next: bytes | None
    lines: int = 0
    fair: bool = False


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


def look(keys: Keys, which: Sequence[str]) -> Procedure[list[Look | str]]:
    """Size and next payload of each of the queues ``which``; a text says what is wrong with one that is no list."""
    asked = read_all([raw(keys.queue(name)) for name in which], ["queue"] * len(which))
    found, (lined, fair) = yield from side_by_side(asked, ask(_lined(keys, which)))
    return [
        one if isinstance(one, str) else Look(one[0] + more, one[1] if one[0] else None, more, name in fair)
        for one, more, name in zip(found, lined, which, strict=True)
    ]


def _lined(keys: Keys, which: Sequence[str]) -> Call[tuple[list[int], set[str]]]:
    """How many jobs wait in the lines of each of these queues, if any; and all queues that are fair."""
    reads = (("HGET", raw(keys.fair_facts(name)), "waiting") for name in which)

    def read(replies: list[Any]) -> tuple[list[int], set[str]]:
        return [max(int(one or 0), 0) for one in replies[1:]], set(_names(replies[0]))

    return commands(("SMEMBERS", keys.fair_queues), *reads, decode=read)


class Level(msgspec.Struct):
    """How long queues were ``at`` a time (Unix seconds), the hundred longest by name, and how many jobs had ended;
    ``ran``: how many had left each queue."""

    at: float
    processed: int
    sizes: dict[str, int]
    ran: dict[str, int] = {}


def note_levels(keys: Keys, at: float) -> Procedure[None]:
    """Write down how long the queues are, of five hundred at most: two numbers apart in time show what grows."""
    total: Call[bytes | None] = command("GET", keys.stat_processed)
    found, ended, left = yield from side_by_side(ask(names(keys)), ask(total), ask(ran(keys)))
    known = list(found)[:_MOST_MEASURED]
    seen = (yield from look(keys, known)) if known else []
    lengths = {name: one.size for name, one in zip(known, seen, strict=True) if isinstance(one, Look) and one.size}
    longest = dict(sorted(lengths.items(), key=lambda one: -one[1])[:_MOST_LEVELS])
    some = {name: left[name] for name in known if name in left} if len(left) <= _MOST_MEASURED else {}
    if len(left) > _MOST_MEASURED:  # names that come and go: it begins again
        yield command("DEL", keys.ran)
    line = msgspec.json.encode(Level(at, int(ended) if (ended or b"").isdigit() else 0, longest, some))
    expire = ("EXPIRE", keys.levels, _LEVELS_LIFE)
    yield commands(("LPUSH", keys.levels, line), ("LTRIM", keys.levels, 0, _LEVELS - 1), expire, again=False)


def levels(keys: Keys) -> Call[list[Level]]:
    """What was written down of the last minutes, the latest first; what cannot be read is left out."""

    def read(lines: list[bytes]) -> list[Level]:
        found = []
        for line in lines:
            with suppress(msgspec.DecodeError):  # somebody wrote something else there
                found.append(msgspec.json.decode(line, type=Level))
        return found

    return command("LRANGE", keys.levels, 0, _LEVELS - 1, decode=read)


def ran(keys: Keys) -> Call[dict[str, int]]:
    """How many jobs have left each queue, as workers of Henchman counted: two looks apart in time show how fast."""

    def read(flat: list[bytes]) -> dict[str, int]:
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return {name.decode("utf-8", "replace"): int(many) for name, many in pairs if many.isdigit()}

    return command("HGETALL", keys.ran, decode=read)


def add_ran(keys: Keys, more: Mapping[str, int]) -> list[tuple[Arg, ...]]:
    """The commands that count jobs that left their queues; none for none."""
    added: list[tuple[Arg, ...]] = [("HINCRBY", keys.ran, raw(name), many) for name, many in more.items()]
    return [*added, ("EXPIRE", keys.ran, _LEVELS_LIFE)] if added else []


Kind = Literal["queue", "hash", "spare"]


def read_each(names: Sequence[bytes], kinds: Sequence[Kind]) -> Call[list[Any]]:
    """What stands under the keys ``names``, of the first of them at least and of others as far as 4 MB go.

    Of a queue [length, the payload that is next], of a hash [[name, value, …]]; a text of a key that is neither. A
    ``spare`` is a hash that is read where the key before it holds nothing.
    """

    def read(reply: Any) -> list[Any]:
        return [row[1].decode("utf-8", "replace") if row[0] == 0 else row[1:] for row in reply]

    return script(_READ_EACH, names, kinds, read, again=True)


def read_all(names: Sequence[bytes], kinds: Sequence[Kind]) -> Procedure[list[Any]]:
    """``read_each`` for all of ``names``, in as many calls as it needs."""
    rows: list[Any] = []
    while len(rows) < len(names):
        rows += yield read_each(names[len(rows) :], kinds[len(rows) :])
    return rows


class ListPage(NamedTuple):
    """Entries of a list in a row. ``size``: how many the list has; ``looked``: how many were looked at; ``found``:
    those that were wanted, with their indices from 0 (the newest, in a queue)."""

    size: int
    looked: int
    found: list[tuple[int, bytes]]

    @property
    def payloads(self) -> list[bytes]:
        """What was found, without indices."""
        return [payload for _, payload in self.found]


def list_page(key: str, first: int, most: int, *, leftwards: bool = False, text: str = "") -> Call[ListPage]:
    """Up to ``most`` entries of a list (a key) from index ``first`` on, fewer when they have more than 4 MB, but two at
    least. A negative index counts from the right end: -1 is next to run. Those alone that hold ``text`` come here."""

    def read(reply: Any) -> ListPage:
        size, looked, flat = reply
        return ListPage(size, looked, [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)])

    args: list[Arg] = [first, min(most, _MOST), int(leftwards), raw(text)]
    return script(_LIST_PAGE, [raw(key)], args, read, again=True)


class Matching(NamedTuple):
    """What holds a text in queues: name of the queue, its length, index from 0 at the newest, and the payload."""

    queue: str
    size: int
    place: int
    payload: bytes


def _matching(flat: Sequence[Any]) -> list[Matching]:
    names = (one.decode("utf-8", "surrogateescape") for one in flat[::4])
    return [Matching(*one) for one in zip(names, flat[1::4], flat[2::4], flat[3::4], strict=True)]


class EndsLook(NamedTuple):
    """What both ends of all queues hold of a text. ``looked``: at how many entries; ``more``: there are others."""

    more: bool
    looked: int
    found: list[Matching]


def ends(keys: Keys, text: str) -> Call[EndsLook]:
    """What holds ``text`` at the ends of all queues, of which there may be very many: some thousand entries in all."""
    args: list[Arg] = [raw(text), _ENDS_MOST, _END]
    return script(_ENDS, [keys.queues], args, lambda it: EndsLook(it[0] == 1, it[1], _matching(it[2:])), again=True)


class QueuesStretch(NamedTuple):
    """What a stretch of all queues, one behind the other, holds of a text: ``total`` entries are there in all."""

    total: int
    looked: int
    found: list[Matching]


def queues_page(keys: Keys, text: str, first: int, most: int) -> Call[QueuesStretch]:
    """What holds ``text`` among up to ``most`` entries of all queues from the place ``first`` on."""
    args: list[Arg] = [raw(text), first, most]
    return script(
        _QUEUES_PAGE, [keys.queues], args, lambda it: QueuesStretch(it[0], it[1], _matching(it[2:])), again=True
    )


def _removed(reply: Any) -> int:
    """Of a removal that was sent before: what is not there any more went then, or by itself."""
    return 1


def remove(keys: Keys, name: str, payload: bytes, effects: bytes = b"") -> Call[int]:
    """1 the payload is out of the queue, and its effects are carried out; 0 it was not there."""
    return script(
        _REMOVE, [keys.queues, raw(keys.queue(name))], [payload, effects], int, again=True, decode_again=_removed
    )


def bring_forward(keys: Keys, name: str, payload: bytes) -> Call[int]:
    """1 the payload is fetched next; 0 it was not in the queue."""
    return script(_BRING_FORWARD, [raw(keys.queue(name))], [payload], int, again=True)


def forget_trimmed(keys: Keys, payload: bytes, effects: bytes) -> Call[int]:
    """``remove`` for a payload that the dead set had no room for."""
    return script(_REMOVE, [keys.queues, keys.trimmed], [payload, effects], int, again=True, decode_again=_removed)


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


class Pause(msgspec.Struct, frozen=True):
    """Since when a queue is paused (Unix seconds), by whom and why, and when that ends by itself (None: never); what is
    not known is None or empty, as of a pause that a Ruby program made."""

    at: float | None = None
    by: str = ""
    reason: str = ""
    until: float | None = None


def pause(keys: Keys, queue: str, why: Pause) -> Call[Any]:
    """Nothing starts from ``queue`` any more, on any worker. ``why`` stands in a key of its own: Sidekiq's set stays a
    set of names."""
    told = ("PUBLISH", keys.control_all, f"pause {queue}")
    noted = ("HSET", keys.pauses, queue, msgspec.json.encode(why))
    return commands(("MULTI",), ("SADD", keys.paused, queue), noted, told, ("EXEC",))


def unpause(keys: Keys, queue: str) -> Call[Any]:
    """Work on ``queue`` goes on."""
    told = ("PUBLISH", keys.control_all, f"unpause {queue}")
    return commands(("MULTI",), ("SREM", keys.paused, queue), ("HDEL", keys.pauses, queue), told, ("EXEC",))


def declare_objectives(keys: Keys, served: Iterable[str], said: Mapping[str, float]) -> Call[Any]:
    """How many seconds the next job of each queue may wait, for those that look; one that is ``served`` and of which
    nothing is ``said`` has none any more."""
    unsaid = sorted({*served} - said.keys())
    forget: list[tuple[Arg, ...]] = [("HDEL", keys.objectives, *map(raw, unsaid))] if unsaid else []
    told = [("HSET", keys.objectives, raw(name), repr(seconds)) for name, seconds in said.items()]
    return commands(*forget, *told)


def objectives(keys: Keys) -> Call[dict[str, float]]:
    """How many seconds the next job of a queue may wait; only those of which that was said."""

    def read(flat: list[bytes]) -> dict[str, float]:
        found = {}
        for name, said in zip(flat[::2], flat[1::2], strict=True):
            with suppress(ValueError):  # somebody wrote something else there
                found[name.decode("utf-8", "replace")] = float(said)
        return {name: seconds for name, seconds in found.items() if 0 < seconds < inf}

    return command("HGETALL", keys.objectives, decode=read)


def pauses(keys: Keys) -> Call[dict[str, Pause]]:
    """The paused queues by name, and what is known of each pause."""
    asked = ("SMEMBERS", keys.paused), ("HGETALL", keys.pauses)
    return commands(*asked, decode=lambda replies: read_pauses(*replies))


def read_pauses(names: Iterable[bytes], notes: Sequence[bytes], errors: str = "surrogateescape") -> dict[str, Pause]:
    """What is paused, by name, sorted, and what its note says; ``notes``: names and notes, in turn."""
    known = dict(zip(notes[::2], notes[1::2], strict=True))
    return {name.decode("utf-8", errors): read_pause(known.get(name, b"")) for name in sorted(names)}


def read_pause(note: bytes) -> Pause:
    """What was noted about a pause; a ``Pause`` of nothing where the note is none of ours."""
    try:
        return msgspec.json.decode(note, type=Pause)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Pause()


# The sorted sets.


class Member(NamedTuple):
    """One entry: its bytes, and its score in Unix seconds."""

    payload: bytes
    score: float


class Stretch(NamedTuple):
    """Entries in a row. ``more``: others follow; ``looked``: how many were looked at."""

    members: list[Member]
    more: bool
    looked: int

    def holding(self, text: str) -> list[Member]:
        """Those of a search for ``text`` that hold it."""
        return [one for one in self.members if raw(text) in one.payload]

    def step(self) -> int:
        """How much further a search goes on. Its pages overlap: what leaves a set meanwhile moves the rest."""
        return max(self.looked - _OVERLAP, self.looked // 2, 1)


def _members(flat: list[bytes]) -> list[Member]:
    return [Member(flat[i], float(flat[i + 1])) for i in range(0, len(flat), 2)]


def _number(reply: Any) -> int | None:
    return None if reply is None else int(reply)


def set_size(key: str) -> Call[int]:
    """How many entries the set holds."""
    return command("ZCARD", key, decode=int)


def set_stretch(
    key: str, first: int, most: int, *, newest_first: bool = False, text: str = "", score: float | None = None
) -> Call[Stretch]:
    """Up to ``most`` entries from rank ``first`` on, counted from 0 at the lowest (or highest) score, or from the first
    entry that has ``score``: fewer when they have more than 4 MB, but two at least. Of those that do not hold ``text``
    the first, the last and one more come."""

    def read(reply: Any) -> Stretch:
        return Stretch(_members(reply[2]), reply[0] == 1, reply[1])

    most = min(most, SEARCHED if text else _MOST)
    edge = "" if score is None else repr(float(score))
    return script(_SET_PAGE, [key], [first, most, int(newest_first), raw(text), edge], read, again=True)


class SetFacets(NamedTuple):
    """How many of ``looked`` payloads name each class, queue and error, as the names stand in JSON."""

    looked: int
    classes: Mapping[str, int]
    queues: Mapping[str, int]
    errors: Mapping[str, int]


def set_facets(key: str, first: int, *, newest_first: bool = False) -> Call[SetFacets]:
    """What up to a thousand entries from rank ``first`` on are: fewer when they have more than 4 MB."""

    def counts(flat: list[Any]) -> dict[str, int]:
        return {flat[at].decode("utf-8", "replace"): flat[at + 1] for at in range(0, len(flat), 2)}

    def read(reply: Any) -> SetFacets:
        return SetFacets(reply[0], *map(counts, reply[1:]))

    return script(_SET_FACETS, [key], [first, SEARCHED, int(newest_first)], read, again=True)


def set_page(key: str, first: int, most: int, *, newest_first: bool = False) -> Procedure[list[Member]]:
    """``set_stretch`` in as many calls as ``most`` entries need."""
    found: list[Member] = []
    while len(found) < most:
        some: Stretch = yield set_stretch(key, first + len(found), most - len(found), newest_first=newest_first)
        found += some.members
        if not some.more:
            break
    return found


def set_ranks(key: str, payloads: Sequence[bytes], *, newest_first: bool = False) -> Call[list[int | None]]:
    """The ranks of entries (at least two), from 0 at the lowest (or highest) score; None where one is not there."""
    verb = "ZREVRANK" if newest_first else "ZRANK"
    return commands(*((verb, key, one) for one in payloads), decode=lambda replies: [_number(one) for one in replies])


def set_below(key: str, limit: float, *, newest_first: bool = False) -> Call[int]:
    """How many entries stand before those with the score ``limit``, in the order asked for."""
    edge = f"({float(limit)!r}"
    return command("ZCOUNT", key, *((edge, "+inf") if newest_first else ("-inf", edge)), decode=int)


def set_counts(key: str, edges: Sequence[float]) -> Call[list[int]]:
    """How many entries have scores below the first of ``edges``, from each of them up to the next, and from the last
    on."""
    bounds = ["-inf", *(repr(float(one)) for one in edges), "+inf"]
    pairs = zip(bounds, [f"({one}" for one in bounds[1:-1]] + ["+inf"], strict=False)
    return commands(*(("ZCOUNT", key, low, high) for low, high in pairs), decode=lambda replies: [*map(int, replies)])


def set_score(key: str, payload: bytes | str) -> Call[float | None]:
    """The score of an entry; None when it is not there."""
    return command("ZSCORE", key, payload, decode=lambda reply: None if reply is None else float(reply))


def reschedule(key: str, payload: bytes, at: float) -> Call[bool]:
    """Give an entry, found by its bytes, another time; False when it is not there (any more): then nothing is added."""
    move, look = ("ZADD", key, "XX", repr(float(at)), payload), ("ZSCORE", key, payload)
    return commands(("MULTI",), move, look, ("EXEC",), decode=lambda replies: replies[-1][1] is not None)
