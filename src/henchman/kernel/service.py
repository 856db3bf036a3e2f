"""The life of every part of a worker: ``start``, ``quiet``, ``stop(deadline)``, meaning the same in each.

All sleeping is one interruptible wait. Double start, double stop and stop before start are harmless.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

LONGEST = 3600.0  # seconds between two ticks: threads cannot wait for as long as a payload may say


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
            self._thread = threading.Thread(target=self.run, name=f"henchman-{self.name}", daemon=True)
            self._thread.start()

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
            except Exception as error:  # a tick that fails is told and tried again; the thread must not die
                self._on_error(self.name, error)
                pause = self.after_error
            self._wake.wait(min(max(pause, 0.0), LONGEST))
            self._wake.clear()
