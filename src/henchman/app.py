"""``App``: the object that a user makes. It holds settings, keys, definitions and connections, and leads to each room.

What is heavy (redis, asyncio, SQL, the inspector, batches, crons) is imported in the method that needs it, so that
``import henchman`` stays quick.
"""

from __future__ import annotations

import copy
import datetime as dt
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, overload

from henchman.client.connector import AsyncConnector, Connector, LateAsyncConnections, LateConnections
from henchman.client.job import AsyncJob, Job, JobDecorator, Using
from henchman.client.keywords import JobKeywords, NamedKeywords, OrderedKeywords, Texts
from henchman.client.push import Client, Handle
from henchman.client.registry import Registry, load_modules
from henchman.client.runtime import Companion, DeathHandler, ErrorHandler
from henchman.config import Config
from henchman.config.keywords import SettingKeywords
from henchman.errors import ConfigError
from henchman.kernel.clock import ServerClock
from henchman.kernel.events import Events
from henchman.kernel.hooks import Hooks
from henchman.kernel.middleware import Chain, in_thread
from henchman.store import jobs
from henchman.store.call import Procedure, arun, awaited, now, run
from henchman.store.keys import Keys
from henchman.wire import times
from henchman.work.source import Source

if TYPE_CHECKING:
    from henchman.batch.auditor import Audited, Auditor
    from henchman.batch.batch import Batch, BatchStatus
    from henchman.batch.options import WorkflowKeywords
    from henchman.batch.workflow import Workflow
    from henchman.client.places import Place
    from henchman.console.guard import Authorize
    from henchman.console.several import Consoles
    from henchman.console.site import Console
    from henchman.cron.registry import CronRegistry
    from henchman.embedded.server import EmbeddedServer
    from henchman.inspector.blocked import BlockedJobs
    from henchman.inspector.jobs import JobStatus
    from henchman.inspector.keys import KeyState
    from henchman.inspector.limits import Limits
    from henchman.inspector.metrics import Deploy, Metrics, Stats
    from henchman.inspector.obstacles import Explanation
    from henchman.inspector.ordered import OrderedQueues
    from henchman.inspector.pauses import Pauses
    from henchman.inspector.processes import Processes, Running
    from henchman.inspector.queues import Queues
    from henchman.inspector.sets import JobSet, SetName
    from henchman.iterable.job import ClassDecorator, FunctionDecorator
    from henchman.limits.kinds import Concurrent
    from henchman.ordered.definition import DerivingJob, OrderedJob
    from henchman.outbox.write import Outbox
    from henchman.store.aconnection import AsyncConnections
    from henchman.store.connection import Connections
    from henchman.worker.launcher import Embedded

