"""The sampler's word on a run's trace, before anything is made for it: of a trace that nobody records, nothing is.

OpenTelemetry's SDK asks its sampler while it makes a span, with all its attributes. The samplers that the SDK brings
decide the beginning of a trace by its id alone, so here the id is drawn first. Any other sampler is left to the SDK.
"""

from __future__ import annotations

import copy
import threading
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

try:
    from opentelemetry.sdk.trace import Tracer
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, TraceIdRatioBased
except ImportError:  # a program with the interface alone records nothing
    Tracer = None  # type: ignore[assignment, misc]

__all__ = ["Traces", "Unrecorded"]

_LOW = (1 << 64) - 1  # the bits of an id by which the samplers decide
_ALL = 1 << 64


class Unrecorded(NonRecordingSpan):
    """A span that nobody records. It has an id of its own from the moment when somebody asks for it."""

    def __init__(self, trace_id: int, ids: Any) -> None:
        self._trace_id = trace_id
        self._ids = ids
        self._made: SpanContext | None = None

    def get_span_context(self) -> SpanContext:
        """What goes on to others: the trace is not sampled."""
        if self._made is None:
            flags = TraceFlags(TraceFlags.DEFAULT)
            self._made = SpanContext(self._trace_id, self._ids.generate_span_id(), False, flags)
        return self._made

    def __repr__(self) -> str:
        return f"Unrecorded({self.get_span_context()!r})"


class Traces:
    """Traces that begin here: ``unrecorded()`` before each, then ``tracer`` for one that is recorded."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._bound: int | None = None
        self._drawn = threading.local()
        self._ids: Any = None
        self.tracer: Any = None  # for any span
        self.begins: Any = None  # for the span after ``unrecorded`` answered None
        self._ask()

    def unrecorded(self) -> Unrecorded | None:
        """The span of a trace that is not sampled; None: let ``begins`` make one."""
        bound = self._bound
        if bound is None:
            if self._ids is None:
                self._ask()  # the program may have set its provider by now
            return None
        drawn: int = self._ids.generate_trace_id()
        if drawn & _LOW >= bound:
            return Unrecorded(drawn, self._ids)
        self._drawn.id = drawn
        return None

    def generate_trace_id(self) -> int:
        """The id that was drawn: the interface of a generator of ids, to ``begins``."""
        drawn: int = self._drawn.id
        return drawn

    def generate_span_id(self) -> int:
        """As the provider does it."""
        made: int = self._ids.generate_span_id()
        return made

    def is_trace_id_random(self) -> bool:
        """As the provider says."""
        return bool(self._ids.is_trace_id_random())

    def _ask(self) -> None:
        self.tracer = self.begins = trace.get_tracer("henchman", tracer_provider=self._provider)
        if Tracer is None or type(self.tracer) is not Tracer:
            return  # none yet, or of another make
        self._ids = self.tracer.id_generator
        bound = _bound(self.tracer.sampler)
        if bound is None or bound == _ALL:
            return
        self.begins = copy.copy(self.tracer)
        self.begins.sampler, self.begins.id_generator = ALWAYS_ON, self
        self._bound = bound


def _bound(sampler: Any) -> int | None:
    """Below which an id is sampled where a trace begins; None: this sampler decides in a way of its own."""
    if sampler is ALWAYS_OFF:
        return 0
    if sampler is ALWAYS_ON:
        return _ALL
    if type(sampler) is TraceIdRatioBased:
        return sampler.bound
    if type(sampler) is ParentBased:
        return _bound(getattr(sampler, "_root", None))
    return None
