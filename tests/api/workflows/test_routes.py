from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import raftsched
from raftsched import limits
from raftsched.api.json.decode import StructDecoder
from raftsched.api.workflows.plan import plan_workflow
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CancelJob, PurgeJobs, SubmitWorkflow
from raftsched.core.operations.queues import CancelWorkflow
from raftsched.core.records.ids import TimeMs, parse_job_id
from raftsched.errors import NotLeader, OutcomeUnknown, RaftschedError
from raftsched.wire.workflows import WorkflowRequest
from tests.api.node import NOBODY, START_MS, Answer, Api, malformed, misjudged, run_of
from tests.steps import counted_steps


def _job(*parents: Any, **fields: Any) -> dict[str, Any]:
    return {"name": "x"} | ({"depends_on": list(parents)} if parents else {}) | fields


def _chain(count: int) -> dict[str, Any]:
    return {f"t{n}": _job(*([f"t{n - 1}"] if n else [])) for n in range(count)}


def _fan(count: int) -> dict[str, Any]:
    """One job, then all others but the last one, then that."""
    middle = {f"t{n}": _job("first") for n in range(count - 2)}
    return {"first": _job()} | middle | {"last": _job("t0", f"t{count - 3}")}


async def _submit(api: Api, jobs: dict[str, Any], **fields: Any) -> Answer:
    return await api.post("workflows", {"name": "etl", "jobs": jobs} | fields)


async def _graph(api: Api, workflow_id: str, **query: Any) -> tuple[list[Any], list[Any]]:
    path = f"workflows/{workflow_id}"
    return await api.all(path, "nodes", **query), await api.all(path, "edges", **query)


# -- submission -------------------------------------------------------------------------------------------------------


async def test_workflow_is_stored_with_all_its_jobs(api: Api) -> None:
    jobs = {
        "load": _job("extract", {"task": "clean", "condition": "completion"}, payload={"n": 1}, queue="q"),
        "extract": _job(),
        "clean": _job("extract", priority="high", on_dependency_failure="fail"),
    }
    answer = await _submit(api, jobs, tenant="acme")
    assert answer.status == 201
    workflow = answer.json
    assert answer.headers["Location"] == f"/api/v1/workflows/{workflow['id']}"
    assert {name: workflow[name] for name in ("name", "tenant", "status", "job_count", "unfinished_count")} == {
        "name": "etl",
        "tenant": "acme",
        "status": "running",
        "job_count": 3,
        "unfinished_count": 3,
    }
    assert set(workflow["jobs"]) == set(jobs)
    load = (await api.get(f"jobs/{workflow['jobs']['load']}")).json
    assert (load["workflow_id"], load["task"], load["tenant"], load["queue"]) == (workflow["id"], "load", "acme", "q")
    assert (load["status"], load["payload"]) == ("waiting_dependencies", {"n": 1})
    assert load["depends_on"] == [
        {"job": workflow["jobs"]["extract"], "condition": "success"},
        {"job": workflow["jobs"]["clean"], "condition": "completion"},
    ]
    assert [lease["task"] for lease in await api.lease("x")] == ["extract"]


async def test_workflow_runs_to_its_end(api: Api) -> None:
    workflow = (await _submit(api, {"a": _job(), "b": _job("a"), "c": _job("b")})).json
    for task in "abc":
        [lease] = await api.lease("x")
        assert (lease["task"], lease["workflow_id"]) == (task, workflow["id"])
        await api.report(run_of(lease, status="completed"))
    ended = (await api.get(f"workflows/{workflow['id']}")).json
    assert (ended["status"], ended["completed_count"], ended["unfinished_count"]) == ("completed", 3, 0)
    assert ended["completed_at"] == "2030-03-17T17:46:40.000Z"


