"""Processes are killed, paused and restarted; nothing that was acknowledged is lost, nothing is recorded twice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import BlockingClient
from tests.acceptance.conftest import StartCluster, StartWorker, has_line
from tests.acceptance.http import call, call_once, lease, report

ClientOf = Callable[[LocalCluster], BlockingClient]


def completed(cluster: LocalCluster, client: BlockingClient, ids: list[str]) -> None:
    """Return once every job is completed."""
    open_ids = list(ids)

    def done() -> bool:
        while open_ids and client.get(open_ids[-1]).status == "completed":
            open_ids.pop()
        return not open_ids

    cluster.wait_until(done, what="all jobs to complete", seconds=60)


_BETWEEN_SUBMITS_SECONDS = 0.01
"""So that most of the machine is left to what is under test."""


class Submitter(threading.Thread):
    """Submits one after the other until stopped, and remembers what was acknowledged."""

    def __init__(self, client: BlockingClient, queue: str) -> None:
        super().__init__()
        self._client = client
        self._queue = queue
        self._stopping = threading.Event()
        self.acknowledged: list[str] = []

    def run(self) -> None:
        while not self._stopping.wait(_BETWEEN_SUBMITS_SECONDS):
            self.acknowledged.append(self._client.submit("echo", len(self.acknowledged), queue=self._queue).id)

    def wait_for(self, cluster: LocalCluster, count: int) -> None:
        """Return once more than `count` jobs are acknowledged."""
        cluster.wait_until(lambda: len(self.acknowledged) > count, what=f"more than {count} jobs")

    def stop(self) -> list[str]:
        self._stopping.set()
        self.join()
        return self.acknowledged


@pytest.mark.essential
def test_killing_the_leader_loses_no_acknowledged_job(
    cluster: LocalCluster, start_worker: StartWorker, client_of: ClientOf, queue: str
) -> None:
    client = client_of(cluster)
    start_worker(cluster)
    submitter = Submitter(client, queue)
    submitter.start()
    for _ in range(3):
        leader = cluster.wait_for_leader()
        count = len(submitter.acknowledged)
        submitter.wait_for(cluster, count + 50)
        leader.kill()
        cluster.wait_for_leader()
        cluster.start_node(leader)
        cluster.wait_until_ready(leader)
    ids = submitter.stop()
    completed(cluster, client, ids)
    results = [client.get(job_id).result for job_id in ids]
    assert results == list(range(len(ids)))


def test_killing_a_follower_disturbs_nobody(
    cluster: LocalCluster, start_worker: StartWorker, client_of: ClientOf, queue: str
) -> None:
    client = client_of(cluster)
    start_worker(cluster)
    leader = cluster.wait_for_leader()
    follower = next(node for node in cluster.nodes if node is not leader)
    submitter = Submitter(client, queue)
    submitter.start()
    follower.kill()
    cluster.wait_until(lambda: len(submitter.acknowledged) > 100, what="100 jobs without the follower")
    assert cluster.wait_for_leader() is leader
    cluster.start_node(follower)
    cluster.wait_until_ready(follower)
    completed(cluster, client, submitter.stop())


@pytest.mark.essential
def test_a_killed_workers_jobs_run_elsewhere(
    cluster: LocalCluster, start_worker: StartWorker, client_of: ClientOf, queue: str, tmp_path: Path
) -> None:
    client = client_of(cluster)
    worker = start_worker(cluster)
    job = client.submit("hold", {"until": "go"}, queue=queue)
    cluster.wait_until(partial(has_line, tmp_path / "started"), what="the job to start")
    worker.kill()
    worker.wait()
    (tmp_path / "go").touch()
    start_worker(cluster)
    token = job.wait(timeout=30)
    first = int((tmp_path / "started").read_text().split()[1])
    assert token > first
    assert job.get().attempt_number == 2


def test_three_killed_workers_end_a_job_unless_it_or_its_queue_allows_for_more(
    cluster: LocalCluster, start_worker: StartWorker, client_of: ClientOf, queue: str
) -> None:
    """Case N04: long jobs on machines that are taken away again."""
    client = client_of(cluster)
    spot = f"{queue}-spot"
    client.queue(spot).configure(max_lost_workers=1_000_000)
    until = {"until": "never"}
    plain = client.submit("hold", until, queue=queue, max_attempts=20)
    own = client.submit("hold", until, queue=queue, max_attempts=20, max_lost_workers=4)
    of_queue = client.submit("hold", until, queue=spot, max_attempts=20)
    jobs = (plain, own, of_queue)

    def are(field: str, value: object) -> bool:
        return all(getattr(client.get(job.id), field) == value for job in jobs)

    for count in range(1, 4):
        worker = start_worker(cluster, TEST_QUEUES=f"{queue} {spot}")
        cluster.wait_until(lambda: are("status", "running"), what="the jobs to run", seconds=60)
        worker.kill()
        cluster.wait_until(partial(are, "lost_count", count), what=f"loss {count} to be noticed", seconds=60)
    ended = client.get(plain.id)
    assert (ended.status, ended.failure_reason, ended.max_lost_workers) == ("dead_letter", "worker_lost", 3)
    assert ended.error is not None
    assert "set max_lost_workers of its queue" in ended.error.message
    waiting = [client.get(job.id) for job in (own, of_queue)]
    assert [job.max_lost_workers for job in waiting] == [4, 1_000_000]
    assert {job.status for job in waiting} <= {"retrying", "queued"}


def test_a_frozen_worker_learns_that_it_lost_its_job_and_changes_nothing(
    cluster: LocalCluster, start_worker: StartWorker, client_of: ClientOf, queue: str, tmp_path: Path
) -> None:
    client = client_of(cluster)
    frozen = start_worker(cluster)
    job = client.submit("hold", {"until": "go"}, queue=queue)
    cluster.wait_until(partial(has_line, tmp_path / "started"), what="the job to start")
    frozen.send_signal(signal.SIGSTOP)
    start_worker(cluster)
    cluster.wait_until(
        lambda: len((tmp_path / "started").read_text().splitlines()) == 2, what="the second attempt", seconds=30
    )
    (tmp_path / "go").touch()
    token = job.wait(timeout=30)
    before = job.get()
    frozen.send_signal(signal.SIGCONT)
    log = tmp_path / "worker0.log"
    cluster.wait_until(
        lambda: "run_stopped" in log.read_text() or "outcome_refused" in log.read_text(),
        what="the frozen worker to learn of it",
        seconds=30,
    )
    # It takes new work again, so nothing of the old is under way any more.
    client.submit("echo", 1, queue=queue).wait(timeout=30)
    assert job.get() == before
    assert before.result == token


def test_an_old_token_is_refused_with_409_and_changes_nothing(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    _, job = call(base, "POST", "/api/v1/jobs", {"name": "raw"})
    [old] = lease(base, "frozen", "raw")
    [new] = lease(base, "second", "raw", wait=20)
    assert (new["run_id"], new["attempt_number"]) == (old["run_id"], 2)
    assert new["fencing_token"] > old["fencing_token"]
    status, problem = report(base, "frozen", old, result="late")
    assert (status, problem["code"]) == (409, "lease_lost")
    _, beat = call(
        base,
        "POST",
        "/api/v1/leases/heartbeat",
        {"worker": "frozen", "leases": [{"run_id": old["run_id"], "fencing_token": old["fencing_token"]}]},
    )
    assert beat["leases"][0]["valid"] is False
    status, _ = report(base, "second", new, result="right")
    assert status == 200
    status, problem = report(base, "frozen", old, result="late")
    assert (status, problem["code"]) == (409, "lease_lost")
    _, found = call(base, "GET", f"/api/v1/jobs/{job['id']}")
    assert (found["status"], found["result"]) == ("completed", "right")


def test_a_follower_away_past_log_compaction_catches_up_by_snapshot(
    start_cluster: StartCluster, client_of: ClientOf
) -> None:
    cluster = start_cluster(journal_tail_bytes=64 << 10, journal_segment_bytes=64 << 10)
    client = client_of(cluster)
    leader = cluster.wait_for_leader()
    follower = next(node for node in cluster.nodes if node is not leader)
    first = min((leader.data_directory / "journal").glob("*.segment"))
    follower.kill()
    jobs = [{"name": "later", "payload": "x" * 2_000, "delay_seconds": 3600} for _ in range(1_500)]
    results = client.submit_many(jobs)
    ids = {result.id for result in results if not isinstance(result, Exception)}
    assert len(ids) == len(jobs)
    cluster.wait_until(lambda: not first.exists(), what="the log to be cut behind a checkpoint")
    cluster.start_node(follower)
    cluster.wait_until_ready(follower)
    applied = _applied(leader.get("/api/v1/cluster"), leader.id)
    cluster.wait_until(
        lambda: _applied(follower.get("/api/v1/cluster"), follower.id) >= applied, what="the follower to catch up"
    )
    assert "snapshot_installed" in follower.log_file.read_text()
    found = set()
    cursor = ""
    while True:
        page = follower.get(f"/api/v1/jobs?consistency=stale&limit=1000{cursor}")
        found |= {job["id"] for job in page["jobs"]}
        if not page.get("next_cursor"):
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == ids


def _applied(status: dict[str, list[dict[str, int | str]]], node_id: str) -> int:
    return int(next(node["applied"] for node in status["nodes"] if node["id"] == node_id) or 0)


def test_stopping_the_leader_transfers_without_an_election_timeout(
    start_cluster: StartCluster, client_of: ClientOf
) -> None:
    cluster = start_cluster(election_seconds_min=10.0, election_seconds_max=12.0)
    client = client_of(cluster)
    client.submit("echo", 1)
    leader = cluster.wait_for_leader()
    assert leader.stop() == 0
    # Sooner than the election timeout of this cluster could bring a new leader.
    assert cluster.wait_for_leader(seconds=8) is not leader
    client.submit("echo", 2)
    cluster.start_node(leader)
    cluster.wait_until_ready(leader)


def test_a_minority_refuses_and_says_when_to_retry(cluster: LocalCluster) -> None:
    leader = cluster.wait_for_leader()
    others = [node for node in cluster.nodes if node is not leader]
    for node in others:
        node.kill()

    def refused() -> bool:
        status, problem = call_once(leader.api, "POST", "/api/v1/jobs", {"name": "lonely"})
        return status == 503 and problem["code"] in {"not_leader", "unavailable", "outcome_unknown"}

    cluster.wait_until(refused, what="the lonely node to refuse")
    status, _ = call(leader.api, "GET", "/api/v1/jobs?consistency=stale")
    assert status == 200
    for node in others:
        cluster.start_node(node)
    cluster.wait_for_leader()
    for node in cluster.nodes:
        cluster.wait_until_ready(node)
