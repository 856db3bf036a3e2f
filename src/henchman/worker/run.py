"""One run of one job: what ``current_job()`` answers from."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from henchman.errors import ArgumentError, HenchmanError
from henchman.wire import numbers, payload, times
from henchman.wire.codec import Signature
from henchman.wire.secret import NO_SECRETS, Secrets, marked, places_of
from henchman.work.effects import batch_of
from henchman.work.told import attempt_of
from henchman.work.unit import Unit
from henchman.worker.spec import Spec

__all__ = ["Run", "Seat", "secrets_of"]


class Run:
    """A unit of work whose job is known, ready to start or started. Fits ``CurrentJob``."""

    __slots__ = (
        "_secrets",
        "abandoned",
        "args",
        "batch_expires",
        "batch_id",
        "cancelled",
        "deadline",
        "ended",
        "expires",
        "jid",
        "job",
        "keeps",
        "kwargs",
        "late",
        "pool",
        "released",
        "spec",
        "started",
        "started_at",
        "stopping",
        "struck",
        "task",
        "timeout",
        "tracked",
        "unit",
    )

    def __init__(
        self, unit: Unit, job: dict[str, Any], spec: Spec, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        self.unit = unit
        self.job = job
        self.spec = spec
        self.args = args
        self.kwargs = kwargs
        self._secrets: Secrets | None = None
        self.jid: str = job.get("jid") or ""
        self.started = 0.0
        self.started_at = 0.0
        self.deadline: float | None = None
        self.cancelled = False
        self.stopping = False
        self.abandoned = False
        self.ended = False  # its outcome is on its way to the server
        self.released = False
        self.struck: type[BaseException] | None = None
        self.late: Callable[[], None] | None = None  # raises what could not be raised yet, where that is safe
        self.task: Any = None
        self.pool: Any = None
        self.timeout = spec.timeout
        self.expires: float | None = None
        self.batch_id = ""
        self.tracked = self.keeps = False  # its life is written down; what it returns is
        if spec.expires is not None or "hm" in job:
            self._apply_limits(job)

    def __repr__(self) -> str:
        return f"<run of {self.spec.name} {self.jid}>"

    def _apply_limits(self, job: dict[str, Any]) -> None:
        """Time-out and expiry: what the push said goes before what the definition says."""
        said = job.get("hm")
        limits = said if isinstance(said, dict) else {}
        timeout = numbers.seconds(limits.get("timeout"))
        if timeout is not None and timeout > 0:
            self.timeout = timeout
        expires = numbers.seconds(limits.get("expires", self.spec.expires))
        due = times.read(job.get("enqueued_at")) or times.read(job.get("created_at"))
        if expires is not None and due is not None:
            self.expires = due + expires
        if "batch" in limits or "track" in limits or "result_ttl" in limits:
            self._read_tracking(limits)

    def _read_tracking(self, hm: dict[str, Any]) -> None:
        self.batch_id = batch_of(self.job)
        self.tracked = bool(self.batch_id) or hm.get("track") is True
        self.keeps = self.tracked or "result_ttl" in hm
        self.batch_expires = numbers.seconds(hm.get("batch_expires"))
        if self.batch_expires is not None:
            self.expires = min(self.batch_expires, numbers.LONGEST if self.expires is None else self.expires)

    @property
    def queue(self) -> str:
        """The queue it was fetched from."""
        return self.unit.flight.queue

    @property
    def attempt(self) -> int:
        """1 in the first run, 2 in the first retry."""
        return attempt_of(self.job)

    @property
    def token(self) -> int | None:
        """Of an ordered claim: rises with each claim of the queue."""
        return None if self.unit.claim is None else self.unit.claim.token

    @property
    def payload(self) -> dict[str, Any]:
        """The job as stored, decoded: a copy of its own."""
        return dict(self.job)

    @property
    def name(self) -> str:
        """The job's name on the wire."""
        return self.spec.name

    @property
    def elapsed(self) -> float:
        """Seconds since it started."""
        return time.monotonic() - self.started if self.started else 0.0

    @property
    def batch(self) -> Any:
        """The batch that it is a member of, to add to; None outside of one."""
        return self.spec.open_batch(self.batch_id, self.jid, self.batch_expires) if self.batch_id else None

    @property
    def secrets(self) -> Secrets:
        """What must not be shown of its secret arguments: of those that its job calls so, or its payload."""
        if self._secrets is None:
            signature = self.spec.signature
            if not signature.secret and not places_of(self.job):
                self._secrets = NO_SECRETS
                return NO_SECRETS
            calls = [(self.args, self.kwargs)]
            with contextlib.suppress(HenchmanError):  # read anew: the job may have emptied the values that it was given
                job = payload.decode(self.unit.payload)
                args, kwargs = job.get("args") or [], job.get("kwargs") or {}
                calls += [(args, kwargs), signature.decode(args, kwargs)]
            self._secrets = secrets_of(signature, self.job, *calls)
        return self._secrets

    @property
    def records(self) -> Sequence[str]:
        """The jids under which history hears what it says: its own, of an ordered claim those of its payloads."""
        if self.unit.claim is not None:
            jids: list[str] = self.unit.claim.records
            return jids
        return (self.jid,) if self.tracked else ()

    def log(self, message: str) -> None:
        """Write ``message`` to the log with the job's id and class; of a tracked job also into history."""
        message = self.secrets.hide(str(message)) if self.secrets else message
        self.spec.events.emit("job_log", run=self, message=message)
        if self.spec.notes is not None:
            self.spec.notes.log(self, message)

    def progress(self, done: float, total: float | None = None) -> None:
        """Of a tracked job: how far it is, for history and those who watch."""
        for value in (done, total):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ArgumentError(f"progress({done!r}, {total!r}): give numbers")
        if self.spec.notes is not None:
            self.spec.notes.progress(self, done, total)


def secrets_of(signature: Signature, job: Mapping[str, Any], *calls: tuple[Sequence[Any], dict[str, Any]]) -> Secrets:
    """What must not be shown of ``calls`` of ``job``, by what the signature and the payload say."""
    places = places_of(job)
    found = signature.secrets(*calls)
    return found | Secrets.of([one for call in calls for one in marked(places, *call)]) if places else found


class Seat:
    """Where a thread runs its jobs. ``lock`` guards the moment at which a run is left.

    Whoever wants to raise something in the thread does it under ``lock`` and only while ``run`` is the run it means.
    """

    __slots__ = ("lock", "name", "place", "run", "thread_id", "wake")

    def __init__(self, name: str, place: int) -> None:
        self.name = name
        self.place = place
        self.lock = threading.Lock()
        self.wake = threading.Lock()  # held while there is nothing to run: releasing it wakes the thread
        self.wake.acquire()
        self.run: Run | None = None
        self.thread_id = 0
