"""A failure becomes an outcome: retried, dead, or gone. The arithmetic is Sidekiq's (wire format, section 6).

Retries start from the bytes that were fetched: what middleware did to the job object is not persisted.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextvars import ContextVar
from traceback import walk_tb
from typing import Any

import msgspec

from henchman.client.options import JobOptions
from henchman.client.runtime import Runtime
from henchman.errors import (
    Discard,
    Failure,
    JobCancelled,
    JobDeadline,
    JobInterrupted,
    JobShutdown,
    JobTimeout,
    Kill,
    PayloadError,
    PoisonPill,
    ServerAway,
    Snooze,
)
from henchman.isolation.processes import Returned
from henchman.kernel.middleware import takes
from henchman.kernel.text import described
from henchman.kernel.threads import Ticker
from henchman.store.call import Call, command
from henchman.wire import payload, times
from henchman.wire.arguments import to_json
from henchman.wire.deadlines import has_begun, is_over, noted_as_begun
from henchman.wire.payload import sanitise
from henchman.wire.secret import NO_SECRETS, MaskedJob, Secrets, without_secrets
from henchman.work.failures import FULL, MESSAGE, Failures, Noted, caused_by
from henchman.work.outcome import DONE, Outcome, called_off, cause_of
from henchman.work.unit import Unit
from henchman.worker.run import Run

__all__ = ["DeathNotices", "RetryPolicy", "retry_delay"]

_DEFAULTS = JobOptions()
_MESSAGE_MOST = 10_000
_SHORT = 200  # characters of a message beside the last one
_ATTEMPTS = 10  # failed attempts that a payload tells of: the first and the last ones
_CAUSE_LINES = 20  # of a backtrace of what caused an error, where that of the error is kept
_MOST_COUNTED = 300  # failures: a count may come from anybody, and the next try would be 257 years away
_hidden: ContextVar[Secrets] = ContextVar("henchman_hidden", default=NO_SECRETS)  # of the failure judged here


def retry_delay(count: int) -> float:
    """Seconds until retry number ``count + 1``: ``count**4 + 15`` plus jitter in [0, 10*(count+1)) (Sidekiq 8).

    The delay grows no more after 300 failures.
    """
    count = min(count, _MOST_COUNTED)
    return count**4 + 15 + random.randrange(10 * (count + 1))  # noqa: S311 - spreads load, hides nothing


class RetryPolicy:
    """Decides what becomes of a run that did not simply return. Thread-safe: it keeps nothing but ``failures``."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.failures = Failures()

    def ended(self, run: Run, result: Any, error: BaseException | None) -> Outcome:
        """What became of ``run``, which returned ``result`` or raised ``error``: every ending of a run, as a table."""
        unit = run.unit
        if unit.source is not None:
            return self.ended_of_source(run, result, error)
        match error:
            case None:
                return _returned(run, result)
            case Failure():
                return Outcome("failed", reason=_message(error, run.secrets), error=error)
            case Snooze() if run.until is not None and self._runtime.clock.now() + error.delay >= run.until:
                late = JobDeadline("it put itself off until after its deadline")
                return self.failed(unit, unit.job, late, run.compiled.definition.options, run.secrets)
            case Snooze():
                stored = noted_as_begun(payload.with_delay(unit.newest, error.delay or None))
                return Outcome("snoozed", stored, error.delay, _message(error, run.secrets))
            case JobInterrupted():
                return Outcome(
                    "interrupted", noted_as_begun(self._queued_now(unit.newest)), reason=_message(error, run.secrets)
                )
            case Discard():
                return Outcome("discarded", reason=_message(error, run.secrets))
            case JobShutdown():
                return Outcome("released", reason="the worker stopped")
            case JobCancelled():  # without a mark by its own wish
                mark = called_off(run.jid) if run.cancelled else b""
                return Outcome("cancelled", mark, reason="cancelled while it ran")
            case _:  # Kill: dead; a time-out or any other error: retried, dead or dropped
                unit.elapsed = run.elapsed if run.started else None
                return self.failed(unit, unit.job, error, run.compiled.definition.options, run.secrets)

    def ended_of_source(self, run: Run, result: Any, error: BaseException | None) -> Outcome:
        """What became of a run whose source judges it."""
        judged: Outcome = run.unit.source.ended(run.unit, run.unit.job, result, error, self)
        if judged.error is not None:
            run.unit.cause = judged.cause
        return judged

    def failed(
        self,
        unit: Unit,
        job: Mapping[str, Any],
        error: BaseException,
        options: JobOptions | None,
        secrets: Secrets = NO_SECRETS,
    ) -> Outcome:
        """The outcome of a job that raised ``error``; ``options`` None when nothing is known of its class.

        ``secrets``: what must not be shown of what the error says, nor of what a handler that it breaks says.
        """
        token = _hidden.set(secrets)
        try:
            return self._failed(unit, error, options or _DEFAULTS, secrets)
        finally:
            _hidden.reset(token)

    def _failed(self, unit: Unit, error: BaseException, known: JobOptions, secrets: Secrets) -> Outcome:
        job = payload.decode(unit.newest)
        reason = _message(error, secrets)
        group = self.report(
            error, {"context": "job raised", "job": job, "queue": unit.flight.queue, "message": reason}, secrets
        )
        job = payload.decode(unit.newest)  # anew, as below: what handlers do to theirs is not stored
        retry = job.get("retry")
        if retry is None:
            retry = known.retry
        if retry is False and not isinstance(error, Kill):
            unit.cause = cause_of("gone", error)
            self.died(job, error)
            return Outcome("gone", reason=reason, error=error)
        job["error_group"] = group
        count = self._note(job, unit, error, reason, known, secrets)
        stored = payload.encode(job)
        if isinstance(error, Kill) or self._exhausted(job, error, count, retry, known):
            return self._give_up(job, stored, error, reason, known)
        delay = self._delay(job, error, count, known)
        if isinstance(delay, Outcome):
            return delay if delay.ending != "dead" else self._give_up(job, stored, error, reason, known)
        if "hm" in job and is_over(job, self._runtime.clock.now() + delay):
            job["error_cause"] = unit.cause = "deadline"
            given_up = self._give_up(job, payload.encode(job), error, reason, known)
            return given_up._replace(because="deadline")
        return Outcome("retry", stored, delay, reason, error)

    def overdue(self, run: Run) -> Outcome:
        """The outcome of a run whose job was over before it could start: it expired, or, when an earlier one had ended,
        it is dead."""
        text = "its deadline passed before it could start"
        if not has_begun(run.unit.job):
            return Outcome("expired", reason=text, because="deadline")
        error = JobDeadline(f"its deadline passed before its attempt {run.attempt} could start")
        return self.failed(run.unit, run.unit.job, error, run.compiled.definition.options, run.secrets)

    def defect(self, unit: Unit, error: BaseException, what: str, secrets: Secrets = NO_SECRETS) -> Outcome:
        """The outcome of a unit that could not be read, judged or settled: dead, with the defect's text. Never raises.

        The ids of an ordered claim are tried again in a minute instead, with that text.
        """
        reason = secrets.hide(f"{what}: {described(error)}").encode("utf-8", "replace").decode()[:_MESSAGE_MOST]
        if unit.source is not None:
            return Outcome("dead", reason.encode(), reason=reason, error=error)
        try:
            job = payload.decode(unit.newest)
            job["error_group"] = self._grouped(error, job, unit.flight.queue, reason)
            self._note(job, unit, error, reason, _DEFAULTS, secrets)
            stored = payload.encode(job)
        except BaseException:
            return Outcome(
                "dead", payload.invalid(unit.payload, reason, unit.flight.queue, self._runtime.clock.now()), 0.0, reason
            )
        token = _hidden.set(secrets)
        try:
            self.died(job, error)
        finally:
            _hidden.reset(token)
        return Outcome("dead", stored, reason=reason, error=error)

    def report(self, error: BaseException, facts: dict[str, Any], secrets: Secrets = NO_SECRETS) -> str:
        """Tell every error handler, without ``secrets``; one that throws is named and stops nobody. The group that a
        failure of a job was counted in."""
        group = self._grouped(error, facts["job"], facts["queue"], facts["message"]) if "message" in facts else ""
        self._runtime.events.emit("error", error=error, facts=facts, secrets=secrets)
        if self._runtime.error_handlers:
            error = without_secrets(error, secrets)
            if "job" in facts:
                facts = {**facts, "job": MaskedJob(facts["job"], self._runtime.registry.mask)}
        for handler in self._runtime.error_handlers:
            self.call(handler, error, facts)
        return group

    def _grouped(self, error: BaseException, job: Mapping[str, Any], queue: str, message: str) -> str:
        """Count a failure in its group; which."""
        failures, message = self.failures, message[:MESSAGE]
        at = tuple((frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__))[-50:]
        group = failures.known.get((type(error), message, at)) or failures.learn(error, message, at)
        name, jid = str(job.get("wrapped") or job.get("class")), str(job.get("jid"))
        facts = self._runtime.clock.now(), name[:200], queue, jid[:200], message, job.get("retry_count")
        failures.noted.append(Noted(group, *facts))
        if len(failures.noted) >= FULL:
            failures.sum_up()
        return group.id

    def _queued_now(self, stored: bytes) -> bytes:
        """A payload as it stands in a queue to which it was pushed just now."""
        job = payload.decode(stored)
        job["enqueued_at"] = msgspec.json.decode(self._runtime.stamp(self._runtime.clock.now()))
        return payload.encode(job)

    def _note(
        self,
        job: dict[str, Any],
        unit: Unit,
        error: BaseException,
        reason: str,
        options: JobOptions,
        secrets: Secrets,
    ) -> int:
        """Write the failure into ``job``; returns the new retry_count: 0 at the first failure."""
        now = msgspec.json.decode(self._runtime.stamp(self._runtime.clock.now()))
        sanitise(job)
        for field in ("created_at", "enqueued_at", "failed_at"):
            if isinstance(job.get(field), float):
                job[field] = times.rounded(job[field])  # who wrote it may have written microseconds
        retry_queue = job.get("retry_queue")
        job["queue"] = retry_queue if isinstance(retry_queue, str) and retry_queue else unit.flight.queue
        job["error_message"] = reason
        job["error_class"] = type(error).__name__
        cause = unit.cause = cause_of("retry", error)
        if cause != "error":
            job["error_cause"] = cause
        else:
            job.pop("error_cause", None)
        count = payload.count(job.get("retry_count"))
        if count is not None:
            job["retried_at"] = now
            job["retry_count"] = count = count + 1
            job.setdefault("failed_at", now)
        else:
            job["failed_at"] = now
            job["retry_count"] = count = 0
        lines = job.get("backtrace", options.backtrace)
        self._tell(job, unit, error, now, False if lines is None else lines, secrets)
        return count

    def _tell(
        self, job: dict[str, Any], unit: Unit, error: BaseException, now: Any, lines: Any, secrets: Secrets
    ) -> None:
        """Write where ``error`` was raised, as many ``lines`` of it as are kept, what caused it, and this attempt."""
        if lines is not False:
            limit = None if lines is True or not isinstance(lines, int) else lines
            job["error_backtrace"] = payload.compress_backtrace(payload.backtrace_of(error, limit))
        job["error_attempts"] = _with_attempt(job, unit, now)
        job.pop("error_causes", None)
        if error.__cause__ is not None or error.__context__ is not None:
            most = 0 if lines is False else _CAUSE_LINES
            told = ((type(one).__name__, one) for one in caused_by(error))
            causes = [[name, _message(one, secrets)[:_SHORT], payload.backtrace_of(one, most)] for name, one in told]
            job.update({"error_causes": causes} if causes else {})

    def _exhausted(
        self, job: dict[str, Any], error: BaseException, count: int, retry: Any, options: JobOptions
    ) -> bool:
        if isinstance(error, JobDeadline):
            return True
        if options.no_retry_on and isinstance(error, options.no_retry_on):
            return True
        if options.retry_on and not isinstance(error, options.retry_on):
            return True
        retry_for = payload.seconds(job.get("retry_for"))
        if retry_for is not None:
            failed_at, clock = times.read(job.get("failed_at")), self._runtime.clock
            return failed_at is not None and failed_at + max(retry_for, 0.0) + clock.leapt(failed_at) < clock.now()
        most = retry if isinstance(retry, int) and not isinstance(retry, bool) else self._runtime.config.max_retries
        return count >= most

    def _delay(self, job: dict[str, Any], error: BaseException, count: int, options: JobOptions) -> float | Outcome:
        """Seconds until the next attempt; or an outcome when ``retry_in`` answered Discard or Kill."""
        asked: Any = options.retry_in
        if callable(asked):
            asked = self.call(asked, *[count, error, job][: takes(asked, 3)])
        if asked is Discard or isinstance(asked, Discard):
            return Outcome("discarded", reason="retry_in answered Discard", error=error)
        if asked is Kill or isinstance(asked, Kill):
            return Outcome("dead")
        seconds = times.answered_seconds(asked)
        return retry_delay(count) if seconds is None else seconds

    def _give_up(
        self, job: dict[str, Any], stored: bytes, error: BaseException, reason: str, options: JobOptions
    ) -> Outcome:
        answer, stays = None, job.get("dead") is not False
        if options.retries_exhausted is not None:
            answer = self.call(options.retries_exhausted, job, error)
        self.died(job, error)
        if answer is Discard or not stays:
            return Outcome("gone", reason=reason, error=error)
        return Outcome("dead", stored, reason=reason, error=error)

    def died(self, job: dict[str, Any], error: BaseException) -> None:
        """Tell every death handler that ``job`` has used up its retries, without its secrets."""
        if self._runtime.death_handlers:
            error, job = without_secrets(error, _hidden.get()), MaskedJob(job, self._runtime.registry.mask)
        for handler in self._runtime.death_handlers:
            self.call(handler, job, error)

    def call(self, handler: Any, *args: Any) -> Any:
        """The answer of a user's hook, awaited if need be; None when it fails, which is announced with its name."""
        return self._runtime.hooks.call(handler, *args, secrets=_hidden.get())

    def hooked(self, run: Run) -> bool:
        """Whether the judgement of ``run`` may call hooks, which may wait; a source has hooks of its own."""
        runtime, options = self._runtime, run.compiled.definition.options
        hooks = runtime.error_handlers, runtime.death_handlers, options.retries_exhausted
        return run.unit.source is not None or any(hooks) or callable(options.retry_in)


