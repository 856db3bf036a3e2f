"""What people do to ids of an ordered queue: each id is one move. Whatever is done, an id in flight stays held."""

from __future__ import annotations

import math
from collections.abc import Sequence

from henchman.errors import ArgumentError
from henchman.inspector.acts import Acted
from henchman.inspector.entry import text_of
from henchman.store import ordered_people
from henchman.store.keys import Keys
from henchman.store.ordered import MoveBegun, Moved, move
from henchman.store.ordered_people import CHUNK, IN_FLIGHT, PART, Act, ActResult
from henchman.store.procedure import Procedure

__all__ = ["OrderedActs"]

_PASSES = 2  # an id that leaves while all are gone through may hide another one: then they are gone through once more
_HELD = {"delete": "in flight; what arrived meanwhile is deleted, the rest ends as its run does"}
_HELD_ELSE = "in flight; it stays as it is until its run has ended"


class OrderedActs:
    """The actions on one ordered queue, as plans."""

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


def _acted(what: Act, ids: Sequence[bytes], statuses: Sequence[int | bytes]) -> Acted:
    refused = [(one, told) for one, told in zip(ids, statuses, strict=True) if isinstance(told, bytes)]
    busy = [one for one, told in zip(ids, statuses, strict=True) if told == IN_FLIGHT]
    reasons = [f"{text_of(one)}: {_HELD.get(what, _HELD_ELSE)}" for one in busy]
    reasons += [f"{text_of(one)}: the server refused: {text_of(told)}" for one, told in refused]
    done = statuses.count(1)
    return Acted(done, statuses.count(0), len(reasons), tuple(reasons), bool(refused) and not done)
