from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from raftsched.cli.terminal import session
from tests.api.node import Api, serving
from tests.cli.runner import Cli
from tests.client.cluster import QUICK
from tests.client.real import RealNode


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that finds no cluster gives up soon, and nothing of this machine's settings counts."""
    monkeypatch.setattr(session, "SETTINGS", QUICK)
    monkeypatch.delenv("RAFTSCHED_ACTOR", raising=False)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A node that serves the real API over the real state, by this machine's clock."""
    async with serving(RealNode(10.0)) as served:
        yield served


@pytest.fixture
def cli(api: Api) -> Cli:
    """The command line, as a user of that node has it."""
    return Cli(api.node.api_url)
