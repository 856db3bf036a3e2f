"""Frames of other threads, taken so that it harms nobody.

CPython 3.11 collects garbage wherever it makes an object: also within ``sys._current_frames()``, which holds the lock
of all threads meanwhile, and within ``frame.f_back``, between the look at a frame and the object made of it. What is
freed there may give the interpreter lock away (a socket that closes does). Then the next thread that starts, ends or
is struck waits for the lock of all threads, with the interpreter lock in its hand: the process stands still for ever
(python/cpython#106883). Or the frame is gone by then: the process crashes.

So nothing is collected while frames are taken, and no other thread runs: what switches the collector off and on again,
and all in between, is one call that stays in C.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, compress, repeat, takewhile, tee
from operator import attrgetter, call, truth
from types import FrameType
from typing import Any, TypeVar

__all__ = ["Stack", "local", "stack_from", "stack_of", "threads", "uncollected"]

T = TypeVar("T")

#: A frame and those that called it, with the step (``f_lasti``) at which each stands: innermost first.
Stack = list[tuple[FrameType, int]]

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


def threads() -> list[int]:
    """The ids of all threads."""
    [frames] = uncollected(map(call, _current_frames))
    return list(frames)


def local(frame: FrameType, name: str) -> Any:
    """What a variable of a frame of another thread is; None where there is none."""
    [found] = uncollected(map(attrgetter("f_locals"), (frame,)))
    return found.get(name)
