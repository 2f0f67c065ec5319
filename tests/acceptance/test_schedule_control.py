"""What people make of schedules, through the command line of a real cluster, with a failover in between (D07, D08, D24)."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.conftest import run_cli
from tests.acceptance.http import all_pages, ask, call, lease, report
from tests.drills.ledger import decided_up_to, faults, first_fire_time, ledger, ms, save_grid

SETTINGS = {"lease_seconds": 15.0}
"""A lease that a test holds by hand outlasts some commands."""
FILE = """
schedules:
  - name: nightly
    cron: "0 3 * * *"
    timezone: Europe/Berlin
    job: &job {name: build_report, payload: {n: 1}}
  - name: yearly
    cron: "0 0 1 1 *"
    job: *job
"""


def cli(cluster: LocalCluster, *arguments: str, code: int = 0) -> Any:
    """Return the document that a command prints with `--json`."""
    ran = run_cli(*arguments, "--json", RAFTSCHED_URL=" ".join(cluster.urls), RAFTSCHED_ACTOR="ada")
    assert ran.returncode == code, ran.stdout + ran.stderr
    return json.loads(ran.stdout) if ran.stdout else ran.stderr


def fail_over(cluster: LocalCluster) -> None:
    """Kill the leader and start it again."""
    leader = cluster.wait_for_leader()
    leader.kill()
    cluster.wait_for_leader()
    cluster.start_node(leader)
    cluster.wait_until_ready(leader)


def test_a_file_of_schedules_is_compared_applied_and_pruned(cluster: LocalCluster, tmp_path: Path) -> None:
    base = cluster.nodes[0].api
    path = tmp_path / "schedules.yaml"

    def apply(text: str, *options: str, source: tuple[str, ...] = ("--source", "app"), code: int = 0) -> Any:
        path.write_text(text)
        return cli(cluster, "apply", "-f", str(path), "--tenant", "files", *source, *options, code=code)

    assert apply(FILE)["created"] == ["nightly", "yearly"]
    assert apply(FILE)["unchanged"] == ["nightly", "yearly"]
    later = FILE.replace("0 3 * * *", "0 4 * * *")
    change = {"name": "nightly", "changes": [{"field": "cron", "before": "0 3 * * *", "after": "0 4 * * *"}]}
    assert apply(later, "--dry-run")["changed"] == [change]
    assert ask(base, "GET", "/schedules/nightly?tenant=files")["cron"] == "0 3 * * *"
    assert apply(later)["changed"] == [change]
    alone = later[: later.index("  - name: yearly")]
    told = apply(alone.replace("0 4 * * *", "0 99 * * *"), "--prune", code=1)
    assert "schedules.yaml:4: nightly" in told
    assert apply(alone)["pruned"] == []
    assert "--source NAME" in " ".join(apply(alone, "--prune", source=(), code=2).split())
    body = {"schedules": [{"name": "a", "every": "1h", "job": {"name": "a"}}], "tenant": "files", "prune": True}
    status, refused = call(base, "PUT", "/api/v1/schedules", body)
    assert (status, refused["field"]) == (422, "source")
    assert apply(alone, "--prune", "--dry-run")["pruned"] == ["yearly"]
    listed = cli(cluster, "schedule", "list", "--tenant", "files")
    assert [(each["name"], each["cron"]) for each in listed] == [("nightly", "0 4 * * *"), ("yearly", "0 0 1 1 *")]
    assert apply(alone, "--prune")["pruned"] == ["yearly"]
    assert [each["name"] for each in ask(base, "GET", "/schedules?tenant=files")["schedules"]] == ["nightly"]
    audit = cli(cluster, "audit", "--subject", "schedule:yearly")
    assert [(each["actor"], each["action"]) for each in audit] == [
        ("ada", "schedule.delete"),
        ("ada", "schedule.create"),
    ]


def test_runs_by_hand_and_for_the_past_are_made_once(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    cli(cluster, "schedule", "create", "hourly", "by_hand", "--cron", "0 * * * *")
    now = datetime.now(UTC)
    asked = ("schedule", "trigger", "hourly", "--instant", now.isoformat())
    first = cli(cluster, *asked)
    assert cli(cluster, *asked)["job_id"] == first["job_id"]
    assert cli(cluster, "schedule", "trigger", "hourly", code=1)["reason"] == "overlap"
    [granted] = lease(base, "w", "by_hand")
    report(base, "w", granted)
    top = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    span = ("--from", (top - timedelta(hours=4)).isoformat(), "--to", top.isoformat())
    dry = cli(cluster, "schedule", "backfill", "hourly", *span, "--dry-run")
    assert (dry["run_count"], [each["action"] for each in dry["instants"]]) == (4, ["run"] * 4)
    assert len(ask(base, "GET", "/jobs?name=by_hand")["jobs"]) == 1
    assert cli(cluster, "schedule", "backfill", "hourly", *span)["run_count"] == 4
    again = cli(cluster, "schedule", "backfill", "hourly", *span)
    assert (again["run_count"], again["known_count"]) == (0, 4)
    for number in range(4):  # one after the other, the oldest first
        [granted] = lease(base, "w", "by_hand", capacity=9)
        assert ms(granted["instant"]) == ms((top - timedelta(hours=4 - number)).isoformat())
        report(base, "w", granted)
    kinds = [each["kind"] for each in ask(base, "GET", "/schedules/hourly/firings")["firings"]]
    assert sorted(kinds) == ["backfill"] * 4 + ["manual"] * 2  # that which was skipped, too


def test_three_processes_that_register_the_same_schedule_make_one(cluster: LocalCluster) -> None:
    """Case D24, with a failover in between."""
    base = cluster.nodes[0].api
    start = datetime.fromtimestamp(first_fire_time(1), UTC).isoformat()
    found = []
    for every in ("1s", "3s"):
        timing = ("--every", every, "--start-at", start, "--overlap", "allow")
        with ThreadPoolExecutor(3) as threads:
            created = [
                threads.submit(cli, cluster, "schedule", "create", "registered", "tick", *timing) for _ in range(3)
            ]
        found.append([each.result() for each in created])
        if every == "1s":
            fail_over(cluster)
            second_ms = round(datetime.fromisoformat(start).timestamp() * 1000) + 1_000
            decided_up_to(cluster, base, ["registered"], second_ms, seconds=30)
            again = ask(base, "GET", "/schedules/registered")
            assert (again["id"], again["every"]) == (found[0][0]["id"], "1s")
    assert len({each["id"] for round_ in found for each in round_}) == 1
    assert [{each["generation"] for each in round_} for round_ in found] == [{1}, {2}]
    assert [each["name"] for each in ask(base, "GET", "/schedules")["schedules"]].count("registered") == 1
    changed_ms = min(ms(each["updated_at"]) for each in found[-1])
    decided_up_to(cluster, base, ["registered"], changed_ms + 6_000, seconds=30)
    ask(base, "POST", "/schedules/registered/pause")
    lines = all_pages(base, "/schedules/registered/firings?order=asc&limit=1000", "firings")
    old = [ms(each["instant"]) for each in lines if each["generation"] == 1]
    new = [ms(each["instant"]) for each in lines if each["generation"] == 2]
    assert {later - earlier for earlier, later in pairwise(old)} == {1_000}
    assert {later - earlier for earlier, later in pairwise(new)} == {3_000}
    assert (new[0] - ms(start)) % 3_000 == 0
    assert old[-1] < new[0]


def test_a_changed_schedule_makes_up_nothing_of_its_new_past(cluster: LocalCluster) -> None:
    """Case D07."""
    base = cluster.nodes[0].api
    now = datetime.now(UTC)
    for minutes in (1, 2):
        past = now - timedelta(minutes=minutes)
        timing = {"cron": f"{past.minute} {past.hour} * * *"}
        saved = ask(base, "POST", "/schedules", {"name": "moved", "job": {"name": "tick"}, **timing})
        expected = past.replace(second=0, microsecond=0) + timedelta(days=1)
        assert ms(saved["next_at"]) == ms(expected.isoformat())
    assert cli(cluster, "schedule", "firings", "moved") == []


def test_of_two_who_change_what_they_read_one_is_refused_and_firings_refuse_nobody(cluster: LocalCluster) -> None:
    base = cluster.nodes[0].api
    start_s = first_fire_time(1)
    save_grid(base, "edited", period_seconds=1, start_s=start_s, job={"name": "edited"})
    read = ask(base, "GET", "/schedules/edited")

    def change(**changes: str) -> tuple[int, Any]:
        condition = f'"{read["changed_revision"]}"'
        return call(base, "PATCH", "/api/v1/schedules/edited", changes, If_Match=condition)

    decided_up_to(cluster, base, ["edited"], (start_s + 2) * 1000, seconds=30)
    status, first = change(misfire="run_all")
    assert (status, first["misfire"], first["generation"]) == (200, "run_all", 1)
    assert first["fired_count"] >= 3
    status, second = change(misfire="skip")
    assert (status, second["code"]) == (412, "stale_revision")
    read = ask(base, "GET", "/schedules/edited")
    assert read["misfire"] == "run_all"
    decided_up_to(cluster, base, ["edited"], ms(read["last_at"]) + 2_000, seconds=30)
    assert change(misfire="skip")[0] == 200
    ask(base, "POST", "/schedules/edited/pause")
    assert change(misfire="run_once")[0] == 412
    assert list(faults(base, "edited", ledger(base, "edited", 1), start_s=start_s, period_seconds=1)) == []


def test_changed_paused_and_deleted_schedules_stop_firing(cluster: LocalCluster) -> None:
    """Case D08."""
    base = cluster.nodes[0].api
    start_s = first_fire_time(1)
    body: dict[str, Any] = {
        "name": "stopped",
        "every": "1s",
        "start_at": datetime.fromtimestamp(start_s, UTC).isoformat(),
        "overlap": "allow",
        "job": {"name": "stopped"},
    }
    ids = {ask(base, "POST", "/schedules", body)["id"]}
    decided_up_to(cluster, base, ["stopped"], start_s * 1000, seconds=30)
    for number in range(10):
        ids.add(ask(base, "POST", "/schedules", body | {"job": {"name": "stopped", "payload": number}})["id"])
    assert len(ids) == 1
    decided_up_to(cluster, base, ["stopped"], int(time.time() + 1) * 1000, seconds=30)
    paused = ask(base, "POST", "/schedules/stopped/pause")
    paused_ms = ms(paused["updated_at"])
    fail_over(cluster)
    cluster.wait_until(lambda: time.time() * 1000 > paused_ms + 2_500, what="instants to pass")
    lines = ledger(base, "stopped", 1)
    assert list(faults(base, "stopped", lines, start_s=start_s, period_seconds=1)) == []
    assert max(line.fire_time_ms for line in lines) <= paused_ms
    [granted] = lease(base, "w", "stopped")
    ask(base, "POST", "/schedules/stopped/resume")
    cli(cluster, "schedule", "delete", "stopped")
    deleted_ms = time.time() * 1000
    assert report(base, "w", granted)[0] == 200  # what it has made goes on
    cluster.wait_until(lambda: time.time() * 1000 > deleted_ms + 2_500, what="instants to pass")
    jobs = all_pages(base, "/jobs?name=stopped&limit=1000", "jobs")
    assert max(ms(job["instant"]) for job in jobs) <= deleted_ms
    assert len({job["instant"] for job in jobs}) == len(jobs)
    assert [job["status"] for job in jobs].count("completed") == 1
    assert "not_found" in cli(cluster, "schedule", "get", "stopped", code=1)
