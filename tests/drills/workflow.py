"""A workflow of many jobs is run by real workers, and the leader is killed half-way: every job runs once, in order.

python -m tests.drills.workflow --jobs 10000 --workers 2
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raftsched.cli.local.cluster import LocalCluster, LocalNode
from tests.acceptance.http import ask, call
from tests.drills.processes import drill_cluster, started_worker

WIDTH = 100
"""Jobs of one layer; each depends on two of the layer before."""
SECONDS_MAX = 1_200.0


def layered(job_count: int, queue: str) -> dict[str, Any]:
    """Return the jobs of a workflow by task name; each marks its name."""
    jobs: dict[str, Any] = {}
    for number in range(job_count):
        layer, place = divmod(number, WIDTH)
        parents = {(layer - 1) * WIDTH + (place + step) % WIDTH for step in (0, 1)} if layer else set()
        jobs[f"t{number}"] = {
            "name": "mark",
            "queue": queue,
            "payload": f"t{number}",
            "depends_on": [f"t{parent}" for parent in sorted(parents)],
        }
    return jobs


def run(cluster: LocalCluster, job_count: int, ran: Path, queue: str) -> list[str]:
    """Submit a workflow and kill the leader when half of it has run; return what is wrong with what was recorded.

    `ran` is the file in which the workers write down each job that they run.
    """
    base = cluster.nodes[0].api
    body = {"name": "layers", "jobs": layered(job_count, queue)}
    status, workflow = call(base, "POST", "/api/v1/workflows", body, Idempotency_Key=queue, timeout=60)
    assert status == 201, workflow
    path = f"/workflows/{workflow['id']}"
    done_at(cluster, base, path, job_count // 2)
    killed = cluster.wait_for_leader()
    killed.kill()
    survivor = next(node for node in cluster.nodes if node is not killed)
    cluster.wait_for_leader()
    cluster.start_node(killed)
    cluster.wait_until_ready(killed)
    done_at(cluster, survivor.api, path, job_count)
    return list(faults(survivor, path, workflow, ran))


def done_at(cluster: LocalCluster, base: str, path: str, count: int) -> None:
    """Return once so many jobs have completed."""

    def enough() -> bool:
        return bool(ask(base, "GET", f"{path}?limit=1")["completed_count"] >= count)

    cluster.wait_until(enough, what=f"{count} jobs to complete", seconds=SECONDS_MAX)


def faults(node: LocalNode, path: str, workflow: Any, ran: Path) -> Iterator[str]:
    """Yield what must not be: a job that ran twice or never, before its parents, or that is not completed."""
    jobs: dict[str, str] = workflow["jobs"]
    counts = Counter(ran.read_text().split())
    yield from (f"{task} ran {counts[task]} times" for task in jobs if counts[task] != 1)
    nodes: dict[str, Any] = {}
    edges: list[Any] = []
    cursor = ""
    while True:
        page = ask(node.api, "GET", f"{path}?limit=1000{cursor}")
        nodes |= {each["id"]: each for each in page["nodes"]}
        edges += page["edges"]
        if not page["next_cursor"]:
            break
        cursor = f"&cursor={page['next_cursor']}"
    if set(nodes) != set(jobs.values()):
        yield f"the graph has {len(nodes)} jobs, not the {len(jobs)} that were submitted"
    if (page["status"], page["completed_count"], page["unfinished_count"]) != ("completed", len(jobs), 0):
        yield f"the workflow counts {page}"
    yield from (f"{each['task']} is {each['status']}" for each in nodes.values() if each["status"] != "completed")
    expected = sum(2 for number in range(len(jobs)) if number >= WIDTH)
    if len(edges) != expected:
        yield f"the graph has {len(edges)} edges, not {expected}"
    for edge in edges:
        parent, child = nodes[edge["parent"]], nodes[edge["child"]]
        if child["started_at"] < parent["completed_at"]:
            yield f"{child['task']} began before {parent['task']} had ended"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    with drill_cluster() as cluster:
        workers = [started_worker(cluster, cluster.directory, "layers") for _ in range(asked.workers)]
        try:
            began = time.monotonic()
            found = run(cluster, asked.jobs, cluster.directory / "ran", "layers")
            print(f"{asked.jobs} jobs in {time.monotonic() - began:.1f} s, the leader killed half-way")
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    print("\n".join(found[:50]) or "every job ran once, after its parents")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