def _with_attempt(job: Mapping[str, Any], unit: Unit, now: Any) -> list[Any]:
    """The failed attempts that the payload tells of, with this one: the first and the last nine. Each is its number,
    when it failed, how many seconds it took (None: it did not start), in which process, and class, group and beginning
    of the message of its error; last why it failed, where that is not an error."""
    before = job.get("error_attempts")
    past = before if isinstance(before, list) else []
    last = past[-1] if past else None
    number = last[0] + 1 if isinstance(last, list) and last and type(last[0]) is int else job["retry_count"] + 1
    took = None if unit.elapsed is None else round(unit.elapsed, 3)
    error = job["error_class"], job.get("error_group", ""), job["error_message"][:_SHORT]
    why = [job["error_cause"]] if "error_cause" in job else []
    return [*past[:1], *past[1:][2 - _ATTEMPTS :], [number, now, took, unit.flight.identity, *error, *why]]


class DeathNotices(Ticker):
    """Tells the death handlers of poison pills. The process of such a job is dead, and its supervisor, which buried it,
    loads no application: one process that has handlers and knows the job takes the notice from the server, once."""

    name = "death notices"

    def __init__(self, runtime: Runtime, policy: RetryPolicy) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self._policy = policy
        self._others = 0  # notices that wait for other applications

    def start(self) -> None:
        """Begin, where there is anybody to tell."""
        if self._runtime.death_handlers:
            super().start()

    def tick(self) -> float:
        """Tell of what is ours; the seconds until the next look."""
        run, keys = self._runtime.connections.run, self._runtime.keys
        try:
            if run(command("LLEN", keys.notices)) != self._others:
                waiting: list[bytes] = run(command("LRANGE", keys.notices, 0, -1))
                self._others = sum(not self._tell(notice) for notice in waiting)
        except ServerAway:
            pass  # the heart says so, once
        return self._runtime.config.heartbeat

    def _tell(self, notice: bytes) -> bool:
        """False: it is another application's."""
        try:
            job = payload.decode(notice)
        except PayloadError:
            job = {}
        if self._runtime.registry.find(str(job.get("class"))) is None:
            return False
        taken: Call[int] = command("LREM", self._runtime.keys.notices, 1, notice, again=False)
        if self._runtime.connections.run(taken):
            self._policy.died(job, PoisonPill(str(job.get("error_message"))))
        return True


def _returned(run: Run, result: Any) -> Outcome:
    """The outcome of a run that returned ``result``; a result that is kept is plain JSON, as its annotation says."""
    if result is None:
        return DONE
    if not run.keeps:
        return Outcome("done", result=result)
    if type(result) is Returned:  # its process made it plain; its own __class__ is not asked
        return Outcome("done", reason=run.secrets.hide(result.problem), result=result.value)
    try:
        return Outcome("done", result=to_json(run.compiled.definition.function, result))
    except ValueError as error:
        return Outcome("done", reason=run.secrets.hide(f"its result cannot be kept: {error}"))


def _message(error: BaseException, secrets: Secrets) -> str:
    try:
        text = str.__str__(str(error))
    except BaseException:  # a broken __str__ must not hide the failure
        text = f"({type(error).__name__} cannot be shown: its __str__ raises)"
    if isinstance(error, JobTimeout) and not text:
        text = "the job ran longer than its timeout"
    text = text if secrets is NO_SECRETS else secrets.hide(text)
    return text[:_MESSAGE_MOST].encode("utf-8", "replace").decode()
