"""A node knows when its disk is nearly full, and says so once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from raftsched.free_space import FreeSpace, free_bytes

MIB = 1 << 20


class _Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        raise AssertionError("free space needs no wall clock")


def test_free_space_is_low_below_the_reserve_and_enough_again_an_eighth_above_it() -> None:
    clock, free = _Clock(), 1_000 * MIB
    space = FreeSpace(lambda: free, clock, reserve_bytes=80 * MIB)
    seen = []
    with capture_logs() as logs:
        for mib in (1_000, 80, 79, 85, 89, 90, 85, 10, 0):
            free = mib * MIB
            clock.now += 1
            seen.append((mib, space.look().is_low))
    low = [mib for mib, is_low in seen if is_low]
    assert low == [79, 85, 89, 10, 0]
    said = [(line["event"], line["log_level"], line["free_mib"], line["reserve_mib"]) for line in logs]
    assert said == [("disk_low", "warning", 79, 80), ("disk_ok", "info", 90, 80), ("disk_low", "warning", 10, 80)]


def test_free_space_is_looked_at_once_a_second() -> None:
    clock, free = _Clock(), iter((5, 1))
    space = FreeSpace(lambda: next(free), clock, reserve_bytes=1)
    assert [space.look().free_bytes for _ in range(3)] == [5, 5, 5]
    clock.now += 1
    assert space.look().free_bytes == 1


def test_disk_that_can_not_be_looked_at_has_no_room() -> None:
    def fail() -> int:
        raise PermissionError(13, "Permission denied", "/data")

    with capture_logs() as logs:
        space = FreeSpace(fail, _Clock(), reserve_bytes=MIB).look()
    assert (space.free_bytes, space.is_low) == (0, True)
    assert "Permission denied" in logs[0]["error"]


def test_free_bytes_are_those_of_the_fullest_file_system_that_holds_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "journal").mkdir()
    assert abs(free_bytes(tmp_path) - shutil.disk_usage(tmp_path).free) < 256 * MIB

    def usage(path: Path) -> shutil._ntuple_diskusage:
        return shutil._ntuple_diskusage(100, 0, 7 if path.name == "journal" else 50)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert free_bytes(tmp_path) == 7
