"""What people make of jobs: cancel, pause, amend, retry, replay, many at once, dead letters, keys (D21, D36)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.http import all_pages, ask, call, job_of, lease, reasons_of, report, submit
from tests.drills import cancel_races

SETTINGS = {"lease_seconds": 15.0}
"""A lease that a test holds by hand outlasts the test."""
RACES = 20


def run(base: str, queue: str) -> Any:
    """Lease a job of the queue, which must have one."""
    [granted] = lease(base, "w", queue)
    return granted


def refused(base: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
    status, problem = call(base, method, f"/api/v1{path}", body, **headers)
    return status, problem["code"]


def dead(base: str, name: str, **fields: Any) -> str:
    """Return the id of a job that was given up as `rejected`."""
    job = submit(base, name=name, **fields)
    failed = {"status": "failed", "error": {"type": "Bad"}, "retryable": False}
    assert report(base, "w", run(base, fields.get("queue", name)), **failed)[0] == 200
    return str(job["id"])


@pytest.mark.essential
def test_cancel_ends_a_job_in_every_status(cluster: LocalCluster) -> None:
    base, other, _ = cluster.urls
    running = submit(base, name="cancelled")
    told = run(base, "cancelled")
    waiting = {
        "scheduled": submit(base, name="cancelled", delay_seconds=3600),
        "waiting_dependencies": submit(base, name="cancelled", depends_on=[running["id"]]),
        "paused": submit(base, name="cancelled", paused=True),
        "queued": submit(base, name="cancelled", priority=0),
    }
    retrying = submit(base, name="cancelled", retry_policy={"base_seconds": 3600})
    report(base, "w", run(base, "cancelled"), status="failed", error={"type": "Bad"})
    waiting["retrying"] = retrying
    for status, job in waiting.items():
        assert job_of(other, job["id"])["status"] == status
        assert ask(other, "DELETE", f"/jobs/{job['id']}")["status"] == "cancelled"
        assert ask(other, "DELETE", f"/jobs/{job['id']}")["status"] == "cancelled"  # sent again
    assert ask(other, "DELETE", f"/jobs/{running['id']}")["status"] == "cancelling"
    beat = {"worker": "w", "leases": [{"run_id": told["run_id"], "fencing_token": told["fencing_token"]}]}
    assert ask(base, "POST", "/leases/heartbeat", beat)["leases"][0]["cancel_requested"]
    assert ask(other, "DELETE", f"/jobs/{running['id']}?force=true")["status"] == "cancelled"
    assert not ask(base, "POST", "/leases/heartbeat", beat)["leases"][0]["valid"]
    late = report(base, "w", told, result="late")
    assert (late[0], late[1]["code"]) == (409, "cancelled")
    assert job_of(base, running["id"])["result"] is None
    done = submit(base, name="cancelled")
    report(base, "w", run(base, "cancelled"))
    assert refused(base, "DELETE", f"/jobs/{done['id']}") == (409, "already_finished")
    assert refused(base, "DELETE", f"/jobs/{dead(base, 'cancelled')}") == (409, "already_finished")


@pytest.mark.parametrize("force", [False, True])
def test_cancel_of_what_is_just_being_leased_or_completed_has_one_winner(cluster: LocalCluster, force: bool) -> None:
    """Case D36, at different nodes at once; `tests.drills.cancel_races` does it often."""
    winners, found = cancel_races.run(cluster, RACES, force=force)
    assert found == []
    assert sum(winners.values()) == 2 * RACES


def test_pause_resume_reschedule_and_reprioritise(cluster: LocalCluster) -> None:
    base, other, _ = cluster.urls
    kept, timed = submit(base, name="controlled"), submit(base, name="controlled")
    ask(base, "POST", f"/jobs/{kept['id']}/pause", {"reason": "wait"})
    until = ask(base, "POST", f"/jobs/{timed['id']}/pause", {"for_seconds": 1})["pause"]["until"]
    assert lease(base, "w", "controlled", wait=0) == []
    assert run(other, "controlled")["job_id"] == timed["id"]  # by itself
    assert job_of(base, timed["id"])["started_at"] >= until
    assert reasons_of(base, kept["id"])["paused"]["reason"] == "wait"
    assert ask(other, "POST", f"/jobs/{kept['id']}/resume")["status"] == "queued"
    revision = job_of(base, kept["id"])["revision"]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    moved = ask(base, "PATCH", f"/jobs/{kept['id']}", {"run_at": later}, If_Match=f'"{revision}"')
    assert moved["status"] == "scheduled"
    asked = (base, "PATCH", f"/jobs/{kept['id']}", {"priority": 1})
    assert refused(*asked, If_Match=f'"{revision}"') == (412, "stale_revision")
    assert lease(base, "w", "controlled", wait=0) == []
    first = submit(base, name="controlled")
    ask(base, "PATCH", f"/jobs/{kept['id']}", {"delay_seconds": 0, "priority": "high"})
    assert [each["job_id"] for each in lease(base, "w", "controlled", capacity=2)] == [kept["id"], first["id"]]
    assert refused(base, "PATCH", f"/jobs/{first['id']}", {"priority": 1})[0] == 409
    assert refused(base, "POST", f"/jobs/{first['id']}/pause")[0] == 409
    history = ask(base, "GET", f"/jobs/{kept['id']}/history")["events"]
    assert [each["event"] for each in history][:3] == ["created", "paused", "resumed"]


def test_retry_is_a_new_run_and_replay_a_new_job(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    job_id = dead(base, "again", payload={"n": 1})
    first_run = job_of(base, job_id)["run_id"]
    assert ask(base, "POST", f"/jobs/{job_id}/retry")["status"] == "queued"
    granted = run(base, "again")
    assert granted["run_id"] != first_run
    assert granted["attempt_number"] == 1
    report(base, "w", granted, result="second")
    runs = ask(base, "GET", f"/jobs/{job_id}/runs")["runs"]
    assert [[attempt["end"] for attempt in each["attempts"]] for each in runs] == [["failed"], ["completed"]]
    assert refused(base, "POST", f"/jobs/{job_id}/retry")[0] == 409
    clones = [
        call(base, "POST", f"/api/v1/jobs/{job_id}/replay", {"payload": {"n": 2}}, Idempotency_Key="again")
        for _ in range(2)
    ]
    assert [status for status, _ in clones] == [201, 200]
    assert len({clone["id"] for _, clone in clones} - {job_id}) == 1
    granted = run(base, "again")
    assert (granted["payload"], granted["replay_of"]) == ({"n": 2}, job_id)
    assert job_of(base, job_id)["result"] == "second"


def test_bulk_needs_to_be_told_which_and_does_it_once(cluster: LocalCluster) -> None:
    base, other, _ = cluster.urls
    ids = [submit(base, name="many", tags=["even"] if number % 2 == 0 else [])["id"] for number in range(20)]
    bulk = "/jobs/bulk"
    nothings: list[dict[str, Any]] = [{}, {"filter": {}}, {"all": False}, {"all": True, "ids": ids}]
    for nothing in nothings:
        assert refused(base, "POST", bulk, {"action": "cancel", **nothing})[0] == 422
    dry = ask(base, "POST", bulk, {"action": "cancel", "all": True, "dry_run": True})
    assert dry["matched"] >= 20
    assert dry["done"] == 0
    assert all(job_of(base, job_id)["status"] == "queued" for job_id in ids)
    even = {"queue": "many", "tag": "even"}
    paused = ask(base, "POST", bulk, {"action": "pause", "filter": even, "reason": "all of them"})
    assert (paused["matched"], paused["done"]) == (10, 10)
    wanted: dict[str, Any] = {"action": "cancel", "filter": {"queue": "many"}, "limit": 8}
    done, cursor = 0, None
    while cursor is not None or not done:
        reply = ask(other, "POST", bulk, wanted | ({"cursor": cursor} if cursor else {}))
        done, cursor = done + reply["done"], reply["next_cursor"]
    assert done == 20
    assert ask(base, "POST", bulk, wanted)["matched"] == 0
    replayed = [
        ask(base, "POST", bulk, {"action": "replay", "filter": even}, Idempotency_Key="replay") for _ in range(2)
    ]
    assert [each["done"] for each in replayed] == [10, 10]
    clones = all_pages(base, "/jobs?queue=many&status=queued&limit=3", "jobs")
    assert sorted(clone["replay_of"] for clone in clones) == sorted(ids[::2])
    unknown = ids[0][:-1] + ("0" if ids[0][-1] != "0" else "1")
    assert ask(base, "POST", bulk, {"action": "delete", "ids": [*ids, unknown]})["done"] == 20
    assert call(base, "GET", f"/api/v1/jobs/{ids[0]}")[0] == 404


def test_dead_letters_are_requeued_and_purged_by_reason(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    rejected = [dead(base, "letters") for _ in range(3)]
    exhausted = submit(base, name="letters", max_attempts=1)["id"]
    report(base, "w", run(base, "letters"), status="failed", error={"type": "Bad"})
    expired = submit(base, name="letters", expires_in_seconds=0.2)["id"]
    cluster.wait_until(lambda: job_of(base, expired)["status"] == "dead_letter", what="the job to expire")

    def listed(reason: str) -> set[str]:
        page = ask(base, "GET", f"/dead-letters?queue=letters&reason={reason}")
        return {job["id"] for job in page["jobs"]}

    assert listed("rejected") == set(rejected)
    assert (listed("attempts_exhausted"), listed("expired")) == ({exhausted}, {expired})
    for action in ("requeue", "purge"):
        assert refused(base, "POST", f"/dead-letters/{action}", {})[0] == 422
    wanted = {"reason": "rejected", "filter": {"queue": "letters"}}
    dry = ask(base, "POST", "/dead-letters/requeue", wanted | {"dry_run": True})
    assert (dry["matched"], dry["done"]) == (3, 0)
    assert ask(base, "POST", "/dead-letters/requeue", wanted)["done"] == 3
    assert {each["job_id"] for each in lease(base, "w", "letters", capacity=9)} == set(rejected)
    wanted["reason"] = "expired"
    assert ask(base, "POST", "/dead-letters/purge", wanted)["done"] == 1
    assert call(base, "GET", f"/api/v1/jobs/{expired}")[0] == 404
    assert listed("attempts_exhausted") == {exhausted}


def test_a_unique_key_is_free_again_however_its_job_ended(cluster: LocalCluster) -> None:
    """Case D21."""
    base, other, _ = cluster.urls
    unique = {"by": ["name", "key"], "key": "only", "on_conflict": "reject"}
    seen: list[str] = []

    def fresh() -> str:
        job = submit(base, name="unique", unique=unique)
        for method in ("reject", "return"):  # while it is there, the answer names it
            asked = {"name": "unique", "unique": unique | {"on_conflict": method}}
            status, answer = call(other, "POST", "/api/v1/jobs", asked)
            found = answer["job_id"] if status == 409 else answer["id"]
            assert (status, found) == (409 if method == "reject" else 200, job["id"])
            assert job_of(other, found)["id"] == job["id"]
        assert job["id"] not in seen
        seen.append(job["id"])
        return str(job["id"])

    fresh()
    report(base, "w", run(base, "unique"))
    fresh()
    report(base, "w", run(base, "unique"), status="failed", error={"type": "Bad"}, retryable=False)
    ask(base, "DELETE", f"/jobs/{fresh()}")
    fresh()
    ask(base, "DELETE", f"/jobs/{run(base, 'unique')['job_id']}?force=true")
    ask(base, "POST", "/jobs/bulk", {"action": "delete", "ids": [seen[-1]]})
    fresh()


def test_an_idempotency_key_counts_for_its_time(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    body = {"name": "timed", "idempotency_ttl_seconds": 2}

    def send() -> tuple[int, str]:
        status, job = call(base, "POST", "/api/v1/jobs", body, Idempotency_Key="for-a-second")
        return status, job["id"]

    status, first = send()
    assert status == 201
    answers = [send()]

    def is_free() -> bool:
        answers.append(send())
        return answers[-1][0] == 201

    cluster.wait_until(is_free, what="the key to be free again")
    assert set(answers[:-1]) == {(200, first)}
    assert answers[-1][1] != first
    created = [datetime.fromisoformat(job_of(base, job_id)["created_at"]) for job_id in (first, answers[-1][1])]
    assert created[1] - created[0] >= timedelta(seconds=2)


def test_expiry_and_deadline_end_a_job_in_time(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    soon = (datetime.now(UTC) + timedelta(seconds=0.5)).isoformat()
    expired = submit(base, name="late", expires_at=soon)["id"]
    started = submit(base, name="started", expires_in_seconds=1.5)["id"]
    overdue = submit(base, name="slow", deadline_in_seconds=2.0)["id"]
    slow, kept = run(base, "slow"), run(base, "started")
    cluster.wait_until(lambda: job_of(base, overdue)["status"] == "dead_letter", what="the deadline")
    assert [job_of(base, job_id)["failure_reason"] for job_id in (expired, overdue)] == ["expired", "expired"]
    assert lease(base, "w", "late", wait=0) == []
    assert report(base, "w", slow)[0] == 409
    assert report(base, "w", kept, result="in time")[0] == 200  # what has started does not expire
    assert job_of(base, started)["status"] == "completed"
