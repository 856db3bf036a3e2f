"""From fetched bytes to a run that can start, or straight to an outcome when they are no job that we know."""

from __future__ import annotations

from typing import Any

from henchman.errors import ArgumentError, HenchmanError, PayloadError
from henchman.wire.payload import decode, invalid
from henchman.wire.secret import NO_SECRETS, Secrets
from henchman.work.outcome import Outcome
from henchman.work.unit import Unit
from henchman.worker.host import Host
from henchman.worker.notes import Notes
from henchman.worker.retry import Judge
from henchman.worker.run import Run, secrets_of
from henchman.worker.spec import Spec

__all__ = ["Intake"]

_NO_KWARGS: dict[str, Any] = {}


class Intake:
    """Reads units. One a process; only the fetching side calls it."""

    def __init__(self, host: Host, judge: Judge, notes: Notes | None = None) -> None:
        self._host = host
        self._judge = judge
        self._notes = notes
        self._specs: dict[str, Spec] = {}

    def read(self, unit: Unit) -> Run | Outcome:
        """The run of ``unit``, or how it ends without running: an invalid payload, an unknown name, wrong arguments."""
        if unit.source is not None:
            return self._read_source(unit)
        try:
            job = decode(unit.payload)
        except PayloadError as error:
            self._judge.report(error, {"context": "invalid payload", "queue": unit.flight.queue})
            stored = invalid(unit.payload, str(error), unit.flight.queue, self._host.clock.now())
            return Outcome("invalid", stored, reason=str(error), error=error)
        unit.job = job
        try:
            spec = self._specs.get(job["class"]) or self._spec(job["class"])
        except HenchmanError as error:
            return self._judge.failed(unit, job, error, None)
        try:
            args, kwargs = spec.signature.decode(job.get("args") or [], job.get("kwargs"))
        except ArgumentError as error:
            return self._judge.failed(unit, job, error, spec.definition.options, self.secrets(unit))
        if spec.iterable:
            _mark(job)
        return Run(unit, job, spec, args, kwargs)

    def unreadable(self, unit: Unit, error: BaseException) -> Outcome:
        """How ``unit`` ends, for which ``read`` raised ``error``: dead, with that text."""
        return self._judge.defect(unit, error, "it could not be read", self.secrets(unit))

    def secrets(self, unit: Unit) -> Secrets:
        """What must not be shown of a unit that could not be read: its payload, or the job that it names, says so."""
        job = unit.job
        try:
            spec = self._specs.get(job.get("class", ""))
            call = job.get("args") or [], job.get("kwargs") or {}
            return NO_SECRETS if spec is None else secrets_of(spec.signature, job, call)
        except Exception:  # of arguments that are anybody's
            return Secrets(all=True)

    def _read_source(self, unit: Unit) -> Run | Outcome:
        read = unit.source.read(unit, self._judge)
        if isinstance(read, Outcome):
            return read
        spec = self._specs.get(read.name) or self._spec(read.name)
        return Run(unit, read.job, spec, read.args, _NO_KWARGS)

    def _spec(self, name: str) -> Spec:
        spec = Spec(self._host.registry.get(name), self._host.server_middleware, self._host.events)
        spec.notes = self._notes
        spec.open_batch = self._open_batch
        self._specs[name] = spec
        return spec

    def _open_batch(self, batch: str, jid: str, expires: float | None) -> Any:
        return self._host.batch_of(batch, jid, expires)


def _mark(job: dict[str, Any]) -> None:
    """What our clients write into the payload of an iterable job (``work/effects.py``), where another did not."""
    ours = job.get("hm")
    job["hm"] = {**(ours if isinstance(ours, dict) else {}), "iterable": True}
