"""Hypothesis profiles: derandomized and short by default; RAFTSCHED_HYPOTHESIS=deep searches with fresh seeds."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.core.scene import Scene

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "quick", derandomize=True, database=None, max_examples=100, deadline=None, suppress_health_check=_QUIET
)
settings.register_profile("deep", max_examples=5_000, deadline=None, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("RAFTSCHED_HYPOTHESIS", "quick"))


@pytest.fixture
def scene() -> Scene:
    return Scene()
