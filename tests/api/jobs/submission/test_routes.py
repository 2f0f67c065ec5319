from __future__ import annotations

import asyncio

import msgspec
import pytest

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.ids import job_id_text
from raftsched.errors import NotLeader, OutcomeUnknown, RaftschedError, StorageFull
from tests.api.node import NOBODY, START_MS, Api, run_of


async def test_submit_answers_201_with_the_whole_job(api: Api) -> None:
    answer = await api.post("jobs", {"name": "send_email", "payload": {"to": "a@example.org"}})
    assert answer.status == 201
    job = answer.json
    assert answer.headers["Location"] == f"/api/v1/jobs/{job['id']}"
    assert job | {"id": "", "run_id": ""} == {
        "id": "",
        "name": "send_email",
        "queue": "send_email",
        "tenant": "default",
        "status": "queued",
        "priority": 5,
        "payload": {"to": "a@example.org"},
        **dict.fromkeys(("http", "shell", "on_failure", "on_success", "hook_of", "notice_of", "parameters")),
        "schedule_id": None,
        "instant": None,
        "workflow_id": None,
        "task": None,
        "run_at": "2030-03-17T17:46:40.000Z",
        "next_run_at": "2030-03-17T17:46:40.000Z",
        "expires_at": None,
        "deadline": None,
        "timeout_seconds": None,
        "heartbeat_timeout_seconds": None,
        "max_attempts": 3,
        "max_lost_workers": 3,
        "attempt_number": 0,
        "retry_policy": {
            "backoff": "exponential",
            "base_seconds": 1.0,
            "factor": 2.0,
            "cap_seconds": 3600.0,
            "jitter": 0.2,
            "delays_seconds": [],
        },
        "retry_on": [],
        "no_retry": [],
        "start": "at_least_once",
        "concurrency_key": None,
        "unique_until": None,
        "depends_on": [],
        "dependency_count": 0,
        "pending_dependencies": 0,
        "on_dependency_failure": "skip",
        "pause": None,
        "tags": [],
        "region": None,
        "retention_seconds": None,
        "revision": 1,
        "created_at": "2030-03-17T17:46:40.000Z",
        "updated_at": "2030-03-17T17:46:40.000Z",
        "queued_at": "2030-03-17T17:46:40.000Z",
        "started_at": None,
        "completed_at": None,
        "execution_time_ms": None,
        "failure_reason": None,
        "result": None,
        "progress": None,
        "run_id": "",
        "failure_count": 0,
        "lost_count": 0,
        "worker": None,
        "error": None,
        "idempotency_key": None,
        "replay_of": None,
        "traceparent": None,
    }
    assert job["run_id"] == f"{job['id']}.1"


async def test_submit_keeps_every_field(api: Api) -> None:
    wanted = {
        "name": "report",
        "queue": "reports",
        "priority": 0,
        "timeout_seconds": 2.5,
        "max_attempts": 7,
        "retry_policy": {
            "backoff": "list",
            "base_seconds": 2.0,
            "factor": 3.0,
            "cap_seconds": 60.0,
            "jitter": 0.5,
            "delays_seconds": [1.0, 2.5],
        },
        "tags": ["monthly", "größe"],
        "region": "eu-1",
        "idempotency_key": "k-1",
    }
    job = await api.submit(**wanted)
    assert {name: job[name] for name in wanted} == wanted


async def test_submit_keeps_the_payload_byte_for_byte(api: Api) -> None:
    payload = b'{ "b":1.50,\t"a" : "\\u00e9\\/" }'
    answer = await api.post("jobs", b'{"name":"x","payload":%b}' % payload)
    assert b'"payload":' + payload + b"," in answer.body
    read = await api.get(f"jobs/{answer.json['id']}")
    assert b'"payload":' + payload + b"," in read.body


