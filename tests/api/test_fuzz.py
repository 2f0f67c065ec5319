from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raftsched.api.requests import JobRequest, OutcomeReport
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
    assert answer.status == 201 or len(api.node.proposed) == before or answer.code == "idempotency_mismatch"
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
@given(st.sampled_from(["status", "queue", "name", "tag", "limit", "cursor", "order", "x"]), st.text(max_size=20))
async def test_list_with_anything_is_never_a_fault_of_the_server(api: Api, parameter: str, value: str) -> None:
    answer = await api.get("jobs", **{parameter: value})
    assert answer.status in (200, 400), answer.body


@_settings
@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=40))
async def test_get_of_any_id_is_404(api: Api, job_id: str) -> None:
    from urllib.parse import quote

    answer = await api.get(f"jobs/{quote(job_id, safe='')}/result")
    assert (answer.status, answer.code) == (404, "not_found")
