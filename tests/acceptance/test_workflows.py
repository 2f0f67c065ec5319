"""Jobs that depend on each other: run in order under kills, refused as circles, told of every end (D30, D31)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.conftest import SharedCluster, StartWorker
from tests.acceptance.http import ask, call, job_of, lease, report, submit
from tests.drills import workflow as drill

TOLD_WITHIN = timedelta(seconds=2)


def test_every_job_of_a_workflow_runs_once_while_the_leader_is_killed(
    shared_cluster: SharedCluster, start_worker: StartWorker, queue: str, tmp_path: Path
) -> None:
    """`tests.drills.workflow` does it with 10,000."""
    cluster = shared_cluster(lease_seconds=15.0)
    start_worker(cluster)
    assert drill.run(cluster, 300, tmp_path / "ran", queue) == []


def test_a_circle_is_refused_by_its_members_and_nothing_is_stored(cluster: LocalCluster) -> None:
    """Case D30."""
    base, other, _ = cluster.urls
    needs = {"fetch": [], "parse": ["fetch", "store"], "check": ["parse"], "store": ["check"], "tell": ["store"]}
    jobs = {name: {"name": "circle", "depends_on": parents} for name, parents in needs.items()}
    status, problem = call(other, "POST", "/api/v1/workflows", {"name": "circle", "jobs": jobs})
    assert (status, problem["code"]) == (422, "cycle")
    members = problem["members"]
    assert (set(members), members[0]) == ({"parse", "check", "store"}, members[-1])
    assert all(parent in needs[child] for child, parent in pairwise(members))  # each waits for the next
    assert " -> ".join(members) in problem["detail"]
    itself = {"name": "circle", "jobs": {"a": {"name": "circle", "depends_on": ["a"]}}}
    assert call(base, "POST", "/api/v1/workflows", itself)[0] == 422
    nobody = {"name": "circle", "jobs": {"a": {"name": "circle", "depends_on": ["b"]}}}
    status, problem = call(base, "POST", "/api/v1/workflows", nobody)
    assert (status, problem["code"], problem["field"]) == (422, "unknown_dependency", "jobs.a.depends_on[0]")
    assert ask(base, "GET", "/jobs?name=circle")["jobs"] == []
    assert ask(base, "GET", "/workflows?name=circle")["workflows"] == []


# -- how the first one ends -------------------------------------------------------------------------------------------


def fail(base: str, job: Any) -> None:
    [granted] = lease(base, "w", job["queue"])
    assert report(base, "w", granted, status="failed", error={"type": "Bad"})[0] == 200


def cancel(base: str, job: Any) -> None:
    ask(base, "DELETE", f"/jobs/{job['id']}")


def cancel_running(base: str, job: Any) -> None:
    lease(base, "w", job["queue"])
    ask(base, "DELETE", f"/jobs/{job['id']}?force=true")


def overrun(base: str, job: Any) -> None:
    assert len(lease(base, "w", job["queue"])) == 1


def lose(base: str, job: Any) -> None:
    [granted] = lease(base, "w", job["queue"])
    ask(base, "POST", f"/runs/{granted['run_id']}/start", {"fencing_token": granted["fencing_token"]})


def nothing(base: str, job: Any) -> None:
    """Time ends it."""


def delete(base: str, job: Any) -> None:
    """Nobody can delete what others wait for, but everybody can cancel it, and they hear of that."""
    cancel(base, job)
    answer = ask(base, "POST", "/jobs/bulk", {"action": "delete", "ids": [job["id"]]})
    assert (answer["done"], [failure["code"] for failure in answer["failed"]]) == (0, ["needed"])


def cancel_parent(base: str, job: Any) -> None:
    cancel(base, {"id": job["depends_on"][0]["job"]})


STARTED_AND_LOST = "worker_lost: it starts at most once, and had started"
ENDS: dict[str, tuple[dict[str, Any], Callable[[str, Any], None], tuple[str, str | None]]] = {
    "exhausted": ({"max_attempts": 1}, fail, ("dead_letter", "attempts_exhausted")),
    "cancelled": ({"delay_seconds": 3600}, cancel, ("cancelled", None)),
    "cancelled_running": ({}, cancel_running, ("cancelled", None)),
    "timeout": ({"max_attempts": 1, "timeout_seconds": 0.3}, overrun, ("dead_letter", "timeout")),
    "worker_lost": ({"start": "at_most_once"}, lose, ("dead_letter", STARTED_AND_LOST)),
    "expired": ({"expires_in_seconds": 0.3}, nothing, ("dead_letter", "expired")),
    "deleted": ({}, delete, ("cancelled", None)),
    "skipped": ({"depends_on": ["outside"]}, cancel_parent, ("skipped", None)),
}


@pytest.mark.parametrize("policy", ["skip", "fail"])
def test_however_the_first_one_ends_all_that_wait_for_it_hear_at_once(cluster: LocalCluster, policy: str) -> None:
    """Case D31: a chain of five, a diamond, and a join with a job that never starts."""
    base = cluster.nodes[0].api
    submitted = {way: _submit(base, f"{way}-{policy}", policy, ENDS[way][0]) for way in ENDS}
    for way, ids in submitted.items():
        ENDS[way][1](base, job_of(base, ids["a"]))
    end = "skipped" if policy == "skip" else "dead_letter"
    for way, ids in submitted.items():
        waiting = [ids[name] for name in PARENTS if name not in ("a", "idle")]
        all_ended(cluster, waiting)
        ended = {name: job_of(base, ids[name]) for name in PARENTS if ids[name] in waiting}
        assert {job["status"] for job in ended.values()} == {end}, way
        for name, job in ended.items():
            wrong = [ids[parent] for parent in PARENTS[name] if parent != "idle"]
            assert job["failure_reason"] in [f"dependency_failed: {parent}" for parent in wrong], (way, name)
        assert job_of(base, ids["idle"])["status"] == "scheduled"
        status, reason = ENDS[way][2]
        first = job_of(base, ids["a"])
        assert first["status"] == status, way
        assert reason in (None, first["failure_reason"]), way
        for job in ended.values():
            assert _time(job["completed_at"]) - _time(first["completed_at"]) < TOLD_WITHIN, way
        after = {name: job_of(base, ids[f"on_{name}"])["status"] for name in ("failure", "completion")}
        failed = "queued" if status == "dead_letter" else end
        assert after == {"failure": failed, "completion": "queued"}, way


def all_ended(cluster: LocalCluster, job_ids: list[str]) -> None:
    """Return once all of them have ended, in whatever way."""
    base = cluster.nodes[0].api

    def done() -> bool:
        return all(job_of(base, job_id)["completed_at"] for job_id in job_ids)

    cluster.wait_until(done, what="all jobs to end")


PARENTS: dict[str, list[str]] = {
    # a chain
    "a": [],
    "b": ["a"],
    "c": ["b"],
    "d": ["c"],
    "e": ["d"],
    # a diamond
    "left": ["a"],
    "right": ["a"],
    "bottom": ["left", "right"],
    # a join with what never starts
    "idle": [],
    "join": ["idle", "a"],
}


def _submit(base: str, name: str, policy: str, fields: dict[str, Any]) -> dict[str, str]:
    """Submit the chain, the diamond and the join; return job ids by task."""
    if fields.get("depends_on"):
        outside = submit(base, name=f"{name}-outside", delay_seconds=3600)
        fields = fields | {"depends_on": [{"job": outside["id"]}]}
    jobs: dict[str, Any] = {
        task: {"name": f"{name}-{task}", "depends_on": parents, "on_dependency_failure": policy}
        for task, parents in PARENTS.items()
    }
    for condition in ("failure", "completion"):
        jobs[f"on_{condition}"] = {
            "name": f"{name}-{condition}",
            "depends_on": [{"task": "a", "condition": condition}],
            "on_dependency_failure": policy,
        }
    jobs["a"] |= {"on_dependency_failure": "skip"} | fields
    jobs["idle"]["delay_seconds"] = 3600
    ids: dict[str, str] = ask(base, "POST", "/workflows", {"name": name, "jobs": jobs})["jobs"]
    return ids


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


# -- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.essential
@pytest.mark.parametrize("policy", ["skip", "fail"])
def test_a_requeue_lets_all_go_on_that_ended_for_want_of_it(cluster: LocalCluster, policy: str) -> None:
    base, other, _ = cluster.urls
    name = f"resumed-{policy}"
    parents = {"a": [], "b": ["a"], "c": ["a", "x"], "d": ["b", "c"], "x": []}
    jobs: dict[str, Any] = {
        task: {"name": name, "payload": task, "max_attempts": 1, "depends_on": each, "on_dependency_failure": policy}
        for task, each in parents.items()
    }
    workflow = ask(base, "POST", "/workflows", {"name": name, "jobs": jobs})
    ids, path = workflow["jobs"], f"/workflows/{workflow['id']}"
    first, beside = lease(base, "w", name, capacity=2)
    assert {first["task"], beside["task"]} == {"a", "x"}
    for granted in (first, beside):
        failed = {"status": "failed", "error": {"type": "Bad"}} if granted["task"] == "a" else {"result": 7}
        report(base, "w", granted, **failed)
    cluster.wait_until(lambda: ask(base, "GET", path)["completed_at"] is not None, what="the workflow to end")
    assert ask(other, "GET", path)["status"] == "failed"
    requeued = {"reason": "attempts_exhausted", "filter": {"name": name}}
    assert ask(other, "POST", "/dead-letters/requeue", requeued)["done"] == 1
    cluster.wait_until(
        lambda: all(job_of(base, ids[task])["status"] == "waiting_dependencies" for task in "bcd"),
        what="what depends on it to wait again",
    )
    assert ask(base, "GET", path)["status"] == "running"
    order: list[str] = []
    while len(order) < 4:
        for granted in lease(base, "w", name, capacity=9):
            order.append(granted["task"])
            assert report(base, "w", granted)[0] == 200
    assert (order[0], sorted(order[1:3]), order[3]) == ("a", ["b", "c"], "d")
    found = ask(other, "GET", path)
    assert (found["status"], found["completed_count"], found["unfinished_count"]) == ("completed", 5, 0)
    assert (found["failed_count"], found["skipped_count"]) == (0, 0)
    assert job_of(base, ids["x"])["attempt_number"] == 1  # what had succeeded did not run again


def test_cancelling_a_workflow_ends_all_that_has_not_ended(cluster: LocalCluster) -> None:
    base, other, _ = cluster.urls
    parents = {"a": [], "b": ["a"], "c": ["b"], "done": []}
    jobs = {task: {"name": "stopped", "payload": task, "depends_on": each} for task, each in parents.items()}
    workflow = ask(base, "POST", "/workflows", {"name": "stopped", "jobs": jobs})
    leases = {granted["task"]: granted for granted in lease(base, "w", "stopped", capacity=2)}
    report(base, "w", leases["done"])
    ask(other, "DELETE", f"/workflows/{workflow['id']}")
    report(base, "w", leases["a"])
    path = f"/workflows/{workflow['id']}"
    cluster.wait_until(lambda: ask(base, "GET", path)["completed_at"] is not None, what="the workflow to end")
    found = ask(other, "GET", path)
    assert (found["status"], found["completed_count"], found["cancelled_count"]) == ("cancelled", 1, 3)
