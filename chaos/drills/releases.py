"""Releases of raftsched as directories that nodes run from: today's source, a later one made from it, or that of a commit.

A later release reads log entries of one version more, and calls pausing a queue an operation of that version. So what a
later release may do before all nodes have it can be seen, although both have the same source.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from raftsched.core.operations.codec import CODEC_VERSION

_ROOT: Final = Path(__file__).parents[2]
LATER_VERSION: Final = CODEC_VERSION + 1
"""The version of log entries that the later release reads."""
_CHECK_SECONDS_MAX: Final = 300


class Release(NamedTuple):
    """A release, and the directory that holds its package and its metadata."""

    name: str
    directory: Path


def release_of_source(directory: Path, name: str) -> Release:
    """Copy today's source; bytecode too, so that no node compiles it."""
    shutil.copytree(_ROOT / "raftsched", directory / "raftsched")
    return _named(directory, name)


def later_release(directory: Path, name: str) -> Release:
    """Make a release that reads one version of log entries more, and has an operation of that version."""
    release = release_of_source(directory, name)
    codec = directory / "raftsched/core/operations/codec.py"
    declared = f"\nCODEC_VERSION: Final = {CODEC_VERSION}\n"
    text = codec.read_text(encoding="utf-8")
    assert text.count(declared) == 1, f"{codec} declares its version otherwise: change this drill"
    codec.write_text(text.replace(declared, f"\nCODEC_VERSION: Final = {LATER_VERSION}\n"), encoding="utf-8")
    with (directory / "raftsched/core/operations/queues.py").open("a", encoding="utf-8") as queues:
        queues.write(f"\n\nPauseQueue.since = {LATER_VERSION}\n")
    return release


def release_of_commit(directory: Path, commit: str) -> Release:
    """Take the source of a commit or a tag of this repository."""
    archive = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", commit, "raftsched"], capture_output=True, check=True, timeout=60
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return _named(directory, "0.0.1")


def faults_by(release: Path, directories: Sequence[Path]) -> list[str]:
    """Return what `raftsched check` of a release finds wrong with the data directories of stopped nodes."""
    ran = subprocess.run(
        [sys.executable, "-m", "raftsched", "check", *map(str, directories)],
        cwd=release,
        capture_output=True,
        text=True,
        timeout=_CHECK_SECONDS_MAX,
        check=False,
    )
    return [f"check: {ran.stdout}{ran.stderr}"] if ran.returncode else []


def _named(directory: Path, name: str) -> Release:
    metadata = directory / f"raftsched-{name}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: raftsched\nVersion: {name}\n", encoding="ascii")
    return Release(name, directory)
