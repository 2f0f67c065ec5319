"""All nodes are lost under load, and the cluster is restored from a backup that was taken before (case D42).

    python -m tests.drills.backup --seconds 20

A follower makes the backup while jobs are submitted and run. Later all nodes are killed and their data is removed; the
worker keeps running. One node is restored, and the others join it. Then must hold:

- every job that was acknowledged up to the backup's index is there;
- no job that had finished by then runs again; those that were running end as lost, and are retried or dead-lettered;
- fencing tokens are higher than all before; reports of the old worker with its old tokens change nothing;
- schedules are paused, and fire again once they are resumed;
- a node with its old data takes part neither under the old name of the cluster nor under the new one;
- in the end all jobs are completed.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from raftsched.cli.local.cluster import LocalCluster, LocalNode
from tests.acceptance.http import all_pages, ask, call_once, job_of
from tests.drills.ledger import first_fire_time, ledger, save_grid
from tests.drills.processes import drill_cluster, started_worker

QUEUE: Final = "load"
HELD: Final = "held"
TICK: Final = "tick"
_BETWEEN_SUBMITS_SECONDS: Final = 0.01


class Load(threading.Thread):
    """Submits one job after the other to one node until the node is gone, and remembers what was acknowledged."""

    def __init__(self, node: LocalNode, name: str) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._name = name
        self._stopping = threading.Event()
        self.acknowledged: dict[str, int] = {}
        """Job id → revision of its submission."""

    def run(self) -> None:
        number = 0
        while not self._stopping.wait(_BETWEEN_SUBMITS_SECONDS):
            number += 1
            wanted = {"name": "mark", "queue": QUEUE, "payload": f"{self._name}-{number}", "max_attempts": 9}
            try:
                status, job = call_once(self._node.api, "POST", "/api/v1/jobs", wanted)
            except OSError:
                continue
            if status == 201:
                self.acknowledged[job["id"]] = job["revision"]

    def stop(self) -> None:
        self._stopping.set()
        self.join()


class Before(NamedTuple):
    """The facts of the old cluster."""

    manifest: dict[str, Any]
    acknowledged: set[str]
    """Jobs that were acknowledged up to the backup's index."""
    lost: set[str]
    """Jobs that were acknowledged later."""
    finished: dict[str, Any]
    """Jobs that had finished up to the backup's index."""
    token: int
    """The highest fencing token that was seen."""
    ran: Counter[str]
    """Executions by payload."""
    held: dict[str, str]
    """Jobs that were running, by their kind."""


