"""A procedure is a generator of calls, written once and run now or awaited.

``answer = yield call`` sends a call and gets its decoded answer; an error of the call is raised at the ``yield``, so
that the procedure can handle it; ``return`` gives the result. One procedure calls another with ``yield from``::

    def close(keys: Keys, batch: str) -> Procedure[str]:
        state: str = yield batches.close(keys, batch)
        yield from release(keys, batch)
        return state

    run(connections, close(keys, batch))
    await arun(aconnections, close(keys, batch))

A ``Pages`` procedure also yields pages of what it finds, ``yield Page(found)``. The next page is read when the caller
asks for it.

A public class derives from ``BothWays`` and offers each procedure twice, as ``x``, run now, and as ``ax``, awaited::

    class Queue(BothWays):
        @now
        def size(self) -> Procedure[int]:
            "How many payloads wait in it."
            return (yield from self._look()).size

        asize = awaited(size)

Both have the parameters and the result type of the procedure, for type checkers and for ``help()``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from functools import wraps
from inspect import GEN_CLOSED, getgeneratorstate, signature
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from henchman.store.call import AsyncRunner, Call, Runner

__all__ = [
    "BothWays",
    "Connected",
    "Items",
    "Page",
    "Pages",
    "Procedure",
    "adrive",
    "aiterate",
    "arun",
    "ask",
    "awaited",
    "drive",
    "first",
    "iterate",
    "mapped",
    "now",
    "run",
]

S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")
P = ParamSpec("P")
Both = TypeVar("Both", bound="RunsProcedures")


class Page(list[T]):
    """Some of what a ``Pages`` procedure finds."""


Procedure = Generator[Call[Any], Any, T]
Pages = Generator[Call[Any] | Page[T], Any, None]


def drive(do: Callable[[S], Any], steps: Generator[S, Any, T]) -> T:
    """Do each step that ``steps`` yields, and send back what ``do`` returned or throw in what it raised.

    An error that strikes between two steps (the watchdog raises errors in a job's thread) is thrown in too.
    """
    resume, value = steps.send, None
    while True:
        try:
            step = resume(value)
            resume, value = steps.send, do(step)
        except BaseException as error:
            if getgeneratorstate(steps) == GEN_CLOSED:
                if isinstance(error, StopIteration):
                    result: T = error.value
                    return result
                raise
            resume, value = steps.throw, error


async def adrive(do: Callable[[S], Awaitable[Any]], steps: Generator[S, Any, T]) -> T:
    """``drive``, awaited."""
    resume, value = steps.send, None
    while True:
        try:
            step = resume(value)
            resume, value = steps.send, await do(step)
        except BaseException as error:
            if getgeneratorstate(steps) == GEN_CLOSED:
                if isinstance(error, StopIteration):
                    result: T = error.value
                    return result
                raise
            resume, value = steps.throw, error


def run(runner: Runner, procedure: Procedure[T]) -> T:
    """Run ``procedure`` on ``runner``'s connections; its result."""
    return drive(runner.run, procedure)


async def arun(runner: AsyncRunner, procedure: Procedure[T]) -> T:
    """``run``, awaited."""
    return await adrive(runner.run, procedure)


def ask(call: Call[T]) -> Procedure[T]:
    """The procedure of one call."""
    answer: T = yield call
    return answer


def _next_page(pages: Pages[T]) -> Procedure[Page[T] | None]:
    """Run ``pages`` up to its next page; None at its end."""
    resume, value = pages.send, None
    while True:
        try:
            step = resume(value)
        except StopIteration:
            return None
        if isinstance(step, Page):
            return step
        try:
            resume, value = pages.send, (yield step)
        except BaseException as error:
            resume, value = pages.throw, error


def iterate(runner: Runner, pages: Pages[T]) -> Iterator[T]:
    """Each item of ``pages``, one by one."""
    while (page := run(runner, _next_page(pages))) is not None:
        yield from page


async def aiterate(runner: AsyncRunner, pages: Pages[T]) -> AsyncIterator[T]:
    """``iterate`` for ``async for``."""
    while (page := await arun(runner, _next_page(pages))) is not None:
        for item in page:
            yield item


def first(pages: Pages[T], wanted: Callable[[T], bool]) -> Procedure[T | None]:
    """The first item of ``pages`` that is ``wanted``; None when there is none."""
    while (page := (yield from _next_page(pages))) is not None:
        for item in page:
            if wanted(item):
                return item
    return None


def mapped(pages: Pages[T], change: Callable[[Page[T]], Procedure[Iterable[U]]]) -> Pages[U]:
    """The pages that ``change``, a procedure too, makes of those of ``pages``."""
    while (page := (yield from _next_page(pages))) is not None:
        yield Page((yield from change(page)))


class Connected(Protocol):
    """The app, or what stands in its place: connections are made when they are first asked for."""

    @property
    def connections(self) -> Runner: ...
    @property
    def aconnections(self) -> AsyncRunner: ...


class RunsProcedures(Protocol):
    """What ``now`` and ``awaited`` need of the class of their methods."""

    def _run(self, procedure: Procedure[T], /) -> T: ...
    def _arun(self, procedure: Procedure[T], /) -> Coroutine[Any, Any, T]: ...


class BothWays:
    """Base of a class whose procedures can be run now and awaited."""

    def __init__(self, connected: Connected) -> None:
        self._connected = connected

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()}>"

    def _run(self, procedure: Procedure[T]) -> T:
        return run(self._connected.connections, procedure)

    async def _arun(self, procedure: Procedure[T]) -> T:
        return await arun(self._connected.aconnections, procedure)

    def _items(self, pages: Callable[[], Pages[T]]) -> Items[T]:
        return Items(self._connected, pages)


class Items(Generic[T]):
    """What a ``Pages`` procedure finds, for ``for`` and ``async for``; each loop begins anew."""

    def __init__(self, connected: Connected, pages: Callable[[], Pages[T]]) -> None:
        self._connected = connected
        self._pages = pages

    def __iter__(self) -> Iterator[T]:
        return iterate(self._connected.connections, self._pages())

    def __aiter__(self) -> AsyncIterator[T]:
        return aiterate(self._connected.aconnections, self._pages())


def now(procedure: Callable[Concatenate[Both, P], Procedure[T]]) -> Callable[Concatenate[Both, P], T]:
    """The method that runs ``procedure``, a method too, now."""

    @wraps(procedure)
    def run_now(self: Both, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(procedure(self, *args, **kwargs))

    told = signature(procedure)
    result = told.return_annotation.removeprefix("Procedure[").removesuffix("]")
    run_now.__signature__ = told.replace(return_annotation=result)  # type: ignore[attr-defined]
    run_now.__annotations__ = {**procedure.__annotations__, "return": result}
    return run_now


def awaited(
    method: Callable[Concatenate[Both, P], T],
) -> Callable[Concatenate[Both, P], Coroutine[Any, Any, T]]:
    """The awaited form of ``method``, which ``now`` made."""
    procedure: Callable[..., Procedure[T]] = method.__wrapped__  # type: ignore[attr-defined]
    name = method.__name__

    @wraps(method)
    async def run_awaited(self: Both, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._arun(procedure(self, *args, **kwargs))

    run_awaited.__name__, run_awaited.__doc__ = f"a{name}", f"``{name}``, awaited."
    run_awaited.__qualname__ = f"{method.__qualname__.removesuffix(name)}a{name}"
    return run_awaited
