"""What operators say about queues: pauses, rates, limits, ageing, shares; and what `explain` tells of each (D33, D37)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.conftest import StartWorker
from tests.acceptance.http import ask, call, job_of, lease, reasons_of, report, submit

SETTINGS = {"lease_seconds": 15.0}
"""A lease that a test holds by hand outlasts the test."""
HIGH, LOW = 9, 0


def configure(base: str, queue: str, **settings: Any) -> None:
    ask(base, "PATCH", f"/queues/{queue}", settings)


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_a_paused_queue_gives_nothing_until_it_is_resumed_or_its_time_has_come(cluster: LocalCluster) -> None:
    base, other, _ = cluster.urls
    first, second = (submit(base, name="paused") for _ in range(2))
    ask(base, "POST", "/queues/paused/pause", {"reason": "maintenance"})
    assert lease(other, "w", "paused", wait=0) == []
    assert reasons_of(other, first["id"])["queue_paused"]["reason"] == "maintenance"
    assert ask(other, "GET", "/queues/paused")["settings"]["pause"]["until"] is None
    ask(other, "POST", "/queues/paused/resume")
    [granted] = lease(base, "w", "paused")
    assert granted["job_id"] == first["id"]
    pause = ask(base, "POST", "/queues/paused/pause", {"for_seconds": 1})["pause"]
    assert reasons_of(base, second["id"])["queue_paused"]["until"] == pause["until"]
    [granted] = lease(other, "w", "paused")  # nobody resumes it
    assert granted["job_id"] == second["id"]
    assert seconds(job_of(base, second["id"])["started_at"]) >= seconds(pause["until"])
    assert ask(other, "GET", "/queues/paused")["settings"]["pause"] is None


def test_a_rate_lets_a_burst_pass_and_then_so_many_a_second(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    burst, rate, count = 5, 5.0, 12
    configure(base, "rated", rate={"count": burst, "per_seconds": burst / rate, "burst": burst})
    jobs = [submit(base, name="rated") for _ in range(count)]
    taken = lease(base, "w", "rated", capacity=count, wait=0)
    assert len(taken) == burst
    details = reasons_of(base, jobs[-1]["id"])["rate_limited"]
    assert (details["rate_count"], details["rate_period_seconds"]) == (burst, burst / rate)
    while len(taken) < count:
        taken += lease(base, "w", "rated", capacity=count)
    assert [granted["job_id"] for granted in taken] == [job["id"] for job in jobs]
    started = [seconds(job_of(base, job["id"])["started_at"]) for job in jobs]
    for number, at in enumerate(started):
        assert number + 1 <= burst + rate * (at - started[0]) + 0.01


def test_jobs_of_a_region_are_run_by_its_workers_alone_and_keep_nobody_back(
    cluster: LocalCluster, start_worker: StartWorker, tmp_path: Path
) -> None:
    base, other, _ = cluster.urls
    for region in ("eu", "us", ""):
        start_worker(cluster, TEST_QUEUES="placed", **({"RAFTSCHED_REGION": region} if region else {}))
    nobody = submit(other, name="place", queue="placed", payload="ap", region="ap", priority=HIGH)
    jobs = [
        submit(base, name="place", queue="placed", payload=region or "any", region=region, priority=LOW)
        for region in ("eu", "us", None) * 8
    ]

    def are_done() -> bool:
        return all(job_of(base, job["id"])["status"] == "completed" for job in jobs)

    cluster.wait_until(are_done, what="the jobs of regions that have a worker")
    ran = [line.split() for line in (tmp_path / "places").read_text(encoding="utf-8").splitlines()]
    assert len(ran) == len(jobs)
    assert {(wanted, here) for wanted, here in ran if wanted != "any"} == {("eu", "eu"), ("us", "us")}

    def knows_all() -> bool:
        details = reasons_of(other, nobody["id"])["no_worker"]
        return (details["region"], details["worker_count"]) == ("ap", 3)

    cluster.wait_until(knows_all, what="explain to know three workers, none of them in the region")
    start_worker(cluster, TEST_QUEUES="placed", RAFTSCHED_REGION="ap")
    cluster.wait_until(lambda: job_of(other, nobody["id"])["status"] == "completed", what="its region's worker")


def test_a_queue_and_a_concurrency_key_let_so_many_run(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    configure(base, "limited", concurrency=2)
    jobs = [submit(base, name="limited") for _ in range(4)]
    running = lease(base, "w", "limited", capacity=4)
    assert [granted["job_id"] for granted in running] == [job["id"] for job in jobs[:2]]
    assert lease(base, "w", "limited", capacity=4, wait=0) == []
    assert reasons_of(base, jobs[2]["id"])["concurrency_limit"] == {
        "queue": "limited", "running_count": 2, "concurrency_max": 2,
    }  # fmt: skip
    report(base, "w", running[0])
    assert [granted["job_id"] for granted in lease(base, "w", "limited", capacity=4)] == [jobs[2]["id"]]

    keys = ["a", "a", "b", "a"]
    keyed = [submit(base, name="keyed", concurrency_key=key) for key in keys]
    running = lease(base, "w", "keyed", capacity=4)
    assert [granted["job_id"] for granted in running] == [keyed[0]["id"], keyed[2]["id"]]
    assert lease(base, "w", "keyed", capacity=4, wait=0) == []
    details = reasons_of(base, keyed[1]["id"])["key_limit"]
    assert (details["concurrency_key"], details["running_count"], details["key_concurrency_max"]) == ("a", 1, 1)
    report(base, "w", running[0])
    assert [granted["job_id"] for granted in lease(base, "w", "keyed", capacity=4)] == [keyed[1]["id"]]
    configure(base, "keyed", key_concurrency=2)
    assert [granted["job_id"] for granted in lease(base, "w", "keyed", capacity=4)] == [keyed[3]["id"]]


def test_low_priority_moves_on_under_a_stream_of_high_ones(cluster: LocalCluster) -> None:
    """Case D33: a waiting job gains a priority for each `ageing_seconds`, and equals keep the order of submission."""
    base = cluster.nodes[0].api
    ageing = 0.2
    configure(base, "aged", ageing_seconds=ageing)
    priorities: dict[str, int] = {}

    def add(priority: int) -> None:
        priorities[submit(base, name="aged", priority=priority)["id"]] = priority

    for _ in range(3):
        add(LOW)
    order: list[str] = []
    while sum(priorities[job_id] == LOW for job_id in order) < 3:
        for _ in range(2):  # more of them come than go, for ever
            add(HIGH)
        [granted] = lease(base, "w", "aged")
        report(base, "w", granted)
        order.append(granted["job_id"])
    due = {job_id: seconds(job_of(base, job_id)["run_at"]) for job_id in priorities}
    left = [job_id for job_id in priorities if job_id not in order]
    assert len(left) > 3
    for priority in (HIGH, LOW):
        assert [each for each in order if priorities[each] == priority] == [
            each for each in priorities if priorities[each] == priority and each in order
        ]
    for job_id in order:
        if priorities[job_id] == LOW:
            later = [each for each in order[order.index(job_id) :] + left if priorities[each] == HIGH]
            assert due[later[0]] >= due[job_id] + (HIGH - LOW) * ageing  # all older ones went before


def test_tenants_share_a_queue_by_their_weights(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    for tenant in ("big", "small"):  # the first has all of its jobs there before the other comes
        for _ in range(24):
            submit(base, name="shared", tenant=tenant)

    def shares(count: int) -> dict[str, int]:
        tenants = [granted["tenant"] for granted in lease(base, "w", "shared", capacity=count)]
        return {tenant: tenants.count(tenant) for tenant in ("big", "small")}

    assert shares(8) == {"big": 4, "small": 4}
    configure(base, "shared", weights={"big": 3, "small": 1})
    assert shares(16) == {"big": 12, "small": 4}


def test_cancelled_jobs_free_their_places(cluster: LocalCluster) -> None:
    """Case D37: two run, five wait in every way, all are cancelled in mixed order."""
    base = cluster.nodes[0].api
    configure(base, "freed", concurrency=2)
    key = {"by": ["key"], "key": "freed", "on_conflict": "reject"}
    running = [submit(base, name="freed", unique=key), submit(base, name="freed", concurrency_key="k")]
    told, forced = lease(base, "w", "freed", capacity=5)
    waiting = [
        submit(base, name="freed"),
        submit(base, name="freed", delay_seconds=3600),
        submit(base, name="freed", paused=True),
        submit(base, name="freed", concurrency_key="k"),
        submit(base, name="freed", depends_on=[running[0]["id"]]),
    ]
    assert call(base, "POST", "/api/v1/jobs", {"name": "freed", "unique": key})[1]["job_id"] == running[0]["id"]
    for job_id, query in (
        (waiting[3]["id"], ""),
        (told["job_id"], ""),
        (waiting[1]["id"], ""),
        (waiting[2]["id"], ""),
        (forced["job_id"], "?force=true"),
        (waiting[0]["id"], ""),
    ):
        ask(base, "DELETE", f"/jobs/{job_id}{query}")
    assert job_of(base, told["job_id"])["status"] == "cancelling"  # its worker holds the place until it has ended
    fresh = [submit(base, name="freed", concurrency_key="k"), submit(base, name="freed")]
    assert [granted["job_id"] for granted in lease(base, "w", "freed", capacity=5)] == [fresh[0]["id"]]
    report(base, "w", told)
    assert [granted["job_id"] for granted in lease(base, "w", "freed", capacity=5)] == [fresh[1]["id"]]
    submit(base, name="freed", queue="elsewhere", unique=key)
    statuses = [job_of(base, job["id"])["status"] for job in (*running, *waiting)]
    assert statuses == ["cancelled"] * 6 + ["skipped"]
    for job in fresh:
        ask(base, "DELETE", f"/jobs/{job['id']}?force=true")
    counts = ask(base, "GET", "/queues/freed")
    assert (counts["cancelled"], counts["skipped"]) == (8, 1)
    unfinished = ("scheduled", "waiting_dependencies", "queued", "running", "cancelling", "paused", "retrying")
    assert {name: counts[name] for name in unfinished} == dict.fromkeys(unfinished, 0)


def test_explain_names_all_that_stands_in_the_way(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    ask(base, "POST", "/queues/crowded/pause")
    parent = submit(base, name="crowded", delay_seconds=3600)
    child = submit(base, name="crowded", depends_on=[parent["id"]])
    assert set(reasons_of(base, parent["id"])) == {"not_due", "queue_paused", "no_worker"}
    reasons = reasons_of(base, child["id"])
    assert set(reasons) == {"waits_for_parents", "queue_paused", "no_worker"}
    assert [each["id"] for each in reasons["waits_for_parents"]["parents"]] == [parent["id"]]
    ask(base, "POST", f"/jobs/{child['id']}/pause", {"reason": "looking into it"}, Raftsched_Actor="ada")
    paused = reasons_of(base, child["id"])["paused"]
    assert (paused["by"], paused["reason"]) == ("ada", "looking into it")
