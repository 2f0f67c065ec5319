"""Regions in whole worlds: each has its workers in the end, its jobs go to those alone, and other seeds know of none."""

from __future__ import annotations

from contextlib import closing
from random import Random

import pytest

from chaos.checkers.history.events import Change, Healed
from chaos.sim.features import Features, draw_features
from chaos.sim.run.seed import begin, conclude
from chaos.sim.world.world import World

SEEDS = [seed for seed in range(1, 201) if draw_features(seed).regions]
ALONE, BESIDE = 19, 4
"""Seeds with regions and plain jobs only, and with all that hangs together; each has a region that gets its worker late."""
_SECONDS = 5.0


def test_about_three_seeds_in_ten_have_regions_and_half_of_these_a_late_one() -> None:
    assert 50 <= len(SEEDS) <= 70
    assert 20 <= sum(bool(draw_features(seed).late_region) for seed in SEEDS) <= 40


def test_where_there_are_no_regions_no_coin_is_thrown() -> None:
    random, untouched = Random(1), Random(1)
    assert Features().job_region(random) == Features().worker_region(random) == ""
    assert random.getstate() == untouched.getstate()


@pytest.mark.parametrize("seed", [ALONE, BESIDE])
def test_jobs_of_each_region_are_leased_and_a_late_one_after_the_heal(seed: int) -> None:
    features = draw_features(seed)
    assert features.late_region
    assert features.is_on == (seed == BESIDE)
    with closing(World(seed, 3)) as world:
        workload = begin(world, fault_seconds=_SECONDS)
        world.run(_SECONDS)
        assert conclude(world, workload).violations == []
        events = world.recorder.events
    leases = [event for event in events if isinstance(event, Change) and event.f == "lease"]
    healed = next(event.t for event in events if isinstance(event, Healed))
    assert {lease.region for lease in leases} == {"", *features.regions}
    assert min(lease.t for lease in leases if lease.region == features.late_region) > healed
