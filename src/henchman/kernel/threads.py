"""Threads: services that run in one of their own, and where any thread stands.

Every part of a worker has one life: ``start``, ``quiet``, ``stop(deadline)``, meaning the same in each. All sleeping is
one interruptible wait. Double start, double stop and stop before start are harmless.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, compress, repeat, takewhile, tee
from operator import attrgetter, call, truth
from types import FrameType
from typing import Any, TypeVar

#: what ``Thread.start`` raises where the system refuses one: a limit of threads, or of memory
REFUSED = (RuntimeError, MemoryError)
LONGEST = 3600.0  # seconds between two ticks: threads cannot wait for as long as a payload may say

T = TypeVar("T")

#: A frame and those that called it, with the step (``f_lasti``) at which each stands: innermost first.
Stack = list[tuple[FrameType, int]]


def beside(work: Callable[[], object], name: str) -> None:
    """Do ``work`` in a thread of its own; here, where the system refuses one."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except REFUSED:
        work()


class Service:
    """A thread with a name that runs ``self.run()`` until ``stopping`` is set."""

    name = "service"

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the thread; nothing happens when it runs already or was stopped before."""
        with self._lock:
            if self._thread is not None or self.stopping.is_set():
                return
            thread = threading.Thread(target=self.run, name=f"henchman-{self.name}", daemon=True)
            thread.start()
            self._thread = thread  # not one that the system refused: nobody could wait for its end

    def run(self) -> None:
        """The body; returns soon after ``stopping`` is set."""
        raise NotImplementedError

    def quiet(self) -> None:
        """Take no new work; what runs goes on."""

    def interrupt(self) -> None:
        """Wake the body out of whatever it waits for, so that it sees ``stopping``."""

    def stop(self, timeout: float = 5.0) -> bool:
        """Ask the body to end and wait up to ``timeout`` seconds; True when it has ended."""
        self.stopping.set()
        self.interrupt()
        with self._lock:  # a start that is under way has been, or sees that we stop
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()


class Ticker(Service):
    """A service that does one thing again and again: ``tick()`` returns the seconds until it wants the next.

    An error in a tick is handed to ``on_error`` and the next tick comes after ``after_error`` seconds.
    """

    after_error = 1.0

    def __init__(self, on_error: Callable[[str, BaseException], None]) -> None:
        super().__init__()
        self._on_error = on_error
        self._wake = threading.Event()

    def tick(self) -> float:
        """Do it once; the seconds until the next time."""
        raise NotImplementedError

    def wake(self) -> None:
        """Tick now."""
        self._wake.set()

    def interrupt(self) -> None:
        self._wake.set()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                pause = self.tick()
            except BaseException as error:  # report it and tick again: the thread must not die, also of a SystemExit
                self._on_error(self.name, error)
                pause = self.after_error
            self._wake.wait(min(max(pause, 0.0), LONGEST))
            self._wake.clear()


# Frames of other threads are taken so that it harms nobody. CPython 3.11 collects garbage wherever it makes an object:
# also within `sys._current_frames()`, which holds the lock of all threads meanwhile, and within `frame.f_back`, between
# the look at a frame and the object made of it. What is freed there may give the interpreter lock away (a socket that
# closes does). Then the next thread that starts, ends or is struck waits for the lock of all threads, with the
# interpreter lock in its hand: the process stands still for ever (python/cpython#106883). Or the frame is gone by then:
# the process crashes. So nothing is collected while frames are taken, and no other thread runs: what switches the
# collector off and on again, and all in between, is one call that stays in C.
_current_frames: Iterable[Callable[[], dict[int, FrameType]]] = (sys._current_frames,)


def uncollected(steps: Iterable[T]) -> list[T]:
    """What ``steps`` give, which are lazy and of C alone: nothing is collected between the first and the last, and no
    other thread runs. A collector that was off before stays off."""
    was_on: list[bool] = []
    first: Iterator[Any] = chain(map(was_on.append, map(call, (gc.isenabled,))), map(call, (gc.disable,)))
    last: Iterator[Any] = map(call, compress((gc.enable,), was_on))
    found: list[T] = []
    try:
        any(chain(first, map(found.append, steps), last))  # each of these gives None
    finally:
        any(last)  # steps that raised; else it has been
    return found


def stack_of(thread_id: int) -> Stack:
    """Where a thread stands now; empty when it is gone."""
    return uncollected(_outwards(map(dict.get, map(call, _current_frames), (thread_id,))))


def stack_from(frame: FrameType) -> Stack:
    """A frame and those that called it."""
    return uncollected(_outwards(iter((frame,))))


def _outwards(innermost: Iterator[FrameType | None]) -> Iterator[tuple[FrameType, int]]:
    frames: Any = takewhile(truth, accumulate(chain(innermost, repeat("f_back")), getattr))  # type: ignore[arg-type]
    one, again = tee(frames)
    return zip(one, map(attrgetter("f_lasti"), again), strict=False)


def thread_ids() -> list[int]:
    """The ids of all threads."""
    [frames] = uncollected(map(call, _current_frames))
    return list(frames)


def local(frame: FrameType, name: str) -> Any:
    """What a variable of a frame of another thread is; None where there is none."""
    [found] = uncollected(map(attrgetter("f_locals"), (frame,)))
    return found.get(name)
