"""Runs one unit here and now, by the worker's own processor: decoded by its signature, within the server middleware,
judged by the worker's retry policy.

A sync job is not interrupted at its ``timeout``, because no watchdog looks on; one that took longer has timed out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, NamedTuple

from henchman.client.options import JobOptions
from henchman.errors import JobCancelled, JobEnd, JobShutdown, JobTimeout, Kill, PayloadError
from henchman.testing.calls import NotFaked
from henchman.wire.payload import decode
from henchman.wire.secret import NO_SECRETS, Secrets
from henchman.work.current import running
from henchman.work.outcome import Outcome
from henchman.work.unit import Unit
from henchman.worker.processor import Processor
from henchman.worker.retry import RetryPolicy
from henchman.worker.run import Run, Slot

__all__ = ["Drained", "InlinePolicy", "Performed", "Performer", "Ran", "TestPolicy"]


class Ran(NamedTuple):
    """One job that was taken to its end: how it ended (``work.outcome.ENDINGS``), what it returned or raised."""

    name: str
    jid: str
    ending: str
    result: Any
    error: BaseException | None
    reason: str


#: a run as a test sees it, and its outcome as a worker settles it
Performed = tuple[Ran, Outcome]


@dataclass(frozen=True)
class Drained:
    """What a drain ran, in order."""

    ran: tuple[Ran, ...]

    def __len__(self) -> int:
        return len(self.ran)

    def __iter__(self) -> Iterator[Ran]:
        return iter(self.ran)

    def count(self, ending: str) -> int:
        """How many ended so: "done", "failed", "retry", "dead", "snoozed", "expired"…"""
        return sum(one.ending == ending for one in self.ran)

    @property
    def errors(self) -> list[BaseException]:
        """The errors (not business failures) that jobs raised, in order."""
        return [one.error for one in self.ran if one.error is not None and one.ending != "failed"]


class TestPolicy(RetryPolicy):
    """Judges as a worker does, but for errors that are meant for the test: ``escaped`` holds the one of the latest run.

    A run whose error escapes is marked as given back, so that the processor neither settles nor announces it.
    """

    __test__ = False  # no test class, whatever pytest makes of its name
    #: the errors that end a job on a worker; any other BaseException is meant for the test
    ends: tuple[type[BaseException], ...] = (
        *(Exception, SystemExit, JobTimeout, JobShutdown, JobCancelled),
        asyncio.CancelledError,
    )
    escaped: BaseException | None = None

    def ended(self, run: Run, result: Any, error: BaseException | None) -> Outcome:
        """The outcome of a run that returned ``result`` or raised ``error``."""
        if error is not None and _test_is_cancelled():
            return self._escape(run, asyncio.CancelledError())
        if error is not None and (isinstance(error, NotFaked) or not isinstance(error, self.ends)):
            return self._escape(run, error)
        return super().ended(run, result, error)

    def _escape(self, run: Run, error: BaseException) -> Outcome:
        run.released = True
        self.escaped = error
        return Outcome("released")


class InlinePolicy(TestPolicy):
    """Lets every error escape but those by which a job itself asks to end."""

    ends = (JobEnd, JobShutdown, JobCancelled)

    def ended_of_source(self, run: Run, result: Any, error: BaseException | None) -> Outcome:
        """The outcome of an ordered run, unless one of its ids has an error."""
        for problem in run.unit.claim.errors(result, error).values():
            if not isinstance(problem, self.ends):
                return self._escape(run, problem)
        return super().ended_of_source(run, result, error)

    def failed(
        self,
        unit: Unit,
        job: Mapping[str, Any],
        error: BaseException,
        options: JobOptions | None,
        secrets: Secrets = NO_SECRETS,
    ) -> Outcome:
        """Raise the error of a job that cannot even start."""
        if isinstance(error, Kill):
            return super().failed(unit, job, error, options, secrets)
        raise error

    def report(self, error: BaseException, facts: dict[str, Any], secrets: Secrets = NO_SECRETS) -> str:
        """Call no error handler: the caller gets the error."""
        return ""


class _Surroundings:
    """The acker, reporter, watchdog, lease, cancellations and scoreboard of one run that no worker surrounds."""

    identity, valid_until, grace = "testing", math.inf, 0.0
    paused = frozenset[str]()  # to pause a batch takes a server

    def __init__(self, cancelled: Collection[str]) -> None:
        self.jids = cancelled
        self.reporter = self
        self.outcome: Outcome | None = None

    def has(self, run: Run) -> bool:
        """Whether a run is called off."""
        return run.jid in self.jids

    def submit(self, unit: Unit, outcome: Outcome, job: Any) -> None:
        """Keep the outcome."""
        self.outcome = outcome

    settle = submit

    async def asettle(self, unit: Unit, outcome: Outcome, job: Any) -> None:
        """Keep the outcome."""
        self.outcome = outcome

    def ignore(self, *facts: Any) -> None:
        """Neither history nor watchdog nor supervisor is there to hear of it."""

    begin = end = log = progress = watch = forget = start = clear = ignore


class Performer:
    """Runs units of ``app``, a view with the test's clock. ``cancelled``: jids that may not start.

    Jobs, middleware and listeners are looked up for each run.
    """

    def __init__(self, app: Any, policy: type[TestPolicy], cancelled: Collection[str] = frozenset()) -> None:
        self._app = app
        self._policy = policy
        self._cancelled = cancelled

    def perform(self, unit: Unit) -> Performed:
        """Take a unit to its end; an async job runs in an event loop of its own, also beneath a running one."""
        steps = _Steps(self._app, self._policy(self._app), self._cancelled)
        run = steps.processor.reader.read_unit(unit)
        if isinstance(run, Run) and run.compiled.is_async:
            return _finish(steps.awaited(run))
        return steps.here(unit, run)

    async def aperform(self, unit: Unit) -> Performed:
        """``perform``, awaited: an async job runs in this loop, a sync one in this thread."""
        steps = _Steps(self._app, self._policy(self._app), self._cancelled)
        run = steps.processor.reader.read_unit(unit)
        if isinstance(run, Run) and run.compiled.is_async:
            return await steps.awaited(run)
        return steps.here(unit, run)


class _Steps:
    """The processor of one run, with its policy and its surroundings."""

    def __init__(self, app: Any, policy: TestPolicy, cancelled: Collection[str]) -> None:
        self._policy = policy
        around: Any = _Surroundings(cancelled)
        self._around = around
        self.processor = Processor(app, around, policy, around, around, around, around)

    def here(self, unit: Unit, run: Run | Outcome) -> Performed:
        """Run a sync job; one that does not even start has its outcome."""
        if isinstance(run, Outcome):
            return _ran(unit, None, run), run
        run.keeps = False  # a test gets the returned value itself
        self.processor.execute(Slot("testing", 0), run)
        return self._performed(run)

    async def awaited(self, run: Run) -> Performed:
        """Run an async job."""
        run.keeps = False
        outer = running.set(run)
        try:
            await self.processor.aexecute(run)
        finally:
            running.reset(outer)
        return self._performed(run)

    def _performed(self, run: Run) -> Performed:
        if self._policy.escaped is not None:
            raise self._policy.escaped
        outcome: Outcome = self._around.outcome
        return _ran(run.unit, run, outcome), outcome


def _ran(unit: Unit, run: Run | None, outcome: Outcome) -> Ran:
    job: Any = unit.job if run is None else {"class": run.name, "jid": run.jid}
    if not job:
        try:
            job = decode(unit.payload)
        except PayloadError:
            job = {}
    return Ran(job.get("class", ""), job.get("jid", ""), outcome.ending, outcome.result, outcome.error, outcome.reason)


def _test_is_cancelled() -> bool:
    """Whether the task of the test itself is being cancelled, and not its job."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def _finish(coroutine: Coroutine[Any, Any, Performed]) -> Performed:
    """The result of ``coroutine`` in a loop of its own, with the caller's context; beneath a loop in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()
