"""The way of an app into this room: everything that can be looked at, on the app's own connections and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from henchman.config import Config
from henchman.inspector.entry import Mask
from henchman.inspector.jobs import JobStatus, afind_job, find_job
from henchman.inspector.ordered_queues import OrderedQueues
from henchman.inspector.processes import Processes
from henchman.inspector.queues import Queues
from henchman.inspector.running import Running
from henchman.inspector.sets import JobSet, SetName
from henchman.inspector.stats import Stats, astats, stats
from henchman.store.call import AsyncRunner, Call, Runner
from henchman.store.keys import Keys

__all__ = ["Inspection"]

T = TypeVar("T")


class _App(Protocol):
    """What is needed of an app; its connections are made at the first call, not before."""

    @property
    def connections(self) -> Any: ...
    @property
    def aconnections(self) -> Any: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def config(self) -> Config: ...
    @property
    def registry(self) -> Any: ...


class _Late:
    """A runner that is asked for with each call: the app may have been closed and connected again."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    def run(self, call: Call[T]) -> Any:
        """As the app's own."""
        return self._connect().run(call)


class Inspection:
    """All of it for one app. What a registered job declares as secret is masked."""

    def __init__(self, app: _App) -> None:
        self._keys = app.keys
        self._config = app.config
        self._runner: Runner = _Late(lambda: app.connections)
        self._arunner: AsyncRunner = _Late(lambda: app.aconnections)
        self._mask: Mask = app.registry.mask

    @property
    def queues(self) -> Queues:
        """All queues."""
        return Queues(self._runner, self._keys, self._mask, self._arunner)

    @property
    def ordered_queues(self) -> OrderedQueues:
        """All ordered queues."""
        return OrderedQueues(self._runner, self._keys, self._arunner)

    @property
    def processes(self) -> Processes:
        """All worker processes."""
        return Processes(self._runner, self._keys, self._mask, self._arunner)

    @property
    def work(self) -> Running:
        """The running jobs."""
        return Running(self._runner, self._keys, self._mask, self._arunner)

    def job_set(self, which: SetName) -> JobSet:
        """One of the three sets."""
        return JobSet(self._runner, self._keys, self._config, which, self._mask, self._arunner)

    def stats(self) -> Stats:
        """The counts as they are now."""
        return stats(self._runner, self._keys)

    async def astats(self) -> Stats:
        """``stats``, awaited."""
        return await astats(self._arunner, self._keys)

    def job_status(self, jid: str, queue: str | None) -> JobStatus:
        """Where a job is; ``queue`` is looked at first."""
        return find_job(self._runner, self._keys, jid, queue, mask=self._mask)

    async def ajob_status(self, jid: str, queue: str | None) -> JobStatus:
        """``job_status``, awaited."""
        return await afind_job(self._arunner, self._keys, jid, queue, mask=self._mask)
