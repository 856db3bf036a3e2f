"""What belongs to one capsule in a process: its slots, and who fills them; and all capsules of a process together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from henchman.worker.capsule import Capsule
from henchman.worker.fetcher import Fetcher
from henchman.worker.pool import Pool
from henchman.worker.run import Run, Slot

__all__ = ["Feed", "Manager"]


class Feed(NamedTuple):
    """One capsule at work."""

    capsule: Capsule
    pool: Pool
    fetcher: Fetcher


class Manager(list[Feed]):
    """Every capsule of a process."""

    def running(self) -> list[Run]:
        """The runs of every slot that is in use."""
        return [run for feed in self for _, run in feed.pool.running()]

    def busy(self) -> int:
        """Slots in use."""
        return sum(feed.pool.busy for feed in self)

    def started(self) -> int:
        """Jobs started in the life of this process."""
        return sum(feed.pool.started for feed in self)

    def ring(self) -> None:
        """What may be fetched has changed."""
        for feed in self:
            feed.fetcher.ring()

    def look(self) -> None:
        """Let everybody look into the queues now."""
        for feed in self:
            feed.fetcher.look()

    def set_paused(self, queues: frozenset[str]) -> None:
        """These queues are paused, and no others."""
        unpaused = any(feed.fetcher.paused - queues for feed in self)
        for feed in self:
            feed.fetcher.paused = queues
        if unpaused:
            self.look()

    def pause(self, queue: str) -> None:
        """Nothing starts from ``queue`` any more; what was fetched and has not started goes back."""
        for feed in self:
            feed.fetcher.paused |= {queue}
            feed.fetcher.give_back()

    def unpause(self, queue: str) -> None:
        """Work on ``queue`` goes on."""
        for feed in self:
            feed.fetcher.paused -= {queue}
        self.look()

    def hold_tasks(self, blocked: bool) -> None:
        """The event loop is blocked, or turns again."""
        for feed in self:
            feed.pool.hold(blocked)

    def slots(self) -> list[Slot]:
        """Every thread's."""
        return [slot for feed in self for slot in feed.pool.slots]

    def tasks(self) -> list[Run]:
        """Every run on the event loop."""
        return [run for feed in self for run in list(feed.pool.tasks)]

    def wait_idle(self, timeout: float, hopeless: Callable[[], object] = lambda: False) -> bool:
        """Wait until nothing runs, at most ``timeout`` seconds and no longer than it is not ``hopeless``; True when
        so."""
        deadline = time.monotonic() + timeout
        return all(feed.pool.wait_idle(max(deadline - time.monotonic(), 0.0), hopeless) for feed in self)
