"""A search as conditions of SQL; and the few terms of it that the database cannot tell, looked at in what it gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, false, func, not_, or_

from henchman.errors import ArgumentError
from henchman.history.records import STATUSES, Event, Search
from henchman.history.schema import events
from henchman.history.stream import position_at
from henchman.kernel.terms import Bound, Term
from henchman.wire.argument_paths import written_at

__all__ = ["checked_statuses", "conditions", "fits", "is_checked", "statuses_of"]

_C: Final = events.c
_WORD: Final = re.compile(r"[A-Za-z_][\w:-]*", re.ASCII)  # what every writer of JSON writes as it is
_Condition = ColumnElement[bool]


def checked_statuses(status: str | Sequence[str]) -> tuple[str, ...]:
    """One status, or some; ArgumentError names one that there is not."""
    wanted = (status,) if isinstance(status, str) else tuple(status)
    for one in wanted:
        if one not in STATUSES:
            raise ArgumentError(f"there is no status {one!r}; there are {', '.join(STATUSES)}")
    return wanted


def statuses_of(search: Search) -> tuple[str, ...] | None:
    """The statuses that a search is about; None: all."""
    asked = [one for one in search.terms if one.name == "state"]
    if search.status is None and not asked:
        return None
    wanted = STATUSES if search.status is None else checked_statuses(search.status)
    return tuple(status for status in wanted if all(one.holds(status) is not one.negated for one in asked))


def conditions(search: Search) -> Iterator[_Condition]:
    """What a row has to be; rows of which the database cannot tell come along, see ``fits``."""
    for column, value in ((_C["class"], search.class_), (_C.batch, search.batch), (_C.queue, search.queue)):
        if value is not None:
            yield column == value
    if search.cause is not None:
        yield _C.cause == search.cause
    if (wanted := statuses_of(search)) is not None:
        yield _C.status.in_(wanted)
    if search.since is not None:
        yield _C.born >= position_at(search.since)
    if search.until is not None:
        yield _C.born < position_at(search.until)
    if search.text:
        columns = (_C.message, _C.error_class, _C.args, _C.kwargs)
        yield or_(*(_holds(one, search.text) for one in columns))
    for term in search.terms:
        if term.name in _OF:
            made = _OF[term.name](term)
            yield not_(made) if term.negated else made
        elif term.name in _CHECKED and (words := _needles(term)):
            places = [_C.tags] if term.name == "tag" else [_C.args, _C.kwargs]
            yield or_(*(_holds(one, word) for one in places for word in words))


def is_checked(search: Search) -> bool:
    """Whether the database cannot tell of every row if it fits."""
    return any(one.name in _CHECKED for one in search.terms)


def fits(search: Search, event: Event) -> bool:
    """Whether an event that the database gave is what those terms ask for that it cannot tell."""
    checked = (one for one in search.terms if one.name in _CHECKED)
    return all(one.holds(*_CHECKED[one.name](one, event)) is not one.negated for one in checked)


def _holds(column: Any, text: str) -> _Condition:
    """Whether a text stands in a column, in any case."""
    return func.lower(func.coalesce(column, "")).contains(text.lower(), autoescape=True)


def _is(column: Any, term: Term) -> _Condition:
    """Whether a column is one of the values, or begins with it. A row without one has the empty text."""
    known = func.coalesce(column, "")
    tests = (func.substr(known, 1, len(one.text)) if one.begins else known for one in term.values)
    return or_(false(), *(test == one.text for test, one in zip(tests, term.values, strict=True)))


def _bounded(number: Any, bounds: Sequence[Bound]) -> _Condition:
    """Whether a number is within one of the bounds."""
    signs = {">": number.__gt__, ">=": number.__ge__, "<": number.__lt__, "<=": number.__le__, "=": number.__eq__}
    return or_(false(), *(signs[one.sign](one.limit) for one in bounds))


def _between(first: Any, last: Any, term: Term) -> _Condition:
    """Whether two times that are known are so many seconds apart; 0 stands for one that is not."""
    first, last = func.coalesce(first, 0.0), func.coalesce(last, 0.0)
    return and_(first > 0, last > 0, _bounded(last - first, term.bounds))


def _enqueued(term: Term) -> _Condition:
    positions = [Bound(one.sign, position_at(one.limit)) for one in term.bounds]
    return _bounded(_C.born, positions)


_OF: Final[Mapping[str, Callable[[Term], _Condition]]] = {
    "class": lambda term: _is(_C["class"], term),
    "queue": lambda term: _is(_C.queue, term),
    "error": lambda term: _is(_C.error_class, term),
    "cause": lambda term: _is(_C.cause, term),
    "jid": lambda term: _is(_C.jid, term),
    "batch": lambda term: _is(_C.batch, term),
    "worker": lambda term: or_(false(), *(_holds(_C.process, one.text) for one in term.values)),
    "attempt": lambda term: _bounded(func.coalesce(_C.attempts, 0), term.bounds),
    "took": lambda term: _between(_C.started_at, _C.ended_at, term),
    "waited": lambda term: _between(_C.enqueued_at, _C.started_at, term),
    "since": _enqueued,
    "until": _enqueued,
}

_CHECKED: Final[Mapping[str, Callable[[Term, Event], Iterator[str | None] | Sequence[Any]]]] = {
    "args": lambda term, one: written_at("args", term.path, one.args or [], one.kwargs or {}),
    "kwargs": lambda term, one: written_at("kwargs", term.path, one.args or [], one.kwargs or {}),
    "tag": lambda term, one: one.tags,
}


def _needles(term: Term) -> list[str]:
    """A word of each value that stands in every row that fits; empty: they cannot be told."""
    if term.negated:
        return []
    found = [max(_WORD.findall(one.text), key=len, default="") for one in term.values]
    return found if all(found) else []
