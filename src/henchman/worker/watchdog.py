"""Watches running jobs: time-outs, what stands still, and stacks for people.

The watchdog raises ``JobTimeout`` at the deadline and gives up on a job that ignores it for ``grace`` seconds. It
sleeps while no job with a time-out runs.

``strike`` raises an exception in the thread of a job, at a place where that does no harm.
``PyThreadState_SetAsyncExc`` raises between any two steps of Python: also after ``lock.acquire()`` and before the
``try`` that would release it. ``logging``, ``import``, ``queue`` and ``threading`` have such places, and a lock of
theirs that stays locked stops every thread of the process. So ``strike`` looks at the thread's frames first, and the
watchdog tries again every 10 ms while they say no.

The look and the raising are one step. A thread that does not hold the interpreter lock stands either between two steps
of Python, where the exception comes at once, or in a call of C code, after which it comes. So what the frames say holds
as long as no other thread runs in between. Steps of Python may give the interpreter lock away; a call that stays in C
and collects no garbage does not. ``_raise_where_seen`` looks again, compares and raises in one such call.

``Standstill`` finds that every thread with a job waits for a lock that nobody gives back: a job that was struck may
leave a lock of its own, or of a driver, locked. The process looks alive, for its heart beats.
"""

from __future__ import annotations

import dis
import heapq
import inspect
import itertools
import math
import operator
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from itertools import chain, compress, dropwhile, starmap
from pathlib import Path
from types import CodeType
from typing import Literal, NamedTuple

from henchman.client.runtime import Runtime
from henchman.errors import JobTimeout
from henchman.kernel.text import visible
from henchman.kernel.threads import Stack, Ticker, local, stack_from, stack_of, thread_ids, uncollected
from henchman.worker.run import Run, Slot, task_name

__all__ = [
    "AFTER_STRIKE",
    "Standstill",
    "Watchdog",
    "calm",
    "dump",
    "file_name",
    "frames_of",
    "steps_calling",
    "strike",
    "thread_stacks",
]

Strike = Callable[[Slot, Run, type[BaseException]], str]

AGAIN = 0.01  # seconds until a job is tried again that stood where nothing may be raised
LONGEST = 0.003  # seconds; after that others may have the processor for AGAIN


class _Entry(NamedTuple):
    """At ``when`` raise ``error`` in ``slot``, or give the run up: without a slot, and at ``until``."""

    when: float
    number: int
    run: Run
    slot: Slot | None
    error: type[BaseException]
    until: float


