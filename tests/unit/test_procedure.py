"""The one driver of procedures: run now and awaited alike."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from henchman.errors import ArgumentError, ServerError
from henchman.store.call import (
    BothWays,
    Call,
    Items,
    Page,
    Pages,
    Procedure,
    arun,
    ask,
    awaited,
    command,
    first,
    mapped,
    now,
    run,
)


class Server:
    """Answers each call with its second part; ``ERR`` is refused."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def run(self, call: Call[Any]) -> Any:
        self.asked.append(call.parts[0][1])
        if self.asked[-1] == "ERR":
            raise ServerError("refused")
        return self.asked[-1]


class AsyncServer(Server):
    async def run(self, call: Call[Any]) -> Any:
        await asyncio.sleep(0)
        return super().run(call)


@dataclass
class Place:
    """What stands in the place of the app."""

    connections: Server
    aconnections: AsyncServer = field(default_factory=AsyncServer)


def run_now(procedure: Procedure[Any]) -> Any:
    return run(Server(), procedure)


def run_awaited(procedure: Procedure[Any]) -> Any:
    return asyncio.run(arun(AsyncServer(), procedure))


both = pytest.mark.parametrize("go", [run_now, run_awaited])
Go = Callable[[Procedure[Any]], Any]


def echo(text: str) -> Call[str]:
    return command("ECHO", text)


def numbers(*texts: str) -> Pages[str]:
    for text in texts:
        yield Page([(yield echo(text)), text.upper()])


@both
def test_answers_go_in_and_the_result_comes_out(go: Go) -> None:
    def inner() -> Procedure[str]:
        return (yield echo("b")) + "!"

    def outer() -> Procedure[str]:
        one: str = yield echo("a")
        return one + (yield from inner()) + (yield from ask(echo("c")))

    assert go(outer()) == "ab!c"


@both
def test_an_error_of_a_call_is_raised_at_its_yield(go: Go) -> None:
    def handles() -> Procedure[str]:
        try:
            yield echo("ERR")
        except ServerError as error:
            return f"{error}, then {(yield echo('went on'))}"
        raise AssertionError

    assert go(handles()) == "refused, then went on"

    undone = []

    def lets_it_go() -> Procedure[None]:
        try:
            yield echo("ERR")
        finally:
            undone.append(True)

    with pytest.raises(ServerError, match="refused"):
        go(lets_it_go())
    assert undone == [True]


@both
def test_an_error_of_the_procedure_itself_comes_out(go: Go) -> None:
    def wrong() -> Procedure[None]:
        yield echo("a")
        raise ArgumentError("no")

    with pytest.raises(ArgumentError, match="no"):
        go(wrong())


def test_cancellation_reaches_the_yield() -> None:
    seen = []

    class Hangs:
        def run(self, call: Call[Any]) -> Awaitable[Any]:
            return asyncio.sleep(60)

    def procedure() -> Procedure[None]:
        try:
            yield echo("a")
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def cancelled() -> None:
        task = asyncio.ensure_future(arun(Hangs(), procedure()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert seen == ["cancelled"]


@both
def test_first_and_mapped_pass_errors_into_the_pages(go: Go) -> None:
    def guarded() -> Pages[str]:
        try:
            yield echo("ERR")
        except ServerError:
            yield Page(["mended"])
        yield from numbers("a", "b")

    def twice(page: Page[str]) -> Procedure[list[str]]:
        mark: str = yield echo("2")
        return [one + mark for one in page]

    assert go(first(mapped(guarded(), twice), lambda one: one.startswith("A"))) == "A2"
    assert go(first(guarded(), lambda one: one == "x")) is None


def test_a_page_is_read_when_it_is_asked_for() -> None:
    server = Server()
    items = Items(Place(server), lambda: numbers("a", "b", "c"))
    loop = iter(items)
    assert [next(loop), next(loop)] == ["a", "A"]
    assert server.asked == ["a"]
    assert [next(loop), *loop] == ["b", "B", "c", "C"]
    assert list(items) == ["a", "A", "b", "B", "c", "C"]  # each loop begins anew


def test_the_same_awaited() -> None:
    server = AsyncServer()
    items = Items(Place(Server(), server), lambda: numbers("a", "b"))

    async def go_through() -> list[str]:
        found = []
        async for one in items:
            found.append(f"{one}{len(server.asked)}")
        return found

    assert asyncio.run(go_through()) == ["a1", "A1", "b2", "B2"]


class Echo(BothWays):
    @now
    def twice(self, text: str, *, times: int = 2) -> Procedure[list[str]]:
        """The text, as often as is wanted."""
        return [(yield echo(text))] * times

    atwice = awaited(twice)


def test_one_procedure_is_two_methods() -> None:
    one = Echo(Place(Server(), AsyncServer()))
    assert one.twice("a") == ["a", "a"]
    assert asyncio.run(one.atwice("a", times=1)) == ["a"]


def test_both_methods_tell_people_what_they_take_and_give() -> None:
    assert str(inspect.signature(Echo.twice)) == "(self, text: 'str', *, times: 'int' = 2) -> 'list[str]'"
    assert inspect.signature(Echo.atwice) == inspect.signature(Echo.twice)
    assert inspect.iscoroutinefunction(Echo.atwice)
    assert not inspect.isgeneratorfunction(Echo.twice)
    assert (Echo.twice.__doc__, Echo.atwice.__doc__) == ("The text, as often as is wanted.", "``twice``, awaited.")
    assert (Echo.atwice.__name__, Echo.atwice.__qualname__) == ("atwice", "Echo.atwice")
    assert Echo.atwice.__annotations__["return"] == "list[str]"
