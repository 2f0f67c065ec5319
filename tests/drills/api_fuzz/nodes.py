"""Watch the node processes: that they live, stay small, log no fault, and leave sound data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from raftsched.cli.local.cluster import LocalCluster
from raftsched.node.check import check_directory

MEMORY_MIB_MAX: Final = 400
"""Memory of a node that is no mapped file: twice what one with some thousand jobs and all caches full has."""
_FAULTS: Final = ("request_failed", "Traceback (most recent", "invariant_broken")


def pids_of(cluster: LocalCluster) -> list[int]:
    return [node.process.pid for node in cluster.nodes if node.process is not None]


def memory_mib_of(pid: int) -> int:
    """Return the memory of a process without the files that it maps."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    [line] = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) // 1024


def faults_of(cluster: LocalCluster, pids: Sequence[int]) -> list[str]:
    """Return what is wrong with the processes."""
    ended = [f"{node.id} has ended: {node.last_words()}" for node in cluster.nodes if not node.is_running]
    if ended or pids_of(cluster) != list(pids):
        return ended or ["a node was started again"]
    return [
        f"{node.id} has {size} MiB"
        for node, pid in zip(cluster.nodes, pids, strict=True)
        if (size := memory_mib_of(pid)) > MEMORY_MIB_MAX
    ]


def faults_in_logs(cluster: LocalCluster, secrets: Sequence[str]) -> list[str]:
    """Return the lines of logs that tell of a fault of our own, or a token."""
    found: list[str] = []
    for node in cluster.nodes:
        with node.log_file.open(encoding="utf-8", errors="replace") as log:
            found += [
                f"the log of {node.id}: {line.strip()[:1000]}"
                for line in log
                if any(fault in line for fault in _FAULTS) or any(secret in line for secret in secrets)
            ]
    return found


def faults_on_disk(cluster: LocalCluster) -> list[str]:
    """Return what `raftsched check` finds in the directories of the nodes, which have stopped."""
    return [
        f"the directory of {node.id}: {each}"
        for node in cluster.nodes
        for each in check_directory(node.data_directory).violations
    ]
