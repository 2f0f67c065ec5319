"""What workers say of a run while it lasts."""

from __future__ import annotations

from typing import Any

import pytest

from raftsched import limits
from raftsched.core.operations.control import ReportProgress
from raftsched.errors import StorageFull
from tests.api.node import Api, run_of

NO_RUN = "01900000-0000-7000-8000-000000000000.1"


async def _leased(api: Api, **fields: Any) -> dict[str, Any]:
    await api.submit(**fields)
    leases: list[dict[str, Any]] = await api.lease()
    return leases[0]


def _body(action: str, token: int = 1) -> dict[str, Any]:
    more: dict[str, dict[str, Any]] = {"start": {}, "logs": {"lines": ["x"]}, "progress": {"progress": 1}}
    return {"fencing_token": token} | more[action]


async def test_lease_says_how_the_run_is_to_begin(api: Api) -> None:
    lease = await _leased(api, start="at_most_once", heartbeat_timeout_seconds=5, expires_in_seconds=60)
    assert (lease["start"], lease["heartbeat_timeout_seconds"]) == ("at_most_once", 5.0)
    assert lease["expires_at"] == "2030-03-17T17:47:40.000Z"


async def test_start_is_written_down_and_repeatable(api: Api) -> None:
    lease = await _leased(api, start="at_most_once")
    for _ in range(2):
        answer = await api.post(f"runs/{lease['run_id']}/start", {"fencing_token": lease["fencing_token"]})
        assert (answer.status, answer.json) == (200, {"run_id": lease["run_id"], "started": True, "revision": 3})


async def test_start_of_a_cancelled_run_is_409(api: Api) -> None:
    lease = await _leased(api)
    await api.ask("DELETE", f"jobs/{lease['job_id']}")
    answer = await api.post(f"runs/{lease['run_id']}/start", {"fencing_token": lease["fencing_token"]})
    assert (answer.status, answer.code) == (409, "cancelled")


@pytest.mark.parametrize("action", ["start", "logs", "progress"])
async def test_word_with_another_token_is_409(api: Api, action: str) -> None:
    lease = await _leased(api)
    answer = await api.post(f"runs/{lease['run_id']}/{action}", _body(action, lease["fencing_token"] + 1))
    assert (answer.status, answer.code) == (409, "lease_lost")
    assert "Stop the handler" in answer.json["advice"]


@pytest.mark.parametrize("action", ["start", "logs"])
async def test_word_of_an_unknown_run_is_404(api: Api, action: str) -> None:
    for run_id in (NO_RUN, "x", NO_RUN.removesuffix(".1")):
        answer = await api.post(f"runs/{run_id}/{action}", _body(action))
        assert (answer.status, answer.code) == (404, "not_found")


async def test_progress_of_an_unknown_run_is_refused(api: Api) -> None:
    assert (await api.post(f"runs/{NO_RUN}/progress", _body("progress"))).code == "lease_lost"
    assert (await api.post("runs/x/progress", _body("progress"))).code == "not_found"


@pytest.mark.parametrize("action", ["start", "logs", "progress"])
async def test_word_through_a_follower_counts(api: Api, follower: Api, action: str) -> None:
    lease = await _leased(api)
    answer = await follower.post(f"runs/{lease['run_id']}/{action}", _body(action, lease["fencing_token"]))
    assert (answer.status, answer.json["run_id"]) == (200, lease["run_id"])


async def test_log_pieces_with_a_number_are_stored_once(api: Api) -> None:
    lease = await _leased(api)
    piece = _body("logs", lease["fencing_token"]) | {"sequence": 1}
    first = await api.post(f"runs/{lease['run_id']}/logs", piece)
    again = await api.post(f"runs/{lease['run_id']}/logs", piece)
    assert (first.json["byte_count"], first.json["repeated"]) == (2, False)
    assert (again.json["byte_count"], again.json["repeated"]) == (2, True)


async def test_full_log_is_409_and_says_to_stop(api: Api) -> None:
    lease = await _leased(api)
    piece = _body("logs", lease["fencing_token"]) | {"lines": ["y" * (limits.LOG_PIECE_BYTES_MAX - 1)]}
    pieces = limits.LOG_BYTES_MAX // limits.LOG_PIECE_BYTES_MAX
    for _ in range(pieces):
        assert (await api.post(f"runs/{lease['run_id']}/logs", piece)).status == 200
    answer = await api.post(f"runs/{lease['run_id']}/logs", piece)
    assert (answer.status, answer.code, answer.json["retryable"]) == (409, "log_full", False)


