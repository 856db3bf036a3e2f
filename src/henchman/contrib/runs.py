"""What OpenTelemetry and Sentry say of runs in the same way: the name of a job, and which ends are no errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from henchman.errors import Discard, JobCancelled, JobInterrupted, JobShutdown, Snooze

__all__ = ["NO_ERRORS", "job_name"]

#: how a run may leave that is no error
NO_ERRORS: Final = (Snooze, Discard, JobInterrupted, JobShutdown, JobCancelled)


def job_name(job: Mapping[str, Any]) -> str:
    """The name under which people know a job: the class that Rails wrapped, else its own."""
    return str(job.get("wrapped") or job.get("class") or "")
