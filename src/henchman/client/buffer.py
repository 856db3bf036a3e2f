"""Plain jobs that could not be pushed because the server is away, kept in memory until it is back.

What it does not do comes first: a buffered job is not accepted. It lives in this process alone and dies with it; only
at an orderly end is its delivery tried for some seconds more, and what remains is reported. It keeps nothing but what
is proven not to have been executed, and delivers it in order, each exactly once (``deliver.lua`` knows the mark of a
delivery whose answer was lost).
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from itertools import islice

from henchman.client.runtime import Runtime
from henchman.errors import ServerAway
from henchman.kernel.clock import capped_backoff
from henchman.kernel.text import count
from henchman.store.jobs import Delivery, deliver
from henchman.wire.payload import decode, new_jid, with_delay

__all__ = ["EXIT_LIMIT", "Buffer"]

EXIT_LIMIT = 5.0  # seconds that the end of the process waits for the server
BYTES_MOST = 64_000_000  # of payloads, however few they are
PAUSE_MOST = 2.0  # seconds between two tries
URGENT_PAUSE = 0.2
_SLICE_JOBS = 500
_SLICE_BYTES = 4_000_000
_SHOWN = 10


class Buffer:
    """The buffer of one app; it holds at most ``config.buffer`` jobs, 0 none.

    Thread-safe. A forked child starts with an empty one: what its parent holds, the parent delivers.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._notice = runtime.notice
        self._at_exit = False
        self._start_empty()
        itself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forked(itself))

    def _start_empty(self) -> None:
        self._lock = threading.Condition()
        self._delivering = threading.Lock()
        self._bell = threading.Event()
        self.held: deque[tuple[Delivery, float]] = deque()  # with the moment (monotonic) at which it was kept
        self._bytes = 0
        self._slice = ("", 0)  # the mark, and the number of jobs at the head, that are on their way under it
        self._thread: threading.Thread | None = None
        self._urgent = False
        self._failures = 0
        self._refused = False
        self._retry_at = 0.0
        self._since = 0.0
        self._delivered = 0

    @property
    def waiting(self) -> int:
        """How many jobs are kept; what is pushed meanwhile belongs behind them."""
        return len(self.held)

    @property
    def due(self) -> bool:
        """Whether it is time for another try; else ``clear`` answers without one."""
        return time.monotonic() >= self._retry_at

    @property
    def passable(self) -> bool:
        """Whether a push need not go behind what is kept: nothing is, or the server is there and refuses it."""
        return not self.held or self._refused

    def keep(self, entries: Sequence[Delivery], error: ServerAway | None) -> None:
        """Keep jobs whose push failed with ``error`` (None: they wait behind others).

        Raises ``error``, or a ServerAway that says so, when they do not all fit.
        """
        size = sum(len(one.payload) for one in entries)
        with self._lock:
            first = not self.held
            fits = len(self.held) + len(entries) <= self._runtime.config.buffer and self._bytes + size <= BYTES_MOST
            if not fits or not self._carried_by_a_thread():
                raise error or ServerAway(f"the server is away and {len(self.held):,} jobs wait", executed=False)
            now = time.monotonic()
            self.held.extend((one, now) for one in entries)
            self._bytes += size
            if first:
                self._since, self._delivered = now, 0
                self._wait_longer()
        if first:
            self._notice(
                "the server is away: up to %s jobs are kept in memory until it is back: %s",
                self._runtime.config.buffer,
                error,
            )

    def clear(self) -> bool:
        """Deliver what is kept, unless a try failed a moment ago; then whether it is ``passable``."""
        if self.due and self._delivering.acquire(blocking=False):
            try:
                self._deliver_all()
            finally:
                self._delivering.release()
        return self.passable

    def flush(self, limit: float = EXIT_LIMIT) -> list[bytes]:
        """Try for up to ``limit`` seconds to get rid of everything; the payloads that are left."""
        deadline = time.monotonic() + limit
        with self._lock:
            self._urgent = True
            self._bell.set()
            while self.held and time.monotonic() < deadline:
                self._lock.wait(deadline - time.monotonic())
            self._urgent = False
            return [one.payload for one, _ in self.held]

    def _carried_by_a_thread(self) -> bool:
        """Whether somebody tries again by himself; under the lock. False when the interpreter is ending."""
        if self._thread is None:
            thread = threading.Thread(target=self._body, name="henchman-buffer", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        if not self._at_exit:
            self._at_exit = True
            atexit.register(self._finish)
        return True

    def _body(self) -> None:
        """Try again and again, with pauses, until nothing is left."""
        while True:
            self._bell.wait(URGENT_PAUSE if self._urgent else max(0.01, self._retry_at - time.monotonic()))
            self._bell.clear()
            with self._delivering:
                self._deliver_all()
            with self._lock:
                if not self.held:
                    self._thread = None
                    return

    def _deliver_all(self) -> None:
        """Slice by slice, in order; only one thread is in here."""
        while self.held:
            mark, entries = self._next_slice()
            try:
                statuses = self._runtime.connections.run(deliver(self._runtime.keys, mark, entries))
            except ServerAway:
                self._refused = False
                return self._wait_longer()
            except Exception as error:  # refused as a whole, or a defect of ours: it must not end the trying
                if not self._refused:
                    self._notice("kept in memory, cannot be delivered: %s: %r", count(len(self.held), "job"), error)
                self._refused = True
                return self._wait_longer()
            self._settled(entries, statuses)
        return None

    def _next_slice(self) -> tuple[str, list[Delivery]]:
        """The head of the buffer; the same jobs under the same mark until it is known that they arrived."""
        with self._lock:
            mark, count = self._slice
            if not count:
                size = 0
                for one, _ in self.held:
                    size += len(one.payload)
                    count += 1
                    if count == _SLICE_JOBS or size >= _SLICE_BYTES:
                        break
                mark = new_jid()
                self._slice = (mark, count)
            now = time.monotonic()
            head = islice(self.held, count)
            return mark, [_waited(one, now - since) if one.delay else one for one, since in head]

    def _settled(self, entries: Sequence[Delivery], statuses: Sequence[int | bytes]) -> None:
        refused = [(one, why) for one, why in zip(entries, statuses, strict=False) if why != 1]
        with self._lock:
            for _ in entries:
                self._bytes -= len(self.held.popleft()[0].payload)
            self._slice = ("", 0)
            self._failures, self._retry_at, self._refused = 0, 0.0, False
            self._delivered += len(entries) - len(refused)
            over = not self.held
            self._lock.notify_all()
        for one, why in refused:
            self._notice("a job that was kept in memory is lost, the server refused it: %s: %r", _jid(one.payload), why)
        if over:
            away = time.monotonic() - self._since
            delivered = count(self._delivered, "job")
            self._notice("the server is back after %.1f s; delivered from memory: %s", away, delivered)

    def _wait_longer(self) -> None:
        self._failures += 1
        self._retry_at = time.monotonic() + capped_backoff(self._failures, most=PAUSE_MOST)

    def _finish(self) -> None:
        """The process ends."""
        left = self.flush() if self.held else []
        if left:
            jids = ", ".join(map(_jid, left[:_SHOWN])) + (", …" if len(left) > _SHOWN else "")
            self._notice("the server did not come back; lost from memory: %s (%s)", count(len(left), "job"), jids)


def _waited(one: Delivery, seconds: float) -> Delivery:
    """A delayed job as it is delivered after so many seconds in the buffer."""
    delay = max(0.0, one.delay - seconds)
    return one._replace(delay=delay, payload=with_delay(one.payload, delay))


def _forked(itself: weakref.ref[Buffer]) -> None:
    buffer = itself()
    if buffer is not None:
        buffer._start_empty()


def _jid(payload: bytes) -> str:
    return str(decode(payload).get("jid"))
