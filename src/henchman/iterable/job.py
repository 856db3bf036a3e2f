"""``@app.iterable``: long jobs as many small items, with a cursor that survives stops, errors and kills.

The state is Sidekiq's (``store/jobs.py``), so a job of one class name may be begun in Ruby and ended here, as
far as both sides mean the same by a cursor.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Concatenate, Generic, NoReturn, ParamSpec, Protocol, TypeVar

import msgspec

from henchman.client.handle import Handle
from henchman.client.job import Job, Pusher, Using
from henchman.client.options import definition_options
from henchman.client.registry import Registry, wire_name
from henchman.config import Config
from henchman.errors import DefinitionError
from henchman.iterable.iteration import Abort, Execution, take
from henchman.iterable.shape import arguments, blank_of, checked_class, checked_limit, inner, is_async
from henchman.kernel.events import Events
from henchman.store import jobs
from henchman.store.call import Call
from henchman.store.jobs import State
from henchman.store.keys import Keys
from henchman.wire.arguments import Signature
from henchman.work.current import running

__all__ = ["ClassDecorator", "FunctionDecorator", "Home", "Iterable", "IterableJob"]

P = ParamSpec("P")
Item = TypeVar("Item")
C = TypeVar("C", bound=type[Any])


class Home(Protocol):
    """The app, as far as iterable jobs are concerned."""

    @property
    def client(self) -> Pusher: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def config(self) -> Config: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def events(self) -> Events: ...
    @property
    def connections(self) -> Any: ...
    def open_door(self, name: str) -> Any:
        """The object behind a door."""
        ...


class IterableJob(Generic[P]):
    """The base of an iterable job. Write two methods, both with the job's arguments; ``async def`` is fine for all.

    ``build(self, *args, cursor)``: gives an iterator of (item, cursor), from ``cursor`` on, that item included; a
    cursor is plain JSON, None is the start. ``each_iteration(self, item, *args)``: does one item; an item may come
    twice. A worker makes a fresh instance for each execution, without arguments: what a hook puts on ``self`` stays
    for that execution. A type checker is told the arguments by ``class ImportFile(IterableJob[[str]])``.
    """

    #: its definition, once ``@app.iterable`` made one; what is pushed here and below goes through it
    job: ClassVar[Any] = None
    #: a method that returns a context manager, which is entered around each item
    around_iteration: Any = None
    _execution: Execution | None = None

    def on_start(self) -> Any:
        """Before the first item of the first execution."""

    def on_resume(self) -> Any:
        """Before the first item of a later execution."""

    def on_stop(self) -> Any:
        """After each execution, however it ended."""

    def on_cancel(self) -> Any:
        """When the job was cancelled, before ``on_stop``; ``on_complete`` follows."""

    def on_complete(self) -> Any:
        """When there are no more items, after ``on_stop``."""

    @classmethod
    def enqueue(cls, *args: P.args, **kwargs: P.kwargs) -> Handle[None]:
        """Push one job; see ``Job.enqueue``."""
        handle: Handle[None] = cls._defined().enqueue(*args, **kwargs)
        return handle

    @classmethod
    async def aenqueue(cls, *args: P.args, **kwargs: P.kwargs) -> Handle[None]:
        """``enqueue``, awaited."""
        handle: Handle[None] = await cls._defined().aenqueue(*args, **kwargs)
        return handle

    @classmethod
    def using(cls, **options: Any) -> Using[P, None]:
        """This job with options for one push, see ``Job.using``."""
        made: Using[P, None] = cls._defined().using(**options)
        return made

    @classmethod
    def run_now(cls, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Do all items here and now, and save nothing; to be awaited when the job is async."""
        return cls._defined()(*args, **kwargs)

    @classmethod
    def state(cls, jid: str) -> State:
        """Where job ``jid`` stands; see ``Iterable.state``."""
        found: State = cls._defined().state(jid)
        return found

    @classmethod
    def _defined(cls) -> Any:
        made = cls.__dict__.get("job")  # its own: a class derived from a job is another one
        if made is None:
            raise DefinitionError(f"{cls.__qualname__} is not a job yet: put @app.iterable() above it")
        return made

    @property
    def cursor(self) -> Any:
        """The cursor of the current item."""
        return self._execution.cursor if self._execution else None

    @property
    def current_item(self) -> Any:
        """The item itself."""
        return self._execution.item if self._execution else None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The positional arguments of the job."""
        return self._execution.args if self._execution else ()

    @property
    def jid(self) -> str:
        """The id of the job; empty when it is called here and now."""
        return self._execution.jid if self._execution else ""

    @property
    def executions(self) -> int:
        """1 in the first execution."""
        return self._execution.executions if self._execution else 0

    @property
    def run_time(self) -> float:
        """Seconds that the job has run, earlier executions included."""
        return self._execution.run_time if self._execution else 0.0

    @property
    def cancelled(self) -> bool:
        """Whether it is known to be cancelled."""
        return self._execution.cancelled if self._execution else False

    def cancel(self) -> None:
        """Cancel this job: the current item is its last."""
        if self._execution:
            self._execution.cancelled = True

    @staticmethod
    def abort() -> NoReturn:
        """No more items: the job stops here and is complete."""
        raise Abort


class _Body:
    """What a worker calls: runs one execution. It stands for the user's code, by which definitions are compared."""

    def __init__(self, iterable: Iterable[Any], code: Any) -> None:
        self.__code__ = code
        self._iterable = iterable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return take(self._iterable.execution(args, kwargs).steps(), is_async=self._iterable.is_async)


