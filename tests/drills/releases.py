"""Nodes of a local cluster that run a release."""

from __future__ import annotations

import os
import subprocess
import sys

from chaos.drills.releases import Release
from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline
from raftsched.cli.local.cluster import LocalCluster, LocalNode


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
