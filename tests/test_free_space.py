"""New work is refused before the disk is full."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from raftsched.errors import StorageFull
from raftsched.free_space import FreeSpace


class _Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        raise AssertionError("free space needs no wall clock")


def test_enough_space_passes(tmp_path: Path) -> None:
    FreeSpace(tmp_path, _Clock(), free_bytes_min=1).check()


def test_too_little_space_is_refused_with_507(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(StorageFull, match="new jobs are refused") as caught:
        FreeSpace(tmp_path, _Clock(), free_bytes_min=free * 2).check()
    assert caught.value.http_status == 507


def test_space_is_looked_at_again_after_a_second(tmp_path: Path) -> None:
    clock = _Clock()
    directory = tmp_path / "gone"
    directory.mkdir()
    space = FreeSpace(directory, clock, free_bytes_min=1)
    space.check()
    directory.rmdir()
    space.check()
    clock.now += 1
    with pytest.raises(FileNotFoundError):
        space.check()
