"""What a job can be told to do, through HTTP and the CLI on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import BlockingClient, JobFailed
from raftsched.errors import Rejected
from tests.acceptance.conftest import StartCluster, StartWorker, has_line, run_cli
from tests.acceptance.http import call, lease, report

ClientOf = Callable[[LocalCluster], BlockingClient]


def test_jobs_of_every_kind_end_as_they_must(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, client_of: ClientOf
) -> None:
    client = client_of(cluster)
    start_worker(cluster)
    quick = {"backoff": "fixed", "base_seconds": 0.1, "jitter": 0}
    now = client.submit("echo", {"a": [1, None, "ä"]}, queue=queue)
    past = client.submit("echo", "past", queue=queue, run_at=datetime(1999, 1, 1, tzinfo=UTC))
    delayed = client.submit("echo", "later", queue=queue, delay_seconds=1.5)
    at = client.submit("echo", "at", queue=queue, run_at=datetime.now(UTC) + timedelta(seconds=1))
    flaky = client.submit("flaky", {"failures": 2}, queue=queue, max_attempts=3, retry_policy=quick)
    hopeless = client.submit("flaky", {"failures": 9}, queue=queue, max_attempts=2, retry_policy=quick)
    slow = client.submit("block", {"seconds": 30}, queue=queue, timeout_seconds=0.5, max_attempts=1)
    unknown = client.submit("nobody_knows_this", None, queue=queue, max_attempts=1)
    assert now.wait(30) == {"a": [1, None, "ä"]}
    assert past.wait(30) == "past"
    assert [delayed.wait(30), at.wait(30), flaky.wait(30)] == ["later", "at", 3]
    for job in (delayed, at):
        found = job.get()
        assert found.started_at is not None
        assert found.run_at is not None
        assert found.started_at >= found.run_at
    for job, reason in ((hopeless, "attempts_exhausted"), (slow, "timeout")):
        with pytest.raises(JobFailed):
            job.wait(30)
        assert (job.get().status, job.get().failure_reason) == ("dead_letter", reason)
    assert unknown.get().status == "queued", "no worker has a handler for it, so none loses its attempt"
    assert [reason.code for reason in unknown.explain().reasons] == ["no_handler"]


def test_higher_priority_is_leased_first_and_equals_in_order(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    for number, priority in enumerate([0, 5, 9, 5, "high", "low"]):
        status, _ = call(base, "POST", "/api/v1/jobs", {"name": "ordered", "payload": number, "priority": priority})
        assert status == 201
    order = [granted["payload"] for granted in lease(base, "w", "ordered", capacity=10)]
    assert order == [2, 4, 1, 3, 5, 0]


def test_cancel_works_in_every_status_and_is_final(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, client_of: ClientOf, tmp_path: Path
) -> None:
    client = client_of(cluster)
    scheduled = client.submit("echo", 1, queue=queue, delay_seconds=3600)
    queued = client.submit("echo", 2, queue="nobody")
    assert scheduled.cancel().status == queued.cancel().status == "cancelled"
    assert scheduled.cancel().status == "cancelled"
    start_worker(cluster)
    running = client.submit("hold", {"until": "never"}, queue=queue)
    cluster.wait_until(partial(has_line, tmp_path / "started"), what="the job to start")
    assert running.cancel().status in {"cancelling", "cancelled"}
    cluster.wait_until(lambda: running.get().status == "cancelled", what="the running job to end")
    done = client.submit("echo", 3, queue=queue)
    done.wait(30)
    with pytest.raises(Rejected, match="completed"):
        done.cancel()
    assert done.get().status == "completed"


def test_cancel_and_completion_at_the_same_moment_tell_both_callers_the_truth(cluster: LocalCluster) -> None:
    """Case D36."""
    first, second = cluster.nodes[0].api, cluster.nodes[1].api
    for _ in range(60):
        _, job = call(first, "POST", "/api/v1/jobs", {"name": "race"})
        [granted] = lease(first, "w", "race")
        with ThreadPoolExecutor(2) as threads:
            done = threads.submit(report, first, "w", granted)
            cancel = threads.submit(call, second, "DELETE", f"/api/v1/jobs/{job['id']}")
        answers = {"done": done.result()[0], "cancel": cancel.result()[0]}
        _, found = call(first, "GET", f"/api/v1/jobs/{job['id']}")
        expected = {"completed": {"done": 200, "cancel": 409}, "cancelled": {"done": 409, "cancel": 200}}
        assert answers == expected[found["status"]]


def test_one_key_from_many_clients_at_all_nodes_makes_one_job(cluster: LocalCluster) -> None:
    """Case A12."""

    def submit(number: int) -> tuple[int, str]:
        fields = [("name", "once"), ("payload", {"x": 1, "y": 2})]
        body = dict(fields if number % 2 else reversed(fields))
        status, job = call(cluster.nodes[number % 3].api, "POST", "/api/v1/jobs", body, Idempotency_Key="the-key")
        return status, job["id"]

    with ThreadPoolExecutor(30) as threads:
        answers = list(threads.map(submit, range(30)))
    assert len({job_id for _, job_id in answers}) == 1
    assert sorted(status for status, _ in answers) == [200] * 29 + [201]
    leader = cluster.wait_for_leader()
    status, problem = call(leader.api, "POST", "/api/v1/jobs", {"name": "other"}, Idempotency_Key="the-key")
    assert (status, problem["code"]) == (422, "idempotency_mismatch")
    leader.kill()
    survivor = cluster.wait_for_leader()
    body = {"payload": {"y": 2, "x": 1}, "name": "once"}
    status, job = call(survivor.api, "POST", "/api/v1/jobs", body, Idempotency_Key="the-key")
    assert (status, job["id"]) == (200, answers[0][1])
    cluster.start_node(leader)
    cluster.wait_until_ready(leader)


@pytest.mark.essential
def test_the_command_line_submits_shows_lists_and_cancels(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, tmp_path: Path
) -> None:
    start_worker(cluster)
    environment = {"RAFTSCHED_URL": " ".join(cluster.urls)}
    submitted = run_cli("submit", "echo", '{"a": 1}', "--queue", queue, "--wait", "--json", **environment)
    job = json.loads(submitted.stdout)
    assert (job["status"], job["result"]) == ("completed", {"a": 1})
    shown = run_cli("get", job["id"], **environment)
    assert "completed" in shown.stdout
    lines = tmp_path / "jobs.jsonl"
    lines.write_text("".join(f'{{"name": "echo", "queue": "loaded", "payload": {n}}}\n' for n in range(1_200)))
    loaded = run_cli("submit", "--file", str(lines), **environment)
    assert (loaded.returncode, loaded.stdout) == (0, "1,200 submitted, 0 refused\n")
    listed = json.loads(run_cli("list", "--queue", "loaded", "--limit", "1100", "--json", **environment).stdout)
    assert len(listed) == 1_100
    cancelled = run_cli("cancel", listed[0]["id"], **environment)
    assert cancelled.stdout.split() == [listed[0]["id"], "cancelled"]
    refused = run_cli("get", "no-id", **environment)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "not_found" in refused.stderr
    status = json.loads(run_cli("cluster", "status", "--json", **environment).stdout)
    assert status["leader"] == cluster.wait_for_leader().id
    queues = json.loads(run_cli("queues", "--json", **environment).stdout)
    assert {each["name"] for each in queues} >= {queue, "loaded"}


def test_five_nodes_survive_the_loss_of_two(start_cluster: StartCluster, client_of: ClientOf) -> None:
    cluster = start_cluster(node_count=5)
    client = client_of(cluster)
    ids = [client.submit("echo", 1).id]
    lost = [cluster.wait_for_leader()]
    lost.append(next(node for node in cluster.nodes if node not in lost))
    for node in lost:
        node.kill()
    ids.append(client.submit("echo", 2).id)
    assert {job.id for job in client.list()} == set(ids)
    for node in lost:
        cluster.start_node(node)
        cluster.wait_until_ready(node)
