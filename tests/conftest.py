"""Load the tiers of tests."""

from __future__ import annotations

import os

import pytest

from tests.tiers import CHECK, RECORD, Tiers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", choices=(CHECK, RECORD), default="", help="judge the CPU of tests, or list the slow ones")


def pytest_xdist_auto_num_workers() -> int:
    """Return one process more than there are cores: tests of real processes wait for these most of the time."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Tiers(config.getoption("cpu")), "tiers")