class Watchdog(Ticker):
    """A heap of deadlines. ``on_abandon(run)`` is called once for a run that outlives its time-out by ``grace``."""

    name = "watchdog"

    def __init__(
        self,
        strike: Strike,
        on_abandon: Callable[[Run], None],
        on_error: Callable[[str, BaseException], None],
        grace: float = 30.0,
    ) -> None:
        super().__init__(on_error)
        self.grace = grace
        self.struck = 0  # how many jobs were
        self._strike = strike
        self._on_abandon = on_abandon
        self._heap: list[_Entry] = []
        self._runs: set[Run] = set()
        self._number = itertools.count()
        self._rested = 0.0
        self._lock = threading.Lock()

    def watch(self, run: Run, slot: Slot | None) -> None:
        """Watch ``run``, which has a deadline. Async runs strike themselves: they are only watched for the end."""
        if run.deadline is None:
            return
        first = run.deadline if slot is not None else run.deadline + self.grace
        self._add(first, run, slot, JobTimeout, first + self.grace)

    def strike(self, run: Run, slot: Slot, error: type[BaseException]) -> None:
        """Raise ``error`` in the job as soon as that is safe, for as long as it takes."""
        self._add(time.monotonic(), run, slot, error, math.inf)

    def _add(self, when: float, run: Run, slot: Slot | None, error: type[BaseException], until: float) -> None:
        with self._lock:
            self._runs.add(run)
            soonest = not self._heap or when < self._heap[0].when
            heapq.heappush(self._heap, _Entry(when, next(self._number), run, slot, error, until))
            if len(self._heap) > 1000 + 2 * len(self._runs):  # mostly runs that are over: keep what still runs
                self._heap = [entry for entry in self._heap if entry.run in self._runs]
                heapq.heapify(self._heap)
        if soonest:
            self.wake()

    def forget(self, run: Run) -> None:
        """The run is over."""
        with self._lock:
            self._runs.discard(run)

    def tick(self) -> float:
        """Strike whatever is due; seconds until the next deadline."""
        while True:
            now = time.monotonic()
            with self._lock:
                while self._heap and self._heap[0].run not in self._runs:
                    heapq.heappop(self._heap)
                if not self._heap or self._heap[0].when > now:
                    return self._heap[0].when - now if self._heap else 3600.0
                due = heapq.heappop(self._heap)
            then = self._due(due, now)
            if then is not None:
                with self._lock:
                    heapq.heappush(self._heap, then)

    def _insist(self, slot: Slot, run: Run, error: type[BaseException], now: float) -> str:
        """Look again and again for ``LONGEST`` seconds, and let the job go on for a few steps only between two looks.

        A thread gives the interpreter lock away where it waits, and what waits is in ``logging`` for instance, each
        time that somebody looks. Only in between it is where it may be struck.
        """
        if now < self._rested:
            return "later"
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            while (said := self._strike(slot, run, error)) == "later" and time.monotonic() < now + LONGEST:
                time.sleep(0)  # the interpreter lock, given and asked for again
            return said
        finally:
            sys.setswitchinterval(before)
            self._rested = time.monotonic() + AGAIN

    def _due(self, entry: _Entry, now: float) -> _Entry | None:
        """Strike, or give up; what is to be done about this run after that, and when."""
        run, slot = entry.run, entry.slot
        if slot is None or now >= entry.until:
            self.forget(run)
            self._on_abandon(run)
            return None
        if entry.error is JobTimeout and run.struck is not None:  # a stop was first
            return entry._replace(when=entry.until, slot=None)
        said = self._strike(slot, run, entry.error)
        if said == "later":
            said = self._insist(slot, run, entry.error, now)
        if said == "later":
            return entry._replace(when=now + AGAIN)
        if said == "over":
            self.forget(run)
            return None
        self.struck += 1
        return entry._replace(when=now + self.grace, slot=None) if entry.error is JobTimeout else None


Struck = Literal["struck", "later", "over"]

