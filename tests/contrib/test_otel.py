"""OpenTelemetry: what spans and metrics say, how runs are tied to pushes, and that a real receiver gets them."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanContext, SpanKind, StatusCode
from redis import Redis

from henchman import App, ConfigError, Failure, ServerAway, Snooze, current_job
from henchman.contrib.otel import instrument
from support.processes import PATHS, clean_environ
from support.server import running_server
from support.worker import jobs_in, settled, until, working


class Seen:
    """The spans and metrics of one app."""

    def __init__(self, **options: Any) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.traces = TracerProvider(shutdown_on_exit=False, **options)
        self.traces.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def instrument(self, app: App, **options: Any) -> None:
        instrument(app, tracer_provider=self.traces, meter_provider=self.meters, **options)

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [one for one in self._spans.get_finished_spans() if one.kind is kind]

    @property
    def sent(self) -> list[ReadableSpan]:
        return self.spans(SpanKind.PRODUCER)

    @property
    def ran(self) -> list[ReadableSpan]:
        return self.spans(SpanKind.CONSUMER)

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        found = [] if data is None else [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        return [point for one in found if one.name == name for point in one.data.data_points]


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, concurrency=4)
    yield made
    made.close()


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_a_push_and_its_run_are_two_traces_tied_by_a_link(app: App, seen: Seen, redis: Redis) -> None:
    seen.instrument(app)

    @app.job(name="plain", queue="mail")
    def plain(number: int) -> None: ...

    jid = plain.enqueue(1).jid
    (stored,) = jobs_in(redis, "queue:mail")
    (sent,) = seen.sent
    assert stored["traceparent"].startswith(f"00-{sent.context.trace_id:032x}-{sent.context.span_id:016x}-0")
    assert "hm" not in stored  # a field of its own, as Ruby's instrumentation of Sidekiq writes it
    with working_on(app, "mail"):
        settled(redis, 1)
        until(lambda: seen.ran, "its run")
    (ran,) = seen.ran
    common = {
        "messaging.system": "henchman",
        "messaging.destination.name": "mail",
        "messaging.message.id": jid,
        "henchman.job.name": "plain",
    }
    assert (sent.name, ran.name) == ("send mail", "process mail")
    assert dict(sent.attributes or {}) == common | {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert dict(ran.attributes or {}) == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "henchman.attempt": 1,
    }
    assert ran.parent is None
    assert [one.context.span_id for one in ran.links] == [sent.context.span_id]
    assert ran.context.trace_id != sent.context.trace_id
    (count,) = seen.points("messaging.client.sent.messages")
    assert (count.value, count.attributes["messaging.destination.name"]) == (1, "mail")
    (took,) = seen.points("messaging.process.duration")
    assert (took.count, took.attributes["henchman.job.name"]) == (1, "plain")
    assert seen.points("messaging.client.consumed.messages")[0].value == 1
    assert seen.points("messaging.client.operation.duration")[0].count == 1


@contextmanager
def working_on(app: App, *queues: str) -> Iterator[None]:
    app.config = app.config.with_arguments(queues=list(queues))
    with working(app):
        yield


def test_by_choice_one_trace_and_what_a_job_pushes_belongs_to_it(app: App, seen: Seen, redis: Redis) -> None:
    seen.instrument(app, parent=True)

    @app.job(name="outer")
    async def outer() -> None:
        with seen.traces.get_tracer("test").start_as_current_span("inside"):
            await asyncio.sleep(0)
            await inner.aenqueue()
            await app.aconnections.close()

    @app.job(name="inner")
    def inner() -> None: ...

    with working(app):
        outer.enqueue()
        until(lambda: len(seen.ran) == 2, "both runs")
    sent, ran = seen.sent, seen.ran
    (inside,) = seen.spans(SpanKind.INTERNAL)
    assert len({one.context.trace_id for one in (*sent, *ran, inside)}) == 1
    by_parent = [one.parent.span_id if one.parent else None for one in (sent[0], ran[0], inside, sent[1], ran[1])]
    first, second = sorted(ran, key=lambda one: one.start_time or 0)
    assert by_parent.count(None) == 1
    assert inside.parent is not None
    assert inside.parent.span_id == first.context.span_id
    assert second.parent is not None
    assert second.parent.span_id in {one.context.span_id for one in sent}


def test_a_bulk_push_is_one_span(app: App, seen: Seen, redis: Redis) -> None:
    seen.instrument(app)

    @app.job(name="plain")
    def plain(number: int) -> None: ...

    plain.enqueue_many([(number,) for number in range(2500)])  # several slices
    asyncio.run(awaited_bulk(app, plain))
    bulk, other = seen.sent
    assert (bulk.attributes or {})["messaging.batch.message_count"] == 2500
    assert (other.attributes or {})["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in (bulk.attributes or {})
    assert len({one["traceparent"] for one in jobs_in(redis, "queue:default")}) == 2
    with working(app):
        settled(redis, 2503)
        until(lambda: len(seen.ran) == 2503, "the runs")
    linked = [run.links[0].context.span_id for run in seen.ran]
    assert linked.count(bulk.context.span_id) == 2500


async def awaited_bulk(app: App, job: Any) -> None:
    await job.aenqueue_many([(1,), (2,), (3,)])
    await app.aclose()


def test_each_attempt_is_a_run_of_the_same_push_and_its_error_shows_no_secret(
    app: App, seen: Seen, redis: Redis
) -> None:
    seen.instrument(app)

    @app.job(name="pay", secret=("card",), retry_in=0.01, retry=1)
    def pay(card: str) -> None:
        if current_job().attempt == 1:
            raise ValueError(f"refused {card}") from KeyError(card)

    with working(app):
        pay.enqueue("4111-1111")
        until(lambda: len(seen.ran) == 2, "both attempts")
    first, second = seen.ran
    assert [(one.attributes or {})["henchman.attempt"] for one in (first, second)] == [1, 2]
    assert {one.links[0].context.span_id for one in (first, second)} == {seen.sent[0].context.span_id}
    assert len(seen.sent) == 1  # the retry that became due is no new push
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "refused ***")
    assert (first.attributes or {})["error.type"] == "ValueError"
    (event,) = first.events
    assert "refused ***" in str(event.attributes)
    assert "4111-1111" not in first.to_json()
    assert second.status.status_code is StatusCode.UNSET
    failed = [one.count for one in seen.points("messaging.process.duration") if "error.type" in one.attributes]
    assert failed == [1]


def test_a_time_out_of_an_async_job_is_an_error_and_a_snooze_is_none(app: App, seen: Seen) -> None:
    seen.instrument(app)

    @app.job(name="late", timeout=0.05, retry=0)
    async def late() -> None:
        await asyncio.sleep(60)

    @app.job(name="later")
    def later() -> None:
        raise Snooze(3600)

    with working(app):
        late.enqueue()
        later.enqueue()
        until(lambda: len(seen.ran) == 2, "both runs")
    by_name = {(one.attributes or {})["henchman.job.name"]: one for one in seen.ran}
    assert (by_name["late"].attributes or {})["error.type"] == "henchman.errors.JobTimeout"
    assert by_name["late"].status.status_code is StatusCode.ERROR
    assert (by_name["later"].attributes or {})["henchman.ending"] == "Snooze"
    assert by_name["later"].status.status_code is StatusCode.UNSET


def test_each_run_has_the_cause_of_its_end(app: App, seen: Seen, redis: Redis) -> None:
    """The same that its job has: of an async and a threaded one, by time-out, deadline, error and cancellation."""
    seen.instrument(app)

    @app.job(name="slow", retry=0)
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.job(name="threaded", retry=0)
    def threaded() -> None:
        while True:
            time.sleep(0.01)

    @app.job(name="wrong", retry=0)
    def wrong() -> None:
        raise ValueError("no")

    @app.job(name="no", retry=0)
    def no() -> None:
        raise Failure("no")

    wanted = {
        slow.using(timeout=0.1).enqueue().jid: ("timeout", "henchman.errors.JobTimeout", None),
        slow.using(deadline=0.7).enqueue().jid: ("deadline", "henchman.errors.JobDeadline", None),
        threaded.using(timeout=0.1).enqueue().jid: ("timeout", "henchman.errors.JobTimeout", None),
        threaded.using(deadline=0.7).enqueue().jid: ("deadline", "henchman.errors.JobDeadline", None),
        wrong.enqueue().jid: ("error", "ValueError", None),
        no.enqueue().jid: (None, "henchman.errors.Failure", None),
    }
    called_off = slow.enqueue().jid
    wanted[called_off] = ("cancelled", None, "JobCancelled")
    with working(app):
        until(lambda: len(seen.ran) == 6, "all but one have ended")
        app.cancel(called_off)
        until(lambda: len(seen.ran) == 7, "so has that")
        until(lambda: redis.zcard("dead") == 5, "their ends are on the server")
    names = ("henchman.cause", "error.type", "henchman.ending")
    spans = {one.attributes["messaging.message.id"]: one.attributes for one in seen.ran if one.attributes}
    assert {jid: tuple(one.get(name) for name in names) for jid, one in spans.items()} == wanted
    stored = {one["jid"]: one.get("error_cause", "error") for one in jobs_in(redis, "dead")}
    assert stored == {jid: cause for jid, (cause, error, _) in wanted.items() if cause and error}
    counted = {one.attributes.get("henchman.cause"): 0 for one in seen.points("messaging.client.consumed.messages")}
    for one in seen.points("messaging.client.consumed.messages"):
        counted[one.attributes.get("henchman.cause")] += one.value
    assert counted == {"timeout": 2, "deadline": 2, "error": 1, "cancelled": 1, None: 1}


def test_a_batch_is_named_by_its_runs_and_their_links(app: App, seen: Seen) -> None:
    seen.instrument(app)

    @app.job(name="part")
    def part(number: int) -> None: ...

    with app.batch() as batch:
        part.enqueue_many([(1,), (2,)])
    with working(app):
        until(lambda: len(seen.ran) == 2, "its jobs")
    assert {(one.attributes or {})["henchman.batch.id"] for one in seen.ran} == {batch.id}
    assert {(one.links[0].attributes or {})["henchman.batch.id"] for one in seen.ran} == {batch.id}


def test_nothing_is_carried_that_nobody_records(app: App, redis: Redis) -> None:
    seen = Seen(sampler=ALWAYS_OFF)
    seen.instrument(app)

    @app.job(name="plain")
    def plain() -> None: ...

    plain.enqueue()
    (stored,) = jobs_in(redis, "queue:default")
    assert not {"traceparent", "tracestate"} & stored.keys()
    with working(app):
        settled(redis, 1)
    assert not seen.sent
    assert not seen.ran


def _contexts_of_runs(app: App, redis: Redis, count: int) -> list[SpanContext]:
    """What the current span of each of ``count`` runs says of itself, asked twice."""
    found: list[SpanContext] = []

    @app.job(name="look")
    def look() -> None:
        current = trace.get_current_span().get_span_context()
        assert current == trace.get_current_span().get_span_context()
        found.append(current)

    look.enqueue_many([()] * count)
    with working(app):
        settled(redis, count)
    return found


def test_a_run_whose_trace_is_not_sampled_says_so_to_what_it_calls(app: App, redis: Redis) -> None:
    seen = Seen(sampler=ParentBased(ALWAYS_OFF))
    seen.instrument(app)
    found = _contexts_of_runs(app, redis, 20)
    assert all(one.is_valid and not one.trace_flags.sampled for one in found)
    assert len({one.trace_id for one in found}) == 20, "each run is a trace of its own"
    assert not seen.ran
    (point,) = seen.points("messaging.process.duration")
    assert point.count == 20, "runs are measured, sampled or not"
    assert point.attributes["henchman.job.name"] == "look"


@pytest.mark.parametrize("parented", [False, True])
def test_a_share_is_sampled_by_the_id_as_every_other_service_decides(app: App, redis: Redis, parented: bool) -> None:
    ratio = TraceIdRatioBased(0.5)
    seen = Seen(sampler=ParentBased(ratio) if parented else ratio)
    seen.instrument(app)
    found = _contexts_of_runs(app, redis, 400)
    sampled = [one for one in found if one.trace_flags.sampled]
    assert 120 < len(sampled) < 280
    assert all((one.trace_id & ((1 << 64) - 1) < ratio.bound) == one.trace_flags.sampled for one in found)
    recorded = [one.get_span_context() for one in seen.ran]
    assert {one.trace_id for one in sampled} == {one.trace_id for one in recorded if one is not None}
    assert all(one.attributes and one.attributes["henchman.job.name"] == "look" for one in seen.ran)


def test_with_parent_the_sampler_hears_of_the_push(app: App, redis: Redis) -> None:
    seen = Seen(sampler=ParentBased(ALWAYS_OFF, remote_parent_sampled=ALWAYS_ON))
    seen.instrument(app, parent=True)

    @app.job(name="child")
    def child() -> None: ...

    stored = {"class": "child", "args": [], "jid": "c" * 24, "queue": "default", "created_at": 1.0}
    redis.lpush("queue:default", json.dumps(stored | {"traceparent": f"00-{7:032x}-{8:016x}-01"}))
    with working(app):
        settled(redis, 1)
    (run,) = seen.ran
    assert run.context is not None
    assert run.context.trace_id == 7


class _ByName(Sampler):
    """Decides by the attributes, which no id can tell."""

    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        *_: Any,
        **__: Any,
    ) -> SamplingResult:
        wanted = (attributes or {}).get("henchman.job.name") == "wanted"
        return SamplingResult(Decision.RECORD_AND_SAMPLE if wanted else Decision.DROP, attributes)

    def get_description(self) -> str:
        return "by name"


def test_a_sampler_of_the_programs_own_is_asked_with_all_that_is_known(app: App, redis: Redis) -> None:
    seen = Seen(sampler=_ByName())
    seen.instrument(app)

    @app.job(name="wanted")
    def wanted() -> None: ...

    @app.job(name="other")
    def other() -> None: ...

    wanted.enqueue()
    other.enqueue()
    with working(app):
        settled(redis, 2)
    (run,) = seen.ran
    assert (run.attributes or {})["henchman.job.name"] == "wanted"


def test_a_long_state_stays_behind_and_garbage_is_no_context(app: App, seen: Seen, redis: Redis) -> None:
    seen.instrument(app)

    @app.job(name="plain")
    def plain() -> None: ...

    state = trace.TraceState([(f"vendor{number}", "x" * 200) for number in range(10)])
    context = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state)
    with trace.use_span(trace.NonRecordingSpan(context)):
        plain.enqueue()
    (stored,) = jobs_in(redis, "queue:default")
    assert stored["traceparent"].startswith(f"00-{1:032x}-")
    assert "tracestate" not in stored
    for broken in ("", "00-zz", "x" * 5000, 7, None):
        foreign: dict[str, Any] = {
            "class": "plain",
            "jid": "b" * 24,
            "args": [],
            "queue": "default",
            "traceparent": broken,
        }
        redis.lpush("queue:default", json.dumps(foreign))
    with working(app):
        until(lambda: len(seen.ran) == 6, "all of them")
    assert sorted(len(one.links) for one in seen.ran) == [0, 0, 0, 0, 0, 1]


def test_a_push_that_fails_is_an_error_of_its_span(seen: Seen) -> None:
    with running_server() as server:
        app = App(redis_url=server.url, connect_timeout=0.5, io_timeout=0.5)
        seen.instrument(app)
        server.stop()

        @app.job(name="plain", track=True)
        def plain() -> None: ...

        with pytest.raises(ServerAway):
            plain.enqueue()
        app.close()
    (sent,) = seen.sent
    assert (sent.attributes or {})["error.type"] == "henchman.errors.ServerAway"
    assert sent.status.status_code is StatusCode.ERROR


def test_twice_is_refused_and_henchman_alone_imports_none_of_it(app: App, seen: Seen) -> None:
    seen.instrument(app)
    with pytest.raises(ConfigError, match="already"):
        seen.instrument(app)
    look = "import sys, henchman; app = henchman.App(); print([m for m in sys.modules if m.startswith('opentel')])"
    look += "; import henchman.cli.main; print('henchman.contrib.otel' in sys.modules)"  # redis-py imports it too
    environ = clean_environ() | {"PYTHONPATH": os.pathsep.join(PATHS)}
    run = subprocess.run(
        [sys.executable, "-c", look], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout == "[]\nFalse\n", run.stderr


# ---- a real receiver

TRACED = """
import os

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

