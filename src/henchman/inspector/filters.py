"""What narrows a list of jobs: words such as ``class:shop.charge queue:pay error:Timeout``, and a text beside them; and
how many jobs of a set each such word would find."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from henchman.inspector.base import Entry
from henchman.store import queues
from henchman.store.call import Procedure, ask, side_by_side

__all__ = ["COUNTED", "DEFAULT_QUEUE", "FIELDS", "EntryFilter", "Facets", "Field", "entry_filter", "facets"]

DEFAULT_QUEUE: Final = "default"  #: where Sidekiq sends a payload that names no queue
Field = Literal["class", "queue", "error"]
FIELDS: Final[tuple[Field, ...]] = ("error", "class", "queue")
COUNTED: Final = 10_000  # jobs of a set that are counted
_WORD: Final = re.compile(r'(?<!\S)(class|queue|error):("(?:[^"\\]|\\.)*"(?!\S)|[^\s"]\S*)')
_BARE: Final = re.compile(r'[^\s"\\][^\s]*')
_PLAIN: Final = re.compile(r"[\w.:-]+", re.ASCII)  # what every writer of JSON writes as it is


class EntryFilter(NamedTuple):
    """``fields``: what a job has to be, each of them; ``text``: what its payload has to hold."""

    fields: Sequence[tuple[Field, str]]
    text: str

    @property
    def needle(self) -> str:
        """A text that every payload holds that fits: the server looks for that."""
        runs = [run for _, value in self.fields for run in _PLAIN.findall(value)]
        return self.text or max(runs, key=len, default="")

    def fits(self, one: Entry) -> bool:
        """Whether a job is what the fields say, and holds the text."""
        held = not self.text or queues.raw(self.text) in one.payload
        return held and all(value in _values(one, field) for field, value in self.fields)

    def value(self, field: Field) -> str:
        """What a field has to be; empty: anything."""
        return next((value for name, value in self.fields if name == field), "")

    def having(self, field: Field, value: str) -> str:
        """The words of this filter with another value of a field; an empty one takes the field away."""
        kept = [(name, known) for name, known in self.fields if name != field]
        words = [f"{name}:{_quoted(known)}" for name, known in [*kept, *([(field, value)] if value else [])]]
        return " ".join([*words, *([self.text] if self.text else [])])

    @property
    def words(self) -> str:
        """What it asks for, in a sentence: ``of class shop.charge, with 'refused'``."""
        said = {"class": "of class", "queue": "in queue", "error": "with error"}
        parts = [f"{said[field]} {value}" for field, value in self.fields]
        return ", ".join([*parts, *([f"with {self.text!r}"] if self.text else [])])


def entry_filter(text: str) -> EntryFilter:
    """The filter that somebody wrote. A value with spaces stands in quotes; whatever is no such word is text."""
    found = list(_WORD.finditer(text))
    fields = [(one[1], _unquoted(one[2])) for one in found]
    if not found:
        return EntryFilter((), text)
    return EntryFilter(tuple(fields), " ".join(_WORD.sub(" ", text).split()))  # type: ignore[arg-type]


def _unquoted(value: str) -> str:
    try:
        return str(json.loads(value)) if value.startswith('"') else value
    except ValueError:
        return value


def _quoted(value: str) -> str:
    return value if _BARE.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def _values(one: Entry, field: Field) -> tuple[object, ...]:
    if field == "queue":
        return (one.queue or DEFAULT_QUEUE,)
    if field == "error":
        return (one.error[0] if one.error else None, one.error_group or None)
    return (one.name, one.job.get("wrapped"), one.job.get("class"))


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
                counts[field][_unquoted(f'"{name}"')] += many  # type: ignore[index]
        looked += page.looked
        if page.looked < queues.SEARCHED:  # the end, or so large jobs that the next stretch does not begin behind them
            break
    ordered = {field: sorted(found.items(), key=lambda one: (-one[1], one[0])) for field, found in counts.items()}
    return Facets(ordered, looked, total)
