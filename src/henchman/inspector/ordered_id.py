"""Ids of ordered queues: the figures of a queue, one id with all that belongs to it, and the commands on ids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from henchman.errors import ArgumentError
from henchman.inspector.base import text_of
from henchman.inspector.sets import Acted
from henchman.store import ordered_people
from henchman.store.call import Procedure
from henchman.store.keys import Keys
from henchman.store.ordered import MoveBegun, Moved, move
from henchman.store.ordered_people import CHUNK, IN_FLIGHT, PART, Act, ActResult, Figures, Held, IdLook, Pile
from henchman.wire import jsontext, times

__all__ = [
    "Holder",
    "OrderedCommands",
    "OrderedId",
    "OrderedPayload",
    "OrderedStats",
    "State",
    "id_of",
    "stats_of",
]

State = Literal["waiting", "retrying", "in flight", "dead", "absent"]

_PASSES = 2  # an id that leaves while all are gone through may hide another one: then they are gone through once more
_HELD = {"delete": "in flight; what arrived meanwhile is deleted, the rest ends as its run does"}
_HELD_ELSE = "in flight; it stays as it is until its run has ended"


class OrderedStats(NamedTuple):
    """The figures of an ordered queue at one moment. ``length``: ids that wait, those in flight (``busy``) not counted;
    of these ``fresh`` never failed and ``retries`` did. ``lag``: seconds since the first of them was due, 0 when none
    is. ``processed``: ids that ended well; ``failed``: runs of an id that did not. ``max_parallel``: claims at a time,
    None: no limit; ``max_parallel_from``: "set" by hand, "code", or "" for neither. ``max_per_group`` as well.
    """

    name: str
    length: int
    morgue_length: int
    lag: float
    busy: int
    fresh: int
    retries: int
    processed: int
    failed: int
    paused: bool
    max_parallel: int | None
    max_parallel_from: str
    max_per_group: int | None

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs."""
        return self._asdict()


def stats_of(name: str, seen: Figures) -> OrderedStats:
    """The figures as people count."""
    length, retries = seen.known - seen.busy, seen.failed - seen.failed_busy
    limit = seen.defined if seen.limit is None else seen.limit
    return OrderedStats(
        name=name,
        length=length,
        morgue_length=seen.morgue,
        lag=seen.lag,
        busy=seen.busy,
        fresh=length - retries,
        retries=retries,
        processed=seen.processed,
        failed=seen.failures,
        paused=seen.paused,
        max_parallel=limit or None,
        max_parallel_from="set" if seen.limit is not None else "code" if limit else "",
        max_per_group=seen.group_limit or None,
    )


class OrderedPayload(NamedTuple):
    """One payload with its score, as it is stored."""

    score: float
    payload: bytes

    @property
    def value(self) -> Any:
        """What was pushed, read as JSON; its text when it is none."""
        try:
            return jsontext.loads(self.payload)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return text_of(self.payload)

    @property
    def text(self) -> str:
        """The stored text."""
        return text_of(self.payload)

    def to_json(self) -> dict[str, Any]:
        """``score`` and ``payload``."""
        return {"score": self.score, "payload": self.value}


