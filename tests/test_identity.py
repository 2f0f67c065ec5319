"""Whose data directory it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.consensus.journal import Journal
from raftsched.disk import SystemDisk
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


def test_directory_has_one_incarnation_for_all_its_life_and_a_new_one_another(tmp_path: Path) -> None:
    first = claim(tmp_path / "a")
    first.release()
    again = claim(tmp_path / "a")
    again.release()
    other = claim(tmp_path / "b")
    other.release()
    assert first.incarnation == again.incarnation == read_identity(tmp_path / "a").incarnation
    assert len({"", first.incarnation, other.incarnation}) == 3


def test_directory_of_before_incarnations_gets_one(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text('{"node_id":"n1","cluster":"c","format_version":1}\n')
    claimed = claim(tmp_path)
    claimed.release()
    assert claimed.incarnation
    assert read_identity(tmp_path).incarnation == claimed.incarnation


def test_data_without_its_owners_name_is_refused(tmp_path: Path) -> None:
    Journal(SystemDisk(tmp_path / "journal"))._destroy()
    with pytest.raises(WrongDirectory, match=r"holds journal, but its node\.json is missing"):
        claim(tmp_path)
    with pytest.raises(WrongDirectory, match="holds journal"):
        claim(tmp_path)


def test_a_damaged_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text('{"node_id":')
    with pytest.raises(WrongDirectory, match="damaged"):
        claim(tmp_path)