@pytest.mark.parametrize(("policy", "status"), [("skip", "skipped"), ("fail", "dead_letter")])
async def test_end_of_a_parent_ends_all_that_waits_for_it(api: Api, policy: str, status: str) -> None:
    """Case D31: transitively, at once, also where another parent has not begun; the reason names the parent."""
    jobs = {"a": _job(), "b": _job(queue="never"), "join": _job("a", "b", on_dependency_failure=policy)}
    jobs |= {"c": _job("join"), "d": _job({"task": "join", "condition": "completion"})}
    workflow = (await _submit(api, jobs)).json
    ids = workflow["jobs"]
    await api.end("x", status="failed", retryable=False)
    nodes, _ = await _graph(api, workflow["id"])
    by_task = {node["task"]: node for node in nodes}
    assert by_task["join"]["status"] == status
    assert by_task["join"]["failure_reason"] == f"dependency_failed: {ids['a']}"
    assert by_task["c"]["failure_reason"] == f"dependency_failed: {ids['join']}"
    assert (by_task["b"]["status"], by_task["c"]["status"], by_task["d"]["status"]) == ("queued", "skipped", "queued")
    await api.ask("POST", f"jobs/{ids['a']}/retry")
    by_task = {node["task"]: node for node in (await _graph(api, workflow["id"]))[0]}
    assert (by_task["join"]["status"], by_task["c"]["status"]) == ("waiting_dependencies", "waiting_dependencies")


async def test_workflow_may_wait_for_a_job_elsewhere(api: Api) -> None:
    parent = await api.submit()
    workflow = (await _submit(api, {"a": _job({"job": parent["id"]})})).json
    _, [edge] = await _graph(api, workflow["id"])
    assert edge == {"parent": parent["id"], "child": workflow["jobs"]["a"], "condition": "success"}


async def test_workflow_with_a_known_key_is_answered_with_the_first(api: Api, follower: Api) -> None:
    first = await _submit(api, _chain(3), idempotency_key="k")
    body = {"jobs": _chain(3), "name": "etl"}
    again = await follower.post("workflows", body, Idempotency_Key="k")
    assert (first.status, again.status) == (201, 200)
    assert again.json == first.json | {"duplicate": True}
    other = await _submit(api, _chain(4), idempotency_key="k")
    assert (other.status, other.code, other.json["field"]) == (422, "idempotency_mismatch", "idempotency_key")


@pytest.mark.parametrize("count", [1, 600])
async def test_workflow_with_a_known_key_is_found_when_what_it_waited_for_is_gone(api: Api, count: int) -> None:
    parent = await api.submit()
    jobs = _chain(count) | {"late": _job({"job": parent["id"], "condition": "completion"})}
    first = await _submit(api, jobs, idempotency_key="k")
    for job in (parent["id"], first.json["jobs"]["late"]):
        await api.ask("DELETE", f"jobs/{job}")
    assert (await api.post("jobs/bulk", {"action": "delete", "ids": [parent["id"]]})).json["done"] == 1
    again = await _submit(api, jobs, idempotency_key="k")
    assert (first.status, again.status, again.json["id"]) == (201, 200, first.json["id"])


@pytest.mark.parametrize(
    ("jobs", "status", "code", "field"),
    [
        ({}, 400, "malformed", "jobs"),
        ({"a b": _job()}, 400, "malformed", "jobs.a b"),
        ({"a": {}}, 400, "malformed", "jobs.a.name"),
        ({"a": _job(unique={})}, 400, "malformed", "jobs.a.unique"),
        ({"a": _job(idempotency_key="k")}, 400, "malformed", "jobs.a.idempotency_key"),
        ({"a": _job(priority=11)}, 400, "malformed", "jobs.a.priority"),
        ({"a": _job(run_at="2030-03-18T00:00:00Z", delay_seconds=1)}, 422, "invalid", "jobs.a.run_at"),
        ({"a": _job(payload="y" * limits.PAYLOAD_BYTES_MAX)}, 413, "too_large", "jobs.a.payload"),
        ({"a": _job(), "b": _job("a", "c")}, 422, "unknown_dependency", "jobs.b.depends_on[1]"),
        ({"a": _job(), "b": _job("a", {"task": "a"})}, 422, "invalid", "jobs.b.depends_on[1]"),
        ({"a": _job({"condition": "success"})}, 422, "invalid", "jobs.a.depends_on[0]"),
        ({"a": _job({"task": "a", "job": NOBODY})}, 422, "invalid", "jobs.a.depends_on[0]"),
        ({"a": _job({"job": "x"})}, 400, "malformed", "jobs.a.depends_on[0].job"),
        ({"a": _job({"task": "a", "condition": "done"})}, 400, "malformed", "jobs.a.depends_on[0].condition"),
        ({"a": _job({"job": NOBODY})}, 422, "unknown_dependency", "jobs.a.depends_on[0]"),
    ],
)
async def test_workflow_names_the_field_at_fault_and_stores_nothing(
    api: Api, jobs: dict[str, Any], status: int, code: str, field: str
) -> None:
    for key in ({}, {"idempotency_key": "k"}):
        answer = await _submit(api, jobs, **key)
        assert (answer.status, answer.code, answer.json["field"]) == (status, code, field), answer.body
    assert (await api.get("workflows")).json["workflows"] == []
    assert (await api.get("jobs")).json["jobs"] == []


