"""One suite for every implementation of `raftsched.ports.Disk`, and what each adds to it."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.sim.machine.disk import SECTOR_BYTES, PowerCut, SimulatedDisk
from raftsched.disk import SystemDisk
from raftsched.ports import Disk
from tests.for_each import for_each


@pytest.fixture(params=["system", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "system":
        return SystemDisk(tmp_path / "made" / "on demand")
    return SimulatedDisk(random.Random(1))


# -- every disk -------------------------------------------------------------------------------------------------------


def test_disk_reads_what_was_appended(disk: Disk) -> None:
    file = disk.create("a")
    file.write(b"0123")
    file.write(b"")
    file.write(b"456789")
    assert file.size == 10
    assert disk.read("a") == b"0123456789"
    assert disk.read("a", 4) == b"456789"
    assert disk.read("a", 2, 3) == b"234"
    assert disk.read("a", 2, 0) == b""


def test_disk_read_is_short_at_the_end_of_the_file(disk: Disk) -> None:
    disk.create("a").write(b"0123")
    assert disk.read("a", 2, 100) == b"23"
    assert disk.read("a", 4, 100) == b""
    assert disk.read("a", 9) == b""


def test_disk_names_are_sorted(disk: Disk) -> None:
    for name in ("b", "c", "a"):
        disk.create(name).close()
    assert disk.names() == ["a", "b", "c"]


def test_disk_refuses_to_create_a_file_twice(disk: Disk) -> None:
    disk.create("a").write(b"kept")
    with pytest.raises(FileExistsError):
        disk.create("a")
    assert disk.read("a") == b"kept"


def test_disk_replace_renames_over_the_target_and_open_files_follow(disk: Disk) -> None:
    disk.create("old").write(b"old")
    file = disk.create("new")
    file.write(b"new")
    disk.replace("new", "old")
    file.write(b"er")
    file.datasync()
    disk.sync_directory()
    assert disk.names() == ["old"]
    assert disk.read("old") == b"newer"


def test_disk_removed_file_is_gone(disk: Disk) -> None:
    disk.create("a").close()
    disk.remove("a")
    assert disk.names() == []
    with pytest.raises(FileNotFoundError):
        disk.read("a")


@pytest.mark.parametrize("call", ["read", "remove", "replace"])
def test_disk_missing_file_is_an_error(disk: Disk, call: str) -> None:
    arguments = ("absent", "target") if call == "replace" else ("absent",)
    with pytest.raises(FileNotFoundError):
        getattr(disk, call)(*arguments)


@pytest.mark.parametrize("call", ["write", "datasync"])
def test_disk_closed_file_refuses_everything(disk: Disk, call: str) -> None:
    file = disk.create("a")
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        getattr(file, call)(*([b"x"] if call == "write" else []))
    assert disk.read("a") == b""


# -- the system's -----------------------------------------------------------------------------------------------------


def test_system_disk_makes_its_directory_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    SystemDisk(tmp_path / "a" / "b")
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    SystemDisk(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_system_disk_without_create_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SystemDisk(tmp_path / "absent", create=False).names()
    assert not list(tmp_path.iterdir())


def test_system_disk_writes_all_where_the_kernel_takes_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, bytes(data[:3])))
    disk = SystemDisk(tmp_path)
    file = disk.create("a")
    file.write(b"0123456789")
    assert (file.size, disk.read("a")) == (10, b"0123456789")


def test_system_disk_reads_all_where_the_kernel_gives_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SystemDisk(tmp_path)
    disk.create("a").write(b"0123456789")
    real_pread = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, length, at: real_pread(descriptor, min(length, 3), at))
    assert disk.read("a", 1, 8) == b"12345678"
    assert disk.read("a", 1, 80) == b"123456789"


def test_system_disk_lock_keeps_another_process_away(tmp_path: Path) -> None:
    program = "import sys, pathlib, raftsched.disk as d; d.SystemDisk(pathlib.Path(sys.argv[1])).lock()"
    command = [sys.executable, "-c", program, str(tmp_path)]
    disk = SystemDisk(tmp_path)
    disk.lock()
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "BlockingIOError" in refused.stderr
    disk.unlock()
    subprocess.run(command, check=True)


# -- the simulated ----------------------------------------------------------------------------------------------------


def _disk(seed: int) -> SimulatedDisk:
    return SimulatedDisk(random.Random(seed))


@for_each("seed", range(20))
def test_simulated_power_loss_keeps_what_was_synced(seed: int) -> None:
    disk = _disk(seed)
    file = disk.create("a")
    file.write(b"synced")
    file.datasync()
    disk.sync_directory()
    file.write(b"lost?" * 1000)
    disk.create("b").write(b"lost?")
    disk.power_loss()
    assert disk.read("a", 0, 6) == b"synced"


def test_simulated_power_loss_gives_every_kind_of_tail() -> None:
    lost, whole, torn = 0, 0, 0
    data = bytes(range(1, 251)) * 10
    for seed in range(100):
        disk = _disk(seed)
        file = disk.create("a")
        disk.sync_directory()
        file.write(data)
        disk.power_loss()
        left = disk.read("a")
        lost, whole = lost + (left == b""), whole + (left == data)
        torn += any(left[at : at + 100] == data[at : at + 100] for at in range(SECTOR_BYTES, 2000, SECTOR_BYTES)) and (
            left[:SECTOR_BYTES] != data[:SECTOR_BYTES]
        )
    assert min(lost, whole, torn) >= 5


def test_simulated_power_loss_loses_and_keeps_unsynced_names() -> None:
    outcomes = set()
    for seed in range(60):
        disk = _disk(seed)
        disk.create("old").close()
        disk.sync_directory()
        disk.create("new").close()
        disk.replace("old", "older")
        disk.power_loss()
        outcomes.add(tuple(disk.names()))
    assert outcomes == {("old",), ("new", "old"), ("older",), ("new", "older")}


def test_simulated_kill_loses_nothing_but_the_handles() -> None:
    disk = _disk(1)
    file = disk.create("a")
    file.write(b"in the page cache")
    disk.kill()
    assert disk.read("a") == b"in the page cache"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write(b"x")


def test_simulated_failed_sync_drops_the_pages_while_readers_see_them() -> None:
    disk = _disk(1)
    file = disk.create("a")
    file.write(b"first")
    disk.sync_directory()
    disk.fail("datasync")
    with pytest.raises(OSError) as raised:
        file.datasync()
    assert raised.value.errno == errno.EIO
    file.datasync()
    assert disk.read("a") == b"first"
    disk.power_loss()
    assert disk.read("a").strip(b"\0") == b""


def test_simulated_full_disk_writes_a_part_and_fails() -> None:
    disk = SimulatedDisk(random.Random(1), capacity_bytes=4)
    file = disk.create("a")
    with pytest.raises(OSError) as raised:
        file.write(b"012345")
    assert raised.value.errno == errno.ENOSPC
    assert disk.read("a") == b"0123"


def test_simulated_failure_is_due_once_after_its_skips() -> None:
    disk = _disk(1)
    disk.create("a").close()
    disk.fail("read", skip=1)
    disk.read("a")
    with pytest.raises(OSError, match="Input/output"):
        disk.read("a")
    disk.read("a")


def test_simulated_power_cut_does_nothing_from_there_on() -> None:
    disk = _disk(1)
    disk.cut_power_after(1)
    file = disk.create("a")
    for _ in range(2):
        with pytest.raises(PowerCut):
            file.write(b"x")
    assert disk.read("a") == b""
    disk.kill()
    disk.create("b").write(b"x")


def test_simulated_disk_repeats_by_its_seed() -> None:
    def run(seed: int) -> bytes:
        disk = _disk(seed)
        file = disk.create("a")
        disk.sync_directory()
        file.write(random.Random(0).randbytes(10_000))
        disk.power_loss()
        return disk.read("a")

    assert run(3) == run(3)
    assert len({run(seed) for seed in range(20)}) > 5
