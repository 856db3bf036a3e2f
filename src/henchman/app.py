"""The object that a user makes: it wires the rooms together and forwards. What is heavy is opened through a door."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar, overload

from henchman.app_inspect import Inspects
from henchman.app_views import Views
from henchman.batch.face import Batches
from henchman.client.handle import Handle
from henchman.client.job import AsyncJob, Job, define
from henchman.client.options import JobOptions, PushOptions, named_options
from henchman.client.push import Client
from henchman.client.registry import Registry, load_modules
from henchman.config import Config
from henchman.cron.face import Periodic
from henchman.errors import ConfigError, DefinitionError
from henchman.iterable.door import DefinesIterables
from henchman.kernel.clock import ServerClock
from henchman.kernel.events import Events
from henchman.kernel.middleware import Chain
from henchman.ordered.door import DefinesOrdered
from henchman.store.keys import Keys
from henchman.wire import times

__all__ = ["App"]

P = ParamSpec("P")
R = TypeVar("R")

#: name → "module:object"; opened at first use, the only lazy imports of the project
DOORS: Final[dict[str, str]] = {
    "connections": "henchman.store.connection:Connections",
    "aconnections": "henchman.store.aconnection:AsyncConnections",
    "embedded": "henchman.embedded.server:EmbeddedServer",
    "crons": "henchman.cron.registry:CronRegistry",
    "cron_ticker": "henchman.cron.ticker:CronTicker",
    "recorder": "henchman.history.recorder:companion",
    "history": "henchman.history.admin:Admin",
    "compile_sync": "henchman.kernel.middleware:compile_sync",
    "compile_async": "henchman.kernel.middleware:compile_async",
    "define_ordered": "henchman.ordered.definition:define_ordered",
    "ordered_placement": "henchman.ordered.source:placement",
    "ordered_sources": "henchman.ordered.source:sources_of",
    "aawait_result": "henchman.client.results:aawait_result",
    "await_result": "henchman.client.results:await_result",
    "auditor": "henchman.batch.auditor:Auditor",
    "auditor_of": "henchman.batch.auditor:auditor_of",
    "batch": "henchman.batch.batch:new_batch",
    "found_batch": "henchman.batch.batch:find_batch",
    "tracked_calls": "henchman.client.tracked:tracked_calls",
    "carrier": "henchman.work.context:Carrier",
    "context_pusher": "henchman.work.context:ContextPusher",
    "embed": "henchman.worker.launcher:Embedded",
    "inspection": "henchman.inspector.inspection:Inspection",
    "notice": "henchman.log.notice:notice",
    "in_thread": "henchman.kernel.middleware:in_thread",
    "metrics": "henchman.inspector.metrics:metrics",
    "mark_deploy": "henchman.inspector.metrics:mark_deploy",
    "IterableJob": "henchman.iterable.job:IterableJob",
    "class_decorator": "henchman.iterable.job:ClassDecorator",
    "function_decorator": "henchman.iterable.job:FunctionDecorator",
    "ain_batches": "henchman.iterators:ain_batches",
    "aover_django": "henchman.iterators:aover_django",
    "aover_sqlalchemy": "henchman.iterators:aover_sqlalchemy",
    "in_batches": "henchman.iterators:in_batches",
    "over_csv": "henchman.iterators:over_csv",
    "over_django": "henchman.iterators:over_django",
    "over_range": "henchman.iterators:over_range",
    "over_sequence": "henchman.iterators:over_sequence",
    "over_sqlalchemy": "henchman.iterators:over_sqlalchemy",
}


def open_door(name: str) -> Any:
    """The object behind a door."""
    module, _, attribute = DOORS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


class App(DefinesIterables, DefinesOrdered, Views, Inspects, Periodic, Batches):
    """Jobs, how they are pushed, and where they lie.

    Settings are those of ``Config`` and go before file and environment: ``App(redis_url="redis://…")``.
    ``imports`` names the modules that define jobs (``"pkg.jobs"``, ``"pkg.*.jobs"``); a worker loads them at start.
    ConfigError names a setting that is unknown or wrong.
    """

    open_door = staticmethod(open_door)

    def __init__(self, *, imports: tuple[str, ...] | list[str] = (), **settings: object) -> None:
        self.config = Config.load(arguments={**settings, **({"imports": tuple(imports)} if imports else {})})
        self.registry = Registry()
        self.events = Events(on_broken=self._broken)
        self.clock = ServerClock()
        self.client_middleware = Chain()
        self.server_middleware = Chain()
        self.error_handlers: list[Callable[[BaseException, dict[str, Any]], Any]] = []
        self.death_handlers: list[Callable[[dict[str, Any], BaseException], Any]] = []
        self._lock = threading.RLock()
        self._server: Any = None
        self._connections: Any = None
        self._aconnections: Any = None
        self._keys: Keys | None = None
        self._history: Any = None
        self.stand_ins: tuple[Any, ...] = ()  # of henchman.testing: the last one answers in place of the server
        self.client = Client(
            keys=lambda: self.keys,
            chain=self.client_middleware,
            stamp=self.stamp,
            connect=lambda: self.connections,
            aconnect=lambda: self.aconnections,
            open_door=open_door,
            runtime=self,
            registry=self.registry,
            clock=self.clock,
            most_buffered=lambda: self.config.buffer,
            replicas=self._replicas,
            history_kept=self.config.history_kept,
        )

    def __repr__(self) -> str:
        return f"<henchman.App with {len(self.registry)} jobs>"

    def configure(self, **settings: object) -> None:
        """Settings that go before those of the constructor; ConfigError once a connection has been made."""
        with self._lock:
            if self._connections is not None or self._aconnections is not None:
                raise ConfigError("this app is connected already; configure it before its first push")
            self.config = self.config.with_arguments(**settings)
            self._keys = None

    @overload
    def job(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncJob[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, *, name: str | None = None, **options: Any) -> _JobDecorator: ...
    def job(self, *function: Any, name: str | None = None, **options: Any) -> Any:
        """Define a job: ``@app.job`` or ``@app.job(queue="mail", retry=5, timeout=30)``, on ``def`` or ``async def``.

        ``name`` is its name on the wire, by default ``module.qualname``; the options are those of ``JobOptions``.
        DefinitionError names an option that is unknown or wrong, and two functions under one name.
        """
        decorator = _JobDecorator(self, name, options)
        return decorator(*function) if function else decorator

    def enqueue(self, name: str, *args: Any, **options: Any) -> Handle[Any]:
        """Push a job by name, for a worker in another program or language: ``app.enqueue("HardJob", "bob", 5)``.

        ``options``: queue, retry, delay, at, tags… as in ``using`` and ``@app.job``. Arguments are plain JSON. A job
        that is registered here takes its options from its definition.
        """
        return self.client.by_name(name, args, *self._options_of(name, options))

    async def aenqueue(self, name: str, *args: Any, **options: Any) -> Handle[Any]:
        """``enqueue``, awaited."""
        return await self.client.aby_name(name, args, *self._options_of(name, options))

    def _options_of(self, name: str, options: dict[str, Any]) -> tuple[JobOptions, PushOptions]:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"enqueue({name!r}): a job is named by a text")
        known = self.registry.find(name)
        return named_options(name, options, None if known is None else known.options)

    def on(self, event: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: call the function at ``startup``, ``quiet``, ``shutdown``, ``heartbeat`` or ``beat``; at
        ``last_words``, when a worker process ends because of an error that is no job's, with that error.
        """
        known = ("startup", "quiet", "shutdown", "heartbeat", "beat", "last_words")
        if event not in known:
            raise DefinitionError(f"there is no event {event!r}; there are {', '.join(known)}")

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            if event == "last_words":
                self.events.on(event, lambda error: function(error))  # noqa: PLW0108 - its parameter may have any name
            else:
                self.events.on(event, lambda **facts: function())
            return function

        return register

    def load_imports(self) -> None:
        """Import the modules that define jobs; ConfigError names one that cannot be found."""
        load_modules(self.config.imports)

    @property
    def keys(self) -> Keys:
        """The keys of this app, with its namespace."""
        keys = self._keys
        if keys is None:
            keys = self._keys = Keys(self.config.namespace)
        return keys

    def stamp(self, seconds: float) -> bytes:
        """A Unix time as payloads of this app write it."""
        return times.write(seconds, self.config.timestamps or "seconds")

    @property
    def connections(self) -> Any:
        """The sync runner, made on first use (with nothing configured this starts the embedded server)."""
        if here := self.stand_ins:
            return here[-1].runner
        return self._connections or self._connect("connections")

    @property
    def aconnections(self) -> Any:
        """The async runner, made on first use."""
        if here := self.stand_ins:
            return here[-1].arunner
        return self._aconnections or self._connect("aconnections")

    def notice(self, text: str, *facts: object) -> None:
        """Write one warning line of the logger ``henchman``."""
        open_door("notice")(text, *facts)

    def open_history(self) -> Any:
        """The database of history, opened at first use; HistoryError says why there is none."""
        if self._history is None:
            self._history = open_door("history")(self.config)
        return self._history

    def batch_of(self, batch: str, jid: str, expires: float | None) -> Any:
        """The batch of the running job ``jid``, as that job sees it."""
        return open_door("found_batch")(self, batch, jid, expires)

    def close(self) -> None:
        """Close idle connections and leave the embedded server; the app connects again when it is used again.

        Buffered jobs are delivered first, where the server is back within 5 s; what is left stays buffered.
        """
        if self.client.buffer.waiting:
            self.client.buffer.flush()
        with self._lock:
            if self._connections is not None:
                self._connections.close()
            self._connections = self._aconnections = None
            if self._server is not None:
                self._server.release()
                self._server = None

    async def aclose(self) -> None:
        """``close``, awaited; closes the connections of this event loop too, which ``close`` cannot."""
        for runner in (self._aconnections, *(one.arunner for one in self.stand_ins)):
            if runner is not None:
                await runner.close()
        await open_door("in_thread")(self.close)

    def _connect(self, door: str) -> Any:
        config = self.config
        with self._lock:
            made = getattr(self, f"_{door}")
            if made is None:
                url = self._url()
                revive = self._revive if self._server is not None else None
                limits = {"connect_timeout": config.connect_timeout, "io_timeout": config.io_timeout}
                made = open_door(door)(url, **limits, revive=revive)
                setattr(self, f"_{door}", made)
            return made

    def _url(self) -> str:
        config = self.config
        if config.redis_url is not None:
            return config.redis_url
        if not config.embedded:
            raise ConfigError(
                "no server is configured and embedded = false: set redis_url in henchman.toml, or REDIS_URL in the "
                "environment"
            )
        if self._server is None:
            folder = config.server_folder()
            server = open_door("embedded")(folder)
            started = server.find() is None
            url: str = server.acquire()
            self._server = server
            if started:
                open_door("notice")(
                    "no server is configured: started the embedded one in %s (to use a real one, set REDIS_URL)", folder
                )
            return url
        again: str = self._server.acquire()
        return again

    def _replicas(self) -> tuple[int, float]:
        """How many replicas confirm a push, within how many seconds; none of a server that a test stands in for."""
        return (0 if self.stand_ins else self.config.wait_replicas), self.config.wait_timeout

    def _revive(self) -> bool:
        """Start the embedded server again when it died."""
        self._server.ensure()
        return True

    def _broken(self, name: str, listener: Any, error: BaseException) -> None:
        if name != "handler_broken":
            self.events.emit("handler_broken", handler=listener, error=error)


class _JobDecorator:
    """What ``app.job(queue=…)`` gives: it knows a ``def`` from an ``async def``."""

    def __init__(self, app: App, name: str | None, options: dict[str, Any]) -> None:
        self._app = app
        self._name = name
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncJob[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        made = define(function, self._app.client, self._name, self._options)
        self._app.registry.add(made)
        return made
