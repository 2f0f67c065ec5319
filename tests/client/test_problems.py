from __future__ import annotations

import msgspec
import pytest

from raftsched import errors
from raftsched.client.problems import read_problem


def problem(status: int, **fields: object) -> errors.RaftschedError:
    return read_problem(status, msgspec.json.encode({"status": status, "detail": "what happened"} | fields))


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


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"[1]", b'{"status": "x"}', b"\xff\xfe"])
def test_reply_that_is_no_problem_is_judged_by_its_status(body: bytes) -> None:
    assert type(read_problem(502, body)) is errors.OutcomeUnknown
    assert type(read_problem(503, body)) is errors.OutcomeUnknown
    assert type(read_problem(404, body)) is errors.Rejected
