"""A batch: jobs under one id, counted by the server itself as they end."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextvars import Token
from types import TracebackType
from typing import Any

from henchman.batch import history as batch_history
from henchman.batch import making as batch_making
from henchman.batch import plans as batch_plans
from henchman.batch.lease import leases
from henchman.batch.making import Making
from henchman.batch.status import BatchStatus, status_of
from henchman.client.handle import Pushed
from henchman.client.membership import Membership, within
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, BatchError
from henchman.store import batches
from henchman.store.call import Call
from henchman.store.procedure import Procedure, arun, run
from henchman.wire import times

__all__ = ["Batch", "found", "made", "read_status"]


class Batch:
    """One batch, as ``app.batch(…)`` makes it and ``app.get_batch(id)`` finds it.

    ``with batch:`` (or ``async with``) opens it, lets every job that is enqueued inside belong to it, and closes it; an
    exception closes it as aborted and keeps what was pushed. Each method that talks to the server also exists awaited,
    with an ``a`` before its name. Pushes raise BatchClosed when it takes no more jobs; everything raises UnknownBatch
    when the server knows no batch of this id (any more).
    """

    def __init__(self, desk: Runtime, membership: Membership, making: Making | None = None) -> None:
        self.membership = membership
        self._desk = desk
        self._making = making
        self._tokens: list[Token[Membership | None]] = []

    def __repr__(self) -> str:
        return f"<batch {self.id}>"

    @property
    def id(self) -> str:
        """What ``app.get_batch`` and ``app.batch_status`` find it by; nobody can guess it."""
        return self.membership.id

    def open(self) -> Batch:
        """Make it known to the server. Nothing happens when it is; BatchClosed when its parent takes nothing more."""
        if self._making is not None:
            job = self._callbacks(self._making)
            reached = {which: self._desk.client.through([one]) for which, one in job.items()}
            for call in batch_making.announcing(self._desk, self._making):
                self._desk.connections.run(call)
            self._desk.connections.run(self._opening(reached))
            self._opened()
        return self

    async def aopen(self) -> Batch:
        """``open``, awaited."""
        if self._making is not None:
            job = self._callbacks(self._making)
            reached = {which: await self._desk.client.athrough([one]) for which, one in job.items()}
            for call in batch_making.announcing(self._desk, self._making):
                await self._desk.aconnections.run(call)
            await self._desk.aconnections.run(self._opening(reached))
            self._opened()
        return self

    def add(self, job: Any, rows: Iterable[Any]) -> Pushed:
        """Push one job for each row, as ``job.enqueue_many``; rows are read as they are pushed, never all at once."""
        pushed: Pushed = job.using(batch=self).enqueue_many(rows)
        return pushed

    async def aadd(self, job: Any, rows: Iterable[Any]) -> Pushed:
        """``add``, awaited."""
        pushed: Pushed = await job.using(batch=self).aenqueue_many(rows)
        return pushed

    def close(self) -> None:
        """No more jobs: it is complete when all that it has are settled. Parked jobs go into their queues."""
        self._close("")

    async def aclose(self) -> None:
        """``close``, awaited."""
        await self._aclose("")

    def cancel(self) -> None:
        """Waiting jobs never start, running ones are told; ``on_complete`` is called when all are settled.

        Batches that are part of it are cancelled too.
        """
        self._run(batch_plans.cancel(self._desk, self.id, "cancelled"))

    async def acancel(self) -> None:
        """``cancel``, awaited."""
        await self._arun(batch_plans.cancel(self._desk, self.id, "cancelled"))

    def invalidate(self) -> None:
        """As ``cancel``, and shown as invalidated: what it did is not wanted any more. ``on_success`` is not called."""
        self._run(batch_plans.cancel(self._desk, self.id, "invalidated"))

    async def ainvalidate(self) -> None:
        """``invalidate``, awaited."""
        await self._arun(batch_plans.cancel(self._desk, self.id, "invalidated"))

    def retry(self, status: str = "error") -> int:
        """Push the jobs that gave up once more, as if for the first time; how many. A complete batch opens its next
        generation, in which every callback may be called again."""
        pushed: int = self._run(self._retry(status))
        return pushed

    async def aretry(self, status: str = "error") -> int:
        """``retry``, awaited."""
        pushed: int = await self._arun(self._retry(status))
        return pushed

    def status(self) -> BatchStatus:
        """How it stands now: counts, progress, the most frequent reasons of failures. One look, whatever its size."""
        return read_status(self._desk, self.id)

    async def astatus(self) -> BatchStatus:
        """``status``, awaited."""
        return status_of(self.id, await self._desk.aconnections.run(batches.facts(self._desk.keys, self.id)))

    def events(self, status: str | Sequence[str] | None = None) -> Iterator[Any]:
        """What became of each of its jobs, from history; see ``App.batch_events``."""
        return batch_history.events(self._desk, self.id, status)

    def aevents(self, status: str | Sequence[str] | None = None) -> AsyncIterator[Any]:
        """``events``, for ``async for``."""
        return batch_history.aevents(self._desk, self.id, status)

    def __enter__(self) -> Batch:
        self.open()
        self._tokens.append(within.set(self.membership))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        within.reset(self._tokens.pop())
        try:
            self._close("aborted" if error is not None else "")
        except Exception as problem:
            if error is None:
                raise
            error.add_note(f"batch {self.id} could not be closed as aborted: {problem!r}")

    async def __aenter__(self) -> Batch:
        await self.aopen()
        self._tokens.append(within.set(self.membership))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        within.reset(self._tokens.pop())
        try:
            await self._aclose("aborted" if error is not None else "")
        except Exception as problem:
            if error is None:
                raise
            error.add_note(f"batch {self.id} could not be closed as aborted: {problem!r}")

    def _callbacks(self, making: Making) -> dict[str, dict[str, Any]]:
        """The jobs of its callbacks."""
        return batch_making.callbacks(self._desk, making, self.id)

    def _opening(self, reached: dict[str, list[dict[str, Any]]]) -> Call[bool]:
        making = self._making
        if making is None:
            raise BatchError(f"batch {self.id} is opened twice at once")
        expires = None if making.expires is None else times.rounded(self._desk.clock.now() + making.expires)
        fields = batch_making.fields(making, expires)
        for which, jobs in reached.items():
            for job in jobs:  # none when a client middleware stopped it
                fields |= batch_making.callback_fields(which, job)
        self.membership.expires = expires
        return batches.make(self._desk.keys, self.id, fields, batch_making.record(making, expires))

    def _opened(self) -> None:
        self._making = None
        leases.hold(self._desk, self.id)

    def _close(self, why: str) -> None:
        leases.let_go(self.id)
        self._run(batch_plans.close(self._desk.keys, self.id, why))

    async def _aclose(self, why: str) -> None:
        leases.let_go(self.id)
        await self._arun(batch_plans.close(self._desk.keys, self.id, why))

    def _retry(self, status: str) -> Procedure[int]:
        if status != "error":
            raise ArgumentError(
                f"retry(status={status!r}): only jobs that gave up ('error') are kept to be tried again"
            )
        return batch_plans.retry(self._desk, self.id)

    def _run(self, plan: Procedure[Any]) -> Any:
        return run(self._desk.connections, plan)

    async def _arun(self, plan: Procedure[Any]) -> Any:
        return await arun(self._desk.aconnections, plan)


def made(desk: Runtime, description: str, **options: Any) -> Batch:
    """A batch that is not open yet; DefinitionError says what is wrong with ``options``."""
    targets = {which: options.pop(f"on_{which}") for which in ("success", "complete", "death")}
    making = batch_making.making(description, options.pop("tags"), targets, **options)
    membership = Membership(secrets.token_hex(16), atomic=making.atomic)
    batch_making.callbacks(desk, making, membership.id)  # refused here, not when the first row has been read
    return Batch(desk, membership, making)


def found(desk: Runtime, batch: str, member: str = "", expires: float | None = None) -> Batch:
    """The batch of this id, wherever it was made; nothing is asked yet. ``member``: of a running job, its jid."""
    if not isinstance(batch, str) or not 0 < len(batch) <= 100 or not batch.isprintable():
        raise ArgumentError(f"get_batch({batch!r:.100}): give the id of a batch")
    return Batch(desk, Membership(batch, member=member, expires=expires, known=bool(member)))


def read_status(desk: Runtime, batch: str) -> BatchStatus:
    """How the batch of this id stands; UnknownBatch when there is none."""
    return status_of(batch, desk.connections.run(batches.facts(desk.keys, batch)))
