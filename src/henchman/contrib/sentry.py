"""Sentry: an event for each job that died, in the group that Henchman counts it in; check-ins of the jobs of crons.

Made of server middleware and handlers alone. What leaves this process has ``***`` in place of secret arguments: an
event processor on the scope of each run looks through all that is sent in it, also by the job's code and by loggers.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from traceback import walk_tb
from typing import Any, NamedTuple, cast

from henchman.contrib.runs import NO_ERRORS, end_of, job_name, job_of
from henchman.errors import ConfigError, PoisonPill
from henchman.kernel.text import words_of
from henchman.wire.secret import MASK, NO_SECRETS, Secrets
from henchman.work.current import CurrentJob
from henchman.work.failures import MESSAGE, Failures
from henchman.work.outcome import cause_of

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.scope import use_isolation_scope
    from sentry_sdk.utils import event_from_exception
except ImportError as missing:
    raise ImportError("henchman.contrib.sentry needs Sentry's SDK: pip install 'henchman[sentry]'") from missing

__all__ = ["instrument"]

_FLUSH = 5.0  # seconds for which a worker that ends waits for what is not sent yet
_DEEP = 12  # levels of an event that are looked through


class _Ran(NamedTuple):
    """The run that this thread or task had last: what it left in its scope belongs to the event of its end."""

    jid: str
    scope: Any
    attempt: int


_ran: ContextVar[_Ran | None] = ContextVar("henchman_sentry", default=None)


def instrument(app: Any, *, each_failure: bool = False, crons: bool = True) -> None:
    """Report to Sentry, which the application has begun (``sentry_sdk.init``), what dies of ``app``'s jobs. Call it
    once, where the app is made, before a worker starts.

    ``each_failure``: an event for each attempt that raised, not for deaths. ``crons``: check-ins of the jobs that crons
    push. ConfigError when ``app`` reports to Sentry already.
    """
    if _Scopes in app.server_middleware:
        raise ConfigError("instrument(app): Sentry is turned on for this app already")
    reporter, scopes = _Reporter(app), _Scopes(app, crons)
    app.server_middleware.prepend(scopes)
    app.death_handlers.append(scopes.killed)
    ignore_logger("henchman.job")  # what its lines say of failures, events say
    app.events.on("job_log", _breadcrumb)
    if each_failure:
        app.error_handlers.append(reporter.failed)
        app.death_handlers.append(reporter.killed)
    else:
        app.death_handlers.append(reporter.died)
    app.on("shutdown")(_flush)


def _flush() -> None:
    sentry_sdk.flush(_FLUSH)


def _breadcrumb(run: Any, message: str, **_: Any) -> None:
    sentry_sdk.add_breadcrumb(category="henchman.job", message=message)


class _Scopes:
    """A link of the server middleware: each run has an isolation scope of its own."""

    def __init__(self, app: Any, crons: bool) -> None:
        self._app = app
        self._crons = crons

    def __call__(self, run: CurrentJob, call_next: Callable[[], Any]) -> Any:
        """Around a run in a thread."""
        with self._scoped(run):
            return call_next()

    async def awaited(self, run: CurrentJob, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """Around an async job, in its own task."""
        with self._scoped(run):
            return await call_next()

    @contextmanager
    def _scoped(self, run: CurrentJob) -> Iterator[None]:
        job, secrets = job_of(run), getattr(run, "secrets", NO_SECRETS)
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            for name, value in _tags(job, run.queue, run.attempt).items():
                scope.set_tag(name, value)
            scope.set_transaction_name(job_name(job), source="task")
            scope.add_event_processor(lambda event, hint: _masked(event, secrets))
            _ran.set(_Ran(run.jid, scope, run.attempt))
            with self._checked_in(job, run):
                yield

    @contextmanager
    def _checked_in(self, job: Mapping[str, Any], run: CurrentJob) -> Iterator[None]:
        ours = job.get("hm")
        name = ours.get("cron") if self._crons and isinstance(ours, dict) else None
        if not isinstance(name, str):
            yield
            return
        slug, check_in, began, pid = _slug(name), _check_in_id(run.jid), time.monotonic(), os.getpid()
        capture_checkin(slug, check_in, "in_progress", monitor_config=self._monitor(name))
        status = "error"
        try:
            yield
            status = "ok"
        except BaseException as error:
            status = "ok" if isinstance(end_of(run, error), NO_ERRORS) else "error"
            raise
        finally:
            if os.getpid() == pid:  # not in a child that the job forked: the run is its parent's
                capture_checkin(slug, check_in, status, duration=time.monotonic() - began)

    def killed(self, job: Mapping[str, Any], error: BaseException) -> None:
        """A job cost process after process its life: none of them could say how the tick of its cron ended."""
        ours = job.get("hm")
        name = ours.get("cron") if self._crons and isinstance(ours, dict) else None
        if isinstance(error, PoisonPill) and isinstance(name, str):
            capture_checkin(_slug(name), _check_in_id(str(job.get("jid"))), "error")

    def _monitor(self, name: str) -> Any:
        """The schedule of a cron as Sentry describes it; None where it cannot: seconds, or unknown here."""
        cron = self._app.crons.declared.get(name)
        kind, _, rest = ("" if cron is None else cron.timing).partition(" ")
        if kind == "cron":
            zone, _, fields = rest.partition(" ")
            whole = len(fields.split()) == 5
            return {"schedule": {"type": "crontab", "value": fields}, "timezone": zone} if whole else None
        minutes, seconds = divmod(float(rest), 60) if kind == "every" else (0, 0)
        if not minutes or seconds:
            return None
        return {"schedule": {"type": "interval", "value": int(minutes), "unit": "minute"}}


class _Reporter:
    """The handlers, which get errors and payloads without secrets."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._groups = Failures()

    def died(self, job: dict[str, Any], error: BaseException) -> None:
        """A job is dead: its retries are used up, or it has none."""
        self._report(job, error, str(job.get("queue") or ""), dead=True)

    def killed(self, job: dict[str, Any], error: BaseException) -> None:
        """A job is dead whose last attempt did not raise: it took its process along."""
        if isinstance(error, PoisonPill):
            self.died(job, error)

    def failed(self, error: BaseException, facts: dict[str, Any]) -> None:
        """A run raised, and its job may be tried again."""
        if "job" in facts:
            self._report(facts["job"], error, str(facts.get("queue") or ""), dead=False)

    def _report(self, job: dict[str, Any], error: BaseException, queue: str, *, dead: bool) -> None:
        ran = _ran.get()
        own = ran is not None and ran.jid == job.get("jid")
        scope = cast(_Ran, ran).scope if own else sentry_sdk.get_isolation_scope().fork()
        attempt = cast(_Ran, ran).attempt if own else 1
        with use_isolation_scope(scope):
            options = sentry_sdk.get_client().options
            mechanism = {"type": "henchman", "handled": False}
            event, hint = event_from_exception(error, client_options=options, mechanism=mechanism)
            event["fingerprint"] = ["henchman", str(job.get("error_group") or self._group(job, error))]
            event["tags"] = _tags(job, queue, attempt) | _ending(job, error, dead)
            known = {name: job[name] for name in ("jid", "class", "args", "kwargs", "retry_count") if name in job}
            event["contexts"] = {"henchman": known | {"queue": queue, "attempt": attempt}}
            if not own or MASK in repr((job.get("args"), job.get("kwargs"))):
                _without_variables(event)
            sentry_sdk.capture_event(event, hint=hint)

    def _group(self, job: Mapping[str, Any], error: BaseException) -> str:
        """The group in which Henchman counts this failure."""
        message = str(job.get("error_message") or words_of(error))[:MESSAGE]
        at = tuple((frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__))[-50:]
        return self._groups.learn(error, message, at).id


