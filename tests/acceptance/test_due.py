"""What is due comes neither early, nor twice, nor not at all (cases D15, D16, D25)."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import BlockingClient
from tests.acceptance.conftest import StartWorker
from tests.acceptance.http import all_pages, ask
from tests.acceptance.test_failures import completed
from tests.drills.ledger import ms

_PERIOD_MS = 1_000
_FROZEN_SECONDS = 3.0
_DELAYED_COUNT = 200
_DELAY_SECONDS = 6.0
"""Three times the lease of this module's cluster."""


def lines_of(base: str, name: str) -> list[Any]:
    """The schedule's ledger, the oldest line first."""
    return all_pages(base, f"/schedules/{name}/firings?order=asc&limit=1000", "firings")


def test_fire_times_that_find_the_leader_frozen_fire_late_and_say_how_late(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    document = {"name": "d15", "every": "1s", "overlap": "allow", "misfire": "run_all", "job": {"name": "d15"}}
    ask(base, "POST", "/schedules", document)
    leader = cluster.wait_for_leader()
    asked = next(node for node in cluster.nodes if node is not leader)
    cluster.wait_until(lambda: lines_of(asked.api, "d15"), what="the first instant")
    leader.signal(signal.SIGSTOP)
    frozen_at_ms = time.time_ns() // 1_000_000
    time.sleep(_FROZEN_SECONDS)  # what is tested is what happens in this time
    leader.signal(signal.SIGCONT)
    thawed_at_ms = time.time_ns() // 1_000_000
    cluster.wait_until(
        lambda: ms(lines_of(asked.api, "d15")[-1]["instant"]) > thawed_at_ms, what="an instant behind the freeze"
    )
    lines = lines_of(asked.api, "d15")
    fire_times = [ms(line["instant"]) for line in lines]
    assert fire_times == list(range(fire_times[0], fire_times[-1] + 1, _PERIOD_MS)), "each instant has its line"
    assert all(line["fired"] for line in lines)
    meanwhile = [line for line in lines if frozen_at_ms < ms(line["instant"]) < thawed_at_ms]
    assert len(meanwhile) >= _FROZEN_SECONDS - 1
    assert all(line["lateness_ms"] == ms(line["decided_at"]) - ms(line["instant"]) for line in meanwhile)
    ask(asked.api, "POST", "/schedules/d15/pause", {})


def test_delayed_jobs_outlast_short_leases_and_workers_that_come_and_go(
    cluster: LocalCluster, start_worker: StartWorker
) -> None:
    queue = {"TEST_QUEUES": "d16"}
    short_lived, _ = (start_worker(cluster, **queue) for _ in range(2))
    with BlockingClient(*cluster.urls) as client:
        wanted = [
            {"name": "echo", "queue": "d16", "payload": number, "delay_seconds": _DELAY_SECONDS}
            for number in range(_DELAYED_COUNT)
        ]
        jobs = [job for job in client.submit_many(wanted) if not isinstance(job, Exception)]
        assert len(jobs) == _DELAYED_COUNT
        short_lived.kill()
        start_worker(cluster, **queue)
        completed(cluster, client, [job.id for job in jobs])
    ended = [ask(cluster.nodes[0].api, "GET", f"/jobs/{job.id}") for job in jobs]
    assert [job["result"] for job in ended] == list(range(_DELAYED_COUNT))
    assert {job["attempt_number"] for job in ended} == {1}
    assert all(ms(job["started_at"]) >= ms(job["run_at"]) for job in ended)


@pytest.mark.essential
def test_schedules_that_differ_in_nothing_but_name_and_payload_both_run(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    for name in ("d25a", "d25b"):
        job = {"name": "d25", "payload": {"of": name}}
        document = {"name": name, "cron": "* * * * * *", "overlap": "allow", "job": job}
        ask(base, "POST", "/schedules", document)

    def fired() -> list[dict[int, str]]:
        lines = (lines_of(base, name) for name in ("d25a", "d25b"))
        return [{ms(line["instant"]): line["job_id"] for line in found if line["fired"]} for found in lines]

    cluster.wait_until(lambda: len(set.intersection(*map(set, fired()))) >= 2, what="two instants of both")
    for name in ("d25a", "d25b"):
        ask(base, "POST", f"/schedules/{name}/pause", {})
    one, other = fired()
    for fire_time_ms in one.keys() & other.keys():
        jobs: list[Any] = [ask(base, "GET", f"/jobs/{found[fire_time_ms]}") for found in (one, other)]
        assert [job["payload"] for job in jobs] == [{"of": "d25a"}, {"of": "d25b"}]
