"""One cluster and one browser for all tests of pages; each test keeps to queues and names of its own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import Client
from tests import tiers
from tests.dashboard.scene import played
from tests.dashboard.site import Site, opened_browser


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
    with tiers.shared():
        cluster = LocalCluster(tmp_path_factory.mktemp("dashboard"), settings={"lease_seconds": 2.0}, with_tokens=True)
        cluster.start()
    with cluster:
        assert cluster.token_file is not None
        token = cluster.token_file.read_text().strip()
        async with opened_browser() as browser, Client(*cluster.urls, token=token) as admin:
            with tiers.shared():
                cluster.wait_for_leader()
                for node in cluster.nodes:
                    cluster.wait_until_ready(node)
            yield Site(cluster, browser, admin)


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue that no other test uses."""
    return re.sub(r"\W+", "-", request.node.name)[:60]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scene(site: Site) -> AsyncIterator[Mapping[str, str]]:
    """Jobs of every kind, by their role in the scene; `{}` in the paths of `scene.PATHS` names them."""
    assert site.cluster.token_file is not None
    async with played(site.cluster.urls, site.cluster.token_file.read_text().strip()) as ids:
        yield ids