__all__ = ["App"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
J = TypeVar("J", bound=Job[Any, Any])
Callback = Using[..., Any] | str | None
Handler = Callable[[dict[str, list[T]]], Any]  # of an ordered queue: entity id → payloads

Hook = Literal["startup", "quiet", "shutdown", "heartbeat", "beat", "last_words"]


class App:
    """Jobs, how they are pushed, and where they lie.

    Settings are those of ``Config`` and go before file and environment: ``App(redis_url="redis://…")``.
    ``imports`` names the modules that define jobs (``"pkg.jobs"``, ``"pkg.*.jobs"``); a worker loads them at start.
    ConfigError names a setting that is unknown or wrong. What talks to the server also exists awaited, with an ``a``
    before its name.
    """

    #: which ordered queues a process serves: gets their names, gives some of them; None: by ``ordered_nodes``, else all
    ordered_splitter: Callable[[Sequence[str]], Sequence[str]] | None = None

    #: what the setting ``outbox`` may name in place of an address: name → address of a database. The app of a Django
    #: project knows DATABASES by itself.
    outbox_databases: Mapping[str, str] = {}

    #: of henchman.testing: the last one answers in place of the server
    stand_ins: tuple[Any, ...] = ()

    def __init__(self, **settings: Unpack[SettingKeywords]) -> None:
        self.config = Config.load(arguments=settings)
        self.registry = Registry()
        self.events = Events()
        self.hooks = Hooks(self.events)
        self.clock = ServerClock()
        self.client_middleware = Chain()
        self.server_middleware = Chain()
        self.error_handlers: list[ErrorHandler] = []
        self.death_handlers: list[DeathHandler] = []
        self.client = self._make_client()
        self._lock = threading.RLock()
        self._of: App | None = None  # of an embedded worker: the app whose connections it uses
        self._server: EmbeddedServer | None = None
        self._connections: Connections | None = None
        self._aconnections: AsyncConnections | None = None
        self._keys: AppKeys | None = None
        self._crons: CronRegistry | None = None
        self._auditor: Auditor | None = None
        self._outbox: Outbox | None = None
        self._history: Any = None

    def __repr__(self) -> str:
        return f"<henchman.App with {len(self.registry)} jobs>"

    def _make_client(self) -> Client:
        """The pushing side: one that waits for commits when that is asked for; any other pays nothing for it."""
        if not self.config.transactional:
            return Client(self)
        from henchman.contrib.transactions import TransactionalClient

        return TransactionalClient(self)

    # --- definitions ------------------------------------------------------------------------------------------------

    @overload
    def job(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncJob[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, *, name: str | None = None, **options: Unpack[JobKeywords]) -> JobDecorator: ...
    def job(self, *function: Any, name: str | None = None, **options: Any) -> Any:
        """Define a job: ``@app.job`` or ``@app.job(queue="mail", retry=5, timeout=30)``, on ``def`` or ``async def``.

        ``name`` is its name on the wire, by default ``module.qualname``; the options are those of ``JobOptions``.
        DefinitionError names an option that is unknown or wrong, and two functions under one name.
        """
        decorator = JobDecorator(self.client, self.registry, name, options)
        return decorator(*function) if function else decorator

    @overload
    def ordered(self, target: Handler[T], /) -> OrderedJob[T]: ...
    @overload
    def ordered(
        self, *, name: str | None = None, derive: Callable[[Any], Any], **options: Unpack[OrderedKeywords]
    ) -> Callable[[Handler[T]], DerivingJob[T]]: ...
    @overload
    def ordered(
        self, *, name: str | None = None, derive: None = None, **options: Unpack[OrderedKeywords]
    ) -> Callable[[Handler[T]], OrderedJob[T]]: ...
    def ordered(self, *target: Any, name: str | None = None, derive: Any = None, **options: Any) -> Any:
        """Define an ordered queue: payloads of one id are never handled twice at once, and lowest score first.

        ``@app.ordered`` or ``@app.ordered(queue="products", claim_size=10)``, on ``def`` or ``async def`` of one
        parameter, a dict of lists of payloads by id. The options are those of ``OrderedOptions`` and queue, timeout,
        log_level, track (each payload has a record in history).
        ``derive``: a function that finds in a payload its id, or a dict of id, score, at, delay. A handler may return a
        dict of exceptions by id for ids that failed.
        DefinitionError names an option that is unknown or wrong, and a queue that is taken.
        """
        from henchman.ordered.definition import define_ordered

        def decorator(function: Any) -> Any:
            return define_ordered(function, self, name, {**options, "derive": derive})

        return decorator(*target) if target else decorator

    @overload
    def iterable(
        self,
        *,
        over: Callable[..., Any],
        name: str | None = None,
        max_iteration_runtime: float | timedelta | None = None,
        **options: Unpack[JobKeywords],
    ) -> FunctionDecorator: ...
    @overload
    def iterable(
        self,
        *,
        over: None = None,
        name: str | None = None,
        max_iteration_runtime: float | timedelta | None = None,
        **options: Unpack[JobKeywords],
    ) -> ClassDecorator: ...
    def iterable(
        self, *, over: Any = None, name: str | None = None, max_iteration_runtime: Any = None, **options: Any
    ) -> Any:
        """Define a long job of many items that goes on where it was after a stop, an error or a kill.

        On a class derived from ``IterableJob``; or with ``over``, a function of the job's arguments and ``cursor``
        that gives (item, cursor) pairs, on a function of (item, the job's arguments). ``max_iteration_runtime``: how
        many seconds it runs before it goes to the end of its queue, for others to have their turn. The other options
        are those of ``@app.job``; ``timeout`` is for each execution.
        """
        from henchman.iterable.job import ClassDecorator, FunctionDecorator

        if over is None:
            return ClassDecorator(self, name, max_iteration_runtime, options)
        return FunctionDecorator(self, name, max_iteration_runtime, options, over)

    def cron(
        self,
        expression: str | None = None,
        *,
        every: float | timedelta | None = None,
        tz: str | None = None,
        name: str | None = None,
        missed: Literal["latest", "all", "skip"] = "latest",
        overlap: Literal["allow", "skip"] = "allow",
        overlap_for: float | timedelta | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Callable[[J], J]:
        """Enqueue a job by the clock: ``@app.cron("0 9 * * 1-5", tz="Europe/Paris")`` above ``@app.job``.

        ``expression``: five fields, or six with seconds first, in the time zone ``tz`` (UTC); or ``every`` seconds.
        ``name``: the job's when it has one cron, needed for the second. ``missed``: of the ticks that came while no
        worker ran, enqueue the ``"latest"``, ``"all"`` (at most 1,000) or none (``"skip"``). ``overlap="skip"``: a tick
        is passed over while the job of an earlier one has not ended, unless that was enqueued more than ``overlap_for``
        seconds ago (a day). ``args`` and ``kwargs`` are those of each job. DefinitionError or ArgumentError says what
        is wrong.
        """
        decorator: Callable[[J], J] = self.crons.declare(
            expression,
            every=every,
            tz=tz,
            name=name,
            missed=missed,
            overlap=overlap,
            overlap_for=overlap_for,
            args=args,
            kwargs=kwargs,
        )
        return decorator

    @property
    def crons(self) -> CronRegistry:
        """The periodic jobs, to be seen and changed while workers run."""
        from henchman.cron.registry import CronRegistry

        if self._crons is None:
            self._crons = CronRegistry(self)
        return self._crons

    def load_imports(self) -> None:
        """Import the modules that define jobs; ConfigError names one that cannot be found."""
        load_modules(self.config.imports)

    def console(
        self,
        *,
        authorize: Authorize | None = None,
        secret: str | None = None,
        read_only: bool = False,
        label: str = "",
        tone: Literal["production", "staging", "development", ""] = "",
        beside: Mapping[str, Console] | None = None,
    ) -> Console | Consoles:
        """The console as an ASGI application: ``application.mount("/jobs", app.console(authorize=may))``.

        ``authorize(request)`` says "act", "look" or None, and may be async. Without it the settings
        ``console_password`` and ``console_look_password`` decide; with neither, only this machine is answered.
        ``secret`` signs sessions; processes that serve one console share it (by default it follows from the passwords).
        ``label`` and ``tone`` name the deployment on every page. ``beside={"us": us_app.console()}``: consoles of other
        servers, below ``/@us/``; this one is below ``/@main/`` then. ConfigError without the extra ``web``.
        """
        from henchman.console import load

        given: Any = {"authorize": authorize, "secret": secret, "read_only": read_only, "beside": beside}
        made: Console | Consoles = load(self, label, tone, **given)
        return made

    # --- pushes and results -----------------------------------------------------------------------------------------

    def enqueue(self, name: str, *args: Any, **options: Unpack[NamedKeywords]) -> Handle[Any]:
        """Push a job by name, for a worker in another program or language: ``app.enqueue("HardJob", "bob", 5)``.

        ``options``: queue, retry, delay, at, tags… as in ``using`` and ``@app.job``. Arguments are plain JSON. A job
        that is registered here takes its options from its definition, its key too. Of another one ``key`` is the key
        itself, and ``foreign=True`` says that you know who gives it back.
        """
        return self.client.by_name(name, args, dict(options))

    async def aenqueue(self, name: str, *args: Any, **options: Unpack[NamedKeywords]) -> Handle[Any]:
        """``enqueue``, awaited."""
        return await self.client.aby_name(name, args, dict(options))

    def inside(self, session: Any) -> AbstractContextManager[None]:
        """Within the block, pushes of this thread or task wait until ``session`` of SQLAlchemy commits, and vanish when
        it does not: ``with app.inside(session):``. In ``async def`` too, with an AsyncSession.

        ConfigError when the app is not transactional, or the session's maker was not bound; see
        ``henchman.contrib.sqlalchemy.bind``.
        """
        if not self.config.transactional:
            raise ConfigError("inside(session): this app waits for no commit; make it with App(transactional=True)")
        from henchman.contrib import sqlalchemy

        return sqlalchemy.inside(self.client, session)

    @property
    def outbox(self) -> Outbox:
        """Jobs as rows of your own transaction: ``app.outbox.write(session, charge, "17", 990)``. No I/O by itself."""
        from henchman.outbox.write import Outbox

        if self._outbox is None:
            self._outbox = Outbox(self)
        return self._outbox

    def cancel(self, jid: str) -> None:
        """A waiting job ``jid`` never starts; a running one sees ``cancelled`` (an async job is cancelled).

        An iterable job ends after its current item, also one that waits or runs in Ruby.
        """
        self.connections.run(jobs.cancel(self.keys, jid))

    async def acancel(self, jid: str) -> None:
        """``cancel``, awaited."""
        await self.aconnections.run(jobs.cancel(self.keys, jid))

    @overload
    def result(
        self, jid: str, timeout: float | None = None, *, function: None = None, queue: str | None = None
    ) -> Any: ...
    @overload
    def result(
        self, jid: str, timeout: float | None = None, *, function: Callable[..., R], queue: str | None = None
    ) -> R: ...
    def result(self, jid: str, timeout: float | None = None, *, function: Any = None, queue: str | None = None) -> Any:
        """What the job ``jid`` returned, plain JSON, or as ``function`` is annotated; waits until it has ended.

        Raises JobFailed when it ended otherwise; TimeoutError after ``timeout`` seconds, also for a job that keeps no
        result (``result_ttl=``). ``queue``: where it was pushed to, to say more when it does not end.
        """
        from henchman.client.results import await_result

        return await_result(self, jid, timeout, function, queue)

    @overload
    async def aresult(
        self, jid: str, timeout: float | None = None, *, function: None = None, queue: str | None = None
    ) -> Any: ...
    @overload
    async def aresult(
        self, jid: str, timeout: float | None = None, *, function: Callable[..., R], queue: str | None = None
    ) -> R: ...
    async def aresult(
        self, jid: str, timeout: float | None = None, *, function: Any = None, queue: str | None = None
    ) -> Any:
        """``result``, awaited."""
        from henchman.client.results import aawait_result

        return await aawait_result(self, jid, timeout, function, queue)

    # --- batches ----------------------------------------------------------------------------------------------------

    def batch(
        self,
        description: str = "",
        *,
        on_success: Callback = None,
        on_complete: Callback = None,
        on_death: Callback = None,
        tags: Texts = (),
        expires: float | timedelta | None = None,
        open_for: float | timedelta = 86400.0,
        atomic: bool = False,
        parent: Batch | str | None = None,
        keep: float | timedelta = 7 * 86400.0,
        results: bool = False,
    ) -> Batch:
        """A batch of jobs: ``with app.batch("Import", on_complete=notify) as b:``, or ``open()`` and ``close()`` it.

        Jobs that this thread or task enqueues within the block belong to it (tasks too, threads not: they use
        ``b.add(job, rows)`` or ``job.using(batch=b)``). Callbacks are jobs or names of jobs, called with the id of the
        batch: ``on_complete`` when every job is settled for good, ``on_success`` when all finished, ``on_death`` at the
        first error; each is enqueued exactly once a generation. ``expires``: seconds after which no job of it starts.
        ``open_for``: seconds after which a batch is closed whose producer is gone. ``atomic``: nothing starts before
        the block has ended well. ``parent``: the batch that it is part of; the block that it is made in, when nothing
        is said. ``keep``: seconds that the server keeps a complete one; with ``results`` also what its jobs return, see
        ``Batch.results``. Nothing is sent before it is opened. DefinitionError says what is wrong.
        """
        from henchman.batch.batch import new_batch

        return new_batch(
            self,
            description,
            on_success=on_success,
            on_complete=on_complete,
            on_death=on_death,
            tags=tags,
            expires=expires,
            open_for=open_for,
            atomic=atomic,
            parent=parent,
            keep=keep,
            results=results,
        )

    def workflow(self, description: str = "", **options: Unpack[WorkflowKeywords]) -> Workflow:
        """A batch whose jobs wait for each other: ``with app.workflow("Order 17") as flow:``, then
        ``pay = flow.add(charge.call("17"))``, ``flow.add(ship.call("17"), after=[pay])``. Whole or nothing.

        ``options``: on_success, on_complete, on_death, tags, expires, open_for (an hour), parent, keep.
        """
        from henchman.batch.workflow import new_workflow

        return new_workflow(self, description, options)

    def get_batch(self, batch: str) -> Batch:
        """The batch of this id, wherever it was made. No I/O; what is done with it raises UnknownBatch."""
        from henchman.batch.batch import find_batch

        return find_batch(self, batch)

    def batch_of(self, batch: str, jid: str, expires: float | None, results: bool, step: str) -> Batch:
        """The batch of the running job ``jid``, as that job sees it; of one that is a ``step``, the workflow."""
        from henchman.batch.workflow import batch_of_running

        return batch_of_running(self, batch, jid, expires, results, step)

    def batch_status(self, batch: str) -> BatchStatus:
        """How the batch of this id stands, in one look whatever its size; UnknownBatch when there is none."""
        return self.get_batch(batch).status()

    async def abatch_status(self, batch: str) -> BatchStatus:
        """``batch_status``, awaited."""
        return await self.get_batch(batch).astatus()

    def batch_events(self, batch: str, status: str | Sequence[str] | None = None) -> Iterator[Any]:
        """What became of each job of a batch, in the order in which they were enqueued, from history; one page after
        the other is read. ``status``: only those, "failed" or ["failed", "error"].

        HistoryError says why there is no history, and how to turn it on.
        """
        return self.get_batch(batch).events(status)

    def abatch_events(self, batch: str, status: str | Sequence[str] | None = None) -> AsyncIterator[Any]:
        """``batch_events``, for ``async for``."""
        return self.get_batch(batch).aevents(status)

    def audit(self) -> Audited:
        """One round of the auditor, as a worker makes it each minute; what it did.

        It closes batches that were left open, and settles jobs that left our hands; of a batch it must have seen that
        nothing moves for ten minutes, so a single call of a short program does little.
        """
        from henchman.batch.auditor import Auditor

        if self._auditor is None:  # it remembers what it saw from one round to the next
            self._auditor = Auditor(self)
        return self._auditor.audit()

    async def aaudit(self) -> Audited:
        """``audit``, awaited."""
        audited: Audited = await in_thread(self.audit)
        return audited

    # --- what lies in the server: the properties do no I/O, the methods of what they give do --------------------------

    def _run(self, procedure: Procedure[T]) -> T:
        return run(self.connections, procedure)

    async def _arun(self, procedure: Procedure[T]) -> T:
        return await arun(self.aconnections, procedure)

    @property
    def queues(self) -> Queues:
        """All queues: ``app.queues["mail"].size()``, ``for queue in app.queues``."""
        from henchman.inspector.queues import Queues

        return Queues(self)

    @property
    def ordered_queues(self) -> OrderedQueues:
        """All ordered queues: ``app.ordered_queues["products"].stats()``, ``for queue in app.ordered_queues``."""
        from henchman.inspector.ordered import OrderedQueues

        return OrderedQueues(self)

    @property
    def scheduled(self) -> JobSet:
        """The jobs that are to start later."""
        return self._job_set("scheduled")

    @property
    def retries(self) -> JobSet:
        """The jobs that failed and are tried again."""
        return self._job_set("retries")

    @property
    def dead(self) -> JobSet:
        """The jobs that have used up their retries, the latest first."""
        return self._job_set("dead")

    def _job_set(self, name: SetName) -> JobSet:
        from henchman.inspector.sets import JobSet

        return JobSet(self, name)

    @property
    def blocked(self) -> BlockedJobs:
        """The jobs that wait for others: for a business key, or for jobs that have not succeeded yet."""
        from henchman.inspector.blocked import BlockedJobs

        return BlockedJobs(self)

    @property
    def limits(self) -> Limits:
        """How many jobs may run at once, or start in a time: who has a place, who waits, and another size."""
        from henchman.inspector.limits import Limits

        return Limits(self)

    @property
    def pauses(self) -> Pauses:
        """Classes of jobs, and tags, of which nothing starts until they go on."""
        from henchman.inspector.pauses import Pauses

        return Pauses(self)

    def limit(
        self,
        limit: str | Concurrent,
        *,
        by: str | int | tuple[str | int, ...] | None = None,
        wait: float | timedelta | None = None,
    ) -> Place:
        """A place of a limit outside of jobs: ``with app.limit("bank"):``, or ``async with``.

        ``by``: whose, where each value has a limit of its own. ``wait``: seconds or a timedelta to wait for it at most,
        for ever where it is left out; then LimitReached. A program that dies gives its place back with its lease.
        """
        from henchman.client.places import Place

        return Place(self, limit, by, wait)

    @property
    def processes(self) -> Processes:
        """The worker processes, Ruby's too."""
        from henchman.inspector.processes import Processes

        return Processes(self)

    @property
    def work(self) -> Running:
        """The running jobs, the longest running first."""
        from henchman.inspector.processes import Running

        return Running(self)

    @now
    def stats(self) -> Procedure[Stats]:
        """The counts as they are now: processed, failed, enqueued, scheduled, retries, dead, busy…"""
        from henchman.inspector.metrics import overview

        return (yield from overview(self.keys)).stats

    astats = awaited(stats)

    def job_status(self, jid: str, *, queue: str | None = None) -> JobStatus:
        """Where a job is now, and what is known of it, also from history. ``queue``: where to look first."""
        from henchman.inspector.jobs import find_job, recorded

        return recorded(self, self._run(find_job(self.keys, jid, queue, mask=self.registry.mask)))

    async def ajob_status(self, jid: str, *, queue: str | None = None) -> JobStatus:
        """``job_status``, awaited."""
        from henchman.inspector.jobs import arecorded, find_job

        return await arecorded(self, await self._arun(find_job(self.keys, jid, queue, mask=self.registry.mask)))

    def why(self, jid: str) -> str:
        """Why a job does not run, or what became of it: one sentence, with the command that would change it."""
        status = self.job_status(jid)
        found = self.why_not_pushed(status) or self._run(self._explained(status))
        return found.whole

    async def awhy(self, jid: str) -> str:
        """``why``, awaited."""
        status = await self.ajob_status(jid)
        found: Explanation = await in_thread(self.why_not_pushed, status) or await self._arun(self._explained(status))
        return found.whole

    def why_not_pushed(self, status: JobStatus) -> Explanation | None:
        """Of a job that the server has nothing of, and that stands in the outbox: why it is not pushed."""
        if status.state != "unknown" or not self.config.outbox:
            return None
        from henchman.inspector.obstacles import Explanation
        from henchman.outbox import load

        database = self.open_outbox()
        try:
            found = load("status").why_not_pushed(database, self.connections, self.keys, status.jid)
        finally:
            database.close()
        return None if found is None else Explanation(*found)

    def _explained(self, status: JobStatus) -> Procedure[Explanation]:
        from henchman.inspector.obstacles import explained

        return explained(self.keys, status, self.config.max_retries, self.registry.mask)

    def deferred_status(self, jid: str, queue: str, text: str) -> JobStatus:
        """The status of a job that waits in this process for the commit of a transaction."""
        from henchman.inspector.jobs import JobStatus

        return JobStatus(jid, "deferred", text, queue)

    @now
    def metrics(
        self, minutes: int | None = None, *, hours: int | None = None, name: str | None = None
    ) -> Procedure[Metrics]:
        """What ran in the last ``minutes`` (1 to 480; 60 when nothing is said) or ``hours`` (1 to 72), by class.

        ``name``: of that class alone. ArgumentError for other figures.
        """
        from henchman.inspector.metrics import metrics

        return metrics(self.keys, minutes, hours=hours, name=name)

    ametrics = awaited(metrics)

    def mark_deploy(self, label: str | None = None, at: dt.datetime | None = None) -> Deploy:
        """Mark in the metrics that ``label`` was deployed, now or at an aware time; each machine may say so.

        Without ``label`` it is the commit that is checked out, else the time.
        """
        from henchman.inspector.metrics import mark_deploy

        return self._run(mark_deploy(self.keys, label, at))

    async def amark_deploy(self, label: str | None = None, at: dt.datetime | None = None) -> Deploy:
        """``mark_deploy``, awaited."""
        marked: Deploy = await in_thread(self.mark_deploy, label, at)
        return marked

    # --- workers ----------------------------------------------------------------------------------------------------

    def on(self, event: Hook) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: call the function at ``startup``, ``quiet``, ``shutdown``, ``heartbeat`` or ``beat``; at
        ``last_words``, when a worker process ends because of an error that is no job's, with that error.

        The function is ``def`` or ``async def``. A ``startup`` that raises stops the start; what raises elsewhere is
        named in the log. DefinitionError when there is no such event.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.hooks.on(event, function)
            return function

        self.hooks.check(event)
        return register

    def carry(self, *variables: ContextVar[Any]) -> None:
        """Let these context variables travel with every job: set where it is pushed, set again while it runs.

        Their values are plain JSON. DefinitionError when two have one name. Call it once, where the app is made.
        """
        from henchman.work.context import ContextPusher, ContextSetter

        self.server_middleware.prepend(ContextSetter(variables))
        self.client_middleware.prepend(ContextPusher(variables))

    def embed(self, **settings: Unpack[SettingKeywords]) -> Embedded:
        """A worker in this very process: ``with app.embed(concurrency=4): …``, ``async with``, or ``start()`` and
        ``stop()`` it.

        ``settings`` are those of ``Config`` that are a worker's (queues, concurrency, max_retries, lease, tag…) and go
        before the app's own; ConfigError names one that is the whole app's. No signals are touched.
        ``henchman.worker.launcher.Embedded`` says what it gives, and what it cannot do.
        """
        from henchman.worker.launcher import Embedded, embedded_config

        worker = copy.copy(self)
        worker.config = embedded_config(self.config, dict(settings))
        worker._crons, worker._connections, worker._aconnections = self.crons, None, None
        worker._of = self
        return Embedded(worker)

    def companions(self, *, alone: bool = True) -> list[Companion]:
        """The parts that a worker of this app runs beside its own. ``alone``: there is no supervisor, which writes
        history in a process of its own."""
        from henchman.batch.auditor import Auditor
        from henchman.cron.ticker import CronTicker

        ours: list[Companion] = [CronTicker(self), Auditor(self)]
        if self.config.outbox is not None:
            from henchman.outbox import load

            ours.append(load("relay").Relay(self, self.open_outbox()))
        if alone and self.config.history_url() is not None:
            from henchman.history.recorder import companion

            recorder = companion(self)
            return ours if recorder is None else [*ours, recorder]
        return ours

    def sources(self) -> Mapping[str, Source]:
        """By name, the ordered queues as a worker gets their work; see ``henchman.work.source``."""
        if not self.registry.ordered():
            return {}
        from henchman.ordered.source import sources_of

        return sources_of(self)

    def placement(self, queues: Sequence[str]) -> frozenset[str]:
        """Which of the ordered ``queues`` this process serves; ConfigError when the splitter is wrong."""
        if not queues:
            return frozenset()
        from henchman.ordered.source import placement

        return placement(self, queues)

    # --- settings and connections -----------------------------------------------------------------------------------

    def configure(self, **settings: Unpack[SettingKeywords]) -> None:
        """Settings that go before those of the constructor; ConfigError once a connection has been made."""
        with self._lock:
            if self._connections is not None or self._aconnections is not None:
                raise ConfigError("this app is connected already; configure it before its first push")
            config = self.config.with_arguments(**settings)
            if config.transactional != self.config.transactional:
                raise ConfigError("transactional is said where the app is made: App(transactional=True)")
            self.config, self._keys = config, None

    @property
    def keys(self) -> AppKeys:
        """The keys of this app on the server, with its namespace; and the business keys of its jobs."""
        keys = self._keys
        if keys is None:
            keys = self._keys = AppKeys(self)
        return keys

    def stamp(self, seconds: float) -> bytes:
        """A Unix time as payloads of this app write it."""
        return times.write(seconds, self.config.timestamps or "seconds")

    def notice(self, text: str, *facts: object) -> None:
        """Write one warning line of the logger ``henchman``."""
        import logging

        logging.getLogger("henchman").warning(text, *facts)

    def open_history(self) -> Any:
        """The database of history, opened at first use; HistoryError says why there is none."""
        from henchman.history import load

        if self._history is None:
            self._history = load(self.config)
        return self._history

    def open_outbox(self) -> Any:
        """The ``OutboxDatabase`` that the setting ``outbox`` means; ConfigError when it means none."""
        from henchman.outbox import load

        named = self.config.outbox or ""
        url = named if "://" in named else self.outbox_databases.get(named)
        if url is None:
            known = (
                f"known: {', '.join(self.outbox_databases)}"
                if self.outbox_databases
                else "app.outbox_databases is empty"
            )
            raise ConfigError(
                f"outbox = {named!r} names no database ({known}); give an address, postgresql://user@host/name"
            )
        return load("status").OutboxDatabase(url)

    @property
    def connections(self) -> Connector:
        """The sync runner. With nothing configured its first call starts the embedded server."""
        if here := self.stand_ins:
            runner: Connector = here[-1].runner
            return runner
        return self._connections or (LateConnections(self._connect) if self._must_start else self._connect())

    @property
    def aconnections(self) -> AsyncConnector:
        """The async runner, as ``connections``; what its first call takes, the event loop does not wait for."""
        if here := self.stand_ins:
            runner: AsyncConnector = here[-1].arunner
            return runner
        return self._aconnections or (LateAsyncConnections(self._aconnect) if self._must_start else self._aconnect())

    def close(self) -> None:
        """Close idle connections, history's too, and leave the embedded server; the app connects again when it is used.

        Buffered jobs are delivered first, where the server is back within 5 s; what is left stays buffered.
        """
        if self.client.buffer.waiting:
            self.client.buffer.flush()
        if self._outbox is not None:
            self._outbox.close()
        with self._lock:
            if self._connections is not None:
                self._connections.close()
            self._connections = self._aconnections = None
            if self._history is not None:
                self._history.close()
                self._history = None
            if self._server is not None:
                self._server.release()
                self._server = None

    async def aclose(self) -> None:
        """``close``, awaited; closes the connections of this event loop too, which ``close`` cannot."""
        for runner in (self._aconnections, *(one.arunner for one in self.stand_ins)):
            if runner is not None:
                await runner.close()
        await in_thread(self.close)

    @property
    def _must_start(self) -> bool:
        """Whether the embedded server is to be found or started before there is an address."""
        return self.config.redis_url is None and self.config.embedded and self._server is None

    def _connect(self) -> Connector:
        from henchman.store.connection import Connections

        if self._of is not None:
            return self._of.connections
        with self._lock:
            if self._connections is None:
                self._connections = Connections(self._url(), **self._limits())
            return self._connections

    def _aconnect(self) -> AsyncConnector:
        from henchman.store.aconnection import AsyncConnections

        if self._of is not None:
            return self._of.aconnections
        with self._lock:
            if self._aconnections is None:
                self._aconnections = AsyncConnections(self._url(), **self._limits())
            return self._aconnections

    def _limits(self) -> dict[str, Any]:
        """How long connections wait, and, once ``_url`` has started the embedded server, how it is started again."""
        config, server = self.config, self._server
        revive = None if server is None else self._revive
        return {"connect_timeout": config.connect_timeout, "io_timeout": config.io_timeout, "revive": revive}

    def _url(self) -> str:
        config = self.config
        if config.redis_url is not None:
            return config.redis_url
        if not config.embedded:
            raise ConfigError(
                "no server is configured and embedded = false: set redis_url in henchman.toml, or REDIS_URL in the "
                "environment"
            )
        if self._server is not None:
            return self._server.acquire()
        from henchman.embedded.server import EmbeddedServer

        folder = config.server_folder()
        server = EmbeddedServer(folder)
        started = server.find() is None
        url = server.acquire()
        self._server = server
        if started:
            self.notice(
                "no server is configured: started the embedded one in %s (to use a real one, set REDIS_URL)", folder
            )
        return url

    def _revive(self) -> bool:
        """Start the embedded server again when it died."""
        if self._server is not None:
            self._server.ensure()
        return True


class AppKeys(Keys):
    """``app.keys``: how what is stored is called; ``find`` and ``unlock`` are about the business keys of jobs."""

    def __init__(self, app: App) -> None:
        super().__init__(app.config.namespace)
        self._app = app

    def _run(self, procedure: Procedure[T]) -> T:
        return run(self._app.connections, procedure)

    async def _arun(self, procedure: Procedure[T]) -> T:
        return await arun(self._app.aconnections, procedure)

    @now
    def find(self, job: Job[Any, Any] | str, key: str | int) -> Procedure[KeyState | None]:
        """Who has a business key, or how the job of a ``once`` key ended; None when the key is free.

        ``job``: a job, or the text of a scope. ArgumentError for what is no key.
        """
        from henchman.inspector.base import scoped
        from henchman.inspector.keys import states

        found = yield from states(self, *scoped(job, key), self._app.registry.mask)
        return found[0] if found else None

    @now
    def unlock(self, job: Job[Any, Any] | str, key: str | int, *, force: bool = False) -> Procedure[list[KeyState]]:
        """Take a business key from who holds it; from whom. The next that waits for it has it then.

        ArgumentError, and nothing is done, when its job lives, unless ``force``: then another may run beside it.
        """
        from henchman.inspector.base import scoped
        from henchman.inspector.keys import unlock

        freed = yield from unlock(self, *scoped(job, key), force=force, mask=self._app.registry.mask)
        for one in freed:
            self._app.events.emit("key_unlocked", scope=one.scope, key=one.key, jid=one.jid, status=one.status)
        return freed

    afind = awaited(find)
    aunlock = awaited(unlock)
