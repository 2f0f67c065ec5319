"""The shim of syncs: in each mode a program sees what a disk like that would show."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.drills.shims import NodeShims, Shims

PROGRAM = """
import os, sys, time
begin = time.monotonic()
sync = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
import fcntl
is_direct = bool(fcntl.fcntl(sync, fcntl.F_GETFL) & os.O_DSYNC)
directory = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)
for descriptor in (sync, directory):
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        print(error.errno, end=" ")
print(is_direct, time.monotonic() - begin >= 0.6)
"""


@contextmanager
def _program(shims: NodeShims, path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, env=os.environ | shims.settings, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_syncs_are_slow_fail_lie_or_hang_until_they_may_continue(tmp_path: Path) -> None:
    shims = Shims(tmp_path).of_node(tmp_path, "n1")
    file = tmp_path / "file"
    seen = {}
    for mode in ("", "slow", "fail", "full", "lie", "lie-directories", "hang /other"):
        shims.set_syncs(mode)
        with _program(shims, file) as process:
            seen[mode] = process.communicate(timeout=20)[0].strip()
    sound = "True False"
    assert seen == {
        "": sound,
        "slow": "True True",
        "fail": f"5 5 {sound}",
        "full": f"28 28 {sound}",
        "lie": "False False",
        "lie-directories": sound,
        "hang /other": sound,
    }
    shims.set_syncs("hang /file$")
    with _program(shims, file) as process:
        await shims.hold_sync("/file$", seconds=20)
        assert process.poll() is None
        shims.set_syncs("")
        assert process.communicate(timeout=20)[0].strip()[:4] == "True"
    with pytest.raises(TimeoutError):
        await shims.hold_sync("/file$", seconds=0.01)