@pytest.mark.parametrize(("word", "number"), [("low", 2), ("normal", 5), ("high", 8)])
async def test_submit_takes_priorities_by_name(api: Api, word: str, number: int) -> None:
    assert (await api.submit(priority=word))["priority"] == number


async def test_submit_with_a_delay_schedules(api: Api) -> None:
    job = await api.submit(delay_seconds=1.5)
    assert job["status"] == "scheduled"
    assert job["run_at"] == "2030-03-17T17:46:41.500Z"
    assert job["queued_at"] is None
    api.node.clock.now_ms += 1_500
    job = (await api.get(f"jobs/{job['id']}")).json
    assert job["status"] == "queued"
    assert job["queued_at"] == "2030-03-17T17:46:41.500Z"


@pytest.mark.parametrize(
    ("run_at", "shown", "status"),
    [
        ("2030-03-17T19:46:41.0001+02:00", "2030-03-17T17:46:41.001Z", "scheduled"),
        ("2030-03-17T17:46:40Z", "2030-03-17T17:46:40.000Z", "queued"),
        ("1999-12-31t23:59:59.999z", "1999-12-31T23:59:59.999Z", "queued"),
    ],
)
async def test_submit_with_a_time_never_runs_before_it(api: Api, run_at: str, shown: str, status: str) -> None:
    job = await api.submit(run_at=run_at)
    assert (job["run_at"], job["status"]) == (shown, status)


async def test_submit_takes_a_payload_exactly_at_the_limit(api: Api) -> None:
    payload = "y" * (limits.PAYLOAD_BYTES_MAX - 2)
    assert (await api.submit(payload=payload))["payload"] == payload


async def test_submit_with_a_known_key_answers_200_with_the_first_job(api: Api) -> None:
    first = await api.post("jobs", b'{"name":"x","payload":{"a":1,"b":2}}', Idempotency_Key="k 1")
    again = await api.post("jobs", b'{"payload":{"b":2, "a":1},"name":"x"}', Idempotency_Key="k 1")
    assert (first.status, again.status) == (201, 200)
    assert again.json == first.json | {"duplicate": True}
    assert again.headers["Location"] == first.headers["Location"]


async def test_submit_with_a_known_key_shows_the_job_as_it_stands(api: Api) -> None:
    first = await api.submit(idempotency_key="k1", payload=[1])
    [lease] = await api.lease()
    await api.report(run_of(lease, status="completed", result={"sent": True}))
    again = await api.submit(idempotency_key="k1", payload=[1])
    assert (again["id"], again["status"], again["payload"]) == (first["id"], "completed", [1])
    assert again["result"] == {"sent": True}


async def test_submit_with_a_known_key_and_another_body_is_422(api: Api) -> None:
    await api.post("jobs", {"name": "x", "payload": 1}, Idempotency_Key="k1")
    answer = await api.post("jobs", {"name": "x", "payload": 2}, Idempotency_Key="k1")
    assert (answer.status, answer.code) == (422, "idempotency_mismatch")
    assert len((await api.get("jobs")).json["jobs"]) == 1


async def test_submit_takes_the_same_key_from_header_and_body(api: Api) -> None:
    first = await api.post("jobs", {"name": "x"}, Idempotency_Key="k1")
    again = await api.post("jobs", {"name": "x", "idempotency_key": "k1"})
    assert again.json["id"] == first.json["id"]


async def test_submit_refuses_two_different_keys_and_one_that_is_no_text_for_a_header(api: Api) -> None:
    for key, status in (("k1", 422), ("", 400), ("x" * 201, 400), ("schlüssel", 400)):
        answer = await api.post("jobs", {"name": "x", "idempotency_key": "k2"}, Idempotency_Key=key)
        assert (answer.status, answer.json["field"]) == (status, "Idempotency-Key")


