from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from raftsched.api.cluster.health import Health
from raftsched.api.workers.routes import Workers
from raftsched.cli.local.cluster import LocalCluster
from tests.api.node import Api, SimulatedNode, serving
from tests.drills.api_fuzz import __main__ as drill
from tests.drills.api_fuzz import nodes
from tests.drills.api_fuzz.callers import Caller, Cast
from tests.drills.api_fuzz.document import problem_validator
from tests.drills.api_fuzz.fuzzer import Fuzzer
from tests.drills.api_fuzz.raw import replies_in
from tests.drills.api_fuzz.verdicts import Reply, problem_faults

SOME_PATHS = ("/health", "/api/v1/workers", "/api/v1/queues")


@pytest.mark.timeout(300)
async def test_requests_of_every_kind_are_answered_as_documented(tmp_path: Path) -> None:
    """`python -m tests.drills.api_fuzz` does it often."""
    with LocalCluster(tmp_path / "nodes", settings=drill.SETTINGS, with_tokens=True) as cluster:
        report, raw, cast = await drill.run(cluster, requests_max=1_500, raw_max=150, seed=11, seconds_max=90)
    drill.examine(cluster, report, cast)
    assert (report.findings, raw.findings) == ({}, {})
    assert {200, 400, 401, 403, 404}.issubset(report.statuses)
    assert raw.statuses[400]


async def test_routes_that_fail_or_answer_otherwise_than_documented_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def health(_self: Health, _request: web.Request) -> web.Response:
        raise ZeroDivisionError

    async def list_workers(_self: Workers, _request: web.Request) -> web.Response:
        return web.json_response({"workers": [{"name": 7}], "seen": ["reserved-1", "beta-1"]})

    monkeypatch.setattr(Health, "health", health)
    monkeypatch.setattr(Workers, "list_workers", list_workers)
    cast = Cast(
        ("acme-1", "beta-1"), "reserved-1", [Caller("anybody", tenant="acme-1"), Caller("nobody", is_valid=False)]
    )
    async with serving(SimulatedNode()) as api, aiohttp.ClientSession() as session:
        fuzzer = Fuzzer([api.node.api_url], await _document(api), cast, session, seed=1)
        report = await fuzzer.run(requests_max=60, seconds_max=60)
    found = "\n".join(report.findings)
    for expected in (
        "GET /health: status 500 with the code internal_error",
        "GET /api/v1/workers: the reply is not as documented: workers.[]",
        "GET /api/v1/workers: the reply tells reserved-1",
        "GET /api/v1/workers: anybody is told of beta-1",
        "GET /api/v1/queues: nobody was let in",
    ):
        assert expected in found


async def test_replies_that_are_no_clean_problems_are_found() -> None:
    async with serving(SimulatedNode()) as api:
        schema, good = problem_validator(await _document(api)), (await api.get("jobs/1")).json
    planted: dict[str, tuple[int, dict[str, Any]]] = {
        "status 502 with the code not_found": (502, {"status": 502}),
        "status 400, and 404 in its problem": (400, {}),
        "code strange": (404, {"code": "strange"}),
        "code not_found without advice or detail": (404, {"advice": ""}),
        "status 429 without Retry-After": (429, {"status": 429}),
        "the reply is not as documented: retryable: ": (404, {"retryable": "no"}),
    }
    headers = {"Content-Type": "application/problem+json"}
    found = {
        expected: list(problem_faults(Reply(status, headers, msgspec.json.encode(good | changed)), schema))
        for expected, (status, changed) in planted.items()
    }
    assert [expected for expected, faults in found.items() if not faults or not faults[0].startswith(expected)] == []
    assert list(problem_faults(Reply(404, headers, msgspec.json.encode(good)), schema)) == []
    [plain] = replies_in(b"HTTP/1.1 500 Oops\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx")
    assert list(problem_faults(plain, schema)) == ["status 500 with the content type 'text/plain'"]


def test_nodes_that_end_or_log_a_fault_or_a_token_are_found(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, node_count=1)
    [node] = cluster.nodes
    node.log_file.write_text('{"event": "request_failed"}\n{"event": "ready"}\n{"token": "rs_1_secret"}\n')
    assert len(nodes.faults_in_logs(cluster, ["rs_1_secret"])) == 2
    assert nodes.faults_of(cluster, [1]) == ['n1 has ended: {"token": "rs_1_secret"}']


async def _document(api: Api) -> dict[str, Any]:
    document: dict[str, Any] = (await api.get("openapi.json")).json
    return document | {"paths": {path: document["paths"][path] for path in SOME_PATHS}}
