"""`raftsched compact`: the file of a stopped node's state becomes small, and nothing else changes, whatever goes wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from raftsched.cli.commands.compact import compact_command
from raftsched.errors import RaftschedError
from raftsched.node.check import check_directory
from raftsched.node.compaction import compact_directory
from raftsched.node.identity import DirectoryClaim, WrongDirectory
from raftsched.storage.store.lmdb_store import DATA_FILE, open_store
from raftsched.storage.store.port import Table
from tests.node.test_check import make


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A node's directory whose state was much larger once."""
    directory = make(tmp_path / "n1", jobs=3)
    store = open_store(directory / "state")
    keys = [b"%016d" % number for number in range(1_000)]
    for key in keys:
        store.put(Table.RESULTS, key, bytes(2_000))
    store.commit()
    for key in keys:
        store.delete(Table.RESULTS, key)
    store.commit()
    store.close()
    return directory


def size(directory: Path) -> int:
    return (directory / "state" / DATA_FILE).stat().st_size


def test_the_file_shrinks_and_the_state_is_the_same(directory: Path) -> None:
    before, report = size(directory), check_directory(directory)
    told = CliRunner().invoke(compact_command, ["--data-dir", str(directory)])
    assert told.exit_code == 0
    assert size(directory) < before // 4
    assert f"{before:,} bytes before, {size(directory):,} after" in told.output.replace("\n", "")
    assert check_directory(directory) == report
    assert report.violations == ()
    assert [path.name for path in (directory / "snapshots").iterdir()] == []


def test_a_node_that_runs_is_left_alone(directory: Path) -> None:
    before = size(directory)
    claim = DirectoryClaim(directory, node_id="n1", cluster="c")
    with pytest.raises(WrongDirectory, match="in use"):
        compact_directory(directory)
    claim.release()
    assert size(directory) == before


class Power:
    """Fails every call to the disk after the first `calls`."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def on(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            self.calls -= 1
            if self.calls < 0:
                raise OSError(5, "the power is gone")
            return original(*arguments, **settings)

        return call


def compacts(directory: Path, power: Power) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
            patch.setattr(owner, name, power.on(getattr(owner, name)))
        try:
            compact_directory(directory)
        except (OSError, RaftschedError):
            return False
        return True


def test_whatever_stops_it_the_old_state_or_the_new_one_is_there(directory: Path) -> None:
    """The power goes before each sync, rename and removal."""
    report = check_directory(directory)
    calls = 0
    while not compacts(directory, Power(calls)):
        assert check_directory(directory) == report, calls
        calls += 1
    assert check_directory(directory) == report
    assert calls >= 4


def test_a_damaged_state_is_not_compacted(directory: Path) -> None:
    path = directory / "state" / DATA_FILE
    path.write_bytes(path.read_bytes()[:5_000])
    told = CliRunner().invoke(compact_command, ["--data-dir", str(directory)])
    assert (told.exit_code, size(directory)) == (1, 5_000)
    assert "damaged" in told.output
