from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from raftsched import logs
from raftsched.cli.terminal import session
from tests.api.node import Api, serving
from tests.cli.runner import Cli
from tests.client.cluster import QUICK
from tests.client.real import RealNode


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that finds no cluster gives up soon, and neither this machine's settings nor its speed count.

    A command that sets up the logging of its process does so for its test alone: others read what is logged.
    """
    before = structlog.get_config()

    def configure(*, level: str = "info", **_: str) -> None:
        wrapper = structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()])
        structlog.configure(**before | {"wrapper_class": wrapper})

    monkeypatch.setattr(logs, "configure", configure)
    monkeypatch.setattr(session, "SETTINGS", QUICK)
    monkeypatch.setattr(session, "_SILENCE_SECONDS", 60.0)
    monkeypatch.delenv("RAFTSCHED_ACTOR", raising=False)
    yield
    structlog.configure(**before)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A node that serves the real API over the real state, by this machine's clock."""
    async with serving(RealNode(10.0)) as served:
        yield served


@pytest.fixture
def cli(api: Api) -> Cli:
    """The command line, as a user of that node has it."""
    return Cli(api.node.api_url)
