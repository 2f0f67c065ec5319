from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raftsched.wire.bulk import BulkRequest, DeadLettersRequest
from raftsched.wire.control import AmendRequest, PauseRequest, ReplayRequest, RetryRequest
from raftsched.wire.jobs import JobRequest, LegacyJobRequest, ListQuery
from raftsched.wire.runs import LogQuery
from raftsched.wire.workers import LogRequest, OutcomeReport, ProgressRequest, StartRequest
from raftsched.wire.workflows import WorkflowRequest
from tests.api.node import Api

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(codec=None), max_size=8)
    | st.sampled_from(["x", "high", "2030-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_JOBS = st.dictionaries(st.sampled_from([*JobRequest.__struct_fields__, "nmae"]), _VALUES, max_size=5)
_REPORTS = st.dictionaries(st.sampled_from(OutcomeReport.__struct_fields__), _VALUES, max_size=5)
_NOISE = st.binary(max_size=40) | st.text(alphabet='{}[]":,\\u0d8Nna1e+.', max_size=40).map(str.encode)
_settings = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


@_settings
@given(_NOISE | _JOBS.map(lambda job: _bytes({"name": "x"} | job)))
@example(b'{"name":"x","payload":' + b"[" * 3000)
async def test_submit_of_anything_is_never_a_fault_of_the_server(api: Api, body: bytes) -> None:
    before = len(api.node.proposed)
    answer = await api.post("jobs", body)
    assert answer.status < 500, answer.body
    is_settled = answer.status in (200, 201) or answer.code in ("idempotency_mismatch", "unknown_dependency")
    assert is_settled or len(api.node.proposed) == before
    assert (await api.get("jobs", limit=1, order="desc")).status == 200


@_settings
@given(_NOISE | st.lists(_JOBS, max_size=4).map(lambda jobs: _bytes({"jobs": jobs})))
async def test_batch_of_anything_is_never_a_fault_of_the_server(api: Api, body: bytes) -> None:
    answer = await api.post("jobs/batch", body)
    assert answer.status < 500, answer.body
    if answer.status == 200:
        assert {result["status"] for result in answer.json["results"]} <= {200, 201, 422}


@_settings
@given(_NOISE | st.lists(_REPORTS, max_size=4).map(lambda parts: _bytes({"worker": "w", "outcomes": parts})))
async def test_report_of_anything_is_never_a_fault_of_the_server(api: Api, body: bytes) -> None:
    answer = await api.post("leases/outcomes", body)
    assert answer.status < 500, answer.body


@_settings
@given(st.sampled_from([*ListQuery.__struct_fields__, "x"]), st.text(max_size=20))
async def test_list_with_anything_is_never_a_fault_of_the_server(api: Api, parameter: str, value: str) -> None:
    answer = await api.get("jobs", **{parameter: value})
    assert answer.status in (200, 400), answer.body


def _documents(kind: type[msgspec.Struct], **fixed: Any) -> st.SearchStrategy[bytes]:
    """Documents that have some fields of `kind`, and perhaps one that it lacks."""
    fields = st.dictionaries(st.sampled_from([*kind.__struct_fields__, "nmae"]), _VALUES, max_size=5)
    return fields.map(lambda found: _bytes(fixed | found))


_CONTROLS: dict[str, type[msgspec.Struct]] = {
    "jobs/bulk": BulkRequest,
    "dead-letters/requeue": DeadLettersRequest,
    "dead-letters/purge": DeadLettersRequest,
    "/submit": LegacyJobRequest,
    "jobs/{id}/pause": PauseRequest,
    "jobs/{id}/retry": RetryRequest,
    "jobs/{id}/replay": ReplayRequest,
    "runs/{id}.1/start": StartRequest,
    "runs/{id}.1/logs": LogRequest,
    "runs/{id}.1/progress": ProgressRequest,
}


@_settings
@given(st.sampled_from(sorted(_CONTROLS)).flatmap(lambda path: st.tuples(st.just(path), _documents(_CONTROLS[path]))))
async def test_control_by_anything_is_never_a_fault_of_the_server(api: Api, asked: tuple[str, bytes]) -> None:
    job = await api.submit()
    path, body = asked
    answer = await api.post(path.format(id=job["id"]), body)
    assert answer.status < 500, answer.body


@_settings
@given(_NOISE | _documents(AmendRequest))
async def test_amendment_of_anything_is_never_a_fault_of_the_server(api: Api, body: bytes) -> None:
    job = await api.submit()
    headers = {"Content-Type": "application/json"}
    answer = await api.ask("PATCH", f"jobs/{job['id']}", data=body, headers=headers)
    assert answer.status < 500, answer.body


_TASKS = st.dictionaries(
    st.sampled_from(["a", "b", "c", ""]),
    st.fixed_dictionaries(
        {"name": st.just("x")},
        optional={
            "depends_on": st.lists(
                st.sampled_from(["a", "b", "c", {"task": "a"}, {"task": "b", "condition": "completion"}, {"job": "x"}]),
                max_size=3,
            ),
            "priority": _VALUES,
            "payload": _VALUES,
        },
    ),
    max_size=3,
)


@_settings
@given(_NOISE | _documents(WorkflowRequest, name="w") | _TASKS.map(lambda jobs: _bytes({"name": "w", "jobs": jobs})))
async def test_workflow_of_anything_is_never_a_fault_of_the_server(api: Api, body: bytes) -> None:
    answer = await api.post("workflows", body)
    assert answer.status < 500, answer.body
    assert answer.status == 201 or not api.node.proposed or answer.code == "unknown_dependency"
    api.node.proposed.clear()


@_settings
@given(st.sampled_from(LogQuery.__struct_fields__), st.text(max_size=20), st.binary(max_size=30))
async def test_log_of_anything_is_never_a_fault_of_the_server(api: Api, parameter: str, value: str, raw: bytes) -> None:
    job = await api.submit()
    cursor = base64.urlsafe_b64encode(raw).decode()
    for query in ({parameter: value}, {"cursor": cursor}):
        if query.get("wait_seconds") is None:
            answer = await api.get(f"jobs/{job['id']}/logs", **query)
            assert answer.status < 500, answer.body


@_settings
@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=40))
async def test_get_of_any_id_is_404(api: Api, job_id: str) -> None:
    from urllib.parse import quote

    answer = await api.get(f"jobs/{quote(job_id, safe='')}/result")
    assert (answer.status, answer.code) == (404, "not_found")