async def test_fifty_submits_with_one_key_make_one_job(api: Api, follower: Api) -> None:
    answers = await asyncio.gather(
        *((api, follower)[n % 2].post("jobs", {"name": "x", "payload": 1}, Idempotency_Key="k") for n in range(50))
    )
    assert sorted(answer.status for answer in answers) == [200] * 49 + [201]
    assert len({answer.json["id"] for answer in answers}) == 1


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OutcomeUnknown("lost the lead"), 503, "outcome_unknown"),
        (NotLeader(), 503, "not_leader"),
        (StorageFull("full"), 507, "storage_full"),
    ],
)
async def test_submit_that_can_be_repeated_says_so(api: Api, error: RaftschedError, status: int, code: str) -> None:
    api.node.proposal_error = lambda _: error
    answer = await api.post("jobs", {"name": "x"})
    assert (answer.status, answer.code, answer.json["retryable"]) == (status, code, True)
    assert answer.headers["Retry-After"] == "1"


# -- batches ----------------------------------------------------------------------------------------------------------


async def test_batch_answers_each_job_in_order(api: Api) -> None:
    jobs = [
        {"name": "a"},
        {"name": "b", "retires": 5},
        {"name": "c", "idempotency_key": "k"},
        {"name": "c", "idempotency_key": "k"},
        {"name": "d", "idempotency_key": "k"},
        {"name": "e", "payload": "y" * limits.PAYLOAD_BYTES_MAX},
        "f",
        {"name": "g", "run_at": "2031-01-01T00:00:00Z", "delay_seconds": 1},
    ]
    answer = await api.post("jobs/batch", {"jobs": jobs})
    assert answer.status == 200
    results = answer.json["results"]
    assert [result["status"] for result in results] == [201, 422, 201, 200, 422, 422, 422, 422]
    assert results[2]["id"] == results[3]["id"]
    problems = [
        (result["problem"]["code"], result["problem"].get("field")) for result in results if "problem" in result
    ]
    assert problems == [
        ("malformed", "jobs[1].retires"),
        ("idempotency_mismatch", "jobs[4].idempotency_key"),
        ("too_large", "jobs[5].payload"),
        ("malformed", "jobs[6]"),
        ("invalid", "jobs[7].run_at"),
    ]
    stored = (await api.get("jobs")).json["jobs"]
    assert [job["id"] for job in stored] == [results[0]["id"], results[2]["id"]]


async def test_batch_takes_none_and_not_too_many_jobs(api: Api) -> None:
    assert (await api.post("jobs/batch", {"jobs": []})).json == {"results": []}
    answer = await api.post("jobs/batch", {"jobs": [{"name": "a"}] * 1001})
    assert (answer.status, answer.json["field"]) == (400, "jobs")
    assert api.node.proposed == []


async def test_batch_tells_unknown_outcomes_job_by_job(api: Api) -> None:
    def error(operation: Operation) -> RaftschedError | None:
        unknown = isinstance(operation, SubmitJob) and operation.spec.name == "b"
        return OutcomeUnknown("lost the lead") if unknown else None

    api.node.proposal_error = error
    answer = await api.post("jobs/batch", {"jobs": [{"name": "a"}, {"name": "b"}, {"name": "c"}]})
    assert [result["status"] for result in answer.json["results"]] == [201, 503, 201]
    assert answer.json["results"][1]["problem"]["code"] == "outcome_unknown"
    assert answer.json["results"][1]["problem"]["retryable"] is True


async def test_batch_of_which_nothing_was_taken_is_503_as_a_whole(api: Api) -> None:
    api.node.proposal_error = lambda _: NotLeader()
    answer = await api.post("jobs/batch", {"jobs": [{"name": "a"}, {"name": "b"}]})
    assert (answer.status, answer.code) == (503, "not_leader")


async def test_batch_whose_client_goes_away_stops_waiting(api: Api) -> None:
    api.node.withheld = asyncio.Queue()
    request = asyncio.create_task(api.post("jobs/batch", {"jobs": [{"name": "a"}] * 3}))
    futures = [await api.node.withheld.get() for _ in range(3)]
    request.cancel()
    done, _ = await asyncio.wait(futures, timeout=5)
    assert len(done) == 3
    assert all(future.cancelled() for future in done)


