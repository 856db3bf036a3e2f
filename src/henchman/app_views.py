"""What an app tells of itself, and to its workers: methods of ``App`` that only lead into other rooms."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from henchman.client.runtime import Runtime
from henchman.store import jobs
from henchman.store.procedure import arun, run

__all__ = ["Views"]


class _Desk(Runtime, Protocol):
    def open_door(self, name: str) -> Any:
        """The object behind a door."""
        ...


class Views:
    """The half of ``App`` that looks, and tells. Each method also exists awaited, with an ``a`` before its name."""

    #: which ordered queues a process serves: gets their names, gives some of them; None: by ``ordered_nodes``, else all
    ordered_splitter: Callable[[Sequence[str]], Sequence[str]] | None = None

    def cancel(self: _Desk, jid: str) -> None:
        """If job ``jid`` waits, it never starts; if it runs, it is told (an async job is cancelled).

        An iterable job ends after its current item, also one that waits or runs in Ruby.
        """
        self.connections.run(jobs.cancel(self.keys, jid))

    async def acancel(self: _Desk, jid: str) -> None:
        """``cancel``, awaited."""
        await self.aconnections.run(jobs.cancel(self.keys, jid))

    def carry(self: _Desk, *variables: ContextVar[Any]) -> None:
        """Let these context variables travel with every job: set where it is pushed, set again while it runs.

        Their values are plain JSON. DefinitionError when two have one name. Call it once, where the app is made.
        """
        self.server_middleware.prepend(self.open_door("carrier")(variables))
        self.client_middleware.prepend(self.open_door("context_pusher")(variables))

    def embed(self: _Desk, **settings: Any) -> Any:
        """A worker in this very process: ``with app.embed(concurrency=4): …``, or ``start()`` and ``stop()`` it.

        ``settings`` are those of ``Config`` and go before the app's own; no signals are touched. What it
        gives, and what it cannot do, is told in ``henchman.worker.launcher.Embedded``.
        """
        return self.open_door("embed")(self, settings)

    def companions(self: _Desk, *, alone: bool = True) -> list[Any]:
        """The parts that a worker of this app runs beside its own. ``alone``: there is no supervisor, which writes
        history in a process of its own."""
        ours = [self.open_door("cron_ticker")(self), self.open_door("auditor")(self)]
        if not alone or self.config.history_url() is None:
            return ours
        return [*ours, self.open_door("recorder")(self)]

    def sources(self: _Desk) -> Any:
        """By name, the ordered queues as a worker gets their work; see ``henchman.work.source``."""
        return self.open_door("ordered_sources")(self) if self.registry.ordered() else {}

    def placement(self: _Desk, queues: Sequence[str]) -> frozenset[str]:
        """Which of the ordered ``queues`` this process serves; ConfigError when the splitter is wrong."""
        chosen: frozenset[str] = self.open_door("ordered_placement")(self, queues) if queues else frozenset()
        return chosen

    def metrics(self: _Desk, minutes: int | None = None, *, hours: int | None = None, name: str | None = None) -> Any:
        """What ran in the last ``minutes`` (1 to 480; 60 when nothing is said) or ``hours`` (1 to 72), by class.

        ``name``: of that class alone. See ``henchman.inspector.metrics.Metrics``; ArgumentError for other figures.
        """
        return run(self.connections, self.open_door("metrics")(self.keys, minutes, hours=hours, name=name))

    async def ametrics(
        self: _Desk, minutes: int | None = None, *, hours: int | None = None, name: str | None = None
    ) -> Any:
        """``metrics``, awaited."""
        return await arun(self.aconnections, self.open_door("metrics")(self.keys, minutes, hours=hours, name=name))

    def mark_deploy(self: _Desk, label: str | None = None, at: dt.datetime | None = None) -> Any:
        """Mark in the metrics that ``label`` was deployed, now or at an aware time; each machine may say so.

        Without ``label`` it is the commit that is checked out, else the time; see ``henchman.inspector.metrics``.
        """
        return run(self.connections, self.open_door("mark_deploy")(self.keys, label, at))

    async def amark_deploy(self: _Desk, label: str | None = None, at: dt.datetime | None = None) -> Any:
        """``mark_deploy``, awaited."""
        write = self.open_door("mark_deploy")
        return await self.open_door("in_thread")(lambda: run(self.connections, write(self.keys, label, at)))