from henchman import App
from henchman.contrib.otel import instrument

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())]))
app = App()
instrument(app)


@app.job
def threaded(number: int) -> None: ...


@app.job
def forking(number: int) -> None:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    else:  # what ends in the child would be sent at once
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))


@app.job
async def awaited(number: int) -> None: ...
"""


class Receiver(ThreadingHTTPServer):
    """An OTLP receiver: spans and metrics by HTTP, as protobuf."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Any] = []
        self.metrics: list[Any] = []


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/traces":
            spans = ExportTraceServiceRequest.FromString(body)
            self.server.spans += [s for r in spans.resource_spans for scope in r.scope_spans for s in scope.spans]
        else:
            found = ExportMetricsServiceRequest.FromString(body)
            self.server.metrics += [m for r in found.resource_metrics for s in r.scope_metrics for m in s.metrics]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


def test_a_receiver_gets_the_spans_of_a_program_and_of_two_worker_processes(tmp_path: Path, redis_url: str) -> None:
    (tmp_path / "traced.py").write_text(TRACED, encoding="utf-8")
    push = "from traced import *; [job.enqueue(n) for job in (threaded, awaited, forking) for n in range(10)]"
    work = ["-m", "henchman", "work", "traced:app", "-p", "2", "-c", "2"]
    with Receiver() as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        environ = clean_environ() | {
            "PYTHONPATH": os.pathsep.join([*PATHS, str(tmp_path)]),
            "REDIS_URL": redis_url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_port}",
        }
        subprocess.run([sys.executable, "-c", push], env=environ, cwd=tmp_path, check=True, timeout=60)
        assert [one.name for one in receiver.spans] == ["send default"] * 30
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen([sys.executable, *work], env=environ, cwd=tmp_path, stdout=log, stderr=log)
            try:
                with Redis.from_url(redis_url) as redis:
                    settled(redis, 30)
            finally:
                process.terminate()
                process.wait(60)
        receiver.shutdown()
    ids = {one.span_id for one in receiver.spans if one.kind == one.SPAN_KIND_PRODUCER}
    ran = [one for one in receiver.spans if one.kind == one.SPAN_KIND_CONSUMER]
    assert len(ran) == 30, (tmp_path / "log").read_text(encoding="utf-8")
    assert {one.links[0].span_id for one in ran} == ids
    names = {one.name for one in receiver.metrics}
    assert {"messaging.client.sent.messages", "messaging.process.duration"} <= names
