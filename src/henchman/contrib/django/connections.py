"""Django's database connections around each run: none is stale, none is left over, none is another thread's.

Django looks after connections when a request begins and ends, and a worker has no requests. A connection belongs to one
thread: so it is looked at, and closed, on the thread that ran the job; for an async job on that of asgiref, where the
ORM of coroutines runs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections, connections, reset_queries

from henchman.kernel.events import Events

__all__ = ["ConnectionCare"]

IDLE = 1.0  # seconds after which a connection that is kept is asked whether it lives


class _ThreadState(threading.local):
    """Of one thread: whether a run began here whose end has not been seen, and when the last one ended."""

    is_open = False
    ended = 0.0


class ConnectionCare:
    """Server middleware, outermost, for jobs of either kind."""

    def __init__(self, events: Events) -> None:
        self._state = _ThreadState()
        self._tasks: set[asyncio.Task[None]] = set()
        events.on("slot_end", lambda **_: connections.close_all())

    def __call__(self, run: Any, call_next: Callable[[], Any]) -> Any:
        """Around a sync job, on its thread."""
        if not self._state.is_open and _inside_of_callers():
            return call_next()  # a test runs the job within its own transaction
        self._before(run)
        try:
            return call_next()
        finally:
            self._after(cut_off=run.struck is not None)

    async def awaited(self, run: Any, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """Around an async job. When it was cancelled nothing waits for the thread: a query may still run there."""
        await sync_to_async(self._before_async)(run)
        try:
            result = await call_next()
        except asyncio.CancelledError:
            self._later(asyncio.ensure_future(sync_to_async(_drop_all)()))
            raise
        except BaseException:
            await sync_to_async(_close_old)()
            raise
        await sync_to_async(_close_old)()
        return result

    def _later(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _before(self, run: Any) -> None:
        """A time-out may strike at any step: what was begun and not ended is cleared away by the next run."""
        state = self._state
        if state.is_open:
            _drop_all()
        state.is_open = True
        self._freshen(run)

    def _after(self, *, cut_off: bool) -> None:
        if cut_off:
            _drop_all()
        else:
            _close_old()
        self._state.ended = time.monotonic()
        self._state.is_open = False

    def _before_async(self, run: Any) -> None:
        self._freshen(run)
        self._state.ended = time.monotonic()

    def _freshen(self, run: Any) -> None:
        """What this thread keeps is alive and not too old when ``run`` begins."""
        reset_queries()
        close_old_connections()
        if run.attempt > 1 or time.monotonic() - self._state.ended > IDLE:
            _close_dead(pools=run.attempt > 1)


def _opened() -> Iterator[Any]:
    """What this thread has connected."""
    return (one for one in connections.all(initialized_only=True) if one.connection is not None)


def _inside_of_callers() -> bool:
    """Whether this thread is in a transaction already."""
    return any(one.in_atomic_block for one in _opened())


def _close_old() -> None:
    """Close what is too old or broken, and what the job left in a transaction."""
    for one in list(_opened()):
        if one.in_atomic_block:
            _drop(one)
    close_old_connections()


def _close_dead(*, pools: bool) -> None:
    """Close connections that do not answer; with ``pools`` look through those that are shared, too.

    A job that is tried again would else meet the next dead connection: of another thread, or out of a pool.
    """
    for one in list(_opened()):
        if not one.in_atomic_block and not one.is_usable():
            one.close()
    for one in connections.all(initialized_only=True) if pools else ():
        pool = getattr(type(one), "_connection_pools", {}).get(one.alias)
        if pool is not None:
            pool.check()


def _drop_all() -> None:
    """Close every connection of this thread, whatever state it is in."""
    for one in connections.all(initialized_only=True):
        _drop(one)


def _drop(connection: Any) -> None:
    """Close it, and forget what Django knew of it: an ``atomic`` that was cut off never ends."""
    with suppress(DatabaseError, OSError):
        connection.close()
    with suppress(AttributeError):
        delattr(connections._connections, connection.alias)
