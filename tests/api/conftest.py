from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.node import Api, SimulatedNode, serving


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """The API of a node that leads."""
    async with serving(SimulatedNode()) as served:
        yield served


@pytest.fixture
async def follower(api: Api) -> AsyncIterator[Api]:
    """The API of a node that follows the one of `api`."""
    async with serving(SimulatedNode("n2", leader=api.node)) as served:
        yield served
