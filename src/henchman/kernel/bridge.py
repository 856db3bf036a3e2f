"""Middleware of either kind around jobs of either kind.

Its costs first: an ``async def`` link around a sync job runs on an event loop of its own (about 0.1 ms a job); a plain
link around an async job runs in a thread. Links of the job's own kind cost a call.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

__all__ = ["compile_async", "compile_sync", "in_thread", "run_coroutine"]

Step = Callable[[Any], Any]
AsyncStep = Callable[[Any], Awaitable[Any]]
Link = Callable[..., Any]


def is_async(link: Link) -> bool:
    """Whether ``link`` must be awaited: an ``async def``, or an object whose ``__call__`` is one."""
    return inspect.iscoroutinefunction(link) or inspect.iscoroutinefunction(getattr(link, "__call__", None))  # noqa: B004


def compile_sync(links: Iterable[Link], final: Step) -> Step:
    """One callable of (context) that runs the links, outermost first, around ``final``."""
    step = final
    for link in reversed(list(links)):
        step = _sync_over_async(link, step) if is_async(link) else _sync(link, step)
    return step


def compile_async(links: Iterable[Link], final: AsyncStep) -> AsyncStep:
    """The same for a ``final`` that is awaited."""
    step = final
    for link in reversed(list(links)):
        awaited = getattr(link, "awaited", link)  # a link that comes in both kinds
        step = _async(awaited, step) if is_async(awaited) else _async_over_sync(link, step)
    return step


def _sync(link: Link, inner: Step) -> Step:
    return lambda context: link(context, lambda: inner(context))


def _sync_over_async(link: Link, inner: Step) -> Step:
    def step(context: Any) -> Any:
        async def call_next() -> Any:
            return inner(context)

        return run_coroutine(link(context, call_next))

    return step


def _async(link: Link, inner: AsyncStep) -> AsyncStep:
    return lambda context: link(context, lambda: inner(context))


def _async_over_sync(link: Link, inner: AsyncStep) -> AsyncStep:
    async def step(context: Any) -> Any:
        loop = asyncio.get_running_loop()

        def call_next() -> Any:
            async def go() -> Any:
                return await inner(context)

            return asyncio.run_coroutine_threadsafe(go(), loop).result()

        return await asyncio.to_thread(link, context, call_next)

    return step


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a blocking function, run in a thread while the event loop turns."""
    return await asyncio.to_thread(function, *args, **kwargs)


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of ``coroutine``, run to its end here, also beneath a running event loop (then in a thread)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    results: list[Any] = []
    problems: list[BaseException] = []

    def body() -> None:
        try:
            results.append(asyncio.run(coroutine))
        except BaseException as error:  # carried over to the caller's thread
            problems.append(error)

    thread = threading.Thread(target=body, name="henchman-bridge")
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return results[0]
