"""The push: arguments → payload → middleware → server. One call of one definition, sync and async.

What it does not promise: a push whose answer was not read may have happened; ServerAway says so (``executed=None``).
It is never sent again and never buffered: a plain job is not idempotent, and only the caller can look whether it ran.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from henchman.client.buffer import Buffer
from henchman.client.bulk import slices
from henchman.client.draft import Draft, draft
from henchman.client.handle import Admission, Handle, Pushed
from henchman.client.membership import OUTSIDE, Lanes, Membership, within
from henchman.client.options import JobOptions, PushOptions, named_options
from henchman.client.parcel import Parcel, keep
from henchman.client.runtime import Runtime
from henchman.client.tracked import tracked_calls
from henchman.errors import ArgumentError, BatchError, DefinitionError, ServerAway, ServerError
from henchman.kernel.ids import new_jid, new_jids
from henchman.kernel.middleware import compile_async, compile_sync, in_thread
from henchman.store import jobs
from henchman.store.call import Call, replicated
from henchman.store.leases import ask_time
from henchman.wire.arguments import Signature
from henchman.wire.payload import decode, encode

__all__ = ["Client"]

T = TypeVar("T")
TIME_KNOWN = 30.0  # seconds for which the server's time goes on being known
Arguments = tuple[bytes, bytes | None]  # the texts of args and, where there are any, of kwargs


def _anything(*args: Any) -> None:
    """The signature of a job that is known only by name."""


_ANYTHING = Signature.of(_anything, name="enqueue")
_RUBY = re.compile(r"[A-Z]\w*(::[A-Z]\w*)*")  # how Ruby names classes; a Python job has this name only by name=


def _named_batch(push: PushOptions) -> Membership | None:
    return None if push.batch is OUTSIDE else push.batch or within.get()


class Client:
    """Pushes for one app."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._chain = runtime.client_middleware
        self._stamp = runtime.stamp
        self._registry = runtime.registry
        self._clock = runtime.clock
        self._lanes = Lanes()
        self.buffer = Buffer(runtime)
        self.now: Callable[[], float] = time.time  # tests put a clock of their own here

    def push(self, using: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle[Any]:
        """Push one job of a definition."""
        return self.send(self._plan(using, self._group(using.push_as)), using.job.signature.encode(args, kwargs))

    async def apush(self, using: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle[Any]:
        """Push one job of a definition, awaited."""
        return await self.asend(
            self._plan(using, await self._agroup(using.push_as)), using.job.signature.encode(args, kwargs)
        )

    def send(self, plan: Draft, arguments: Arguments) -> Handle[Any]:
        """Push one job of a draft."""
        self._learn_time(plan)
        jid, parcel = self._one(plan, arguments)
        if len(self._chain):
            parcel = self._parcel(plan, parcel.scheduled, self.through(parcel.jobs()))
        kept = self._carry(plan, parcel)
        return self._handle(jid, plan, parcel, "buffered" if kept else plan.admission)

    async def asend(self, plan: Draft, arguments: Arguments) -> Handle[Any]:
        """Push one job of a draft, awaited."""
        await self._alearn_time(plan)
        jid, parcel = self._one(plan, arguments)
        if len(self._chain):
            parcel = self._parcel(plan, parcel.scheduled, await self.athrough(parcel.jobs()))
        kept = await self._acarry(plan, parcel)
        return self._handle(jid, plan, parcel, "buffered" if kept else plan.admission)

    def push_many(self, using: Any, rows: Iterable[Any]) -> Pushed:
        """Push a job for each row, a round trip a slice."""
        plan = self._plan(using, self._group(using.push_as))
        self._learn_time(plan)
        count = passed = kept = 0
        for texts in slices(using.job, rows):
            parcel = self._many(plan, texts)
            if len(self._chain):
                parcel = self._parcel(plan, parcel.scheduled, self.through(parcel.jobs()))
            kept += self._carry(plan, parcel)
            count += len(texts)
            passed += parcel.size
        return Pushed(count, passed - kept, 0, count - passed, kept)

    async def apush_many(self, using: Any, rows: Iterable[Any]) -> Pushed:
        """``push_many``, awaited."""
        plan = self._plan(using, await self._agroup(using.push_as))
        await self._alearn_time(plan)
        count = passed = kept = 0
        for texts in slices(using.job, rows):
            parcel = self._many(plan, texts)
            if len(self._chain):
                parcel = self._parcel(plan, parcel.scheduled, await self.athrough(parcel.jobs()))
            kept += await self._acarry(plan, parcel)
            count += len(texts)
            passed += parcel.size
        return Pushed(count, passed - kept, 0, count - passed, kept)

    def by_name(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Handle[Any]:
        """Push a job for a worker that we know only by name, made of plain JSON arguments."""
        options, push = self._options(name, given)
        return self.send(self._named(name, options, push, self._group(push)), _ANYTHING.encode(args, {}))

    async def aby_name(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Handle[Any]:
        """``by_name``, awaited."""
        options, push = self._options(name, given)
        return await self.asend(self._named(name, options, push, await self._agroup(push)), _ANYTHING.encode(args, {}))

    def _options(self, name: str, given: dict[str, Any]) -> tuple[JobOptions, PushOptions]:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"enqueue({name!r}): a job is named by a text")
        known = self._registry.find(name)
        return named_options(name, given, None if known is None else known.options)

    def _group(self, push: PushOptions) -> Membership | None:
        """The batch that a push belongs to: the one it names (or none), else the one whose block it is in."""
        group = _named_batch(push)
        if group is not None and not group.known:
            self._runtime.connections.run(group.learn(self._runtime.keys))
        return group

    async def _agroup(self, push: PushOptions) -> Membership | None:
        """``_group``, awaited."""
        group = _named_batch(push)
        if group is not None and not group.known:
            await self._runtime.aconnections.run(group.learn(self._runtime.keys))
        return group

    def _plan(self, using: Any, group: Membership | None) -> Draft:
        plan: Draft | None = using.draft if group is None else using.batch_draft
        if plan is None or plan.group is not group:
            plan = self.plan(using, group)
            if group is None:
                using.draft = plan
            else:
                using.batch_draft = plan
        return plan

    def plan(self, using: Any, group: Membership | None) -> Draft:
        """What pushes of ``using`` into ``group``, or into none, have in common."""
        job = using.job
        made = draft(job.name, job.options, using.push_as, group, job.function, job.signature)
        self.check_queue(job.name, made.queue)
        return made

    def _named(self, name: str, options: JobOptions, push: PushOptions, group: Membership | None) -> Draft:
        known = self._registry.find(name)
        if group is not None and _RUBY.fullmatch(name) and known is None:
            raise BatchError(
                f"{name} is no job of this app, and named like one of Ruby's: a Ruby worker tells no batch how a job "
                "ended. Push it outside: enqueue(…, batch=None). If Python runs it, define it in this app"
            )
        made = draft(name, options, push, group, signature=None if known is None else known.signature)
        self.check_queue(name, made.queue)
        return made

    def check_queue(self, name: str, queue: str | None) -> None:
        """DefinitionError when a plain job would go to an ordered queue of this app."""
        self._registry.refuse_ordered(name, queue)

    def _now(self, plan: Draft) -> float:
        return self._clock.now() if plan.timed and self.now is time.time else self.now()

    def _must_learn(self, plan: Draft) -> bool:
        return plan.timed and self.now is time.time and self._clock.age > TIME_KNOWN

    def _learn_time(self, plan: Draft) -> None:
        """Ask for the server's time where jobs depend on it. Without an answer this host's clock must do."""
        if self._must_learn(plan):
            with contextlib.suppress(ServerError):
                self._runtime.connections.run(ask_time(self._clock))

    async def _alearn_time(self, plan: Draft) -> None:
        """``_learn_time``, awaited."""
        if self._must_learn(plan):
            with contextlib.suppress(ServerError):
                await self._runtime.aconnections.run(ask_time(self._clock))

    def _one(self, plan: Draft, arguments: Arguments) -> tuple[str, Parcel]:
        jid = new_jid()
        seconds = self._now(plan)
        now = self._stamp(seconds)
        scheduled = plan.scheduled(seconds)
        waits = scheduled or plan.parked
        payload = plan.template.render(*arguments, jid, now, None if waits else now)
        return jid, Parcel(scheduled, {plan.queue: [payload]})

    def _many(self, plan: Draft, arguments: list[Arguments]) -> Parcel:
        seconds = self._now(plan)
        now = self._stamp(seconds)
        scheduled = plan.scheduled(seconds)
        waits = scheduled or plan.parked
        jids = new_jids(len(arguments))
        payloads = plan.template.render_many(arguments, jids, now, None if waits else now)
        return Parcel(scheduled, {plan.queue: payloads})

    def _carry(self, plan: Draft, parcel: Parcel) -> int:
        """Push, or buffer what is proven not to have been executed; how many jobs were buffered."""
        buffer = self.buffer
        if not plan.is_plain:
            for call in self._tracked_calls(plan, parcel):
                self._runtime.connections.run(call)
            return 0
        if buffer.waiting and not buffer.clear():
            return keep(buffer, plan, parcel, 0, None)
        for place, call in enumerate(self._calls(plan, parcel)):
            try:
                self._runtime.connections.run(call)
            except ServerAway as error:
                if error.executed is not False:
                    raise
                return keep(buffer, plan, parcel, place, error)
        return 0

    async def _acarry(self, plan: Draft, parcel: Parcel) -> int:
        """``_carry``, awaited."""
        buffer = self.buffer
        if not plan.is_plain:
            for call in self._tracked_calls(plan, parcel):
                await self._runtime.aconnections.run(call)
            return 0
        if buffer.waiting and not (await in_thread(buffer.clear) if buffer.due else buffer.passable):
            return keep(buffer, plan, parcel, 0, None)
        for place, call in enumerate(self._calls(plan, parcel)):
            try:
                await self._runtime.aconnections.run(call)
            except ServerAway as error:
                if error.executed is not False:
                    raise
                return keep(buffer, plan, parcel, place, error)
        return 0

    def _calls(self, plan: Draft, parcel: Parcel) -> Iterator[Call[Any]]:
        """One call a queue: a middleware may have sent jobs elsewhere."""
        for queue, payloads in parcel.by_queue.items():
            if parcel.scheduled:
                entries = [(plan.at, plan.delay, payload) for payload in payloads]
                yield self._confirmed(jobs.schedule(self._runtime.keys, entries), payloads)
            else:
                yield self._confirmed(jobs.push_many(self._runtime.keys, queue, payloads), payloads)

    def _tracked_calls(self, plan: Draft, parcel: Parcel) -> Iterator[Call[Any]]:
        """The same for jobs that are written down. They are never buffered: a batch must know what it has."""
        keep = self._runtime.config.history_kept()
        made = tracked_calls(self._runtime.keys, self._registry, self._lanes, plan, parcel, keep)
        return (self._confirmed(call, payloads) for call, payloads in made)

    def _confirmed(self, call: Call[Any], payloads: list[bytes]) -> Call[Any]:
        return self.confirmed(call, lambda: [decode(one)["jid"] for one in payloads])

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

    def _parcel(self, plan: Draft, scheduled: bool, reached: Iterable[dict[str, Any]]) -> Parcel:
        """What is to be pushed of the jobs that came through the chain."""
        by_queue: dict[str, list[bytes]] = {}
        for job in reached:
            for field in ("queue", "class", "jid"):
                if not isinstance(job.get(field), str) or not job[field]:
                    raise ArgumentError(
                        f"a client middleware set {field} of job {job.get('jid')!r} to {job.get(field)!r}"
                    )
            self.check_queue(job["class"], job["queue"])
            if scheduled or plan.parked:
                job.pop("enqueued_at", None)  # written when it enters its queue
            by_queue.setdefault(job["queue"], []).append(encode(job))
        return Parcel(scheduled, by_queue)

    def _handle(self, jid: str, plan: Draft, parcel: Parcel, admission: Admission) -> Handle[Any]:
        for queue, payloads in parcel.by_queue.items():
            if len(self._chain):
                jid = decode(payloads[0])["jid"]
            return Handle(jid, queue, admission, self._runtime, plan.result_ttl is not None, plan.function)
        return Handle(jid, plan.queue, "stopped", self._runtime)
