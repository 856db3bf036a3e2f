"""One execution of an iterable job: from the saved cursor, item by item, to the end or to a stop.

It is written once, as a generator of steps, which ``take`` drives in a thread or on an event loop. Items run at least
once: at a kill, all that ran since the last save runs again (at most 5 seconds of work and the item in hand); at a
stop, an error or a time-out at most the item in hand.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any

from henchman.client.runtime import Runtime
from henchman.errors import (
    ArgumentError,
    Discard,
    Failure,
    JobCancelled,
    JobInterrupted,
    PayloadError,
    ServerAway,
    ServerError,
)
from henchman.kernel.middleware import in_thread
from henchman.store import jobs
from henchman.store.call import Call, adrive, drive
from henchman.store.jobs import State
from henchman.wire import jsontext
from henchman.wire.jsontext import EncodeError
from henchman.work.current import CurrentJob
from henchman.work.unit import Unit

__all__ = ["SAVE_EVERY", "Abort", "Execution", "take"]

#: a callable without arguments; the generator gets what it returns, or gives when awaited, and what it raises
Step = Callable[[], Any]
Steps = Generator[Step, Any, None]
SAVE_EVERY = 5.0  # seconds between two saves
_END: Any = object()


class Abort(Exception):
    """Raised by ``IterableJob.abort``: no more items, the job is complete."""


class Execution:
    """``job`` is an instance of the user's class. ``run``: the job in a worker; None: here and now, nothing is saved.
    ``limit``: seconds after which to go to the end of the queue."""

    def __init__(
        self,
        runtime: Runtime,
        job: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_async: bool,
        run: CurrentJob | None = None,
        limit: float | None = None,
    ) -> None:
        self.job = job
        self.args = args
        self.kwargs = kwargs
        self.run = run
        self.cursor: Any = None
        self.item: Any = None
        self.executions = 0
        self.cancelled = False
        self._runtime = runtime
        self._limit = limit
        self._long = runtime.config.shutdown_timeout  # seconds after which one item is worth a word in the log
        self._began = time.monotonic()
        self._run_time = 0.0  # of earlier executions
        self._stopped = False  # interrupted by us: where we are is saved
        self._is_async = is_async

    @property
    def jid(self) -> str:
        """The job's id; empty outside of a worker."""
        return self.run.jid if self.run is not None else ""

    @property
    def run_time(self) -> float:
        """Seconds that the job has run, earlier executions included."""
        return self._run_time + time.monotonic() - self._began

    def steps(self) -> Steps:
        """The whole execution. Ends by raising JobInterrupted, JobCancelled, or whatever the job raised.

        The script that settles the job removes where it stands (``work/effects.py``).
        """
        yield from self._load()
        source: Any = None
        if not self.cancelled:
            source = yield partial(self.job.build, *self.args, cursor=self.cursor, **self.kwargs)
            if source is None:
                return
        try:
            yield self.job.on_start if self.executions == 1 else self.job.on_resume
            try:
                yield from self._items(source)
                if self.cancelled:
                    yield self.job.on_cancel
            finally:
                yield self.job.on_stop
            yield self.job.on_complete
        except (Failure, Discard):  # it will not go on
            raise
        except BaseException:
            if not self._stopped:
                with suppress(ArgumentError):  # the error on its way says more than what may go wrong here
                    yield from self._save(at_end=True)
            raise
        if self.cancelled:
            raise JobCancelled

    def _items(self, source: Any) -> Steps:
        """Every item; returns at the last one and when the job is cancelled."""
        if self.cancelled:
            return
        next_pair = self._next_pair(source)
        first, saved, looked = True, time.monotonic(), 0.0
        while True:
            pair = yield next_pair
            if pair is _END:
                return
            self.item, self.cursor = _item_and_cursor(pair, self.job)
            now = time.monotonic()
            if looked and now - looked > self._long and self.run is not None:
                self.run.log(f"one item took {now - looked:.1f} s, longer than a stop waits ({self._long:g} s)")
            looked = now
            why = self._reason_to_stop(now, first)
            if first:
                self._text()  # a cursor that cannot be saved is an error now, not after hours
            if why or now - saved >= SAVE_EVERY or self._is_cancelled():
                answer = yield from self._save(at_end=bool(why))
                saved = now
                self._stopped = bool(why) or answer == jobs.LATE
                if answer == jobs.LATE:
                    raise JobInterrupted("another execution of this job goes on")
                self.cancelled = answer == 1 or self._is_cancelled()
                if self.cancelled:
                    return
            if why:
                raise JobInterrupted(why)
            try:
                yield self._item
            except Abort:
                return
            first = False

    def _next_pair(self, source: Any) -> Step:
        """What gives the next pair, or ``_END``."""
        if hasattr(source, "__aiter__") and self._is_async:
            return partial(anext, aiter(source), _END)
        return partial(next, iter(source), _END)

    def _item(self) -> Any:
        """Run one item, or give something to await."""
        around = self.job.around_iteration
        if around is None:
            return self.job.each_iteration(self.item, *self.args, **self.kwargs)
        if self._is_async:
            return self._aitem(around())
        with around():
            return self.job.each_iteration(self.item, *self.args, **self.kwargs)

    async def _aitem(self, around: Any) -> None:
        if isinstance(around, AbstractContextManager):
            with around:
                await settled(self.job.each_iteration(self.item, *self.args, **self.kwargs))
        else:
            async with around:
                await settled(self.job.each_iteration(self.item, *self.args, **self.kwargs))

    def _is_cancelled(self) -> bool:
        return self.cancelled or (self.run is not None and self.run.cancelled)

    def _reason_to_stop(self, now: float, first: bool) -> str:
        """Why to go on later. The time limit lets one item pass, so that every execution gets on."""
        if self.run is not None and self.run.stopping:
            return "the worker stops"
        if self._limit is not None and not first and self.run is not None and now - self._began >= self._limit:
            return f"it has run for {self._limit:g} s"
        return ""

    def _load(self) -> Steps:
        if self.run is not None:
            try:
                state: State = yield partial(self._send, jobs.load_state(self._runtime.keys, self.jid))
            except ServerAway as error:
                raise JobInterrupted(f"where it stands could not be read: {error}") from error
            self.executions, self._run_time = state.executions, state.run_time
            self.cancelled = state.cancelled or self.run.cancelled
            if state.cursor is not None:
                self.cursor = self._read(state.cursor)
        self.executions += 1

    def _read(self, text: bytes) -> Any:
        try:
            return jsontext.loads(text)
        except ValueError as error:
            raise PayloadError(
                f"the cursor in {self._runtime.keys.iteration(self.jid)} is not JSON ({error}); delete it to start anew"
            ) from None

    def _text(self) -> bytes:
        try:
            return jsontext.dumps(self.cursor)
        except EncodeError as error:
            raise ArgumentError(error.text(f"the cursor of {type(self.job).__qualname__}")) from None

    def _send(self, call: Call[Any]) -> Any:
        """Send ``call``, or give something to await: in a thread, a call now and then needs no connections of its own
        on every event loop."""
        send = self._runtime.connections.run
        return in_thread(send, call) if self._is_async else send(call)

    def _save(self, at_end: bool) -> Generator[Step, Any, int]:
        """Write down where we are; when the server is away, the next save will do."""
        if self.run is None:
            return 0
        unit: Unit = getattr(self.run, "unit")  # noqa: B009 - a worker's own, which is nothing that a job should see
        run_time = self.run_time if at_end else self._run_time
        at = unit.flight.key, unit.payload, self.jid
        call = jobs.save_state(self._runtime.keys, *at, self.executions, self._text(), run_time)
        try:
            answer: int = yield partial(self._send, call)
        except ServerError as error:
            self._runtime.events.failed("iteration", error)
            return 0
        return answer


def _item_and_cursor(pair: Any, job: Any) -> tuple[Any, Any]:
    try:
        item, cursor = pair
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{type(job).__qualname__}.build gave {pair!r:.200}; it must give pairs (item, cursor)"
        ) from None
    return item, cursor


def take(steps: Steps, *, is_async: bool) -> Any:
    """Take ``steps`` to their end in this thread, or give a coroutine that does."""
    return adrive(_awaited, steps) if is_async else drive(lambda step: step(), steps)


async def _awaited(step: Step) -> Any:
    return await settled(step())


async def settled(answer: Any) -> Any:
    """``answer``, awaited where it can be."""
    return await answer if inspect.isawaitable(answer) else answer
