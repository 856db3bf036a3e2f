"""A look that takes several calls, as a generator of calls: one definition, executed by a sync or an async runner.

``answer = yield call`` sends a call and gives its decoded answer; what the generator returns is the result. An error
of the call is raised at the ``yield``, so that a plan can treat it. A *walk* is a plan that gives things away on its
way, ``yield Given(some)``: it is read page by page, as fast as somebody takes them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

from henchman.errors import ArgumentError, ServerError
from henchman.store.call import AsyncRunner, Call, Runner

__all__ = [
    "Given",
    "Inspector",
    "Items",
    "Plan",
    "Walk",
    "aexecute",
    "aiterate",
    "ask",
    "execute",
    "first",
    "iterate",
    "mapped",
]

T = TypeVar("T")
U = TypeVar("U")


class Given(list[T]):
    """What a walk gives away in one go."""


Plan = Generator[Call[Any], Any, T]
Walk = Generator[Call[Any] | Given[T], Any, None]


def execute(runner: Runner, plan: Plan[T]) -> T:
    """The result of ``plan``."""
    answer: Any = None
    problem: ServerError | None = None
    while True:
        try:
            call = plan.send(answer) if problem is None else plan.throw(problem)
        except StopIteration as end:
            result: T = end.value
            return result
        answer, problem = None, None
        try:
            answer = runner.run(call)
        except ServerError as error:
            problem = error


async def aexecute(runner: AsyncRunner, plan: Plan[T]) -> T:
    """The result of ``plan``, awaited."""
    answer: Any = None
    problem: ServerError | None = None
    while True:
        try:
            call = plan.send(answer) if problem is None else plan.throw(problem)
        except StopIteration as end:
            result: T = end.value
            return result
        answer, problem = None, None
        try:
            answer = await runner.run(call)
        except ServerError as error:
            problem = error


def _to_the_next_gift(walk: Walk[T]) -> Plan[Given[T] | None]:
    """The plan that takes ``walk`` as far as to what it gives away next; None at its end."""
    answer: Any = None
    problem: ServerError | None = None
    while True:
        try:
            step = walk.send(answer) if problem is None else walk.throw(problem)
        except StopIteration:
            return None
        if isinstance(step, Given):
            return step
        answer, problem = None, None
        try:
            answer = yield step
        except ServerError as error:
            problem = error


def iterate(runner: Runner, walk: Walk[T]) -> Iterator[T]:
    """What ``walk`` gives away, one by one; the next page is read when it is asked for."""
    while (some := execute(runner, _to_the_next_gift(walk))) is not None:
        yield from some


async def aiterate(runner: AsyncRunner, walk: Walk[T]) -> AsyncIterator[T]:
    """``iterate`` for ``async for``."""
    while (some := await aexecute(runner, _to_the_next_gift(walk))) is not None:
        for one in some:
            yield one


def first(walk: Walk[T], wanted: Callable[[T], bool]) -> Plan[T | None]:
    """The first of ``walk`` that is ``wanted``; None when there is none."""
    while (some := (yield from _to_the_next_gift(walk))) is not None:
        for one in some:
            if wanted(one):
                return one
    return None


def mapped(walk: Walk[T], change: Callable[[Given[T]], Plan[Iterable[U]]]) -> Walk[U]:
    """A walk of what ``change``, which may send calls of its own, makes of each page of ``walk``."""
    while (some := (yield from _to_the_next_gift(walk))) is not None:
        yield Given((yield from change(some)))


def ask(call: Call[T]) -> Plan[T]:
    """The plan of one call."""
    answer: T = yield call
    return answer


class Inspector:
    """Who executes plans for people: now, or awaited."""

    def __init__(self, runner: Runner, arunner: AsyncRunner | None = None) -> None:
        self._runner = runner
        self._arunner = arunner

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()}>"

    def _do(self, plan: Plan[T]) -> T:
        return execute(self._runner, plan)

    async def _ado(self, plan: Plan[T]) -> T:
        return await aexecute(self._awaited(), plan)

    def _items(self, walk: Callable[[], Walk[T]]) -> Items[T]:
        return Items(self, walk)

    def _awaited(self) -> AsyncRunner:
        if self._arunner is None:
            raise ArgumentError(f"this {type(self).__name__} was made without an async runner")
        return self._arunner


class Items(Generic[T]):
    """What is found, read page by page while somebody goes through it: ``for`` and ``async for``; each begins anew."""

    def __init__(self, inspector: Inspector, walk: Callable[[], Walk[T]]) -> None:
        self._inspector = inspector
        self._walk = walk

    def __iter__(self) -> Iterator[T]:
        return iterate(self._inspector._runner, self._walk())

    def __aiter__(self) -> AsyncIterator[T]:
        return aiterate(self._inspector._awaited(), self._walk())
