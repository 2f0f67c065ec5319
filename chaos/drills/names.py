"""Names of files that were not synced, and are lost with the power: on any disk, without root.

POSIX promises the name of a new, renamed or removed file after a sync of its directory only. Real file systems keep most
names with the next sync of whatever file, so cutting their power shows little. Here a node runs with `track` instead: at
each sync of a directory its names are kept, as hard links beside the data. `lose` gives each directory the names of its
last sync again. The bytes of files are as the node left them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
from pathlib import Path
from threading import Lock
from typing import Final

KEPT: Final = "kept"
"""Directory for the kept names, in the one whose names are tracked."""
_PATH_BYTES_MAX: Final = 1024
"""The limit of macOS."""


def track(directory: Path, *, drops_all: bool = False) -> None:
    """Let each `os.fsync` of a directory in `directory` keep its names from now on; none if `drops_all`."""
    sync, lock, directory = os.fsync, Lock(), directory.resolve()

    def tracked(descriptor: int) -> None:
        sync(descriptor)
        if not drops_all and stat.S_ISDIR(os.fstat(descriptor).st_mode):
            synced = _path_of(descriptor)
            if synced.is_relative_to(directory):
                with lock:
                    _copy_names(synced, directory / KEPT / synced.relative_to(directory))

    os.fsync = tracked  # type: ignore[assignment]  # ours are descriptors


def _path_of(descriptor: int) -> Path:
    if sys.platform == "darwin":
        return Path(os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(_PATH_BYTES_MAX)).rstrip(b"\0")))
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def lose(directory: Path) -> None:
    """Give `directory`, and all in it, the names of their last syncs; no process uses it."""
    kept = directory / KEPT
    kept.mkdir(exist_ok=True)
    _restore_names(kept, directory)


def _restore_names(kept: Path, directory: Path) -> None:
    _copy_names(kept, directory)
    for each in kept.iterdir():
        if each.is_dir():
            _restore_names(each, directory / each.name)


def _copy_names(source: Path, target: Path) -> None:
    """Give `target` the names that `source` has; directories that are new there are empty."""
    target.mkdir(exist_ok=True, parents=True)
    names = {each.name for each in source.iterdir()} | {KEPT}
    for each in target.iterdir():
        if each.name not in names:
            _remove(each)
    for each in source.iterdir():
        copy = target / each.name
        if each.name == KEPT or (copy.exists() and copy.samefile(each)):
            continue
        if each.is_dir():
            copy.mkdir(exist_ok=True)
        else:
            copy.unlink(missing_ok=True)
            copy.hardlink_to(each)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
