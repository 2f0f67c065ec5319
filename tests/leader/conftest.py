from __future__ import annotations

import pytest

from raftsched.core.records.job import Job
from tests.leader.scene import Leader, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def leader(world: World) -> Leader:
    """A leader that has led `world` from its beginning."""
    return Leader(world)


@pytest.fixture
def job(world: World, leader: Leader) -> Job:
    """The only job, run by w1."""
    world.submit()
    (job,) = leader.lease()
    return job
