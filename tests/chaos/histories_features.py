"""Good histories of schedules, workflows, limits, callbacks and control: whole simulated worlds in which users do all of it.

The reference scheduler of `histories` knows plain jobs only; here the system itself is the witness, and what it shows is
clean. Mutations then break one promise each (`histories_broken_features`).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import cache

from chaos.checkers import History
from chaos.sim.features import Features
from chaos.sim.rates import Rates
from chaos.sim.run.seed import begin, conclude
from chaos.sim.world.world import World

ALL = Features(
    schedule_count=4,
    workflow_users=2,
    tuners=1,
    controllers=3,
    targets=1,
    think=0.15,
    job_options=0.9,
    regions=("north", "south"),
    late_region="south",
    has_handlers=True,
    tenants=("default", "acme"),
)
_SECONDS = 10.0
"""Enough for users to do all of it; each test reads the whole history, so it must not be long."""


def _everything(rates: Rates) -> Rates:
    return replace(rates, features=ALL, fault_weights={"crash": 1.0, "part": 1.0}, fault_pause=1.2, uses_lmdb=False)


@cache
def good_feature_history(seed: int) -> History:
    """What was seen in the world of a seed."""
    with closing(World(seed, 3, alter=_everything)) as world:
        workload = begin(world, fault_seconds=_SECONDS)
        world.run(_SECONDS)
        outcome = conclude(world, workload)
        assert not outcome.violations, outcome.violations
        return History(world.recorder.events)
