from __future__ import annotations

from typing import Any

import pytest

from raftsched import limits
from raftsched.core.operations.codec import RecordOutcome
from raftsched.core.records.job import AttemptEnd
from raftsched.errors import OutcomeUnknown
from tests.api.node import Api, Fault, malformed, misjudged, run_of

UNKNOWN_RUN = "01900000-0000-7000-8000-000000000000.1"


async def _run(api: Api, **fields: Any) -> dict[str, Any]:
    """Submit and lease a job; return what names the lease in a report."""
    await api.submit(**fields)
    [lease] = await api.lease()
    return run_of(lease)


async def _job(api: Api, run: dict[str, Any]) -> Any:
    return (await api.get(f"jobs/{run['run_id'].split('.')[0]}")).json


async def test_completed_outcome_is_recorded_with_its_result(api: Api) -> None:
    run = await _run(api)
    answer = await api.post(
        "leases/outcomes",
        b'{"worker":"w1","outcomes":[{"run_id":"%b","fencing_token":1,"status":"completed","result":{"a" : 1}}]}'
        % run["run_id"].encode(),
    )
    assert answer.json == {"outcomes": [{"run_id": run["run_id"], "accepted": True, "revision": 3}]}
    job = await api.get(f"jobs/{run['run_id'].split('.')[0]}")
    assert job.json["status"] == "completed"
    assert b'"result":{"a" : 1}' in job.body


async def test_failed_outcome_is_retried_after_the_backoff(api: Api) -> None:
    run = await _run(api, retry_policy={"base_seconds": 10, "jitter": 0.2})
    error = {"type": "ValueError", "message": "no", "trace": "at x"}
    answer = await api.report({**run, "status": "failed", "error": error})
    assert answer.json["outcomes"][0]["accepted"] is True
    job = await _job(api, run)
    assert (job["status"], job["failure_reason"], job["failure_count"]) == ("retrying", "ValueError", 1)
    assert job["error"] == error
    assert job["next_run_at"] == "2030-03-17T17:46:51.000Z"  # 10 s and half of the jitter's 2 s


async def test_failed_outcome_may_give_up(api: Api) -> None:
    run = await _run(api)
    await api.report({**run, "status": "failed", "retryable": False, "error": {"type": "Bad"}})
    job = await _job(api, run)
    assert (job["status"], job["failure_reason"]) == ("dead_letter", "rejected")
    assert job["error"] == {"type": "Bad", "message": "", "trace": ""}


@pytest.mark.parametrize(
    ("outcome", "job"),
    [
        ({"status": "failed", "retry_after_seconds": 5}, ("retrying", 1, "2030-03-17T17:46:45.000Z")),
        ({"status": "snoozed", "snooze_seconds": 60}, ("scheduled", 0, "2030-03-17T17:47:40.000Z")),
    ],
)
async def test_outcome_may_say_when_to_go_on(api: Api, outcome: dict[str, Any], job: tuple[str, int, str]) -> None:
    run = await _run(api)
    await api.report(run | outcome)
    told = await _job(api, run)
    assert (told["status"], told["failure_count"], told["next_run_at"]) == job


async def test_long_error_texts_are_cut_not_refused(api: Api) -> None:
    run = await _run(api)
    error = {"type": "T" * 500, "message": "m" * 5_000, "trace": "head" + "t" * 20_000 + "tail"}
    assert (await api.report({**run, "status": "failed", "error": error})).status == 200
    kept = (await _job(api, run))["error"]
    assert len(kept["type"]) == limits.NAME_CHARS_MAX
    assert len(kept["message"]) == limits.ERROR_MESSAGE_CHARS_MAX
    assert len(kept["trace"]) == limits.ERROR_TRACE_CHARS_MAX
    assert kept["trace"].endswith("tail")


async def test_outcome_with_an_old_token_is_409_and_changes_nothing(api: Api) -> None:
    run = await _run(api)
    before = await _job(api, run)
    answer = await api.report({**run, "fencing_token": 99, "status": "completed", "result": 1})
    assert (answer.status, answer.code) == (409, "lease_lost")
    assert answer.json["outcomes"][0]["code"] == "lease_lost"
    assert answer.json["outcomes"][0]["run_id"] == run["run_id"]
    assert answer.json["retryable"] is False
    assert await _job(api, run) == before


