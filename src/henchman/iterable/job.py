"""``@app.iterable``: long jobs as many small items, with a cursor that survives stops, errors and kills.

The state is Sidekiq's (``store/jobs.py``), so a job of one class name may be begun in Ruby and ended here, as
far as both sides mean the same by a cursor.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, Unpack

import msgspec

from henchman.client.job import Job, Using
from henchman.client.keywords import PushKeywords
from henchman.client.options import checked_name, checked_seconds, definition_options, wrong
from henchman.client.push import Handle
from henchman.client.registry import wire_name
from henchman.client.runtime import Runtime
from henchman.errors import DefinitionError
from henchman.iterable.execution import Abort, Execution, take
from henchman.kernel.middleware import in_thread
from henchman.kernel.text import as_shown
from henchman.store import jobs
from henchman.store.jobs import State
from henchman.wire.arguments import Signature
from henchman.work.current import running

__all__ = ["ClassDecorator", "FunctionDecorator", "Iterable", "IterableJob"]

P = ParamSpec("P")
Item = TypeVar("Item")
C = TypeVar("C", bound=type[Any])


class IterableJob(Generic[P]):
    """The base of an iterable job. Write two methods, both with the job's arguments; ``async def`` is fine for all.

    ``build(self, *args, cursor)``: gives an iterator of (item, cursor), from ``cursor`` on, that item included; a
    cursor is plain JSON, None is the start. ``each_iteration(self, item, *args)``: does one item; an item may come
    twice. A worker makes a fresh instance for each execution, without arguments: what a hook puts on ``self`` stays
    for that execution. A type checker reads the arguments off ``class ImportFile(IterableJob[[str]])``.
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
        return cls._defined().enqueue(*args, **kwargs)

    @classmethod
    async def aenqueue(cls, *args: P.args, **kwargs: P.kwargs) -> Handle[None]:
        """``enqueue``, awaited."""
        return await cls._defined().aenqueue(*args, **kwargs)

    @classmethod
    def using(cls, **options: Unpack[PushKeywords]) -> Using[P, None]:
        """This job with options for one push, see ``Job.using``."""
        return cls._defined().using(**options)

    @classmethod
    def run_now(cls, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Do all items here and now, and save nothing; to be awaited when the job is async."""
        return cls._defined()(*args, **kwargs)

    @classmethod
    def state(cls, jid: str) -> State:
        """Where job ``jid`` stands; see ``Iterable.state``."""
        return cls._defined().state(jid)

    @classmethod
    def _defined(cls) -> Iterable[P]:
        made: Iterable[P] | None = cls.__dict__.get("job")  # its own: a class derived from a job is another one
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


class Iterable(Job[P, None], Generic[P]):
    """A defined iterable job. Called, it does all items here and now and saves nothing; enqueued, a worker does."""

    hears_cancel = True

    def __init__(
        self, cls: type[Any], runtime: Runtime, name: str, options: dict[str, Any], max_iteration_runtime: float | None
    ) -> None:
        make: Any = cls.__new__
        blank = make(cls)  # an instance to look at: its ``__init__`` has not run
        checked = msgspec.structs.replace(definition_options(name, options), iterable=True)
        if checked.isolate is not None:
            raise DefinitionError(f"{name}: isolate= is not for iterable jobs: do what computes in a job of its own")
        function, keyring = _arguments(cls, blank), runtime.client.keyring
        signature = Signature.of(function, name=name, secret=checked.secret, encrypt=checked.encrypt, keyring=keyring)
        super().__init__(cls, name, checked, signature, runtime.client)
        self.is_async = _is_async(cls, blank)
        self.max_iteration_runtime = max_iteration_runtime
        self._class = cls
        self._runtime = runtime
        body: Any = functools.partial(self.in_worker)
        body.__code__ = _written(blank.each_iteration).__code__  # definitions are compared by their source
        self.function: Callable[..., Any] = body

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Do all items here and now; to be awaited when the job is async."""
        return take(self._execution(args, kwargs).steps(), is_async=self.is_async)

    def in_worker(self, *args: Any, **kwargs: Any) -> Any:
        """One execution by a worker, of the job that runs here."""
        execution = self._execution(args, kwargs, run=running.get(), limit=self.max_iteration_runtime)
        return take(execution.steps(), is_async=self.is_async)

    def _execution(self, args: tuple[Any, ...], kwargs: dict[str, Any], **how: Any) -> Execution:
        job = self._class()
        job._execution = execution = Execution(self._runtime, job, args, kwargs, is_async=self.is_async, **how)
        return execution

    def state(self, jid: str) -> State:
        """Where job ``jid`` stands, as it was saved last; an empty ``State`` before that and when it is over."""
        found: State = self._runtime.connections.run(jobs.load_state(self._runtime.keys, jid))
        return found

    async def astate(self, jid: str) -> State:
        """``state``, awaited."""
        found: State = await in_thread(self.state, jid)
        return found


class _Decorator:
    """What both forms share: the options, checked."""

    def __init__(self, runtime: Runtime, name: str | None, max_iteration_runtime: Any, options: dict[str, Any]) -> None:
        self._runtime = runtime
        self._name = name
        limit = max_iteration_runtime
        self._limit = None if limit is None else checked_seconds("max_iteration_runtime", limit)
        self._options = options

    def _made(self, cls: Any) -> Iterable[Any]:
        _check_class(cls)
        name = checked_name(self._name) if self._name is not None else wire_name(cls)
        made: Iterable[Any] = Iterable(cls, self._runtime, name, self._options, self._limit)
        self._runtime.registry.add(made)
        cls.job = made
        return made


class ClassDecorator(_Decorator):
    """What ``app.iterable(queue=…)`` gives: it makes a job of a class derived from ``IterableJob``."""

    def __call__(self, cls: C, /) -> C:
        self._made(cls)
        return cls


class FunctionDecorator(_Decorator):
    """What ``app.iterable(over=rows)`` gives: it makes a job of a function of (item, the arguments of ``over``)."""

    def __init__(self, runtime: Runtime, name: str | None, limit: Any, options: dict[str, Any], over: Any) -> None:
        super().__init__(runtime, name, limit, options)
        if not callable(over):
            raise wrong("over", over, "give a function of the job's arguments and cursor")
        self._over = over

    def __call__(self, function: Callable[Concatenate[Item, P], Coroutine[Any, Any, None] | None], /) -> Iterable[P]:
        if not inspect.isfunction(function):
            raise DefinitionError(f"@app.iterable(over=…) is for functions, not for {as_shown(function, 200)}")
        body = {"build": staticmethod(self._over), "each_iteration": staticmethod(function)}
        names = {"__doc__": function.__doc__, "__module__": function.__module__, "__qualname__": function.__qualname__}
        return self._made(type(function.__name__, (IterableJob,), body | names))


# --- what a class must look like, and what is read off it when it is defined -----------------------------------------

_HOOKS = ("on_start", "on_resume", "on_stop", "on_cancel", "on_complete")


def _check_class(cls: Any) -> None:
    """DefinitionError when no iterable job can be made of ``cls``."""
    if not isinstance(cls, type) or not issubclass(cls, IterableJob):
        raise DefinitionError(
            f"@app.iterable is for classes derived from henchman.IterableJob, not for {as_shown(cls, 200)}"
        )
    name = cls.__qualname__
    for method in ("build", "each_iteration"):
        if not callable(getattr(cls, method, None)):
            raise DefinitionError(f"{name} has no method {method}")
    if hasattr(cls, "perform"):
        raise DefinitionError(f"{name}.perform: an iterable job has build and each_iteration instead")
    if any(one.default is one.empty and one.kind < one.VAR_POSITIONAL for one in _parameters(cls)):
        raise DefinitionError(f"{name}() must need no arguments: those of the job go to build and each_iteration")
    each = getattr(cls, "each_iteration")  # noqa: B009 - looked up above
    if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
        raise DefinitionError(f"{name}.each_iteration is a generator; it returns, build is what yields")


def _written(method: Any) -> Any:
    """The function as it was written, beneath binding and decorators."""
    return inspect.unwrap(getattr(method, "__func__", method))


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"the parameters of {as_shown(function, 200)} cannot be read: {error}") from None


