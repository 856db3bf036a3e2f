"""Limits for people: how large each is, who has its places, who waits for one; and another size while jobs run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from henchman.errors import ArgumentError
from henchman.inspector.base import Entry, Inspector, Mask
from henchman.inspector.blocked import waits_since
from henchman.kernel.text import as_shown, count, did_you_mean, visible
from henchman.limits.kinds import LONGEST, checked_size
from henchman.store import limits, needs
from henchman.store.call import Procedure, ask, awaited, now, side_by_side
from henchman.store.keys import Keys
from henchman.store.limits import KINDS, LimitSize, PartSize, PlaceHolder

__all__ = [
    "LimitLook",
    "LimitPage",
    "LimitState",
    "Limits",
    "Resized",
    "limit_look",
    "limit_page",
    "limit_states",
    "parts_of",
    "resize",
    "some_limits",
    "waited_for",
]

MOST_PARTS = 1000  # values of ``by`` that are counted for one limit
_PAGE = 50
_EACH = 100  # values of ``by`` that are counted for each of many limits


@dataclass(frozen=True)
class LimitState:
    """A limit as Redis has it.

    ``kind``: "concurrent", "leaky", "window", "bucket" or "points"; ``n`` in ``per`` seconds, 0 for places.
    ``by_hand``: it was changed; code says ``code_n`` in ``code_per``. Of places: ``used``, ``waiting``: how many are
    taken, and how many jobs wait, of ``parts`` values of ``by`` (the first thousand, ``more``: there are others);
    ``room``: jobs wait for a place, and one of these values has one that nobody took.
    """

    name: str
    kind: str
    n: int
    per: float
    code_n: int
    code_per: float
    used: int = 0
    waiting: int = 0
    parts: int = 0
    more: bool = False
    room: bool = False

    @property
    def by_hand(self) -> bool:
        """Whether it is not what the code says."""
        return (self.n, self.per) != (self.code_n, self.code_per)

    @property
    def has_places(self) -> bool:
        """Whether jobs hold it while they run."""
        return self.kind == "concurrent"

    @property
    def size(self) -> str:
        """How large it is, as text."""
        return f"{self.n:,}" if self.has_places else f"{self.n:,} in {self.per:g} s"

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs."""
        names = ("name", "kind", "n", "code_n", "used", "waiting", "parts", "more", "by_hand")
        return {name: getattr(self, name) for name in names} | {
            "per": self.per or None,
            "code_per": self.code_per or None,
        }


def limit_states(keys: Keys, match: str = "") -> Procedure[list[LimitState]]:
    """Every limit that was ever used, by name, with how much of it is taken. ``match``: with it in their names."""
    found, many = yield from some_limits(keys, match, each=MOST_PARTS)
    while len(found) < many and (some := (yield from some_limits(keys, match, len(found), each=MOST_PARTS))[0]):
        found += some
    return found


def _state(one: LimitSize, parts: Sequence[PartSize], *, more: bool = False) -> LimitState:
    used, waiting = sum(part.used for part in parts), sum(part.waiting for part in parts)
    room = any(part.waiting and part.used < one.n for part in parts)
    told = (one.name, KINDS[one.kind], one.n, one.per, one.code_n, one.code_per)
    return LimitState(*told, used, waiting, len(parts), more, room)


def parts_of(keys: Keys, name: str) -> Procedure[tuple[list[PartSize], bool]]:
    """Whose places of a limit are taken or waited for, those with most who wait first; and whether there are more."""
    whose = dict[str, None]()
    for scan in (limits.parts, limits.waiting_parts):
        cursor = -1
        while cursor and len(whose) <= MOST_PARTS:
            cursor, some = yield scan(keys, name, max(cursor, 0))
            whose |= dict.fromkeys(some)
    some = list(whose)[:MOST_PARTS]
    sizes: list[PartSize] = (yield limits.use(keys, name, some)) if some else []
    return _used(sizes), len(whose) > MOST_PARTS


class LimitLook(NamedTuple):
    """A limit, whose places are taken or waited for; of one of these, ``by``: who has a place, with the jobs as far as
    they are known, and the first who wait."""

    state: LimitState
    parts: list[PartSize]
    by: str
    holders: list[PlaceHolder]
    line: list[tuple[str, Entry | None]]


