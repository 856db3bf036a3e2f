"""A worker inside one's own process: a web server, a notebook, a test. Touches no signals.

What it cannot do: there is no supervisor. The heart alone keeps the lease, so code that holds the interpreter lock for
longer than the lease loses its jobs to others; a job that ignores its time-out keeps its thread; and after a fork only
the parent has the worker.
"""

from __future__ import annotations

import atexit
import os
from types import TracebackType
from typing import Any, Self

from henchman.errors import ConfigError
from henchman.worker.capsule import capsules_of
from henchman.worker.host import Host
from henchman.worker.launcher import Launcher

__all__ = ["Embedded"]

AT_EXIT = 5.0


class Embedded:
    """A worker for ``host`` with some settings of its own; use it with ``with``, or call ``start`` and ``stop``."""

    def __init__(self, host: Host, settings: dict[str, Any]) -> None:
        config = host.config.with_arguments(**settings)
        if config.processes != 1:
            raise ConfigError(
                f"processes = {config.processes}: an embedded worker is part of this process; leave it out"
            )
        self._grace = config.shutdown_timeout
        self._launcher = Launcher(host, capsules_of(config, host.registry.queues()), embedded=True)
        self._started = False
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<embedded worker {self.identity or 'that was not started'}>"

    @property
    def identity(self) -> str:
        """The name of this worker in process lists; empty before the start."""
        return self._launcher.flights.identity

    def start(self) -> None:
        """Start it; nothing happens when it runs. ServerAway when the server cannot be reached."""
        if not self._started:
            try:
                self._launcher.start()
            except BaseException:
                self._launcher.stop(0.0)
                raise
            self._started = True
            atexit.register(self.stop, AT_EXIT)

    def quiet(self) -> None:
        """Take no new work; what runs goes on. Cannot be undone."""
        self._launcher.quiet()

    def fetching(self) -> bool:
        """Whether it takes work now: it holds its lease and waits for pushes, or every slot is busy."""
        return self._started and self._launcher.fetching()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop it: running jobs may finish within ``timeout`` seconds, the rest goes back. True when all finished."""
        atexit.unregister(self.stop)
        if not self._started or os.getpid() != self._pid:
            return True
        return self._launcher.stop(self._grace if timeout is None else timeout)