#: Nothing is raised while one of these modules is anywhere in what the job has called: it may hold a lock, or what is
#: raised is swallowed (weakref), or what it does cannot be done by halves (import).
_WHOLE = (
    *("logging", "warnings", "weakref", "_weakrefset", "henchman.log", "henchman.client.buffer", "henchman.isolation"),
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
_BASE = ("henchman.worker.processor", "henchman.worker.pool", "henchman.supervisor.isolated_main")  # below the job
_RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class AsyncExc(NamedTuple):
    """Raise in a thread, and take back what has not arrived there: each keeps the interpreter lock."""

    set: Callable[[int, type[BaseException]], int]
    clear: Callable[[int, None], int]


@cache
def load() -> AsyncExc:
    """Both, when the first job is struck. They are functions of our own: what others set on those of
    ``ctypes.pythonapi`` is no matter of ours."""
    import ctypes

    where = ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
    return AsyncExc(
        ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(where),
        ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(where),
    )


def strike(slot: Slot, run: Run, error: type[BaseException]) -> Struck:
    """Raise ``error`` in the thread of ``slot``: "struck"; "over" when it does not run ``run`` any more; "later" when
    this is no place for it: try again in a moment. The next log line of the job may be first."""
    load()  # while the job goes on: not under its lock
    with slot.lock:
        if slot.run is not run:
            return "over"
        if run.struck is error:
            return "struck"
        seen = stack_of(slot.thread_id)
        if not _may_be_struck(seen) or not _raise_where_seen(slot.thread_id, seen, error):
            run.late = partial(_here, slot, run, error)
            return "later"
        run.struck, run.late = error, None
        return "struck"


def _here(slot: Slot, run: Run, error: type[BaseException]) -> None:
    """Raise ``error`` from a log call of the job, which is about to take its locks: a job that only ever writes log
    lines is hardly ever seen outside of them."""
    frames = dropwhile(lambda one: _within(str(one[0].f_globals.get("__name__")), _SAYS), stack_from(sys._getframe()))
    if threading.get_ident() != slot.thread_id or not _may_be_struck(list(frames)):
        return
    with slot.lock:
        if slot.run is not run or run.struck is error:
            return
        run.struck, run.late = error, None
    raise error


def calm(slot: Slot) -> None:
    """Take back what was raised in the thread of ``slot`` and has not arrived; under its lock."""
    load().clear(slot.thread_id, None)


def _may_be_struck(seen: Stack) -> bool:
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


def _raise_where_seen(thread_id: int, seen: Stack, error: type[BaseException]) -> bool:
    """Raise ``error`` in a thread if it still stands where ``seen`` says; whether it was raised.

    One call of C functions alone. Outer frames stand still as long as the innermost does, but for generators: another
    frame may have gone on with them.
    """
    innermost, step = seen[0]
    raise_in = load().set
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
        return any(uncollected(starmap(raise_in, compress(((thread_id, error),), map(all, (same,))))))
    except KeyError:
        return False  # the thread is gone


AFTER_STRIKE = 5.0  # seconds of standing still, in a process where a job was struck; in any other ``hang_after``
_OURS = {"logging": ("acquire", "_acquireLock"), "importlib._bootstrap": ("acquire",), "threading": ("__enter__",)}
_SETTLES = "henchman.worker.acker"


class _Place(NamedTuple):
    """Where a thread stood at the last look: its frame by ``id``, the step, and since when (``time.monotonic``)."""

    run: Run | None
    frame: int
    step: int
    since: float
    line: str  # where it waits for a lock; empty when it does something else


class Standstill:
    """``look`` is called each second; ``found`` says whether all that runs stands still."""

    def __init__(self) -> None:
        self._places: dict[Slot, _Place] = {}
        self.found: list[str] = []

    def look(self, slots: Iterable[Slot], limit: float) -> list[str]:
        """Where each thread with a job waits for a lock, when all have done so for ``limit`` seconds; else nothing.

        ``slots``: those in use. A job that has ended is not over before what hears of its end is: death handlers, the
        log.
        """
        now = time.monotonic()
        stacks = {slot: stack for slot in slots if (stack := stack_of(slot.thread_id))}
        self._places = {slot: self._place(slot, stack, now) for slot, stack in stacks.items()}
        places = self._places.values()
        still = bool(places) and all(one.line and now - one.since >= limit for one in places)
        self.found = [f"{_named(one.run)} at {one.line}" for one in places] if still else []
        return self.found

    def _place(self, slot: Slot, stack: Stack, now: float) -> _Place:
        before, run, (frame, step) = self._places.get(slot), slot.run, stack[0]
        if before is not None and before[:3] == (run, id(frame), step):
            return before
        return _Place(run, id(frame), step, now, _lock_waited_for(stack))


def _named(run: Run | None) -> str:
    return "a job that has ended" if run is None else f"{run.name} {run.jid}"


def _lock_waited_for(stack: Stack) -> str:
    """Where in the job ``stack`` waits for a lock without a limit, as ``file:line``; empty when it does not."""
    (frame, step), (caller, _) = stack[0], stack[min(1, len(stack) - 1)]
    code, modules = frame.f_code, [str(one.f_globals.get("__name__")) for one, _ in stack]
    if _SETTLES in modules:  # for who talks to the server: that ends
        return ""
    if code is threading.Condition.wait.__code__:  # for a word of somebody, or for a semaphore
        waits = caller.f_code is threading.Semaphore.acquire.__code__ and local(caller, "timeout") is None
    else:
        waits = code.co_name in _OURS.get(modules[0], ()) or step in _locking(code)
    if not waits:
        return ""
    theirs = next((one for (one, _), module in zip(stack, modules, strict=True) if module not in _OURS), frame)
    return f"{theirs.f_code.co_filename}:{theirs.f_lineno}"


def _locking(code: CodeType) -> set[int]:
    """The steps of a function at which it may wait for a lock of C: in ``with``, or in ``acquire()``."""
    calls = steps_calling(code, "acquire") | steps_calling(code, "__enter__")
    withs = {one.offset for one in dis.get_instructions(code) if one.opname == "BEFORE_WITH"}
    return withs | {step for step, arguments in calls.items() if not arguments}


def frames_of(thread_id: int | None) -> list[str]:
    """Where a thread stands now: ``path:line:in function``, newest frame first; empty when it is gone."""
    return [f"{one.f_code.co_filename}:{one.f_lineno}:in {one.f_code.co_name}" for one, _ in stack_of(thread_id or 0)]


def thread_stacks() -> dict[int, tuple[str, list[str]]]:
    """Name and ``frames_of`` every thread, by its id; of two of one name the second tells its id too."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found: dict[int, tuple[str, list[str]]] = {}
    taken = set[str]()
    for ident in thread_ids():
        name = names.get(ident, str(ident))
        if name in taken:
            name = f"{name} ({ident})"
        taken.add(name)
        found[ident] = (name, frames_of(ident))
    return found


_MOST_IDS = 500  # no claim has more


def file_name(pid: int) -> str:
    """How the file of a process is called; each dump takes the place of the one before."""
    return f"henchman-{pid}-stacks.txt"


def dump(
    runtime: Runtime, identity: str, slots: Iterable[Slot], awaited: Iterable[Run], tasks: dict[str, list[str]]
) -> str:
    """Announce where every thread and task stands, and write it with what runs there into the dump file: its text.

    ``awaited`` are the runs on the event loop, ``tasks`` the stacks of its tasks by name.
    """
    threads = thread_stacks()
    running = {slot.thread_id: run for slot in slots if (run := slot.run) is not None}
    by_task = {task_name(run): run for run in awaited}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines = [f"henchman {identity} at {now}: {len(threads)} threads, {len(tasks)} tasks"]
    for ident, (name, frames) in threads.items():
        lines += _stack("thread", name, frames, running.get(ident))
    for name, frames in tasks.items():
        lines += _stack("task", name, frames, by_task.get(name))
    file = Path(runtime.config.dump_folder or tempfile.gettempdir()) / file_name(os.getpid())
    try:
        _replace(file, "\n".join(lines) + "\n")
    except OSError as error:
        runtime.events.failed("dump", error)
        written = None
    else:
        written = str(file)
    runtime.events.emit("dump", threads=dict(threads.values()), tasks=tasks, file=written)
    return "\n".join(lines)


def _stack(kind: str, name: str, frames: Sequence[str], run: Run | None) -> Iterator[str]:
    yield f"\n== {kind} {visible(name)} =="
    if run is not None:
        yield from _job(run)
    yield from (visible(one) for one in frames or ["<no stack>"])


def _job(run: Run) -> Iterator[str]:
    """What runs, without its arguments: these may be secret."""
    yield visible(f"runs {run.name} {run.jid} from {run.queue}, attempt {run.attempt}, for {run.elapsed:.1f} s")
    if run.token is not None:
        ids = list(run.args[0])
        shown = ", ".join(visible(str(one)) for one in ids[:_MOST_IDS])
        yield f"token {run.token}, {len(ids)} {'id' if len(ids) == 1 else 'ids'}: {shown}"


def _replace(file: Path, text: str) -> None:
    """Never through a link that somebody else put there, and readable by us alone: a temporary file, then its name."""
    handle, made = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
        os.replace(made, file)
    except OSError:
        with suppress(OSError):
            os.unlink(made)
        raise
