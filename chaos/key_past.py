"""What the ledger says of jobs with a key: whose key each push had, what was answered, and who had a key for itself."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ledger import BEGUN, Entry
from spans import Entity, Span

__all__ = ["Keyed", "Thing"]


class Thing(NamedTuple):
    """What a job is about: no two jobs of one at once, in the way of their kind."""

    kind: str
    name: str


class Keyed:
    """``things``: by the key of a push; ``duplicates``: of which jid; ``asked``: by jid, when a worker first asked
    whether it may start; ``parked``: jids of those that had to wait."""

    def __init__(self) -> None:
        self.things: dict[str, Thing] = {}
        self.duplicates: dict[str, str] = {}
        self.blocked: set[str] = set()
        self.existing: set[Thing] = set()
        self.asked: dict[str, float] = {}
        self.parked: set[str] = set()
        self._spans: dict[tuple[Entity, int, int], Span] = {}

    def by_name(self) -> dict[Entity, list[Span]]:
        """Who had each scope and name for itself, in the order of their first lines."""
        found: dict[Entity, list[Span]] = defaultdict(list)
        for (entity, _, _), span in sorted(self._spans.items(), key=lambda one: one[1].at):
            found[entity].append(span)
        return found

    def read_named(self, entry: Entry) -> None:
        self.things[entry.words[1]] = Thing(entry.words[2], entry.words[3])

    def read_exists(self, entry: Entry) -> None:
        self.existing.add(Thing(entry.words[1], entry.words[2]))

    def read_asked(self, entry: Entry) -> None:
        for jid in entry.words[1:]:
            self.asked[jid] = min(self.asked.get(jid, entry.at), entry.at)

    def read_parked(self, entry: Entry) -> None:
        self.parked.update(entry.words[1:])

    def _span(self, entry: Entry) -> Span:
        entity, token = (entry.words[1], entry.words[2]), int(entry.words[3])
        known = self._spans.setdefault((entity, token, entry.pid), Span(entry.at, entry.pid, token))
        known.seen = max(known.seen, entry.at)
        return known

    def read_kstart(self, entry: Entry) -> None:
        span = self._span(entry)
        span.begun = entry.begun
        span.keys = [word for word in entry.words[4:] if not word.startswith(BEGUN)]

    def read_kbeat(self, entry: Entry) -> None:
        self._span(entry)

    def read_kend(self, entry: Entry) -> None:
        span = self._span(entry)
        span.ended, span.how = entry.at, entry.words[4]
