"""Every capsule of one process together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from henchman.client.runtime import Runtime
from henchman.config.defaults import objectives_of
from henchman.store import fair, queues
from henchman.worker.fetcher import Fetcher
from henchman.worker.run import Run, Slot

__all__ = ["Manager"]


class Manager(list[Fetcher]):
    """The fetchers of a process, one for each capsule; each has its own slots (``fetcher.pool``)."""

    def running(self) -> list[Run]:
        """The runs of every slot that is in use."""
        return [run for fetcher in self for _, run in fetcher.pool.running()]

    def slots(self) -> list[Slot]:
        """The slot of every thread."""
        return [slot for fetcher in self for slot in fetcher.pool.slots]

    def taken(self) -> list[Slot]:
        """The slots of threads that are not idle."""
        return [slot for fetcher in self for slot in fetcher.pool.taken()]

    def tasks(self) -> list[Run]:
        """Every run on the event loop."""
        return [run for fetcher in self for run in list(fetcher.pool.tasks)]

    def busy(self) -> int:
        """Slots in use."""
        return sum(fetcher.pool.busy for fetcher in self)

    def started(self) -> int:
        """Jobs started in the life of this process."""
        return sum(fetcher.pool.started for fetcher in self)

    def look(self) -> None:
        """Let every fetcher look into its queues now."""
        for fetcher in self:
            fetcher.look()

    def set_paused(self, queues: frozenset[str]) -> None:
        """These queues are paused, and no others."""
        unpaused = any(fetcher.paused - queues for fetcher in self)
        for fetcher in self:
            fetcher.paused = queues
        if unpaused:
            self.look()

    def hear(self, runtime: Runtime) -> None:
        """Hear which queues are paused, and which are fair."""
        paused, fair_ones = runtime.connections.run(fair.paused_and_fair(runtime.keys))
        self.set_paused(paused)
        for fetcher in self:
            fetcher.fair = fair_ones

    def declare(self, runtime: Runtime, ordered: Iterable[str]) -> None:
        """Make known which queues are fair, and how long the jobs of ours and of the ``ordered`` ones may wait."""
        for queue, places in runtime.registry.fair_queues().items():
            runtime.connections.run(fair.declare(runtime.keys, queue, places))
        served = {*ordered, *(name for fetcher in self for name in fetcher.capsule.queues)}
        said = {name: seconds for name, seconds in objectives_of(runtime.config).items() if name in served}
        if served:
            runtime.connections.run(queues.declare_objectives(runtime.keys, served, said))

    def pause(self, queue: str) -> None:
        """Nothing starts from ``queue`` any more; what was fetched and has not started goes back."""
        for fetcher in self:
            fetcher.paused |= {queue}
            fetcher.give_back()

    def unpause(self, queue: str) -> None:
        """Work on ``queue`` goes on."""
        for fetcher in self:
            fetcher.paused -= {queue}
        self.look()

    def hold_tasks(self, blocked: bool) -> None:
        """The event loop is blocked, or turns again."""
        for fetcher in self:
            fetcher.pool.hold(blocked)

    def wait_idle(self, timeout: float, hopeless: Callable[[], object] = lambda: False) -> bool:
        """Wait until nothing runs, at most ``timeout`` seconds and not while it is ``hopeless``; True when so."""
        deadline = time.monotonic() + timeout
        return all(fetcher.pool.wait_idle(max(deadline - time.monotonic(), 0.0), hopeless) for fetcher in self)
