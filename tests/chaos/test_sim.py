"""Whole worlds: a few seeds are clean, and a seed is the same run wherever it runs. `make sim` runs the many."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from chaos.sim.rates import FAULTS, LMDB_EVERY, draw
from chaos.sim.trace import Trace
from chaos.sim.world import run_seed

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Coroutines of killed processes complain, whenever they are collected, that they can't run any more."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def fingerprint_in_a_process(seed: int, nodes: int) -> str:
    command = [sys.executable, "-m", "chaos.sim", "--seed", str(seed), "--nodes", str(nodes)]
    environment = {**os.environ, "PYTHONHASHSEED": "random"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"fingerprint ([0-9a-f]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return found[1]


@pytest.mark.parametrize(("seed", "nodes"), [(1, 3), (2, 3), (4, 5), (LMDB_EVERY - 1, 3)])
def test_a_seed_shows_no_violation(seed: int, nodes: int) -> None:
    outcome = run_seed(seed, node_count=nodes)
    assert not outcome.violations, f"replay: python -m chaos.sim --seed {seed} --nodes {nodes} --trace"
    assert outcome.operations["outcome ok"] > 0
    assert any(count for name, count in outcome.counts.items() if name.startswith("fault: "))


@pytest.mark.parametrize("seed", [3, LMDB_EVERY - 1])
def test_a_seed_is_the_same_run_in_two_processes(seed: int) -> None:
    assert fingerprint_in_a_process(seed, 3) == fingerprint_in_a_process(seed, 3)


def test_a_trace_changes_nothing_and_tells_the_story() -> None:
    silent, other = run_seed(5, node_count=3), run_seed(6, node_count=3)
    told = run_seed(5, node_count=3, trace=Trace(is_on=True))
    assert told.fingerprint == silent.fingerprint != other.fingerprint
    assert not silent.trace
    assert any(" leader " in line for line in told.trace)


def test_every_kind_of_fault_is_drawn_by_some_seed() -> None:
    from random import Random

    drawn = {fault for seed in range(200) for fault in draw(Random(seed), seed).fault_weights}
    assert drawn == set(FAULTS)
