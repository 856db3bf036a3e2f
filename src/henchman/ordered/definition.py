"""``@app.ordered``: what defines an ordered queue, and the job that pushes to it and handles its claims."""

from __future__ import annotations

import collections.abc as abc
import inspect
import typing
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from henchman.client.options import (
    JobOptions,
    PushOptions,
    checked_name,
    definition_options,
    wrong,
)
from henchman.client.registry import wire_name
from henchman.client.runtime import Runtime
from henchman.errors import DefinitionError
from henchman.kernel.text import as_shown, did_you_mean
from henchman.ordered.push import OrderedPush, OrderedPushed, Payloads, Pusher, Reader
from henchman.wire.annotations import annotation_of
from henchman.wire.arguments import Signature
from henchman.wire.payload import QUEUE_NAME

__all__ = ["KNOWN", "DerivingJob", "Options", "OrderedJob", "OrderedOptions", "define_ordered", "ordered_options"]

T = TypeVar("T")


class OrderedJob(Generic[T]):
    """A defined ordered queue with its handler. Called, the handler runs here and now; pushed to, a worker calls it.

    ``queues``: the one queue, or its partitions ``<queue>.0`` …; ``ordered``: the options that plain jobs do not have.
    """

    hears_cancel = False

    def __init__(
        self, function: Callable[..., Any], name: str, options: Options, runtime: Runtime, *, is_async: bool
    ) -> None:
        self.function = function
        self.name = name
        self.is_async = is_async
        self.options: JobOptions = options.job
        self.ordered: OrderedOptions = options.ordered
        queue, partitions = options.job.queue, options.ordered.partitions
        self.queues = (queue,) if partitions is None else tuple(f"{queue}.{number}" for number in range(partitions))
        self.payloads = _payloads_of(function, name)
        self.signature = Signature.of(function, name=name)
        self._reader = Reader(name, self.payloads, options.derive)
        self._pusher = Pusher(
            runtime, name, self.queues, options.ordered.collapse, self._reader, tracked=options.job.track
        )
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", name)
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def __repr__(self) -> str:
        shown = self.options.queue if len(self.queues) == 1 else f"{self.queues[0]} … {self.queues[-1]}"
        return f"<ordered job {self.name} on queue {shown!r}>"

    def __call__(self, claim: Mapping[str, list[T]]) -> Any:
        """The handler itself, here and now."""
        return self.function(claim)

    def decode(self, id: str, raw: list[bytes]) -> list[Any]:
        """The payloads of one id as the handler gets them; ArgumentError names the id and the place."""
        return self.payloads.decode(id, raw)

    def push(
        self,
        id: str | int,
        payload: T | Literal[""] = "",
        *,
        score: float | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
    ) -> OrderedPush:
        """Put ``payload`` under ``id``; returns when the server has it.

        ``score`` orders the payloads of an id, the lowest first; without one it is the server's time. ``at`` (with a
        time zone) or ``delay`` (seconds or timedelta) put the id off; where something waits under it already, that
        one's time stays. Raises ArgumentError for what cannot be sent, ServerAway when the server cannot be reached:
        with ``executed=False`` nothing was pushed, with None that is unknown; HistoryFull when the queue is tracked and
        the history has no room for it.
        """
        return self._pusher.push(self._reader.entry(id, payload, score, at, delay))

    async def apush(
        self,
        id: str | int,
        payload: T | Literal[""] = "",
        *,
        score: float | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
    ) -> OrderedPush:
        """``push``, awaited."""
        return await self._pusher.apush(self._reader.entry(id, payload, score, at, delay))

    def push_many(self, rows: Iterable[Any]) -> OrderedPushed:
        """Push each row, read lazily, a round trip for each 500 rows or 4 MB.

        A row is a dict of id, payload, score, at (also Unix seconds), delay (all but the id may be missing), or a
        tuple (id, payload) or (id, payload, score). When a row cannot be sent, ArgumentError names its number, and
        all rows before it have been pushed; ``pushed`` of the error is how many rows were taken.
        """
        return self._pusher.push_many(rows)

    async def apush_many(self, rows: Iterable[Any] | AsyncIterable[Any]) -> OrderedPushed:
        """``push_many``, awaited; ``rows`` may be an async iterator."""
        return await self._pusher.apush_many(rows)


class DerivingJob(OrderedJob[T], Generic[T]):
    """An ordered job with ``derive``: it is pushed payloads alone, also by ``push_many``."""

    def push(  # type: ignore[override]  # another call: the id is derived
        self,
        payload: T,
        *,
        id: str | int | None = None,
        score: float | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
    ) -> OrderedPush:
        """Push ``payload`` under the id, score and time that ``derive`` finds in it; an argument goes before that."""
        return self._pusher.push(self._reader.derived(payload, {"id": id, "score": score, "at": at, "delay": delay}))

    async def apush(  # type: ignore[override]
        self,
        payload: T,
        *,
        id: str | int | None = None,
        score: float | None = None,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
    ) -> OrderedPush:
        """``push``, awaited."""
        arguments = {"id": id, "score": score, "at": at, "delay": delay}
        return await self._pusher.apush(self._reader.derived(payload, arguments))


