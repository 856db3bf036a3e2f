"""Keeps a worker process alive in the eyes of others: its lease on the server, its sign of life for the supervisor.

Nothing else is done on this thread: neither waits for a beat that takes long (a server far away, many queues).
"""

from __future__ import annotations

from collections.abc import Callable

from henchman.client.runtime import Runtime
from henchman.errors import LeaseLost, ServerAway
from henchman.kernel.clock import awake
from henchman.kernel.threads import Ticker
from henchman.worker.manager import Manager
from henchman.worker.session import LeaseSession

__all__ = ["Renewal"]

PULSE = 1.0


class Renewal(Ticker):
    """Ticks each second, and calls ``pulse()`` then; renews the lease six times within its length, at each beat at
    least. Says when the server goes and when it is back."""

    name = "heart"

    def __init__(self, runtime: Runtime, manager: Manager, session: LeaseSession, pulse: Callable[[], None]) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self._manager = manager
        self._session = session
        self._pulse = pulse
        self._every = min(runtime.config.heartbeat, runtime.config.lease / 6)
        self._next = 0.0
        self._failures = 0
        self._away_since: float | None = None
        self.round_trip = 0.0  # seconds that the last renewal took

    @property
    def away(self) -> bool:
        """Whether the server could not be reached at the last renewal."""
        return self._away_since is not None

    def tick(self) -> float:
        """Show that we live; renew when it is time."""
        self._pulse()
        now = awake()
        if now >= self._next:
            self._next = now + self._every
            try:
                self._renew(now)
            except LeaseLost:
                for fetcher in self._manager:
                    fetcher.buried(self._session.identity)
            except ServerAway as error:
                self._away(error, now)
            else:
                self._back(now)
        return min(PULSE, max(0.0, self._next - awake()))

    def _renew(self, now: float) -> None:
        self._session.renew()
        self.round_trip = awake() - now

    def _away(self, error: ServerAway, now: float) -> None:
        self._failures += 1
        if self._away_since is None:
            self._away_since = now
        self._next = now + min(PULSE, self._every)
        self._runtime.events.emit("server_away", part="heart", error=error, failures=self._failures)

    def _back(self, now: float) -> None:
        if self._away_since is not None:
            self._runtime.events.emit("server_back", part="heart", downtime=now - self._away_since)
            self._away_since, self._failures = None, 0
