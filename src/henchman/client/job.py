"""``@app.job``: the definition of a job, and its two faces: an ordinary function, and something to enqueue."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, overload

from henchman.client.keywords import PushKeywords
from henchman.client.options import JobOptions, PushOptions, checked_name, definition_options, push_options
from henchman.client.prepared import PreparedPush
from henchman.client.push import Client, Handle, Pushed
from henchman.client.registry import Registry, wire_name
from henchman.client.rows import BoundCall
from henchman.errors import DefinitionError
from henchman.kernel.text import as_shown
from henchman.wire.arguments import Signature

__all__ = ["AnyRows", "AsyncJob", "BoundCall", "Job", "JobDecorator", "Pushable", "Row", "Using", "define"]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
#: what ``enqueue_many`` takes for one job, besides a tuple of positional arguments
ByName: TypeAlias = Mapping[str, Any] | BoundCall[P, Any]
AnyRows: TypeAlias = Iterable[A] | AsyncIterable[A]
Row: TypeAlias = tuple[Any, ...] | ByName[P]


AS_DEFINED = PushOptions()


class Using(Generic[P, R]):
    """A job with options for the pushes made through it: ``send.using(delay=60).enqueue(42)``."""

    def __init__(self, job: Any, client: Client, push_as: PushOptions) -> None:
        self.job = job
        self.push_as = push_as
        self.prepared: PreparedPush | None = None  # by the client, for pushes into no batch
        self.prepared_in_batch: PreparedPush | None = None  # by the client, for the batch of the last such push
        self._client = client

    def __repr__(self) -> str:
        said = ((name, getattr(self.push_as, name)) for name in self.push_as.__struct_fields__)
        return f"{self.job!r}.using({', '.join(f'{name}={value!r}' for name, value in said if value is not None)})"

    def using(self, **options: Unpack[PushKeywords]) -> Using[P, R]:
        """The same with more options, see ``Job.using``."""
        made = push_options(self.job.name, options, self.push_as)
        self._client.check_queue(self.job.name, made.queue)
        self._client.check_transaction(self.job.name, made)
        self._client.check_limits(self.job.name, made)
        return Using(self.job, self._client, made)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> BoundCall[P, R]:
        """This job with its arguments, checked by the type checker: a step of a workflow, or a row for
        ``enqueue_many`` (which takes the arguments alone)."""
        return BoundCall(args, kwargs, self)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Push one job; see ``Job.enqueue``."""
        return self._client.push(self, args, kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """``enqueue``, awaited."""
        return await self._client.apush(self, args, kwargs)

    def enqueue_many(self, rows: Iterable[Row[P]]) -> Pushed:
        """Push many jobs; see ``Job.enqueue_many``."""
        return self._client.push_many(self, rows)

    async def aenqueue_many(self, rows: AnyRows[Row[P]]) -> Pushed:
        """``enqueue_many``, awaited; ``rows`` may be an async iterator."""
        return await self._client.apush_many(self, rows)


class Job(Using[P, R]):
    """A defined job. Called, it runs here and now; enqueued, a worker runs it later."""

    is_async = False
    hears_cancel = False  # True: it ends by itself when it was cancelled, also before it began

    def __init__(
        self, function: Callable[..., Any], name: str, options: JobOptions, signature: Signature, client: Client
    ) -> None:
        super().__init__(self, client, AS_DEFINED)
        self.function = function
        self.name = name
        self.options = options
        self.signature = signature
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", name)
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def __repr__(self) -> str:
        return f"<job {self.name} on queue {self.options.queue!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function itself, here and now."""
        result: R = self.function(*args, **kwargs)
        return result

    def using(self, **options: Unpack[PushKeywords]) -> Using[P, R]:
        """This job with options for one push: delay, at, queue, retry, retry_for, timeout, expires, tags, batch,
        track, deadline: seconds after it is due, or a datetime, at which it is over with all its attempts.
        Of a transactional app also now, db, session.

        ``delay``: seconds or timedelta from the server's now. ``at``: a datetime with a time zone. ``again=True``: push
        a job although its key is taken. DefinitionError names an option that is unknown or wrong.
        """
        return super().using(**options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Push one job; returns when the server has it.

        Raises ArgumentError when an argument cannot be sent (it names the place), ServerAway when the server cannot
        be reached: with ``executed=False`` the job was not pushed, with None that is unknown. With the setting
        ``buffer`` a job that was not pushed is kept in memory as long as there is room (``admission="buffered"``). A
        job whose key is taken is not pushed: the handle is that of the first one (``admission="duplicate"``); where the
        definition says ``on_conflict="raise"``, DuplicateJob.
        """
        return self._client.push(self, args, kwargs)

    @overload
    def enqueue_many(self: Callable[[A], Any], rows: Iterable[tuple[A] | ByName[P]]) -> Pushed: ...
    @overload
    def enqueue_many(self: Callable[[A, B], Any], rows: Iterable[tuple[A, B] | ByName[P]]) -> Pushed: ...
    @overload
    def enqueue_many(self: Callable[[A, B, C], Any], rows: Iterable[tuple[A, B, C] | ByName[P]]) -> Pushed: ...
    @overload
    def enqueue_many(
        self: Callable[Concatenate[A, B, C, D, ...], Any],
        rows: Iterable[tuple[A, B, C, D, *tuple[Any, ...]] | ByName[P]],
    ) -> Pushed: ...
    @overload
    def enqueue_many(self: Callable[[], Any], rows: Iterable[tuple[()] | ByName[P]]) -> Pushed: ...
    @overload
    def enqueue_many(self, rows: Iterable[ByName[P]]) -> Pushed: ...
    def enqueue_many(self, rows: Iterable[Any]) -> Pushed:
        """Push one job for each row, read lazily, a round trip for each 1,000 jobs (250 that
        have a key or are tracked) or 4 MB.

        A row is a tuple of positional arguments, a dict of arguments by name, or ``job.call(…)``. When a row cannot
        be sent, ArgumentError names its number, and all rows before it have been pushed. An ArgumentError,
        ServerError or BatchError says in ``pushed`` how many rows were taken before; any other error has it as a note.
        """
        return super().enqueue_many(rows)

    @overload
    async def aenqueue_many(self: Callable[[A], Any], rows: AnyRows[tuple[A] | ByName[P]]) -> Pushed: ...
    @overload
    async def aenqueue_many(self: Callable[[A, B], Any], rows: AnyRows[tuple[A, B] | ByName[P]]) -> Pushed: ...
    @overload
    async def aenqueue_many(self: Callable[[A, B, C], Any], rows: AnyRows[tuple[A, B, C] | ByName[P]]) -> Pushed: ...
    @overload
    async def aenqueue_many(
        self: Callable[Concatenate[A, B, C, D, ...], Any],
        rows: AnyRows[tuple[A, B, C, D, *tuple[Any, ...]] | ByName[P]],
    ) -> Pushed: ...
    @overload
    async def aenqueue_many(self: Callable[[], Any], rows: AnyRows[tuple[()] | ByName[P]]) -> Pushed: ...
    @overload
    async def aenqueue_many(self, rows: AnyRows[ByName[P]]) -> Pushed: ...
    async def aenqueue_many(self, rows: AnyRows[Any]) -> Pushed:
        """``enqueue_many``, awaited."""
        return await super().aenqueue_many(rows)


class Pushable(Protocol[P]):
    """What has ``using``: a job, a job with options, and an iterable job's class."""

    def using(self, **options: Unpack[PushKeywords]) -> Using[P, Any]: ...


class AsyncJob(Job[P, Coroutine[Any, Any, R]], Generic[P, R]):
    """A job made from an ``async def``: its handle is one of R, not of a coroutine."""

    is_async = True

    def call(self, *args: P.args, **kwargs: P.kwargs) -> BoundCall[P, R]:  # type: ignore[override]  # R, not a coroutine
        """As ``Using.call``."""
        return BoundCall(args, kwargs, self)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:  # type: ignore[override]  # R, not a coroutine
        """As ``Job.enqueue``."""
        return self._client.push(self, args, kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:  # type: ignore[override]
        """``enqueue``, awaited."""
        return await self._client.apush(self, args, kwargs)

    def using(self, **options: Unpack[PushKeywords]) -> Using[P, R]:  # type: ignore[override]
        """As ``Job.using``."""
        return super().using(**options)  # type: ignore[return-value]  # R, not a coroutine


def define(function: Callable[..., Any], client: Client, name: str | None, options: dict[str, Any]) -> Job[Any, Any]:
    """The job made from ``function``; DefinitionError when it or an option cannot be one."""
    if isinstance(function, Job):
        raise DefinitionError(f"{function.name} is a job already")
    if not inspect.isfunction(function):
        raise DefinitionError(f"@app.job is for functions (def or async def), not for {as_shown(function, 200)}")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise DefinitionError(f"{function.__qualname__} is a generator; a job returns, it does not yield")
    wire = checked_name(name) if name is not None else wire_name(function)
    checked = definition_options(wire, options)
    signature = Signature.of(
        function, name=wire, secret=checked.secret, encrypt=checked.encrypt, keyring=client.keyring
    )
    kind = AsyncJob if inspect.iscoroutinefunction(function) else Job
    return kind(function, wire, checked, signature, client)


class JobDecorator:
    """What ``app.job(queue=…)`` gives: it knows a ``def`` from an ``async def``."""

    def __init__(self, client: Client, registry: Registry, name: str | None, options: dict[str, Any]) -> None:
        self._client = client
        self._registry = registry
        self._name = name
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncJob[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        made = define(function, self._client, self._name, self._options)
        self._registry.add(made)
        return made
