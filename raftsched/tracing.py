"""Trace jobs from their submission to their runs by OpenTelemetry, if it is installed (`raftsched[tracing]`).

The trace travels as `traceparent` (W3C Trace Context) with the job. Programs set up OpenTelemetry themselves; without it,
or without a set-up, nothing is recorded here, and the `traceparent` of a job is passed on all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final, Literal

TRACEPARENT: Final = "traceparent"
Kind = Literal["PRODUCER", "CONSUMER"]
_trace: Any = None
_propagator: Any = None
with suppress(ImportError):
    _trace = import_module("opentelemetry.trace")
    _propagator = import_module("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()


@contextmanager
def span(name: str, kind: Kind, *, parent: str | None = None, attributes: Mapping[str, Any]) -> Iterator[None]:
    """Record a span meanwhile, below `parent`, or below the current span if that is None."""
    if _trace is None:
        yield
        return
    context = _propagator.extract({TRACEPARENT: parent}) if parent else None
    tracer = _trace.get_tracer("raftsched")
    with tracer.start_as_current_span(
        name, context=context, kind=_trace.SpanKind[kind], attributes={**attributes, "messaging.system": "raftsched"}
    ):
        yield


def current_traceparent() -> str | None:
    """Return the current span, as it is passed on; None if there is none."""
    if _trace is None:
        return None
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get(TRACEPARENT)
