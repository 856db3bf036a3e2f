"""Runs jobs: from fetched bytes to a run, and from a run to its outcome, for threads and for the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, cast

from henchman.client.runtime import Runtime
from henchman.errors import (
    ArgumentError,
    HenchmanError,
    JobCancelled,
    JobDeadline,
    JobShutdown,
    JobTimeout,
    PayloadError,
    UnknownJob,
)
from henchman.kernel.clock import awake
from henchman.kernel.middleware import apart
from henchman.kernel.scoreboard import STARTS, Scoreboard
from henchman.kernel.text import shorten, visible
from henchman.kernel.threads import REFUSED
from henchman.wire.payload import decode, invalid, wrapped_class
from henchman.wire.secret import NO_SECRETS, Secrets
from henchman.work.current import running
from henchman.work.locks import is_exclusive
from henchman.work.outcome import DONE, Outcome, called_off
from henchman.work.steps import step_of
from henchman.work.unit import Unit
from henchman.worker.acker import Acker
from henchman.worker.claim import Claims
from henchman.worker.retry import RetryPolicy
from henchman.worker.run import CompiledJob, Run, Slot, secrets_of
from henchman.worker.session import LeaseSession
from henchman.worker.step_run import StepRun
from henchman.worker.watchdog import Watchdog, calm
from henchman.worker.watcher import Cancels

__all__ = ["Processor", "UnitReader", "end_child", "in_child", "meaning"]

_monotonic = time.monotonic
TASK_PLACES = 512  # places on the board below this belong to threads, the others to tasks


class Processor:
    """The steps: may it start, start, call, judge, hand over. One a process; many threads call it at once."""

    def __init__(
        self,
        runtime: Runtime,
        acker: Acker,
        policy: RetryPolicy,
        watchdog: Watchdog,
        session: LeaseSession,
        cancels: Cancels,
        board: Scoreboard,
    ) -> None:
        self._session = session
        self._acker = acker
        self._policy = policy
        self.reader = UnitReader(runtime, policy, acker, board)
        self.claims = Claims(runtime, session, acker, policy, self.reader.read_unit, cancels)
        self._watchdog = watchdog
        self._cancels = cancels
        self._clock = runtime.clock
        self._board = board
        self._task_places = deque(range(TASK_PLACES, STARTS))
        self.stopping = False  # the worker is: whoever sets this tells the runs that run already
        self.is_fork = False  # a job forked, and this is the child
        in_child(self)
        self._events = runtime.events
        self._tell_start = runtime.events.heard("job_start")
        self._tell_end = runtime.events.heard("job_end")
        self._tell_failed = runtime.events.heard("job_failed")

    def forked(self) -> None:
        """In a child that a job forked: it ends with the job that it is in."""
        self.is_fork = True

    def execute(self, slot: Slot, run: Run) -> None:
        """Run a sync job in this thread, to its outcome. Whatever fails on the way there, its unit is settled."""
        problem: BaseException | None = None
        result: Any = None
        try:
            now = _monotonic()
            outcome = self._refusal(run)
            if outcome is None:
                token = running.set(run)
                try:
                    try:
                        self._begin(run, slot, now)
                        result = run.compiled.call(run)
                    except BaseException as error:
                        problem = error
                    if self.is_fork:
                        end_child(problem)
                    self._leave(slot, run)
                except (JobTimeout, JobShutdown) as late:  # struck between the job's end and leaving it
                    self._leave(slot, run)
                    problem = late if problem is None else problem
                if run.deadline is not None and problem is None and _is_overdue(run):
                    problem = _timed_out(run)
                try:  # handlers of its failure are of its run: what they log of it is masked
                    outcome = self._outcome(run, result, problem)
                finally:
                    running.reset(token)
            counts = self._finish(run, outcome)
        except BaseException as defect:
            counts, outcome = self._settle_defect(run, defect)
        if counts and (self._tell_end or outcome is not DONE):
            self._tell(run, outcome)
        problem = outcome = None  # a traceback holds this frame: what the job held is freed now, not at a collection

    async def aexecute(self, run: Run) -> None:
        """Run an async job in this task, to its outcome. Whatever fails on the way there, its unit is settled."""
        place = self._task_places.popleft() if self._task_places else sys.maxsize
        try:
            now = _monotonic()
            outcome = self._refusal(run)
            if outcome is None:
                running.set(run)
                self._begin(run, None, now)
                self._board.start(place, run.jid)
                outcome = await self._awaited(run)
            counts = await self._afinish(run, outcome)
        except BaseException as defect:
            counts, outcome = self._settle_defect(run, defect)
        self._board.clear(place)
        if place < sys.maxsize:
            self._task_places.append(place)
        if counts:
            self._tell(run, outcome)
        outcome = None  # as above

    async def _awaited(self, run: Run) -> Outcome:
        """The outcome of an async job that has begun."""
        try:
            async with asyncio.timeout(self._timeout(run)) as limit:
                result = await run.compiled.call(run)
            problem: BaseException | None = None
            if _is_overdue(run) and not limit.expired():
                problem = _timed_out(run)
        except BaseException as error:
            result, problem = None, error
        if self.is_fork:
            end_child(problem)
        if run.deadline is not None:
            self._watchdog.forget(run)
        try:
            if (problem is not None or result is not None) and self._policy.hooked(run):  # which may wait: not here
                with suppress(*REFUSED):  # there is no thread to be had: then here
                    return cast(Outcome, await apart(self._outcome, run, result, problem, limit.expired()))
            return self._outcome(run, result, problem, limit.expired())
        finally:
            problem = None  # as above

    def _outcome(self, run: Run, result: Any, error: BaseException | None, timed_out: bool | None = False) -> Outcome:
        """What became of ``run``; what cannot be judged goes where people see it, with the defect's text.

        ``timed_out``: whether asyncio's time-out ended the run; None when ``error`` is ours and means what it says.
        """
        if error is None and result is None and run.unit.source is None:
            return DONE
        try:
            meant = error if error is None or timed_out is None else meaning(run, error, timed_out)
            return self._policy.ended(run, result, meant)
        except BaseException as defect:  # its own __class__, __str__, __eq__…: anything of it may raise
            self._events.emit("part_failed", part="retry", error=defect)
            return self._policy.defect(run.unit, defect, "its failure could not be judged", run.secrets)

    def _settle_defect(self, run: Run, defect: BaseException) -> tuple[bool, Outcome]:
        """Settle a run that something of ours failed for, after it ended or before it began: never left in flight.
        Whether that counts: it does not when the run was given back."""
        outcome = self._policy.defect(run.unit, defect, "its end could not be settled", run.secrets)
        if run.released:
            return False, outcome
        self._acker.submit(run.unit, outcome, run.unit.job)
        run.ended = True
        self._events.emit("part_failed", part="processor", error=defect)
        return True, outcome

    def abandon(self, run: Run) -> None:
        """Settle a run that ignores its time-out as timed out; what it still says is ignored."""
        run.abandoned = True
        self._acker.reporter.end(run)
        run.unit.elapsed = run.elapsed
        if is_exclusive(run.unit):  # never released beside its handler: it ends with its process
            if run.unit.source is not None:
                run.unit.source.abandon(run.unit)
            else:
                self.claims.abandoned(run)
            self._events.emit("job_abandoned", run=run)
            return
        kind = JobDeadline if run.by_deadline else JobTimeout
        error = kind(
            f"still running {self._watchdog.grace:g} s after its {'deadline' if run.by_deadline else 'time-out'}"
        )
        outcome = self._outcome(run, None, error, None)
        self._acker.submit(run.unit, outcome, run.unit.job)
        self._events.emit("job_abandoned", run=run)

    def give_back(self, run: Run, reason: str) -> None:
        """A run that can neither go on nor end: it starts again, from the front of its queue."""
        if not run.ended:
            outcome = self._outcome(run, None, JobShutdown(), None)._replace(reason=reason)
            if self._finish(run, outcome):
                self._tell(run, outcome)
            run.released = True  # what it still says is ignored

    def _refusal(self, run: Run) -> Outcome | None:
        """Why a run may not start now, as its outcome."""
        if self._cancels.jids and self._cancels.has(run):
            if not run.compiled.hears_cancel:
                return Outcome("cancelled", called_off(run.jid), reason="cancelled before it started")
            run.cancelled = True
        if self._cancels.paused and self._cancels.holds(run):  # who fetches it again holds it
            return Outcome("released", reason="it was paused before it could start")
        if run.expires is not None and (late := self._too_late(run)) is not None:
            return late
        if awake() > self._session.valid_until:  # somebody else may be running it already
            return Outcome("released", reason="the lease of this process ran out before it could start")
        if run.unit.flight.identity != self._session.identity:  # after the lease: that may be the new name's already
            return Outcome("released", reason="this process was declared dead before it could start")
        return None

    def _too_late(self, run: Run) -> Outcome | None:
        """Why a run that has to start in time does not; else it ends no later than the deadline of its job."""
        now = self._clock.now()
        if run.until is not None:
            left = run.until - now
            if left <= 0:
                return self._policy.overdue(run)
            run.ends = _monotonic() + left
            run.timeout = left if run.timeout is None else min(run.timeout, left)
        if run.expires is not None and run.expires != run.until and now > run.expires + self._clock.leapt(run.due):
            return Outcome("expired", reason="it expired before it could start")
        return None

    def _begin(self, run: Run, slot: Slot | None, now: float) -> None:
        """Note that ``run`` started at ``now``, when its lease was valid: a process that is frozen from here on has let
        it start before that, whenever the job's first line comes."""
        run.started_at, run.started = time.time(), now
        if slot is not None:
            slot.run = run
            self._board.start(slot.place, run.jid)
        if self.stopping:
            run.stopping = True
        timeout = run.timeout
        if timeout is not None:
            run.deadline = run.started + timeout
            if not run.compiled.isolated:  # whose process is struck there, and killed
                self._watchdog.watch(run, slot)
        if run.tracked:
            self._acker.reporter.begin(run)
        if self._tell_start:
            self._events.emit("job_start", run=run)

    def _timeout(self, run: Run) -> float | None:
        return None if run.deadline is None else run.deadline - run.started

    def _leave(self, slot: Slot, run: Run) -> None:
        """The run is over: from here on nothing is raised in this thread on its behalf."""
        with slot.lock:
            slot.run = None
            if run.struck is not None:
                calm(slot)
        if run.late is not None:
            run.late = None
        if run.deadline is not None:
            self._watchdog.forget(run)

    def _finish(self, run: Run, outcome: Outcome) -> bool:
        """Hand the outcome over; whether it still counts."""
        if not self._ended(run):
            return False
        settle = self._acker.settle if run.compiled.ack_each and run.started else self._acker.submit
        settle(run.unit, outcome, run.unit.job)
        return True

    async def _afinish(self, run: Run, outcome: Outcome) -> bool:
        if not run.compiled.ack_each or not run.started:
            return self._finish(run, outcome)
        if not self._ended(run):
            return False
        await self._acker.asettle(run.unit, outcome, run.unit.job)
        return True

    def _ended(self, run: Run) -> bool:
        """Note how long ``run`` took; whether what it says still counts."""
        if run.started:
            elapsed = run.unit.elapsed = _monotonic() - run.started
            run.compiled.learn(elapsed)
            if run.tracked:
                self._acker.reporter.end(run)
        if run.unit.cancelled is not run.cancelled:  # to look is cheaper than to write
            run.unit.cancelled = run.cancelled
        run.ended = not run.released and (not run.abandoned or is_exclusive(run.unit))
        return run.ended

    def _tell(self, run: Run, outcome: Outcome) -> None:
        if outcome.ending != "done" and self._tell_failed:
            self._events.emit("job_failed", run=run, outcome=outcome)
        elif self._tell_end:
            self._events.emit("job_end", run=run, outcome=outcome)


