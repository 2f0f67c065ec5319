from __future__ import annotations

from pathlib import Path

import pytest

from tests.consensus.subjects import MendedSubject


@pytest.fixture
def node(tmp_path: Path) -> MendedSubject:
    """Node a, of three."""
    return MendedSubject("bc", tmp_path)