async def test_outcome_of_a_cancelled_job_is_409(api: Api) -> None:
    run = await _run(api)
    await api.ask("DELETE", f"jobs/{run['run_id'].split('.')[0]}")
    answer = await api.report({**run, "status": "completed", "result": 1})
    assert (answer.status, answer.code) == (409, "cancelled")
    job = await _job(api, run)
    assert (job["status"], job["result"]) == ("cancelled", None)


async def test_repeated_outcome_gets_the_recorded_answer(api: Api) -> None:
    outcome = {**await _run(api), "status": "completed", "completion_id": "c-1", "result": 1}
    first = await api.report(outcome)
    again = await api.report(outcome)
    assert (first.status, again.status) == (200, 200)
    assert again.json == first.json


async def test_outcome_of_an_unknown_job_or_under_another_completion_id_is_409(api: Api) -> None:
    unknown = await api.report({"run_id": UNKNOWN_RUN, "fencing_token": 1, "status": "completed"})
    assert (unknown.status, unknown.code) == (409, "not_found")
    run = await _run(api)
    await api.report({**run, "status": "completed", "completion_id": "c-1"})
    answer = await api.report({**run, "status": "completed", "completion_id": "c-2"})
    assert (answer.status, answer.code) == (409, "already_recorded")


async def test_batch_of_outcomes_tells_each_one(api: Api) -> None:
    await api.submit()
    await api.submit()
    first, second = (run_of(x) for x in await api.lease())
    answer = await api.report(
        {**first, "status": "completed"},
        {**second, "status": "completed", "fencing_token": 7},
        {**second, "status": "complete"},
        {"run_id": "nonsense", "fencing_token": 1, "status": "completed"},
        {**second, "status": "completed", "result": "y" * limits.RESULT_BYTES_MAX},
        {**second, "status": "failed"},
    )
    assert answer.status == 200
    assert [item["accepted"] for item in answer.json["outcomes"]] == [True, False, False, False, False, True]
    codes = [item.get("code") for item in answer.json["outcomes"]]
    assert codes == [None, "lease_lost", "malformed", "malformed", "too_large", None]
    assert [item["run_id"] for item in answer.json["outcomes"]][3:5] == ["nonsense", second["run_id"]]


_WRONG: list[Fault] = [
    *malformed(
        {
            "status": ["done"],
            "run_id": ["../../x"],
            "fencing_token": [-1],
            "completion_id": ["x" * 65],
            "reslt": [1],
        }
    ),
    ({"result": "y" * limits.RESULT_BYTES_MAX}, 413, "result"),
    ({"status": "failed", "result": 1}, 422, "result"),
    ({"error": {"type": "x"}}, 422, "error"),
    ({"retryable": False}, 422, "retryable"),
    ({"retry_after_seconds": 1}, 422, "retry_after_seconds"),
    ({"status": "failed", "retry_after_seconds": -1}, 400, "retry_after_seconds"),
    ({"status": "failed", "error": {"kind": "x"}}, 400, "error.kind"),
    ({"status": "snoozed"}, 422, "snooze_seconds"),
    ({"snooze_seconds": 1}, 422, "snooze_seconds"),
]


async def test_outcome_names_the_field_at_fault_and_records_nothing(api: Api) -> None:
    run = await _run(api)
    report = {**run, "status": "completed"}
    assert await misjudged(_WRONG, lambda fields: api.report(report | fields), "outcomes[0].") == []
    assert (await _job(api, run))["status"] == "running"


async def test_null_result_is_none_for_every_status(api: Api) -> None:
    run = await _run(api)
    assert (await api.report({**run, "status": "failed", "result": None, "error": None})).status == 200


async def test_outcome_that_nobody_knows_about_is_503(api: Api) -> None:
    run = await _run(api)
    api.node.proposal_error = lambda _: OutcomeUnknown("lost the lead")
    answer = await api.report({**run, "status": "completed"})
    assert (answer.status, answer.code, answer.json["retryable"]) == (503, "outcome_unknown", True)


async def test_outcome_carries_the_leaders_draw_of_jitter_where_it_retries(api: Api) -> None:
    run = await _run(api)
    await api.report({**run, "status": "failed"})
    recorded = api.node.proposed[-1]
    assert isinstance(recorded, RecordOutcome)
    assert (recorded.end, recorded.jitter, recorded.delay_ms) == (AttemptEnd.FAILED, 500, -1)


async def test_too_many_outcomes_are_refused_as_a_whole(api: Api) -> None:
    outcome = {"run_id": UNKNOWN_RUN, "fencing_token": 1, "status": "completed"}
    answer = await api.report(*[outcome] * 1001)
    assert (answer.status, answer.json["field"]) == (400, "outcomes")