def _tags(job: Mapping[str, Any], queue: str, attempt: int) -> dict[str, str]:
    ours = job.get("hm")
    batch = ours.get("batch") if isinstance(ours, dict) else None
    found = {"job": job_name(job), "queue": queue, "jid": str(job.get("jid") or ""), "attempt": str(attempt)}
    return found | ({"batch": batch} if isinstance(batch, str) else {})


def _ending(job: Mapping[str, Any], error: BaseException, dead: bool) -> dict[str, str]:
    """Whether a job is dead, and why: that its next attempt would come after its deadline, the error does not say."""
    over = dead and job.get("error_cause") == "deadline"
    cause = "deadline" if over else cause_of("dead", error)
    return {"henchman.dead": str(dead).lower(), "henchman.cause": cause}


def _slug(name: str) -> str:
    """The name of a cron as Sentry takes it."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:50] or "cron"


def _check_in_id(jid: str) -> str:
    """The same for each attempt of one job: a retry that ends well mends the check-in."""
    return jid.ljust(32, "0") if re.fullmatch("[0-9a-f]{1,32}", jid) else jid.encode().hex().ljust(32, "0")[:32]


def _masked(event: Any, secrets: Secrets) -> Any:
    """``event`` without secrets, and without variables of functions where there are any."""
    if not secrets:
        return event
    _without_variables(event)
    return _hidden(event, secrets, 0)


def _hidden(value: Any, secrets: Secrets, depth: int) -> Any:
    if isinstance(value, str):
        return secrets.hide(value)
    if depth >= _DEEP:
        return value if value is None or isinstance(value, bool | int | float) else MASK
    if isinstance(value, Mapping):
        return {name: _hidden(one, secrets, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(one, secrets, depth + 1) for one in value]
    return value


def _without_variables(event: Any) -> None:
    for part in ("exception", "threads"):
        found = event.get(part) or {}
        for one in found.get("values") or () if isinstance(found, Mapping) else ():
            for frame in ((one.get("stacktrace") or {}).get("frames")) or ():
                frame.pop("vars", None)
