"""A push that waits for the commit of a database transaction: its jobs, and the handle that its caller holds.

A submission is held by the transaction alone. So one that is gone without having been sent was rolled back, and that is
how its handle knows: neither Django nor SQLAlchemy tells of every rollback.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeVar

from henchman.client.admission import KEYED_SLICE, Admitted, KeyedJob
from henchman.client.prepared import Admission, PreparedPush, jids_of
from henchman.client.push import Handle
from henchman.errors import ResultError

__all__ = ["DeferredHandle", "DeferredJob", "OpenTransaction", "Part", "Sender", "Submission", "parts"]

R = TypeVar("R", covariant=True)
PART_JOBS = 500
PART_BYTES = 4_000_000
WAITS = "it waits for the commit of the transaction that it was pushed in"
ROLLED_BACK = "the transaction that it was pushed in was rolled back: it was not pushed"
_numbers = count()


class Sender(Protocol):
    """The client of a transactional app, as transactions see it."""

    def send(self, submissions: list[Submission]) -> None:
        """Push what waited, right after the commit."""
        ...

    def give_up(self, submissions: list[Submission], error: BaseException) -> None:
        """Tell of what is not pushed, because ``error`` leaves open whether the transaction has committed."""
        ...


class OpenTransaction(Protocol):
    """A transaction that a push may wait for. ``name`` is for people."""

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> Any:
        """The session or connection itself, which the outbox writes through."""
        ...

    def has_outbox(self, outbox: str) -> bool:
        """Whether the setting ``outbox`` means the database of this transaction, as far as that can be told."""
        ...

    def defer(self, submission: Submission) -> None:
        """Keep ``submission`` until this transaction, with the savepoints that are open in it, has committed."""
        ...


class Submission:
    """The jobs of one push, or of a slice of a bulk push, by queue. ``number``: their place in the order of pushes."""

    __slots__ = ("__weakref__", "by_queue", "client", "handle", "keyed", "number", "plan", "sent")

    def __init__(
        self,
        client: Sender,
        plan: PreparedPush,
        by_queue: Mapping[str, Sequence[bytes]],
        keyed: Mapping[str, Sequence[KeyedJob]] | None = None,
    ) -> None:
        self.client = client
        self.plan = plan
        self.by_queue = by_queue
        self.keyed = keyed or {}
        self.handle: DeferredHandle[Any] | None = None
        self.number = next(_numbers)
        self.sent = False

    def settle(self, admission: Admission | None, problem: str | None = None) -> None:
        """Tell the handle what became of its job; ``admission`` None: it was not pushed, or nobody knows."""
        if self.handle is not None:
            self.handle.settle(admission, problem)


class DeferredHandle(Handle[R]):
    """The handle of a job that waits for a commit; afterwards as any other.

    ``admission`` is "deferred" until the commit. It stays so after a rollback and where the push failed after the
    commit; then ``problem`` says so.
    """

    __slots__ = ("_problem", "_submission")

    def __init__(self, made: Handle[R], submission: Submission) -> None:
        super().__init__(made.jid, made.queue, made.admission, made._runtime, made._keeps, made._function)
        self.need = made.need
        self._problem: str | None = None
        self._submission: Callable[[], Submission | None] = weakref.ref(submission)
        submission.handle = self

    @property
    def problem(self) -> str | None:
        """Why the job never came to the server, or may not have; None as long as nothing is wrong."""
        if self._problem is None and self.admission == "deferred" and self._submission() is None:
            return ROLLED_BACK
        return self._problem

    def settle(self, admission: Admission | None, problem: str | None) -> None:
        """The commit was followed by the push: what became of the job."""
        self._problem = problem
        if admission is not None:
            self.admission = admission

    def become(self, one: Admitted, problem: str | None) -> None:
        """The server has admitted the job, or says whose duplicate it is: then this is the handle of that one."""
        self.jid, self._problem = one.jid, problem
        if one.admission == "duplicate":
            self.duplicate_of, self.differs = one.jid, one.differs
        self.need = self.need and self.need._replace(label=one.jid)
        self.admission = one.admission

    def status(self) -> Any:
        """As ``Handle.status``; "deferred", without asking the server, until the commit."""
        if self._waits:
            return self._runtime.deferred_status(self.jid, self.queue, WAITS)
        return self._with_problem(super().status())

    async def astatus(self) -> Any:
        """``status``, awaited."""
        if self._waits:
            return self._runtime.deferred_status(self.jid, self.queue, WAITS)
        return self._with_problem(await super().astatus())

    @property
    def _waits(self) -> bool:
        return self.admission == "deferred" and self.problem is None

    def _with_problem(self, status: Any) -> Any:
        if self.problem is None or status.state != "unknown":
            return status
        return dataclasses.replace(status, text=self.problem)

    def _check(self) -> None:
        super()._check()
        if self.admission == "deferred":
            raise ResultError(f"job {self.jid} gives no result yet: {self.problem or WAITS}")


class DeferredJob(NamedTuple):
    """One job of a submission."""

    submission: Submission
    queue: str
    payload: bytes
    keyed: KeyedJob | None


class Part(NamedTuple):
    """Jobs that are pushed by one call. ``plan``: what they have in common; None: they are only pushed, each in its own
    way."""

    plan: PreparedPush | None
    jobs: list[DeferredJob]

    @property
    def jids(self) -> list[str]:
        """The ids of the jobs."""
        return jids_of([job.payload for job in self.jobs])

    def by_queue(self, written: Callable[[DeferredJob], bytes]) -> dict[str, list[bytes]]:
        """The payloads, ``written`` anew, by queue."""
        found: dict[str, list[bytes]] = {}
        for job in self.jobs:
            found.setdefault(job.queue, []).append(written(job))
        return found


def parts(submissions: Sequence[Submission]) -> Iterator[Part]:
    """The jobs of ``submissions`` in order, cut where one call cannot take more: 500 jobs, or 4 MB; of tracked ones
    also where the queue is another."""
    part, size = Part(None, []), 0
    for job in _jobs(submissions):
        plan = None if job.submission.plan.is_plain else job.submission.plan
        full = len(part.jobs) == (PART_JOBS if plan is None or plan.keyed is None else KEYED_SLICE)
        full = full or size >= PART_BYTES
        if part.jobs and (full or part.plan is not plan or (plan is not None and part.jobs[-1].queue != job.queue)):
            yield part
            part, size = Part(plan, []), 0
        elif not part.jobs:
            part = Part(plan, [])
        part.jobs.append(job)
        size += len(job.payload)
    if part.jobs:
        yield part


def _jobs(submissions: Sequence[Submission]) -> Iterator[DeferredJob]:
    for one in submissions:
        for queue, payloads in one.by_queue.items():
            keyed = one.keyed.get(queue, (None,) * len(payloads))
            for payload, job in zip(payloads, keyed, strict=True):
                yield DeferredJob(one, queue, payload, job)
