from __future__ import annotations

import asyncio

import pytest

from raftsched.errors import InvariantBroken
from tests.api.node import Api


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
    assert (await api.ask("PUT", "/api/v1/jobs")).headers["Allow"] == "GET,POST"


async def test_fault_of_ours_is_500_without_its_inside(api: Api) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("secret")

    api.node.proposal_error = fail
    answer = await api.post("jobs", {"name": "x"})
    assert (answer.status, answer.code) == (500, "internal_error")
    assert b"secret" not in answer.body


async def test_state_that_cannot_be_right_stops_the_node(api: Api) -> None:
    job = await api.submit()
    api.node.proposal_error = lambda _: InvariantBroken("secret")
    answer = await api.ask("DELETE", f"jobs/{job['id']}")
    assert (answer.status, answer.code) == (500, "internal_error")
    [fault] = api.node.faults
    assert str(fault) == "secret"
    assert b"secret" not in answer.body


async def test_connection_is_kept_alive(api: Api) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    for _ in range(3):
        writer.write(head)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
    writer.close()
