"""The client of a transactional app: a push inside a database transaction waits for the commit.

What it does not promise comes first. A push that waits lives in the memory of this process alone: it is lost when the
process dies between the commit and the push, and when the server cannot be reached then. The event ``submission_lost``
tells of the second. Nothing in here raises after a commit: whoever committed would take the commit for failed and do
the work again, and other callbacks of the commit would be passed over.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from henchman.client.admission import KeyedJob, deferred
from henchman.client.keyed import Keyed
from henchman.client.options import PushOptions
from henchman.client.prepared import PreparedPush, at_commit, in_outbox
from henchman.client.push import Client, Handle, Steps, next_slice
from henchman.client.rows import Arguments, Pushed, RowSlices, Slice, tell_pushed
from henchman.client.runtime import Runtime
from henchman.contrib.submission import DeferredHandle, DeferredJob, OpenTransaction, Part, Submission, parts
from henchman.errors import (
    AmbiguousTransaction,
    ArgumentError,
    BatchError,
    DefinitionError,
    DuplicateJob,
    HenchmanError,
    ServerAway,
    ServerError,
    Unconfirmed,
)
from henchman.kernel.clock import capped_backoff
from henchman.kernel.text import described
from henchman.store import jobs
from henchman.store.call import drive
from henchman.wire.payload import decode, new_jid, with_field

__all__ = ["TransactionalClient"]

T = TypeVar("T")
PAUSE_MOST = 0.5  # seconds between two tries of a push after a commit
MARK_LIFE = 60.0  # seconds beyond the last try for which the server knows a push by its mark
_SHOWN = 20  # jids in a log line


class Tie:
    """What a prepared push waits for. ``plan``: the prepared push itself; ``submission``: what was deferred last."""

    __slots__ = ("plan", "submission", "transaction")

    def __init__(self, transaction: OpenTransaction, plan: PreparedPush) -> None:
        self.transaction = transaction
        self.plan = plan
        self.submission: Submission | None = None


class TransactionalClient(Client):
    """Pushes for an app with ``transactional=True``."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.bound: tuple[type[Any], ...] = ()  # classes of SQLAlchemy's sessions; see contrib.sqlalchemy.bind
        self._waiting: weakref.WeakSet[Submission] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._untold = 0  # lost jobs that the server does not know of yet

    # --- the push: which transaction it waits for -------------------------------------------------------------------

    def open_transaction(self, push: PushOptions) -> OpenTransaction | None:
        """The transaction that a push with these options waits for; None: it goes at once.

        AmbiguousTransaction when there are several and neither the push nor Django's default database decides.
        """
        if push.now:
            return None
        found: list[OpenTransaction] = []
        if push.session is None and "django.db" in sys.modules:
            found += load("django").open_transactions(push.db)
        elif push.db is not None:
            raise DefinitionError(f"db={push.db!r} names a database of Django, and this program has loaded no Django")
        if push.db is None and (push.session is not None or "henchman.contrib.sqlalchemy" in sys.modules):
            found += load("sqlalchemy").open_transactions(self, push.session)
        if len(found) > 1:
            raise AmbiguousTransaction(
                f"transactions are open on {' and '.join(one.name for one in found)}: say whose commit the push waits "
                "for, using(db=…) or using(session=…), or push at once: using(now=True)"
            )
        return found[0] if found else None

    def check_transaction(self, name: str, push: PushOptions) -> None:
        """A push may name any transaction: it is looked for when jobs are pushed."""

    def check_closing(self, batch: str) -> None:
        """BatchError when jobs of ``batch``, which is to be closed, wait for the commit of a transaction."""
        groups = (one.plan.group for one in self.waiting())
        many = sum(group is not None and group.id == batch for group in groups)
        if many:
            raise BatchError(
                f"jobs of batch {batch} wait for the commit of a transaction, and once closed it takes none of them: "
                "open the batch around the transaction, not inside, or push with using(now=True)"
            )

    def _direct(self, using: Any) -> PreparedPush | None:
        plan = super()._direct(using)
        return plan if plan is None or self.open_transaction(using.push_as) is None else None

    def _direct_keyed(self, using: Any) -> PreparedPush | None:
        plan = super()._direct_keyed(using)
        return plan if plan is None or self.open_transaction(using.push_as) is None else None

    def _tied(self, plan: PreparedPush, push: PushOptions) -> PreparedPush:
        """Through the outbox where that is asked for, by the push or by the setting; else after the commit."""
        if plan.outbox is not None and plan.outbox is not True:
            return plan
        transaction = self.open_transaction(push)
        if transaction is None:
            return plan
        outbox = self._runtime.config.outbox
        elsewhere = outbox is not None and not transaction.has_outbox(outbox)
        if plan.outbox and elsewhere:
            raise DefinitionError(
                f"outbox=True: the outbox is in the database {outbox!r}, and the transaction that is open in "
                f"{transaction.name.removeprefix('db=')}: push inside atomic(using={outbox!r}), or after the commit of "
                "this one, without outbox=True"
            )
        if plan.outbox or (outbox is not None and push.outbox is not False and not elsewhere):
            return in_outbox(plan, transaction.target)
        # The server's time is asked for when the jobs are sent.
        return plan._replace(transaction=Tie(transaction, plan), admission="deferred", timed=False)

    def _time_of(self, plan: PreparedPush) -> tuple[bool, tuple[bytes, bytes | None]]:
        scheduled, (created, enqueued) = super()._time_of(plan)
        return scheduled, (created, enqueued if plan.transaction is None else None)

    def _send(self, plan: PreparedPush, arguments: Arguments) -> Steps[Handle[Any]]:
        tie: Tie | None = plan.transaction
        if tie is None or plan.keyed is None:
            handle = yield from super()._send(plan, arguments)
        else:
            _, by_queue, _ = yield from self._keyed.made(plan, [arguments])
            self._defer(tie, {}, by_queue)
            found = [deferred(one, queue) for queue, jobs in by_queue.items() for one in jobs]
            handle = self._handle(plan, found[0] if found else None)
        return handle if tie is None or tie.submission is None else DeferredHandle(handle, tie.submission)

    def _deliver(self, plan: PreparedPush, scheduled: bool, by_queue: dict[str, list[bytes]]) -> Steps[int]:
        tie: Tie | None = plan.transaction
        if tie is None:
            return (yield from super()._deliver(plan, scheduled, by_queue))
        self._defer(tie, by_queue)
        return 0

    def _push_many(self, using: Any, taken: RowSlices, slices: Iterator[Slice] | AsyncIterator[Slice]) -> Steps[Pushed]:
        plan = yield from self._prepared(using)
        tie: Tie | None = plan.transaction
        if tie is None or plan.keyed is None:
            return (yield from super()._push_many(using, taken, slices))
        count = passed = 0
        try:
            while arguments := (yield from next_slice(slices)):
                _, by_queue, problem = yield from self._keyed.made(plan, arguments)
                self._defer(tie, {}, by_queue)
                passed += sum(map(len, by_queue.values()))
                count += len(arguments) if problem is None else problem.pushed or 0
                if problem is not None:
                    raise ArgumentError(f"row {count}: {problem}") from problem
        except Exception as error:
            tell_pushed(error, count)
            raise
        return Pushed(count, 0, 0, count - passed, deferred=passed)

    def _defer(
        self,
        tie: Tie,
        by_queue: Mapping[str, Sequence[bytes]],
        keyed: Mapping[str, Sequence[KeyedJob]] | None = None,
    ) -> None:
        """Leave jobs with the transaction; of those that are ``keyed`` the server decides after the commit."""
        if keyed is not None:
            by_queue = {queue: [one.payload for one in jobs] for queue, jobs in keyed.items()}
        if by_queue:
            tie.submission = Submission(self, tie.plan, by_queue, keyed)
            tie.transaction.defer(tie.submission)
            with self._lock:
                self._waiting.add(tie.submission)

    def waiting(self) -> list[Submission]:
        """What waits for a commit in this process, in the order of the pushes."""
        with self._lock:
            alive = list(self._waiting)
        return sorted((one for one in alive if not one.sent), key=lambda one: one.number)

    # --- after the commit -------------------------------------------------------------------------------------------

    def send(self, submissions: list[Submission]) -> None:
        """Push what waited, in order, in as few calls as can be; each push is tried for ``io_timeout`` seconds.

        Raises nothing but what is to end this thread or program (KeyboardInterrupt, a job's time-out).
        """
        waiting = [one for one in submissions if not one.sent]
        for one in waiting:
            one.sent = True
        pushes = _Pushes(self, self._runtime, waiting)
        try:
            pushes.run()
        finally:
            pushes.tell()
            self._count(pushes)

    def give_up(self, submissions: list[Submission], error: BaseException) -> None:
        """Tell of what is not pushed, because ``error`` leaves open whether the transaction has committed."""
        pushes = _Pushes(self, self._runtime, submissions)
        pushes.give_up(error)
        pushes.tell()
        self._count(pushes)

    def push_part(self, part: Part) -> None:
        """Push tracked jobs, or those of a batch, as ever: one sending, whose answer may be lost."""
        if part.plan is not None and part.plan.keyed is not None:
            self._push_keyed(part.plan, part.plan.keyed, part.jobs)
        elif part.plan is not None:
            scheduled, _ = self._time_of(part.plan)
            drive(self._do, self._deliver(part.plan, scheduled, part.by_queue(lambda job: self.written(job)[1])))

    def _push_keyed(self, plan: PreparedPush, keyed: Keyed, left: Sequence[DeferredJob]) -> None:
        """Push jobs with a key. Where a duplicate is an error, the server stops there: the rest is pushed then, and the
        handle has the error as its ``problem``."""
        scheduled, _ = self._time_of(plan)
        while left:
            rows = [one.keyed._replace(payload=self.written(one)[1]) for one in left if one.keyed is not None]
            admitted = drive(self._do, self._keyed.pushed(plan, scheduled, {left[0].queue: rows}))
            problem = None
            try:
                self._keyed.judged(keyed, admitted)
            except DuplicateJob as error:
                problem = str(error)
            for place, (one, job) in enumerate(zip(admitted, left, strict=False), 1):
                if job.submission.handle is not None:
                    job.submission.handle.become(one, problem if place == len(admitted) else None)
            left = left[len(admitted) :]

    def written(self, job: DeferredJob) -> tuple[bool, bytes]:
        """Whether the job goes to the schedule, seen from now; its payload, with the time of its enqueuing."""
        plan = job.submission.plan
        scheduled, (_, enqueued) = self._time_of(plan)
        payload = at_commit(job.payload, plan, self.now_for(plan))
        return scheduled, payload if enqueued is None else with_field(payload, "enqueued_at", enqueued)

    def learn_time(self) -> None:
        """Ask for the server's time, unless it is known."""
        drive(self._do, self._learn_time())

    def _count(self, pushes: _Pushes) -> None:
        """Count the losses on the server, for ``doctor``; those that cannot be counted now, after a later commit."""
        with self._lock:
            self._untold += pushes.lost
            count = self._untold
            if not count or pushes.away:
                return
            self._untold = 0
        try:
            self._do(jobs.note_lost(self._runtime.keys, count, pushes.words))
        except Exception:
            with self._lock:
                self._untold += count


