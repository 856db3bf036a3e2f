"""Pushes as a test sees them, and the pushes that it expects: arguments decoded, every parameter by its name."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from henchman.app import App
from henchman.client.job import BoundCall, Using
from henchman.client.registry import Registry
from henchman.contrib.submission import DeferredJob, parts
from henchman.contrib.transactions import TransactionalClient
from henchman.errors import ArgumentError, PayloadError
from henchman.iterable.job import IterableJob
from henchman.kernel.text import shorten
from henchman.ordered.claim import shown
from henchman.ordered.definition import OrderedJob
from henchman.testing.calls import OrderedRow
from henchman.testing.install import moment
from henchman.wire import jsontext
from henchman.wire.arguments import Signature
from henchman.wire.payload import decode

__all__ = [
    "COMMIT",
    "AnyJob",
    "Collected",
    "CollectedPush",
    "Wanted",
    "Where",
    "Word",
    "collected_push",
    "deferred_jobs",
    "job_name",
    "note_deferred",
    "seen",
]

#: how a test pushes what waits for a commit
COMMIT = (
    "a TestCase of Django never commits: push in captureOnCommitCallbacks(execute=True), or call the fixture "
    "henchman_commits()"
)
AnyJob: TypeAlias = Using[..., Any] | type[IterableJob[...]] | OrderedJob[Any] | str
_VALUE_MOST = 200


@dataclass(frozen=True, repr=False)
class Collected:
    """One pushed job. ``args``, ``kwargs`` are as its function gets them; ``at`` is when it is due, None: at once.

    ``place``: "queue", "schedule", "retry", "dead", "deferred", "blocked"; ``payload`` is the job as it would be
    stored, decoded;
    ``arguments`` are by parameter, defaults filled in; ``shown`` is the call as text, secrets masked.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    queue: str
    jid: str
    at: datetime | None
    place: str
    payload: Mapping[str, Any]
    arguments: Mapping[str, Any]
    shown: str

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags."""
        tags = self.payload.get("tags")
        return tuple(tags) if isinstance(tags, list) else ()

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        rest = [f"queue={self.queue!r}"]
        if self.tags:
            rest.append(f"tags={list(self.tags)!r}")
        if self.at is not None:
            rest.append(f"{self.place} at {self.at:%Y-%m-%d %H:%M:%S} UTC")
        return f"{self.shown}  {', '.join(rest)}"


def seen(registry: Registry, place: str, queue: str, payload: bytes, at: float | None) -> Collected:
    """A payload as a test sees it; one that is no job has the name ""."""
    try:
        job = decode(payload)
    except PayloadError:
        job = {"class": "", "args": [payload]}
    args, kwargs = job["args"], job.get("kwargs") or {}
    signature = _signature(registry, job["class"])
    masked, masked_kwargs = args, kwargs
    if signature is not None:
        try:
            args, kwargs = signature.decode(list(args), kwargs or None)
        except ArgumentError:
            signature = None  # shown as it travels
        else:
            masked, masked_kwargs = signature.mask(list(args), kwargs)
    due = None if at is None else datetime.fromtimestamp(at, UTC)
    shown = call_text(job["class"], masked, masked_kwargs or {})
    named = _by_name(registry, job["class"], signature, args, kwargs)
    return Collected(job["class"], tuple(args), kwargs, queue, job.get("jid", ""), due, place, job, named, shown)


@dataclass(frozen=True)
class CollectedPush:
    """One push to an ordered queue. ``payload`` as its handler gets it; ``score`` as it was said, None: the time;
    ``at``: when the id is due if nothing waits under it, None: at once.
    """

    name: str
    id: str
    payload: Any
    score: float | None
    at: datetime | None
    queue: str

    def __str__(self) -> str:
        said = f"{self.name}.push({self.id!r}, {shorten(repr(self.payload), _VALUE_MOST)}"
        said += "" if self.score is None else f", score={self.score:g}"
        return f"{said})  queue={self.queue!r}" + ("" if self.at is None else f", at {self.at:%Y-%m-%d %H:%M:%S} UTC")


def collected_push(registry: Registry, row: OrderedRow) -> CollectedPush:
    """An ordered push as a test sees it."""
    definition: Any = registry.ordered()[row.queue]
    [payload] = definition.decode(shown(row.id), [row.payload])
    at = None if row.at is None else datetime.fromtimestamp(row.at, UTC)
    return CollectedPush(definition.name, shown(row.id), payload, row.score, at, row.queue)


def job_name(job: AnyJob) -> str:
    """The name on the wire of a job, of a job with options, or of a name."""
    defined: Any = job
    return job if isinstance(job, str) else str(getattr(defined, "job", defined).name)


def call_text(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A call as one would write it."""
    words = [_value(one) for one in args] + [f"{key}={_value(one)}" for key, one in kwargs.items()]
    return f"{name}({', '.join(words)})"


def _value(value: Any) -> str:
    return shorten(repr(value), _VALUE_MOST)


def _signature(registry: Registry, name: str) -> Signature | None:
    definition = registry.find(name)
    return None if definition is None else definition.signature


