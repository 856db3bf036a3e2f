"""What narrows a list of jobs: a search such as ``class:shop.charge queue:pay error:Timeout took:>30s``, and a text
beside it; and how many jobs of a set each value of error, class and queue would find."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from henchman.errors import ArgumentError
from henchman.inspector.base import Entry
from henchman.kernel.terms import Bound, Kind, Term, quoted, terms_of
from henchman.kernel.text import did_you_mean, visible
from henchman.store import queues
from henchman.store.call import Procedure, ask, side_by_side
from henchman.wire import times
from henchman.wire.argument_paths import written_at
from henchman.work.effects import batch_of
from henchman.work.outcome import CAUSES

__all__ = ["COUNTED", "DEFAULT_QUEUE", "FIELDS", "NOWHERE", "PLACES", "TERMS", "EntryFilter", "Facets", "Field"]
__all__ += ["FoundAt", "entry_filter", "facets"]

DEFAULT_QUEUE: Final = "default"  #: where Sidekiq sends a payload that names no queue
Field = Literal["class", "queue", "error"]
FIELDS: Final[tuple[Field, ...]] = ("error", "class", "queue")
COUNTED: Final = 10_000  # jobs of a set that are counted
_PLAIN: Final = re.compile(r"[\w.:-]+", re.ASCII)  # what every writer of JSON writes as it is
#: each term of a search of jobs, and what it takes
TERMS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("class", "queue", "error", "e", "tag", "cause", "jid", "batch", "task", "worker"), "text"),
    **dict.fromkeys(("state", "status"), "text"),
    **dict.fromkeys(("args", "kwargs"), "path"),
    **dict.fromkeys(("attempt", "attempts"), "number"),
    **dict.fromkeys(("took", "waited"), "seconds"),
    "size": "bytes",
    **dict.fromkeys(("since", "after", "until", "before"), "moment"),
}
_SAID: Final = {"class": "of class", "queue": "in queue", "error": "with error", "tag": "with tag", "batch": "of batch"}
#: where a job may be, by the words that people say for it
PLACES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("running", "working"), "running"),
    **dict.fromkeys(("retry", "retries", "retrying"), "retries"),
    "scheduled": "scheduled",
    "dead": "dead",
    **dict.fromkeys(("queued", "enqueued", "waiting"), "queued"),
}
_STORED: Final = ("class", "queue", "error", "e", "tag", "cause", "jid", "batch")
_IMPLIED: Final = {"queue": DEFAULT_QUEUE, "cause": "error"}  # what a payload need not say
_AGREED: Final = {"after": "since", "before": "until", "status": "state", "task": "batch", "attempts": "attempt"}
_SIGNS: Final = {"since": ">=", "until": "<="}  # what a moment bounds


class FoundAt(NamedTuple):
    """What an entry itself does not tell: where it is, one of ``PLACES``, in which process it runs, and for how many
    seconds."""

    place: str = ""
    worker: str = ""
    taken: float | None = None


NOWHERE: Final = FoundAt()


class EntryFilter(NamedTuple):
    """``terms``: what a job has to be, each of them; ``text``: what its payload has to hold. ``now``: when it was said,
    Unix seconds."""

    terms: Sequence[Term]
    text: str
    now: float = 0.0

    @property
    def needle(self) -> str:
        """A text that every payload holds that fits: the server looks for that. Empty: there is none."""
        runs = [run for one in self.terms for value in _in_payload(one) for run in _PLAIN.findall(value)]
        return self.text or max(runs, key=len, default="")

    def fits(self, one: Entry, where: FoundAt = NOWHERE) -> bool:
        """Whether a job is what the terms say, and holds the text."""
        may = (not self.text or one.holds(self.text)) and (not where.place or self.may_be_in(where.place))
        asked = (term for term in self.terms if term.name in _TESTS)
        return may and all(_TESTS[term.name](term, one, where, self.now) is not term.negated for term in asked)

    def value(self, field: Field) -> str:
        """The one value that a field has to have; empty: any, or one of several."""
        return next((one.only for one in self.terms if one.name == field and one.only), "")

    def having(self, field: Field, value: str) -> str:
        """The words of this filter with another value of a field; an empty one takes the field away."""
        kept = [one.source for one in self.terms if one.name != field or one.negated]
        return _said([*kept, *([f"{field}:{quoted(value)}"] if value else [])], self.text)

    def without(self, place: int) -> str:
        """The words of this filter without the term at a place."""
        return _said([one.source for at, one in enumerate(self.terms) if at != place], self.text)

    def may_be_in(self, place: str) -> bool:
        """Whether jobs of a place may fit; ``place`` is a value of ``PLACES``."""
        stands = (
            any(PLACES[value.text] == place for value in one.values) is not one.negated
            for one in self.terms
            if one.name == "state"
        )
        return all(stands)

    @property
    def words(self) -> str:
        """What it asks for, in a sentence: ``of class shop.charge, with 'refused'``."""
        parts = [_in_words(one) for one in self.terms]
        return ", ".join([*parts, *([f"with {self.text!r}"] if self.text else [])])


def entry_filter(text: str, now: float | None = None) -> EntryFilter:
    """The filter that somebody wrote; ``now``: other than the clock's, in Unix seconds. ArgumentError says what is
    wrong with it, as ``kernel.terms`` has it."""
    found, now = terms_of(text, TERMS), time.time() if now is None else now
    terms = [one._replace(name=_AGREED.get(one.name, one.name)) for one in found.terms]
    return EntryFilter(tuple(_checked(one, now) for one in terms), found.text, now)


def _checked(term: Term, now: float) -> Term:
    """A term with its moments as bounds; ArgumentError for a value that it cannot have."""
    if term.name in _SIGNS:
        moments = (times.said_moment(term.name, one.text, now) for one in term.values)
        return term._replace(values=(), bounds=[Bound(_SIGNS[term.name], at) for at in moments])
    known = PLACES if term.name == "state" else CAUSES if term.name == "cause" else ()
    for text in (one.text for one in term.values if known):
        if text not in known:
            near = did_you_mean(text, known)
            raise ArgumentError(f"there is no {term.name} {visible(text)}{near}; there are {', '.join(known)}")
    return term


def _said(sources: Sequence[str], text: str) -> str:
    """Terms and a text as one writes them: a text that would be taken for a term stands in quotes."""
    try:
        plain = not terms_of(text, TERMS).terms
    except ArgumentError:
        plain = False
    return " ".join([*sources, *([text if plain else json.dumps(text, ensure_ascii=False)] if text else [])])


def _in_words(term: Term) -> str:
    turned = "not " if term.negated else ""
    if term.name not in _SAID:
        return f"{'without' if term.negated else 'with'} {term.source.removeprefix('-')}"
    values = [f"{one.text}{'…' if one.begins else ''}" for one in term.values]
    return f"{turned}{_SAID[term.name]} {' or '.join(values)}"


def _in_payload(term: Term) -> Sequence[str]:
    """Texts that stand in each payload that fits a term, as far as JSON writes them in one way."""
    if term.negated or len(term.values) != 1 or term.name not in _STORED:
        return ()
    text, implied = term.values[0].text, _IMPLIED.get(term.name, "")
    return () if implied.startswith(text) else (text,)


# ---- what each term asks of an entry; whoever asks turns a negated one round

_Test = Callable[[Term, Entry, FoundAt, float], bool]


def _names(one: Entry) -> tuple[object, ...]:
    return (one.name, one.job.get("wrapped"), one.job.get("class"))


def _by_group(term: Term, one: Entry) -> bool:
    return any(one.error_group.startswith(value.text) for value in term.values if value.text)


def _pushed(one: Entry) -> float | None:
    at = one.time("enqueued_at")
    return one.time("created_at") if at is None else at


def _waited(one: Entry, now: float) -> float | None:
    at = _pushed(one)
    return None if at is None else now - at


def _took(one: Entry, where: FoundAt) -> float | None:
    """Seconds that it runs, or that its last failed attempt took."""
    return where.taken if where.taken is not None else one.failures[-1].took if one.failures else None


def _at(one: Entry) -> float | None:
    """The time of an entry: its score in a set, else when it was pushed."""
    return one.score if one.score is not None else _pushed(one)


def _arguments(term: Term, one: Entry) -> Iterator[str | None]:
    return written_at(term.name, term.path, *one.arguments)


_TESTS: Final[Mapping[str, _Test]] = {
    "class": lambda term, one, where, now: term.holds(*_names(one)),
    "queue": lambda term, one, where, now: term.holds(one.queue or DEFAULT_QUEUE),
    "error": lambda term, one, where, now: term.holds(one.error[0] if one.error else None, one.error_group or None),
    "e": lambda term, one, where, now: _by_group(term, one),
    "tag": lambda term, one, where, now: term.holds(*one.tags),
    "cause": lambda term, one, where, now: term.holds(one.cause),
    "jid": lambda term, one, where, now: term.holds(one.jid),
    "batch": lambda term, one, where, now: term.holds(batch_of(one.job)),
    "worker": lambda term, one, where, now: _on_worker(term, one, where),
    "args": lambda term, one, where, now: term.holds(*_arguments(term, one)),
    "kwargs": lambda term, one, where, now: term.holds(*_arguments(term, one)),
    "attempt": lambda term, one, where, now: term.within(one.attempts),
    "took": lambda term, one, where, now: term.within(_took(one, where)),
    "waited": lambda term, one, where, now: term.within(_waited(one, now)),
    "size": lambda term, one, where, now: term.within(len(one.payload)),
    "since": lambda term, one, where, now: term.within(_at(one)),
    "until": lambda term, one, where, now: term.within(_at(one)),
}


def _on_worker(term: Term, one: Entry, where: FoundAt) -> bool:
    """Whether it runs, or failed, in a process whose identity holds one of the values."""
    known = [where.worker] if where.worker else [attempt.process for attempt in one.failures]
    return any(value.text in process for value in term.values for process in known)


class Facets(NamedTuple):
    """How many of the first ``looked`` jobs of a set, which has ``total``, a value of each field has, most first."""

    counts: Mapping[Field, Sequence[tuple[str, int]]]
    looked: int
    total: int


def facets(key: str, *, newest_first: bool) -> Procedure[Facets]:
    """What the first ten thousand jobs of a sorted set are: the server counts. One round trip."""
    starts = range(0, COUNTED, queues.SEARCHED)
    asked = (ask(queues.set_facets(key, one, newest_first=newest_first)) for one in starts)
    total, *pages = yield from side_by_side(ask(queues.set_size(key)), *asked)
    counts: dict[Field, Counter[str]] = {field: Counter() for field in FIELDS}
    looked = 0
    for page in pages:
        for field, found in (("error", page.errors), ("class", page.classes), ("queue", page.queues)):
            for name, many in found.items():
                counts[field][_read_name(name)] += many  # type: ignore[index]
        looked += page.looked
        if page.looked < queues.SEARCHED:  # the end, or so large jobs that the next stretch does not begin behind them
            break
    ordered = {field: sorted(found.items(), key=lambda one: (-one[1], one[0])) for field, found in counts.items()}
    return Facets(ordered, looked, total)


def _read_name(name: str) -> str:
    """A name that stands in JSON, as a text."""
    try:
        return str(json.loads(f'"{name}"'))
    except ValueError:
        return f'"{name}"'
