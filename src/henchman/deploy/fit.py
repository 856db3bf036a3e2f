"""Whether the jobs that wait fit the code that is loaded here: each is held against the definition of its class."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection
from typing import Any, Literal, NamedTuple

from henchman.client.registry import Registry
from henchman.errors import PayloadError
from henchman.inspector.base import Entry
from henchman.kernel.text import did_you_mean, shorten
from henchman.wire import times
from henchman.wire.arguments import Mismatch
from henchman.wire.payload import INVALID_CLASS, decode, display_class

__all__ = ["Elsewhere", "Fault", "FaultKind", "Fits", "StoredJob"]

FaultKind = Literal["class", "arguments", "type", "encrypted"]
Key = tuple[FaultKind, str, str]  # with class and text
GROUPS = 1000  # findings that are told apart; what a payload says is anybody's
REST = "(more than a thousand different ones)"
_NAMES = 20  # classes that are told of a queue that is another application's
_CALL = 200  # characters of an example
_ADVICE = {
    "arguments": "give a new parameter a default, and keep one that goes until these jobs are done",
    "type": "let the parameter take both types until these jobs are done",
    "encrypted": "keep encrypt= and the old key in encryption_keys until these jobs are done",
}


class StoredJob(NamedTuple):
    """A stored job: in which place, as "queue mail" or "retries", in which queue (None: its payload says so)."""

    place: str
    queue: str | None
    payload: bytes


@dataclasses.dataclass
class Fault:
    """Jobs of one class with one fault. ``places``: how many stand where; ``jid`` and ``example``: of the first that
    was met, its secrets hidden; ``detail``: what is wrong with that one."""

    fault: FaultKind
    name: str
    text: str
    detail: str
    jid: str
    example: str
    advice: str
    count: int = 0
    places: Counter[str] = dataclasses.field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs."""
        told = {"fault": self.fault, "class": self.name, "text": self.text, "count": self.count}
        example = {"jid": self.jid or None, "call": self.example, "text": self.detail}
        return told | {"places": dict(self.places.most_common()), "example": example, "advice": self.advice}


@dataclasses.dataclass
class Elsewhere:
    """Jobs in a queue that is not this app's, of classes that it does not know. ``classes``: how many of each."""

    count: int = 0
    classes: Counter[str] = dataclasses.field(default_factory=Counter)


class Fits:
    """Looks at one job after the other. ``ours``: the queues where an unknown class is a fault; ``named``: those that
    this code names; ``since``: Unix seconds, older jobs are left out; ``keyless``: no encryption key is set here."""

    def __init__(
        self,
        registry: Registry,
        ours: Collection[str],
        named: Collection[str],
        since: float = 0.0,
        *,
        keyless: bool = False,
        refused_only: bool = False,
    ) -> None:
        self._registry = registry
        self._keyless = keyless
        self._ours = frozenset(ours)
        self._named = frozenset(named)
        self._since = since
        self._refused_only = refused_only
        self._found: dict[tuple[str, str, str], Fault] = {}
        self.looked = self.older = self.unreadable = 0
        self.elsewhere: dict[str, Elsewhere] = {}
        self.unnamed: Counter[str] = Counter()  # jobs of ours in queues that this code does not name
        self.aliased: Counter[tuple[str, str]] = Counter()  # jobs by the name that they bear, and that they run as
        self.sealed: Counter[str] = Counter()  # jobs by class whose encrypted arguments cannot be looked into

    @property
    def findings(self) -> list[Fault]:
        """The faults, those of most jobs first."""
        return sorted(self._found.values(), key=lambda one: (-one.count, one.name, one.text))

    def look(self, one: StoredJob) -> None:
        """Take one job into account."""
        self.looked += 1
        try:
            job = decode(one.payload)
        except PayloadError:
            self.unreadable += 1
            return
        if self._since and (times.read(job.get("created_at")) or self._since) < self._since:
            self.older += 1
            return
        name, queue = job["class"], one.queue or job.get("queue")
        queue = queue if isinstance(queue, str) and queue else "default"
        definition = self._registry.find(name)
        if definition is None:
            self._unknown(one, job, queue)
            return
        if definition.name != name:
            self.aliased[name if len(self.aliased) < GROUPS else REST, definition.name] += 1
        if queue not in self._named:
            self.unnamed[queue] += 1
        unfit = definition.signature.unfit(job["args"], job.get("kwargs") or {})
        if unfit is not None and (unfit.refused or not self._refused_only):
            self._unfit(one, job, definition.name, unfit)

    def _unknown(self, one: StoredJob, job: dict[str, Any], queue: str) -> None:
        name = display_class(job)
        if job["class"] == INVALID_CLASS:
            self.unreadable += 1
        elif queue in self._ours:
            near = did_you_mean(name, (each.name for each in self._registry))
            advice = f'@app.job(aliases=["{shorten(name, 100)}"]) on the job that takes its place runs them{near}'
            self._note(one, job, ("class", name, "no job of this code has the name"), "", advice)
        else:
            there = self.elsewhere.setdefault(queue if len(self.elsewhere) < GROUPS else REST, Elsewhere())
            there.count += 1
            there.classes[name if name in there.classes or len(there.classes) < _NAMES else "…"] += 1

    def _unfit(self, one: StoredJob, job: dict[str, Any], name: str, unfit: Mismatch) -> None:
        if unfit.kind == "encrypted" and unfit.refused and self._keyless:
            self.sealed[name] += 1
            return
        self._note(one, job, (unfit.kind, name, unfit.general), unfit.text, _ADVICE[unfit.kind])

    def _note(self, one: StoredJob, job: dict[str, Any], key: Key, detail: str, advice: str) -> None:
        found = self._found.get(key)
        if found is None and len(self._found) >= GROUPS:
            key, detail, advice = (key[0], REST, REST), "", ""
            found = self._found.get(key)
        if found is None:
            entry = Entry(one.payload, mask=self._registry.mask)
            call = entry.call_text(_CALL)
            found = self._found[key] = Fault(*key, detail or key[2], entry.jid, call, advice)
        found.count += 1
        found.places[one.place] += 1
