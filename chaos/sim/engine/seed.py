"""Run one seed of a bare cluster under random faults, or many: `python -m chaos.sim engine`."""

from __future__ import annotations

from collections import Counter

from chaos.sim.engine.cluster import SimulatedCluster
from chaos.sim.engine.faults import Faults
from chaos.sim.engine.members import MemberFaults, has_lost_its_majority, known_membership

_SECONDS = {False: (8.0, 8.0), True: (10.0, 12.0)}
"""By whether members change: how long the faults last, and the calm behind them."""


def run_seed(seed: int, *, count: int, changes_members: bool = False) -> Counter[str]:
    """Run one seed from the start to the healed end; raises `Violation`. Return what happened how often."""
    seconds, calm_seconds = _SECONDS[changes_members]
    with SimulatedCluster(count, seed=seed) as cluster:
        cluster.start()
        (MemberFaults if changes_members else Faults)(cluster, seconds=seconds)
        cluster.run(seconds)
        cluster.heal()
        cluster.run(calm_seconds)
        statistics = cluster.statistics
        if changes_members and has_lost_its_majority(cluster):
            statistics["ends without a majority of disks"] += 1
            return statistics
        cluster.checker.on_end()
        statistics["acknowledged"] = len(cluster.checker.acknowledged)
        statistics["installed"] += sum(
            node.running.machine.installed_count for node in cluster.nodes.values() if node.running
        )
        membership = known_membership(cluster)
        statistics[f"ends with {len(membership.voters) if membership is not None else 0}"] += 1
        return statistics


def campaign(seeds: range, *, count: int) -> int:
    """Run each seed twice, the second time with members that change; print the failures; 1 if there is one, else 0."""
    total: Counter[str] = Counter()
    failed = 0
    for seed in seeds:
        for changes_members in (False, True):
            try:
                total += run_seed(seed, count=count, changes_members=changes_members)
            except Exception as error:  # noqa: BLE001  # whatever it is, the other seeds are run as well
                failed += 1
                what = "with members that change" if changes_members else "with fixed members"
                print(f"seed {seed} {what}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(seeds)} seeds from {seeds.start}, {count} nodes, {failed} failed: {dict(sorted(total.items()))}")
    return min(failed, 1)