async def test_unknown_task_is_named(api: Api) -> None:
    answer = await _submit(api, {"a": _job("extarct"), "extract": _job()})
    assert "there is no task extarct" in answer.json["detail"]


@pytest.mark.parametrize(
    ("jobs", "members"),
    [
        ({"a": _job("a")}, ["a", "a"]),
        ({"a": _job("c"), "b": _job("a"), "c": _job("b")}, ["a", "c", "b", "a"]),
        ({"z": _job(), "a": _job("z", "b"), "b": _job("a"), "c": _job("b")}, ["a", "b", "a"]),
    ],
)
async def test_circle_is_refused_and_its_members_are_named_in_order(
    api: Api, jobs: dict[str, Any], members: list[str]
) -> None:
    """Case D30."""
    answer = await _submit(api, jobs)
    assert (answer.status, answer.code) == (422, "cycle")
    assert answer.json["members"] == members
    assert " -> ".join(members) in answer.json["detail"]
    assert answer.json["field"] == f"jobs.{members[0]}.depends_on"
    assert api.node.proposed == []


async def test_workflow_of_too_many_jobs_is_refused(api: Api) -> None:
    answer = await _submit(api, {f"t{n}": _job() for n in range(limits.WORKFLOW_JOBS_MAX + 1)})
    assert (answer.status, answer.json["field"]) == (400, "jobs")


# -- in parts ---------------------------------------------------------------------------------------------------------


async def test_ten_thousand_jobs_are_stored_in_parts(api: Api) -> None:
    jobs = _fan(10_000)
    answer = await _submit(api, jobs, idempotency_key="k")
    assert (answer.status, answer.json["job_count"], len(answer.json["jobs"])) == (201, 10_000, 10_000)
    parts = [each for each in api.node.proposed if isinstance(each, SubmitWorkflow)]
    assert [len(part.jobs) for part in parts] == [500] * 20
    nodes, edges = await _graph(api, answer.json["id"])
    assert (len(nodes), len(edges)) == (10_000, 10_000)
    assert len({node["id"] for node in nodes}) == 10_000
    again = await _submit(api, jobs, idempotency_key="k")
    assert (again.status, again.json["jobs"]) == (200, answer.json["jobs"])


async def test_storing_a_workflow_takes_the_same_steps_for_each_job(api: Api) -> None:
    few, many = [await _steps_to_store(api, jobs) for jobs in (_fan(300), _fan(3_000))]
    assert many < 1.5 * 10 * few


async def _steps_to_store(api: Api, jobs: dict[str, Any]) -> int:
    with counted_steps(raftsched) as steps:
        assert (await _submit(api, jobs)).status == 201
    return steps.count


async def test_others_have_their_turn_while_a_large_workflow_is_planned(api: Api) -> None:
    few, many = [await _turns_for_others(api, _fan(count)) for count in (1_000, 10_000)]
    assert many - few >= 9_000 // 500


async def _turns_for_others(api: Api, jobs: dict[str, Any]) -> int:
    wanted = StructDecoder(WorkflowRequest).decode(msgspec.json.encode({"name": "etl", "jobs": jobs}))
    plan = plan_workflow(wanted, new_id=api.node.new_job_id, now_ms=START_MS, key="", fingerprint=b"", actor="")
    planning = asyncio.ensure_future(plan)
    turns = 0
    while not planning.done():
        await asyncio.sleep(0)
        turns += 1
    await planning
    return turns


