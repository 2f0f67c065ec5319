"""Trace jobs from their submission to their runs by OpenTelemetry, if it is installed (`raftsched[tracing]`).

The trace travels as `traceparent` (W3C Trace Context) with the job. Programs set up OpenTelemetry themselves; without it,
or without a set-up, nothing is recorded here, and the `traceparent` of a job is passed on all the same. Nodes and
executors are set up by their environment: see `raftsched.trace_export`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final, Literal

TRACEPARENT: Final = "traceparent"
Kind = Literal["PRODUCER", "CONSUMER", "SERVER", "INTERNAL"]
_trace: Any = None
_propagator: Any = None
with suppress(ImportError):
    _trace = import_module("opentelemetry.trace")
    _propagator = import_module("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()


def is_set_up() -> bool:
    """Return whether this process has a set-up of OpenTelemetry."""
    return _trace is not None and not isinstance(_trace.get_tracer_provider(), _trace.ProxyTracerProvider)


@contextmanager
def span(name: str, kind: Kind, *, parent: str | None = None, attributes: Mapping[str, Any]) -> Iterator[None]:
    """Record a span meanwhile, below `parent`, or below the current span if that is None.

    Of an error it has the type. A message may quote a payload or a reply, which whoever reads traces may not see.
    """
    if _trace is None:
        yield
        return
    tracer = _trace.get_tracer("raftsched")
    with tracer.start_as_current_span(
        name,
        context=_context(parent),
        kind=_trace.SpanKind[kind],
        attributes={**attributes, **_SYSTEM},
        record_exception=False,
        set_status_on_exception=False,
    ) as current:
        try:
            yield
        except Exception as error:
            current.set_status(_trace.StatusCode.ERROR, type(error).__name__)
            raise


def record(
    name: str, kind: Kind, *, parent: str, began_ns: int, ended_ns: int, attributes: Mapping[str, Any], error: str = ""
) -> None:
    """Record a span that is over, below `parent`; with the description `error` if it failed. Times are Unix times."""
    if _trace is None:
        return
    recorded = _trace.get_tracer("raftsched").start_span(
        name,
        context=_context(parent),
        kind=_trace.SpanKind[kind],
        attributes={**attributes, **_SYSTEM},
        start_time=began_ns,
    )
    if error:
        recorded.set_status(_trace.StatusCode.ERROR, error)
    recorded.end(end_time=ended_ns)


def current_traceparent() -> str | None:
    """Return the current span, as it is passed on; None if there is none."""
    return _current().get(TRACEPARENT)


def passed_on(given: str | None) -> Mapping[str, str]:
    """Return the fields of W3C Trace Context that pass on the current span, or `given` if there is none."""
    return _current() or ({TRACEPARENT: given} if given else {})


def _current() -> dict[str, str]:
    carrier: dict[str, str] = {}
    if _trace is not None:
        _propagator.inject(carrier)
    return carrier


def _context(parent: str | None) -> Any:
    return _propagator.extract({TRACEPARENT: parent}) if parent else None


_SYSTEM: Final = {"messaging.system": "raftsched"}
