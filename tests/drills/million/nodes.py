"""Nodes as they are, but for a count of the rows that their stores give out: `raftsched node` with a file of two numbers.

python -m tests.drills.million.nodes node --config FILE
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from raftsched.__main__ import run
from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline
from raftsched.cli.local.cluster import LocalCluster, LocalNode
from raftsched.storage.store.lmdb_store import LmdbStore
from raftsched.storage.store.port import Row, Table

_ROOT = Path(__file__).parents[3]
_FILE: Final = "DRILL_READS_FILE"
_FILE_BYTES: Final = 16


class Use(NamedTuple):
    """What a node has used since its start."""

    steps: int
    """Calls of its store, each a descent in a tree."""
    rows: int
    cpu_ms: float

    def since(self, before: Use) -> Use:
        return Use(self.steps - before.steps, self.rows - before.rows, self.cpu_ms - before.cpu_ms)


class CountingNode(LocalNode):
    """A node process that counts its reads."""

    @property
    def reads_file(self) -> Path:
        return self.directory / "reads"

    def start(self, config: Path) -> None:
        self.reads_file.write_bytes(bytes(_FILE_BYTES))
        settings = {
            "RAFTSCHED_NODE_ID": self.id,
            "RAFTSCHED_DATA_DIR": str(self.data_directory),
            _FILE: str(self.reads_file),
        }
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, "node", "--config", str(config), UNTIL_STDIN_ENDS],
                env=os.environ | settings,
                cwd=_ROOT,
                stdin=lifeline(),
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def use(self) -> Use:
        """Return what it has used; the CPU is that of all its threads, by the clock of the process."""
        assert self.process is not None
        counts = memoryview(self.reads_file.read_bytes()).cast("Q")
        # `clock_getcpuclockid` of Linux; psutil reads /proc, which counts in steps of 10 ms.
        return Use(counts[0], counts[1], time.clock_gettime_ns((~self.process.pid << 3) | 2) / 1e6)


class CountingCluster(LocalCluster):
    """Nodes that count their reads."""

    node_type = CountingNode


def _count_reads(path: Path) -> None:
    """Count the calls of the store, and the rows that it gives out, as `tests.dashboard.cost.CountingStore` does."""
    with path.open("r+b") as file:
        counts = memoryview(mmap.mmap(file.fileno(), _FILE_BYTES)).cast("Q")
    get, scan = LmdbStore.get, LmdbStore.scan

    def counted_get(self: LmdbStore, table: Table, key: bytes) -> bytes | None:
        counts[0] += 1
        counts[1] += 1
        return get(self, table, key)

    def counted_scan(
        self: LmdbStore, table: Table, start: bytes, stop: bytes | None, *, limit: int, reverse: bool = False
    ) -> list[Row]:
        rows = scan(self, table, start, stop, limit=limit, reverse=reverse)
        counts[0] += 1
        counts[1] += len(rows)
        return rows

    LmdbStore.get = counted_get  # type: ignore[method-assign]
    LmdbStore.scan = counted_scan  # type: ignore[method-assign]


if __name__ == "__main__":
    _count_reads(Path(os.environ[_FILE]))
    run()
