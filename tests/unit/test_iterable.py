"""Definitions of iterable jobs: what is refused, and a call here and now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from henchman import App, ArgumentError, DefinitionError, IterableJob
from henchman.iterators import over_range


@pytest.fixture
def app() -> App:
    return App(redis_url="redis://localhost:1")


class Good(IterableJob[[int]]):
    def build(self, most: int, *, cursor: Any) -> Any:
        return over_range(most, cursor=cursor)

    def each_iteration(self, item: int, most: int) -> None: ...


class NoBuild(IterableJob[[]]):
    def each_iteration(self, item: int) -> None: ...


class NoCursor(IterableJob[[]]):
    def build(self) -> Any: ...
    def each_iteration(self, item: int) -> None: ...


class NoItem(IterableJob[[]]):
    def build(self, *, cursor: Any) -> Any: ...
    def each_iteration(self) -> None: ...


class OtherArguments(Good):
    def each_iteration(self, item: int, least: int) -> None: ...


class Performs(Good):
    def perform(self) -> None: ...


class Yields(Good):
    def each_iteration(self, item: int, most: int) -> Any:
        yield


class NeedsMore(Good):
    def __init__(self, path: str) -> None: ...


class OnlyAHookIsAsync(Good):
    async def on_stop(self) -> None: ...


class BadArgument(IterableJob[[object]]):
    def build(self, it: Callable[[], None], *, cursor: Any) -> Any: ...
    def each_iteration(self, item: int, it: Callable[[], None]) -> None: ...


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (int, "derived from henchman.IterableJob"),
        (NoBuild, "no method build"),
        (NoCursor, "takes no cursor"),
        (NoItem, "takes no item"),
        (OtherArguments, r"build takes \(most\) and each_iteration, after the item, \(least\)"),
        (Performs, "has build and each_iteration instead"),
        (Yields, "is a generator"),
        (NeedsMore, "must need no arguments"),
        (OnlyAHookIsAsync, "on_stop is async"),
        (BadArgument, "parameter 'it'"),
    ],
)
def test_refused_with_a_reason(app: App, cls: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        app.iterable(name="x")(cls)
    assert len(app.registry) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_iteration_runtime": 0}, "max_iteration_runtime=0"),
        ({"max_iteration_runtime": True}, "max_iteration_runtime=True"),
        ({"que": "x"}, "did you mean"),
        ({"name": ""}, "name=''"),
    ],
)
def test_refused_options(app: App, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        app.iterable(**options)(Good)


def test_two_under_one_name(app: App) -> None:
    class Other(Good):
        def each_iteration(self, item: int, most: int) -> None: ...

    app.iterable(name="x")(Good)
    app.iterable(name="x")(Good)  # its module was loaded again
    with pytest.raises(DefinitionError, match="two functions are called 'x'"):
        app.iterable(name="x")(Other)


def test_names_queue_and_arguments(app: App) -> None:
    class Local(Good): ...

    app.iterable(queue="imports")(Good)
    assert Good.job.name == f"{__name__}.Good"
    assert Good.job.options.queue == "imports"
    with pytest.raises(ArgumentError, match="missing 1 required positional argument"):
        Good.enqueue()  # type: ignore[call-arg]
    with pytest.raises(DefinitionError, match="inside a function"):
        app.iterable()(Local)


def test_here_and_now(app: App) -> None:
    items: list[Any] = []

    class Count(Good):
        def each_iteration(self, item: int, most: int) -> None:
            items.append((item, self.jid, self.executions))

    class AsyncCount(Good):
        async def each_iteration(self, item: int, most: int) -> None:
            await asyncio.sleep(0)
            items.append(item)

    app.iterable(name="count")(Count)
    app.iterable(name="acount")(AsyncCount)
    Count.run_now(2)
    asyncio.run(AsyncCount.run_now(2))
    assert items == [(0, "", 1), (1, "", 1), 0, 1]


def test_of_a_function(app: App) -> None:
    found: list[int] = []

    @app.iterable(name="double", over=lambda most, cursor: over_range(most, cursor=cursor))
    def double(number: int, most: int) -> None:
        """Twice as much."""
        found.append(2 * number)

    double(3)
    assert found == [0, 2, 4]
    assert double.__doc__ == "Twice as much."
    with pytest.raises(DefinitionError, match="give a function"):
        app.iterable(over=3)  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="for functions"):
        app.iterable(over=lambda cursor: None)(3)  # type: ignore[arg-type]


def test_what_is_no_pair_is_named(app: App) -> None:
    @app.iterable(name="x", over=lambda cursor: [1])
    def count(item: int) -> None: ...

    with pytest.raises(ArgumentError, match=r"build gave 1; it must give pairs"):
        count()
