from __future__ import annotations

import asyncio

import pytest

from raftsched import errors
from raftsched.api.http.advice import ADVICE
from raftsched.api.http.problems import problem_of, refusal
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.ids import JobId
from raftsched.core.state.results import Refused
from raftsched.errors import Invalid, NotFound, RaftschedError, Rejected
from tests.api.node import Api
from tests.for_each import for_each


@for_each("code", list(RejectCode))
def test_every_refusal_has_a_status_a_code_and_an_advice(code: RejectCode) -> None:
    problem = problem_of(refusal(Refused(code, "it can't be")))
    assert problem.code == code.label
    assert 400 <= problem.status < 500
    assert problem.advice
    assert problem.detail == "it can't be"


def test_every_error_that_callers_meet_has_an_advice() -> None:
    ours = {errors.InvariantBroken, RaftschedError, Rejected, NotFound}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RaftschedError)]
    assert {kind.code for kind in kinds if kind not in ours} <= set(ADVICE)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (RejectCode.NOT_FOUND, 404),
        (RejectCode.ALREADY_FINISHED, 409),
        (RejectCode.RUNNING, 409),
        (RejectCode.COMPLETED, 409),
        (RejectCode.UNIQUE_CONFLICT, 409),
        (RejectCode.STALE_DECISION, 409),
        (RejectCode.STALE_PART, 409),
        (RejectCode.LOG_FULL, 409),
        (RejectCode.STALE_REVISION, 412),
        (RejectCode.UNKNOWN_DEPENDENCY, 422),
        (RejectCode.IDEMPOTENCY_MISMATCH, 422),
        (RejectCode.INVALID, 422),
    ],
)
def test_refusals_have_the_statuses_of_the_contract(code: RejectCode, status: int) -> None:
    assert refusal(Refused(code, "no")).http_status == status


@pytest.mark.parametrize(
    ("message", "at", "field", "detail"),
    [
        ("max_attempts: must be more", "", "max_attempts", "max_attempts: must be more"),
        ("options.workflow_id: no", "jobs[2]", "jobs[2].options.workflow_id", "jobs[2].options.workflow_id: no"),
        ("reason bytes: must be 0 to 500", "", "reason", "reason bytes: must be 0 to 500"),
        ("there is no such job", "jobs[2]", "", "there is no such job"),
    ],
)
def test_refusal_names_the_field_by_its_path(message: str, at: str, field: str, detail: str) -> None:
    error = refusal(Refused(RejectCode.INVALID, message), at=at)
    assert isinstance(error, Invalid)
    assert (error.field, str(error)) == (field, detail)


def test_refusal_names_the_job_that_stands_in_the_way() -> None:
    problem = problem_of(refusal(Refused(RejectCode.UNIQUE_CONFLICT, "unique: no", JobId(bytes(16)))))
    assert problem.job_id == "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("path", ["api/v1/jobs", "unknown"])
async def test_expectation_that_is_not_known_is_a_problem(api: Api, path: str) -> None:
    """aiohttp refuses it as plain text, before the application sees the request."""
    head = f"POST /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 200-secret\r\nContent-Length: 0\r\n\r\n"
    reply = await asyncio.wait_for(api.raw(head.encode()), 5)
    assert reply.startswith(b"HTTP/1.1 417 ")
    assert b"Content-Type: application/problem+json\r\n" in reply
    assert b'"code":"expectation_failed"' in reply
    assert b"secret" not in reply
