"""Hypothesis profiles: derandomized and short by default; RAFTSCHED_HYPOTHESIS=deep searches with fresh seeds."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from raftsched.core.checks.invariants import check
from tests.core.control_scene import ControlScene
from tests.core.relations_scene import RelationsScene

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "quick", derandomize=True, database=None, max_examples=100, deadline=None, suppress_health_check=_QUIET
)
settings.register_profile("deep", max_examples=5_000, deadline=None, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("RAFTSCHED_HYPOTHESIS", "quick"))


@pytest.fixture
def scene() -> ControlScene:
    return ControlScene()


@pytest.fixture
def relations() -> Iterator[RelationsScene]:
    """A scene that must be sound in the end."""
    scene = RelationsScene()
    yield scene
    assert check(scene.state) == []
