"""The event loop of a worker process: async jobs run here as tasks, in a thread of its own; and forked children.

A child of a process that a job forked (``os.fork``, ``multiprocessing``) is no worker. It has a copy of everything and
none of the threads: no slot, lease, connection or pipe of its parent is its own. It may do what it likes in the job,
and ends where the job's frame does.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from henchman.errors import JobCancelled, JobShutdown
from henchman.worker.run import Run

__all__ = ["Loop", "end_child", "in_child", "task_name"]

MOST_AWAITS = 20  # while a job cleans up whose loop was closed
LEAVE = 1.0  # seconds that tasks may take to end when the loop stops


class Loop:
    """Starts with the first async job. ``execute(run)`` is awaited in a task; ``on_done(run)`` follows in any case.

    A job that ends the loop (``sys.exit()`` in a task or a callback of its own, ``loop.stop()``) does not end the jobs
    beside it: the loop goes on, and ``on_ended(error)`` tells. A loop that was closed cannot: another takes its place,
    and ``on_lost()`` gives back what ran on it (``lost``).
    """

    def __init__(self, execute: Callable[[Run], Awaitable[None]]) -> None:
        self._execute = execute
        self.on_done: Callable[[Run], None] = lambda run: None
        self.on_ended: Callable[[BaseException | None], None] = lambda error: None
        self.on_lost: Callable[[], None] = lambda: None
        self._todo: deque[Run] = deque()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._scheduled = self._stopping = self._is_fork = False
        in_child(self)
        self.ticked = time.monotonic()

    def launch(self, run: Run) -> None:
        """Start ``run`` in a task, from any thread."""
        self._todo.append(run)
        with self._lock:
            loop = self._loop or self._start()
            if self._scheduled:
                return
            self._scheduled = True
        with contextlib.suppress(RuntimeError):  # closed a moment ago: the next loop begins with what is to do
            loop.call_soon_threadsafe(self._drain)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = asyncio.new_event_loop()
        self.ticked = time.monotonic()  # it has not stood still since this process started: it was not there
        self._thread = threading.Thread(target=self._body, args=[loop], name="henchman-loop", daemon=True)
        self._thread.start()
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
                self.on_ended(ended)
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
        """Called each second: a loop that was closed in the moment in which it went on waits for ever."""
        loop = self._loop
        if loop is not None and loop.is_closed() and not self._stopping and self.blocked_for() > 1.0:
            self._begin_anew(loop)

    def _begin_anew(self, closed: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._loop is not closed:
                return
            self._scheduled = True
            loop = self._start()
        self.on_lost()
        loop.call_soon_threadsafe(self._drain)

    def is_lost(self, run: Run) -> bool:
        """Whether ``run`` is on a loop that was closed."""
        return run.task is not None and run.task.get_loop().is_closed()

    def drop(self, run: Run) -> None:
        """Let a lost run clean up, as far as it can without a loop; ``on_done`` follows."""
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
        """The slot of ``run`` is free, once."""
        task, run.task = run.task, None
        if task is not None:
            self.on_done(run)

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
            run.task = asyncio.get_running_loop().create_task(self._run(run), name=task_name(run))

    async def _run(self, run: Run) -> None:
        try:
            await self._execute(run)
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


def task_name(run: Run) -> str:
    """How the task of a run is called."""
    return f"{run.compiled.name} {run.jid}"


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


_told: weakref.WeakSet[Any] = weakref.WeakSet()


def in_child(who: Any) -> None:
    """Call ``who.forked()`` in every child that this process forks, as long as ``who`` lives."""
    _told.add(who)


def _tell() -> None:
    for who in list(_told):
        who.forked()


os.register_at_fork(after_in_child=_tell)


def end_child(problem: BaseException | None, leave: Callable[[int], NoReturn] = os._exit) -> NoReturn:
    """End a forked child as Python would have: status 0 when the job returned, that of ``sys.exit()``, or 1."""
    status = 0
    if isinstance(problem, SystemExit):
        status = problem.code if isinstance(problem.code, int) else int(problem.code is not None)
    try:
        if problem is not None and not isinstance(problem, SystemExit):
            status = 1
            traceback.print_exception(problem)
        elif status and not isinstance(getattr(problem, "code", 0), int):
            sys.stderr.write(f"{problem}\n")
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        leave(status & 0xFF)
