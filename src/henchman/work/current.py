"""The job that runs here: ``current_job()`` in a thread or task gives its id, attempt, deadline and more."""

from __future__ import annotations

import contextvars
from typing import Any, Protocol

from henchman.work.steps import StepResults

__all__ = ["CurrentJob", "current_job", "running"]


class CurrentJob(Protocol):
    """What a running job may ask about itself."""

    @property
    def jid(self) -> str:
        """The job's id, the same in every attempt."""

    @property
    def queue(self) -> str:
        """The queue it was fetched from."""

    @property
    def attempt(self) -> int:
        """1 in the first run, 2 in the first retry."""

    @property
    def deadline(self) -> float | None:
        """``time.monotonic()`` at which this run is ended: by its time-out or by the deadline of its job, whichever is
        first; None without either."""

    @property
    def cancelled(self) -> bool:
        """Whether ``app.cancel`` was called for it: a good moment to return."""

    @property
    def stopping(self) -> bool:
        """Whether the worker takes no new work any more and waits for this job to end."""

    @property
    def token(self) -> int | None:
        """In an ordered queue, or with a key that holds while it waits or runs, a number that rises with each start: a
        fence for writes elsewhere. None else."""

    @property
    def payload(self) -> dict[str, Any]:
        """The job as stored, decoded: a copy of its own."""

    @property
    def batch(self) -> Any:
        """The batch that it is a member of: ``batch.add(job, rows)`` adds to it; of a step of a workflow that workflow:
        ``batch.add(job.call(…), after=…)`` adds a step. None outside of one."""

    @property
    def results(self) -> StepResults:
        """Of a step of a workflow that was added with ``results=True``: what the steps returned that it waited for."""

    @property
    def needs(self) -> dict[str, str]:
        """What became of each job that it waited for (``after=``), by the name of the job, or the id: "finished", or
        "dead", "over", "time" where ``on_failed="run"`` let it run all the same; "released" by hand."""

    def checkpoint(self, state: Any) -> None:
        """Keep ``state``, plain JSON of at most 64 kB, for a later run of this job: after a crash, a stop, an error or
        a Snooze. It is removed when the job ends well, in the same step on the server, else after 30 days.

        ArgumentError when it cannot be kept; JobInterrupted when another process has this job by now.
        """

    async def acheckpoint(self, state: Any) -> None:
        """``checkpoint``, awaited."""

    def last_checkpoint(self) -> Any:
        """What ``checkpoint`` kept last, in this run or an earlier one; None when nothing was kept."""

    async def alast_checkpoint(self) -> Any:
        """``last_checkpoint``, awaited."""

    def spent(self, points: int) -> None:
        """How many points this run took of its limits (``Points``), in place of their estimate."""

    def log(self, message: str) -> None:
        """Write ``message`` to the log with the job's id and class; of a tracked job also into history."""

    def progress(self, done: float, total: float | None = None) -> None:
        """Of a tracked job: how far it is, for history and those who watch; of what is said fast only the latest."""


running: contextvars.ContextVar[CurrentJob] = contextvars.ContextVar("henchman_job")


def current_job() -> CurrentJob:
    """The job that runs in this thread or task; RuntimeError outside of one."""
    try:
        return running.get()
    except LookupError:
        raise RuntimeError("current_job() was called outside of a running job") from None
