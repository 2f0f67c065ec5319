"""One cluster and one browser for all tests of pages; each test keeps to queues and names of its own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from tests.dashboard.scene import played
from tests.dashboard.site import Site, opened_site


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let these tests share an event loop, which the browser belongs to; mark and order them as acceptance tests."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.acceptance)
            if pytest_asyncio.is_async_test(item):
                item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
    items.sort(key=lambda item: item.get_closest_marker("acceptance") is not None)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """The dashboard of three nodes with tokens."""
    async with opened_site(tmp_path_factory.mktemp("dashboard")) as opened:
        yield opened


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue that no other test uses."""
    return re.sub(r"\W+", "-", request.node.name)[:60]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scene(site: Site) -> AsyncIterator[Mapping[str, str]]:
    """Jobs of every kind, by their role in the scene; `{}` in the paths of `scene.PATHS` names them."""
    async with played(site.cluster.urls, site.admin_token) as ids:
        yield ids
