"""Each request has an id: in its reply, in the body of an error, and in the log, also when another node answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest
import structlog

from raftsched import logs
from raftsched.client.http.problems import problem_error
from raftsched.wire.common import Problem
from tests.api.node import Api

HEADER = "X-Request-Id"


async def answered(
    api: Api, method: str, path: str, chosen: str | None, **options: Any
) -> tuple[Mapping[str, str], Any]:
    """Return headers and document of one reply to a request with an id that its client chose, or without."""
    headers = {} if chosen is None else {HEADER: chosen}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, api.node.api_url + path, **options) as reply,
    ):
        return reply.headers, await reply.json(content_type=None)


@pytest.mark.parametrize("path", ["/api/v1/jobs?limit=x", "/api/v1/nowhere", "/api/v1/jobs/nobody"])
async def test_reply_and_problem_have_the_id_that_the_client_chose(api: Api, follower: Api, path: str) -> None:
    for node in (api, follower):
        headers, problem = await answered(node, "GET", path, "order-7:retry=1")
        assert (headers[HEADER], problem["request_id"]) == ("order-7:retry=1", "order-7:retry=1")


@pytest.mark.parametrize("chosen", [None, "", "two words", "x" * 129, "\u00fcmlaut", 'a"b'])
async def test_request_without_an_id_or_with_a_malformed_one_gets_a_new_one(api: Api, chosen: str | None) -> None:
    made = {(await answered(api, "GET", "/healthz", chosen))[0][HEADER] for _ in range(3)}
    assert len(made) == 3
    assert all(len(each) == 16 and each.isalnum() for each in made)


async def test_submit_that_is_relayed_with_others_keeps_its_id(follower: Api) -> None:
    headers, problem = await answered(follower, "POST", "/api/v1/jobs", "mine", json={"name": "n", "priority": 77})
    assert (headers[HEADER], problem["request_id"]) == ("mine", "mine")


async def test_requests_are_logged_by_id_and_route_without_what_the_caller_wrote(api: Api) -> None:
    before = logs.shows_debug()
    logs.set_level("debug")
    try:
        with structlog.testing.capture_logs() as lines:
            await answered(api, "POST", "/api/v1/jobs/no-such-job/pause?secret=1", "mine", json={"reason": "secret"})
    finally:
        logs.set_level("debug" if before else "info")
    (line,) = [line for line in lines if line["event"] == "request"]
    shown = (line["request_id"], line["route"], line["status"], line["is_forwarded"])
    assert shown == ("mine", "POST /api/v1/jobs/{id}/pause", 400, False)
    assert "secret" not in str(line)


def test_error_of_a_client_has_the_id() -> None:
    assert problem_error(Problem(code="unavailable", detail="x", request_id="mine"), 503).request_id == "mine"
