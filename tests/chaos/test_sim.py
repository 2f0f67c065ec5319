"""Whole worlds: a few seeds are clean, and a seed is the same run wherever it runs. `make sim` runs the many."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from random import Random

import pytest

from chaos.sim.campaign import runner
from chaos.sim.hosts.storage import CUT
from chaos.sim.rates import FAULTS, draw
from chaos.sim.record.trace import Trace
from chaos.sim.run.seed import run_seed
from chaos.sim.run.verdict import Outcome
from chaos.sim.world.faults import POINTS

ROOT = Path(__file__).parents[2]
SEED = 549
"""In its world the state lies in LMDB, members change, users do whatever there is to do, and little of each."""
SHORT_SECONDS = 3.0
"""Of faults, where it does not matter for how long they go on."""


@cache
def outcome() -> Outcome:
    return run_seed(SEED, node_count=3)


def fingerprint_in_a_process(seed: int, nodes: int) -> str:
    command = [sys.executable, "-m", "chaos.sim", "--seed", str(seed), "--nodes", str(nodes)]
    environment = {**os.environ, "PYTHONHASHSEED": "random"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"fingerprint ([0-9a-f]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return found[1]


def test_a_seed_of_everything_shows_no_violation() -> None:
    rates = draw(Random(SEED), SEED)
    features = rates.features
    assert rates.uses_lmdb
    assert min(features.schedule_count, features.workflow_users, features.tuners, features.controllers) > 0
    assert not outcome().violations, f"replay: python -m chaos.sim --seed {SEED} --nodes 3 --trace"
    assert outcome().operations["outcome ok"] > 0
    assert any(count for name, count in outcome().counts.items() if name.startswith("fault: "))
    assert outcome().counts["members: voter added"] > 0
    assert outcome().counts["members: voter removed"] > 0


def test_a_run_goes_on_until_all_have_served_and_old_leases_are_over() -> None:
    assert 20.0 <= outcome().simulated_seconds < 24.0
    assert outcome().evidence["every_node_serves"] == outcome().evidence["nodes_converge"] == 1


def test_a_seed_is_the_same_run_in_another_process() -> None:
    assert fingerprint_in_a_process(SEED, 3) == outcome().fingerprint


def test_many_seeds_are_repeated_and_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", runner.HASH_SEED)
    assert runner.main(["repeat", "--seeds", "1", "--start", str(SEED), "--nodes", "3", "--jobs", "2"]) == 0
    assert "1 of 1 seeds have the same fingerprint" in capsys.readouterr().out
    monkeypatch.setattr(runner, "_HASH_SEEDS", ("1", "other"))
    monkeypatch.setattr(runner, "_pool", lambda _jobs, hash_seed: Pool(hash_seed))
    assert runner.main(["repeat", "--seeds", "2", "--start", "7", "--nodes", "3", "--jobs", "2"]) == 1
    told = capsys.readouterr().out
    assert "seed 7: 1 of 7 and other of 7" in told
    assert "0 of 2 seeds have the same fingerprint" in told


class Pool(nullcontext["Pool"]):
    """Processes in which every run is another one."""

    def __init__(self, hash_seed: str) -> None:
        super().__init__(self)
        self.hash_seed = hash_seed

    def map(self, _run: object, seeds: Iterable[int], _nodes: Iterable[int]) -> list[str]:
        return [f"{self.hash_seed} of {seed}" for seed in seeds]


def test_nothing_of_killed_processes_complains_when_a_run_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: complaints.append(event.exc_value))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert run_seed(5, node_count=3, fault_seconds=SHORT_SECONDS).counts["fault: crash"] > 0
        gc.collect()
    assert complaints == []


def test_a_campaign_names_the_faults_and_fault_points_that_never_struck(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts = Counter({f"fault: {kind}": 1 for kind in FAULTS})
    counts.update({f"point: {point}{CUT}": 1 for point in POINTS})
    runner.show_faults(counts, FAULTS)
    told = capsys.readouterr().out
    assert "fault kinds never struck: none" in told
    assert "fault points never struck: none" in told
    del counts["fault: pause"], counts[f"point: before install{CUT}"]
    runner.show_faults(counts, FAULTS)
    told = capsys.readouterr().out
    assert "fault kinds never struck: pause\n" in told
    assert "fault points never struck: before install\n" in told


def test_a_trace_changes_nothing_and_tells_the_story() -> None:
    silent, other = (run_seed(seed, node_count=3, fault_seconds=SHORT_SECONDS) for seed in (5, 6))
    told = run_seed(5, node_count=3, fault_seconds=SHORT_SECONDS, trace=Trace(is_on=True))
    assert told.fingerprint == silent.fingerprint != other.fingerprint
    assert not silent.trace
    assert any(" leader " in line for line in told.trace)


def test_every_kind_of_fault_is_drawn_by_some_seed() -> None:
    drawn = {fault for seed in range(200) for fault in draw(Random(seed), seed).fault_weights}
    assert drawn == set(FAULTS)
