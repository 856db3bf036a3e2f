"""Slots: room for one running job each, shared by threads (made on demand) and one event loop.

Runs wait in two short buffers, one for either kind. A thread that has finished takes the next run itself; a run is
handed to another thread only when that is worth it: cheap jobs are run in a row by one thread, because a second one
would only fight for the interpreter lock, and a tick wakes another when the first is stuck after all.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from henchman.errors import PayloadError
from henchman.kernel.events import Events
from henchman.kernel.scoreboard import Scoreboard
from henchman.kernel.threads import REFUSED
from henchman.wire.payload import decode, with_delay
from henchman.work.outcome import Outcome
from henchman.work.unit import Unit
from henchman.worker.acker import Acker
from henchman.worker.loop import Loop
from henchman.worker.processor import Processor
from henchman.worker.run import TINY, Run, Slot
from henchman.worker.session import LeaseSession

__all__ = ["Isolation", "Pool"]

ALONE_WITHIN = 30.0  # seconds that a suspect waits for the jobs beside it; then it is put off, for another process
ALONE_STEP = 0.02

LATE_STEP = 0.02  # seconds without an end after which those that wait for a place may be told to wait elsewhere
LATE_FOR = 1.0  # seconds that one of them waits here at most

_places = itertools.count()  # on the board that the supervisor reads: one for each thread of this process
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


class Pool:
    """``size`` slots. ``on_room()`` is called when the first slot gets free, or the buffer is down to ``low_water``."""

    def __init__(
        self, size: int, processor: Processor, loop: Loop, events: Events, on_room: Callable[[], None]
    ) -> None:
        self.size = size
        self.free = size
        self.low_water = 0
        self.hold_tasks = False  # the event loop is blocked: no more for it
        self._on_room = on_room
        self._events = events
        self._execute = processor.execute
        self._launch = loop.launch
        self._threads: deque[Run] = deque()
        self._tasks: deque[Run] = deque()
        self._late: dict[Run, None] = {}  # they wait for places of limits that others have here, see places.py
        self._late_at = 0.0  # when one of those was last let start
        self._lock = threading.Lock()
        self._idle: list[Slot] = []
        self.slots: list[Slot] = []
        self.tasks: set[Run] = set()
        self._starts = 0
        self._seen_starts = 0
        self._closed = self._stopping = False
        self._is_refused = False  # the system gives us no more threads, and that was announced

    @property
    def waiting(self) -> int:
        """Runs that were fetched and have not started."""
        return len(self._threads) + len(self._tasks)

    @property
    def late(self) -> int:
        """Runs that wait for places of limits which others have here."""
        return len(self._late)

    def waiting_bytes(self) -> int:
        """How long the payloads are of all that wait."""
        buffers = (self._threads, self._tasks, self._late)
        return sum([len(run.unit.payload) for buffer in buffers for run in list(buffer)])

    @property
    def busy(self) -> int:
        """Slots in use."""
        return self.size - self.free

    @property
    def started(self) -> int:
        """Jobs started in the life of this process."""
        return self._starts

    def taken(self) -> list[Slot]:
        """The slots of threads that are not idle: a job runs there, or is about to, or has just ended."""
        idle = set(self._idle)
        return [slot for slot in list(self.slots) if slot not in idle]

    def running(self) -> Iterator[tuple[str, Run]]:
        """(slot name, run) of every job that runs now."""
        for slot in list(self.slots):
            run = slot.run
            if run is not None:
                yield slot.name, run
        for run in list(self.tasks):
            yield f"t{id(run):x}"[-10:], run

    def put(self, runs: Sequence[Run]) -> Sequence[Run]:
        """Take runs, oldest first, and start as many as is sensible. Those that come after ``close`` are returned."""
        with self._lock:
            if self._closed:
                return runs
            for run in runs:
                if run.compiled.is_async:
                    run.pool = self
                    self._tasks.append(run)
                else:
                    self._threads.append(run)
            self._dispatch()
        return ()

    def keep(self, runs: Sequence[Run]) -> Sequence[Run]:
        """Take runs that may not start yet: ``put`` what ``take_late`` gave. Those after ``close`` are returned."""
        with self._lock:
            if self._closed:
                return runs
            if not self._late:
                self._late_at = time.monotonic()
            for run in runs:
                run.pool = self
                self._late[run] = None
        return ()

    def take_late(self, run: Run) -> bool:
        """Take out one that is kept; False when it is here no longer, or goes back in a moment."""
        if self._closed or self._late.pop(run, 0) is not None:
            return False
        self._late_at = time.monotonic()
        if len(self._late) == self.low_water:
            self._on_room()
        return True

    def close(self) -> None:
        """Take nothing more: what comes from now on, of a fetch that was under way, would start beside a stop."""
        with self._lock:
            self._closed = True

    def _dispatch(self) -> None:
        """Start what should be started; under the lock."""
        while self.free and self._tasks and not self.hold_tasks:
            self.free -= 1
            self._launch_next(self._tasks.popleft())
        head = _first(self._threads) if self.free else None
        if head is not None and (self.size - self.free == len(self.tasks) or not _cheap(head)):  # no thread is busy
            for _ in range(min(self.free, 1 if _cheap(head) else len(self._threads))):
                self._wake_thread()

    def _launch_next(self, run: Run) -> None:
        self.tasks.add(run)
        self._starts += 1
        self._launch(run)

    def _wake_thread(self) -> None:
        """Give a slot to an idle thread, or to a new one; under the lock."""
        if self._idle:
            self.free -= 1
            self._idle.pop().wake.release()
        else:
            self._new_thread()

    def _new_thread(self) -> None:
        """Make a thread that has a slot. Where the system refuses one, those that live go on; ``tick`` tries again."""
        slot = Slot(_base36(len(self.slots) + 1), next(_places))
        thread = threading.Thread(target=self._work, args=[slot], name=f"henchman-job-{slot.name}", daemon=True)
        self.slots.append(slot)
        self.free -= 1
        try:
            thread.start()
        except REFUSED as error:
            self.slots.remove(slot)
            self.free += 1
            if not self._is_refused:
                self._events.failed("pool", error)
            self._is_refused = True
        else:
            self._is_refused = False

    def _work(self, slot: Slot) -> None:
        """The life of a thread: run what there is, then wait to be woken with a slot."""
        slot.thread_id = threading.get_ident()
        while True:
            try:
                run = self._threads.popleft() if not self._tasks else self._older_head()
            except IndexError:
                run = None
            if run is None:
                if not self._park(slot):
                    self._events.emit("slot_end", slot=slot)
                    return
                continue
            self._starts += 1
            waiting = len(self._threads)
            if waiting and waiting == self.low_water:
                self._on_room()
            if waiting and self.free and not _cheap(run):
                with self._lock:
                    if self.free and self._threads:
                        self._wake_thread()
            try:
                self._execute(slot, run)
            except BaseException as error:  # a thread that ends would take its slot with it
                self._events.failed("processor", error)

    def _older_head(self) -> Run | None:
        """The next run for a thread that holds a slot; None when an async run is older (it gets the slot)."""
        with self._lock:
            if not self._threads:
                return None
            if (
                not self.hold_tasks
                and self._tasks
                and self._tasks[0].unit.fetched_at < self._threads[0].unit.fetched_at
            ):
                return None
            return self._threads.popleft()

    def _park(self, slot: Slot) -> bool:
        """Return the slot and wait for another one; False when the pool stops."""
        with self._lock:
            full = self.free == 0
            self.free += 1
            self._idle.append(slot)
            if not self._stopping:
                self._dispatch()
            room = full and self.free > 0
            if self._stopping:
                return False
        if room:
            self._on_room()
        slot.wake.acquire()
        return not self._stopping

    def task_done(self, run: Run) -> None:
        """An async run has ended: its slot is free."""
        with self._lock:
            self.tasks.discard(run)
            full = self.free == 0
            self.free += 1
            self._dispatch()
            room = full and self.free > 0
        if room or 0 < self.waiting == self.low_water:
            self._on_room()

    def hold(self, tasks: bool) -> None:
        """Start no more async runs, or go on with them."""
        with self._lock:
            self.hold_tasks = tasks
            self._dispatch()

    def tick(self) -> None:
        """Called every few milliseconds while something waits: when nothing has started since, wake one more thread."""
        if self._starts == self._seen_starts and self.free and self._threads:
            with self._lock:
                if self.free and self._threads:
                    self._wake_thread()
        self._seen_starts = self._starts

    def stuck_since(self) -> float | None:
        """When the oldest waiting run was fetched, if every slot is busy; None otherwise (``time.monotonic``). Of those
        that wait for places: since when none could start, or a second after the oldest was fetched."""
        with self._lock:
            if (late := next(iter(self._late), None)) is not None:
                now = time.monotonic()
                if self._late_at < now - LATE_STEP or late.unit.fetched_at < now - LATE_FOR:
                    return min(self._late_at, late.unit.fetched_at + LATE_FOR)
            if self.hold_tasks and self._tasks:
                return self._tasks[0].unit.fetched_at
            heads = [run.unit.fetched_at for run in (_first(self._threads), _first(self._tasks)) if run is not None]
            return min(heads) if heads and not self.free else None

    def take_back(self) -> list[Run]:
        """Every run that has not started, oldest first; they will not be started here."""
        with self._lock:
            late = list(self._late)
            runs = [*_drained(self._threads), *_drained(self._tasks)]
            runs += [run for run in late if self._late.pop(run, 0) is None]
        return sorted(runs, key=lambda run: run.unit.fetched_at)

    def wait_idle(self, timeout: float, hopeless: Callable[[], object] = lambda: False) -> bool:
        """Wait until nothing runs, at most ``timeout`` seconds and not while it is ``hopeless``; True when so."""
        deadline = time.monotonic() + timeout
        while self.free < self.size:
            if time.monotonic() >= deadline or hopeless():
                return False
            time.sleep(0.01)
        return True

    def stop(self) -> None:
        """Let idle threads end."""
        with self._lock:
            self._stopping = True
            for slot in self._idle:
                slot.wake.release()
            self._idle.clear()


class Isolation:
    """Runs suspects with nothing beside them: when such a process dies again, it is known whose fault it was.

    One a process. ``busy()`` counts the slots in use, over every capsule; ``look()`` lets every fetcher look. A suspect
    is read, run and settled before anything else begins. ``waiting``: suspects that wait or run; nothing else may start
    while there is one.
    """

    def __init__(
        self,
        session: LeaseSession,
        acker: Acker,
        board: Scoreboard,
        *,
        busy: Callable[[], int],
        look: Callable[[], None],
    ) -> None:
        self._held = session.held
        self._board = board
        self._acker = acker
        self._busy = busy
        self._look = look
        self.waiting: deque[tuple[Unit, Callable[[Unit], None], float]] = deque()
        self._inside: Unit | None = None
        self._over = 0.0  # when what ran alone was first seen to run no more
        self._lock = threading.Lock()

    def add(self, unit: Unit, start: Callable[[Unit], None]) -> None:
        """A suspect was fetched; ``start(unit)`` reads and starts it, or settles what cannot run."""
        with self._lock:
            self.waiting.append((unit, start, time.monotonic()))
        self._look()

    def step(self) -> float:
        """Start the next suspect when nothing else runs, see whether it has ended; seconds until the next step."""
        with self._lock:
            if self.waiting and not self._busy() and not self._settling():
                if self._inside is not None:
                    self.waiting.popleft()
                    self._inside = None
                    self._board.alone(False)
                if self.waiting:
                    self._inside, start, _ = self.waiting[0]
                    self._over = 0.0
                    self._board.alone(True)
                    start(self._inside)
            elif self.waiting and self._inside is None and time.monotonic() - self.waiting[0][2] > ALONE_WITHIN:
                unit, _, _ = self.waiting.popleft()
                reason = "a suspect: it could not have a process to itself"
                stored = unit.payload if unit.source is not None else _put_off(unit.payload)
                self._acker.submit(unit, Outcome("deferred", stored, ALONE_WITHIN, reason), unit.job)
        if not self.waiting:
            self._look()
        return ALONE_STEP

    def _settling(self) -> bool:
        """Whether what ran alone waits to be settled, and not for so long that the server must be refusing it."""
        self._over = self._over or time.monotonic()
        return self._inside in self._held and time.monotonic() - self._over < ALONE_WITHIN

    def give_up(self) -> list[Unit]:
        """The suspects that have not started; they will not start here."""
        with self._lock:
            kept = 1 if self._inside is not None else 0
            units = [unit for unit, _, _ in list(self.waiting)[kept:]]
            self.waiting = deque(list(self.waiting)[:kept])
        return units


def _first(buffer: deque[Run]) -> Run | None:
    """The next of ``buffer``; None when it is empty: threads take from it without the lock, between any two steps."""
    try:
        return buffer[0]
    except IndexError:
        return None


def _drained(buffer: deque[Run]) -> Iterator[Run]:
    """What ``buffer`` holds, taken out one by one: threads take from it without the lock, and each run is had once."""
    with contextlib.suppress(IndexError):
        while True:
            yield buffer.popleft()


def _cheap(run: Run) -> bool:
    cost = run.compiled.cost
    return cost is not None and cost < TINY


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = _BASE36[rest] + digits
    return digits or "0"


def _put_off(stored: bytes) -> bytes:
    """A suspect for the schedule; the deaths of one without an id are charged to its bytes, which stay."""
    try:
        return with_delay(stored, ALONE_WITHIN) if decode(stored).get("jid") else stored
    except PayloadError:
        return stored
