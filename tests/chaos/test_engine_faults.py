"""The cluster under random faults: it holds what it promises, a run can be repeated, and a planted fault is found."""

from __future__ import annotations

import hashlib

import pytest

from chaos.sim.engine.checker import Violation
from chaos.sim.engine.cluster import SimulatedCluster
from chaos.sim.engine.faults import Faults
from chaos.sim.engine.seed import run_seed
from chaos.sim.planted.patches.durability import answers_before_the_sync
from chaos.sim.planted.patches.engine import (
    Plant,
    applies_before_matching,
    calls_unknown_outcomes_failures,
    commits_before_the_sync,
    pieces_of_snapshots_commit,
    reads_without_contact,
    votes_twice,
)


@pytest.mark.parametrize("changes_members", [False, True])
@pytest.mark.parametrize(
    ("seed", "count"), [*((seed, 3) for seed in range(8)), *((seed, 5) for seed in range(3)), (1, 1)]
)
def test_a_cluster_keeps_its_promises_under_random_faults(seed: int, count: int, *, changes_members: bool) -> None:
    statistics = run_seed(seed, count=count, changes_members=changes_members)
    assert statistics["acknowledged"] > 0


def digest(seed: int) -> str:
    """What came of a run: every machine's history, and how often what happened."""
    with SimulatedCluster(3, seed=seed) as cluster:
        cluster.start()
        Faults(cluster, seconds=4.0)
        cluster.run(6.0)
        histories = [node.machine_disk.history for node in cluster.nodes.values()]
        return hashlib.sha256(repr((histories, sorted(cluster.statistics.items()))).encode()).hexdigest()


def test_a_run_is_the_same_every_time() -> None:
    assert digest(4) == digest(4)
    assert digest(4) != digest(5)


@pytest.mark.parametrize(
    ("plant", "count", "first"),
    [
        (answers_before_the_sync, 3, 1),
        (commits_before_the_sync, 1, 1),
        (pieces_of_snapshots_commit, 3, 14),
        (reads_without_contact, 3, 1),
        (calls_unknown_outcomes_failures, 3, 10),
        (votes_twice, 3, 1),
        (applies_before_matching, 3, 1),
    ],
)
def test_a_planted_fault_is_found_within_a_few_seeds(
    plant: Plant, count: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 1 on, where that one finds it soon; all are found within the first 15."""
    plant(monkeypatch)
    with pytest.raises(Violation):
        for seed in range(first, first + 29):
            run_seed(seed, count=count)
