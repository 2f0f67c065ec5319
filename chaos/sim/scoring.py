"""How many of the planted bugs are found, and how soon: `python -m chaos.sim planted`."""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from chaos.sim.planted import BUGS, Bug, planted
from chaos.sim.world import run_seed

SEEDS_MAX = 500
ROUNDS = ((1, 20), (21, 120), (121, SEEDS_MAX))
"""First a few seeds for every bug, then more for those that were not found."""


@dataclass(frozen=True, slots=True)
class Score:
    """What became of a planted bug; `seeds` is 0 where it was not found."""

    name: str
    source: str
    seeds: int
    violation: str


def score(options: argparse.Namespace) -> int:
    """Look for every bug; print the score; 1 where one was missed."""
    from chaos.sim.runner import be_quiet

    missing = [bug.name for bug in BUGS if not options.only or bug.name in options.only.split(",")]
    wanted = len(missing)
    with ProcessPoolExecutor(options.jobs, initializer=be_quiet) as pool:
        for first, last in ROUNDS:
            hunts = as_completed([pool.submit(hunt, name, first, last) for name in missing])
            missing = []
            for each in (done.result() for done in hunts):
                if not each.seeds:
                    missing.append(each.name)
                else:
                    print(f"{each.name} ({each.source}): {each.seeds} seeds; {each.violation[:160]}", flush=True)
    for name in missing:
        print(f"{name}: MISSED in {SEEDS_MAX} seeds")
    print(f"score: {wanted - len(missing)} of {wanted}")
    return 1 if missing else 0


def hunt(name: str, first: int, last: int) -> Score:
    """Run the seeds from `first` to `last` with the bug in place until one of them shows a violation."""
    bug = next(bug for bug in BUGS if bug.name == name)
    with planted(bug):
        for seed in range(first, last + 1):
            violation = _violation(bug, seed)
            if violation:
                return Score(bug.name, bug.source, seed, violation)
    return Score(bug.name, bug.source, 0, "")


def _violation(bug: Bug, seed: int) -> str:
    outcome = run_seed(seed, node_count=bug.node_count, alter=bug.alter)
    return outcome.violations[0] if outcome.violations else ""
