"""Tests of this directory run as a campaign does: quietly, and no collector of garbage stops a world."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Production's log lines go nowhere."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True)
def _only_own_garbage() -> Iterator[None]:
    """A world collects its garbage when it is over, and then looks at none of what other tests keep: that takes seconds."""
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()
