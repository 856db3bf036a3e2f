"""The app, as every part of Henchman below it sees it: one protocol, so that no part imports the app.

``App`` fits it, and so does whatever a test puts in its place. Connections are made when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from henchman.client.connector import AsyncConnector, Connector
from henchman.client.registry import Registry
from henchman.config import Config
from henchman.kernel.clock import ServerClock
from henchman.kernel.events import Events
from henchman.kernel.hooks import Hooks
from henchman.kernel.middleware import Chain
from henchman.store.keys import Keys
from henchman.wire.secret import MaskedJob
from henchman.work.source import Source

__all__ = ["Companion", "Connector", "DeathHandler", "ErrorHandler", "Runtime", "Settler"]

#: called with (exception, facts): facts are plain values such as queue, context, and job, a MaskedJob. What is secret
#: stands in neither
ErrorHandler = Callable[[BaseException, dict[str, Any]], Any]
#: called with (job, exception) when a job dies; what is secret stands in neither, and job.unmasked() has it
DeathHandler = Callable[[MaskedJob, BaseException], Any]


class Companion(Protocol):
    """A part that another room adds to a worker. It starts after the worker's own parts and stops before them."""

    @property
    def verbs(self) -> Mapping[str, Callable[[str], None]]:
        """The commands that it obeys on the control channel: verb → handler(argument)."""
        ...

    def start(self) -> None: ...
    def quiet(self) -> None: ...
    def stop(self, timeout: float = 5.0) -> bool: ...


class Settler(Protocol):
    """What giving work back needs of an app; a supervisor, which has no app, offers it too."""

    @property
    def config(self) -> Config: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def clock(self) -> ServerClock: ...
    @property
    def connections(self) -> Connector: ...


class Runtime(Settler, Protocol):
    """What a part needs of the app: settings, keys, connections, definitions, hooks."""

    @property
    def registry(self) -> Registry: ...
    @property
    def events(self) -> Events: ...
    @property
    def hooks(self) -> Hooks: ...
    @property
    def aconnections(self) -> AsyncConnector: ...
    @property
    def client_middleware(self) -> Chain: ...
    @property
    def server_middleware(self) -> Chain: ...
    @property
    def error_handlers(self) -> list[ErrorHandler]: ...
    @property
    def death_handlers(self) -> list[DeathHandler]: ...
    @property
    def ordered_splitter(self) -> Callable[[Sequence[str]], Sequence[str]] | None: ...
    @property
    def stand_ins(self) -> Sequence[Any]:
        """The test doubles of ``henchman.testing``; the last one answers in place of the server."""
        ...

    @property
    def client(self) -> Any:
        """The ``client.push.Client`` of this app. Its type is Any because a client is itself made of a Runtime."""
        ...

    @property
    def crons(self) -> Any:
        """The periodic jobs; see ``cron.registry.CronRegistry``."""
        ...

    @property
    def outbox(self) -> Any:
        """Jobs as rows of the caller's transaction; see ``outbox.write.Outbox``."""
        ...

    def open_outbox(self) -> Any:
        """The ``outbox.database.OutboxDatabase`` that the setting ``outbox`` means; ConfigError when it means none."""
        ...

    def stamp(self, seconds: float) -> bytes:
        """A Unix time as payloads of this app write it."""
        ...

    def notice(self, text: str, *facts: object) -> None:
        """Write a log line for people, without loading the log before there is a line."""
        ...

    def open_history(self) -> Any:
        """The database of history, loaded now; HistoryError says why there is none. See ``henchman.history``."""
        ...

    def companions(self, *, alone: bool = True) -> Sequence[Companion]:
        """The parts that other rooms add to each worker of this app; ``alone``: there is no supervisor."""
        ...

    def sources(self) -> Mapping[str, Source]:
        """By name, the queues that are not plain lists, and how their work is fetched."""
        ...

    def placement(self, queues: Sequence[str]) -> frozenset[str]:
        """Which of these queues, all of sources, this process serves."""
        ...

    def batch_of(self, batch: str, jid: str, expires: float | None, results: bool, step: str) -> Any:
        """The batch of the running job ``jid``, as that job sees it; see ``batch.batch.Batch``."""
        ...

    def cancel(self, jid: str) -> None: ...
    async def acancel(self, jid: str) -> None: ...
    def job_status(self, jid: str, *, queue: str | None = None) -> Any: ...
    async def ajob_status(self, jid: str, *, queue: str | None = None) -> Any: ...
    def why_not_pushed(self, status: Any) -> Any:
        """Of a job that stands in the outbox, why it is not pushed, as an ``Explanation``; else None."""
        ...

    def deferred_status(self, jid: str, queue: str, text: str) -> Any: ...
    def result(
        self, jid: str, timeout: float | None = None, *, function: Any = None, queue: str | None = None
    ) -> Any: ...
    async def aresult(
        self,
        jid: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the same word as above
        *,
        function: Any = None,
        queue: str | None = None,
    ) -> Any: ...