def _is_overdue(run: Run) -> bool:
    """Whether a run that returned did so after its time-out, and was not told of it: what was told has its say."""
    return run.deadline is not None and run.struck is None and _monotonic() > run.deadline


def meaning(run: Run, error: BaseException, timed_out: bool) -> BaseException:
    """What ``error`` means: our time-out, our stop, a cancellation from outside, or what the job says itself."""
    if not run.compiled.is_async:
        return _timed_out(run, error) if isinstance(error, JobTimeout) and run.struck is JobTimeout else error
    if run.released:
        return JobShutdown()
    if timed_out and isinstance(error, TimeoutError):
        return _timed_out(run, error.__cause__ or error)  # the cancellation: it was raised where the job stood
    if not isinstance(error, asyncio.CancelledError):
        return error
    if run.struck is JobShutdown:
        return JobShutdown()
    if run.cancelled:
        return JobCancelled()
    return RuntimeError("the job cancelled itself (asyncio.CancelledError)").with_traceback(error.__traceback__)


def _timed_out(run: Run, error: BaseException | None = None) -> JobTimeout:
    """``error`` with its words, and where the job stood when it was raised, if it was."""
    made = JobTimeout(f"the job ran longer than its timeout of {run.timeout or 0:g} s")
    if run.by_deadline:
        made = JobDeadline(f"its deadline passed while it ran, for {run.elapsed:.3g} s")
    return made.with_traceback(None if error is None else error.__traceback__)