def define_ordered(function: Any, runtime: Runtime, name: str | None, options: Mapping[str, Any]) -> OrderedJob[Any]:
    """Register ``function`` as the handler of an ordered queue; DefinitionError names what is wrong with it."""
    if isinstance(function, OrderedJob) or hasattr(function, "enqueue"):
        raise DefinitionError(f"{getattr(function, 'name', function)} is a job already")
    if not inspect.isfunction(function):
        raise DefinitionError(f"@app.ordered is for functions (def or async def), not for {as_shown(function, 200)}")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise DefinitionError(f"{function.__qualname__} is a generator; a handler returns, it does not yield")
    wire = checked_name(name) if name is not None else wire_name(function)
    if "queue" not in options:
        if not QUEUE_NAME.fullmatch(function.__name__):
            raise DefinitionError(f"{wire}: {function.__name__!r} cannot be the name of a queue; give one as queue=")
        options = {"queue": function.__name__, **options}
    checked = ordered_options(wire, options)
    kind: type[OrderedJob[Any]] = OrderedJob if checked.derive is None else DerivingJob
    made = kind(function, wire, checked, runtime, is_async=inspect.iscoroutinefunction(function))
    runtime.registry.add(made)
    return made


_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_HOW = "annotate it as dict[str, list[Payload]], or not at all"


def _payloads_of(function: Callable[..., Any], name: str) -> Payloads:
    """How payloads travel, read off the handler's one parameter; DefinitionError when it does not take a claim."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        raise DefinitionError(f"{name}: the parameters of {function!r} cannot be read: {error}") from None
    if len(parameters) != 1 or parameters[0].kind > inspect.Parameter.VAR_POSITIONAL:
        shown = ", ".join(str(one) for one in parameters)
        raise DefinitionError(
            f"{name} takes ({shown}); the handler of an ordered queue takes one parameter, the claim: "
            "a dict of lists of payloads by id"
        )
    (claim,) = parameters
    if claim.kind is inspect.Parameter.VAR_POSITIONAL:
        return Payloads(name, claim.name, Any)
    annotation = annotation_of(function, claim)
    return Payloads(name, claim.name, _payload_of(f"{name}: parameter {claim.name!r}", annotation))


def _payload_of(where: str, annotation: Any) -> Any:
    """The annotation of one payload in that of a claim."""
    if type(annotation).__name__ == "TypeAliasType":  # type X = …, from Python 3.12 on
        return _payload_of(where, annotation.__value__)
    if annotation is Any or annotation is object or isinstance(annotation, typing.TypeVar):
        return Any
    claim = _inner(annotation, _MAPPINGS)
    if claim is None:
        raise DefinitionError(f"{where} is annotated {annotation!r}, but a claim is a dict of lists by id; {_HOW}")
    if not claim:
        return Any
    key, payloads = claim
    if key not in (Any, str, object) and getattr(key, "__supertype__", None) is not str:
        raise DefinitionError(f"{where} is annotated {annotation!r}, but ids are text, whatever was pushed; {_HOW}")
    if payloads is Any or payloads is object:
        return Any
    items = _inner(payloads, _LISTS)
    if items is None:
        raise DefinitionError(f"{where} is annotated {annotation!r}, but each id comes with a list of payloads; {_HOW}")
    return items[0] if items else Any


def _inner(annotation: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments of a generic of one of ``kinds``; None for anything else."""
    origin = typing.get_origin(annotation) or annotation
    return typing.get_args(annotation) if origin in kinds else None


# --- options: checked where they are written -------------------------------------------------------------------------


class OrderedOptions(msgspec.Struct, frozen=True):
    """The options of ``@app.ordered`` that plain jobs do not have; the rest stands in ``JobOptions``.

    ``claim_size``: ids a call gets at most; ``payload_cap``: payloads an id has in a call at most. ``max_parallel``:
    calls at a time over all processes, None: no limit; ``max_per_group``: ids at a time of one group, which is what
    stands before ``group_separator`` in an id. ``max_retries``: failures after which the lowest payload of an id goes
    to the morgue; ``retry_in``: seconds, or a function of (count) or (count, exception), count 0 at the first failure;
    None: ``count**4 + 15 + rand(30) * (count + 1)``. ``collapse``: "min" (equal payloads of an id are one, the lower
    score stays), "latest" (only the highest score of an id is kept), "none" (all are kept, equal scores in order of
    arrival). ``retries_exhausted(items)`` is called with ``[{"id", "payloads": [[payload, score]], "error"}]``.
    ``partitions``: into how many queues (``<queue>.0`` …) the ids are dealt by CRC32, as Lowkiq's shards; None: one.
    """

    claim_size: int = 1
    payload_cap: int = 1000
    max_parallel: int | None = None
    max_per_group: int | None = None
    group_separator: str = "/"
    max_retries: int = 25
    retry_in: float | Callable[..., Any] | None = None
    collapse: Literal["min", "latest", "none"] = "min"
    retries_exhausted: Callable[..., Any] | None = None
    partitions: int | None = None


