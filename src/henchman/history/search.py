"""What people type to find jobs in history: the terms of every search, as far as the record tells."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from henchman.errors import ArgumentError
from henchman.history.records import STATUSES, Search
from henchman.kernel.terms import Bound, Kind, Term, terms_of
from henchman.kernel.text import did_you_mean, visible
from henchman.wire import times
from henchman.work.outcome import CAUSES

__all__ = ["DAY_BACK", "is_wide", "parse_search"]

DAY_BACK: Final = "since:24h"  #: when a wide search looks, unless it says so itself
_KNOWN: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("class", "queue", "error", "tag", "cause", "jid", "batch", "task", "worker"), "text"),
    **dict.fromkeys(("state", "status"), "text"),
    **dict.fromkeys(("args", "kwargs"), "path"),
    **dict.fromkeys(("attempt", "attempts"), "number"),
    **dict.fromkeys(("took", "waited"), "seconds"),
    **dict.fromkeys(("since", "after", "until", "before"), "moment"),
}
_ELSEWHERE: Final[Mapping[str, Kind]] = {"e": "text", "size": "bytes"}  # terms of what is not recorded
_AGREED: Final = {"after": "since", "before": "until", "status": "state", "task": "batch", "attempts": "attempt"}
_SIGNS: Final = {"since": ">=", "until": "<"}  # what a moment bounds
_STATES: Final[Mapping[str, str]] = {
    **{one: one for one in STATUSES},
    "running": "working",
    "dead": "error",
    "done": "finished",
    **dict.fromkeys(("retry", "retries"), "retrying"),
    **dict.fromkeys(("queued", "waiting"), "enqueued"),
}
_FIELDS: Final = {"class": "class_", "state": "status", **{one: one for one in ("batch", "queue", "cause")}}
_QUICK: Final = frozenset({"jid", "state", "since", "until"})  # by an index, or in passing


def parse_search(said: str, *, now: float | None = None) -> Search:
    """A search out of terms (``class:shop.create since:2h``) and a text. ``now``: other than the clock's, in Unix
    seconds. ArgumentError names what is wrong."""
    found, now = terms_of(said, {**_KNOWN, **_ELSEWHERE}), time.time() if now is None else now
    fields: dict[str, Any] = {}
    terms = []
    for one in (_checked(term, now) for term in found.terms):
        moment = one.bounds[0].limit if one.name in _SIGNS and len(one.bounds) == 1 and not one.negated else None
        field, value = (one.name, moment) if one.name in _SIGNS else (_FIELDS.get(one.name, ""), one.only or None)
        if field and value is not None and field not in fields:
            fields[field] = value
        else:
            terms.append(one)
    return Search(text=found.text or None, terms=tuple(terms), **fields)


def is_wide(search: Search) -> bool:
    """Whether every event there is has to be read for it: it says neither a batch nor a time."""
    when = (search.since, search.until, search.batch)
    asked = bool(search.text) or any(one.name not in _QUICK for one in search.terms)
    told = {"since", "until", "batch"} & {one.name for one in search.terms if not one.negated}
    return asked and not told and all(one is None for one in when)


def _checked(term: Term, now: float) -> Term:
    """A term with moments as bounds and states as statuses; ArgumentError for a value that it cannot have."""
    if term.name in _ELSEWHERE:
        terms = ", ".join(name for name in _KNOWN if name not in _AGREED)
        raise ArgumentError(f"{visible(term.source)}: that is not recorded in history; there are {terms}")
    said, term = term.name, term._replace(name=_AGREED.get(term.name, term.name))
    if term.name in _SIGNS:
        moments = (times.said_moment(term.name, one.text, now) for one in term.values)
        return term._replace(values=(), bounds=[Bound(_SIGNS[term.name], at) for at in moments])
    known = _STATES if term.name == "state" else CAUSES if term.name == "cause" else ()
    for text in (one.text for one in term.values if known):
        if text not in known:
            near = did_you_mean(text, known)
            raise ArgumentError(f"there is no {said} {visible(text)}{near}; there are {', '.join(known)}")
    if term.name != "state":
        return term
    return term._replace(values=[one._replace(text=_STATES[one.text], begins=False) for one in term.values])
