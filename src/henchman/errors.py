"""Every exception Henchman raises, with its evidence.

The weakness first: an exception names what went wrong *here*; why the server did what it did is in the server's own
log. Three families: what a caller did wrong (``ConfigError``, ``DefinitionError``, ``ArgumentError``), what the world
did (``ServerAway``, ``ServerError``, ``EmbeddedServerError``), and how a job asks to end (``Failure``, ``Snooze``,
``Discard``, ``Kill``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

__all__ = [
    "AmbiguousTransaction",
    "ArgumentError",
    "ConfigError",
    "DefinitionError",
    "Discard",
    "DuplicateJob",
    "EmbeddedServerError",
    "Failure",
    "HenchmanError",
    "HistoryAway",
    "HistoryError",
    "JobCancelled",
    "JobEnd",
    "JobInterrupted",
    "JobShutdown",
    "JobTimeout",
    "Kill",
    "LeaseLost",
    "NoServerProgram",
    "OutboxAway",
    "OutboxError",
    "PayloadError",
    "ServerAway",
    "ServerError",
    "Snooze",
    "Unconfirmed",
    "UnknownCron",
    "UnknownJob",
]


class HenchmanError(Exception):
    """The root of everything that Henchman itself raises."""


class ConfigError(HenchmanError):
    """A setting is unknown, misspelt or out of range; the text names it, where it came from and the way out."""


class DefinitionError(HenchmanError):
    """A job was defined wrongly: two functions under one name, an unknown option, an unusable signature."""


class ArgumentError(HenchmanError, ValueError):
    """An argument of a job cannot be sent or rebuilt; the text names the place, such as ``rows[3].price is NaN``."""

    #: raised by a bulk push: how many of its rows were taken before; go on from there. None elsewhere
    pushed: int | None = None


class AmbiguousTransaction(HenchmanError):
    """Several database transactions are open, and a push inside them does not say whose commit it waits for."""


class DuplicateJob(HenchmanError):
    """The key of a push belongs to another job, and ``on_conflict="raise"``: nothing was pushed.

    ``jid``: the first job; ``status``: "finished" or "failed" when it is remembered, "" when it has not ended;
    ``differs``: it has other arguments, so perhaps the key is wrong.
    """

    #: raised by a bulk push: how many of its rows were taken before. None elsewhere
    pushed: int | None = None

    def __init__(self, name: str, jid: str, *, status: str = "", differs: bool = False) -> None:
        other = ", with other arguments" if differs else ""
        super().__init__(f"{name}: job {jid} has this key{other}; it {status or 'has not ended'}")
        self.jid = jid
        self.status = status
        self.differs = differs


class UnknownJob(HenchmanError, LookupError):
    """No job is registered under this name; a payload can never make the worker import anything."""


class UnknownCron(HenchmanError, LookupError):
    """The server has no periodic job of this name."""


class PayloadError(HenchmanError, ValueError):
    """A stored payload cannot be read as a job."""


class ServerError(HenchmanError):
    """The server answered with an error."""

    #: raised by a bulk push: how many of its rows were taken before; go on from there. None elsewhere
    pushed: int | None = None


class ServerAway(ServerError, ConnectionError):
    """The server could not be reached, or did not answer in time.

    ``executed`` is False when it is proven that the command was not executed, None when that is unknown.
    """

    def __init__(self, message: str, *, executed: bool | None = None) -> None:
        super().__init__(message)
        self.executed = executed


class Unconfirmed(ServerError):
    """The server took the push, but fewer replicas than ``wait_replicas`` confirmed it within ``wait_timeout``.

    The jobs ``jids`` are enqueued and will run, unless the server is lost before a replica has them. Pushing again
    would make second jobs; to take one back, cancel it. Of a push to an ordered queue ``jids`` are the entity ids.
    """

    def __init__(self, jids: Sequence[str], *, wanted: int, confirmed: int, timeout: float) -> None:
        jobs = f"job {jids[0]} is" if len(jids) == 1 else f"{len(jids)} jobs are"
        super().__init__(
            f"{jobs} enqueued, but {confirmed} of the {wanted} replicas asked for confirmed it within {timeout:g} s "
            "(wait_replicas, wait_timeout): it is lost if the server is lost now"
        )
        self.jids = tuple(jids)
        self.wanted = wanted
        self.confirmed = confirmed


class EmbeddedServerError(ServerError):
    """The embedded server could not be started or used; the text says what to do."""


class NoServerProgram(EmbeddedServerError, ConfigError):
    """No server is configured, and this machine has none that could be started: another try would end the same way."""


class LeaseLost(HenchmanError):
    """This process was declared dead by another one and must go on under a new identity."""


class BatchError(HenchmanError):
    """What is wrong with a batch."""

    #: raised by a bulk push: how many of its rows were taken before; go on from there. None elsewhere
    pushed: int | None = None


class BatchClosed(BatchError):
    """The batch takes no more jobs."""


class UnknownBatch(BatchError, LookupError):
    """There is no batch of that id, or its time to be kept is over."""


class ResultError(HenchmanError):
    """There is no result to wait for; the text says why."""


class JobFailed(HenchmanError):
    """The job whose result was asked for did not return: it failed, gave up, was cancelled or expired.

    ``status`` is how it ended, ``error_class`` and ``message`` are those of what it raised, ``traceback`` its lines
    there (also among the notes of this error).
    """

    def __init__(
        self, jid: str, status: str, *, error_class: str = "", message: str = "", traceback: Sequence[str] = ()
    ) -> None:
        said = ": ".join(one for one in (error_class, message) if one)
        super().__init__(f"job {jid} ended as {status}{': ' + said if said else ''}")
        self.jid = jid
        self.status = status
        self.error_class = error_class
        self.message = message
        self.traceback = tuple(traceback)
        if traceback:
            self.add_note("where the job ran:\n" + "\n".join(traceback))


class HistoryFull(BatchError):
    """The history has no room for what it must not drop; nothing was pushed."""


class HistoryError(HenchmanError):
    """The database of history refused, or its tables are not those of this release; the text says what to do."""


class HistoryAway(HistoryError, ConnectionError):
    """The database of history could not be reached, or is busy: another try may go well. Jobs run on without it."""


class OutboxError(HenchmanError):
    """The outbox cannot be used: its database refused, its tables are not those of this release, or there is no
    transaction to write into; the text says what to do."""


class OutboxAway(OutboxError, ConnectionError):
    """The database of the outbox could not be reached, or is busy: another try may go well. What waits there stays."""


class LimitReached(HenchmanError):
    """A job waited for its limits as long as it wants to (``max_wait=``), or a block outside of jobs for a place."""


class PoisonPill(HenchmanError):
    """Process after process died while it ran this; it counts as a failure."""


class ProcessCrashed(HenchmanError):
    """The process of an isolated run ended before the run did, or could not be started; it counts as a failure.

    ``cause``: "crash", or "memory" where the kernel killed it.
    """

    cause = "crash"


class JobEnd(HenchmanError):
    """The root of what a job raises to say how it ends; never treated as a system error."""


class Failure(JobEnd):
    """A business failure: the job ran and the answer is no. The message is kept; it is never retried."""


class Snooze(JobEnd):
    """Run this job again after ``delay`` (seconds or timedelta); no attempt is spent."""

    def __init__(self, delay: float | timedelta, message: str = "") -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        if not 0 <= seconds < 1e10:
            raise ArgumentError(f"Snooze({delay!r}): the delay must be between 0 and 10,000,000,000 seconds")
        super().__init__(message or f"snoozed for {seconds:g} s")
        self.delay = seconds


class Discard(JobEnd):
    """Forget this job: no retry, not into the dead set."""


class Kill(JobEnd):
    """Put this job into the dead set now, without the retries it has left."""


class JobInterrupted(JobEnd):
    """Put this job at the end of its queue, to go on there; no attempt is spent. Iterable jobs raise it themselves."""


class JobTimeout(BaseException):
    """Raised inside a job that ran longer than its ``timeout``; a BaseException, so a bare retry loop lets it pass."""


class JobDeadline(JobTimeout):
    """How a job ends whose ``deadline`` has passed: no retry. Inside of a run JobTimeout is raised."""


class JobShutdown(BaseException):
    """Raised inside a job that is still running when the worker's stop deadline has passed; the job is given back."""


class JobCancelled(BaseException):
    """Raised inside an async job that was cancelled by ``app.cancel``."""
