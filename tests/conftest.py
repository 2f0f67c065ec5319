"""Load the tiers of tests."""

from __future__ import annotations

import pytest

from tests.tiers import CHECK, RECORD, Tiers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", choices=(CHECK, RECORD), default="", help="judge the CPU of tests, or list the slow ones")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Tiers(config.getoption("cpu")), "tiers")
