"""Commands of a crontab, registered with a real cluster that loses its leader."""

from __future__ import annotations

import os
import subprocess
import sys

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.http import ask


def test_command_is_recorded_once_although_the_leader_is_killed_while_it_runs(
    cluster: LocalCluster, queue: str
) -> None:
    script = 'echo "$RAFTSCHED_JOB_ID"; read line; echo "$line"; exit 3'
    options = ["--name", queue, "--on-failure", f'{{"name": "{queue}-hook"}}']
    with subprocess.Popen(
        [sys.executable, "-m", "raftsched", "run", *options, "sh", "-c", script],
        env=os.environ | {"RAFTSCHED_URL": " ".join(cluster.urls)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        job_id = process.stdout.readline().strip()
        leader = cluster.wait_for_leader()
        leader.kill()
        others = [node for node in cluster.nodes if node is not leader]
        stdout, stderr = process.communicate("done\n", timeout=60)
    assert (process.returncode, stdout, stderr) == (3, "done\n", "")
    job = ask(others[0].api, "GET", f"/jobs/{job_id}")
    assert (job["status"], job["attempt_number"], job["lost_count"]) == ("dead_letter", 1, 0)
    assert [line for line in ask(others[0].api, "GET", f"/jobs/{job_id}/logs")["text"].splitlines() if "done" in line]
    hooks = ask(others[0].api, "GET", f"/jobs?name={queue}-hook")["jobs"]
    assert [hook["hook_of"] for hook in hooks] == [job_id]
