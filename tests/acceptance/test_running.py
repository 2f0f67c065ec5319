"""What workers say while they run a job, and what becomes of it when they fall silent (W16, RELIABILITY G5)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.conftest import StartWorker, has_line, run_cli
from tests.acceptance.http import ask, call, job_of, lease, submit


def ended(cluster: LocalCluster, job_id: str, *statuses: str) -> dict[str, object]:
    """Return the job once it has ended, which must be in one of `statuses`."""
    final = {"completed", "dead_letter", "cancelled", "skipped"}
    base = cluster.nodes[0].api
    cluster.wait_until(lambda: job_of(base, job_id)["status"] in final, what="the job to end", seconds=40)
    job: dict[str, object] = job_of(base, job_id)
    assert job["status"] in statuses, job
    return job


def test_a_job_that_starts_at_most_once_never_runs_again_when_its_worker_is_killed(
    cluster: LocalCluster, start_worker: StartWorker, tmp_path: Path
) -> None:
    base = cluster.nodes[0].api
    worker = start_worker(cluster, TEST_QUEUES="once")
    job = submit(base, name="hold", queue="once", payload={"until": "go"}, start="at_most_once", max_attempts=5)
    cluster.wait_until(partial(has_line, tmp_path / "started"), what="the job to start")
    worker.kill()
    worker.wait()
    (tmp_path / "go").touch()
    start_worker(cluster, TEST_QUEUES="once")
    found = ended(cluster, job["id"], "dead_letter")
    assert found["failure_reason"] == "worker_lost: it starts at most once, and had started"
    assert found["attempt_number"] == 1
    after = submit(base, name="mark", queue="once", payload="x", start="at_most_once")
    ended(cluster, after["id"], "completed")  # the second worker is there, and had nothing to do before
    assert len((tmp_path / "started").read_text().splitlines()) == 1


def test_an_at_most_once_job_that_was_leased_but_never_begun_goes_to_another_worker(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    submit(base, name="unbegun", start="at_most_once")
    [silent] = lease(base, "silent", "unbegun")
    [second] = lease(base, "second", "unbegun", wait=20)
    token = {"fencing_token": silent["fencing_token"]}
    assert call(base, "POST", f"/api/v1/runs/{silent['run_id']}/start", token)[0] == 409
    token = {"fencing_token": second["fencing_token"]}
    assert ask(base, "POST", f"/runs/{second['run_id']}/start", token)["started"]
    assert lease(base, "third", "unbegun", wait=5) == []  # more than its lease of 2 s


def test_logs_of_two_attempts_stay_apart(cluster: LocalCluster) -> None:
    """Case W16."""
    base, other, _ = cluster.urls
    job = submit(base, name="logged")
    [first] = lease(base, "first", "logged")
    path = f"/api/v1/runs/{first['run_id']}"

    def write(base: str, granted: dict[str, int], line: str) -> int:
        body = {"fencing_token": granted["fencing_token"], "lines": [line]}
        return call(base, "POST", f"{path}/logs", body)[0]

    assert [write(base, first, f"A{number}") for number in range(1, 6)] == [200] * 5
    [second] = lease(other, "second", "logged", wait=20)  # the first says no more
    assert write(other, second, "B1") == 200
    assert write(base, first, "A6") == 409
    old = {"fencing_token": first["fencing_token"], "progress": "A"}
    assert call(base, "POST", f"{path}/progress", old)[0] == 409
    new = {"fencing_token": second["fencing_token"], "progress": "B"}
    assert call(base, "POST", f"{path}/progress", new)[0] == 200
    assert [write(other, second, f"B{number}") for number in range(2, 6)] == [200] * 4
    for node in cluster.urls:
        texts = [ask(node, "GET", f"/jobs/{job['id']}/logs?attempt={number}")["text"] for number in (1, 2)]
        assert texts == ["A1\nA2\nA3\nA4\nA5\n", "B1\nB2\nB3\nB4\nB5\n"]
    assert job_of(base, job["id"])["progress"] == "B"


def test_a_handler_that_falls_silent_is_ended_and_one_that_beats_is_not(
    cluster: LocalCluster, start_worker: StartWorker
) -> None:
    base = cluster.nodes[0].api
    start_worker(cluster, TEST_QUEUES="beats")
    silent = submit(
        base, name="beat", queue="beats", payload={"every": 60, "seconds": 60}, heartbeat_timeout_seconds=1.5,
        max_attempts=1,
    )  # fmt: skip
    beating = submit(
        base, name="beat", queue="beats", payload={"every": 0.1, "seconds": 5}, heartbeat_timeout_seconds=1.5
    )
    assert ended(cluster, silent["id"], "dead_letter")["failure_reason"] == "timeout"
    found = ended(cluster, beating["id"], "completed")
    assert found["attempt_number"] == 1


def test_tail_follows_a_job_through_its_attempts_to_its_end(
    cluster: LocalCluster, start_worker: StartWorker, tmp_path: Path
) -> None:
    base = cluster.nodes[0].api
    start_worker(cluster, TEST_QUEUES="told")
    payload = {"lines": 3, "failures": 1, "until": "enough"}
    policy = {"backoff": "fixed", "base_seconds": 0.1}
    job = submit(base, name="tell", queue="told", payload=payload, retry_policy=policy, paused=True)
    urls = {"RAFTSCHED_URL": " ".join(cluster.urls)}
    command = [sys.executable, "-m", "raftsched", "tail", job["id"], "--json"]
    with subprocess.Popen(command, env=os.environ | urls, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        first = tail.stdout.readline()  # it is there now, before the first attempt
        ask(base, "POST", f"/jobs/{job['id']}/resume")
        try:
            cluster.wait_until(
                lambda: job_of(base, job["id"])["progress"] == {"attempt": 2, "done": 3}, what="its progress"
            )
        finally:
            (tmp_path / "enough").touch()
        rest = tail.stdout.read()
    assert tail.returncode == 0
    events = [json.loads(line) for line in (first + rest).splitlines()]
    logged = dict.fromkeys((1, 2), "")
    for event in events:
        if event["event"] == "log":
            logged[event["attempt_number"]] += event["text"]
    for number, text in logged.items():
        lines = [f"attempt {number} line {count}" for count in range(3)]
        assert [line for line in text.splitlines() if line.startswith("attempt ")] == lines
    assert events[-1]["event"] in ("status", "progress")
    assert [event["status"] for event in events if event["event"] == "status"][-1] == "completed"
    printed = run_cli("logs", job["id"], "--attempt", "1", **urls)
    assert printed.stdout == logged[1]
