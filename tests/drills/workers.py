"""Worker processes of drills that measure; none is left when a drill ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline
from raftsched.cli.local.cluster import LocalCluster

_ROOT = Path(__file__).parents[2]


@contextmanager
def running_worker(cluster: LocalCluster, *queues: str, concurrency: int) -> Iterator[None]:
    """A worker of `queues` that runs `tests.drills.handlers`, killed at the end."""
    settings = {
        "RAFTSCHED_URL": " ".join(cluster.urls),
        "DRILL_QUEUES": " ".join(queues),
        "DRILL_CONCURRENCY": str(concurrency),
    }
    with (cluster.directory / "workers.log").open("ab") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "raftsched", "worker", "--app", "tests.drills.handlers:worker", UNTIL_STDIN_ENDS],
            env=os.environ | settings,
            cwd=_ROOT,
            stdin=lifeline(),
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        worker.kill()
        worker.wait()
