"""Count the planted bugs that are found, and how soon: `python -m chaos.sim planted`.

A bug that has a directed schedule is looked for with that first, under a few seeds: times and phases differ between them.
Then, or if there is none, come random seeds. Every bug is looked for in a few before any is in many.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from chaos.sim.planted import BUGS, Bug, planted, run_schedule
from chaos.sim.run.seed import FAULT_SECONDS, begin, conclude
from chaos.sim.world.world import World

SCHEDULE_SEEDS = range(1, 6)
ROUNDS = (range(1, 21), range(21, 121), range(121, 501))
"""The random seeds, in the order in which they are tried."""
_SLICE_SECONDS = 1.0
_SHOWN_CHARS = 130


@dataclass(frozen=True, slots=True)
class Score:
    """The result for a planted bug; `seed` is 0 if it was not found."""

    name: str
    source: str
    schedule: str = ""
    """The directed schedule that found it; "" where random faults did."""
    seed: int = 0
    violation: str = ""

    @property
    def line(self) -> str:
        if not self.seed:
            return f"{self.name} ({self.source}): MISSED"
        how = f"{self.schedule}, seed {self.seed}" if self.schedule else f"random, seed {self.seed}"
        return f"{self.name} ({self.source}): {how}; {self.violation[:_SHOWN_CHARS]}"


def score(options: argparse.Namespace, *, be_quiet: Callable[[], None]) -> int:
    """Look for every bug; print the score; 1 where one was missed. `be_quiet` prepares a worker process."""
    names = [bug.name for bug in BUGS if not options.only or bug.name in options.only.split(",")]
    found: list[Score] = []
    with ProcessPoolExecutor(options.jobs, initializer=be_quiet) as pool:
        for seeds in ROUNDS:
            missing = [name for name in names if name not in {each.name for each in found}]
            for done in as_completed([pool.submit(hunt, name, seeds) for name in missing]):
                result = done.result()
                if result.seed:
                    found.append(result)
                    print(result.line, flush=True)
    _show(names, found)
    return 0 if len(found) == len(names) else 1


def _show(names: Sequence[str], found: Sequence[Score]) -> None:
    for bug in BUGS:
        if bug.name in names and bug.name not in {each.name for each in found}:
            print(Score(bug.name, bug.source).line)
    by_chance = sorted(each.seed for each in found if not each.schedule)
    most = f", by the first {by_chance[-1]} random seeds at most" if by_chance else ""
    print(
        f"score: {len(found)} of {len(names)}: {len(found) - len(by_chance)} by schedules, {len(by_chance)} by chance{most}"
    )


def hunt(name: str, seeds: range) -> Score:
    """Look for a bug: by its schedule, when hunting begins, then in these random seeds until one shows a violation.

    A world counts only if it shows none without the bug.
    """
    bug = next(bug for bug in BUGS if bug.name == name)
    schedule = bug.schedule
    if schedule is not None and seeds == ROUNDS[0]:
        for seed in SCHEDULE_SEEDS:
            if violation := _owed_to(bug, lambda: _first(run_schedule(schedule, seed).violations)):  # noqa: B023
                return Score(bug.name, bug.source, schedule.name, seed, violation)
    for seed in seeds:
        if violation := _owed_to(bug, lambda: _random(bug, seed)):  # noqa: B023  # called before it changes
            return Score(bug.name, bug.source, "", seed, violation)
    return Score(bug.name, bug.source)


def _owed_to(bug: Bug, run: Callable[[], str]) -> str:
    """The violation that a world shows with the bug and not without it; "" if there is none."""
    with planted(bug):
        violation = run()
    return violation if violation and not run() else ""


def _random(bug: Bug, seed: int) -> str:
    """The first violation of a random world, "" if there is none; the world ends as soon as one is seen."""
    world = World(seed, bug.node_count, alter=bug.alter)
    try:
        workload = begin(world)
        for _ in range(round(FAULT_SECONDS / _SLICE_SECONDS)):
            world.run(_SLICE_SECONDS)
            if world.faults:
                return world.faults[0]
        return _first(conclude(world, workload).violations)
    finally:
        world.close()
        del world
        gc.collect()


def _first(violations: Sequence[str]) -> str:
    return violations[0] if violations else ""