class Iterable(Job[P, None], Generic[P]):
    """A defined iterable job. Called, it does all items here and now and saves nothing; enqueued, a worker does."""

    hears_cancel = True

    def __init__(
        self, cls: type[Any], home: Home, name: str, options: dict[str, Any], max_iteration_runtime: float | None
    ) -> None:
        blank = blank_of(cls)
        checked = msgspec.structs.replace(definition_options(name, options), iterable=True)
        signature = Signature.of(arguments(cls, blank), name=name, secret=checked.secret)
        super().__init__(cls, name, checked, signature, home.client)
        self.is_async = is_async(cls, blank)
        self.max_iteration_runtime = max_iteration_runtime
        self._class = cls
        self._home = home
        self.function: Callable[..., Any] = _Body(self, inner(blank.each_iteration).__code__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Do all items here and now; to be awaited when the job is async."""
        job = self._class()
        job._execution = execution = Execution(job, args, kwargs, is_async=self.is_async)
        return take(execution.steps(), is_async=self.is_async)

    def execution(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Execution:
        """One execution by a worker, of the job that runs here."""
        home = self._home
        job = self._class()
        job._execution = execution = Execution(
            job,
            args,
            kwargs,
            is_async=self.is_async,
            run=running.get(),
            keys=home.keys,
            send=self._asend if self.is_async else home.connections.run,
            events=home.events,
            limit=self.max_iteration_runtime,
            long=home.config.shutdown_timeout,
        )
        return execution

    def state(self, jid: str) -> State:
        """Where job ``jid`` stands, as it was saved last; an empty ``State`` before that and when it is over."""
        found: State = self._home.connections.run(jobs.load_state(self._home.keys, jid))
        return found

    async def astate(self, jid: str) -> State:
        """``state``, awaited."""
        found: State = await self._asend(jobs.load_state(self._home.keys, jid))
        return found

    def _asend(self, call: Call[Any]) -> Any:
        """In a thread: a call now and then needs no connections of its own on every event loop."""
        return self._home.open_door("in_thread")(self._home.connections.run, call)


class _Decorator:
    """What both forms share: the options, checked."""

    def __init__(self, home: Home, name: str | None, max_iteration_runtime: Any, options: dict[str, Any]) -> None:
        self._home = home
        self._name = name
        self._limit = checked_limit(max_iteration_runtime)
        self._options = options

    def _made(self, cls: Any) -> Iterable[Any]:
        checked_class(cls, IterableJob)
        name = self._name if self._name is not None else wire_name(cls)
        if not name or len(name) > 500 or not name.isprintable():
            raise DefinitionError(f"name={name!r}: a job is named by a printable text of 1 to 500 characters")
        made: Iterable[Any] = Iterable(cls, self._home, name, self._options, self._limit)
        self._home.registry.add(made)
        cls.job = made
        return made


class ClassDecorator(_Decorator):
    """What ``app.iterable(queue=…)`` gives: it makes a job of a class derived from ``IterableJob``."""

    def __call__(self, cls: C, /) -> C:
        self._made(cls)
        return cls


class FunctionDecorator(_Decorator):
    """What ``app.iterable(over=rows)`` gives: it makes a job of a function of (item, the arguments of ``over``)."""

    def __init__(self, home: Home, name: str | None, limit: Any, options: dict[str, Any], over: Any) -> None:
        super().__init__(home, name, limit, options)
        if not callable(over):
            raise DefinitionError(f"over={over!r}: give a function of the job's arguments and cursor")
        self._over = over

    def __call__(self, function: Callable[Concatenate[Item, P], Coroutine[Any, Any, None] | None], /) -> Iterable[P]:
        if not inspect.isfunction(function):
            raise DefinitionError(f"@app.iterable(over=…) is for functions, not for {function!r}")
        body = {"build": staticmethod(self._over), "each_iteration": staticmethod(function)}
        told = {"__doc__": function.__doc__, "__module__": function.__module__, "__qualname__": function.__qualname__}
        return self._made(type(function.__name__, (IterableJob,), body | told))
