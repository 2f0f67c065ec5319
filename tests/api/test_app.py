from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from raftsched.errors import InvariantBroken
from raftsched.storage.store.port import StorageFailed
from tests.api.node import Answer, Api


async def test_every_reply_names_revision_and_leader(api: Api, follower: Api) -> None:
    await api.submit()
    for served in (api, follower):
        for path in ("jobs", "jobs/x", "nothing", "openapi.json", "cluster", "/healthz"):
            headers = (await served.get(path)).headers
            assert headers["Raftsched-Revision"] == "1"
            assert headers["Raftsched-Leader"] == api.node.api_url
            assert "aiohttp" not in headers["Server"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/api/v1/nothing", 404, "not_found"),
        ("GET", "/api/v2/jobs", 404, "not_found"),
        ("PUT", "/api/v1/jobs", 405, "method_not_allowed"),
        ("DELETE", "/api/v1/jobs", 405, "method_not_allowed"),
    ],
)
async def test_unknown_routes_are_problems_too(api: Api, method: str, path: str, status: int, code: str) -> None:
    answer = await api.ask(method, path)
    assert (answer.status, answer.code) == (status, code)


async def test_method_that_a_route_lacks_is_answered_with_those_it_has(api: Api) -> None:
    assert (await api.ask("PUT", "/api/v1/jobs")).headers["Allow"] == "GET,HEAD,POST"
    assert (await api.ask("HEAD", "events")).headers["Allow"] == "GET"


async def test_unknown_path_is_answered_with_where_the_paths_stand(api: Api) -> None:
    advice = (await api.get("nothing")).json["advice"]
    assert "/api/v1/openapi.json" in advice
    assert (await api.get("jobs/nobody")).json["advice"] != advice


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/health", 200),
        ("/healthz", 200),
        ("/readyz", 503),
        ("/api/v1/openapi.json", 200),
        ("/api/v1/jobs", 200),
        ("/api/v1/jobs?limit=x", 400),
        ("/api/v1/jobs/nobody", 404),
        ("/api/v1/queues", 200),
        ("/api/v1/cluster", 200),
    ],
)
async def test_head_is_answered_as_get_without_the_body(api: Api, follower: Api, path: str, status: int) -> None:
    await api.submit()
    for served in (api, follower):
        served.node.ready = (False, "no leader is known")
        shown = await served.ask("GET", path)
        head = await served.ask("HEAD", path)
        assert (head.status, head.body) == (status, b"")
        assert _lasting(head) == _lasting(shown)
        assert head.headers["Content-Length"] == str(len(shown.body))


def _lasting(answer: Answer) -> dict[str, str]:
    """The headers, but for the time."""
    return {name: value for name, value in answer.headers.items() if name != "Date"}


@pytest.mark.parametrize(
    ("request_bytes", "detail"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: %b\r\n\r\n" % (b"secret" * 2_000), "8190 bytes"),
        (b"G<T /secret HTTP/1.1\r\nHost: x\r\n\r\n", "method"),
        (b"secret\r\n\r\n", ""),
    ],
)
async def test_what_is_not_http_is_a_problem_that_keeps_it_secret(api: Api, request_bytes: bytes, detail: str) -> None:
    head, _, body = (await api.raw(request_bytes)).partition(b"\r\n\r\n")
    assert b" 400 " in head.partition(b"\r\n")[0]
    assert b"\r\nContent-Type: application/problem+json\r\n" in head
    assert b"\r\nServer: raftsched" in head
    problem = msgspec.json.decode(body)
    assert (problem["code"], problem["status"]) == ("malformed", 400)
    assert detail in problem["detail"]
    assert b"secret" not in body


async def test_fault_of_ours_is_500_without_its_inside(api: Api) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("secret")

    api.node.proposal_error = fail
    answer = await api.post("jobs", {"name": "x"})
    assert (answer.status, answer.code) == (500, "internal_error")
    assert b"secret" not in answer.body


async def test_state_that_cannot_be_right_stops_the_node_and_leaves_changes_unknown(api: Api) -> None:
    """A change may be committed before the store fails: then the reply can't be made, but nothing was refused."""
    api.node.store_fails_when_applied = True
    answers = (await api.post("jobs", {"name": "x"}), await api.get("jobs", consistency="stale"))
    assert len(api.node.proposed) == 1
    assert [answer.code for answer in answers] == ["outcome_unknown", "unavailable"]
    for answer in answers:
        assert (answer.status, answer.json["retryable"], answer.headers["Retry-After"]) == (503, True, "1")
        assert b"simulated" not in answer.body
    assert [type(fault) for fault in api.node.faults] == [StorageFailed] * 2


OUTCOME = {"run_id": "00000000-0000-7000-8000-000000000001.1", "fencing_token": 1, "status": "completed"}


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("jobs", {"name": "x"}),
        ("jobs/batch", {"jobs": [{"name": "x"}] * 2}),
        ("leases/outcomes", {"worker": "w", "outcomes": [OUTCOME]}),
    ],
)
async def test_proposal_that_breaks_an_invariant_is_the_answer_to_no_item(api: Api, path: str, document: Any) -> None:
    api.node.proposal_error = lambda _: InvariantBroken("secret")
    answer = await api.post(path, document)
    assert (answer.status, answer.code) == (503, "outcome_unknown")
    assert [str(fault) for fault in api.node.faults] == ["secret"]
    assert b"secret" not in answer.body


async def test_connection_is_kept_alive_after_a_head_too(api: Api) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    for method, end in ((b"HEAD", b"\r\n\r\n"), (b"GET", b"}")) * 2:
        writer.write(method + b" /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(end)).startswith(b"HTTP/1.1 200 ")
    writer.close()
