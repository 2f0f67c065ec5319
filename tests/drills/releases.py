"""Releases of raftsched as directories that nodes run from: today's source, a later one made from it, or that of a commit.

A later release reads log entries of one version more, and calls pausing a queue an operation of that version. So what a
later release may do before all nodes have it can be seen, although both have the same source.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final, NamedTuple

from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline
from raftsched.cli.local.cluster import LocalCluster, LocalNode
from raftsched.core.operations.codec import CODEC_VERSION

_ROOT: Final = Path(__file__).parents[2]
LATER_VERSION: Final = CODEC_VERSION + 1
"""The version of log entries that the later release reads."""


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


def _named(directory: Path, name: str) -> Release:
    metadata = directory / f"raftsched-{name}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: raftsched\nVersion: {name}\n", encoding="ascii")
    return Release(name, directory)


def start_node(cluster: LocalCluster, node: LocalNode, release: Release) -> None:
    """Start a node of a release; it is not ready yet when this returns."""
    environment = os.environ | {"RAFTSCHED_NODE_ID": node.id, "RAFTSCHED_DATA_DIR": str(node.data_directory)}
    with node.log_file.open("ab") as log:
        node.process = subprocess.Popen(
            [sys.executable, "-m", "raftsched", "node", "--config", str(cluster.config), UNTIL_STDIN_ENDS],
            env=environment,
            cwd=release.directory,  # the first place where Python looks for the package
            stdin=lifeline(),
            stdout=log,
            stderr=log,
            process_group=0,
        )


def check_data(node: LocalNode, release: Release) -> None:
    """Raise unless `raftsched check` of that release finds the data of a stopped node right."""
    ran = subprocess.run(
        [sys.executable, "-m", "raftsched", "check", str(node.data_directory)],
        cwd=release.directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
