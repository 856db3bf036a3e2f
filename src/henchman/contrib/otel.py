"""OpenTelemetry: a span for each push and each run, tied by the payload, and the metrics of messaging.

Made of client and server middleware alone. The context travels as Ruby's instrumentation of Sidekiq writes it: the
fields ``traceparent`` and ``tracestate`` of the payload. Names are those of the semantic conventions for messaging
(in development there), version 1.43.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from henchman.contrib.runs import NO_ERRORS, cause_of_end, end_of, job_name, job_of
from henchman.errors import ConfigError
from henchman.kernel.text import words_of
from henchman.wire.secret import NO_SECRETS, without_secrets
from henchman.work.current import CurrentJob

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, trace
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        StatusCode,
        TraceFlags,
        TraceState,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    from henchman.contrib.sampling import Traces
except ImportError as missing:
    raise ImportError("henchman.contrib.otel needs OpenTelemetry: pip install 'henchman[otel]'") from missing

__all__ = ["instrument"]

_SYSTEM = {"messaging.system": "henchman"}
_SEND = _SYSTEM | {"messaging.operation.name": "send", "messaging.operation.type": "send"}
_PROCESS = _SYSTEM | {"messaging.operation.name": "process", "messaging.operation.type": "process"}
_STATE_MOST = 512  # characters of a tracestate; a longer one stays behind
_FACTS = 1000  # pairs of queue and job whose attributes are kept
_FLUSH_MS = 5000  # for what a worker that ends has not exported yet
#: the buckets that the conventions advise, in seconds
_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
_propagator = TraceContextTextMapPropagator()
_root = contexts.Context()
_now, _pid = time.perf_counter, os.getpid


def instrument(app: Any, *, tracer_provider: Any = None, meter_provider: Any = None, parent: bool = False) -> None:
    """Trace and measure pushes and runs of ``app``. Call it once, where the app is made, before a worker starts.

    The providers are OpenTelemetry's global ones unless they are given. ``parent``: a run is a child of its push, in
    one trace; else it begins a trace of its own, with a link to the push. ConfigError when ``app`` is traced already.
    """
    if _TracedPushes in app.client_middleware:
        raise ConfigError("instrument(app): OpenTelemetry is turned on for this app already")
    traces = Traces(tracer_provider)
    meter = metrics.get_meter("henchman", meter_provider=meter_provider)
    app.client_middleware.prepend(_TracedPushes(traces, meter))
    app.server_middleware.prepend(_TracedRuns(traces, meter, parent))

    def flush() -> None:
        for provider in (
            tracer_provider or trace.get_tracer_provider(),
            meter_provider or metrics.get_meter_provider(),
        ):
            if hasattr(provider, "force_flush"):
                provider.force_flush(_FLUSH_MS)

    app.on("shutdown")(flush)


class _Push:
    """One push of one job or many: ``carried`` is what its payloads take with them."""

    __slots__ = ("carried", "count", "jid", "queue", "span")

    def __init__(self) -> None:
        self.span: Span | None = None
        self.carried: dict[str, str] = {}
        self.count = 0
        self.queue = self.jid = ""


_push: ContextVar[_Push | None] = ContextVar("henchman_otel_push", default=None)


class _TracedPushes:
    """A link of the client middleware: a producer span for each push, also of many jobs."""

    def __init__(self, traces: Traces, meter: Any) -> None:
        self._traces = traces
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs that were pushed.")
        self._duration = _histogram(meter, "messaging.client.operation.duration", "How long pushes took.")

    def __call__(self, job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        """Write the context into the job."""
        self._write(job)
        return call_next()

    async def awaited(self, job: dict[str, Any], call_next: Callable[[], Awaitable[Any]]) -> Any:
        """The same, awaited."""
        self._write(job)
        return await call_next()

    @contextmanager
    def pushing(self) -> Iterator[None]:
        """Around a push, from its first job to the answer of the server."""
        push, began, problem = _Push(), time.perf_counter(), None
        token = _push.set(push)
        try:
            yield
        except BaseException as error:
            problem = type(error)
            raise
        finally:
            _push.reset(token)
            if push.count:
                self._end(push, time.perf_counter() - began, problem)

    def _write(self, job: dict[str, Any]) -> None:
        push = _push.get()
        if push is None:  # of a batch's callback, a cron, or a job that becomes due: nobody's push
            if "traceparent" not in job:
                job.update(_carried(trace.get_current_span()))
            return
        if push.span is None:
            push.queue, push.jid = str(job.get("queue")), str(job.get("jid"))
            facts = _SEND | {"messaging.destination.name": push.queue, "henchman.job.name": str(job.get("class"))}
            push.span = self._traces.tracer.start_span(f"send {push.queue}", kind=SpanKind.PRODUCER, attributes=facts)
            push.carried = _carried(push.span)
        push.count += 1
        if "traceparent" not in job:
            job.update(push.carried)

    def _end(self, push: _Push, seconds: float, problem: type[BaseException] | None) -> None:
        facts = _SEND | {"messaging.destination.name": push.queue}
        span = push.span
        if problem is not None:
            facts["error.type"] = _name(problem)
        if span is not None:
            if problem is not None:  # its text may quote arguments, and nobody knows here which are secret
                span.set_attribute("error.type", _name(problem))
                span.set_status(StatusCode.ERROR, problem.__name__)
            if push.count == 1:
                span.set_attribute("messaging.message.id", push.jid)
            else:
                span.set_attribute("messaging.batch.message_count", push.count)
            span.end()
        self._sent.add(push.count, facts)
        self._duration.record(seconds, facts)


class _TracedRuns:
    """A link of the server middleware: a consumer span for each run, current while it lasts.

    Written for speed: a worker starts tens of thousands of runs a second. Of a run whose trace is not sampled only the
    metrics are told, with attributes that were made before.
    """

    def __init__(self, traces: Traces, meter: Any, parent: bool) -> None:
        self._traces = traces
        self._parent = parent
        self._facts: dict[tuple[str, str], dict[str, Any]] = {}
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Jobs that began to run, each attempt."
        )
        self._duration = _histogram(meter, "messaging.process.duration", "How long runs took.")

    def __call__(self, run: CurrentJob, call_next: Callable[[], Any]) -> Any:
        """Around a run in a thread."""
        span, pid, problem = self._start(run), _pid(), None
        token, began = contexts.attach(contexts.Context({_CURRENT: span})), _now()
        try:
            return call_next()
        except BaseException as error:
            problem = error
            raise
        finally:
            if _pid() == pid:  # not in a child that the job forked: the run is its parent's
                self._end(run, span, token, began, problem)
            problem = None  # a traceback holds this frame

    async def awaited(self, run: CurrentJob, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """Around an async job, in its own task."""
        span, pid, problem = self._start(run), _pid(), None
        token, began = contexts.attach(contexts.Context({_CURRENT: span})), _now()
        try:
            return await call_next()
        except BaseException as error:
            problem = error
            raise
        finally:
            if _pid() == pid:  # not in a child that the job forked: the run is its parent's
                self._end(run, span, token, began, problem)
            problem = None  # as above

    def _start(self, run: CurrentJob) -> Span:
        """The span of a run: one that is not recorded, or with all that is known of the run."""
        job = job_of(run)
        pushed = None
        if self._parent and "traceparent" in job:  # the trace began elsewhere: the sampler looks at that
            pushed = _pushed(job)
        if pushed is not None:
            tracer, around = self._traces.tracer, contexts.Context({_CURRENT: NonRecordingSpan(pushed)})
        elif (span := self._traces.unrecorded()) is not None:
            return span
        else:
            tracer, around = self._traces.begins, _root
            pushed = _pushed(job) if "traceparent" in job else None
        ours = job.get("hm")
        batch = ours.get("batch") if isinstance(ours, dict) else None
        of_batch = {"henchman.batch.id": batch} if isinstance(batch, str) else {}
        told = self._known(run) | {"messaging.message.id": run.jid, "henchman.attempt": run.attempt} | of_batch
        links = None if pushed is None else [Link(pushed, of_batch or None)]
        made: Span = tracer.start_span(f"process {run.queue}", around, SpanKind.CONSUMER, told, links)
        return made

    def _end(self, run: CurrentJob, span: Span, token: Any, began: float, error: BaseException | None) -> None:
        contexts.detach(token)
        facts = self._known(run)
        if error is not None:
            end = end_of(run, error)
            if cause := cause_of_end(end):
                span.set_attribute("henchman.cause", cause)
                facts = facts | {"henchman.cause": cause}
            if isinstance(end, NO_ERRORS):
                span.set_attribute("henchman.ending", type(end).__name__)
            else:
                facts = facts | {"error.type": _name(type(end))}
                _record(span, run, error, type(end))
        span.end()
        self._consumed.add(1, facts)
        self._duration.record(_now() - began, facts)

    def _known(self, run: CurrentJob) -> dict[str, Any]:
        """The attributes that runs of one job in one queue share."""
        job, queue = job_of(run), run.queue
        name = job.get("wrapped") or job.get("class") or ""
        found = self._facts.get((queue, name)) if type(name) is str else None
        if found is None:
            found = _PROCESS | {"messaging.destination.name": queue, "henchman.job.name": job_name(job)}
            if len(self._facts) < _FACTS:
                self._facts[queue, str(name)] = found
        return found


_CURRENT = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, _root)))  # under which a context has its span
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.{0,100})?")


def _pushed(job: Mapping[str, Any]) -> SpanContext | None:
    """The context that a payload carries; None when it is garbage."""
    text, state = job["traceparent"], job.get("tracestate")
    found = _PARENT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    ids, flags = (int(found[1], 16), int(found[2], 16)), TraceFlags(int(found[3], 16))
    states = TraceState.from_header([state]) if isinstance(state, str) and len(state) <= _STATE_MOST else None
    context = SpanContext(*ids, is_remote=True, trace_flags=flags, trace_state=states)
    return context if context.is_valid else None


def _histogram(meter: Any, name: str, text: str) -> Any:
    return meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=_BUCKETS)


def _carried(span: Span) -> dict[str, str]:
    """The fields that carry the context of ``span``; none when nobody records it."""
    fields: dict[str, str] = {}
    if span.is_recording():
        _propagator.inject(fields, trace.set_span_in_context(span, _root))
        if len(fields.get("tracestate", "")) > _STATE_MOST:
            del fields["tracestate"]
    return fields


def _name(kind: type[BaseException]) -> str:
    """The name of an error by the conventions: with its module, unless it is Python's own."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _record(span: Span, run: CurrentJob, error: BaseException, kind: type[BaseException]) -> None:
    """Write the error down without the job's secrets."""
    span.set_attribute("error.type", _name(kind))
    if span.is_recording():
        shown = without_secrets(error, getattr(run, "secrets", NO_SECRETS))
        span.record_exception(shown)
        span.set_status(StatusCode.ERROR, words_of(shown)[:1000])
    else:
        span.set_status(StatusCode.ERROR)
