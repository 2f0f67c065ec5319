"""The cluster is gone for longer than a lease, and comes back: what became of the runs meanwhile.

Two workers: one as it comes, whose handlers stop when their leases are over by its clock, and one whose handlers may go
on (`WorkerSettings(stop_at_lease_end=False)`). How long an outage lasts is up to a handler, so nobody here counts seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from raftsched.cli.local.cluster import LocalCluster, LocalNode
from tests.acceptance.conftest import FAST, StartWorker
from tests.acceptance.http import ask, submit

STOPS, GOES_ON = "stops", "goes-on"
OUTAGE_SECONDS = 2.5 * FAST["lease_seconds"]  # type: ignore[operator]
Gone = Callable[[LocalCluster], list[LocalNode]]


def everybody(cluster: LocalCluster) -> list[LocalNode]:
    return cluster.nodes


def all_but_a_follower(cluster: LocalCluster) -> list[LocalNode]:
    """One node is left, and says that there is no leader."""
    leader = cluster.wait_for_leader()
    followers = [node for node in cluster.nodes if node is not leader]
    return [leader, followers[0]]


def ends_of(base: str, job: Any) -> list[str]:
    """How each attempt of a job ended."""
    return [
        attempt["end"] for run in ask(base, "GET", f"/jobs/{job['id']}/runs")["runs"] for attempt in run["attempts"]
    ]


def test_outage_longer_than_a_lease_is_no_lost_worker_and_handlers_that_may_go_on_finish_their_attempt(
    cluster: LocalCluster, start_worker: StartWorker, tmp_path: Path
) -> None:
    start_worker(cluster, TEST_QUEUES=STOPS)
    start_worker(cluster, TEST_QUEUES=GOES_ON, TEST_STOP_AT_LEASE_END="0")
    for gone in (everybody, all_but_a_follower):
        _go_through(cluster, gone, tmp_path)


def _go_through(cluster: LocalCluster, gone: Gone, directory: Path) -> None:
    base, name = cluster.nodes[0].api, gone.__name__
    until, after = f"go-{name}", f"gone-{name}"
    ends_meanwhile = {"after": after, "seconds": OUTAGE_SECONDS, "name": f"meanwhile-{name}"}

    def lines(file: str) -> list[str]:
        path = directory / file
        return path.read_text().splitlines() if path.exists() else []

    begun_count = len(lines("started")) + 3
    # A single lost worker would end any of them.
    stopped = submit(base, name="hold", payload={"until": until}, queue=STOPS, max_lost_workers=1)
    kept = submit(base, name="hold", payload={"until": until}, queue=GOES_ON, max_lost_workers=1)
    done_meanwhile = submit(base, name="outlast", payload=ends_meanwhile, queue=GOES_ON, max_lost_workers=1)
    cluster.wait_until(lambda: len(lines("started")) >= begun_count, what="three jobs to start")
    victims = gone(cluster)
    for node in victims:
        node.kill()
    (directory / after).touch()
    cluster.wait_until(lambda: f"meanwhile-{name}" in lines("ended"), what="a handler to end in the outage")
    cluster.start()
    cluster.wait_for_leader()
    # The stopped one is offered again a term after the outage: by then the kept one lives by heartbeats.
    cluster.wait_until(lambda: len(lines("started")) > begun_count, what="the second attempt of the stopped job")
    (directory / until).touch()

    jobs = (stopped, kept, done_meanwhile)

    def shown() -> list[Any]:
        return [ask(base, "GET", f"/jobs/{job['id']}") for job in jobs]

    cluster.wait_until(lambda: all(job["completed_at"] for job in shown()), what="all three to finish")
    assert [(job["status"], job["lost_count"], job["failure_count"]) for job in shown()] == [("completed", 0, 0)] * 3
    assert [ends_of(base, job) for job in jobs] == [["outage", "completed"], ["completed"], ["completed"]]
    assert len(lines("started")) == begun_count + 1
