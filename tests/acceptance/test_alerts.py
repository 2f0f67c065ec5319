"""Each alert fires by the fault that it is for, made on a real cluster, whose nodes are scraped."""

from __future__ import annotations

import signal
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from operator import le
from pathlib import Path
from typing import NamedTuple

import pytest

from raftsched import limits
from raftsched.cli.local.cluster import HOST, LocalCluster, LocalNode
from raftsched.metrics.catalog import METRICS, Scope
from tests import tiers
from tests.acceptance.conftest import FAST, StartWorker, run_cli
from tests.acceptance.http import ask, lease, report, submit
from tests.metrics.alerting import Timeline, promtool
from tests.metrics.scene import scraped
from tests.secured import SecuredCluster
from tests.small_disk import SmallDiskNode


def read(node: LocalNode) -> str | None:
    """The metrics of a node; None if it does not answer."""
    tls = ssl.create_default_context(cafile=node.ca_file) if node.ca_file else None
    try:
        with urllib.request.urlopen(f"{node.api}/metrics", timeout=2, context=tls) as reply:
            return str(reply.read().decode())
    except OSError:
        return None


def scrape(cluster: LocalCluster) -> dict[str, str | None]:
    return {node.id: read(node) for node in cluster.nodes}


def value_of(cluster: LocalCluster, series: str) -> float | None:
    """The value of a series on the node that has it; None if none has."""
    found = (scraped(text or "").get(series) for text in scrape(cluster).values())
    return next((value for value in found if value is not None), None)


def wait_for(cluster: LocalCluster, series: str, holds: Callable[[float], bool] = bool) -> None:
    def probe() -> bool:
        value = value_of(cluster, series)
        return value is not None and holds(value)

    cluster.wait_until(probe, what=f"{series}")


def names(text: str) -> set[str]:
    """The metrics of a scrape."""
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


def followers(cluster: LocalCluster) -> list[LocalNode]:
    leader = cluster.wait_for_leader()
    return [node for node in cluster.nodes if node is not leader]


@pytest.fixture
def timeline(cluster: LocalCluster) -> Timeline:
    """Begins with a scrape of the whole cluster."""
    cluster.wait_for_leader()
    wait_for(cluster, "raftsched_workers", lambda _: True)
    timeline = Timeline()
    timeline.add(0, scrape(cluster))
    return timeline


class OneNode(SecuredCluster):
    """A node by itself, with a small disk, and a certificate that can be replaced by a shorter one."""

    node_type = SmallDiskNode


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    settings = FAST | {"disk_reserve_mib": 0}
    with OneNode(tmp_path_factory.mktemp("one") / "node", node_count=1, settings=settings) as cluster:
        with tiers.shared():
            cluster.wait_for_leader()
        yield cluster


def test_disk_that_is_nearly_full(one_node: OneNode, tmp_path: Path) -> None:
    [node] = one_node.nodes
    assert isinstance(node, SmallDiskNode)
    timeline = Timeline()
    timeline.add(0, scrape(one_node))
    node.fill(free=0.1)
    timeline.add(5, scrape(one_node))
    assert value_of(one_node, "raftsched_disk_size_bytes") == node.DISK_BYTES
    timeline.check("RaftschedDiskLow", tmp_path, silent_at=9, firing_at=11)


