from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from raftsched.client import Client
from tests.client.cluster import QUICK, Cluster, running_cluster
from tests.client.real import RealNode, real_node


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster of one node."""
    async with running_cluster() as running:
        yield running


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    """A client of `cluster`."""
    async with Client(cluster.nodes[0].url, settings=QUICK) as opened:
        yield opened


@pytest.fixture
async def node() -> AsyncIterator[RealNode]:
    """A node that serves the real API."""
    async with real_node() as running:
        yield running