@pytest.mark.parametrize(
    ("action", "document", "status", "field"),
    [
        ("start", {}, 400, "fencing_token"),
        ("start", {"fencing_token": 0}, 400, "fencing_token"),
        ("start", {"fencing_token": 1, "worker": "w"}, 400, "worker"),
        ("logs", {"fencing_token": 1, "lines": []}, 400, "lines"),
        ("logs", {"fencing_token": 1, "lines": [1]}, 400, "lines[0]"),
        ("logs", {"fencing_token": 1, "lines": ["y" * limits.LOG_PIECE_BYTES_MAX]}, 413, "lines"),
        ("logs", {"fencing_token": 1, "lines": ["a"], "sequence": 0}, 400, "sequence"),
        ("progress", {"fencing_token": 1}, 400, "progress"),
        ("progress", {"fencing_token": 1, "progress": "y" * limits.PROGRESS_BYTES_MAX}, 413, "progress"),
    ],
)
async def test_word_names_the_field_at_fault(api: Api, action: str, document: Any, status: int, field: str) -> None:
    answer = await api.post(f"runs/{NO_RUN}/{action}", document)
    assert (answer.status, answer.json["field"]) == (status, field), answer.body


async def test_progress_is_shown_with_the_job(api: Api) -> None:
    lease = await _leased(api)
    report = {"fencing_token": lease["fencing_token"], "progress": {"done": 3, "of": 10}}
    answer = await api.post(f"runs/{lease['run_id']}/progress", report)
    assert (answer.status, answer.json["accepted"]) == (200, True)
    assert (await api.get(f"jobs/{lease['job_id']}")).json["progress"] == {"done": 3, "of": 10}


# -- heartbeats -------------------------------------------------------------------------------------------------------


async def _beat(api: Api, lease: dict[str, Any], **fields: Any) -> Any:
    held = run_of(lease) | fields
    return await api.post("leases/heartbeat", {"worker": "w1", "leases": [held]})


async def test_heartbeat_keeps_the_progress_that_it_carries(api: Api) -> None:
    lease = await _leased(api)
    assert (await _beat(api, lease, progress=0.5)).json["leases"][0]["valid"] is True
    assert (await api.get(f"jobs/{lease['job_id']}")).json["progress"] == 0.5


async def test_heartbeat_without_progress_writes_nothing(api: Api) -> None:
    lease = await _leased(api)
    before = len(api.node.proposed)
    await _beat(api, lease, alive=True)
    assert not any(isinstance(each, ReportProgress) for each in api.node.proposed[before:])


async def test_heartbeat_keeps_a_handler_alive_only_where_it_says_so(api: Api) -> None:
    lease = await _leased(api, heartbeat_timeout_seconds=5)
    for sign in ({"alive": True}, {"progress": 1}, {}):
        api.node.clock.now_ms += 4_000
        answer = (await _beat(api, lease, **sign)).json["leases"][0]
        assert answer["valid"] is True
        assert await _status(api, lease) == "running"
    api.node.clock.now_ms += 1_000
    assert await _status(api, lease) != "running"


async def _status(api: Api, lease: dict[str, Any]) -> str:
    """The job's status after the leader's services had their turn."""
    leadership = api.node.leadership()
    for _ in range(5):
        leadership._wake.set()
        job = (await api.get(f"jobs/{lease['job_id']}")).json
    return str(job["status"])


async def test_heartbeat_is_answered_where_its_progress_can_not_be_kept(api: Api) -> None:
    lease = await _leased(api)
    api.node.proposal_error = lambda _: StorageFull("full")
    answer = await _beat(api, lease, progress=1)
    assert (answer.status, answer.json["leases"][0]["valid"]) == (200, True)


async def test_heartbeat_with_too_much_progress_names_it(api: Api) -> None:
    lease = await _leased(api)
    answer = await _beat(api, lease, progress="y" * limits.PROGRESS_BYTES_MAX)
    problem = answer.json["leases"][0]["problem"]
    assert (answer.status, problem["status"], problem["field"]) == (200, 413, "leases[0].progress")
