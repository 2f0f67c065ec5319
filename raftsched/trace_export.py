"""Set up OpenTelemetry for a node or an executor by the standard variables `OTEL_…` of its environment.

Nothing is set up unless they ask for it: by `OTEL_TRACES_EXPORTER`, or by an endpoint of OTLP. The SDK reads the other
variables: endpoint, headers, sampling, sizes of batches, attributes. Spans are sent by a thread of the SDK, which drops them
if nobody takes them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

import structlog

from raftsched.errors import Invalid
from raftsched.tracing import is_set_up

EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""The name under which the exporter of each protocol is installed."""
_GROUP: Final = "opentelemetry_traces_exporter"
_FLUSH_SECONDS: Final = 0.5
_log = structlog.get_logger()


def exporters_in(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the exporters that the variables ask for; none if they ask for no tracing.

    Raises `Invalid` for a protocol that is not known.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    default = "otlp" if any(environment.get(name) for name in _ENDPOINTS) else "none"
    wanted = [name.strip() for name in (environment.get(EXPORTERS) or default).split(",")]
    return [_otlp(environment) if name == "otlp" else name for name in wanted if name not in ("", "none")]


def _otlp(environment: Mapping[str, str]) -> str:
    variable = next((name for name in _PROTOCOLS if environment.get(name)), _PROTOCOLS[-1])
    protocol = environment.get(variable) or "http/protobuf"
    if protocol not in _OTLP:
        raise Invalid(f"{variable}: {protocol!r} is none of {', '.join(_OTLP)}", field=variable)
    return _OTLP[protocol]


def set_up(service: str, instance: str = "") -> None:
    """Export the spans of this process as its environment says; its service is `service` unless that names another.

    Does nothing in a process that is set up already. Raises `Invalid` for an exporter that is not installed.
    """
    names = exporters_in(os.environ)
    if not names or is_set_up():
        return
    try:
        sdk, export = import_module("opentelemetry.sdk.trace"), import_module("opentelemetry.sdk.trace.export")
        resources = import_module("opentelemetry.sdk.resources")
    except ImportError:
        _log.warning("tracing_unavailable", advice="pip install 'raftsched[tracing]', or unset the variables OTEL_…")
        return
    makers = [_maker(name) for name in names]
    own = {"service.name": service} | ({"service.instance.id": instance} if instance else {})
    told = resources.OTELResourceDetector().detect()
    provider = sdk.TracerProvider(resource=resources.Resource.create(own).merge(told))
    for make in makers:
        provider.add_span_processor(export.BatchSpanProcessor(make()))
    import_module("opentelemetry.trace").set_tracer_provider(provider)
    _log.info("tracing_started", exporters=names)


def flush() -> None:
    """Send the spans that wait, as far as that takes no longer than half a second: the process ends."""
    if is_set_up():
        provider = import_module("opentelemetry.trace").get_tracer_provider()
        sender = threading.Thread(target=provider.force_flush, name="spans", daemon=True)
        sender.start()
        sender.join(_FLUSH_SECONDS)


def _maker(name: str) -> type:
    installed = entry_points(group=_GROUP)
    for found in installed.select(name=name):
        loaded = found.load()
        assert isinstance(loaded, type)
        return loaded
    known = ", ".join(sorted({each.name for each in installed}))
    raise Invalid(f"{EXPORTERS}: the exporter {name} is not installed; installed are: {known}", field=EXPORTERS)