def test_certificate_that_expires_soon(one_node: OneNode, tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.add(0, scrape(one_node))
    paths = ("--ca", str(one_node.files / "ca1"), "--out", str(one_node.files / "n1"), "--replace")
    issued = run_cli("tls", "issue", *paths, "--name", "n1", "--host", HOST, "--days", "14")
    assert issued.returncode == 0, issued.stderr
    one_node.hang_up()
    one_node.wait_for_renewals(1)
    timeline.add(5, scrape(one_node))
    timeline.check("RaftschedCertificateExpires", tmp_path, silent_at=4, firing_at=7)


class Freeze(NamedTuple):
    """A node that is frozen over a fire time of its schedule, and its metrics from before."""

    fire_time_s: float
    before: dict[str, str | None]


@pytest.fixture(scope="module")
def freeze(one_node: OneNode) -> Freeze:
    """Freeze the node by itself, for the last test of the module: a fire time is late after a minute only."""
    [node] = one_node.nodes
    fire_time_s = time.time() + 5
    context = one_node.client_context()
    start_at = datetime.fromtimestamp(fire_time_s, UTC).isoformat()
    schedule = {"name": "hourly", "every": "1h", "start_at": start_at, "job": {"name": "dump"}}
    ask(node.api, "POST", "/schedules", schedule, tls=context)
    before = scrape(one_node)
    node.signal(signal.SIGSTOP)
    assert time.time() < fire_time_s, "frozen too late, the schedule may have fired"
    return Freeze(fire_time_s, before)


@pytest.mark.usefixtures("freeze")  # from here on, so that the minute passes while other tests run
def test_every_metric_is_exported_and_a_leader_that_was_deposed_exports_none_of_the_cluster(
    cluster: LocalCluster, queue: str
) -> None:
    first = cluster.wait_for_leader()
    submit(first.api, name=queue)
    ask(first.api, "POST", f"/queues/{queue}/pause")
    text = read(first) or ""
    promtool("check", "metrics", text=text)
    of_leader, of_cluster = names(text), {metric.name for metric in METRICS if metric.scope is Scope.CLUSTER}
    exported = of_leader.union(*(names(read(node) or "") for node in followers(cluster)))
    needs_more = {"raftsched_certificate_expires_timestamp_seconds", "raftsched_last_backup_timestamp_seconds"}
    assert {metric.name for metric in METRICS} - exported <= needs_more
    ask(first.api, "POST", "/cluster/transfer")
    cluster.wait_until(lambda: not of_cluster & names(read(first) or ""), what="the old leader to fall silent")
    second = cluster.wait_for_leader()
    cluster.wait_until(lambda: of_cluster & of_leader <= names(read(second) or ""), what="the new one to speak")
    assert value_of(cluster, f'raftsched_jobs{{queue="{queue}",status="queued"}}') == 1
    ask(first.api, "POST", f"/queues/{queue}/resume")


def test_no_leader_and_a_node_that_is_down(cluster: LocalCluster, timeline: Timeline, tmp_path: Path) -> None:
    down, other = followers(cluster)
    down.kill()
    wait_for(cluster, f'raftsched_node_connected{{node="{down.id}"}}', lambda value: value == 0)
    timeline.add(5, scrape(cluster))
    timeline.check("RaftschedNodeDown", tmp_path, silent_at=4, firing_at=7)
    timeline.check("RaftschedScrapeFailed", tmp_path, silent_at=4, firing_at=8)
    other.signal(signal.SIGKILL)
    leader = next(node for node in cluster.nodes if node not in (down, other))
    cluster.wait_until(lambda: "raftsched_workers" not in (read(leader) or ""), what="the leader to be deposed")
    texts = scrape(cluster)
    assert scraped(texts[leader.id] or "")["raftsched_is_leader"] == 0
    timeline.add(10, texts)
    timeline.check("RaftschedNoLeader", tmp_path, silent_at=9, firing_at=11)


def test_clock_that_is_off(
    cluster: LocalCluster, timeline: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [node, _] = followers(cluster)
    (tmp_path / "sitecustomize.py").write_text(
        "import time\nread = time.time_ns\ntime.time_ns = lambda: read() + 400_000_000\n"
    )
    node.stop()
    with monkeypatch.context() as environment:
        environment.setenv("PYTHONPATH", str(tmp_path))
        cluster.start_node(node)
    cluster.wait_until_ready(node)
    cluster.wait_until(
        lambda: 0.3 < scraped(read(node) or "").get("raftsched_clock_offset_seconds", 0) < 0.5, what="the offset"
    )
    timeline.add(5, scrape(cluster))
    timeline.check("RaftschedClockOff", tmp_path, silent_at=4, firing_at=7)
    node.stop()


def test_job_that_waits_for_long(cluster: LocalCluster, timeline: Timeline, tmp_path: Path, queue: str) -> None:
    submit(cluster.nodes[0].api, name=queue, run_at="2020-01-01T00:00:00Z")
    wait_for(cluster, f'raftsched_queue_oldest_ready_seconds{{queue="{queue}"}}')
    timeline.add(5, scrape(cluster))
    timeline.check("RaftschedQueueWaiting", tmp_path, silent_at=4, firing_at=7)
    ask(cluster.nodes[0].api, "POST", f"/queues/{queue}/pause")
    wait_for(cluster, f'raftsched_queue_paused{{queue="{queue}"}}')
    timeline.add(60, scrape(cluster))
    timeline.check("RaftschedQueueWaiting", tmp_path, firing_at=59, silent_at=62)
    timeline.check("RaftschedQueuePaused", tmp_path, silent_at=62, firing_at=125)


def test_failures_and_dead_letters(cluster: LocalCluster, timeline: Timeline, tmp_path: Path, queue: str) -> None:
    base = cluster.nodes[0].api
    for minute in (5, 10, 15):
        for _ in range(10):
            submit(base, name=queue, max_attempts=1)
        for granted in lease(base, "w", queue, capacity=10):
            report(base, "w", granted, status="failed", error={"type": "Broken", "message": "it is"})
        dead = f'raftsched_jobs_finished_total{{queue="{queue}",status="dead_letter"}}'
        wait_for(cluster, dead, partial(le, 2 * minute))
        timeline.add(minute, scrape(cluster))
    timeline.check("RaftschedFailureRate", tmp_path, silent_at=4, firing_at=18)
    timeline.check("RaftschedDeadLettersGrowing", tmp_path, silent_at=12, firing_at=21)


def test_fire_times_that_are_skipped(cluster: LocalCluster, timeline: Timeline, tmp_path: Path, queue: str) -> None:
    base = cluster.nodes[0].api
    ask(base, "PATCH", f"/tenants/{queue}", {"unfinished_jobs": 1})
    ask(
        base,
        "POST",
        "/schedules",
        {"name": queue, "tenant": queue, "every": "1s", "overlap": "allow", "job": {"name": queue}},
    )
    wait_for(cluster, 'raftsched_firings_total{outcome="skipped_quota"}')
    timeline.add(5, scrape(cluster))
    timeline.check("RaftschedScheduleLate", tmp_path, silent_at=4, firing_at=6)


def test_worker_that_is_gone(
    cluster: LocalCluster, timeline: Timeline, tmp_path: Path, queue: str, start_worker: StartWorker
) -> None:
    base = cluster.nodes[0].api
    submit(base, name="block", queue=queue, payload={"seconds": 60})
    worker = start_worker(cluster)
    wait_for(cluster, f'raftsched_jobs{{queue="{queue}",status="running"}}')
    timeline.add(5, scrape(cluster))
    worker.kill()
    submit(base, name="block", queue=queue)
    wait_for(cluster, "raftsched_leases_expired_total")
    wait_for(cluster, "raftsched_workers", lambda count: count == 0)
    timeline.add(10, scrape(cluster))
    timeline.check("RaftschedWorkerGone", tmp_path, silent_at=9, firing_at=12)
    timeline.check("RaftschedNoWorkers", tmp_path, silent_at=9, firing_at=13)


def test_backup_that_is_old_or_was_never_made(cluster: LocalCluster, tmp_path: Path) -> None:
    never = Timeline()
    never.add(0, scrape(cluster))
    never.check("RaftschedBackupOld", tmp_path, silent_at=50, firing_at=65)
    assert run_cli("cluster", "backup", str(tmp_path / "backup"), RAFTSCHED_URL=cluster.urls[0]).returncode == 0
    made = Timeline(step_seconds=120)
    made.add(0, scrape(cluster))
    made.check("RaftschedBackupOld", tmp_path, silent_at=48 * 60 + 50, firing_at=48 * 60 + 65)


def test_fire_time_that_is_late(one_node: OneNode, freeze: Freeze, tmp_path: Path) -> None:
    late_at_s = freeze.fire_time_s + limits.LATE_FIRING_MS / 1000
    one_node.wait_until(lambda: time.time() > late_at_s, what="the fire time to be late", seconds=90)
    one_node.nodes[0].signal(signal.SIGCONT)
    wait_for(one_node, 'raftsched_firings_total{outcome="late"}')
    timeline = Timeline()
    timeline.add(0, freeze.before)
    timeline.add(5, scrape(one_node))
    timeline.check("RaftschedScheduleLate", tmp_path, silent_at=4, firing_at=6)
