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
from collections.abc import Callable, Iterable, Iterator

from henchman.worker.run import TINY, Run, Slot

__all__ = ["Pool"]

_places = itertools.count()  # on the board that the supervisor reads: one for each thread of this process
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


class Pool:
    """``size`` slots. ``execute(slot, run)`` runs a sync job in this thread; ``launch(run)`` starts an async one."""

    def __init__(self, size: int, execute: Callable[[Slot, Run], None], launch: Callable[[Run], None]) -> None:
        self.size = size
        self.free = size
        self.low_water = 0
        self.hold_tasks = False  # the event loop is blocked: no more for it
        self.on_defect: Callable[[BaseException], None] = lambda error: None
        self.on_room: Callable[[], None] = lambda: None  # the first slot is free, or the buffer is down to low_water
        self._execute = execute
        self._launch = launch
        self._threads: deque[Run] = deque()
        self._tasks: deque[Run] = deque()
        self._lock = threading.Lock()
        self._idle: list[Slot] = []
        self.slots: list[Slot] = []
        self.tasks: set[Run] = set()
        self._starts = 0
        self._seen_starts = 0
        self._stopping = False

    @property
    def waiting(self) -> int:
        """Runs that were fetched and have not started."""
        return len(self._threads) + len(self._tasks)

    def waiting_bytes(self) -> int:
        """How long their payloads are."""
        return sum([len(run.unit.payload) for buffer in (self._threads, self._tasks) for run in list(buffer)])

    @property
    def busy(self) -> int:
        """Slots in use."""
        return self.size - self.free

    @property
    def started(self) -> int:
        """Jobs started in the life of this process."""
        return self._starts

    def running(self) -> Iterator[tuple[str, Run]]:
        """(slot name, run) of every job that runs now."""
        for slot in list(self.slots):
            run = slot.run
            if run is not None:
                yield slot.name, run
        for run in list(self.tasks):
            yield f"t{id(run):x}"[-10:], run

    def put(self, runs: Iterable[Run]) -> None:
        """Take runs, oldest first, and start as many as is sensible."""
        for run in runs:
            run.pool = self
            (self._tasks if run.compiled.is_async else self._threads).append(run)
        with self._lock:
            self._dispatch()

    def _dispatch(self) -> None:
        """Start what should be started; under the lock."""
        while self.free and self._tasks and not self.hold_tasks:
            self.free -= 1
            self._launch_next(self._tasks.popleft())
        if self.free and self._threads and (self.seats_busy() == 0 or not _cheap(self._threads[0])):
            for _ in range(min(self.free, 1 if _cheap(self._threads[0]) else len(self._threads))):
                self._wake_thread()

    def seats_busy(self) -> int:
        """Slots that threads use."""
        return self.size - self.free - len(self.tasks)

    def _launch_next(self, run: Run) -> None:
        self.tasks.add(run)
        self._starts += 1
        self._launch(run)

    def _wake_thread(self) -> None:
        """Give a slot to an idle thread, or to a new one; under the lock."""
        self.free -= 1
        if self._idle:
            self._idle.pop().wake.release()
            return
        slot = Slot(_base36(len(self.slots) + 1), next(_places))
        self.slots.append(slot)
        threading.Thread(target=self._work, args=[slot], name=f"henchman-job-{slot.name}", daemon=True).start()

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
                    return
                continue
            self._starts += 1
            waiting = len(self._threads)
            if waiting and waiting == self.low_water:
                self.on_room()
            if waiting and self.free and not _cheap(run):
                with self._lock:
                    if self.free and self._threads:
                        self._wake_thread()
            try:
                self._execute(slot, run)
            except BaseException as error:  # a thread that ends would take its slot with it
                self.on_defect(error)

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
            self.on_room()
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
            self.on_room()

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
        """When the oldest waiting run was fetched, if every slot is busy; None otherwise (``time.monotonic``)."""
        with self._lock:
            if self.hold_tasks and self._tasks:
                return self._tasks[0].unit.fetched_at
            heads = [buffer[0].unit.fetched_at for buffer in (self._threads, self._tasks) if buffer]
            return min(heads) if heads and not self.free else None

    def take_back(self) -> list[Run]:
        """Every run that has not started, oldest first; they will not be started here."""
        with self._lock:
            runs = [*_drained(self._threads), *_drained(self._tasks)]
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
