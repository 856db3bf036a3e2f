"""Raises an exception in the thread of a job, at a place where that does no harm.

``PyThreadState_SetAsyncExc`` raises between any two steps of Python: also after ``lock.acquire()`` and before the
``try`` that would release it. ``logging``, ``import``, ``queue`` and ``threading`` have such places, and a lock of
theirs that stays locked stops every thread of the process. So the thread's frames are looked at first, and whoever
wants to strike tries again a moment later when they say no.

The look and the raising are one step. A thread that does not hold the interpreter lock stands either between two steps
of Python, where the exception comes at once, or in a call of C code, after which it comes. So what the frames say holds
as long as no other thread runs in between. Steps of Python may give the interpreter lock away; a call that stays in C
does not. ``_raise_where_seen`` looks again, compares and raises in one such call.
"""

from __future__ import annotations

import ctypes
import dis
import inspect
import operator
import sys
import threading
from functools import partial
from itertools import chain, compress, dropwhile, starmap
from types import CodeType, FrameType
from typing import Literal

from henchman.worker.run import Run, Seat

__all__ = ["calm", "steps_calling", "strike"]

Struck = Literal["struck", "later", "over"]

#: Nothing is raised while one of these modules is anywhere in what the job has called: it may hold a lock, or what is
#: raised is swallowed (weakref), or what it does cannot be done by halves (import).
_WHOLE = (
    *("logging", "warnings", "weakref", "_weakrefset", "henchman.log", "henchman.client.buffer"),
    *("importlib", "_frozen_importlib", "_frozen_importlib_external"),
)
#: Nothing is raised while one of these is where the thread stands: their locks have a ``__enter__`` in Python, between
#: whose last step and the ``with`` an exception finds nobody to let go. What they wait for may be cut off. Of a lock of
#: C, taken by ``with``, nothing needs to be known: there is no step between.
_STEP = (
    *("threading", "_threading_local", "queue", "contextlib", "concurrent.futures"),
    *(f"multiprocessing.{name}" for name in ("synchronize", "queues", "pool", "heap", "util", "resource_tracker")),
)
_SAYS = ("logging", "henchman.log", __name__)  # on the way from a log call to ``_here``
#: As long as a new thread has not run its first step, it goes by the id of the one that starts it, and is struck first.
_NEVER = (threading.Thread.start.__code__,)
_BASE = ("henchman.worker.processor", "henchman.worker.pool")  # below the job
_RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

# Functions of our own: what others set on those of ``ctypes.pythonapi`` is no matter of ours. They keep the lock.
_raise_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)
_clear_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


def strike(seat: Seat, run: Run, error: type[BaseException]) -> Struck:
    """Raise ``error`` in the thread of ``seat``: "struck"; "over" when it does not run ``run`` any more; "later" when
    this is no place for it: try again in a moment. The next log line of the job may be first."""
    with seat.lock:
        if seat.run is not run:
            return "over"
        if run.struck is error:
            return "struck"
        seen = _frames(sys._current_frames().get(seat.thread_id))
        if not _may_be_struck(seen) or not _raise_where_seen(seat.thread_id, seen, error):
            run.late = partial(_here, seat, run, error)
            return "later"
        run.struck, run.late = error, None
        return "struck"


def _here(seat: Seat, run: Run, error: type[BaseException]) -> None:
    """Raise ``error`` from a log call of the job, which is about to take its locks: a job that only ever writes log
    lines is hardly ever seen outside of them."""
    frames = dropwhile(lambda one: _within(str(one[0].f_globals.get("__name__")), _SAYS), _frames(sys._getframe()))
    if threading.get_ident() != seat.thread_id or not _may_be_struck(list(frames)):
        return
    with seat.lock:
        if seat.run is not run or run.struck is error:
            return
        run.struck, run.late = error, None
    raise error


def calm(seat: Seat) -> None:
    """Take back what was raised in the thread of ``seat`` and has not arrived; under its lock."""
    _clear_in(seat.thread_id, None)


Seen = list[tuple[FrameType, int]]


def _frames(frame: FrameType | None) -> Seen:
    """A frame and those that called it, with the step at which each stands: innermost first."""
    seen = []
    while frame is not None:
        seen.append((frame, frame.f_lasti))
        frame = frame.f_back
    return seen


def _may_be_struck(seen: Seen) -> bool:
    """Whether these frames are in the middle of a job, and of nothing that must not be broken off."""
    for depth, (frame, step) in enumerate(seen):
        module = frame.f_globals.get("__name__")
        if not isinstance(module, str):
            continue
        if module in _BASE:
            return depth > 0
        if frame.f_code in _NEVER or frame.f_code.co_name == "__del__" or _within(module, _WHOLE):
            return False
        if depth == 0 and _within(module, _STEP) and step not in _WAITS.get(frame.f_code, ()):
            return False
    return False  # not in a job: in a generator that nobody runs, or gone


def _within(module: str, names: tuple[str, ...]) -> bool:
    return module.startswith(names) and any(module == name or module.startswith(f"{name}.") for name in names)


def steps_calling(code: CodeType, method: str) -> dict[int, int]:
    """The steps of ``code`` at which it calls ``<something>.method(…)``, as ``f_lasti`` gives them: the number of
    arguments of each."""
    found, wanted = {}, False
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_METHOD", "LOAD_ATTR", "LOAD_SPECIAL"):
            wanted = one.argval == method or one.argrepr == method
        elif wanted and one.opname in ("CALL", "CALL_KW"):
            found[one.offset] = one.arg or 0
            wanted = False
    return found


def _waiting_steps() -> dict[CodeType, frozenset[int]]:
    """Where ``threading`` waits, for long perhaps, within a ``try`` that cleans up: there a job may be struck."""
    wait = threading.Condition.wait.__code__
    acquires = sorted(steps_calling(wait, "acquire"))
    found = {wait: frozenset(acquires[1:])}  # the first is of a lock that nobody knows yet
    for name, method in (("_wait_for_tstate_lock", "acquire"), ("join", "join")):
        function = getattr(threading.Thread, name, None)
        if function is not None:
            found[function.__code__] = frozenset(steps_calling(function.__code__, method))
    return found


_WAITS = _waiting_steps()


def _raise_where_seen(thread_id: int, seen: Seen, error: type[BaseException]) -> bool:
    """Raise ``error`` in a thread if it still stands where ``seen`` says; whether it was raised.

    One call of C functions alone. Outer frames stand still as long as the innermost does, but for generators: another
    frame may have gone on with them.
    """
    innermost, step = seen[0]
    resumable = [frame for frame, _ in seen if frame.f_code.co_flags & _RESUMABLE]
    below = dict(zip((frame for frame, _ in seen), (frame for frame, _ in seen[1:]), strict=False))
    now = chain(
        map(operator.itemgetter(thread_id), starmap(sys._current_frames, ((),))),
        map(operator.attrgetter("f_lasti"), (innermost,)),
        map(operator.attrgetter("f_back"), resumable),
    )
    then = (innermost, step, *map(below.get, resumable))
    same = map(operator.eq, now, then)
    try:
        return bool(sum(starmap(_raise_in, compress(((thread_id, error),), map(all, (same,))))))
    except KeyError:
        return False  # the thread is gone
