"""A node as it is, but for a wall clock that is ahead: so a cluster that was stopped comes back hours later at once.

    python -m tests.drills.later_node --config FILE --ahead-seconds 86400

The node takes its clock as an object, so nothing else of it differs. Durations are measured on the monotonic clock,
which is this machine's. Left out: `raftsched node`'s handling of faults; a node that fails ends with a traceback.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import click
import uvloop

from raftsched import config, logs
from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline, until_stdin_ends_option
from raftsched.cli.local.cluster import LocalCluster
from raftsched.node.node import Node
from raftsched.node.shutdown import Shutdown
from raftsched.system import SystemClock, system_randomness

_ROOT = Path(__file__).parents[2]


class LaterClock(SystemClock):
    """The clocks of this machine, its wall clock set ahead."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


def start_later(cluster: LocalCluster, seconds: int) -> None:
    """Start all nodes of a stopped cluster, each with a wall clock that is so far ahead."""
    for node in cluster.nodes:
        environment = os.environ | {"RAFTSCHED_NODE_ID": node.id, "RAFTSCHED_DATA_DIR": str(node.data_directory)}
        settings = ["--config", str(cluster.config), "--ahead-seconds", str(seconds), UNTIL_STDIN_ENDS]
        with node.log_file.open("ab") as log:
            node.process = subprocess.Popen(
                [sys.executable, "-m", "tests.drills.later_node", *settings],
                env=environment,
                cwd=_ROOT,
                stdin=lifeline(),
                stdout=log,
                stderr=log,
                process_group=0,
            )
    cluster.write_description()


@click.command()
@click.option("--config", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
@click.option("--ahead-seconds", type=int, required=True)
@until_stdin_ends_option
def main(path: Path, ahead_seconds: int) -> None:
    """Run one node whose wall clock is ahead."""
    loaded = config.load(path)
    logs.configure(level=loaded.log_level, form=loaded.log_format, node_id=loaded.node_id)
    shutdown = Shutdown()
    shutdown.watch_signals()
    clock = LaterClock(ahead_seconds * 1000)
    node = Node(loaded, clock=clock, randomness=system_randomness(), shutdown=shutdown)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(node.run())


if __name__ == "__main__":
    main()
