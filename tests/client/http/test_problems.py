from __future__ import annotations

import msgspec
import pytest

from raftsched import errors
from raftsched.client.http.problems import read_problem


def problem(status: int, **fields: object) -> errors.RaftschedError:
    document = {"type": f"urn:raftsched:problem:{fields.get('code')}", "status": status, "detail": "what happened"}
    return read_problem(status, msgspec.json.encode(document | fields))


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "malformed", errors.Malformed),
        (413, "too_large", errors.TooLarge),
        (415, "unsupported_media_type", errors.UnsupportedMediaType),
        (422, "invalid", errors.Invalid),
        (404, "not_found", errors.NotFound),
        (409, "already_finished", errors.Rejected),
        (422, "idempotency_mismatch", errors.Rejected),
        (401, "unauthenticated", errors.Rejected),
        (429, "too_many_requests", errors.Unavailable),
        (503, "unavailable", errors.Unavailable),
        (503, "not_leader", errors.NotLeader),
        (503, "outcome_unknown", errors.OutcomeUnknown),
        (507, "storage_full", errors.StorageFull),
        (503, "of_a_later_version", errors.Unavailable),
        (500, "internal_error", errors.OutcomeUnknown),
    ],
)
def test_code_becomes_its_exception(status: int, code: str, kind: type[errors.RaftschedError]) -> None:
    assert type(problem(status, code=code)) is kind


def test_problem_keeps_code_status_detail_and_field() -> None:
    refused = problem(409, code="already_finished")
    assert (refused.code, refused.http_status, str(refused)) == ("already_finished", 409, "what happened")
    invalid = problem(422, code="invalid", field="retry_policy.factor")
    assert isinstance(invalid, errors.Invalid)
    assert invalid.field == "retry_policy.factor"


def test_place_in_the_batch_is_left_out() -> None:
    error = problem(400, code="malformed", field="jobs[17].tags[2]", detail="jobs[17].tags[2]: too long")
    assert isinstance(error, errors.Malformed)
    assert (error.field, str(error)) == ("tags[2]", "tags[2]: too long")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad gateway</html>",
        b"[1]",
        b'{"status": "x"}',
        b"\xff\xfe",
        b'{"code": "forbidden", "status": 403}',
        b'{"type": "about:blank", "code": "not_found", "status": 404}',
    ],
)
def test_reply_that_is_no_problem_of_ours_settles_nothing(body: bytes) -> None:
    for status in (302, 400, 401, 403, 404, 405, 409, 422, 499, 500, 502, 503, 504):
        error = read_problem(status, body)
        assert isinstance(error, errors.OutcomeUnknown), status
        assert str(error).startswith(f"{status} "), status
    assert isinstance(read_problem(413, body), errors.TooLarge)
    assert type(read_problem(429, body)) is errors.Unavailable
