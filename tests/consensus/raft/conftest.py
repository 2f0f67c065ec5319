from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.sim.engine.cluster import SimulatedCluster, SimulatedNode
from tests.consensus.clusters import settled_leader
from tests.consensus.subjects import MendedSubject


@pytest.fixture
def node(tmp_path: Path) -> MendedSubject:
    """Node a, of three."""
    return MendedSubject("bc", tmp_path)


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster(3, seed=7) as made:
        made.start()
        yield made


@pytest.fixture
def leader(cluster: SimulatedCluster) -> SimulatedNode:
    return settled_leader(cluster)
