"""Processes of drills; none is left when a drill ends, also by SIGTERM or SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline
from raftsched.cli.local.cluster import LocalCluster

_ROOT = Path(__file__).parents[2]


@contextmanager
def drill_cluster() -> Iterator[LocalCluster]:
    """Three nodes, one of which leads, in a directory that is gone afterwards."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the contexts are left
    with (
        tempfile.TemporaryDirectory(prefix="raftsched-drill-") as name,
        LocalCluster(Path(name) / "cluster", node_count=3) as cluster,
    ):
        cluster.wait_for_leader()
        yield cluster


def started_worker(cluster: LocalCluster, directory: Path, *queues: str) -> subprocess.Popen[bytes]:
    """Start a worker of `queues` that runs `tests.acceptance.handlers`; the caller ends it."""
    settings = {
        "RAFTSCHED_URL": " ".join(cluster.urls),
        "TEST_DIRECTORY": str(directory),
        "TEST_QUEUES": " ".join(queues),
    }
    app = ["--app", "tests.acceptance.handlers:worker", UNTIL_STDIN_ENDS]
    with (directory / f"worker{len(list(directory.glob('worker*.log')))}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "raftsched", "worker", *app],
            env=os.environ | settings,
            cwd=_ROOT,
            stdin=lifeline(),
            stdout=log,
            stderr=log,
            process_group=0,  # Ctrl-C is ours alone; and without us the kernel ends a paused worker, which reads nothing
        )
