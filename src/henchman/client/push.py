"""The push: arguments → payload → middleware → server. One call of one definition, sync and async.

What it does not promise: a push whose answer was not read may have happened; ServerAway says so (``executed=None``).
It is never sent again and never buffered: a plain job is not idempotent, and only the caller can look whether it ran.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from henchman.client.admission import Admitted, KeyedPushes
from henchman.client.buffer import Buffer
from henchman.client.fair import settled_in
from henchman.client.needs import Need
from henchman.client.options import OUTSIDE, Membership, PushOptions, named_options, within
from henchman.client.prepared import Admission, PreparedPush, PushSequence, dated, jids_of, prepare, push_tracked
from henchman.client.rows import SLICE_RECORDED, Arguments, Pushed, RowSlices, Slice, check_reached, tell_pushed
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, BatchError, DefinitionError, ResultError, ServerAway, ServerError
from henchman.kernel.middleware import around, compile_async, compile_sync, in_thread
from henchman.kernel.text import as_shown
from henchman.store import jobs
from henchman.store.call import Call, adrive, drive, replicated
from henchman.store.fair import declare
from henchman.store.leases import ask_time
from henchman.wire.arguments import Signature
from henchman.wire.encryption import Keyring
from henchman.wire.payload import decode, encode, new_jid, new_jids

__all__ = ["Client", "Handle", "Pushed", "handle_of", "next_slice"]

T = TypeVar("T")
R = TypeVar("R", covariant=True)
TIME_KNOWN = 1.0  # seconds for which the server's time goes on being known: so long is a step of it not noticed


_ANYTHING = Signature.by_name("enqueue")
_RUBY = re.compile(r"[A-Z]\w*(::[A-Z]\w*)*")  # how Ruby names classes; a Python job has this name only by name=


class _Aside(NamedTuple):
    """A step of a push that is no call to the server: how to do it now, and awaited."""

    now: Callable[[], Any]
    awaited: Callable[[], Awaitable[Any]]


class Handle(Generic[R]):
    """One pushed job. ``admission``: "created"; "stopped" when a client middleware stopped the push; "blocked" when it
    waits for another job, or until its atomic batch ends well; "buffered" when the server is away and the job is kept
    in the memory of this process: that is not accepted, it dies with it; "deferred" until the transaction that it was
    pushed in commits; "duplicate": its key belongs to another job, and this handle is the handle of that one,
    ``duplicate_of``; ``differs``: that one was pushed with other arguments. ``need``: what a job waits for that is
    pushed with ``using(after=handle)``; None when this one is not followed.
    """

    __slots__ = ("_function", "_keeps", "_runtime", "admission", "differs", "duplicate_of", "jid", "need", "queue")

    def __init__(
        self, jid: str, queue: str, admission: Admission, runtime: Runtime, keeps: bool = False, function: Any = None
    ) -> None:
        self.jid = jid
        self.queue = queue
        self.admission: Admission = admission
        self.duplicate_of: str | None = None
        self.differs = False
        self.need: Need | None = None
        self._runtime = runtime
        self._keeps = keeps
        self._function = function

    def __repr__(self) -> str:
        return f"Handle({self.jid} in {self.queue!r}, {self.admission})"

    @property
    def problem(self) -> str | None:
        """Why a deferred job never came to the server, or may not have; None as long as nothing is wrong."""
        return None

    @property
    def _place(self) -> str | None:
        """The queue to look in; None for all: nobody knows into which the first of a duplicate was pushed."""
        return self.queue if self.duplicate_of is None else None

    def status(self) -> Any:
        """Where the job is now, as ``app.job_status`` tells; it looks through its queue and the sets, page by page."""
        return self._runtime.job_status(self.jid, queue=self._place)

    async def astatus(self) -> Any:
        """``status``, awaited."""
        return await self._runtime.ajob_status(self.jid, queue=self._place)

    def cancel(self) -> None:
        """A waiting job never starts; a running one sees ``cancelled`` (an async job is cancelled)."""
        self._runtime.cancel(self.jid)

    async def acancel(self) -> None:
        """``cancel``, awaited."""
        await self._runtime.acancel(self.jid)

    def result(self, timeout: float | None = None) -> R:
        """What the job returned, as its return annotation says; waits until it has ended, at most ``timeout`` seconds.

        Woken by the server, nothing is polled. Raises JobFailed when the job ended otherwise, TimeoutError, and
        ResultError at once when the job keeps no result (``result_ttl=``).
        """
        self._check()
        value: R = self._runtime.result(self.jid, timeout, function=self._function, queue=self._place)
        return value

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the same word as above
        """``result``, awaited."""
        self._check()
        value: R = await self._runtime.aresult(self.jid, timeout, function=self._function, queue=self._place)
        return value

    def _check(self) -> None:
        if not self._keeps:
            raise ResultError(
                f"job {self.jid} keeps no result: say how long it is to be kept, as in @app.job(result_ttl=3600) or "
                "using(result_ttl=3600)"
                if self.admission != "stopped"
                else f"job {self.jid} was stopped by a client middleware: it never runs"
            )


#: a push, written once: it yields calls and other steps, and ``Client`` does them now or awaited
Steps = Generator[Call[Any] | _Aside, Any, T]


class Client:
    """Pushes for one app."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._chain = runtime.client_middleware
        self._stamp = runtime.stamp
        self._registry = runtime.registry
        self._clock = runtime.clock
        self.sequence = PushSequence()
        self.keyring = Keyring(lambda: runtime.config.encryption_keys)
        self._keyed = KeyedPushes(
            runtime,
            self.sequence,
            self.now_for,
            self._time_of,
            self._learn_time,
            self._through_links,
            self._call,
            self._write_rows,
        )
        self.buffer = Buffer(runtime)
        self.now: Callable[[], float] = time.time  # tests put a clock of their own here

    def push(self, using: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle[Any]:
        """Push one job of a definition."""
        plan = self._direct(using)
        if plan is None:
            return self._with_others(using, args, kwargs)
        handle, scheduled, payload, call = self._one(plan, using.job.signature.encode(args, kwargs))
        try:
            self._runtime.connections.run(call)
        except ServerAway as error:
            self._keep(plan, scheduled, [(plan.queue, [payload])], error)
            handle.admission = "buffered"
        return handle

    async def apush(self, using: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle[Any]:
        """``push``, awaited."""
        plan = self._direct(using)
        if plan is None:
            return await self._awith_others(using, args, kwargs)
        handle, scheduled, payload, call = self._one(plan, using.job.signature.encode(args, kwargs))
        try:
            await self._runtime.aconnections.run(call)
        except ServerAway as error:
            self._keep(plan, scheduled, [(plan.queue, [payload])], error)
            handle.admission = "buffered"
        return handle

    def push_many(self, using: Any, rows: Iterable[Any]) -> Pushed:
        """Push a job for each row, a round trip a slice."""
        if isinstance(rows, AsyncIterable):
            raise ArgumentError(f"{using.job.name}.enqueue_many got an async iterator: await aenqueue_many(rows)")
        taken = RowSlices(using.job)
        return self._driven(self._push_many(using, taken, taken.read(rows)))

    async def apush_many(self, using: Any, rows: Iterable[Any] | AsyncIterable[Any]) -> Pushed:
        """``push_many``, awaited."""
        taken = RowSlices(using.job)
        read = taken.aread(rows) if isinstance(rows, AsyncIterable) else taken.read(rows)
        return await self._adriven(self._push_many(using, taken, read))

    def by_name(
        self, name: str, args: tuple[Any, ...], given: dict[str, Any], kwargs: Mapping[str, Any] | None = None
    ) -> Handle[Any]:
        """Push a job for a worker that we know only by name, made of plain JSON arguments. ``given``: its options."""
        return self._driven(self._by_name(name, args, given, kwargs))

    async def aby_name(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Handle[Any]:
        """``by_name``, awaited."""
        return await self._adriven(self._by_name(name, args, given))

    def check_queue(self, name: str, queue: str | None) -> None:
        """DefinitionError when a plain job would go to an ordered queue of this app."""
        self._registry.refuse_ordered(name, queue)

    def check_limits(self, name: str, push: PushOptions) -> None:
        """DefinitionError when ``push`` has another idea of a limit than definitions of this app."""
        self._registry.check_limits(f"{name}.using", push.limits or ())

    def check_transaction(self, name: str, push: PushOptions) -> None:
        """DefinitionError when ``push`` names a transaction, and this app waits for none."""
        if push.db is not None or push.session is not None:
            option = "session" if push.db is None else "db"
            raise DefinitionError(f"{name}: {option}= needs an app that waits for commits: App(transactional=True)")

    def check_closing(self, batch: str) -> None:
        """BatchError when jobs of ``batch``, which is to be closed, wait for the commit of a transaction."""

    def _driven(self, steps: Steps[T]) -> T:
        return self._within_links(steps) if self._chain.links else drive(self._do, steps)

    async def _adriven(self, steps: Steps[T]) -> T:
        if not self._chain.links:
            return await adrive(self._ado, steps)
        with around(self._chain):
            return await adrive(self._ado, steps)

    def _within_links(self, steps: Steps[T]) -> T:
        """The result of a push; links may have a block around all of it."""
        with around(self._chain):
            return drive(self._do, steps)

    def _do(self, step: Call[Any] | _Aside) -> Any:
        return self._runtime.connections.run(step) if isinstance(step, Call) else step.now()

    async def _ado(self, step: Call[Any] | _Aside) -> Any:
        return await (self._runtime.aconnections.run(step) if isinstance(step, Call) else step.awaited())

    def _direct(self, using: Any) -> PreparedPush | None:
        """The prepared push of ``using`` when one call is all: no batch, record, link, clock or buffer takes part."""
        plan: PreparedPush | None = using.prepared
        if plan is None or plan.timed or not plan.is_plain or self._chain.links or self.buffer.held:
            return None
        batch = using.push_as.batch
        return plan if batch is OUTSIDE or (batch is None and within.get() is None) else None

    def _direct_keyed(self, using: Any) -> PreparedPush | None:
        """The prepared push of ``using`` when its key alone takes part."""
        plan: PreparedPush | None = using.prepared
        return None if plan is None or plan.keyed is None else self._keyed.direct(using, plan)

    def _one(self, plan: PreparedPush, arguments: Arguments) -> tuple[Handle[Any], bool, bytes, Call[Any]]:
        """One job that no link changes: its handle, whether it is scheduled, its payload, the call that pushes it."""
        jid = new_jid()
        scheduled, now = self._time_of(plan)
        payload = plan.template.render(*arguments, jid, *now)
        handle: Handle[Any] = Handle(
            jid, plan.queue, plan.admission, self._runtime, plan.result_ttl is not None, plan.function
        )
        call = self.confirmed(self._call(plan, scheduled, plan.queue, [payload]), lambda: [jid])
        return handle, scheduled, payload, call

    def _with_others(self, using: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle[Any]:
        """A push in which a batch, record, link, clock, buffer or key takes part; that of a key alone is one call."""
        plan = self._direct_keyed(using)
        if plan is None:
            return self._driven(self._push(using, args, kwargs))
        call, read = self._keyed.one(plan, using.job.signature.encode(args, kwargs))
        return self._handle(plan, read(self._runtime.connections.run(call)))

    async def _awith_others(self, using: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle[Any]:
        plan = self._direct_keyed(using)
        if plan is None:
            return await self._adriven(self._push(using, args, kwargs))
        call, read = self._keyed.one(plan, using.job.signature.encode(args, kwargs))
        return self._handle(plan, read(await self._runtime.aconnections.run(call)))

    def _handle(self, plan: PreparedPush, one: Admitted | None) -> Handle[Any]:
        """The handle of a push with a key; None: a link stopped it."""
        if one is None:
            return Handle(new_jid(), plan.queue, "stopped", self._runtime)
        handle = handle_of(one, self._runtime, plan.result_ttl is not None, plan.function)
        handle.need = None if plan.keyed is None else plan.keyed.followed(one.key, one.jid)
        return handle

    def _push(self, using: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps[Handle[Any]]:
        plan = yield from self._prepared(using)
        return (yield from self._send(plan, using.job.signature.encode(args, kwargs)))

    def _by_name(
        self, name: str, args: tuple[Any, ...], given: dict[str, Any], kwargs: Mapping[str, Any] | None = None
    ) -> Steps[Handle[Any]]:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"enqueue({as_shown(name, 80)}): a job is named by a text")
        known = self._registry.find(name)
        options, push = named_options(name, given, None if known is None else known.options)
        group = yield from self._group(push)
        if group is not None and _RUBY.fullmatch(name) and known is None:
            raise BatchError(
                f"{name} is no job of this app, and named like one of Ruby's: a Ruby worker tells no batch how a job "
                "ended. Push it outside: enqueue(…, batch=None). If Python runs it, define it in this app"
            )
        signature, config = (None, None) if known is None else (known.signature, self._runtime.config)
        plan = prepare(name, options, push, group, signature=signature, config=config)
        self.check_queue(name, plan.queue)
        self.check_transaction(name, push)
        self.check_limits(name, push)
        return (yield from self._send(self._tied(plan, push), _ANYTHING.encode(args, dict(kwargs or {}))))

    def _push_many(self, using: Any, taken: RowSlices, slices: Iterator[Slice] | AsyncIterator[Slice]) -> Steps[Pushed]:
        plan = yield from self._prepared(using)
        if plan.outbox is None and not plan.is_plain:
            taken.most = SLICE_RECORDED
        if plan.keyed is not None:
            return (yield from self._keyed.send_many(plan, partial(next_slice, slices)))
        if plan.timed:
            yield from self._learn_time()
        count = passed = kept = 0
        try:
            while arguments := (yield from next_slice(slices)):
                plan = dated(plan, self.now_for(plan))
                scheduled, now = self._time_of(plan)
                payloads = plan.template.render_many(arguments, new_jids(len(arguments)), *now)
                by_queue = {plan.queue: payloads}
                if self._chain.links:
                    by_queue = yield from self._through_links(plan, scheduled, payloads)
                kept += yield from self._deliver(plan, scheduled, by_queue)
                count += len(arguments)
                passed += sum(map(len, by_queue.values()))
        except Exception as error:
            tell_pushed(error, count)
            raise
        deferred = passed if plan.admission == "deferred" else 0
        return Pushed(count, passed - kept - deferred, 0, count - passed, kept, deferred)

    def _send(self, plan: PreparedPush, arguments: Arguments) -> Steps[Handle[Any]]:
        """Push one job."""
        if plan.keyed is not None:
            return self._handle(plan, (yield from self._keyed.send(plan, arguments)))
        if plan.timed:
            yield from self._learn_time()
        plan, jid = dated(plan, self.now_for(plan)), new_jid()
        scheduled, now = self._time_of(plan)
        payloads = [plan.template.render(*arguments, jid, *now)]
        by_queue = {plan.queue: payloads}
        if self._chain.links:
            by_queue = yield from self._through_links(plan, scheduled, payloads)
        kept = yield from self._deliver(plan, scheduled, by_queue)
        for queue, payloads in by_queue.items():
            if self._chain.links:
                jid = decode(payloads[0])["jid"]
            admission = "buffered" if kept else plan.admission
            return Handle(jid, queue, admission, self._runtime, plan.result_ttl is not None, plan.function)
        return Handle(jid, plan.queue, "stopped", self._runtime)

    # --- before the push: the batch, the prepared payload, the time -------------------------------------------------

    def _prepared(self, using: Any) -> Steps[PreparedPush]:
        """What pushes of ``using`` have in common, kept for the next one into the same batch, or into none."""
        group = yield from self._group(using.push_as)
        plan: PreparedPush | None = using.prepared if group is None else using.prepared_in_batch
        if plan is None or plan.group is not group:
            job = using.job
            config = self._runtime.config
            plan = prepare(job.name, job.options, using.push_as, group, job.function, job.signature, config)
            self.check_queue(job.name, plan.queue)
            if plan.fair and not self._runtime.stand_ins:
                yield declare(self._runtime.keys, plan.queue, {})
            if group is None:
                using.prepared = plan
            else:
                using.prepared_in_batch = plan
        return self._tied(plan, using.push_as)

    def _tied(self, plan: PreparedPush, push: PushOptions) -> PreparedPush:
        """``plan`` for a push here and now; a transactional client ties it to the transaction that is open."""
        return plan

    def _group(self, push: PushOptions) -> Steps[Membership | None]:
        """The batch that a push belongs to: the one it names (or none), else the one whose block it is in."""
        group = None if push.batch is OUTSIDE else push.batch or within.get()
        if group is not None and not group.known:
            yield group.learn(self._runtime.keys)
        return group

    def _learn_time(self) -> Steps[None]:
        """Ask for the server's time where jobs depend on it. Without an answer this host's clock must do."""
        if self.now is time.time and self._clock.age > TIME_KNOWN:
            with contextlib.suppress(ServerError):
                yield ask_time(self._clock)

    def _time_of(self, plan: PreparedPush) -> tuple[bool, tuple[bytes, bytes | None]]:
        """Whether jobs that are pushed now go to the schedule; their ``created_at`` and ``enqueued_at``."""
        seconds = self.now_for(plan)
        scheduled = plan.may_wait and plan.scheduled(seconds)
        now = self._stamp(seconds)
        return scheduled, (now, None if scheduled or plan.unstamped else now)

    def now_for(self, plan: PreparedPush) -> float:
        """The time at which jobs of ``plan`` are pushed."""
        return self._clock.now() if plan.timed and self.now is time.time else self.now()

    # --- the push itself --------------------------------------------------------------------------------------------

    def _deliver(self, plan: PreparedPush, scheduled: bool, by_queue: dict[str, list[bytes]]) -> Steps[int]:
        """Push, or buffer what is proven not to have been executed; how many jobs were buffered.

        Tracked jobs are never buffered: a batch must know what it has.
        """
        if plan.outbox is not None and not self._runtime.stand_ins:
            yield from self._write_rows(plan, scheduled, by_queue, {})
            return 0
        if not plan.is_plain and (plan.group is not None or plan.tracked):
            yield from push_tracked(self._runtime, self.sequence, plan, scheduled, by_queue)
            return 0
        buffer = self.buffer
        if buffer.waiting:
            clear = _Aside(buffer.clear, partial(in_thread, buffer.clear))
            if not ((yield clear) if buffer.due else buffer.passable):
                return self._keep(plan, scheduled, list(by_queue.items()), None)
        for place, (queue, payloads) in enumerate(by_queue.items()):  # a middleware may have sent jobs elsewhere
            call = self._call(plan, scheduled, queue, payloads)
            try:
                yield self.confirmed(call, partial(jids_of, payloads))
            except ServerAway as error:
                return self._keep(plan, scheduled, list(by_queue.items())[place:], error)
            if plan.fair and len(payloads) > 1 and not self._runtime.stand_ins:
                yield from settled_in(self._runtime.keys, queue)
        return 0

    def _write_rows(
        self,
        plan: PreparedPush,
        scheduled: bool,
        by_queue: Mapping[str, list[bytes]],
        questions: Mapping[str, bytes],
    ) -> Steps[None]:
        """Write jobs as rows of the transaction that they are part of; ``questions``: what is asked of their keys."""
        outbox = self._runtime.outbox
        rows = outbox.rows(plan, scheduled, by_queue, self.now(), questions)
        yield _Aside(partial(outbox.put, plan.outbox, rows), partial(outbox.aput, plan.outbox, rows))

    def _call(self, plan: PreparedPush, scheduled: bool, queue: str, payloads: list[bytes]) -> Call[Any]:
        if scheduled:
            return jobs.schedule(self._runtime.keys, [(plan.at, plan.delay, payload) for payload in payloads])
        return jobs.push_many(self._runtime.keys, queue, payloads)

    def _keep(
        self,
        plan: PreparedPush,
        scheduled: bool,
        by_queue: Iterable[tuple[str, list[bytes]]],
        error: ServerAway | None,
    ) -> int:
        """Buffer jobs; how many that are. Raises ``error`` when they may have been executed, or there is no room."""
        if error is not None and error.executed is not False:
            raise error
        entries = [
            jobs.Delivery(None if scheduled else queue, plan.at, plan.delay, payload)
            for queue, payloads in by_queue
            for payload in payloads
        ]
        self.buffer.keep(entries, error)
        return len(entries)

    # --- client middleware ------------------------------------------------------------------------------------------

    def _through_links(
        self, plan: PreparedPush, scheduled: bool, payloads: list[bytes]
    ) -> Steps[dict[str, list[bytes]]]:
        """The payloads by queue, as the client middleware leaves them."""
        before = [decode(payload) for payload in payloads]
        reached = yield _Aside(partial(self.through, before), partial(self.athrough, before))
        by_queue: dict[str, list[bytes]] = {}
        for job in reached:
            check_reached(job, "" if plan.group is None else plan.group.id)
            self.check_queue(job["class"], job["queue"])
            if scheduled or plan.unstamped:
                job.pop("enqueued_at", None)  # written when it enters its queue
            by_queue.setdefault(job["queue"], []).append(encode(job))
        return by_queue

    def confirmed(self, call: Call[T], names: Callable[[], list[str]]) -> Call[T]:
        """``call``, confirmed by as many replicas as are asked for; ``names`` are what Unconfirmed tells of."""
        config = self._runtime.config
        if not config.wait_replicas or self._runtime.stand_ins:  # what stands in for a server has no replicas
            return call
        return replicated(call, config.wait_replicas, math.ceil(config.wait_timeout * 1000), names)

    def through(self, jobs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The jobs as the last link of the client middleware left them, without those that a link stopped."""
        reached: list[dict[str, Any]] = []
        chain = compile_sync(self._chain, reached.append)
        for job in jobs:
            before = len(reached)
            chain(job)
            del reached[before:-1]  # a link may have called the next one again
        return reached

    async def athrough(self, jobs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """``through``, awaited."""
        reached: list[dict[str, Any]] = []

        async def arrive(job: dict[str, Any]) -> None:
            reached.append(job)

        chain = compile_async(self._chain, arrive)
        for job in jobs:
            before = len(reached)
            await chain(job)
            del reached[before:-1]
        return reached


def handle_of(one: Admitted, runtime: Runtime, keeps: bool = False, function: Any = None) -> Handle[Any]:
    """The handle of a push that the server has admitted, or not."""
    handle: Handle[Any] = Handle(one.jid, one.queue, one.admission, runtime, keeps, function)
    if one.admission == "duplicate":
        handle.duplicate_of, handle.differs = one.jid, one.differs
    return handle


def next_slice(slices: Iterator[Slice] | AsyncIterator[Slice]) -> Steps[Slice | None]:
    """The slice that is next; None at the end."""
    if isinstance(slices, Iterator):
        return next(slices, None)

    async def read() -> Slice | None:
        return await anext(slices, None)

    following: Slice | None = yield _Aside(read, read)
    return following
