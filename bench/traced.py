"""The benches' own app, traced as ``BENCH_TRACED`` says: what a worker of tracing.py imports."""

from __future__ import annotations

import os
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, TraceIdRatioBased

from henchman import App
from henchman.bench.jobs import app
from henchman.contrib.otel import instrument

KINDS = ("off", "none", "tenth", "all")
_SAMPLERS = {"none": ALWAYS_OFF, "tenth": TraceIdRatioBased(0.1), "all": ALWAYS_ON}


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Throw them away."""
        return SpanExportResult.SUCCESS


def trace_app(app: App, kind: str) -> None:
    """Turn tracing on, unless ``kind`` is off."""
    if kind != "off":
        provider = TracerProvider(sampler=_SAMPLERS[kind])
        provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
        instrument(app, tracer_provider=provider)


trace_app(app, os.environ.get("BENCH_TRACED", "off"))