# -- reading and cancelling -------------------------------------------------------------------------------------------


async def test_get_of_an_unknown_job_is_404(api: Api) -> None:
    answer = await api.get(f"jobs/{NOBODY}")
    assert (answer.status, answer.code) == (404, "not_found")


async def test_get_says_how_new_it_is(api: Api) -> None:
    job = await api.submit()
    await api.submit()
    answer = await api.get(f"jobs/{job['id']}")
    assert answer.headers["Raftsched-Revision"] == "2"
    assert answer.json["revision"] == 1
    assert answer.headers["ETag"] == '"1"'


async def test_get_refuses_unknown_and_repeated_parameters(api: Api) -> None:
    job = await api.submit()
    for query, field in (("consistncy=stale", "consistncy"), ("consistency=stale&consistency=stale", "consistency")):
        answer = await api.get(f"jobs/{job['id']}?{query}")
        assert (answer.status, answer.json["field"]) == (400, field)


async def test_execution_time_is_that_of_the_last_attempt_without_the_wait_after_it(api: Api) -> None:
    job = await api.submit(deadline_in_seconds=3600, retry_policy={"base_seconds": 60})
    [lease] = await api.lease()
    api.node.clock.now_ms += 250
    await api.report(run_of(lease, status="failed"))
    api.node.clock.now_ms += 5_000
    await api.ask("DELETE", f"jobs/{job['id']}")
    assert (await api.get(f"jobs/{job['id']}")).json["execution_time_ms"] == 250


async def test_get_follows_a_job_to_its_result(api: Api) -> None:
    job = await api.submit(payload={"n": 1})
    [lease] = await api.lease()
    running = (await api.get(f"jobs/{job['id']}")).json
    assert (running["status"], running["worker"], running["attempt_number"]) == ("running", "w1", 1)
    api.node.clock.now_ms += 250
    await api.report(run_of(lease, status="completed", result={"ok": [1, 2]}))
    done = (await api.get(f"jobs/{job['id']}")).json
    assert (done["status"], done["result"], done["execution_time_ms"]) == ("completed", {"ok": [1, 2]}, 250)
    assert (done["worker"], done["next_run_at"]) == (None, None)
    assert done["completed_at"] == "2030-03-17T17:46:40.250Z"
    result = (await api.get(f"jobs/{job['id']}/result")).json
    assert result == {
        "id": job["id"],
        "status": "completed",
        "result": {"ok": [1, 2]},
        "error": None,
        "revision": done["revision"],
    }


async def test_cancel_of_a_waiting_job_is_immediate_and_repeatable(api: Api) -> None:
    job = await api.submit(payload=[1])
    for _ in range(2):
        answer = await api.ask("DELETE", f"jobs/{job['id']}")
        assert (answer.status, answer.json["status"], answer.json["payload"]) == (200, "cancelled", [1])
    assert await api.lease() == []


async def test_concurrent_cancels_all_succeed(api: Api) -> None:
    job = await api.submit()
    answers = await asyncio.gather(*(api.ask("DELETE", f"jobs/{job['id']}") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}


async def test_new_job_ids_carry_the_cluster_time(api: Api) -> None:
    job = await api.submit()
    assert job["id"].startswith(job_id_text(api.node.new_job_id())[:9])
    assert int(job["id"].replace("-", "")[:12], 16) == START_MS


async def test_a_job_never_reads_back_as_something_json_does_not_have(api: Api) -> None:
    await api.submit(payload=[1.5, 10**300, -0.0], retry_policy={"jitter": 0.0})
    body = (await api.get("jobs")).body
    assert msgspec.json.decode(body)
    assert not any(word in body for word in (b"NaN", b"Infinity"))