async def test_parts_are_bounded_by_their_bytes(api: Api) -> None:
    jobs = {f"t{n}": _job(payload="y" * 200_000) for n in range(10)}
    assert (await _submit(api, jobs)).status == 201
    parts = [each for each in api.node.proposed if isinstance(each, SubmitWorkflow)]
    assert [len(part.jobs) for part in parts] == [4, 4, 2]
    assert max(len(msgspec.msgpack.encode(part)) for part in parts) < limits.ENTRY_BYTES_MAX


async def test_parents_come_before_their_children_whatever_the_order_of_the_request(api: Api) -> None:
    jobs = dict(reversed(_chain(1_200).items()))
    answer = await _submit(api, jobs)
    assert answer.status == 201
    nodes, _ = await _graph(api, answer.json["id"], limit=500)
    assert [node["task"] for node in nodes] == [f"t{n}" for n in range(1_200)]
    [lease] = await api.lease("x")
    assert lease["task"] == "t0"


async def test_workflow_that_is_refused_half_way_is_thrown_away(api: Api) -> None:
    parent = await api.submit()
    jobs = _chain(600) | {"late": _job({"job": parent["id"]}, "t599")}

    def remove_parent(operation: Operation) -> RaftschedError | None:
        if isinstance(operation, SubmitWorkflow) and operation.first:
            api.node.apply(CancelJob(parse_job_id(parent["id"]), "default"))
            api.node.apply(PurgeJobs((parse_job_id(parent["id"]),), TimeMs(api.node.clock.now_ms + 1)))
        return None

    api.node.proposal_error = remove_parent
    answer = await _submit(api, jobs)
    assert (answer.status, answer.code) == (422, "unknown_dependency")
    assert (answer.json["field"], answer.json["job_id"]) == ("jobs.late.depends_on[0]", parent["id"])
    assert any(isinstance(each, CancelWorkflow) for each in api.node.proposed)
    assert await api.lease("x") == []


async def test_workflow_that_was_cut_short_is_submitted_again_under_its_key(api: Api) -> None:
    def lose_second_part(operation: Operation) -> RaftschedError | None:
        is_late = isinstance(operation, SubmitWorkflow) and operation.first
        return OutcomeUnknown("lost the lead") if is_late else None

    api.node.proposal_error = lose_second_part
    answer = await _submit(api, _chain(600), idempotency_key="k")
    assert (answer.status, answer.code) == (503, "outcome_unknown")
    assert await api.lease("x") == []
    api.node.proposal_error = lambda _: None
    answer = await _submit(api, _chain(600), idempotency_key="k")
    assert (answer.status, answer.json["status"]) == (201, "running")
    assert len(await api.lease("x")) == 1


async def test_workflow_without_a_leader_is_503(api: Api) -> None:
    api.node.proposal_error = lambda _: NotLeader()
    answer = await _submit(api, _chain(2))
    assert (answer.status, answer.code) == (503, "not_leader")


# -- reading and cancelling -------------------------------------------------------------------------------------------


async def test_workflow_of_an_unknown_id_is_404(api: Api) -> None:
    for workflow_id in (NOBODY, "x"):
        for method in ("GET", "DELETE"):
            answer = await api.ask(method, f"workflows/{workflow_id}")
            assert (answer.status, answer.code) == (404, "not_found")


async def test_graph_is_read_page_by_page_from_any_node(api: Api, follower: Api) -> None:
    workflow = (await _submit(api, _chain(7))).json
    whole = await _graph(api, workflow["id"])
    assert await _graph(follower, workflow["id"], limit=2) == whole
    assert await _graph(follower, workflow["id"], limit=7) == whole
    assert await _graph(follower, workflow["id"], limit=3, consistency="stale") == whole
    nodes, edges = whole
    assert [node["task"] for node in nodes] == [f"t{n}" for n in range(7)]
    assert len(edges) == 6
    assert nodes[1] == {
        "id": workflow["jobs"]["t1"],
        "task": "t1",
        "name": "x",
        "queue": "x",
        "status": "waiting_dependencies",
        "pending_dependencies": 1,
        "started_at": None,
        "completed_at": None,
        "failure_reason": None,
    }


