"""The leader is killed around the second in which many schedules are due (case D01).

    python -m tests.drills.due_kills --kills 20

Each kill falls at another offset from -500 to +500 ms around a due second. In the end every instant of every schedule
must have been decided once, and have its one job. Also measured: how long nobody could write.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator

from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import BlockingClient
from tests.acceptance.http import ask
from tests.drills.ledger import decided_up_to, faults, first_fire_time, ledger, save_grid
from tests.drills.processes import drill_cluster

PERIOD_SECONDS = 2
_OFFSET_MS_MAX = 500
_AHEAD_SECONDS = 1.0
"""A kill waits for a due second that is at least this far away, so that the cluster has settled."""


def offsets(count: int) -> Iterator[float]:
    """Yield the seconds between each kill and its due second: evenly from -0.5 to 0.5, the middle ones last."""
    for number in range(count):
        yield (-1 + 2 * number / max(1, count - 1)) * _OFFSET_MS_MAX / 1000


def run(cluster: LocalCluster, kill_count: int, schedule_count: int) -> tuple[list[float], list[str]]:
    """Kill the leader so often; return the seconds to each next accepted write, and what is wrong in the ledgers."""
    base = cluster.nodes[0].api
    start_s = first_fire_time(PERIOD_SECONDS)
    names = [f"due-{number}" for number in range(schedule_count)]
    for name in names:
        save_grid(base, name, period_seconds=PERIOD_SECONDS, start_s=start_s, misfire="run_all")
    gaps: list[float] = []
    with BlockingClient(*cluster.urls) as client:
        for offset in offsets(kill_count):
            leader = cluster.wait_for_leader()
            _sleep_until(_due_second(start_s) + offset)
            leader.kill()
            killed = time.monotonic()
            client.submit("probe", queue="probes", delay_seconds=3600)
            gaps.append(time.monotonic() - killed)
            cluster.start_node(leader)
            cluster.wait_until_ready(leader)
    cluster.wait_for_leader()
    last_s = _due_second(start_s)
    decided_up_to(cluster, base, names, last_s * 1000, seconds=60)
    for name in names:
        ask(base, "POST", f"/schedules/{name}/pause")
    found: list[str] = []
    for name in names:
        lines = ledger(base, name, PERIOD_SECONDS)
        found += faults(base, name, lines, start_s=start_s, period_seconds=PERIOD_SECONDS)
        found += [f"{name}: {line.fire_time_ms} was skipped: {line.reason}" for line in lines if not line.job_id]
    return gaps, found


def _due_second(start_s: int) -> int:
    """Return the next due second that is far enough away."""
    ahead = time.time() + _AHEAD_SECONDS - start_s
    return start_s + max(0, int(ahead // PERIOD_SECONDS) + 1) * PERIOD_SECONDS


def _sleep_until(at_s: float) -> None:
    while (left := at_s - time.time()) > 0:
        time.sleep(left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--schedules", type=int, default=60)
    asked = parser.parse_args()
    with drill_cluster() as cluster:
        gaps, found = run(cluster, asked.kills, asked.schedules)
    print(
        f"{len(gaps)} kills; next accepted write after {statistics.median(gaps):.3f} s (median), {max(gaps):.3f} s (max)"
    )
    print("\n".join(found[:50]) or "every instant of every schedule was decided once, and has its one job")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
