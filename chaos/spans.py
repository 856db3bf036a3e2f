"""What the ledger says of the ordered queues: each payload that was pushed, and each span of an id in a claim."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from ledger import ASKED, BEGUN, Entry

__all__ = ["Entity", "Pushed", "Span", "Spans", "is_zombie"]

NEVER = float("inf")
RESCUE = 20.0  # seconds: a lease and the watching before a rescue; who was stopped for less has lost nothing
Entity = tuple[str, str]  # queue, id


class Pushed:
    """One payload. ``told``: accepted, refused, unknown, or "" when its producer died."""

    __slots__ = ("at", "dead", "entity", "key", "score", "told", "told_at")

    def __init__(self, key: str) -> None:
        self.key = key
        self.entity: Entity = ("", "")
        self.score = -1
        self.dead = False  # it fails until it is in the morgue
        self.at = self.told_at = 0.0
        self.told = ""


class Span:
    """One id in one claim: ``at`` to ``ended``, with the payloads ``keys``, the lowest first. ``begun``: when the
    worker let it start; ``refused``: where the fence of the id met a higher token, "ostart" or "oend"; ``seen``: when
    it was last heard of; ``claimed``: when its worker asked for it, so the server gave it no earlier.
    """

    __slots__ = ("at", "begun", "claimed", "ended", "how", "keys", "pid", "refused", "retry_count", "seen", "token")

    def __init__(self, at: float, pid: int, token: int) -> None:
        self.at = self.begun = self.seen = at
        self.pid, self.token = pid, token
        self.ended = NEVER
        self.how = self.refused = ""
        self.retry_count = -1
        self.keys: list[str] = []
        self.claimed = token / 1e6  # a token is the server's time in microseconds, or a little more

    @property
    def fine(self) -> bool:
        """Whether it did its work, with the highest token of its id to the end."""
        return self.how == "ok" and not self.refused


def is_zombie(window: Any, span: Span) -> bool:
    """Whether the process of ``span`` was stopped in this ``past.Window`` for so long that it was buried, or its claim
    was lost with a server."""
    return (
        span.pid in window.pids
        and span.begun <= window.to
        and span.seen >= window.since
        and (window.cause == "failover" or (window.cause == "stopped" and window.to - window.since > RESCUE))
    )


class Spans:
    """The ordered part of a history."""

    def __init__(self) -> None:
        self.pushed: dict[str, Pushed] = {}
        self.poisoned: Counter[str] = Counter()  # by queue: claims in which an id was found to have died three times
        self._spans: dict[tuple[Entity, int, int], Span] = {}

    def by_entity(self) -> dict[Entity, list[Span]]:
        """The spans of each id by their tokens, the lowest first."""
        found: dict[Entity, list[Span]] = defaultdict(list)
        for (entity, token, _), span in sorted(self._spans.items(), key=lambda one: one[0][1]):
            del token
            found[entity].append(span)
        return found

    def _payload(self, entry: Entry) -> Pushed:
        key = entry.words[1]
        known = self.pushed.get(key)
        if known is None:
            known = self.pushed[key] = Pushed(key)
        return known

    def _span(self, entry: Entry) -> Span:
        entity, token = (entry.words[1], entry.words[2]), int(entry.words[3])
        place = (entity, token, entry.pid)
        known = self._spans.get(place)
        if known is None:
            known = self._spans[place] = Span(entry.at, entry.pid, token)
        known.seen = max(known.seen, entry.at)
        return known

    def read_opush(self, entry: Entry) -> None:
        one = self._payload(entry)
        one.at = entry.at
        one.entity, one.score = (entry.words[2], entry.words[3]), int(entry.words[4])
        one.dead = entry.words[5] == "dead"

    def _verdict(self, entry: Entry) -> None:
        one = self._payload(entry)
        one.told, one.told_at = entry.words[0][1:], entry.at

    read_oaccepted = read_ounknown = _verdict

    def read_ostart(self, entry: Entry) -> None:
        span = self._span(entry)
        span.at, span.begun, span.retry_count = entry.at, entry.begun, int(entry.words[4])
        span.keys = [word for word in entry.words[5:] if not word.startswith((BEGUN, ASKED))]
        for word in entry.words[5:]:
            if word.startswith(ASKED):
                span.claimed = float(word.removeprefix(ASKED))

    def read_obeat(self, entry: Entry) -> None:
        self._span(entry)

    def read_oend(self, entry: Entry) -> None:
        span = self._span(entry)
        span.ended, span.how = entry.at, entry.words[4]

    def read_orefused(self, entry: Entry) -> None:
        if len(entry.words) == 2:  # a push, and no proof of a fence
            return self._verdict(entry)
        span = self._span(entry)
        span.refused, span.begun = entry.words[4], min(span.begun, entry.begun)
        return None

    def read_opoison(self, entry: Entry) -> None:
        self.poisoned[entry.words[1]] += 1
