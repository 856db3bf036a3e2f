"""Runs one payload here and now, as a worker would: decoded by its signature, within the server middleware, judged.

What it does not do: a sync job's ``timeout`` is not enforced (nobody watches from outside), an async one's is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, NamedTuple

from henchman.client.options import JobOptions
from henchman.errors import JobCancelled, JobEnd, JobShutdown, JobTimeout, Kill
from henchman.kernel.clock import ServerClock
from henchman.testing.pushes import NotFaked, name_and_jid
from henchman.testing.switch import View
from henchman.wire.secret import NO_SECRETS, Secrets
from henchman.work.current import running
from henchman.work.outcome import DONE, Outcome
from henchman.work.unit import InFlightList, Unit
from henchman.worker.processor import UnitReader
from henchman.worker.retry import RetryPolicy
from henchman.worker.run import Run

__all__ = ["Candid", "ClockJudge", "Drained", "GivenClock", "Performer", "Ran"]

#: what a worker takes for the end of a job; anything else that is no Exception is meant for the test
_ENDS = (Exception, SystemExit, JobTimeout, JobShutdown, JobCancelled, asyncio.CancelledError)


class Ran(NamedTuple):
    """One job that was taken to its end: how it ended (``work.outcome.ENDINGS``), what it returned or raised."""

    name: str
    jid: str
    ending: str
    result: Any
    error: BaseException | None
    reason: str


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


class GivenClock(ServerClock):
    """The clock of a test in place of the server's, whatever answers say."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(wall=now)

    def heard(self, server: float, sent: float) -> None:
        """Nothing is learned."""


class ClockJudge(RetryPolicy):
    """Judges by a clock of its own."""

    def __init__(self, host: Any, now: Callable[[], float]) -> None:
        super().__init__(View(host, clock=GivenClock(now)))


class Candid(RetryPolicy):
    """Raises errors instead of judging them; how a job itself asks to end is honoured."""

    def failed(
        self,
        unit: Unit,
        job: dict[str, Any],
        error: BaseException,
        options: JobOptions | None,
        secrets: Secrets = NO_SECRETS,
    ) -> Outcome:
        if isinstance(error, Kill):
            return super().failed(unit, job, error, options, secrets)
        raise error

    def ended_of_source(self, run: Run, result: Any, error: BaseException | None) -> Outcome:
        for problem in run.unit.claim.errors(result, error).values():
            if not isinstance(problem, (JobEnd, JobShutdown, JobCancelled)):
                raise problem
        return super().ended_of_source(run, result, error)

    def report(self, error: BaseException, facts: dict[str, Any], secrets: Secrets = NO_SECRETS) -> None:
        """Nobody is told: the caller gets it."""


class Performer:
    """Runs payloads of ``app``. ``cancelled``: jids that may not start. Jobs and middleware are looked up each time."""

    def __init__(
        self, app: Any, judge: RetryPolicy, now: Callable[[], float], cancelled: Collection[str] = frozenset()
    ) -> None:
        self._app = app
        self._policy = judge
        self._now = now
        self._cancelled = cancelled

    def perform(self, queue: str, payload: bytes) -> tuple[Ran, Outcome]:
        """Take one payload to its end; an async job runs in an event loop of its own, also beneath a running one."""
        return self.perform_unit(self._unit(queue, payload))

    def perform_unit(self, unit: Unit) -> tuple[Ran, Outcome]:
        """``perform``, of what a source gave."""
        run, outcome = self._admit(unit)
        if run is None:
            return _ran(unit, None, outcome), outcome
        token = running.set(run)
        try:
            result = _finish(_limited(run)) if run.compiled.is_async else run.compiled.call(run)
        except BaseException as error:
            outcome = self._raised(run, error)
        else:
            outcome = self._returned(run, result)
        finally:
            running.reset(token)
        return self._told(run, outcome), outcome

    async def aperform(self, queue: str, payload: bytes) -> tuple[Ran, Outcome]:
        """``perform``, awaited: an async job runs in this loop, a sync one in this thread."""
        return await self.aperform_unit(self._unit(queue, payload))

    async def aperform_unit(self, unit: Unit) -> tuple[Ran, Outcome]:
        """``perform_unit``, awaited."""
        run, outcome = self._admit(unit)
        if run is None:
            return _ran(unit, None, outcome), outcome
        token = running.set(run)
        try:
            result = await _limited(run) if run.compiled.is_async else run.compiled.call(run)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the test's own task was cancelled, not the job
            outcome = self._raised(run, error)
        else:
            outcome = self._returned(run, result)
        finally:
            running.reset(token)
        return self._told(run, outcome), outcome

    def _unit(self, queue: str, payload: bytes) -> Unit:
        return Unit(payload, InFlightList(queue, self._app.keys.queue(queue), "", "testing", 1), time.monotonic())

    def _admit(self, unit: Unit) -> tuple[Run | None, Outcome]:
        """The run, started; or None and how it ends without one."""
        run = UnitReader(self._app, self._policy).read_unit(unit)
        if isinstance(run, Outcome):
            return None, run
        if run.jid in self._cancelled:
            if not run.compiled.hears_cancel:
                return None, Outcome("cancelled", reason="cancelled before it started")
            run.cancelled = True
        if run.expires is not None and self._now() > run.expires:
            return None, Outcome("expired", reason="it expired before it could start")
        run.started_at, run.started = self._now(), time.monotonic()
        if run.timeout is not None:
            run.deadline = run.started + run.timeout
        self._app.events.emit("job_start", run=run)
        return run, DONE

    def _raised(self, run: Run, error: BaseException) -> Outcome:
        if isinstance(error, NotFaked) or not isinstance(error, _ENDS):
            raise error
        if isinstance(error, asyncio.CancelledError):
            meant = "the job cancelled itself (asyncio.CancelledError)"
            error = JobCancelled() if run.cancelled else RuntimeError(meant).with_traceback(error.__traceback__)
        return self._policy.ended(run, None, error)

    def _told(self, run: Run, outcome: Outcome) -> Ran:
        self._app.events.emit("job_end" if outcome.ending == "done" else "job_failed", run=run, outcome=outcome)
        return _ran(run.unit, run, outcome)

    def _returned(self, run: Run, result: Any) -> Outcome:
        if run.unit.source is not None:
            return self._policy.ended(run, result, None)
        return DONE if result is None else Outcome("done", result=result)


def _ran(unit: Unit, run: Run | None, outcome: Outcome) -> Ran:
    if run is not None:
        name, jid = run.name, run.jid
    elif unit.source is not None:
        name, jid = unit.job["class"], unit.job["jid"]
    else:
        name, jid = name_and_jid(unit.payload)
    return Ran(name, jid, outcome.ending, outcome.result, outcome.error, outcome.reason)


async def _limited(run: Run) -> Any:
    """The job's result, awaited within its time-out."""
    try:
        async with asyncio.timeout(run.timeout) as limit:
            return await run.compiled.call(run)
    except TimeoutError as error:
        if not limit.expired():
            raise
        text = f"the job ran longer than its timeout of {run.timeout:g} s"
        raise JobTimeout(text).with_traceback(error.__traceback__) from None


def _finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of ``coroutine`` in a loop of its own, with the caller's context; beneath a loop in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()
