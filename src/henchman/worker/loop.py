"""The event loop of a worker process: async jobs run here as tasks, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any

from henchman.errors import JobCancelled, JobShutdown
from henchman.kernel.events import Events
from henchman.worker.processor import Processor, end_child, in_child
from henchman.worker.run import Run, task_name

__all__ = ["Loop"]

MOST_AWAITS = 20  # while a job cleans up whose loop was closed
LEAVE = 1.0  # seconds that tasks may take to end when the loop stops


class Loop:
    """Starts with the first async job. The processor runs each job in a task; then its slot is free.

    A job that ends the loop (``sys.exit()`` in a task or a callback of its own, ``loop.stop()``) does not end the jobs
    beside it: the loop goes on, and announces it. A closed loop cannot: another takes its place, and the jobs that ran
    on it go back to their queue.
    """

    def __init__(self, processor: Processor, events: Events) -> None:
        self._processor = processor
        self._events = events
        self._todo: deque[Run] = deque()
        self._runs: set[Run] = set()  # in tasks
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._scheduled = self._stopping = self._is_fork = False
        in_child(self)
        self.ticked = time.monotonic()

    def launch(self, run: Run) -> None:
        """Start ``run`` in a task, from any thread; later, where the system refuses us a loop or its thread now."""
        self._todo.append(run)
        self._schedule()

    def _schedule(self) -> None:
        with self._lock:
            try:
                loop = self._loop or self._start()
            except (OSError, RuntimeError, MemoryError) as error:  # no descriptor, thread or memory: look() tries again
                self._events.failed("loop", error)
                return
            if self._scheduled:
                return
            self._scheduled = True
        with contextlib.suppress(RuntimeError):  # closed a moment ago: the next loop begins with what is to do
            loop.call_soon_threadsafe(self._drain)

    def _start(self) -> asyncio.AbstractEventLoop:
        before, loop = (self._loop, self._thread), asyncio.new_event_loop()
        thread = threading.Thread(target=self._body, args=[loop], name="henchman-loop", daemon=True)
        self._loop, self._thread = loop, thread
        self.ticked = time.monotonic()  # it has not stood still since this process started: it was not there
        try:
            thread.start()
        except BaseException:
            self._loop, self._thread = before
            loop.close()
            raise
        return loop

    def _body(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(self._beat)
        while not self._stopping and not loop.is_closed():
            ended: BaseException | None = None
            try:
                loop.run_forever()
            except BaseException as error:  # SystemExit and KeyboardInterrupt pass through a loop, and end it
                ended = error
            if self._is_fork:
                end_child(ended or RuntimeError("a process that an async job forked cannot await: it ends here"))
            if not self._stopping:
                self._events.emit("loop_ended", error=ended)
        if not self._stopping:
            self._begin_anew(loop)
        elif not loop.is_closed():
            _leave(loop)

    def forked(self) -> None:
        """In a child that a job forked: of what is to do in this loop, nothing is the child's. Its own step goes on."""
        self._is_fork = True
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and thread.ident == threading.get_ident():
            for handle in list(getattr(loop, "_ready", ())):  # not of uvloop, which goes through with this round
                handle.cancel()
            loop.stop()

    def look(self) -> None:
        """Called each second: a loop that was closed in the moment in which it went on waits for ever, and what is to
        do in one that could not be made waits for the next try."""
        loop = self._loop
        if loop is None and self._todo:
            self._schedule()
        if loop is not None and loop.is_closed() and not self._stopping and self.blocked_for() > 1.0:
            self._begin_anew(loop)

    def _begin_anew(self, closed: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._loop is not closed:
                return
            self._scheduled = True
            loop = self._start()
        self._give_back_lost(closed)
        loop.call_soon_threadsafe(self._drain)

    def _give_back_lost(self, closed: asyncio.AbstractEventLoop) -> None:
        """The jobs on the closed loop start again, on the next one."""
        for run in list(self._runs):
            if run.task is not None and run.task.get_loop().is_closed():
                self._processor.give_back(run, "its event loop was closed")
                self._drop(run)

    def _drop(self, run: Run) -> None:
        """Let a lost run clean up, as far as it can without a loop; then its slot is free."""
        for _ in range(MOST_AWAITS):
            try:
                run.task.get_coro().close()
                break
            except RuntimeError:  # it awaits while it cleans up: that comes back at once, and fails
                continue
            except BaseException:
                break
        self._done(run)

    def _done(self, run: Run) -> None:
        """Free the slot of ``run``, once."""
        self._runs.discard(run)
        task, run.task = run.task, None
        if task is not None:
            run.pool.task_done(run)

    def _beat(self) -> None:
        """Proof that the loop turns: a job that blocks it stops this."""
        self.ticked = time.monotonic()
        if self._loop is not None:
            self._loop.call_later(0.2, self._beat)

    def _drain(self) -> None:
        with self._lock:
            self._scheduled = False
        while self._todo:
            run = self._todo.popleft()
            self._runs.add(run)
            run.task = asyncio.get_running_loop().create_task(self._run(run), name=task_name(run))

    async def _run(self, run: Run) -> None:
        try:
            await self._processor.aexecute(run)
        except asyncio.CancelledError:
            pass  # struck between the end of the job and the end of its task: the outcome is settled
        finally:
            self._done(run)

    def strike(self, run: Run, error: type[BaseException]) -> None:
        """Cancel the task of ``run``: JobShutdown at the stop deadline, JobCancelled when somebody cancelled it."""
        if error is JobCancelled:
            run.cancelled = True
        if error is JobShutdown:
            run.struck = error
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._cancel, run)

    def _cancel(self, run: Run) -> None:
        if run.task is None or self._loop is None:
            return
        if inspect.getcoroutinestate(run.task.get_coro()) == inspect.CORO_CREATED:
            self._loop.call_soon(self._cancel, run)  # cancelled before its first step, it would never settle its unit
        else:
            run.task.cancel()

    def blocked_for(self) -> float:
        """Seconds since the loop last turned; 0 while it has not started."""
        return time.monotonic() - self.ticked if self._thread is not None else 0.0

    @property
    def running(self) -> asyncio.AbstractEventLoop | None:
        """The event loop, once there is one."""
        return self._loop

    @property
    def thread_id(self) -> int | None:
        """The id of the loop's thread."""
        return self._thread.ident if self._thread is not None else None

    def stacks(self) -> dict[str, list[str]]:
        """Where each task stands now: name → frames ``path:line:in function``, newest first."""
        loop = self._loop
        if loop is None:
            return {}
        found = {}
        for task in asyncio.all_tasks(loop):
            frames = [f"{one.f_code.co_filename}:{one.f_lineno}:in {one.f_code.co_name}" for one in _frames(task)]
            found[task.get_name()] = frames[::-1]
        return found

    def stop(self, timeout: float = 2.0) -> None:
        """Stop the loop; tasks that are left are cancelled, and dropped when they ignore it."""
        self._stopping = True
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout)


def _leave(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is left and wait a little; whatever it does, the loop is closed."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        with contextlib.suppress(SystemExit, KeyboardInterrupt, RuntimeError):
            loop.run_until_complete(asyncio.wait(left, timeout=LEAVE))
    loop.close()


def _frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """The frames of a waiting task, outermost first; ``task.get_stack()`` tells the outermost alone."""
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None)
        if frame is not None:
            yield frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