def raftsched(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command, which must succeed."""
    command = [sys.executable, "-m", "raftsched", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)
    return ended


def executions(directory: Path) -> Counter[str]:
    """Return how often each job ran, by its payload."""
    path = directory / "ran"
    return Counter(path.read_text(encoding="utf-8").split()) if path.exists() else Counter()


def tokens(base: str, job_id: str) -> list[int]:
    """Return the fencing tokens of all attempts of a job."""
    runs = ask(base, "GET", f"/jobs/{job_id}/runs")["runs"]
    return [attempt["fencing_token"] for run in runs for attempt in run["attempts"]]


def hold(cluster: LocalCluster, base: str, **fields: Any) -> str:
    """Submit a job that runs until the file `go` appears; return its id once it runs."""
    wanted = {"name": "hold", "queue": HELD, "payload": {"until": "go"}, **fields}
    job_id: str = ask(base, "POST", "/jobs", wanted)["id"]
    cluster.wait_until(lambda: job_of(base, job_id)["status"] == "running", what="a job to run")
    return job_id


def take_backup(cluster: LocalCluster, file: Path, directory: Path, *, seconds: float) -> Before:
    """Have a follower make a backup under load, and go on for `seconds` before and after."""
    leader = cluster.wait_for_leader()
    base = leader.api
    follower = next(node for node in cluster.nodes if node is not leader)
    save_grid(base, TICK, period_seconds=1, start_s=first_fire_time(1))
    held = {kind: hold(cluster, base, start=kind) for kind in ("at_least_once", "at_most_once")}
    loads = [Load(node, node.id) for node in cluster.nodes]
    for load in loads:
        load.start()
    time.sleep(seconds)
    taken = raftsched("cluster", "backup", str(file), "--url", follower.api, "--json")
    manifest = json.loads(taken.stdout)
    time.sleep(seconds)
    for load in loads:
        load.stop()
    index = manifest["applied_index"]
    acknowledged = {job_id: at for load in loads for job_id, at in load.acknowledged.items()}
    completed = all_pages(base, f"/jobs?queue={QUEUE}&status=completed&limit=1000", "jobs")
    latest = max(completed, key=lambda job: str(job["completed_at"]))["id"]
    return Before(
        manifest,
        {job_id for job_id, at in acknowledged.items() if at <= index},
        {job_id for job_id, at in acknowledged.items() if at > index},
        {job["id"]: job for job in completed if job["revision"] <= index},
        max(tokens(base, latest) + tokens(base, held["at_least_once"])),
        executions(directory),
        held,
    )


def lose_all(cluster: LocalCluster, keep: Path) -> None:
    """Kill all nodes and remove their data; a copy of that of the last one goes to `keep`."""
    cluster.kill()
    cluster.nodes[-1].data_directory.rename(keep)
    for node in cluster.nodes[:-1]:
        shutil.rmtree(node.data_directory)


def restore(cluster: LocalCluster, file: Path) -> dict[str, Any]:
    """Restore the backup on the first node, and start it under the name of the new cluster; return the report."""
    first = cluster.nodes[0]
    api = first.api.removeprefix("http://")
    place = ("--data-dir", str(first.data_directory), "--node-id", first.id, "--raft", first.raft, "--api", api)
    restored: dict[str, Any] = json.loads(raftsched("restore", str(file), *place, "--json").stdout)
    rename(cluster, restored["cluster"])
    cluster.start_node(first)
    cluster.wait_until_ready(first)
    return restored


def rename(cluster: LocalCluster, name: str) -> None:
    """Set the name of the cluster in the settings of all nodes, and keep the old settings in `old.toml`."""
    text = cluster.config.read_text(encoding="utf-8")
    (cluster.directory / "old.toml").write_text(text, encoding="utf-8")
    others = re.sub(r'\Acluster = ".*"\n', "", text)
    cluster.config.write_text(f'cluster = "{name}"\n{others}', encoding="utf-8")


def join(cluster: LocalCluster, leader: LocalNode, node: LocalNode) -> None:
    """Start a node with an empty directory, and have it join."""
    shutil.rmtree(node.data_directory, ignore_errors=True)
    cluster.start_node(node)
    api = node.api.removeprefix("http://")
    raftsched("cluster", "add", node.id, "--raft", node.raft, "--api", api, "--url", leader.api)
    cluster.wait_until(lambda: votes(leader).get(node.id), what=f"{node.id} to vote")


def votes(node: LocalNode) -> dict[str, bool]:
    """id → whether it votes."""
    return {each["id"]: each["voter"] for each in node.get("/api/v1/cluster")["nodes"]}


def old_node_faults(cluster: LocalCluster, old_data: Path) -> Iterator[str]:
    """Start the last node with its old data, under both names; yield how it takes part in the new cluster."""
    leader, node = cluster.nodes[0], cluster.nodes[-1]
    old_data.rename(node.data_directory)
    node.own_config = cluster.directory / "old.toml"
    cluster.start_node(node)
    logs = [each.log_file for each in (leader, node)]
    cluster.wait_until(
        lambda: any("wrong_cluster" in log.read_text(encoding="utf-8") for log in logs), what="the node to be refused"
    )
    if node.is_ready():
        yield "a node with its old data and the old name serves"
    if set(votes(leader)) != {leader.id} or not leader.says_it_leads():
        yield f"the members are {votes(leader)}"
    node.kill()
    node.own_config = None
    cluster.start_node(node)
    if node.wait(30) == 0 or "wrong_directory" not in node.last_words():
        yield f"a node with its old data starts under the new name: {node.last_words()}"
    node.process = None


def faults(cluster: LocalCluster, before: Before, restored: dict[str, Any], directory: Path) -> Iterator[str]:
    """Yield what is wrong right after the restore."""
    base = cluster.nodes[0].api
    jobs = {job["id"]: job for job in all_pages(base, f"/jobs?queue={QUEUE}&limit=1000", "jobs")}
    if missing := before.acknowledged - jobs.keys():
        yield f"{len(missing)} jobs that were acknowledged before the backup are lost"
    if later := before.lost & jobs.keys():
        yield f"{len(later)} jobs are in the backup although they were acknowledged behind its index"
    shown = ("status", "completed_at", "attempt_number", "result", "revision")
    if changed := [
        job_id for job_id, old in before.finished.items() if any(jobs[job_id][name] != old[name] for name in shown)
    ]:
        yield f"{len(changed)} jobs that had finished have changed"
    if restored["fencing_token"] <= before.token:
        yield f"fencing tokens begin at {restored['fencing_token']}, and {before.token} was issued"
    schedule = ask(base, "GET", f"/schedules/{TICK}")
    if schedule["status"] != "paused" or "restored from the backup" not in schedule["pause"]["reason"]:
        yield f"the schedule is {schedule['status']}: {schedule['pause']}"
    for kind, job_id in before.held.items():
        first = ask(base, "GET", f"/jobs/{job_id}/runs")["runs"][0]["attempts"][0]
        if first["end"] != "worker_lost":
            yield f"{kind}: the attempt that was running ended as {first['end']}"
    once = job_of(base, before.held["at_most_once"])
    if once["status"] != "dead_letter":
        yield f"a job that starts at most once is {once['status']}"


def final_faults(cluster: LocalCluster, before: Before, directory: Path) -> Iterator[str]:
    """Run all to the end; yield what is wrong then."""
    base = cluster.wait_for_leader().api
    fired = len(ledger(base, TICK, 1))
    (directory / "go").touch()
    held = before.held["at_least_once"]

    def is_drained() -> bool:
        waiting = all_pages(base, f"/jobs?queue={QUEUE}&status=queued,scheduled,running,retrying&limit=1000", "jobs")
        return not waiting and job_of(base, held)["status"] == "completed"

    cluster.wait_until(is_drained, what="all jobs to be completed", seconds=120)
    if len(ledger(base, TICK, 1)) != fired:
        yield "the schedule fires although it is paused"
    ask(base, "POST", f"/schedules/{TICK}/resume")
    cluster.wait_until(lambda: len(ledger(base, TICK, 1)) > fired, what="the schedule to fire again")
    jobs = all_pages(base, f"/jobs?queue={QUEUE}&limit=1000", "jobs")
    if failed := [job["id"] for job in jobs if job["status"] != "completed"]:
        yield f"{len(failed)} jobs are not completed"
    ran = executions(directory)
    again = [job["payload"] for job in before.finished.values() if ran[job["payload"]] != before.ran[job["payload"]]]
    if again:
        yield f"{len(again)} jobs that had finished ran again: {again[:3]}"
    new = [token for job in jobs[:50] if job["id"] not in before.finished for token in tokens(base, job["id"])[-1:]]
    new += tokens(base, held)[-1:]
    if min(new) <= before.token:
        yield f"the token {min(new)} was issued after {before.token}"


def run(cluster: LocalCluster, directory: Path, *, seconds: float) -> tuple[str, list[str]]:
    """Do all of it; return a summary, and what is wrong. The cluster runs again in the end."""
    file, old_data = directory / "cluster.backup", directory / "old"
    worker = started_worker(cluster, directory, QUEUE, HELD)
    try:
        before = take_backup(cluster, file, directory, seconds=seconds)
        raftsched("cluster", "backup", "--verify", str(file))
        lose_all(cluster, old_data)
        began = time.monotonic()
        restored = restore(cluster, file)
        back_seconds = time.monotonic() - began
        found = list(faults(cluster, before, restored, directory))
        found += old_node_faults(cluster, old_data)
        for node in cluster.nodes[1:]:
            join(cluster, cluster.nodes[0], node)
        found += final_faults(cluster, before, directory)
    finally:
        worker.kill()
        worker.wait()
    summary = (
        f"{len(before.acknowledged)} jobs acknowledged up to the backup, {len(before.finished)} of them finished; "
        f"{len(before.lost)} acknowledged later are lost with the nodes; {restored['ended_leases']} attempts ended as lost; "
        f"the restored node served after {back_seconds:.1f} s"
    )
    return summary, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="Time under load before the backup, and after it.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="raftsched-backup-") as name, drill_cluster() as cluster:
        summary, found = run(cluster, Path(name), seconds=asked.seconds)
    print(summary)
    print("\n".join(found) or "nothing that was acknowledged before the backup is missing, and nothing ran again")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
