"""Middleware: a chain of links, compiled into one callable around jobs of either kind.

A link is ``link(*context, call_next)``. It works around ``call_next()`` and returns what that returned, or something
else, or does not call it at all. The chain calls a class or factory once, at ``add``, and keeps what it returns.

Links of the job's own kind cost a call. An ``async def`` link around a sync job runs on an event loop of its own (about
0.1 ms a job); a plain link around an async job runs in a thread.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any

from henchman.errors import ConfigError
from henchman.kernel.rare import load

Link = Callable[..., Any]
Step = Callable[[Any], Any]
AsyncStep = Callable[[Any], Awaitable[Any]]


class Chain:
    """An ordered list of links; ``version`` rises with every change, so that a compiled chain knows it is stale."""

    def __init__(self) -> None:
        self.links: tuple[Link, ...] = ()  # replaced, never changed
        self.version = 0

    def __iter__(self) -> Iterator[Link]:
        return iter(self.links)

    def __len__(self) -> int:
        return len(self.links)

    def __contains__(self, link: object) -> bool:
        return self._find(link) is not None

    def add(self, link: Link) -> Link:
        """Append ``link``, innermost so far; usable as a decorator. A link already there moves to the end."""
        return self._place(link, lambda: len(self.links))

    def prepend(self, link: Link) -> Link:
        """Put ``link`` outermost."""
        return self._place(link, lambda: 0)

    def insert_before(self, other: Link, link: Link) -> Link:
        """Put ``link`` just outside ``other``; ConfigError when ``other`` is not in the chain."""
        return self._beside(other, link, 0)

    def insert_after(self, other: Link, link: Link) -> Link:
        """Put ``link`` just inside ``other``; ConfigError when ``other`` is not in the chain."""
        return self._beside(other, link, 1)

    def remove(self, link: Link) -> None:
        """Take ``link`` out; nothing happens when it is not there."""
        index = self._find(link)
        if index is not None:
            self.links = (*self.links[:index], *self.links[index + 1 :])
            self.version += 1

    def exists(self, link: Link) -> bool:
        """Whether ``link`` (or an instance of the class ``link``) is in the chain."""
        return link in self

    def clear(self) -> None:
        """Take all links out."""
        self.links = ()
        self.version += 1

    def _find(self, link: object) -> int | None:
        for index, present in enumerate(self.links):
            if present == link or (isinstance(link, type) and isinstance(present, link)):
                return index
        return None

    def _index(self, other: Link) -> int:
        index = self._find(other)
        if index is None:
            names = ", ".join(getattr(link, "__name__", repr(link)) for link in self.links) or "nothing"
            raise ConfigError(f"{other!r} is not in this middleware chain; it holds {names}")
        return index

    def _beside(self, other: Link, link: Link, step: int) -> Link:
        if self._index(other) == self._find(link):
            return link  # beside itself it is already
        return self._place(link, lambda: self._index(other) + step)

    def _place(self, link: Link, where: Callable[[], int]) -> Link:
        if not callable(link):
            raise ConfigError(f"{link!r} cannot be a middleware: it is not callable")
        made = link() if isinstance(link, type) else link
        self.remove(link)
        at = where()
        self.links = (*self.links[:at], made, *self.links[at:])
        self.version += 1
        return link


@contextlib.contextmanager
def around(links: Iterable[Link]) -> Iterator[None]:
    """The ``pushing()`` blocks of those ``links`` that have one, for the length of a whole push."""
    with contextlib.ExitStack() as blocks:
        for link in links:
            pushing = getattr(link, "pushing", None)
            if pushing is not None:
                blocks.enter_context(pushing())
        yield


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
    """The job stands in a task of its own beneath ``link``: what cancels the task around them cancels that one."""

    async def step(context: Any) -> Any:
        asyncio = load("asyncio")
        loop = asyncio.get_running_loop()
        begun: list[Any] = []
        cancelled = threading.Event()

        async def go() -> Any:
            begun.append(asyncio.current_task())
            if cancelled.is_set():
                raise asyncio.CancelledError
            return await inner(context)

        def call_next() -> Any:
            job = asyncio.run_coroutine_threadsafe(go(), loop)
            try:
                return job.result()
            except Exception:
                if job.cancelled():  # which threads are told by an error of another class
                    raise asyncio.CancelledError from None
                raise

        def cancel() -> None:
            cancelled.set()
            for task in begun:  # not its future: that would not wait for the task's end
                task.cancel()

        return await apart(link, context, call_next, cancel=cancel)

    return step


async def apart(function: Callable[..., Any], *args: Any, cancel: Callable[[], object] = lambda: None) -> Any:
    """The result of ``function``, run in a thread of its own while the event loop turns: those of the loop are few, and
    what waits here may wait for one of them.

    A task that is cancelled meanwhile calls ``cancel()`` and waits on: what ``function`` decides is not lost.
    """
    asyncio = load("asyncio")
    loop = asyncio.get_running_loop()
    result, context = loop.create_future(), contextvars.copy_context()

    def body() -> None:
        try:
            tell = partial(_set, result.set_result, result, context.run(function, *args))
        except StopIteration:  # no future takes it
            tell = partial(_set, result.set_exception, result, RuntimeError(f"{function!r} raised StopIteration"))
        except BaseException as error:
            tell = partial(_set, result.set_exception, result, error)
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=body, name="henchman-apart", daemon=True).start()
    while not result.done():
        try:
            await asyncio.shield(result)
        except asyncio.CancelledError:
            cancel()
    return result.result()


def _set(way: Callable[[Any], None], future: Any, value: Any) -> None:
    if not future.done():
        way(value)


async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a blocking function, run in a thread while the event loop turns."""
    return await load("asyncio").to_thread(function, *args, **kwargs)


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of ``coroutine``, run to its end here, also beneath a running event loop (then in a thread)."""
    asyncio = load("asyncio")
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


def takes(function: Any, most: int) -> int:
    """How many of ``most`` positional arguments ``function`` takes; 1 when that cannot be seen."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return most
    return min(most, sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters))