class Holder(NamedTuple):
    """The holder of an id in flight: the process, the token of its claim, since when (Unix seconds), how many payloads
    it was given. ``lease_left``: seconds for which its lease still lives, None: it has none. ``alive``: it has a lease
    and was not declared dead; else its ids come back when the next lifeline looks.
    """

    identity: str
    token: int
    since: float
    delivered: int
    lease_left: float | None
    alive: bool

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs; ``token`` as text, because it passes what JavaScript counts exactly."""
        return self._asdict() | {"token": str(self.token), "since": times.iso(self.since)}


class OrderedId(NamedTuple):
    """One id of an ordered queue, at the time ``at`` (Unix seconds, the server's).

    ``payloads`` wait, or are in flight with ``holder``; ``arrivals`` came while it was; ``dead`` lie in the morgue.
    Each lowest score first, and only the first of many: ``…_count`` says how many there are. ``due``: when it may be
    taken (in flight: when it was due), None: nothing waits; ``put_off``: it waits until its group has room.
    ``retry_count``: -1 it never failed, 0 it failed once. ``crashes``: processes that died with it, in a row.
    ``arrivals_due``: when those are due if nothing else is left; ``died_at``: when the last of ``dead`` was buried,
    with ``dead_error``.
    """

    id: str
    at: float
    state: State
    due: float | None
    put_off: bool
    retry_count: int
    error: str | None
    crashes: int
    payloads: list[OrderedPayload]
    payload_count: int
    holder: Holder | None
    arrivals: list[OrderedPayload]
    arrival_count: int
    arrivals_due: float | None
    dead: list[OrderedPayload]
    dead_count: int
    died_at: float | None
    dead_error: str | None

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs; times as ISO 8601 in UTC or null."""
        facts = self._asdict()
        for name in ("at", "due", "arrivals_due", "died_at"):
            facts[name] = times.iso(facts[name]) or None
        for name in ("payloads", "arrivals", "dead"):
            facts[name] = [one.to_json() for one in facts[name]]
        facts["holder"] = self.holder.to_json() if self.holder else None
        return facts


def id_of(at: float, seen: IdLook) -> OrderedId:
    """An id as people see it."""
    held = seen.held
    put_off = held is None and seen.put_off is not None
    return OrderedId(
        id=seen.id.decode("utf-8", "surrogateescape"),
        at=at,
        state=_state(seen),
        due=held.due if held else seen.put_off if put_off else seen.due,
        put_off=put_off,
        retry_count=seen.retry_count,
        error=None if seen.error is None else text_of(seen.error),
        crashes=seen.crashes,
        payloads=_payloads(seen.waiting),
        payload_count=seen.waiting.many,
        holder=_holder(held) if held else None,
        arrivals=_payloads(seen.arrivals),
        arrival_count=seen.arrivals.many,
        arrivals_due=seen.next_due,
        dead=_payloads(seen.dead),
        dead_count=seen.dead.many,
        died_at=seen.died_at,
        dead_error=None if seen.dead_error is None else text_of(seen.dead_error),
    )


def _state(seen: IdLook) -> State:
    if seen.held is not None:
        return "in flight"
    if seen.due is not None:
        return "retrying" if seen.retry_count >= 0 else "waiting"
    return "dead" if seen.dead.many else "absent"


def _holder(held: Held) -> Holder:
    left = None if held.lease_ms is None else held.lease_ms / 1000
    alive = left is not None and not held.buried
    return Holder(held.identity, held.token, held.token / 1e6, max(held.delivered, 1), left, alive)


def _payloads(pile: Pile) -> list[OrderedPayload]:
    return [OrderedPayload(*one) for one in pile.some]


class OrderedCommands:
    """The commands on ids of one ordered queue, as procedures. An id in flight stays held, whatever is done."""

    def __init__(self, keys: Keys, name: str) -> None:
        self._keys = keys
        self._name = name

    def on(self, what: Act, ids: Sequence[bytes]) -> Procedure[Acted]:
        """Act on these, a hundred a call."""
        if what == "run":
            ids = yield from self._in_order(ids)
        total, floor = Acted(), 0.0
        for first in range(0, len(ids), CHUNK):
            some = ids[first : first + CHUNK]
            answer = yield from self._act(what, some, floor=floor)
            floor = answer.last
            total = total.plus(_acted(what, some, answer.statuses))
            if total.stopped:
                break
        return total

    def _act(self, what: Act, ids: Sequence[bytes], *, only_failed: bool = False, floor: float) -> Procedure[ActResult]:
        """One call, and more for the ids under which so much waits that one does a part of it. An id that is claimed
        in between ends as in flight, or with nothing left; a part of it was done."""
        answer: ActResult = yield ordered_people.act(
            self._keys, self._name, what, ids, only_failed=only_failed, floor=floor
        )
        statuses = answer.statuses
        while part := [place for place, status in enumerate(statuses) if status == PART]:
            rest = [ids[place] for place in part]
            again: ActResult = yield ordered_people.act(self._keys, self._name, what, rest, floor=answer.last)
            for place, status in zip(part, again.statuses, strict=True):
                statuses[place] = 1 if status == 0 else status
        return answer

    def drop(self, id: bytes, pile: str, payload: OrderedPayload) -> Procedure[Acted]:
        """Remove one payload."""
        status: int = yield ordered_people.drop(self._keys, self._name, id, pile, *payload)
        return _acted("drop", [id], [status])

    def on_all(self, what: Act, part: str, *, only_failed: bool = False) -> Procedure[Acted]:
        """Act on all that stand in ``retry`` or ``morgue``; for ``run``: on all in ``due`` whose time is to come.

        What comes in meanwhile may or may not be met.
        """
        total = Acted()
        for _ in range(_PASSES):
            some = yield from self._pass(what, part, only_failed)
            total = Acted(total.done + some.done, total.gone + some.gone, *some[2:])
            if total.stopped or not some.stayed:
                break
        return total

    def move(self, target: str, ids: Sequence[bytes]) -> Procedure[Acted]:
        """Move these to another queue, or all that wait."""
        if target == self._name:
            raise ArgumentError(f"{target!r} cannot be moved to itself")
        collapse: str = yield ordered_people.collapse_of(self._keys, target, self._name)
        if ids:
            return (yield from self._move_these(target, collapse, ids))
        total = Acted()
        for _ in range(_PASSES):
            stayed, reasons = 0, tuple[str, ...]()
            while True:
                moved = yield from self._move(target, collapse, skip=stayed)
                total = total._replace(done=total.done + moved.moved)
                if not moved.moved and not moved.in_flight:
                    break
                stayed += len(moved.in_flight)
                reasons = (*reasons, *map(_held, moved.in_flight))[:CHUNK]
            total = total._replace(stayed=stayed, reasons=reasons)
            if not stayed:
                break
        return total

    def _move(self, target: str, collapse: str, ids: Sequence[bytes] = (), skip: int = 0) -> Procedure[Moved]:
        """One call, and as many more as an id with very many payloads needs."""
        moved: Moved = yield move(self._keys, self._name, target, collapse, ids=ids, skip=skip, most=CHUNK)
        done = moved.moved
        while isinstance(moved, MoveBegun):
            moved = yield move(self._keys, self._name, target, collapse, ids=[moved.id])
            done += moved.moved
        return moved._replace(moved=done)

    def _move_these(self, target: str, collapse: str, ids: Sequence[bytes]) -> Procedure[Acted]:
        total = Acted()
        for one in ids:  # one a call: an id with many payloads would put off those behind it
            moved = yield from self._move(target, collapse, ids=[one])
            stayed = len(moved.in_flight)
            gone = 1 - moved.moved - stayed
            total = total.plus(Acted(moved.moved, gone, stayed, tuple(map(_held, moved.in_flight))))
        return total

    def _pass(self, what: Act, part: str, only_failed: bool) -> Procedure[Acted]:
        """The first page again and again, lowest score first; what stays is stepped over."""
        low: float = (yield ordered_people.now()) if what == "run" else -math.inf
        left: int = yield ordered_people.count(self._keys, self._name, part, low)
        total = Acted()
        while left > 0 and not total.stopped:
            call = ordered_people.span(self._keys, self._name, part, low, total.stayed, min(CHUNK, left))
            ids: list[bytes] = yield call
            if not ids:
                break
            left -= len(ids)
            answer = yield from self._act(what, ids, only_failed=only_failed, floor=max(low, 0))
            low = answer.last if what == "run" else low
            total = total.plus(_acted(what, ids, answer.statuses))
        return total

    def _in_order(self, ids: Sequence[bytes]) -> Procedure[list[bytes]]:
        """As they are due: each call keeps the order of its own ids only."""
        known = dict[bytes, float]()
        for first in range(0, len(ids), CHUNK):
            some = ids[first : first + CHUNK]
            dues: list[float | None] = yield ordered_people.dues(self._keys, self._name, some)
            known |= {one: due or 0.0 for one, due in zip(some, dues, strict=True)}
        return sorted(known, key=lambda one: (known[one], one))


def _held(one: bytes) -> str:
    return f"{text_of(one)}: {_HELD_ELSE}"


def _acted(what: Act | Literal["drop"], ids: Sequence[bytes], statuses: Sequence[int | bytes]) -> Acted:
    refused = [(one, status) for one, status in zip(ids, statuses, strict=True) if isinstance(status, bytes)]
    busy = [one for one, status in zip(ids, statuses, strict=True) if status == IN_FLIGHT]
    reasons = [f"{text_of(one)}: {_HELD.get(what, _HELD_ELSE)}" for one in busy]
    reasons += [f"{text_of(one)}: the server refused: {text_of(status)}" for one, status in refused]
    done = statuses.count(1)
    return Acted(done, statuses.count(0), len(reasons), tuple(reasons), bool(refused) and not done)
