"""Whose data directory it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.identity import DirectoryClaim, WrongDirectory, read_identity


def claim(directory: Path, node_id: str = "n1", cluster: str = "c") -> DirectoryClaim:
    return DirectoryClaim(directory, node_id=node_id, cluster=cluster)


def test_directory_is_claimed_by_its_first_node_and_again_by_it(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "data"
    claim(directory).release()
    claim(directory).release()
    assert read_identity(directory).node_id == "n1"


@pytest.mark.parametrize(("node_id", "cluster"), [("n2", "c"), ("n1", "other")])
def test_directory_of_another_node_is_refused_and_left_alone(tmp_path: Path, node_id: str, cluster: str) -> None:
    claim(tmp_path).release()
    before = (tmp_path / "node.json").read_bytes()
    with pytest.raises(WrongDirectory, match="belongs to node 'n1' of cluster 'c'"):
        claim(tmp_path, node_id, cluster)
    assert (tmp_path / "node.json").read_bytes() == before


def test_directory_in_use_is_refused(tmp_path: Path) -> None:
    held = claim(tmp_path)
    with pytest.raises(WrongDirectory, match="in use"):
        claim(tmp_path)
    held.release()
    claim(tmp_path).release()


def test_directory_of_nobody_is_no_node(tmp_path: Path) -> None:
    with pytest.raises(WrongDirectory, match="not the data directory"):
        read_identity(tmp_path)
