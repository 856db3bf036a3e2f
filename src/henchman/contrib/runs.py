"""What OpenTelemetry and Sentry say of runs in the same way: their job, its name, and which ends are no errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from henchman.errors import Discard, JobCancelled, JobInterrupted, JobShutdown, Snooze
from henchman.work.current import CurrentJob

__all__ = ["NO_ERRORS", "job_name", "job_of"]

#: how a run may leave that is no error
NO_ERRORS: Final = (Snooze, Discard, JobInterrupted, JobShutdown, JobCancelled)


def job_name(job: Mapping[str, Any]) -> str:
    """The name under which people know a job: the class that Rails wrapped, else its own."""
    return str(job.get("wrapped") or job.get("class") or "")


def job_of(run: CurrentJob) -> Mapping[str, Any]:
    """The payload as the worker holds it, to be read alone: ``run.payload`` is decoded anew each time."""
    unit = getattr(run, "unit", None)
    return run.payload if unit is None else unit.job