def limit_look(keys: Keys, name: str, by: str | None = None, mask: Mask | None = None) -> Procedure[LimitLook | None]:
    """A limit in full; None: there is none of this name. ``by``: whose, where each value has a limit of its own; left
    out: whose most wait."""
    [size] = [one for one in (yield limits.sizes(keys)) if one.name == name] or [None]
    if size is None:
        return None
    parts, more = (yield from parts_of(keys, name)) if size.kind == "c" else ([], False)
    whose = by if by is not None else parts[0].by if parts else ""
    holders: list[PlaceHolder] = yield limits.holders(keys, name, whose)
    waiting: list[str] = yield limits.line(keys, name, whose, _PAGE)
    rows = (yield needs.blocked(keys, waiting)) if waiting else []
    entries = [None if row is None else Entry(row.payload, mask=mask) for row in rows]
    entries += [None] * (len(waiting) - len(entries))
    return LimitLook(_state(size, parts, more=more), parts, whose, holders, list(zip(waiting, entries, strict=True)))


def some_limits(
    keys: Keys, match: str = "", first: int = 0, most: int = _PAGE, each: int = _EACH
) -> Procedure[tuple[list[LimitState], int]]:
    """Some limits by name, and how many there are, in three round trips; about ``each`` values of ``by`` are counted
    for each limit, where ``more`` says that there are others."""
    every, lines = yield from side_by_side(ask(limits.sizes(keys)), ask(limits.waiting_lines(keys)))
    every = [one for one in every if match.lower() in one.name.lower()]
    some: list[LimitSize] = every[first : first + most]
    places = [one.name for one in some if one.kind == "c"]
    scans = (ask(limits.parts(keys, name, 0, each)) for name in places)
    taken = dict(zip(places, (yield from side_by_side(*scans)), strict=True))
    whose = {name: dict.fromkeys(values) for name, (_, values) in taken.items()}
    for name, by in lines:
        if name in whose and len(whose[name]) < 2 * each:
            whose[name][by] = None
    asked = [name for name in places if whose[name]]
    sizes = yield from side_by_side(*(ask(limits.use(keys, name, list(whose[name]))) for name in asked))
    parts = dict(zip(asked, (_used(one) for one in sizes), strict=True))
    states = [_state(one, parts.get(one.name, []), more=bool(taken.get(one.name, (0,))[0])) for one in some]
    return states, len(every)


def waited_for(keys: Keys, most: int = _PAGE) -> Procedure[tuple[list[LimitState], int]]:
    """The limits for whose places somebody waits, with those values alone, and how many limits there are; two round
    trips."""
    every, lines = yield from side_by_side(ask(limits.sizes(keys)), ask(limits.waiting_lines(keys)))
    sized: dict[str, LimitSize] = {one.name: one for one in every}
    whose: dict[str, list[str]] = {}
    for name, by in lines:
        if name in sized and (name in whose or len(whose) < most):
            whose.setdefault(name, []).append(by)
    sizes = yield from side_by_side(*(ask(limits.use(keys, name, some)) for name, some in whose.items()))
    return [_state(sized[name], _used(parts)) for name, parts in zip(whose, sizes, strict=True)], len(every)


def _used(parts: Sequence[PartSize]) -> list[PartSize]:
    """Those with a place that is taken or waited for; whose most wait first."""
    found = [one for one in parts if one.used or one.waiting]
    return sorted(found, key=lambda one: (-one.waiting, -one.used, one.by))


class LimitPage(NamedTuple):
    """A limit as far as two round trips show it. ``parts``: about a thousand values of ``by``, those whose most wait
    first, of ``values``; ``cursor``: where the others begin, 0: there are none. Of one of them, ``of``: about fifty who
    have a place, the longest first, and the first fifty who wait, each with its job as far as it is known, and since
    when it waits."""

    state: LimitState
    parts: list[PartSize]
    values: int
    cursor: int
    of: PartSize
    holders: list[PlaceHolder]
    line: list[tuple[str, Entry | None, float | None]]


