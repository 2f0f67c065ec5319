"""The span of a submission is stored with the job: from the body, or from the header of a single submit."""

from __future__ import annotations

from typing import Any

from tests.api.node import Api

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = GIVEN.replace("4bf9", "5bf9")


async def stored(api: Api, fields: dict[str, Any], **headers: str) -> Any:
    answer = await api.post("jobs", {"name": "n"} | fields, **headers)
    assert answer.status in (200, 201), answer.body
    return (await api.job(answer.json["id"]))["traceparent"]


async def test_span_is_that_of_the_body_or_of_the_header_of_whichever_node_was_asked(api: Api, follower: Api) -> None:
    for node in (api, follower):
        assert await stored(node, {}) is None
        assert await stored(node, {"traceparent": GIVEN}) == GIVEN
        assert await stored(node, {}, traceparent=GIVEN) == GIVEN
        assert await stored(node, {"traceparent": GIVEN}, traceparent=OTHER) == GIVEN
        for malformed in ("00-0", GIVEN.upper(), f"01{GIVEN[2:]}", f"{GIVEN}-x"):
            assert await stored(node, {}, traceparent=malformed) is None


async def test_malformed_span_of_a_body_is_refused_by_name(api: Api) -> None:
    answer = await api.post("jobs", {"name": "n", "traceparent": "00-0"})
    assert (answer.status, answer.json["field"]) == (400, "traceparent")
    assert "W3C Trace Context" in answer.json["detail"]


async def test_repeat_of_a_submission_in_another_span_finds_the_job_of_its_key(api: Api) -> None:
    first = await api.post("jobs", {"name": "n", "idempotency_key": "k", "traceparent": GIVEN})
    again = await api.post("jobs", {"name": "n", "idempotency_key": "k", "traceparent": OTHER})
    assert (first.status, again.status, first.json["id"]) == (201, 200, again.json["id"])


async def test_worker_gets_the_span_with_the_lease(api: Api) -> None:
    await api.post("jobs", {"name": "n", "queue": "q", "traceparent": GIVEN})
    (granted,) = await api.lease("q")
    assert granted["traceparent"] == GIVEN
