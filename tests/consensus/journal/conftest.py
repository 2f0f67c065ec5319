from __future__ import annotations

import pytest

from chaos.sim.machine.disk import SimulatedDisk
from raftsched.consensus.journal.journal import Journal
from tests.consensus.journals import new_disk, open_small


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk()


@pytest.fixture
def journal(disk: SimulatedDisk) -> Journal:
    """A small, empty journal on `disk`."""
    return open_small(disk)
