"""What few jobs ask for: each field stored, shown, and refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from raftsched import limits
from raftsched.core.operations.codec import PurgeJobs
from raftsched.core.records.ids import TimeMs, parse_job_id
from tests.api.node import NOBODY, START_MS, Api, Fault, malformed, misjudged, run_of


async def test_submit_keeps_what_few_jobs_ask_for(api: Api) -> None:
    wanted = {
        "tenant": "acme",
        "expires_at": "2030-03-17T18:00:00.000Z",
        "deadline": "2030-03-17T19:00:00.000Z",
        "heartbeat_timeout_seconds": 2.5,
        "start": "at_most_once",
        "concurrency_key": "größe 1",
        "retry_on": ["TimeoutError"],
        "no_retry": ["ValueError", "é"],
        "on_dependency_failure": "fail",
        "retention_seconds": 60.0,
        "max_lost_workers": 8,
    }
    job = await api.submit(**wanted)
    assert {name: job[name] for name in wanted} == wanted
    assert (await api.get(f"jobs/{job['id']}")).json == job


async def test_ends_given_as_spans_count_from_the_time_at_which_the_job_is_due(api: Api) -> None:
    job = await api.submit(delay_seconds=60, expires_in_seconds=30, deadline_in_seconds=90)
    assert job["run_at"] == "2030-03-17T17:47:40.000Z"
    assert (job["expires_at"], job["deadline"]) == ("2030-03-17T17:48:10.000Z", "2030-03-17T17:49:10.000Z")
    assert (await api.submit(expires_in_seconds=1))["expires_at"] == "2030-03-17T17:46:41.000Z"


@pytest.mark.parametrize(("fields", "attempts"), [({"max_retries": 0}, 1), ({"max_retries": 4}, 5), ({}, 3)])
async def test_retries_are_attempts_less_one(api: Api, fields: dict[str, Any], attempts: int) -> None:
    assert (await api.submit(**fields))["max_attempts"] == attempts


_WRONG: list[Fault] = [
    *malformed(
        {
            "max_retries": [-1],
            "expires_at": ["tomorrow"],
            "deadline": ["9999-12-31T23:30:00-01:00"],
            "expires_in_seconds": [0],
            "heartbeat_timeout_seconds": [0],
            "start": ["exactly_once"],
            "concurrency_key": ["", "é" * 65],
            "retry_on[1]": [["a", "é" * 65]],
            "no_retry[0]": [[""]],
            "unique.by": [{"by": []}],
            "unique.by[0]": [{"by": ["tags"]}],
            "unique.for_seconds": [{"for_seconds": 0}],
            "unique.on_conflict": [{"on_conflict": "ignore"}],
            "depends_on[0]": [["x"]],
            "depends_on[0].job": [[{"job": "x"}]],
            "depends_on[0].condition": [[{"job": NOBODY, "condition": "done"}]],
            "on_dependency_failure": ["run"],
            "retention_seconds": [0],
            "max_lost_workers": [0, 1_000_001],
            "name": ["", "a\n", "../../x", "a" * 129, 5],
            "max_atempts": [5],
            "tenant": ["a b"],
            "priority": [10, "urgent", True],
            "max_attempts": [0, "3"],
            "timeout_seconds": [0, 1e9],
            "run_at": [
                "2030-03-17T17:46:60Z",
                "2030-03-17T17:46:00",
                "tomorrow",
                "1969-12-31T23:59:59Z",
                "9999-12-31T23:30:00-01:00",
            ],
            "delay_seconds": [-1],
            "retry_policy.factr": [{"factr": 2}],
            "retry_policy.factor": [{"factor": 0.5}],
            "retry_policy.delays_seconds[1]": [{"backoff": "list", "delays_seconds": [1, -1]}],
            "tags[1]": [["a", ""]],
            "tags[0]": [["é" * 65]],
            "tags": [["a"] * 33],
            "region": ["a b"],
            "idempotency_key": [""],
        }
    ),
    ({"max_attempts": 3, "max_retries": 2}, 422, "max_retries"),
    ({"expires_at": "2030-03-18T00:00:00Z", "expires_in_seconds": 1}, 422, "expires_at"),
    ({"deadline": "2030-03-18T00:00:00Z", "deadline_in_seconds": 1}, 422, "deadline"),
    ({"run_at": "2030-03-19T00:00:00Z", "expires_at": "2030-03-18T00:00:00Z"}, 422, "expires_at"),
    ({"unique": {"by": ["key"]}}, 422, "unique.key"),
    ({"unique": {"by": ["name"], "key": "k"}}, 422, "unique.key"),
    ({"idempotency_ttl_seconds": 5}, 422, "idempotency_ttl_seconds"),
    ({"depends_on": [NOBODY, {"job": NOBODY}]}, 422, "depends_on[1]"),
    ({"run_at": "2031-01-01T00:00:00Z", "delay_seconds": 1}, 422, "run_at"),
    ({"retry_policy": {"backoff": "list"}}, 422, "retry_policy.delays_seconds"),
    ({"retry_policy": {"delays_seconds": [1]}}, 422, "retry_policy.delays_seconds"),
    ({"payload": "y" * limits.PAYLOAD_BYTES_MAX}, 413, "payload"),
]


async def test_submit_names_what_is_wrong_and_proposes_nothing(api: Api) -> None:
    assert await misjudged(_WRONG, lambda fields: api.post("jobs", {"name": "x"} | fields)) == []
    assert await misjudged([({}, 400, "name")], lambda fields: api.post("jobs", fields)) == []
    assert api.node.proposed == []


async def test_submit_of_a_past_expiry_is_stored_so_that_a_repeat_finds_it(api: Api) -> None:
    fields = {"expires_at": "2030-03-17T17:46:41Z", "idempotency_key": "k"}
    first = await api.submit(**fields)
    api.node.clock.now_ms += 60_000
    assert (await api.submit(**fields))["id"] == first["id"]
    assert (await api.submit(expires_at="2030-03-17T17:46:41Z"))["status"] == "queued"


async def test_paused_submission_waits_for_a_resume(api: Api) -> None:
    job = await api.submit(paused=True)
    assert (job["status"], job["pause"]) == (
        "paused",
        {"since": "2030-03-17T17:46:40.000Z", "until": None, "reason": None, "by": None},
    )
    assert await api.lease() == []
    assert (await api.post(f"jobs/{job['id']}/resume", {})).json["status"] == "queued"
    assert len(await api.lease()) == 1


async def test_idempotency_key_with_a_time_is_free_afterwards(api: Api) -> None:
    first = await api.submit(idempotency_key="k", idempotency_ttl_seconds=10)
    api.node.clock.now_ms += 9_999
    assert (await api.submit(idempotency_key="k", idempotency_ttl_seconds=10))["id"] == first["id"]
    api.node.clock.now_ms += 1
    assert (await api.submit(idempotency_key="k", idempotency_ttl_seconds=10))["id"] != first["id"]


# -- dependencies -----------------------------------------------------------------------------------------------------


async def test_dependent_job_waits_and_shows_for_what(api: Api) -> None:
    first, second = await api.submit(name="a"), await api.submit(name="b")
    job = await api.submit(depends_on=[first["id"], {"job": second["id"], "condition": "completion"}])
    assert (job["status"], job["pending_dependencies"], job["dependency_count"]) == ("waiting_dependencies", 2, 2)
    assert job["depends_on"] == [
        {"job": first["id"], "condition": "success"},
        {"job": second["id"], "condition": "completion"},
    ]
    listed = (await api.get("jobs", status="waiting_dependencies")).json["jobs"]
    assert listed == [job]


async def test_unknown_parent_is_422_and_named(api: Api) -> None:
    answer = await api.post("jobs", {"name": "x", "depends_on": [NOBODY]})
    assert (answer.status, answer.code) == (422, "unknown_dependency")
    assert (answer.json["field"], answer.json["job_id"]) == ("depends_on[0]", NOBODY)
    batch = await api.post("jobs/batch", {"jobs": [{"name": "a"}, {"name": "x", "depends_on": [NOBODY]}]})
    problem = batch.json["results"][1]["problem"]
    assert (problem["code"], problem["field"]) == ("unknown_dependency", "jobs[1].depends_on[0]")


async def test_parent_of_another_tenant_is_not_there(api: Api) -> None:
    parent = await api.submit(tenant="acme")
    answer = await api.post("jobs", {"name": "x", "depends_on": [parent["id"]]})
    assert (answer.status, answer.code) == (422, "unknown_dependency")


async def test_lists_show_the_first_parents_only(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEPENDENCIES_SHOWN_MAX", 2)
    parents = [(await api.submit(name="a"))["id"] for _ in range(3)]
    job = await api.submit(name="b", depends_on=parents)
    assert len(job["depends_on"]) == 3
    [listed] = (await api.get("jobs", name="b")).json["jobs"]
    assert [each["job"] for each in listed["depends_on"]] == parents[:2]
    assert listed["dependency_count"] == 3


# -- uniqueness -------------------------------------------------------------------------------------------------------


async def test_second_unique_job_is_answered_with_the_first(api: Api) -> None:
    first = await api.submit(payload={"a": 1, "b": [2]}, unique={})
    answer = await api.post("jobs", b'{"name":"send_email","payload":{"b":[2],"a":1},"unique":{}}')
    assert (answer.status, answer.json["id"], answer.json["duplicate"]) == (200, first["id"], True)
    assert (await api.submit(payload={"a": 2}, unique={}))["id"] != first["id"]


async def test_second_unique_job_is_refused_where_it_asks_for_that(api: Api) -> None:
    first = await api.submit(unique={"key": "daily"})
    answer = await api.post("jobs", {"name": "send_email", "unique": {"key": "daily", "on_conflict": "reject"}})
    assert (answer.status, answer.code) == (409, "unique_conflict")
    assert (answer.json["job_id"], answer.json["field"]) == (first["id"], "unique")
    assert (await api.get(f"jobs/{answer.json['job_id']}")).status == 200


@pytest.mark.parametrize(
    ("unique", "is_same"),
    [
        ({"by": ["name"]}, True),
        ({"by": ["payload"]}, False),
        ({"by": ["name", "key"], "key": "k"}, True),
        ({"by": ["key"], "key": "k"}, True),
        ({"by": ["name", "key", "payload"], "key": "k"}, False),
    ],
)
async def test_unique_goes_by_what_was_named(api: Api, unique: dict[str, Any], is_same: bool) -> None:
    first = await api.submit(payload=1, unique=unique)
    second = await api.submit(payload=2, unique=unique)
    assert (first["id"] == second["id"]) is is_same


async def test_unique_keys_of_tenants_do_not_meet(api: Api) -> None:
    first = await api.submit(unique={"key": "k"})
    assert (await api.submit(unique={"key": "k"}, tenant="acme"))["id"] != first["id"]


@pytest.mark.parametrize("end", ["completed", "dead_letter", "cancelled", "deleted"])
async def test_unique_key_is_free_once_its_job_ended_in_whatever_way(api: Api, end: str) -> None:
    """Case D21."""
    first = await api.submit(unique={}, max_attempts=1)
    if end in ("cancelled", "deleted"):
        await api.ask("DELETE", f"jobs/{first['id']}")
    else:
        [lease] = await api.lease()
        run = run_of(lease)
        await api.report(run | {"status": "completed" if end == "completed" else "failed"})
    if end == "deleted":
        api.node.apply(PurgeJobs((parse_job_id(first["id"]),), TimeMs(START_MS + 1)))
    answer = await api.post("jobs", {"name": "send_email", "unique": {"on_conflict": "reject"}})
    assert (answer.status, answer.json["id"] != first["id"]) == (201, True)


async def test_unique_for_a_time_counts_after_the_end_of_its_job(api: Api) -> None:
    unique = {"key": "k", "for_seconds": 60}
    first = await api.submit(unique=unique)
    assert first["unique_until"] == "2030-03-17T17:47:40.000Z"
    await api.ask("DELETE", f"jobs/{first['id']}")
    assert (await api.submit(unique=unique))["id"] == first["id"]
    api.node.clock.now_ms += 60_000
    assert (await api.submit(unique=unique))["id"] != first["id"]


async def test_batch_answers_unique_jobs_each_as_it_asks(api: Api) -> None:
    same = {"name": "x", "unique": {"key": "k"}}
    strict = {"name": "x", "unique": {"key": "k", "on_conflict": "reject"}}
    results = (await api.post("jobs/batch", {"jobs": [same, same, strict]})).json["results"]
    assert [result["status"] for result in results] == [201, 200, 409]
    assert (results[1]["id"], results[1]["duplicate"]) == (results[0]["id"], True)
    assert results[2]["problem"]["job_id"] == results[0]["id"]
    assert results[2]["problem"]["field"] == "jobs[2].unique"
