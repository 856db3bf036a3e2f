"""Middleware chains: order, where links go, what is refused; and every mix of sync and async."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from henchman.errors import ConfigError
from henchman.kernel.middleware import Chain, compile_async, compile_sync, run_coroutine


def a(context: Any, call_next: Any) -> Any:
    return call_next()


def b(context: Any, call_next: Any) -> Any:
    return call_next()


def c(context: Any, call_next: Any) -> Any:
    return call_next()


class Made:
    def __call__(self, context: Any, call_next: Any) -> Any:
        return call_next()


def chain(*links: Any) -> Chain:
    made = Chain()
    for link in links:
        made.add(link)
    return made


def test_order() -> None:
    links = chain(a, b)
    links.prepend(c)
    assert list(links) == [c, a, b]
    links.insert_before(b, c)  # a link that is there moves
    assert list(links) == [a, c, b]
    links.insert_after(b, a)
    assert list(links) == [c, b, a]
    links.add(c)
    assert list(links) == [b, a, c]


def test_removing() -> None:
    links = chain(a, b)
    links.remove(a)
    links.remove(a)
    assert list(links) == [b]
    assert (a in links, links.exists(b), len(links)) == (False, True, 1)
    links.clear()
    assert list(links) == []


def test_a_class_is_made_once_and_found_by_its_class() -> None:
    links = chain(Made, a)
    assert isinstance(next(iter(links)), Made)
    assert Made in links
    links.add(Made)
    assert len(links) == 2
    links.insert_before(Made, b)
    assert [type(one).__name__ for one in links] == ["function", "function", "Made"]
    links.remove(Made)
    assert list(links) == [a, b]


def test_add_is_a_decorator() -> None:
    links = Chain()

    @links.add
    def link(context: Any, call_next: Any) -> Any: ...

    assert list(links) == [link]


def test_every_change_makes_a_new_version() -> None:
    links = Chain()
    versions = [links.version]
    for change in (
        lambda: links.add(a),
        lambda: links.prepend(b),
        lambda: links.insert_after(a, c),
        lambda: links.remove(a),
        links.clear,
    ):
        change()
        versions.append(links.version)
    assert versions == sorted(set(versions))


def test_what_is_refused() -> None:
    links = chain(a)
    with pytest.raises(ConfigError, match="not callable"):
        links.add(7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"it holds a$"):
        links.insert_before(b, c)
    with pytest.raises(ConfigError, match="it holds nothing"):
        Chain().insert_after(b, c)
    with pytest.raises(ConfigError, match="it holds a"):
        links.insert_before(b, a)
    assert list(links) == [a]  # a refused move moves nothing


def test_before_itself_is_where_it_is() -> None:
    links = chain(a, b, c)
    links.insert_before(b, b)
    assert list(links) == [a, b, c]
    links.insert_after(b, b)
    assert list(links) == [a, b, c]


def noted(order: list[str], name: str, kind: str) -> Any:
    def plain(context: Any, call_next: Any) -> Any:
        order.append(f"{name} in")
        result = call_next()
        order.append(f"{name} out")
        return f"{name}({result})"

    async def awaited(context: Any, call_next: Any) -> Any:
        order.append(f"{name} in")
        result = await call_next()
        order.append(f"{name} out")
        return f"{name}({result})"

    return plain if kind == "s" else awaited


MIXES = ["", "s", "a", "ss", "sa", "as", "aa", "sas", "asa"]


@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_around_a_sync_step(mix: str) -> None:
    order: list[str] = []
    links = [noted(order, str(n), kind) for n, kind in enumerate(mix)]
    step = compile_sync(links, lambda context: f"job {context}")

    assert step(7) == "".join(f"{n}(" for n in range(len(mix))) + "job 7" + ")" * len(mix)
    assert order == [f"{n} in" for n in range(len(mix))] + [f"{n} out" for n in reversed(range(len(mix)))]


@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_around_an_async_step(mix: str) -> None:
    order: list[str] = []
    links = [noted(order, str(n), kind) for n, kind in enumerate(mix)]

    async def job(context: Any) -> str:
        await asyncio.sleep(0)
        return f"job {context}"

    result = asyncio.run(_awaited(compile_async(links, job), 7))

    assert result == "".join(f"{n}(" for n in range(len(mix))) + "job 7" + ")" * len(mix)
    assert order == [f"{n} in" for n in range(len(mix))] + [f"{n} out" for n in reversed(range(len(mix)))]


async def _awaited(step: Any, context: Any) -> Any:
    return await step(context)


@pytest.mark.parametrize("mix", MIXES)
def test_errors_pass_through_every_mix(mix: str) -> None:
    links = [noted([], str(n), kind) for n, kind in enumerate(mix)]

    def fail(context: Any) -> Any:
        raise KeyError(context)

    async def afail(context: Any) -> Any:
        raise KeyError(context)

    with pytest.raises(KeyError):
        compile_sync(links, fail)(7)
    with pytest.raises(KeyError):
        asyncio.run(_awaited(compile_async(links, afail), 7))


def test_an_object_whose_call_is_async() -> None:
    class Link:
        async def __call__(self, context: Any, call_next: Any) -> Any:
            return await call_next() + 1

    assert compile_sync([Link()], lambda context: context)(1) == 2


def test_a_link_that_stops() -> None:
    assert compile_sync([lambda context, call_next: "stopped", a], lambda context: 1 / 0)(7) == "stopped"


def test_a_coroutine_beneath_a_running_loop_runs_elsewhere() -> None:
    async def where() -> tuple[str, str]:
        async def inner() -> str:
            return threading.current_thread().name

        return run_coroutine(inner()), threading.current_thread().name

    inner, outer = asyncio.run(where())
    assert inner == "henchman-bridge" != outer


def test_an_error_beneath_a_running_loop() -> None:
    async def scene() -> None:
        async def fail() -> None:
            raise SystemExit(3)

        with pytest.raises(SystemExit):
            run_coroutine(fail())

    asyncio.run(scene())
