from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.consensus.links import Network, Station, network


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    async with network() as made:
        yield made


@pytest.fixture
async def n1(net: Network) -> Station:
    """A started node whose only peer is n2."""
    station = net.station("n1", ["n2"])
    await net.start()
    return station