_COMMON = ("queue", "timeout", "log_level", "track")  # with plain jobs
KNOWN: Final = (*_COMMON, *OrderedOptions.__struct_fields__, "derive")
_MOST_SIZE = 500  # ids in one claim: scripts unpack no more than 1,000 values
_MOST_CAP = 100_000
_MOST_PARTITIONS = 1000

#: Options of plain jobs, and of Lowkiq's workers, that are refused, and what to write instead.
_WHY_NOT: Final[Mapping[str, str]] = {
    "limits": "an ordered queue has max_parallel= for how many run at once; limits= are for plain jobs",
    "max_wait": "it belongs to limits=, which are for plain jobs",
    "retry": "an ordered queue says max_retries=",
    "isolate": "an isolated run is that of one job: let the handler enqueue one",
    "retry_for": "retries are counted here: max_retries= and retry_in=",
    "retry_on": "raise or return Discard or Kill for what is not worth another try",
    "no_retry_on": "raise or return Discard or Kill for what is not worth another try",
    "retry_queue": "a failed id waits in its own queue, or it would be overtaken",
    "dead": "what is given up goes to the morgue of its queue",
    "backtrace": "an id keeps its last error, not where that came from; the log has it",
    "expires": "payloads of an id are merged and wait as long as they must",
    "deadline": "payloads of an id are merged and wait as long as they must; timeout= limits one run",
    "tags": "payloads of an id are merged: there is no one job to tag",
    "secret": "it names parameters, and a payload has none; send a reference instead of what must not be seen",
    "ack": "a claim is settled as soon as it has ended",
    "delay": "it belongs to push",
    "at": "it belongs to push",
    "score": "it belongs to push",
    "cron": "let a periodic job push",
    "batch_size": "it is claim_size=",
    "shards_count": "it is max_parallel=, or partitions= for fixed shards",
    "max_retry_count": "it is max_retries=",
    "queue_name": "it is queue=",
}


class Options(NamedTuple):
    """The checked options of one definition. ``derive`` finds the id, or id, score and time, in a payload."""

    job: JobOptions
    ordered: OrderedOptions
    derive: Callable[[Any], Any] | None


def ordered_options(where: str, given: Mapping[str, Any]) -> Options:
    """Check the options of a definition; DefinitionError names ``where`` and what is wrong."""
    for name in given:
        if name not in KNOWN:
            why = _why_not(name)
            raise DefinitionError(
                f"{where}: {name}= is not for ordered queues: {why}"
                if why
                else f"{where}: there is no option {name}={did_you_mean(name, KNOWN)}"
            )
    rest = {name: value for name, value in given.items() if value is not None}
    common = {name: rest.pop(name) for name in (*_COMMON, "retries_exhausted", "retry_in") if name in rest}
    job = definition_options(where, common)  # the same checks; what plain jobs do not have here moves to ``ordered``
    derive = rest.pop("derive", None)
    if derive is not None and not callable(derive):
        raise wrong(f"{where}: derive", derive, "give a function of the payload")
    checked = {name: _CHECKS[name](where, name, value) for name, value in rest.items()}
    ordered = OrderedOptions(**checked, retry_in=job.retry_in, retries_exhausted=job.retries_exhausted)
    if "group_separator" in rest and ordered.max_per_group is None:
        raise DefinitionError(f"{where}: group_separator= says nothing without max_per_group=")
    if ordered.max_per_group is not None and ordered.partitions is not None:
        raise DefinitionError(
            f"{where}: max_per_group= and partitions= exclude each other: the ids of a group would lie in several "
            "partitions, where nobody counts them together"
        )
    return Options(JobOptions(**{name: getattr(job, name) for name in _COMMON}), ordered, derive)


def _why_not(name: str) -> str | None:
    """Why an option makes no sense here; None for a name that no job has."""
    if name in _WHY_NOT:
        return _WHY_NOT[name]
    if name in JobOptions.__struct_fields__ or name in PushOptions.__struct_fields__:
        return "it is for plain jobs"
    return None


def _number(least: int, most: int) -> Callable[[str, str, Any], int]:
    def check(where: str, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise wrong(f"{where}: {name}", value, f"give a whole number from {least} to {most:,}")
        return value

    return check


def _collapse(where: str, name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in {"min", "latest", "none"}:
        raise wrong(f"{where}: {name}", value, "give 'min', 'latest' or 'none'")
    return value


def _separator(where: str, name: str, value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 20 or not value.isprintable():
        raise wrong(f"{where}: {name}", value, "give a printable text of 1 to 20 characters")
    return value


_CHECKS: Final[Mapping[str, Callable[[str, str, Any], Any]]] = {
    "claim_size": _number(1, _MOST_SIZE),
    "payload_cap": _number(1, _MOST_CAP),
    "max_parallel": _number(1, 1_000_000),
    "max_per_group": _number(1, 1_000_000),
    "max_retries": _number(0, 10_000),
    "partitions": _number(1, _MOST_PARTITIONS),
    "group_separator": _separator,
    "collapse": _collapse,
}