_NO_KWARGS: dict[str, Any] = {}


class UnitReader:
    """Makes runs of fetched bytes. One a process; only the fetching side calls it."""

    def __init__(self, runtime: Runtime, policy: RetryPolicy, acker: Acker, board: Scoreboard) -> None:
        self._runtime = runtime
        self._policy = policy
        self._acker = acker
        self._board = board
        self._compiled: dict[str, CompiledJob] = {}
        self.keyed = False  # this process has met a job with a key or limits
        self.isolation: Callable[[Any], Any] | None = None  # runs jobs in processes of their own; None: all run here

    def read(self, unit: Unit, mark: int) -> Run | None:
        """The run of ``unit``; what cannot run is settled. The payload stands on the scoreboard at ``mark``, so that
        the supervisor knows whose fault it is when the reading ends the process."""
        self._board.mark(mark, unit.payload)
        try:
            read = self.read_unit(unit)
        except BaseException as error:  # of a type's own code, a SystemExit too: it is one unit's failure
            read = self._unreadable(unit, error)
        if isinstance(read, Run):
            return read
        self._acker.submit(unit, read, unit.job)
        return None

    def read_unit(self, unit: Unit) -> Run | Outcome:
        """The run of ``unit``, or how it ends without running: an invalid payload, an unknown name, wrong arguments."""
        if unit.source is not None:
            return self._read_source(unit)
        try:
            job = decode(unit.payload if unit.claim is None else unit.newest)
        except PayloadError as error:
            self._policy.report(error, {"context": "invalid payload", "queue": unit.flight.queue})
            stored = invalid(unit.payload, str(error), unit.flight.queue, self._runtime.clock.now())
            return self._refused(unit, Outcome("invalid", stored, reason=str(error), error=error))
        unit.job = job
        try:
            compiled = self._compiled.get(job["class"]) or self._compile(job["class"])
        except HenchmanError as error:
            return self._refused(unit, self._policy.failed(unit, job, _named(error, job), None))
        try:
            args, kwargs = compiled.signature.decode(job.get("args") or [], job.get("kwargs"))
        except ArgumentError as error:
            secrets = self._secrets(unit)
            failed = self._policy.failed(unit, job, error, compiled.definition.options, secrets)
            return self._refused(unit, failed, secrets)
        if compiled.iterable:
            _mark(job)
        if "hm" in job or compiled.is_limited:
            return self._noted(unit, job, compiled, args, kwargs)
        return Run(unit, compiled, args, kwargs, job.get("jid") or "", compiled.timeout)

    def _noted(
        self, unit: Unit, job: dict[str, Any], compiled: CompiledJob, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Run:
        """A run of which more is said; from the first with a key on, those who start runs ask for their keys."""
        ours = said if isinstance(said := job.get("hm"), dict) else {}
        self.keyed = self.keyed or "key" in ours or "limits" in ours
        return (StepRun if "step" in ours and step_of(job) else Run).of(unit, job, compiled, args, kwargs)

    def _unreadable(self, unit: Unit, error: BaseException) -> Outcome:
        """How ``unit`` ends, for which ``read_unit`` raised ``error``: dead, with that text."""
        secrets = self._secrets(unit)
        outcome = self._policy.defect(unit, error, "it could not be read", secrets)
        self._runtime.events.emit("part_failed", part="intake", error=error, secrets=secrets)
        return self._refused(unit, outcome, secrets)

    def _refused(self, unit: Unit, outcome: Outcome, secrets: Secrets = NO_SECRETS) -> Outcome:
        """``outcome``, of a unit that ends without a run: announced as that of a run is."""
        self._runtime.events.emit("job_refused", unit=unit, outcome=outcome, secrets=secrets)
        return outcome

    def _secrets(self, unit: Unit) -> Secrets:
        """What must not be shown of a unit that could not be read: its payload, or the job that it names, says so."""
        job = unit.job
        try:
            compiled = self._compiled.get(job.get("class", ""))
            call = job.get("args") or [], job.get("kwargs") or {}
            return NO_SECRETS if compiled is None else secrets_of(compiled.signature, job, call)
        except Exception:  # of arguments that are anybody's
            return Secrets(all=True)

    def _read_source(self, unit: Unit) -> Run | Outcome:
        read = unit.source.read(unit, self._policy)
        if isinstance(read, Outcome):
            return read
        compiled = self._compiled.get(read.name) or self._compile(read.name)
        return Run.of(unit, read.job, compiled, read.args, _NO_KWARGS)

    def _compile(self, name: str) -> CompiledJob:
        runtime = self._runtime
        definition = runtime.registry.get(name)
        if definition.name in self._compiled:  # ``name`` is an alias: one job has one usual time
            known = self._compiled[name] = self._compiled[definition.name]
            return known
        compiled = self._compiled[name] = self._compiled[definition.name] = CompiledJob(
            definition,
            runtime.server_middleware,
            runtime.events,
            self._acker.reporter,
            runtime.batch_of,
            runtime,
            None if definition.options.isolate is None else self.isolation,
        )
        return compiled


def _named(error: HenchmanError, job: dict[str, Any]) -> HenchmanError:
    """``error``, and what Rails wrapped: the name of its wrapper says nothing."""
    wrapped = wrapped_class(job)
    if not wrapped:
        return error
    name = visible(shorten(wrapped, 200))
    return UnknownJob(f"no job is registered as {job['class']!r}, in which Rails wrapped {name!r}: Ruby runs it")


def _mark(job: dict[str, Any]) -> None:
    """What our clients write into the payload of an iterable job (``work/effects.py``), where another did not."""
    ours = job.get("hm")
    job["hm"] = {**(ours if isinstance(ours, dict) else {}), "iterable": True}


# A child of a process that a job forked (``os.fork``, ``multiprocessing``) is no worker. It has a copy of everything
# and none of the threads: no slot, lease, connection or pipe of its parent is its own. It may do what it likes in the
# job, and ends where the job's frame does.
_parts: weakref.WeakSet[Any] = weakref.WeakSet()


def in_child(part: Any) -> None:
    """Call ``part.forked()`` in every child that this process forks, as long as ``part`` lives."""
    _parts.add(part)


def _forked() -> None:
    for part in list(_parts):
        part.forked()


os.register_at_fork(after_in_child=_forked)


def end_child(problem: BaseException | None, leave: Callable[[int], NoReturn] = os._exit) -> NoReturn:
    """End a forked child as Python would have: status 0 when the job returned, that of ``sys.exit()``, or 1."""
    status = 0
    if isinstance(problem, SystemExit):
        status = problem.code if isinstance(problem.code, int) else int(problem.code is not None)
    try:
        if problem is not None and not isinstance(problem, SystemExit):
            status = 1
            traceback.print_exception(problem)
        elif status and not isinstance(getattr(problem, "code", 0), int):
            sys.stderr.write(f"{problem}\n")
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        leave(status & 0xFF)
