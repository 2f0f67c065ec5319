"""Nodes are replaced one by one by nodes of a later release, under load."""

from __future__ import annotations

from pathlib import Path

from chaos.drills.releases import later_release, release_of_source
from tests.drills.upgrade import drill


def test_a_rolling_upgrade_under_load_loses_no_job_and_new_operations_wait_for_all_nodes(tmp_path: Path) -> None:
    before, after = release_of_source(tmp_path / "before", "0.0.1"), later_release(tmp_path / "after", "0.0.2")
    assert drill(tmp_path, before, after, restarts=False, jobs=100) >= 100