async def test_graph_page_ends_where_it_has_many_edges(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = {"a": _job(), "b": _job("a"), "c": _job("a", "b"), "d": _job("a", "b", "c")}
    workflow = (await _submit(api, jobs)).json
    monkeypatch.setattr(limits, "DEPENDENCIES_MAX", 2)
    page = (await api.get(f"workflows/{workflow['id']}")).json
    assert ([node["task"] for node in page["nodes"]], len(page["edges"])) == (["a", "b", "c"], 3)
    nodes, edges = await _graph(api, workflow["id"])
    assert ([node["task"] for node in nodes], len(edges)) == (["a", "b", "c", "d"], 6)


async def test_graph_refuses_a_foreign_cursor(api: Api) -> None:
    first, second = (await _submit(api, _chain(2))).json, (await _submit(api, _chain(2))).json
    cursor = (await api.get(f"workflows/{first['id']}", limit=1)).json["next_cursor"]
    for foreign in (cursor, "x", "gg=="):
        answer = await api.get(f"workflows/{second['id']}", cursor=foreign)
        assert (answer.status, answer.json["field"]) == (400, "cursor")


async def test_workflows_are_listed_the_latest_first(api: Api) -> None:
    first = (await _submit(api, _chain(1))).json
    second = (await _submit(api, _chain(1), name="other", tenant="acme")).json
    third = (await _submit(api, _chain(1))).json
    await api.ask("DELETE", f"workflows/{first['id']}")

    async def listed(**query: Any) -> list[str]:
        return [workflow["id"] for workflow in await api.all("workflows", "workflows", limit=1, **query)]

    assert await listed() == [third["id"], second["id"], first["id"]]
    assert await listed(order="asc", name="etl") == [first["id"], third["id"]]
    assert await listed(tenant="acme") == [second["id"]]
    assert await listed(status="cancelled") == [first["id"]]
    wrong = malformed({"cursor": ["x"], "status": ["paused"]})
    assert await misjudged(wrong, lambda query: api.get("workflows", **query)) == []


async def test_cancel_of_a_workflow_ends_its_jobs(api: Api, follower: Api) -> None:
    workflow = (await _submit(api, _chain(3))).json
    answer = await follower.ask("DELETE", f"workflows/{workflow['id']}", headers={"Raftsched-Actor": "ann"})
    assert (answer.status, answer.json["status"], answer.json["cancelled_count"]) == (200, "cancelled", 3)
    assert (await api.ask("DELETE", f"workflows/{workflow['id']}")).status == 200
    assert (await api.get("jobs", workflow=workflow["id"], status="cancelled")).json["jobs"] != []


async def test_cancel_of_a_finished_workflow_is_409(api: Api) -> None:
    workflow = (await _submit(api, _chain(1))).json
    await api.end("x")
    answer = await api.ask("DELETE", f"workflows/{workflow['id']}")
    assert (answer.status, answer.code) == (409, "already_finished")


async def test_jobs_of_a_workflow_are_listed_and_changed_by_its_id(api: Api) -> None:
    await api.submit(name="x")
    workflow = (await _submit(api, _chain(5))).json
    pages: list[list[str]] = []
    for order in ("asc", "desc"):
        first = (await api.get("jobs", workflow=workflow["id"], limit=3, order=order)).json
        rest = (await api.get("jobs", workflow=workflow["id"], limit=3, order=order, cursor=first["next_cursor"])).json
        assert rest["next_cursor"] is None
        pages.append([job["task"] for job in first["jobs"] + rest["jobs"]])
    assert pages == [[f"t{n}" for n in range(5)], [f"t{n}" for n in reversed(range(5))]]
    reply = (await api.post("jobs/bulk", {"action": "pause", "filter": {"workflow": workflow["id"]}})).json
    assert (reply["matched"], reply["done"]) == (5, 5)
