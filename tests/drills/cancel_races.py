"""A cancel meets the lease or the completion of its job at another node (case D36): one wins, both callers hear which.

python -m tests.drills.cancel_races --rounds 1000
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.http import call, job_of, lease, report, submit
from tests.drills.processes import drill_cluster

QUEUE = "raced"


def run(cluster: LocalCluster, rounds: int, *, force: bool) -> tuple[Counter[str], list[str]]:
    """Race so often each way; return who won how often, and what was told otherwise than it is."""
    winners: Counter[str] = Counter()
    found: list[str] = []
    query = "?force=true" if force else ""
    with ThreadPoolExecutor(2) as threads:
        for _ in range(rounds):
            for race in (_against_lease, _against_completion):
                winner, faults = race(cluster, threads, query)
                winners[winner] += 1
                found += faults
    return winners, found


def _against_lease(cluster: LocalCluster, threads: ThreadPoolExecutor, query: str) -> tuple[str, Iterator[str]]:
    """The cancel wins, whether it came before the lease or after."""
    first, second, third = cluster.urls
    job = submit(first, name=QUEUE)
    leased = threads.submit(lease, first, "w", QUEUE, wait=0)
    cancel = threads.submit(call, second, "DELETE", f"/api/v1/jobs/{job['id']}{query}")
    status, granted = cancel.result()[0], leased.result()
    told = (status, [report(third, "w", each, result="no")[0] for each in granted])
    return _judged(third, job, told, {"cancel after lease": (200, [409]), "cancel before lease": (200, [])})


def _against_completion(cluster: LocalCluster, threads: ThreadPoolExecutor, query: str) -> tuple[str, Iterator[str]]:
    first, second, third = cluster.urls
    job = submit(first, name=QUEUE)
    child = submit(first, name=f"{QUEUE}.child", depends_on=[job["id"]])
    [granted] = lease(first, "w", QUEUE)
    done = threads.submit(report, first, "w", granted, result="yes")
    cancel = threads.submit(call, second, "DELETE", f"/api/v1/jobs/{job['id']}{query}")
    told = (done.result()[0], cancel.result()[0], job_of(third, child["id"])["status"])
    return _judged(third, job, told, {"completion": (200, 409, "queued"), "cancel of what runs": (409, 200, "skipped")})


def _judged(base: str, job: Any, told: Any, truths: dict[str, Any]) -> tuple[str, Iterator[str]]:
    """Return who won, by the job as it is, and what its callers were told otherwise."""
    found = job_of(base, job["id"])
    winner = next((name for name, truth in truths.items() if truth == told), "nobody")
    expected = ("completed", "yes") if winner == "completion" else ("cancelled", None)
    state = (found["status"], found["result"])
    is_true = winner != "nobody" and state == expected
    return winner, iter(() if is_true else (f"{job['id']} is {state}, and its callers were told {told}",))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1_000)
    asked = parser.parse_args()
    with drill_cluster() as cluster:
        found = []
        for force in (False, True):
            winners, faults = run(cluster, asked.rounds // 2, force=force)
            print("by force:" if force else "told to stop:", dict(winners))
            found += faults
    print("\n".join(found[:50]) or "all callers were told the truth")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
