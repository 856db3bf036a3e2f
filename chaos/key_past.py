"""What the ledger says of jobs with a key: whose key each push had, what was answered, and who had a key for itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ledger import BEGUN, Entry
from spans import Entity, Span

__all__ = ["Fresh", "Keyed", "Thing"]


class Thing(NamedTuple):
    """What a job is about: no two jobs of one at once, in the way of their kind."""

    kind: str
    name: str


class Fresh:
    """A push whose arguments replace those of the job that waits. ``jid``: of the job that has them, where it is known;
    ``told``: accepted (a job was made), duplicate (a waiting one has them now), refused, unknown, or ""."""

    __slots__ = ("at", "jid", "name", "told", "told_at")

    def __init__(self, at: float, name: str) -> None:
        self.at, self.name = at, name
        self.told = self.jid = ""
        self.told_at = 0.0


class Made(NamedTuple):
    """A job that such a push made, as it stands in the history."""

    key: str
    pushed: float
    told: str
    told_at: float


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
        self.fresh: dict[str, Fresh] = {}
        self.ran: dict[str, set[str]] = defaultdict(set)  # by the key of a job: of which pushes its arguments were
        self.needs: dict[
            str, list[Thing]
        ] = {}  # by the key of a push; the name of what has none is the key of its push
        self.told: dict[str, set[str]] = defaultdict(set)  # what a job that ran was told of what it waited for
        self._spans: dict[tuple[Entity, int, int], Span] = {}

    def made(self, jobs: Mapping[str, Any]) -> Iterator[Made]:
        """The jobs that pushes of newer arguments made: one that was answered, or of a push that nobody heard of."""
        for push in self.fresh.values():
            if push.told == "accepted":
                self.things[f"fresh-{push.jid}"] = Thing("fresh", push.name)
                yield Made(f"fresh-{push.jid}", push.at, "accepted", push.told_at)
        for key, pushes in self.ran.items():
            known = [self.fresh[one] for one in pushes if one in self.fresh]
            if known and not jobs[key].pushed and key not in self.things:
                self.things[key] = Thing("fresh", known[0].name)
                yield Made(key, min(one.at for one in known), "unknown", 0.0)

    def read_fpush(self, entry: Entry) -> None:
        self.fresh[entry.words[1]] = Fresh(entry.at, entry.words[2])

    def _answer(self, entry: Entry) -> None:
        push = self.fresh[entry.words[1]]
        push.told, push.told_at, push.jid = entry.words[0][1:], entry.at, "".join(entry.words[2:])

    read_faccepted = read_fduplicate = read_frefused = read_funknown = _answer

    def read_frun(self, entry: Entry) -> None:
        self.ran[entry.words[1]].add(entry.words[2])

    def by_name(self) -> dict[Entity, list[Span]]:
        """Who had each scope and name for itself, in the order of their first lines."""
        found: dict[Entity, list[Span]] = defaultdict(list)
        for (entity, _, _), span in sorted(self._spans.items(), key=lambda one: one[1].at):
            found[entity].append(span)
        return found

    def read_named(self, entry: Entry) -> None:
        self.things[entry.words[1]] = Thing(entry.words[2], entry.words[3])

    def read_needs(self, entry: Entry) -> None:
        self.needs[entry.words[1]] = [Thing(*word.split("/")) for word in entry.words[2:]]

    def read_told(self, entry: Entry) -> None:
        self.told[entry.words[1]].add(entry.words[2])

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
