"""The standard variables of OpenTelemetry decide whether and where spans of a node go."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from raftsched.errors import Invalid
from raftsched.trace_export import exporters_in

RECORDS = """
from raftsched import trace_export
from raftsched.tracing import span

trace_export.set_up("raftsched", "n1")
with span("a span", "SERVER", attributes={}):
    pass
trace_export.flush()
"""


def test_nothing_is_exported_unless_a_variable_asks_for_it() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    cases: list[tuple[dict[str, str], list[str]]] = [
        ({}, []),
        ({"OTEL_SERVICE_NAME": "s"}, []),
        (endpoint, ["otlp_proto_http"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}, ["otlp_proto_http"]),
        (endpoint | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp_proto_grpc"]),
        (endpoint | {"OTEL_TRACES_EXPORTER": "none"}, []),
        (endpoint | {"OTEL_SDK_DISABLED": "true"}, []),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", "otlp_proto_http"]),
    ]
    assert [(given, exporters_in(given)) for given, _ in cases] == cases
    with pytest.raises(Invalid, match=r"OTEL_EXPORTER_OTLP_PROTOCOL: 'smoke' is none of http/protobuf, grpc"):
        exporters_in(endpoint | {"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"})


class Collector(HTTPServer):
    """Takes one request of OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taker)
        self.taken: list[tuple[str, bytes]] = []


class Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        self.server.taken.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def recorded(**variables: str) -> subprocess.CompletedProcess[str]:
    """Run a process that records a span and ends."""
    return subprocess.run(
        [sys.executable, "-c", RECORDS],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_spans_reach_a_collector_before_the_process_ends() -> None:
    with Collector() as collector:
        taking = threading.Thread(target=collector.handle_request, daemon=True)
        taking.start()
        done = recorded(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{collector.server_port}")
        taking.join(30)
    assert done.returncode == 0, done.stderr
    ((path, body),) = collector.taken
    assert path == "/v1/traces"
    assert all(part in body for part in (b"a span", b"service.name", b"raftsched", b"n1"))


def test_exporter_that_is_not_installed_is_named_with_those_that_are() -> None:
    done = recorded(OTEL_TRACES_EXPORTER="zipkin")
    assert "OTEL_TRACES_EXPORTER: the exporter zipkin is not installed; installed are: console, otlp" in done.stderr
