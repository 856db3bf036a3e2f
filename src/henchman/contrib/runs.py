"""What OpenTelemetry and Sentry say of runs in the same way: their job, its name, which ends are no errors, and the
cause of an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from henchman.errors import (
    Discard,
    Failure,
    JobCancelled,
    JobDeadline,
    JobInterrupted,
    JobShutdown,
    JobTimeout,
    Snooze,
)
from henchman.work.current import CurrentJob
from henchman.work.outcome import cause_of

__all__ = ["NO_ERRORS", "cause_of_end", "end_of", "job_name", "job_of"]

#: how a run may leave that is no error
NO_ERRORS: Final = (Snooze, Discard, JobInterrupted, JobShutdown, JobCancelled)


def job_name(job: Mapping[str, Any]) -> str:
    """The name under which people know a job: the class that Rails wrapped, else its own."""
    return str(job.get("wrapped") or job.get("class") or "")


def job_of(run: CurrentJob) -> Mapping[str, Any]:
    """The payload as the worker holds it, to be read alone: ``run.payload`` is decoded anew each time."""
    unit = getattr(run, "unit", None)
    return run.payload if unit is None else unit.job


def end_of(run: CurrentJob, error: BaseException) -> BaseException:
    """How a run ends that ``error`` left. The worker ends an async job, and one whose deadline has passed, by another
    exception than that by which the record of the run has it."""
    struck = isinstance(error, asyncio.CancelledError | JobTimeout)
    if struck and run.deadline is not None and time.monotonic() >= run.deadline:
        return JobDeadline() if getattr(run, "by_deadline", False) else JobTimeout()
    if isinstance(error, asyncio.CancelledError) and (run.cancelled or run.stopping):
        return JobCancelled() if run.cancelled else JobShutdown()
    return error


def cause_of_end(end: BaseException) -> str:
    """One of ``CAUSES`` for what ``end_of`` says; "" of an end that the job wished for."""
    match end:
        case JobShutdown():
            return "stop"
        case JobCancelled():
            return "cancelled"
        case Failure() | Snooze() | Discard() | JobInterrupted():
            return ""
        case _:
            return cause_of("retry", end)