def _by_name(
    registry: Registry, name: str, signature: Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments by parameter, defaults filled in; by number where the job is not known here."""
    if signature is None:
        return {f"argument {number}": value for number, value in enumerate(args, 1)} | dict(kwargs)
    places = signature.binding.positional
    named = {
        (places[i] if i < len(places) else f"{signature.binding.tail}[{i - len(places)}]"): value
        for i, value in enumerate(args)
    } | dict(kwargs)
    function = registry.get(name).function
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return named
    known = {*places, *signature.binding.by_name}
    for one in parameters:
        if one.name in known and one.name not in named and one.default is not one.empty:
            named[one.name] = one.default
    return named


class Wanted:
    """The push that a test expects. Raises ArgumentError where that could never be a push of this job."""

    def __init__(self, registry: Registry, job: AnyJob, args: tuple[Any, ...], kwargs: dict[str, Any]):
        if len(args) == 1 and isinstance(args[0], BoundCall) and not kwargs:
            args, kwargs = args[0].args, args[0].kwargs
            self.any_arguments = False
        else:
            self.any_arguments = not args and not kwargs
        self.name = job_name(job)
        self.shown = f"{self.name}(…)" if self.any_arguments else call_text(self.name, args, kwargs)
        self.plain: dict[str, Any] = {}
        self.travelled: dict[str, Any] = {}
        self.secret: frozenset[str] = frozenset()
        if self.any_arguments:
            return
        signature = _signature(registry, self.name)
        self.secret = signature.secret if signature is not None else self.secret
        if signature is None and kwargs:
            raise ArgumentError(f"{self.name} is not registered here, so its arguments have no names: {sorted(kwargs)}")
        bound, rest = signature.binding.bind(args, kwargs) if signature is not None else (args, kwargs)
        self.plain = _by_name(registry, self.name, signature, bound, rest)
        self.travelled = self._there_and_back(registry, signature or _ANYTHING, args, kwargs)
        if signature is not None:
            masked, masked_rest = signature.mask(list(bound), rest)
            self.shown = call_text(self.name, masked, masked_rest or {})

    def _there_and_back(
        self, registry: Registry, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """The arguments as a worker would get them; empty when they could not be sent (``mock.ANY``)."""
        try:
            text, more = signature.encode(args, kwargs)
            back, rest = signature.decode(jsontext.loads(text), None if more is None else jsontext.loads(more))
        except ArgumentError:
            return {}
        return _by_name(registry, self.name, None if signature is _ANYTHING else signature, back, rest)

    def differences(self, one: Collected) -> dict[str, tuple[Any, Any]]:
        """The arguments of ``one`` that differ: parameter → (expected, was)."""
        if self.any_arguments:
            return {}
        wrong: dict[str, tuple[Any, Any]] = {}
        for name in [*self.plain, *(key for key in one.arguments if key not in self.plain)]:
            was = one.arguments.get(name, _MISSING)
            if not (self.plain.get(name, _MISSING) == was or self.travelled.get(name, _MISSING) == was):
                hidden = name in self.secret
                wrong[name] = (_SECRET, _SECRET) if hidden else (self.plain.get(name, _MISSING), was)
        return wrong


class Word:
    """A value that is shown as a bare word."""

    def __init__(self, word: str) -> None:
        self._word = word

    def __repr__(self) -> str:
        return self._word


_MISSING, _SECRET = Word("nothing"), Word("***")
_ANYTHING = Signature.by_name("job")


@dataclass(frozen=True)
class Where:
    """Conditions of an expected push: queue, tags (all of them), and when it is due."""

    queue: str | None = None
    tags: Collection[str] | None = None
    at: datetime | timedelta | None = None
    within: float | timedelta = 1.0

    def options(self, count: int | None = None) -> list[str]:
        """The names of the conditions that are set."""
        said = {"queue": self.queue, "tags": self.tags, "at": self.at, "count": count}
        return [name for name, value in said.items() if value is not None]

    def differences(self, one: Collected, now: datetime) -> dict[str, tuple[Any, Any]]:
        """The conditions that ``one`` does not meet: option → (expected, was)."""
        wrong: dict[str, tuple[Any, Any]] = {}
        if self.queue is not None and one.queue != self.queue:
            wrong["queue"] = (self.queue, one.queue)
        if self.tags is not None and not set(self.tags) <= set(one.tags):
            wrong["tags"] = (sorted(self.tags), sorted(one.tags))
        if self.at is not None:
            due = now + self.at if isinstance(self.at, timedelta) else self.at
            if not self.is_due(one.at, now):
                wrong["at"] = (due.isoformat(), "at once" if one.at is None else one.at.isoformat())
        return wrong

    def is_due(self, at: datetime | None, now: datetime) -> bool:
        """Whether a push is due when it is expected to be, or may be due at any time."""
        if self.at is None:
            return True
        due = moment("at", now + self.at if isinstance(self.at, timedelta) else self.at)
        limit = self.within.total_seconds() if isinstance(self.within, timedelta) else self.within
        return at is not None and abs(at.timestamp() - due) <= limit


def deferred_jobs(app: App) -> list[DeferredJob]:
    """The jobs that wait for the commit of a transaction, in order."""
    client = app.client
    waiting = client.waiting() if isinstance(client, TransactionalClient) else []
    return [job for part in parts(waiting) for job in part.jobs]


def note_deferred(app: App) -> None:
    """One warning line where a drain leaves jobs that wait for a commit: a test that fails for it shows the line."""
    names = Counter(decode(one.payload)["class"] for one in deferred_jobs(app))
    if names:
        said = ", ".join(f"{name} ({many})" for name, many in sorted(names.items()))
        app.notice("jobs wait for the commit of a transaction, and a drain runs none of them: %s; %s", said, COMMIT)