def limit_page(
    keys: Keys, name: str, by: str = "", cursor: int = 0, mask: Mask | None = None
) -> Procedure[LimitPage | None]:
    """One limit, and who has and waits for the places of ``by``; None: there is no such limit. ``parts`` is of all
    values where ``by`` is empty, else of this one."""
    every, values, (further, whose), lines, [of], holders, waiting = yield from side_by_side(
        ask(limits.sizes(keys)),
        ask(limits.value_count(keys, name)),
        ask(limits.parts(keys, name, cursor, MOST_PARTS)) if not by else _one((0, [by])),
        ask(limits.waiting_lines(keys)) if not by else _one([]),
        ask(limits.use(keys, name, [by])),
        ask(limits.some_holders(keys, name, by, _PAGE)),
        ask(limits.line(keys, name, by, _PAGE)),
    )
    size = next((one for one in every if one.name == name), None)
    if size is None:
        return None
    also = () if cursor else (value for limit, value in lines if limit == name)
    some = list(dict.fromkeys([*whose, *also]))
    sizes, rows = yield from side_by_side(
        ask(limits.use(keys, name, some)) if some else _one([]),
        ask(needs.blocked(keys, waiting)) if waiting else _one([]),
    )
    parts = _used(sizes)
    told = dict(zip(waiting, rows, strict=False))  # fewer where they are large
    line = [(jid, *_waiter(told.get(jid), mask)) for jid in waiting]
    return LimitPage(_state(size, parts, more=bool(further or cursor)), parts, values, further, of, holders, line)


def _one(found: Any) -> Procedure[Any]:
    """The procedure that asks nothing."""
    yield from ()
    return found


def _waiter(row: needs.Blocked | None, mask: Mask | None) -> tuple[Entry | None, float | None]:
    return (None, None) if row is None else (Entry(row.payload, mask=mask), waits_since(row))


class Resized(NamedTuple):
    """A limit before and after; ``let_go``: how many who waited went on."""

    before: LimitState
    after: LimitState
    let_go: int

    @property
    def text(self) -> str:
        """What was done, in a sentence."""
        name, before, after = self.after.name, self.before, self.after
        text = f"{name} is {after.size} from now on; it was {before.size}"
        if self.let_go:
            text += f"; {count(self.let_go, 'job')} that waited {'goes' if self.let_go == 1 else 'go'} on"
        if after.has_places and after.used > after.n and not after.parts > 1:
            text += f"; {count(after.used, 'place', does='are')} taken, and those who have them run to their ends"
        if not after.has_places:
            text += "; times that were given away stay"
        return text


def resize(keys: Keys, name: str, n: int, per: float | timedelta | None = None) -> Procedure[Resized]:
    """How large a limit is from now on; ArgumentError for one that is not there, or that cannot be so large."""
    known: list[LimitSize] = yield limits.sizes(keys)
    before = next((one for one in known if one.name == name), None)
    if before is None:
        near = did_you_mean(name, [one.name for one in known])
        raise ArgumentError(f"there is no limit {visible(name)!r}{near or '; henchman limits lists those there are'}")
    if (problem := checked_size(before.kind, n)) is not None:
        raise ArgumentError(f"n={as_shown(n, 80)}: {problem}")
    seconds = per.total_seconds() if isinstance(per, timedelta) else per
    if seconds is not None and before.kind == "c":
        raise ArgumentError(f"per={as_shown(per, 80)}: {name} is a number of places, which no time is about")
    if seconds is not None and not (type(seconds) in (int, float) and 0.001 <= seconds <= LONGEST):
        raise ArgumentError(f"per={as_shown(per, 80)}: give seconds or a timedelta, from 0.001 s to 366 days")
    yield limits.resize(keys, name, n, seconds)
    went = 0
    parts, _ = (yield from parts_of(keys, name)) if before.kind == "c" else ([], False)
    for part in parts:
        while part.waiting and (some := (yield limits.hand(keys, name, part.by))):
            went += some
    [after] = [one for one in (yield from limit_states(keys, name)) if one.name == name]
    return Resized(_state(before, parts), after, went)


class Limits(Inspector):
    """``app.limits``: every limit that was ever used. Each method also exists awaited, with ``a`` before its name."""

    def __repr__(self) -> str:
        return "<limits>"

    @now
    def all(self) -> Procedure[list[LimitState]]:
        """Every one, by name."""
        return (yield from limit_states(self._keys))

    @now
    def look(self, name: str, by: str | int | None = None) -> Procedure[LimitLook | None]:
        """One of them, who has its places, and who waits; ``by``: whose places."""
        return (yield from limit_look(self._keys, name, None if by is None else str(by), self._mask))

    @now
    def set(self, name: str, n: int, *, per: float | timedelta | None = None) -> Procedure[Resized]:
        """How large a limit is from now on, for all workers. Who waits goes on as far as there is room; who runs goes
        on to its end. It holds until it is changed again, also when workers start with other code. ArgumentError."""
        done = yield from resize(self._keys, name, n, per)
        self._runtime.events.emit("limit_changed", limit=name, before=done.before.size, after=done.after.size)
        return done

    aall = awaited(all)
    alook = awaited(look)
    aset = awaited(set)
