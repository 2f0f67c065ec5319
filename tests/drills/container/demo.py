"""Run `raftsched demo` with its nodes in containers, which share the network of this machine."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from chaos.drills.backends.containers.engine import HARDENED, IMAGE, USER_ID, Engine
from raftsched.cli.demo.run import run_demo
from raftsched.cli.local.cluster import LocalCluster, LocalNode

_LEADER_SECONDS_MAX: Final = 120.0
"""Containers take longer to start than processes."""


def faults(docker: Engine, directory: Path) -> Iterator[str]:
    """Run the demo, whose leader is killed by `docker kill`; yield what is not as planned."""
    prefix = f"raftsched-demo-{secrets.token_hex(3)}"

    class ContainerNode(LocalNode):
        """A node in a container; its data is a volume."""

        starts = 0

        @property
        def name(self) -> str:
            return f"{prefix}-{self.id}-{self.starts}"

        def start(self, config: Path) -> None:
            self.starts += 1
            token = config.with_name("admin.token")
            for path in (config, token):
                os.chown(path, USER_ID, USER_ID)
            volumes = (
                f"{config}:/etc/raftsched/cluster.toml:ro",
                f"{token}:{token}:ro",
                f"{prefix}-{self.id}:/var/lib/raftsched",
            )
            variables = {"RAFTSCHED_NODE_ID": self.id, "RAFTSCHED_DATA_DIR": "/var/lib/raftsched"}
            options = [f"--volume={each}" for each in volumes] + [
                f"--env={key}={text}" for key, text in variables.items()
            ]
            with self.log_file.open("ab") as log:
                command = ("run", "--rm", "--name", self.name, "--network", "host", *HARDENED, *options, IMAGE)
                self.process = docker.popen(*command, stdout=log, stderr=log, process_group=0)

        def kill(self) -> None:
            docker("kill", self.name)
            self.wait()
            self.process = None

    class ContainerCluster(LocalCluster):
        node_type = ContainerNode

        def wait_for_leader(self, *, seconds: float = _LEADER_SECONDS_MAX) -> LocalNode:
            return super().wait_for_leader(seconds=seconds)

    def cluster_of(place: Path, **settings: Any) -> LocalCluster:
        return ContainerCluster(place, **settings)

    with ExitStack() as afterwards:
        for number in range(1, 4):
            docker("volume", "create", f"{prefix}-n{number}")
            afterwards.callback(docker, "volume", "rm", "--force", f"{prefix}-n{number}")
        report = asyncio.run(run_demo(directory, make_cluster=cluster_of))
    yield from report.faults
    for check in report.checks:
        yield from check.faults or ([] if check.looked_at else [f"{check.wrong}: there was nothing to check"])
    if not report.leader_changes:
        yield "demo: the leader was not killed"
