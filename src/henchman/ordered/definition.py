"""``@app.ordered``: the definition of an ordered queue, and its two faces: a function, and somewhere to push to."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeVar

from henchman.client.options import JobOptions
from henchman.client.ordered_options import OrderedOptions
from henchman.client.registry import wire_name
from henchman.errors import DefinitionError
from henchman.ordered.entry import Reader
from henchman.ordered.options import Options, ordered_options
from henchman.ordered.payloads import Payloads
from henchman.ordered.push import Home, OrderedPush, OrderedPushed, Pusher
from henchman.wire.codec import Signature
from henchman.wire.names import QUEUE_NAME

__all__ = ["DerivingJob", "OrderedJob", "define_ordered", "make_ordered", "with_queue"]

T = TypeVar("T")


class OrderedJob(Generic[T]):
    """A defined ordered queue with its handler. Called, the handler runs here and now; pushed to, a worker calls it.

    ``queues``: the one queue, or its partitions ``<queue>.0`` …; ``ordered``: the options that plain jobs do not have.
    """

    hears_cancel = False

    def __init__(
        self, function: Callable[..., Any], name: str, options: Options, home: Home, *, is_async: bool
    ) -> None:
        self.function = function
        self.name = name
        self.is_async = is_async
        self.options: JobOptions = options.job
        self.ordered: OrderedOptions = options.ordered
        self.queues = _queues(options)
        self.payloads = Payloads.of(function, name)
        self.signature = Signature.of(function, name=name)
        self._reader = Reader(name, self.payloads, options.derive)
        self._pusher = Pusher(
            home, name, self.queues, options.ordered.collapse, self._reader, tracked=options.job.track
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
        tuple (id, payload) or (id, payload, score). When a row cannot be sent, ArgumentError names its number; the
        rows before it have been pushed.
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
        """Push ``payload`` under the id, score and time that ``derive`` finds in it; what is given goes before that."""
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
        said = {"id": id, "score": score, "at": at, "delay": delay}
        return await self._pusher.apush(self._reader.derived(payload, said))


def define_ordered(function: Any, home: Home, name: str | None, given: Mapping[str, Any]) -> OrderedJob[Any]:
    """The ordered job of ``function``, registered; DefinitionError when it or an option cannot be one."""
    if isinstance(function, OrderedJob) or hasattr(function, "enqueue"):
        raise DefinitionError(f"{getattr(function, 'name', function)} is a job already")
    if not inspect.isfunction(function):
        raise DefinitionError(
            f"@app.ordered is for functions (def or async def) and classes derived from henchman.OrderedWorker, "
            f"not for {function!r}"
        )
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise DefinitionError(f"{function.__qualname__} is a generator; a handler returns, it does not yield")
    wire = name if name is not None else wire_name(function)
    asked = with_queue(wire, function.__name__, given)
    return make_ordered(function, home, wire, asked, is_async=inspect.iscoroutinefunction(function))


def with_queue(where: str, name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """``given``, with ``name`` for its queue where it names none."""
    if given.keys() & {"queue", "queue_name"}:
        return given
    if not QUEUE_NAME.fullmatch(name):
        raise DefinitionError(f"{where}: {name!r} cannot be the name of a queue; give one as queue=")
    return {"queue": name, **given}


def make_ordered(
    function: Callable[..., Any], home: Home, name: str, given: Mapping[str, Any], *, is_async: bool
) -> OrderedJob[Any]:
    """The ordered job of a function and its options, checked and registered."""
    if not isinstance(name, str) or not 1 <= len(name) <= 500 or not name.isprintable():
        raise DefinitionError(f"name={name!r}: a job is named by a printable text of 1 to 500 characters")
    options = ordered_options(name, given)
    kind: type[OrderedJob[Any]] = OrderedJob if options.derive is None else DerivingJob
    made = kind(function, name, options, home, is_async=is_async)
    home.registry.add(made)
    return made


def _queues(options: Options) -> tuple[str, ...]:
    queue, partitions = options.job.queue, options.ordered.partitions
    if partitions is None:
        return (queue,)
    return tuple(f"{queue}.{number}" for number in range(partitions))
