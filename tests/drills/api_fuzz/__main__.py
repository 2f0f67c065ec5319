"""python -m tests.drills.api_fuzz --requests 100000 --raw 5000 --seed 1 --minutes 60"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import aiohttp

from raftsched.cli.local.cluster import LocalCluster
from tests.drills.api_fuzz import nodes
from tests.drills.api_fuzz.callers import Cast, document_of, signed_up
from tests.drills.api_fuzz.crafting import LEFT_OUT
from tests.drills.api_fuzz.document import problem_validator
from tests.drills.api_fuzz.fuzzer import Fuzzer, Report
from tests.drills.api_fuzz.raw import fuzz_raw

SETTINGS: Final = {"lease_seconds": 60.0}
_PROGRESS_SECONDS: Final = 20.0
_LEADER_SECONDS_MAX: Final = 180.0
"""For a machine that has other work: this one runs with a low priority."""


async def run(
    cluster: LocalCluster, *, requests_max: int, raw_max: int, seed: int, seconds_max: float
) -> tuple[Report, Report, Cast]:
    """Fuzz a running cluster; return what was found by requests and by raw bytes. Findings of the nodes are in the first."""
    pids = nodes.pids_of(cluster)
    inner = (str(cluster.directory), *(node.raft for node in cluster.nodes))
    leader = await asyncio.to_thread(cluster.wait_for_leader, seconds=_LEADER_SECONDS_MAX)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        cast = await signed_up(session, leader.api, leader.token, seed)
        admin = {"Authorization": f"Bearer {leader.token}"}
        document = await document_of(session, f"{leader.api}/api/v1/openapi.json", admin)
        fuzzer = Fuzzer(cluster.urls, document, cast, session, seed=seed, inner=inner)
        telling = asyncio.create_task(_tell(fuzzer.report, cluster, pids))
        report = await fuzzer.run(requests_max, seconds_max)
        raw = await fuzz_raw(cluster.urls, problem_validator(document), connections=raw_max, seed=seed, inner=inner)
        telling.cancel()
        for fault in nodes.faults_of(cluster, pids):
            report.find("nodes", fault)
        leader = await asyncio.to_thread(cluster.wait_for_leader, seconds=_LEADER_SECONDS_MAX)
        for path, before in cast.reserved.items():
            if await document_of(session, leader.api + path, admin) != before:
                report.find("a record of the reserved tenant has changed", path)
    return report, raw, cast


def examine(cluster: LocalCluster, report: Report, cast: Cast) -> None:
    """Look at the logs and the directories of a cluster that has stopped."""
    for fault in nodes.faults_in_logs(cluster, cast.secrets):
        report.find("log", fault)
    for fault in nodes.faults_on_disk(cluster):
        report.find("disk", fault)


async def _tell(report: Report, cluster: LocalCluster, pids: list[int]) -> None:
    """Print how far it is, and look at the nodes."""
    began = time.monotonic()
    shown: set[str] = set()
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        sizes = ", ".join(f"{nodes.memory_mib_of(pid)} MiB" for pid in pids)
        print(f"{time.monotonic() - began:.0f} s: {report.request_count} requests, {len(report.accepted)} operations "
              f"accepted, {len(report.findings)} findings; nodes {sizes}", flush=True)  # fmt: skip
        for kind in report.findings.keys() - shown:
            print(f"finding: {kind}: {report.findings[kind][0]}", flush=True)
        shown = set(report.findings)
        for fault in nodes.faults_of(cluster, pids):
            report.find("nodes", fault)


def tell_summary(report: Report, raw: Report) -> None:
    """Print all counts, and examples of what was found."""
    print(f"{report.request_count} requests of {len(report.asked)} operations, {len(report.accepted)} of them accepted;"
          f" {report.unsent_count} could not be sent; {raw.request_count} raw connections")  # fmt: skip
    print("statuses:", dict(sorted(report.statuses.items())), "raw:", dict(sorted(raw.statuses.items())))
    print("codes:", dict(report.codes.most_common()))
    print("never accepted:", sorted(set(report.asked) - report.accepted))
    for what, why in LEFT_OUT.items():
        print(f"left out: {what}: {why}")
    for kind, count in [*report.counts.most_common(), *raw.counts.most_common()]:
        print(f"\nFINDING ({count} times) {kind}")
        for example in (report.findings.get(kind) or raw.findings[kind])[:2]:
            print(f"    {example}")
    print(f"\nfindings: {len(report.findings) + len(raw.findings)} kinds in {report.request_count} requests"
          f" and {raw.request_count} raw connections")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--raw", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=180.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="raftsched-drill-") as directory:
        with LocalCluster(Path(directory) / "nodes", settings=SETTINGS, with_tokens=True) as cluster:
            report, raw, cast = asyncio.run(
                run(
                    cluster,
                    requests_max=asked.requests,
                    raw_max=asked.raw,
                    seed=asked.seed,
                    seconds_max=60 * asked.minutes,
                )
            )
        examine(cluster, report, cast)
    tell_summary(report, raw)
    sys.exit(1 if report.findings or raw.findings else 0)


if __name__ == "__main__":
    main()