def _is_async(cls: type[Any], job: Any) -> bool:
    """Whether the job must be awaited; DefinitionError when only a hook says so."""
    awaited = inspect.iscoroutinefunction(job.each_iteration) or inspect.iscoroutinefunction(job.build)
    awaited = awaited or inspect.isasyncgenfunction(job.build)
    for hook in _HOOKS:
        if inspect.iscoroutinefunction(getattr(job, hook)) and not awaited:
            raise DefinitionError(f"{cls.__qualname__}.{hook} is async; make each_iteration async too")
    return awaited


def _arguments(cls: type[Any], job: Any) -> Callable[..., Any]:
    """A function with the parameters of the job: those of ``each_iteration`` after the item."""
    given = _parameters(job.each_iteration)
    if not given or given[0].kind > inspect.Parameter.VAR_POSITIONAL:
        raise DefinitionError(f"{cls.__qualname__}.each_iteration takes no item")
    mine = given if given[0].kind == inspect.Parameter.VAR_POSITIONAL else given[1:]
    if not any(one.kind == one.VAR_KEYWORD or one.name == "cursor" for one in _parameters(job.build)):
        raise DefinitionError(f"{cls.__qualname__}.build takes no cursor; add one: def build(self, …, *, cursor)")
    theirs = [one for one in _parameters(job.build) if one.name != "cursor"]
    loose = any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in (*mine, *theirs))
    if not loose and [one.name for one in mine] != [one.name for one in theirs]:
        raise DefinitionError(
            f"{cls.__qualname__}: build takes ({', '.join(one.name for one in theirs)}) and each_iteration, after the "
            f"item, ({', '.join(one.name for one in mine)}); give both the arguments of the job"
        )

    def stand_in() -> None: ...

    shown = functools.update_wrapper(stand_in, _written(job.each_iteration))
    shown.__qualname__ = cls.__qualname__
    shown.__signature__ = inspect.Signature(mine)  # type: ignore[attr-defined]  # inspect reads it
    return shown
