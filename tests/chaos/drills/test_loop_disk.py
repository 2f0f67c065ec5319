"""Disks that lose power: what was synced is kept, nothing else, and nothing is left behind by whatever end."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.drills.backends.loop_disk import FILESYSTEMS, lacking

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking())

PROGRAM = """
import os, subprocess, sys
from pathlib import Path
from chaos.drills.backends.loop_disk import LoopDisk
from chaos.drills.nodes import remove_durably
directory = Path(sys.argv[1])
disk = LoopDisk(directory, 400 << 20, sys.argv[2])
"""
POWER = """
def write(name, *, is_synced):
    with open(directory / name, "w") as file:
        file.write(name)
        file.flush()
        if is_synced:
            os.fsync(file.fileno())
def fails(name):
    try:
        write(name, is_synced=True)
    except OSError:
        return True
    return False
(directory / "old").mkdir()
write("old/removed", is_synced=True)
write("synced", is_synced=True)
remove_durably(directory / "old")
write("unsynced", is_synced=False)
disk.cut_power(is_journal_flushed=False)
print(fails("none"))
disk.mount()
print(sorted(path.read_text() for path in directory.rglob("*") if path.is_file()))
if sys.argv[2] == "ext4":
    disk.become_read_only()
    print(fails("none"))
    disk.mount()
write("later", is_synced=True)
disk.freeze()
disk.thaw()
print(fails("last"))
disk.close()
"""
FREEZE = """
disk.freeze()
print("frozen", flush=True)
subprocess.run(["touch", directory / "hangs"])  # this can't be killed until somebody thaws
"""


def _start(program: str, directory: Path, kind: str) -> subprocess.Popen[str]:
    directory.mkdir()
    command = [
        "unshare",
        "-m",
        "--propagation",
        "private",
        sys.executable,
        "-c",
        PROGRAM + program,
        str(directory),
        kind,
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kind", [kind for kind, make in FILESYSTEMS.items() if shutil.which(make[0])])
def test_power_that_is_cut_keeps_what_was_synced_and_nothing_else(tmp_path: Path, kind: str) -> None:
    output = _start(POWER, tmp_path / "disk", kind).communicate(timeout=60)[0]
    read_only = ["True"] if kind == "ext4" else []
    assert output.splitlines() == ["True", "['synced']", *read_only, "False"]
    assert list(tmp_path.iterdir()) == [tmp_path / "disk"]


def test_a_frozen_disk_is_thawed_and_detached_when_its_process_is_killed(tmp_path: Path) -> None:
    process = _start(FREEZE, tmp_path / "disk", "ext4")
    assert process.stdout is not None
    assert process.stdout.readline() == "frozen\n"
    assert str(tmp_path) in _attached()
    process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while str(tmp_path) in _attached():
        assert time.monotonic() < deadline, _attached()
        time.sleep(0.05)


def _attached() -> str:
    """The files behind all loop devices; those without a name have the one of their directory and a number."""
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return "\n".join(file.read_text() for file in files)