class _Pushes:
    """The pushes after one commit, and which of them were lost."""

    def __init__(self, client: TransactionalClient, runtime: Runtime, submissions: Sequence[Submission]) -> None:
        self._client = client
        self._runtime = runtime
        self._submissions = submissions
        self._parts = iter(parts(submissions))
        self._jids: list[str] = []
        self._names: set[str] = set()
        self._error: BaseException | None = None
        self._end = time.monotonic() + runtime.config.io_timeout
        self.away = False  # the server does not answer: nothing more is tried

    @property
    def lost(self) -> int:
        """How many jobs were lost."""
        return len(self._jids)

    @property
    def words(self) -> str:
        """The loss in words."""
        if self._error is None:
            return "told late: the server was away"
        return f"{', '.join(sorted(self._names))} {self._jids[-1]}: {described(self._error)}"

    def run(self) -> None:
        """Push part by part; what fails is noted and does not keep the others back, unless the server is away."""
        if any(one.plan.timed for one in self._submissions):
            self._guarded(Part(None, []), self._client.learn_time)
        for part in self._parts:
            kept = part.plan is None and self._runtime.config.buffer  # in memory, until the server is back
            if self.away and not kept:
                self._note(part, ServerAway("the server is away", executed=False))
            else:
                self._guarded(part, partial(self._push, part))

    def _guarded(self, part: Part, push: Callable[[], None]) -> None:
        try:
            push()
        except Exception as error:
            self.away = isinstance(error, ServerAway)
            self._note(part, error)
            if self._runtime.stand_ins and not isinstance(error, ServerError | BatchError):
                raise  # what a test has to see: there is no fixture, a job that runs inline raises
        except BaseException as error:
            for one in (part, *self._parts):
                self._note(one, error)
            raise

    def give_up(self, error: BaseException) -> None:
        """Nothing is pushed."""
        for part in self._parts:
            self._note(part, error)

    def tell(self) -> None:
        """One event and one line for all that was lost."""
        error, jids, names = self._error, self._jids, sorted(self._names)
        if error is None or not jids:
            return
        self._runtime.events.emit("submission_lost", jids=jids, names=names, error=error)
        shown = ", ".join(jids[:_SHOWN]) + (", …" if len(jids) > _SHOWN else "")
        logging.getLogger("henchman").error(
            "lost after the commit of their transaction: %s jobs (%s): %s: %s",
            len(jids),
            ", ".join(names),
            described(error),
            shown,
        )

    def _push(self, part: Part) -> None:
        if part.plan is not None:
            self._patiently(partial(self._client.push_part, part), marked=False)
            if part.plan.keyed is None:
                self._settle(part)
            return
        entries = []
        for job in part.jobs:
            scheduled, payload = self._client.written(job)
            plan = job.submission.plan
            entries.append(jobs.Delivery(None if scheduled else job.queue, plan.at, plan.delay, payload))
        buffer = self._client.buffer
        if buffer.waiting and not (buffer.clear() if buffer.due else buffer.passable):
            buffer.keep(entries, None)
            self._settle(part, buffered=True)
        else:
            self._deliver(part, entries)

    def _deliver(self, part: Part, entries: list[jobs.Delivery]) -> None:
        """Push jobs that are only pushed: under a mark, so that they may be sent again after a lost answer."""
        runtime, mark = self._runtime, new_jid()
        life = round(1000 * (MARK_LIFE + 3 * runtime.config.io_timeout))
        call = jobs.deliver(runtime.keys, mark, entries, mark_ms=life)
        call = self._client.confirmed(call, lambda: part.jids)
        try:
            self._answered(part, self._patiently(lambda: runtime.connections.run(call), marked=True))
        except Unconfirmed as error:
            self._settle(part, problem=str(error))
            runtime.notice("%s", error)
        except ServerAway as error:
            if error.executed is None or not runtime.config.buffer:
                raise
            self._client.buffer.keep(entries, error)
            self._settle(part, buffered=True)

    def _patiently(self, push: Callable[[], T], *, marked: bool) -> T:
        """``push()``, tried again until ``io_timeout`` is over. One that may have been executed is sent again only when
        it is ``marked``; one that a buffer can keep is not tried again."""
        sure, failures = True, 0
        while True:
            try:
                return push()
            except ServerAway as error:
                sure, failures = sure and error.executed is False, failures + 1
                pause = capped_backoff(failures, most=PAUSE_MOST)
                once = marked and self._runtime.config.buffer > 0 if sure else not marked
                if once or time.monotonic() + pause > self._end:
                    raise ServerAway(str(error), executed=False if sure else None) from error
                time.sleep(pause)

    def _answered(self, part: Part, statuses: Sequence[int | bytes] | None) -> None:
        """One status a job; none: an earlier sending was executed whole."""
        for place, job in enumerate(part.jobs):
            status = statuses[place] if statuses else 1
            if isinstance(status, bytes):
                self._note(Part(None, [job]), ServerError(status.decode("utf-8", "replace")))
            else:
                job.submission.settle(_admitted(job))

    def _settle(self, part: Part, *, buffered: bool = False, problem: str | None = None) -> None:
        for job in part.jobs:
            job.submission.settle("buffered" if buffered else _admitted(job), problem)

    def _note(self, part: Part, error: BaseException) -> None:
        """The jobs of ``part`` are lost, or nobody knows whether they are."""
        unknown = not isinstance(error, HenchmanError) or (isinstance(error, ServerAway) and error.executed is None)
        problem = f"{'perhaps lost' if unknown else 'lost'} after the commit of its transaction: {described(error)}"
        for job in part.jobs:
            job.submission.settle(None, problem)
            facts = decode(job.payload)
            self._jids.append(facts["jid"])
            self._names.add(facts["class"])
        if part.jobs:
            self._error = self._error or error


def _admitted(job: DeferredJob) -> Any:
    """How the server receives the job when nothing goes wrong."""
    return job.submission.plan.admission


def load(framework: str) -> Any:
    """What looks for transactions of ``framework``, which the program has loaded."""
    if framework == "django":
        from henchman.contrib import atomic

        return atomic
    from henchman.contrib import sqlalchemy

    return sqlalchemy
